//! A few threads that carry out submitted reads and writes of files, so that a reader who needs many places has them
//! read at once, and a writer goes on while its bytes are being written, with nothing but plain positional calls.
//!
//! Who waits for a transfer that no thread has begun yet does it himself, so a lone read never crosses threads: a
//! thread is woken only when a second one is queued, or for a write, since its owner means to do something else
//! meanwhile. Threads take the newest, owners wait for their oldest first, and the two meet in the middle. The queue is
//! bounded; past its end a transfer is left to its owner. Threads are started when first needed and end with the last
//! file and directory that uses them.
//!
//! A transfer of some pages that the medium does faster than a thread is woken is its owner's from the start. Whether
//! it does is told by what the last ones took ([`Pace`]).
//!
//! A submitted transfer costs one allocation, two short locks of the queue and one of its own; its owner's own costs
//! the allocation and no lock.

use crate::{AlignedBuf, Pending, ReadRequest, Ticket, WriteRequest};
use cuesta_sched::{Condvar, Mutex, Priority, Sched, Thread};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// Threads at most: what a drive of the kind that needs them has in flight is worth little beyond.
const THREADS_MAX: usize = 8;
/// Transfers that wait for a thread, at most.
const QUEUE_MAX: usize = 256;

/// Bytes of a transfer that a fast medium's owner does himself, at most.
const SHORT_BYTES: usize = 16 << 10;
/// What handing a transfer over costs, about: a thread to wake and to switch to, and back.
const HANDING_OVER: Duration = Duration::from_micros(20);
/// How many short transfers, more of one kind than of the other, are remembered.
const PACE_MAX: i32 = 32;

/// The threads of one directory.
#[derive(Debug)]
pub(crate) struct Transfers {
    sched: Sched,
    shared: Arc<Shared>,
    threads: Mutex<Vec<Thread>>,
}

#[derive(Debug)]
struct Shared {
    sched: Sched,
    queue: Mutex<Queue>,
    changed: Condvar,
    pace: Pace,
}

/// Whether most of the last short transfers took less than handing them over: how many more did than did not. A mean
/// would not do, since one that is interrupted takes a thousand times what others take.
#[derive(Debug, Default)]
struct Pace(AtomicI32);

impl Pace {
    fn is_fast(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= 0
    }

