//! SIGBUS inside mappings.
//!
//! The kernel raises it where a mapped file has no byte any more: somebody cut it short, or its medium failed. For a
//! mapping that is guarded the handler notes the loss and puts a page of zeros in the place, so that the instruction
//! that was interrupted goes on; who has read asks [`Guard::is_lost`] before the bytes are believed. The note is made
//! before the page is: who sees zeros sees the note. Any other SIGBUS goes to whoever had the signal before, and so
//! does one that somebody sent: it has no address.
//!
//! The handler does what a handler may: it reads and writes atomics, and makes two system calls.

#![expect(unsafe_code, reason = "signal handlers are unsafe by nature")]

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Mappings that a process can have guarded at once: a few for each store.
const GUARDS_MAX: usize = 256;
/// What is replaced at once.
const PAGE_BYTES: usize = crate::ALIGNMENT;

/// A guarded range of addresses; free where `start` is 0.
#[derive(Debug)]
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    is_lost: AtomicBool,
}

static SLOTS: [Slot; GUARDS_MAX] = [const {
    Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
}; GUARDS_MAX];

/// Who had the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Guards a mapping until it is dropped.
#[derive(Debug)]
pub(super) struct Guard(&'static Slot);

/// Guards the mapping at `start`.
pub(super) fn guard(start: usize, bytes: usize) -> io::Result<Guard> {
    install()?;
    for slot in &SLOTS {
        // Reserved by an end that no address lies before; only then it is given its range.
        if slot.start.compare_exchange(0, usize::MAX, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            slot.is_lost.store(false, Ordering::Relaxed);
            slot.end.store(start + bytes, Ordering::Relaxed);
            slot.start.store(start, Ordering::Release);
            return Ok(Guard(slot));
        }
    }
    Err(io::Error::other(format!("a process can map {GUARDS_MAX} files of persistent memory, and has them")))
}

impl Guard {
    /// Whether bytes of the mapping were lost by now. Asked after reading.
    pub(super) fn is_lost(&self) -> bool {
        // What was read before stays before.
        fence(Ordering::Acquire);
        self.0.is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Relaxed);
        self.0.start.store(0, Ordering::Release);
    }
}

/// Puts the handler in place, once in a process.
fn install() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    let done = DONE.get_or_init(|| {
        let failed = || Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL));
        // SAFETY: a `sigaction` is plain data, for which zeros are a value; the first call only reads, the second
        // installs a handler of the kind that its flags say.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) != 0 {
                return failed();
            }
            BEFORE.get_or_init(|| before);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigemptyset(&raw mut action.sa_mask);
            if libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) != 0 {
                return failed();
            }
        }
        Ok(())
    });
    done.map_err(io::Error::from_raw_os_error)
}

/// Whether the address is a guarded mapping's, whose page is replaced then.
fn replaced(address: usize) -> bool {
    for slot in &SLOTS {
        let start = slot.start.load(Ordering::Acquire);
        if start <= address && address < slot.end.load(Ordering::Relaxed) && start != 0 {
            slot.is_lost.store(true, Ordering::SeqCst);
            let page = address - address % PAGE_BYTES;
            // SAFETY: the page is inside a mapping of ours, which lives: an instruction was just reaching into it.
            let mapped = unsafe {
                libc::mmap(
                    page as *mut libc::c_void,
                    PAGE_BYTES,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            return mapped != libc::MAP_FAILED;
        }
    }
    false
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a handler of this kind a description of the signal.
    let is_fault = unsafe { (*info).si_code } > 0;
    // SAFETY: as above; of a fault the description has an address, of others it is not looked at.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: the thread's own error number, which the interrupted code may be about to look at.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    let is_ours = is_fault && replaced(address);
    // SAFETY: as above.
    unsafe { *errno = kept };
    if is_ours {
        return;
    }
    let before = BEFORE.get().map(|before| (before.sa_sigaction, before.sa_flags));
    match before {
        Some((handler, flags)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            if flags & libc::SA_SIGINFO != 0 {
                // SAFETY: the flags say that it takes these three.
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(handler) };
                handler(signal, info, context);
            } else {
                // SAFETY: the flags say that it takes the signal's number.
                let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
                handler(signal);
            }
        }
        // A fault cannot be ignored, but what was sent can.
        Some((libc::SIG_IGN, _)) if !is_fault => {}
        // Nobody wanted it, and the process ends as it would have: the instruction is tried again, or the signal, which
        // waits for this handler's end, comes again.
        _ => {
            // SAFETY: the default action; both calls are allowed in a handler.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
                if !is_fault {
                    libc::raise(libc::SIGBUS);
                }
            }
        }
    }
}
