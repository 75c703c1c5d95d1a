//! The C library's file calls: the real one first, then what it costs.
//!
//! Every function has the name and the meaning of the C library's, errors and `errno` included; so their arguments are
//! as good as their callers make them, and are handed on as they came. Those with a `64` behind their name are the same
//! on 64-bit systems. Mappings of modelled files and copies between files inside the kernel are refused as a file
//! system without them would; io_uring and the kernel's asynchronous I/O are not there. Both make programs fall back to
//! calls that are modelled.

#![allow(clippy::missing_safety_doc, reason = "the C library's manual says it")]
#![allow(unreachable_pub, reason = "C reaches them by name")]
#![cfg_attr(test, allow(dead_code, reason = "a test keeps the C library's own"))]

use crate::real::{errno, real, set_errno};
use crate::tiers::{File, Tiers, duplicated, forget, forget_all};
use libc::{c_char, c_int, c_long, c_uint, c_void, iovec, mode_t, off_t, size_t, ssize_t};
use std::time::Duration;

/// A tier's file, its tiers, and when the call began.
fn began(descriptor: c_int) -> Option<(&'static Tiers, File, Duration)> {
    let (tiers, file) = (Tiers::get()?, File::of(descriptor)?);
    Some((tiers, file, tiers.now(file)))
}

/// Runs `body` and leaves the number of the last error as it was.
fn quietly(body: impl FnOnce()) {
    let number = errno();
    body();
    set_errno(number);
}

/// Where in a file the `bytes` lie that a call has just read or written: at `offset`, or, below zero, before the file's
/// own position. It matters for the page cache alone, so direct files are not asked.
fn place(descriptor: c_int, file: File, offset: off_t, bytes: u64) -> u64 {
    if let Ok(offset) = u64::try_from(offset) {
        return offset;
    }
    if file.is_direct() {
        return 0;
    }
    // SAFETY: asks for a position, and changes none.
    let position = unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) };
    u64::try_from(position).unwrap_or(0).saturating_sub(bytes)
}

/// A call that moves bytes: `saw` is told of any file's, `costs` of a tier's, and where they lie.
fn moves(
    descriptor: c_int,
    offset: off_t,
    call: impl FnOnce() -> ssize_t,
    saw: fn(&Tiers, u64),
    costs: impl FnOnce(&Tiers, File, Duration, u64, u64),
) -> ssize_t {
    let Some(tiers) = Tiers::get() else { return call() };
    let began = began(descriptor);
    let result = call();
    if let Ok(bytes @ 1..) = u64::try_from(result) {
        quietly(|| {
            saw(tiers, bytes);
            if let Some((tiers, file, began)) = began {
                costs(tiers, file, began, place(descriptor, file, offset, bytes), bytes);
            }
        });
    }
    result
}

/// A read; `offset` below zero is the file's own position.
fn reads(descriptor: c_int, offset: off_t, call: impl FnOnce() -> ssize_t) -> ssize_t {
    moves(descriptor, offset, call, Tiers::saw_read, Tiers::read)
}

/// As [`reads`].
fn writes(descriptor: c_int, offset: off_t, synced: bool, call: impl FnOnce() -> ssize_t) -> ssize_t {
    moves(descriptor, offset, call, Tiers::saw_written, |tiers, file, began, place, bytes| {
        tiers.written(file, began, place, bytes, synced);
    })
}

fn opens(descriptor: c_int, flags: c_int) -> c_int {
    if let (0.., Some(tiers)) = (descriptor, Tiers::get()) {
        quietly(|| tiers.opened(descriptor, flags));
    }
    descriptor
}

/// Bytes of a file; as many as there can be where that is not known.
fn length(descriptor: c_int) -> off_t {
    // SAFETY: all zero is a value of it, and it is ours to be written.
    unsafe {
        let mut stat = std::mem::zeroed::<libc::stat>();
        if libc::fstat(descriptor, &mut stat) == 0 { stat.st_size } else { off_t::MAX }
    }
}