    fn note(&self, took: Duration) {
        let step = if took < HANDING_OVER { 1 } else { -1 };
        // One of two at once may be lost: it is a tally.
        let tally = self.0.load(Ordering::Relaxed) + step;
        self.0.store(tally.clamp(-PACE_MAX, PACE_MAX), Ordering::Relaxed);
    }
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
        let shared = Shared {
            sched: sched.clone(),
            queue: Mutex::new(sched, Queue::default()),
            changed: Condvar::new(sched),
            pace: Pace::default(),
        };
        Self { sched: sched.clone(), shared: Arc::new(shared), threads: Mutex::new(sched, Vec::new()) }
    }

    /// Queues a read or a write of `file`.
    pub(crate) fn submit(&self, file: &Arc<File>, request: Request) -> Ticket {
        if request.bytes() <= SHORT_BYTES && self.shared.pace.is_fast() {
            return Ticket::pending(Box::new(Own {
                file: file.clone(),
                request,
                shared: self.shared.clone(),
            }));
        }
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
                let result = self.carry_out(request, &transfer.file);
                *transfer.state.lock() = State::Done(result);
                transfer.done.notify_all();
            }
            queue = self.queue.lock();
        }
    }

    /// Does it, and sees what it takes.
    fn carry_out(&self, request: Request, file: &File) -> io::Result<AlignedBuf> {
        if request.bytes() > SHORT_BYTES {
            return request.carry_out(file);
        }
        let begun = self.sched.now();
        let result = request.carry_out(file);
        self.pace.note(self.sched.now().saturating_sub(begun));
        result
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
    fn bytes(&self) -> usize {
        match self {
            Self::Read(read) => read.buffer.len(),
            Self::Write(write) => write.bytes,
        }
    }

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

/// A transfer that nobody but its owner knows of.
#[derive(Debug)]
struct Own {
    file: Arc<File>,
    request: Request,
    shared: Arc<Shared>,
}

impl Pending for Own {
    fn wait(self: Box<Self>) -> io::Result<AlignedBuf> {
        self.shared.carry_out(self.request, &self.file)
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
            return self.shared.carry_out(request, &self.transfer.file);
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

    /// Threads are asked whatever the medium does.
    const LONG: usize = SHORT_BYTES + ALIGNMENT;

    #[test]
    fn many_reads_under_way_each_give_their_own_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let directory = FileDirectory::open(dir.path()).unwrap().with_threads(&Sched::real(1));
        let file = directory.create("x", Access::Buffered).unwrap();
        for i in 0..100u8 {
            file.write_at(&[i; LONG], u64::from(i) * LONG as u64).unwrap();
        }
        for round in 0..50u64 {
            let at = |i: u64| (i * 7 + round) % 100;
            let submit = |i| {
                let buffer = AlignedBuf::zeroed(LONG);
                file.submit(ReadRequest { buffer, offset: at(i) * LONG as u64 })
            };
            let mut tickets: Vec<_> = (0..20).map(submit).collect();
            // Some are never waited for.
            drop(tickets.split_off(15));
            for (i, ticket) in tickets.into_iter().enumerate() {
                assert_eq!(ticket.wait().unwrap()[..], [at(i as u64) as u8; LONG]);
            }
        }
        let past = ReadRequest { buffer: AlignedBuf::zeroed(LONG), offset: 100 * LONG as u64 };
        assert_eq!(file.submit(past).wait().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_lone_read_is_done_by_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let sched = Sched::real(1);
        let path = dir.path().join("x");
        std::fs::write(&path, [7; LONG]).unwrap();
        let transfers = Transfers::new(&sched);
        let file = Arc::new(File::open(path).unwrap());
        for _ in 0..3 {
            let buffer = AlignedBuf::zeroed(LONG);
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
            let mut buffer = AlignedBuf::zeroed(2 * LONG);
            buffer.fill(i);
            file.submit_write(WriteRequest { buffer, bytes: LONG, offset: u64::from(i) * LONG as u64 })
        };
        let tickets: Vec<_> = (0..100).map(submit).collect();
        for (i, ticket) in tickets.into_iter().enumerate() {
            assert_eq!(ticket.wait().unwrap()[0], i as u8);
        }
        assert_eq!(file.len().unwrap(), 100 * LONG as u64);
        let mut bytes = vec![0; 100 * LONG];
        file.read_at(&mut bytes, 0).unwrap();
        assert!(bytes.chunks(LONG).enumerate().all(|(i, page)| page.iter().all(|byte| *byte == i as u8)));
    }

    #[test]
    fn a_lone_write_has_a_thread_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let transfers = Transfers::new(&Sched::real(1));
        let file = Arc::new(File::create(dir.path().join("x")).unwrap());
        let buffer = AlignedBuf::zeroed(LONG);
        let request = Request::Write(WriteRequest { buffer, bytes: LONG, offset: 0 });
        let ticket = transfers.submit(&file, request);
        assert_eq!(transfers.threads.lock().len(), 1);
        ticket.wait().unwrap();
        assert_eq!(file.metadata().unwrap().len(), LONG as u64);
    }

    /// A file of sevens, and the directory that it goes with.
    fn sevens() -> (tempfile::TempDir, Arc<File>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, [7; LONG]).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        (dir, Arc::new(file))
    }

    fn read(bytes: usize) -> Request {
        Request::Read(ReadRequest { buffer: AlignedBuf::zeroed(bytes), offset: 0 })
    }

    #[test]
    fn short_ones_are_their_owners_where_the_medium_is_fast() {
        let (dir, file) = sevens();
        let transfers = Transfers::new(&Sched::real(1));
        let submit = |bytes| (0..3).map(|_| transfers.submit(&file, read(bytes))).collect::<Vec<_>>();
        let all_there = |tickets: Vec<Ticket>| {
            tickets.into_iter().for_each(|ticket| assert_eq!(ticket.wait().unwrap()[0], 7));
        };
        let threads = || transfers.threads.lock().len();
        let pace = &transfers.shared.pace;

        // However long these take.
        (0..PACE_MAX).for_each(|_| pace.note(Duration::ZERO));
        all_there(submit(SHORT_BYTES));
        let write = WriteRequest { buffer: AlignedBuf::zeroed(SHORT_BYTES), bytes: SHORT_BYTES, offset: 0 };
        transfers.submit(&file, Request::Write(write)).wait().unwrap();
        assert_eq!(std::fs::read(dir.path().join("x")).unwrap()[..SHORT_BYTES], [0; SHORT_BYTES]);
        assert_eq!(threads(), 0);

        // One slow one among many changes nothing; many do, and so do many fast ones after them.
        (0..100).for_each(|_| pace.note(HANDING_OVER / 2));
        pace.note(HANDING_OVER * 1_000);
        assert!(pace.is_fast());
        (0..=PACE_MAX).for_each(|_| pace.note(HANDING_OVER));
        assert!(!pace.is_fast());
        drop(submit(SHORT_BYTES));
        assert!(threads() > 0);
        (0..2 * PACE_MAX).for_each(|_| pace.note(Duration::ZERO));
        assert!(pace.is_fast());
    }

    #[test]
    fn long_ones_tell_nothing_of_the_medium() {
        let (_dir, file) = sevens();
        let transfers = Transfers::new(&Sched::real(1));
        transfers.submit(&file, read(LONG)).wait().unwrap();
        assert_eq!(transfers.shared.pace.0.load(Ordering::Relaxed), 0);
        transfers.submit(&file, read(ALIGNMENT)).wait().unwrap();
        assert_ne!(transfers.shared.pace.0.load(Ordering::Relaxed), 0);
    }
}
