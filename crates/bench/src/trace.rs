//! Playing a trace: what somebody's clients asked, line by line.
//!
//! A line is `time,op,key,value_bytes`: seconds, which order the lines and are otherwise not kept; `get` (or `read`),
//! `put` (`set`, `insert`, `update`, `write`) or `delete` (`remove`); the key, without commas; and how long the value
//! is, which gets and deletes may leave out. A first line that begins with `time` is a heading. All operations of a key
//! are one thread's, in their order, and each thread goes on as fast as it is let.

use crate::distribution::fnv64;
use crate::record::{check_value, value_of};
use crate::runner::{Measured, Store, Times};
use crate::workload::Operation;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Longest value that a trace may ask for.
const VALUE_BYTES_MAX: usize = 64 << 20;
/// Threads report their progress this often.
const REPORT_STEPS: u64 = 256;

/// A line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceStep {
    /// A read, an update or a delete.
    pub operation: Operation,
    /// Its key.
    pub key: Vec<u8>,
    /// Bytes of the value that is written; 8 at least are.
    pub value_bytes: usize,
}

/// The steps of a trace.
///
/// # Errors
/// What is wrong with which line.
pub fn read_trace(input: impl BufRead) -> Result<Vec<TraceStep>, String> {
    let (mut steps, mut last) = (Vec::new(), f64::NEG_INFINITY);
    for (number, line) in (1..).zip(input.lines()) {
        let line = line.map_err(|error| format!("line {number}: {error}"))?;
        if line.trim().is_empty() || number == 1 && line.starts_with("time") {
            continue;
        }
        let (time, step) = parse_line(&line).map_err(|why| format!("line {number}: {why}"))?;
        if time < last {
            return Err(format!("line {number}: its time, {time}, is before that of the line above, {last}"));
        }
        last = time;
        steps.push(step);
    }
    Ok(steps)
}

fn parse_line(line: &str) -> Result<(f64, TraceStep), String> {
    let fields: Vec<&str> = line.trim_end().split(',').collect();
    let [time, operation, key, rest @ ..] = &fields[..] else {
        return Err(format!("{line:?} is not time,op,key,value_bytes"));
    };
    let seconds = time.trim().parse::<f64>().ok().filter(|time| time.is_finite());
    let seconds = seconds.ok_or_else(|| format!("{time:?} is no time in seconds"))?;
    let operation = match operation.trim() {
        "get" | "read" => Operation::Read,
        "put" | "set" | "insert" | "update" | "write" => Operation::Update,
        "delete" | "remove" => Operation::Delete,
        other => return Err(format!("{other:?} is no operation; use get, put or delete")),
    };
    let value_bytes = match (rest, operation) {
        ([] | [""], Operation::Read | Operation::Delete) => 0,
        ([bytes], _) => bytes
            .trim()
            .parse::<usize>()
            .ok()
            .filter(|bytes| *bytes <= VALUE_BYTES_MAX)
            .ok_or_else(|| format!("{bytes:?} is no number of bytes up to {VALUE_BYTES_MAX}"))?,
        _ => return Err(format!("{line:?} is not time,op,key,value_bytes")),
    };
    Ok((seconds, TraceStep { operation, key: key.as_bytes().to_vec(), value_bytes }))
}

/// What a key's values are marked with.
fn record_of(key: &[u8]) -> u64 {
    key.iter().fold(key.len() as u64, |hash, byte| fnv64(hash ^ u64::from(*byte)))
}

/// Plays a trace with so many threads; `progress` is told now and then how many steps are done.
///
/// # Errors
/// The first error of the store, or a value that was never written to its key.
pub fn play(
    store: &dyn Store,
    steps: &[TraceStep],
    threads: u64,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Measured, String> {
    let (done, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    // Before anything is timed: it takes as long as a read of what is cached.
    let records: Vec<u64> = steps.iter().map(|step| record_of(&step.key)).collect();
    let began = Instant::now();
    let one = |thread: u64| -> Result<(Times, u64), String> {
        let (mut times, mut not_found, mut mine) = (Times::new()?, 0, 0);
        for ((number, step), record) in (1..).zip(steps).zip(records.iter().copied()) {
            if record % threads != thread {
                continue;
            }
            if failed.load(Ordering::Relaxed) {
                break;
            }
            let began = Instant::now();
            let (mut found, mut right) = (true, true);
            let result = match step.operation {
                Operation::Read => store.read(&step.key, &mut |value| {
                    found = value.is_some();
                    right = value.is_none_or(|value| check_value(record, value));
                }),
                Operation::Delete => store.delete(&step.key),
                _ => store.write(&step.key, &value_of(record, number, step.value_bytes)),
            };
            times.record(step.operation, began.elapsed());
            result.inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            if !right {
                failed.store(true, Ordering::Relaxed);
                let key = step.key.escape_ascii();
                return Err(format!("step {number}: key {key} has a value that was never written to it"));
            }
            not_found += u64::from(!found);
            mine += 1;
            if mine % REPORT_STEPS == 0 {
                progress(done.fetch_add(REPORT_STEPS, Ordering::Relaxed) + REPORT_STEPS);
            }
        }
        Ok((times, not_found))
    };
    let ended = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<_, String>>| {
            thread.join().unwrap_or_else(|_| Err("a thread of the benchmark panicked".to_owned()))
        };
        threads.into_iter().map(join).collect::<Result<Vec<(Times, u64)>, String>>()
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let (times, not_found): (Vec<Times>, Vec<u64>) = ended.into_iter().unzip();
    Ok(Measured::new(steps.len() as u64, seconds, &times, not_found.into_iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::tests::Map;

    #[test]
    fn a_trace_is_read_and_played() {
        let text = "time,op,key,value_bytes\n0.5,put,a,100\n0.5,set,b,24\n1,get,a,\n2,read,c\n3,update,a,30\n4,get,a,30\n\
                    5,delete,b\n5,remove,d,\n6,get,b,\n";
        let steps = read_trace(text.as_bytes()).unwrap();
        assert_eq!(steps.len(), 9);
        assert_eq!(
            (steps[1].operation, &steps[1].key[..], steps[1].value_bytes),
            (Operation::Update, &b"b"[..], 24)
        );
        let store = Map::default();
        let result = play(&store, &steps, 3, &|_| {}).unwrap();
        // Of c, which nobody wrote, and of b, which was deleted.
        assert_eq!(result.not_found, 2);
        let counts: Vec<_> = result.operations.iter().map(|done| (done.operation, done.count)).collect();
        assert_eq!(counts, [(Operation::Read, 4), (Operation::Update, 3), (Operation::Delete, 2)]);
        store.spoil();
        assert!(play(&store, &steps[2..3], 1, &|_| {}).unwrap_err().contains("never written"));
    }

    #[test]
    fn a_bad_line_is_named() {
        for (line, word) in [
            ("1,put,a", "value_bytes"),
            ("x,put,a,1", "time"),
            ("1,drop,a,1", "drop"),
            ("1,put,a,many", "many"),
            ("1,put", "value_bytes"),
            ("0,put,a,1", "before"),
            ("1,put,a,1,2", "value_bytes"),
        ] {
            let error = read_trace(format!("1,put,a,30\n{line}\n").as_bytes()).unwrap_err();
            assert!(error.starts_with("line 2: ") && error.contains(word), "{error}");
        }
    }
}