/// A call that returns 0 when it has synced, written back or cut a file.
fn settles(
    descriptor: c_int,
    call: impl FnOnce() -> c_int,
    cost: impl FnOnce(&Tiers, File, Duration),
) -> c_int {
    let began = began(descriptor);
    let result = call();
    if let (0, Some((tiers, file, began))) = (result, began) {
        quietly(|| cost(tiers, file, began));
    }
    result
}

/// Whether one of these is a tier's file, and the call is to be refused with this number.
fn refuses(descriptors: &[c_int], number: c_int) -> bool {
    let refused = descriptors.iter().any(|descriptor| File::of(*descriptor).is_some());
    if refused {
        Tiers::get().into_iter().for_each(Tiers::refused);
        set_errno(number);
    }
    refused
}

fn duplicates(from: c_int, to: c_int) -> c_int {
    if to >= 0 {
        duplicated(from, to);
    }
    to
}

const fn is_synced(flags: c_int) -> bool {
    flags & (libc::RWF_SYNC | libc::RWF_DSYNC) != 0
}

/// A function of the C library, by one or more names.
macro_rules! hook {
    ([$($name:ident),+] $arguments:tt -> $result:ty, |$real:ident| $body:expr) => {
        $(hook!(@one $name $arguments -> $result, |$real| $body);)+
    };
    (@one $name:ident ($($argument:ident: $type:ty),*) -> $result:ty, |$real:ident| $body:expr) => {
        /// The C library's.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let $real = || real!(concat!(stringify!($name), "\0"), fn($($argument: $type),*) -> $result);
            $body
        }
    };
}

