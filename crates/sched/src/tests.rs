//! What a scheduler promises, for real and in simulation.

use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Three threads that note when they pass a yield point; the notes and the digest of one seed.
fn interleaving(seed: u64) -> (Vec<(u32, u32)>, u64) {
    let sched = Sched::simulated(seed);
    let notes = Arc::new(Mutex::new(&sched, Vec::new()));
    sched.run(|| {
        let start = |thread| {
            let (sched, notes) = (sched.clone(), Arc::clone(&notes));
            let body = {
                let sched = sched.clone();
                move || {
                    for step in 0..20 {
                        sched.yield_point();
                        notes.lock().push((thread, step));
                    }
                }
            };
            sched.spawn(&format!("noter {thread}"), Priority::Normal, body).unwrap()
        };
        let threads: Vec<_> = (0..3).map(start).collect();
        assert!(threads.into_iter().all(Thread::join));
    });
    let notes = notes.lock().clone();
    (notes, sched.trace_hash())
}

#[test]
fn one_seed_gives_one_interleaving() {
    for seed in 0..20 {
        assert_eq!(interleaving(seed), interleaving(seed), "seed {seed}");
    }
}

#[test]
fn seeds_differ_in_their_interleavings() {
    let notes: BTreeSet<_> = (0..20).map(|seed| interleaving(seed).0).collect();
    let digests: BTreeSet<_> = (0..20).map(|seed| interleaving(seed).1).collect();
    assert!(notes.len() >= 19, "only {} interleavings of 20 seeds", notes.len());
    assert!(digests.len() >= 19, "only {} digests of 20 seeds", digests.len());
}

/// What is left of four increments by two threads that read and write back under separate locks.
fn racy_count(seed: u64) -> u64 {
    let sched = Sched::simulated(seed);
    let count = Arc::new(Mutex::new(&sched, 0));
    sched.run(|| {
        let start = |_| {
            let count = Arc::clone(&count);
            let body = move || {
                for _ in 0..2 {
                    let seen = *count.lock();
                    *count.lock() = seen + 1;
                }
            };
            sched.spawn("adder", Priority::Background, body).unwrap()
        };
        let threads: Vec<_> = (0..2).map(start).collect();
        threads.into_iter().for_each(|thread| assert!(thread.join()));
    });
    *count.lock()
}

#[test]
fn some_seed_finds_a_lost_update_and_some_does_not() {
    let counts: BTreeSet<_> = (0..200).map(racy_count).collect();
    assert!(counts.contains(&4), "{counts:?}");
    assert!(counts.iter().any(|&count| count < 4), "{counts:?}");
}

#[test]
fn increments_under_one_lock_are_never_lost() {
    for seed in 0..100 {
        let sched = Sched::simulated(seed);
        let count = Arc::new(Mutex::new(&sched, 0));
        sched.run(|| {
            let start = |_| {
                let (count, inner) = (Arc::clone(&count), sched.clone());
                let body = move || {
                    for _ in 0..5 {
                        let mut guard = count.lock();
                        let seen = *guard;
                        inner.yield_point();
                        *guard = seen + 1;
                    }
                };
                sched.spawn("adder", Priority::Normal, body).unwrap()
            };
            let threads: Vec<_> = (0..3).map(start).collect();
            threads.into_iter().for_each(|thread| assert!(thread.join()));
        });
        assert_eq!(*count.lock(), 15, "seed {seed}");
    }
}

fn panic_message(body: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).unwrap_err();
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_deadlock_panics_with_the_names_of_those_who_wait() {
    let sched = Sched::simulated(1);
    let lock = Arc::new(Mutex::new(&sched, ()));
    let bell = Arc::new(Condvar::new(&sched));
    let message = panic_message(|| {
        sched.run(|| {
            let (theirs, inner) = (Arc::clone(&lock), Arc::clone(&bell));
            let body = move || drop(inner.wait(theirs.lock()));
            let waiter = sched.spawn("waiter", Priority::Normal, body).unwrap();
            waiter.join();
        });
    });
    assert!(message.contains("main waits for the end of a thread"), "{message}");
    assert!(message.contains("waiter waits for a notification"), "{message}");
}

