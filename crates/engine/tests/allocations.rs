//! How often operations ask the allocator, counted by an allocator of this test's own.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use cuesta::{Db, Options, Range};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn asked<T>(work: impl FnOnce() -> T) -> u64 {
    let before = ASKED.get();
    drop(work());
    ASKED.get() - before
}

#[test]
fn a_cached_get_allocates_at_most_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&Options::at(dir.path())).unwrap();
    let key = |i: u64| format!("user{i:019}");
    for i in 0..5000 {
        db.put(key(i), [1; 100]).unwrap();
    }
    for round in ["memtable", "table"] {
        for i in 0..5000 {
            let key = key(i);
            db.get(&key).unwrap().unwrap();
            let n = asked(|| db.get(&key).unwrap().unwrap());
            assert!(n <= 1, "a get from the {round} allocates {n} times");
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
    }
    let mut cursor = db.cursor(Range::all()).unwrap();
    cursor.first().unwrap();
    let n = asked(|| (0..1000).for_each(|_| cursor.next().unwrap()));
    assert!(n < 200, "1000 steps of a cursor allocate {n} times: more than the blocks they pass");
}