hook!([open, open64] (path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
    |real| opens(real(), flags));
hook!([openat, openat64] (at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
    |real| opens(real(), flags));
// What programs call that are compiled with _FORTIFY_SOURCE; `room` is what the buffer has, which the real one checks.
hook!([__open_2, __open64_2] (path: *const c_char, flags: c_int) -> c_int,
    |real| opens(real(), flags));
hook!([__openat_2, __openat64_2] (at: c_int, path: *const c_char, flags: c_int) -> c_int,
    |real| opens(real(), flags));
hook!([__read_chk] (descriptor: c_int, to: *mut c_void, bytes: size_t, room: size_t) -> ssize_t,
    |real| reads(descriptor, -1, real));
hook!([__pread_chk, __pread64_chk]
    (descriptor: c_int, to: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t,
    |real| reads(descriptor, offset, real));
hook!([creat, creat64] (path: *const c_char, mode: mode_t) -> c_int,
    |real| opens(real(), 0));
hook!([close] (descriptor: c_int) -> c_int, |real| {
    forget(descriptor);
    real()
});
hook!([close_range] (first: c_uint, last: c_uint, flags: c_int) -> c_int, |real| {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        forget_all(first, last);
    }
    real()
});
hook!([dup] (from: c_int) -> c_int, |real| duplicates(from, real()));
hook!([dup2] (from: c_int, to: c_int) -> c_int, |real| duplicates(from, real()));
hook!([dup3] (from: c_int, to: c_int, flags: c_int) -> c_int, |real| duplicates(from, real()));
hook!([fcntl, fcntl64] (descriptor: c_int, command: c_int, argument: c_long) -> c_int, |real| {
    let result = real();
    match (command, result) {
        (libc::F_DUPFD | libc::F_DUPFD_CLOEXEC, 0..) => duplicates(descriptor, result),
        (libc::F_SETFL, 0) if File::of(descriptor).is_some() => opens(descriptor, argument as c_int).min(0),
        _ => result,
    }
});

hook!([read] (descriptor: c_int, to: *mut c_void, bytes: size_t) -> ssize_t,
    |real| reads(descriptor, -1, real));
hook!([readv] (descriptor: c_int, to: *const iovec, count: c_int) -> ssize_t,
    |real| reads(descriptor, -1, real));
hook!([pread, pread64]
    (descriptor: c_int, to: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t,
    |real| reads(descriptor, offset, real));
hook!([preadv, preadv64]
    (descriptor: c_int, to: *const iovec, count: c_int, offset: off_t) -> ssize_t,
    |real| reads(descriptor, offset, real));
hook!([preadv2, preadv64v2]
    (descriptor: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
    |real| reads(descriptor, offset, real));

hook!([write] (descriptor: c_int, from: *const c_void, bytes: size_t) -> ssize_t,
    |real| writes(descriptor, -1, false, real));
hook!([writev] (descriptor: c_int, from: *const iovec, count: c_int) -> ssize_t,
    |real| writes(descriptor, -1, false, real));
hook!([pwrite, pwrite64]
    (descriptor: c_int, from: *const c_void, bytes: size_t, offset: off_t) -> ssize_t,
    |real| writes(descriptor, offset, false, real));
hook!([pwritev, pwritev64]
    (descriptor: c_int, from: *const iovec, count: c_int, offset: off_t) -> ssize_t,
    |real| writes(descriptor, offset, false, real));
hook!([pwritev2, pwritev64v2]
    (descriptor: c_int, from: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
    |real| writes(descriptor, offset, is_synced(flags), real));

hook!([fsync] (descriptor: c_int) -> c_int, |real| settles(descriptor, real, Tiers::sync));
hook!([fdatasync] (descriptor: c_int) -> c_int, |real| settles(descriptor, real, Tiers::sync));
hook!([syncfs] (descriptor: c_int) -> c_int, |real| settles(descriptor, real, Tiers::sync));
hook!([sync_file_range]
(descriptor: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int, |real| {
    let waits = flags & (libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER) != 0;
    settles(descriptor, real, |tiers, file, began| tiers.write_back(file, began, waits))
});
// Room costs nothing, as where a file system keeps its own log in memory until the next sync. A hole as long as the
// file leaves it as empty as a cut does.
hook!([fallocate, fallocate64] (descriptor: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int, |real| {
    let hole = mode & libc::FALLOC_FL_PUNCH_HOLE != 0 && offset == 0;
    settles(descriptor, real, |tiers, file, _| if hole && bytes >= length(descriptor) { tiers.emptied(file) })
});
hook!([ftruncate, ftruncate64] (descriptor: c_int, bytes: off_t) -> c_int,
    |real| settles(descriptor, real, |tiers, file, _| if bytes == 0 { tiers.emptied(file) }));

hook!([mmap, mmap64]
    (at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, descriptor: c_int, offset: off_t) -> *mut c_void,
    |real| if flags & libc::MAP_ANONYMOUS == 0 && refuses(&[descriptor], libc::ENODEV) { libc::MAP_FAILED } else { real() });
hook!([sendfile, sendfile64]
    (to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t,
    |real| if refuses(&[to, from], libc::EINVAL) { -1 } else { real() });
hook!([copy_file_range]
    (from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t,
    |real| if refuses(&[to, from], libc::ENOSYS) { -1 } else { real() });
hook!([splice]
    (from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t,
    |real| if refuses(&[to, from], libc::EINVAL) { -1 } else { real() });
// Seven words are handed on, however many the call has: the C library's own does the same.
hook!([syscall]
(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long, |real| {
    if let (libc::SYS_io_uring_setup | libc::SYS_io_setup, Some(tiers)) = (number, Tiers::get()) {
        tiers.refused();
        set_errno(libc::ENOSYS);
        return -1;
    }
    real()
});
hook!([io_uring_setup] (entries: c_uint, parameters: *mut c_void) -> c_int, |real| {
    if let Some(tiers) = Tiers::get() {
        tiers.refused();
        return -libc::ENOSYS;
    }
    real()
});
