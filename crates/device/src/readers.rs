//! A few threads that carry out submitted reads of files, so that a reader who needs many places has them read at
//! once with nothing but plain positional reads.
//!
//! Who waits for a read that no thread has begun yet does it himself, so a lone read never crosses threads: a thread
//! is woken only when a second one is queued. Threads take the newest read, owners wait for their oldest first, and
//! the two meet in the middle. The queue is bounded; past its end a read is left to its owner. Threads are started
//! when first needed and end with the last file and directory that uses them.
//!
//! A submitted read costs one allocation, two short locks of the queue and one of its own.

use crate::{AlignedBuf, Pending, ReadRequest, Ticket};
use cuesta_sched::{Condvar, Mutex, Priority, Sched, Thread};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Threads at most: what a drive of the kind that needs them has in flight is worth little beyond.
const THREADS_MAX: usize = 8;
/// Reads that wait for a thread, at most.
const QUEUE_MAX: usize = 256;

/// The threads of one directory.
#[derive(Debug)]
pub(crate) struct Readers {
    sched: Sched,
    shared: Arc<Shared>,
    threads: Mutex<Vec<Thread>>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    reads: VecDeque<Arc<Read>>,
    /// Threads that wait for a read.
    idle: usize,
    closed: bool,
}

/// A read that its owner and the threads share.
#[derive(Debug)]
struct Read {
    file: Arc<File>,
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug)]
enum State {
    Waiting(ReadRequest),
    /// A thread, or the owner, is at it.
    Taken,
    Done(io::Result<AlignedBuf>),
}

impl Readers {
    pub(crate) fn new(sched: &Sched) -> Self {
        let shared = Shared { queue: Mutex::new(sched, Queue::default()), changed: Condvar::new(sched) };
        Self { sched: sched.clone(), shared: Arc::new(shared), threads: Mutex::new(sched, Vec::new()) }
    }

    /// Queues a read of `file`.
    pub(crate) fn submit(&self, file: &Arc<File>, request: ReadRequest) -> Ticket {
        let state = Mutex::new(&self.sched, State::Waiting(request));
        let read = Arc::new(Read { file: file.clone(), state, done: Condvar::new(&self.sched) });
        let mut queue = self.shared.queue.lock();
        if queue.reads.len() < QUEUE_MAX {
            queue.reads.push_back(read.clone());
        }
        // The owner will do one itself.
        let (wanted, idle) = (queue.reads.len() > 1, queue.idle);
        drop(queue);
        if wanted {
            self.wake(idle);
        }
        Ticket::pending(Box::new(Owned { read, shared: self.shared.clone() }))
    }

    /// Wakes a thread, or starts one.
    fn wake(&self, idle: usize) {
        if idle == 0 {
            let mut threads = self.threads.lock();
            if threads.len() < THREADS_MAX {
                let shared = self.shared.clone();
                let started = self.sched.spawn("cuesta-read", Priority::Normal, move || shared.serve());
                // Without a thread the owners do their reads themselves.
                threads.extend(started.ok());
            }
        }
        self.shared.changed.notify_one();
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.lock().drain(..) {
            thread.join();
        }
    }
}

impl Shared {
    /// A thread's life.
    fn serve(&self) {
        let mut queue = self.queue.lock();
        while !queue.closed {
            let Some(read) = queue.reads.pop_back() else {
                queue.idle += 1;
                queue = self.changed.wait(queue);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            if let Some(request) = read.take() {
                let result = read.carry_out(request);
                *read.state.lock() = State::Done(result);
                read.done.notify_all();
            }
            queue = self.queue.lock();
        }
    }
}

impl Read {
    /// The request, if nobody has begun it.
    fn take(&self) -> Option<ReadRequest> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Waiting(request) => Some(request),
            other => {
                *state = other;
                None
            }
        }
    }

    fn carry_out(&self, request: ReadRequest) -> io::Result<AlignedBuf> {
        let ReadRequest { mut buffer, offset } = request;
        self.file.read_exact_at(&mut buffer, offset)?;
        Ok(buffer)
    }
}

/// The owner's end.
#[derive(Debug)]
struct Owned {
    read: Arc<Read>,
    shared: Arc<Shared>,
}

impl Pending for Owned {
    fn wait(self: Box<Self>) -> io::Result<AlignedBuf> {
        if let Some(request) = self.read.take() {
            return self.read.carry_out(request);
        }
        let mut state = self.read.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Done(result) => return result,
                other => *state = other,
            }
            state = self.read.done.wait(state);
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.shared.queue.lock().reads.retain(|read| !Arc::ptr_eq(read, &self.read));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALIGNMENT, Access, Directory, FileDirectory};

    #[test]
    fn many_reads_under_way_each_give_their_own_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let directory = FileDirectory::open(dir.path()).unwrap().with_readers(&Sched::real(1));
        let file = directory.create("x", Access::Buffered).unwrap();
        for i in 0..100u8 {
            file.write_at(&[i; ALIGNMENT], u64::from(i) * ALIGNMENT as u64).unwrap();
        }
        for round in 0..50u64 {
            let at = |i: u64| (i * 7 + round) % 100;
            let submit = |i| {
                let buffer = AlignedBuf::zeroed(ALIGNMENT);
                file.submit(ReadRequest { buffer, offset: at(i) * ALIGNMENT as u64 })
            };
            let mut tickets: Vec<_> = (0..20).map(submit).collect();
            // Some are never waited for.
            drop(tickets.split_off(15));
            for (i, ticket) in tickets.into_iter().enumerate() {
                assert_eq!(ticket.wait().unwrap()[..], [at(i as u64) as u8; ALIGNMENT]);
            }
        }
        let past = ReadRequest { buffer: AlignedBuf::zeroed(ALIGNMENT), offset: 100 * ALIGNMENT as u64 };
        assert_eq!(file.submit(past).wait().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_lone_read_is_done_by_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let sched = Sched::real(1);
        let path = dir.path().join("x");
        std::fs::write(&path, [7; ALIGNMENT]).unwrap();
        let readers = Readers::new(&sched);
        let file = Arc::new(File::open(path).unwrap());
        for _ in 0..3 {
            let buffer = AlignedBuf::zeroed(ALIGNMENT);
            assert_eq!(readers.submit(&file, ReadRequest { buffer, offset: 0 }).wait().unwrap()[0], 7);
        }
        assert!(readers.threads.lock().is_empty());
    }
}