#[test]
fn a_program_that_goes_round_for_ever_panics_with_the_names_of_those_who_wait() {
    for nap in [Duration::ZERO, Duration::from_secs(1)] {
        let sched = Sched::simulated(1);
        let message = panic_message(|| {
            sched.run(|| {
                let theirs = sched.clone();
                let body = move || loop {
                    match nap.is_zero() {
                        true => theirs.yield_point(),
                        false => theirs.sleep(nap),
                    }
                };
                let spinner = sched.spawn("spinner", Priority::Normal, body).unwrap();
                spinner.join();
            });
        });
        assert!(message.contains("no end after"), "{message}");
        assert!(message.contains("main waits for the end of a thread"), "{message}");
    }
}

#[test]
fn locks_taken_in_opposite_order_deadlock_under_some_seed() {
    let crossed = |seed| {
        let sched = Sched::simulated(seed);
        let locks = Arc::new([Mutex::new(&sched, ()), Mutex::new(&sched, ())]);
        sched.run(|| {
            let start = |first: usize| {
                let locks = Arc::clone(&locks);
                let body = move || {
                    let _first = locks[first].lock();
                    let _second = locks[1 - first].lock();
                };
                sched.spawn("crosser", Priority::Normal, body).unwrap()
            };
            let threads = [start(0), start(1)];
            threads.into_iter().all(Thread::join)
        })
    };
    let run = |seed| catch_unwind(AssertUnwindSafe(|| crossed(seed))).is_ok_and(|ended| ended);
    let fine = (0..100).filter(|&seed| run(seed)).count();
    assert!(fine > 0 && fine < 100, "{fine} of 100 seeds ended");
}

#[test]
fn a_waiter_is_notified_or_times_out_in_virtual_time() {
    for seed in 0..50 {
        let sched = Sched::simulated(seed);
        let ready = Arc::new(Mutex::new(&sched, false));
        let bell = Arc::new(Condvar::new(&sched));
        sched.run(|| {
            let (theirs, inner, ring) = (Arc::clone(&ready), sched.clone(), Arc::clone(&bell));
            let body = move || {
                inner.sleep(Duration::from_secs(60));
                *theirs.lock() = true;
                ring.notify_one();
            };
            let ringer = sched.spawn("ringer", Priority::Normal, body).unwrap();
            let hour = Duration::from_secs(3600);
            let mut guard = ready.lock();
            let mut late = false;
            while !*guard && !late {
                (guard, late) = bell.wait_for(guard, hour);
            }
            assert!(*guard && !late);
            assert!(sched.now() >= Duration::from_secs(60) && sched.now() < Duration::from_secs(61));
            let (guard, late) = bell.wait_for(guard, hour);
            assert!(late, "nobody rings again");
            drop(guard);
            assert!(sched.now() >= hour);
            assert!(ringer.join());
        });
    }
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    let sched = Sched::simulated(3);
    let order = Arc::new(Mutex::new(&sched, Vec::new()));
    sched.run(|| {
        let start = |seconds| {
            let (order, inner) = (Arc::clone(&order), sched.clone());
            let body = move || {
                inner.sleep(Duration::from_secs(seconds));
                order.lock().push(seconds);
            };
            sched.spawn("sleeper", Priority::Normal, body).unwrap()
        };
        let threads: Vec<_> = [30, 10, 20].map(start).into();
        threads.into_iter().for_each(|thread| assert!(thread.join()));
    });
    assert_eq!(*order.lock(), [10, 20, 30]);
}

#[test]
fn a_spinning_thread_lets_time_and_others_go_on() {
    let sched = Sched::simulated(4);
    let flag = Arc::new(AtomicBool::new(false));
    sched.run(|| {
        let (theirs, inner) = (Arc::clone(&flag), sched.clone());
        let body = move || {
            inner.sleep(Duration::from_millis(1));
            theirs.store(true, Ordering::SeqCst);
        };
        let sleeper = sched.spawn("sleeper", Priority::Normal, body).unwrap();
        while !flag.load(Ordering::SeqCst) {
            sched.yield_point();
        }
        assert!(sleeper.join());
    });
}

