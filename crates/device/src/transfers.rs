//! A few threads that carry out submitted reads and writes of files, so that a reader who needs many places has them
//! read at once, and a writer goes on while its bytes are being written, with nothing but plain positional calls.
//!
//! Who waits for a transfer that no thread has begun yet does it himself, so a lone read never crosses threads: a thread
//! is woken only when a second one is queued, or for a write, since its owner means to do something else meanwhile.
//! Threads take the newest, owners wait for their oldest first, and the two meet in the middle. The queue is bounded;
//! past its end a transfer is left to its owner. Threads are started when first needed and end with the last file and
//! directory that uses them.
//!
//! A submitted transfer costs one allocation, two short locks of the queue and one of its own.

use crate::{AlignedBuf, Pending, ReadRequest, Ticket, WriteRequest};
use cuesta_sched::{Condvar, Mutex, Priority, Sched, Thread};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Threads at most: what a drive of the kind that needs them has in flight is worth little beyond.
const THREADS_MAX: usize = 8;
/// Transfers that wait for a thread, at most.
const QUEUE_MAX: usize = 256;

/// The threads of one directory.
#[derive(Debug)]
pub(crate) struct Transfers {
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
    waiting: VecDeque<Arc<Transfer>>,
    /// Threads that wait for a transfer.
    idle: usize,
    closed: bool,
}

/// A transfer that its owner and the threads share.
#[derive(Debug)]
struct Transfer {
    file: Arc<File>,
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug)]
pub(crate) enum Request {
    Read(ReadRequest),
    Write(WriteRequest),
}

#[derive(Debug)]
enum State {
    Waiting(Request),
    /// A thread, or the owner, is at it.
    Taken,
    Done(io::Result<AlignedBuf>),
}

impl Transfers {
    pub(crate) fn new(sched: &Sched) -> Self {
        let shared = Shared { queue: Mutex::new(sched, Queue::default()), changed: Condvar::new(sched) };
        Self { sched: sched.clone(), shared: Arc::new(shared), threads: Mutex::new(sched, Vec::new()) }
    }

    /// Queues a read or a write of `file`.
    pub(crate) fn submit(&self, file: &Arc<File>, request: Request) -> Ticket {
        let is_write = matches!(request, Request::Write(_));
        let state = Mutex::new(&self.sched, State::Waiting(request));
        let transfer = Arc::new(Transfer { file: file.clone(), state, done: Condvar::new(&self.sched) });
        let mut queue = self.shared.queue.lock();
        if queue.waiting.len() < QUEUE_MAX {
            queue.waiting.push_back(transfer.clone());
        }
        // The owner will do one itself, if it waits at once.
        let (wanted, idle) = (is_write || queue.waiting.len() > 1, queue.idle);
        drop(queue);
        if wanted {
            self.wake(idle);
        }
        Ticket::pending(Box::new(Owned { transfer, shared: self.shared.clone() }))
    }

    /// Wakes a thread, or starts one.
    fn wake(&self, idle: usize) {
        if idle == 0 {
            let mut threads = self.threads.lock();
            if threads.len() < THREADS_MAX {
                let shared = self.shared.clone();
                let started = self.sched.spawn("cuesta-io", Priority::Normal, move || shared.serve());
                // Without a thread the owners do their transfers themselves.
                threads.extend(started.ok());
            }
        }
        self.shared.changed.notify_one();
    }
}

impl Drop for Transfers {
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
            let Some(transfer) = queue.waiting.pop_back() else {
                queue.idle += 1;
                queue = self.changed.wait(queue);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            if let Some(request) = transfer.take() {
                let result = request.carry_out(&transfer.file);
                *transfer.state.lock() = State::Done(result);
                transfer.done.notify_all();
            }
            queue = self.queue.lock();
        }
    }
}

impl Transfer {
    /// The request, if nobody has begun it.
    fn take(&self) -> Option<Request> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Waiting(request) => Some(request),
            other => {
                *state = other;
                None
            }
        }
    }
}

impl Request {
    /// Does it, and hands the buffer back.
    pub(crate) fn carry_out(self, file: &File) -> io::Result<AlignedBuf> {
        match self {
            Self::Read(ReadRequest { mut buffer, offset }) => {
                file.read_exact_at(&mut buffer, offset)?;
                Ok(buffer)
            }
            Self::Write(WriteRequest { buffer, bytes, offset }) => {
                file.write_all_at(&buffer[..bytes], offset)?;
                Ok(buffer)
            }
        }
    }
}

/// The owner's end.
#[derive(Debug)]
struct Owned {
    transfer: Arc<Transfer>,
    shared: Arc<Shared>,
}

impl Pending for Owned {
    fn wait(self: Box<Self>) -> io::Result<AlignedBuf> {
        if let Some(request) = self.transfer.take() {
            return request.carry_out(&self.transfer.file);
        }
        let mut state = self.transfer.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Done(result) => return result,
                other => *state = other,
            }
            state = self.transfer.done.wait(state);
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.waiting.retain(|transfer| !Arc::ptr_eq(transfer, &self.transfer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALIGNMENT, Access, Directory, FileDirectory};

    #[test]
    fn many_reads_under_way_each_give_their_own_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let directory = FileDirectory::open(dir.path()).unwrap().with_threads(&Sched::real(1));
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
        let transfers = Transfers::new(&sched);
        let file = Arc::new(File::open(path).unwrap());
        for _ in 0..3 {
            let buffer = AlignedBuf::zeroed(ALIGNMENT);
            assert_eq!(
                transfers.submit(&file, Request::Read(ReadRequest { buffer, offset: 0 })).wait().unwrap()[0],
                7
            );
        }
        assert!(transfers.threads.lock().is_empty());
    }

    #[test]
    fn writes_under_way_are_all_there_once_they_are_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let directory = FileDirectory::open(dir.path()).unwrap().with_threads(&Sched::real(1));
        let file = directory.create("x", Access::Buffered).unwrap();
        let submit = |i: u8| {
            let mut buffer = AlignedBuf::zeroed(2 * ALIGNMENT);
            buffer.fill(i);
            file.submit_write(WriteRequest {
                buffer,
                bytes: ALIGNMENT,
                offset: u64::from(i) * ALIGNMENT as u64,
            })
        };
        let tickets: Vec<_> = (0..100).map(submit).collect();
        for (i, ticket) in tickets.into_iter().enumerate() {
            assert_eq!(ticket.wait().unwrap()[0], i as u8);
        }
        assert_eq!(file.len().unwrap(), 100 * ALIGNMENT as u64);
        let mut bytes = vec![0; 100 * ALIGNMENT];
        file.read_at(&mut bytes, 0).unwrap();
        assert!(
            bytes.chunks(ALIGNMENT).enumerate().all(|(i, page)| page.iter().all(|byte| *byte == i as u8))
        );
    }

    #[test]
    fn a_lone_write_has_a_thread_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let transfers = Transfers::new(&Sched::real(1));
        let file = Arc::new(File::create(dir.path().join("x")).unwrap());
        let buffer = AlignedBuf::zeroed(ALIGNMENT);
        let request = Request::Write(WriteRequest { buffer, bytes: ALIGNMENT, offset: 0 });
        let ticket = transfers.submit(&file, request);
        assert_eq!(transfers.threads.lock().len(), 1);
        ticket.wait().unwrap();
        assert_eq!(file.metadata().unwrap().len(), ALIGNMENT as u64);
    }
}