#[test]
fn a_panicking_thread_is_told_by_join_and_leaves_its_lock_usable() {
    for sched in [Sched::real(1), Sched::simulated(1)] {
        let value = Arc::new(Mutex::new(&sched, 1));
        sched.run(|| {
            let theirs = Arc::clone(&value);
            let body = move || {
                let mut guard = theirs.lock();
                *guard = 2;
                panic!("on purpose");
            };
            let thread = sched.spawn("panics", Priority::Background, body).unwrap();
            assert!(!thread.join());
            assert_eq!(*value.lock(), 2);
        });
    }
}

#[test]
fn a_panic_of_the_main_thread_leaves_run_and_the_others_end() {
    let sched = Sched::simulated(1);
    let done = Arc::new(AtomicBool::new(false));
    let mut thread = None;
    let message = panic_message(|| {
        sched.run(|| {
            let (theirs, inner) = (Arc::clone(&done), sched.clone());
            let body = move || {
                inner.sleep(Duration::from_secs(1));
                theirs.store(true, Ordering::SeqCst);
            };
            thread = Some(sched.spawn("other", Priority::Normal, body).unwrap());
            panic!("{}", "on purpose");
        });
    });
    assert_eq!(message, "on purpose");
    assert!(thread.unwrap().join());
    assert!(done.load(Ordering::SeqCst));
}

#[test]
fn what_outlives_a_run_can_be_stopped_and_dropped_from_outside() {
    let sched = Sched::simulated(1);
    let stop = Arc::new(Mutex::new(&sched, false));
    let bell = Arc::new(Condvar::new(&sched));
    let worker = sched.run(|| {
        let (stop, bell) = (Arc::clone(&stop), Arc::clone(&bell));
        let body = move || {
            let mut guard = stop.lock();
            while !*guard {
                guard = bell.wait(guard);
            }
        };
        let worker = sched.spawn("worker", Priority::Normal, body).unwrap();
        // By the end of this the worker waits, and nobody else is left to wake it.
        sched.sleep(Duration::from_secs(1));
        worker
    });
    *stop.lock() = true;
    bell.notify_all();
    assert!(worker.join());
    let (guard, late) = bell.wait_for(stop.lock(), Duration::from_millis(1));
    assert!(late && *guard);
}

#[test]
fn runs_follow_each_other_and_nest() {
    let sched = Sched::simulated(1);
    let count = AtomicU64::new(0);
    for _ in 0..3 {
        let result = sched.run(|| {
            sched.run(|| sched.yield_point());
            count.fetch_add(1, Ordering::SeqCst)
        });
        assert_eq!(result + 1, count.load(Ordering::SeqCst));
    }
}

#[test]
fn a_real_scheduler_calls_runs_and_waits_for_real() {
    let sched = Sched::real(7);
    let lock = Mutex::new(&sched, 0);
    let bell = Condvar::new(&sched);
    let elapsed = sched.run(|| {
        let (guard, _) = bell.wait_for(lock.lock(), Duration::from_millis(2));
        drop(guard);
        sched.sleep(Duration::from_millis(2));
        sched.yield_point();
        sched.now()
    });
    assert!(elapsed >= Duration::from_millis(2));
    assert_eq!(sched.trace_hash(), 0);
    assert_eq!(sched.rng(1).next_u64(), Sched::simulated(7).rng(1).next_u64());
}

#[test]
fn a_background_thread_is_nicer_and_its_starter_is_not() {
    let niceness = || rustix::process::getpriority_process(None).unwrap();
    let before = niceness();
    let seen = Arc::new(AtomicU64::new(u64::MAX));
    let theirs = Arc::clone(&seen);
    let body = move || theirs.store(niceness().unsigned_abs().into(), Ordering::SeqCst);
    assert!(Sched::real(1).spawn("background", Priority::Background, body).unwrap().join());
    let expected = (before + BACKGROUND_NICENESS).min(19).unsigned_abs();
    assert_eq!(seen.load(Ordering::SeqCst), u64::from(expected));
    assert_eq!(niceness(), before);
}
