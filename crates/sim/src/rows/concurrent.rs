//! Row 14: writers and readers at once. Each writer's batch gives all of a few keys the same value, so whoever sees
//! two of them differ has seen half a batch. The order of commits is known, since a write returns its number: what a
//! power cut leaves must be the state after some commit that is not older than the last one synced.
//!
//! In one history of three, writers flush often, all pause, and some reads come late: so that what a reader found in a
//! table is old by the time that the cache gets it.

use crate::fixture::{contents, options, world};
use cuesta::{Batch, Db, Durability, Range};
use cuesta_device::sim::{Effect, Fault, SimConfig, SimDisk, Survival};
use cuesta_sched::{Mutex, Priority, Rng, Sched};
use std::sync::Arc;
use std::time::Duration;

const WRITERS: u64 = 3;
const READERS: u64 = 2;
const BATCHES: u64 = 25;
const KEYS: [&str; 4] = ["a", "m", "n", "z"];
/// Reads that come late, of so many, by up to so long.
const LATE_READS: u64 = 40;
const LATE_OF: u64 = 120;
const LATE_MILLIS: u64 = 40;
/// Writers and readers then pause for up to so long.
const PAUSE_MILLIS: u64 = 20;

/// A batch that was begun.
#[derive(Clone, Debug)]
struct Begun {
    value: Vec<u8>,
    /// Its number, once acknowledged.
    acknowledged: Option<u64>,
    synced: bool,
}

type History = Arc<Mutex<Vec<Begun>>>;

pub(super) fn case(seed: u64) -> Result<u64, String> {
    let mut rng = Rng::new(seed ^ 0xc0c0);
    let sched = Sched::simulated(seed);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    let options = options(seed, Durability::Os);
    let history: History = Arc::new(Mutex::new(&sched, Vec::new()));
    let wrong: Arc<Mutex<Option<String>>> = Arc::new(Mutex::new(&sched, None));
    sched.run(|| -> Result<(), String> {
        let db = Db::open_in(&options, world(&sched, &disk, &options)).map_err(|error| error.to_string())?;
        let db = Arc::new(db);
        let late = seed % 3 == 1;
        if late {
            let faults = (0..LATE_READS).map(|_| {
                let millis = Duration::from_millis(1 + rng.below(LATE_MILLIS));
                Fault::new(Effect::LateRead(millis)).nth(1 + rng.below(LATE_OF))
            });
            disk.set_faults(faults.collect());
        }
        if rng.one_in(2) {
            disk.cut_at(disk.ops() + rng.below(150));
        }
        let mut threads = Vec::new();
        for writer in 0..WRITERS {
            let (db, history, seed, theirs) = (db.clone(), history.clone(), rng.next_u64(), sched.clone());
            let body = move || write(&db, &history, (writer, seed, theirs), late);
            threads.push(sched.spawn("writer", Priority::Normal, body).map_err(|error| error.to_string())?);
        }
        for _ in 0..READERS {
            let (db, history, wrong, seed) = (db.clone(), history.clone(), wrong.clone(), rng.next_u64());
            let theirs = sched.clone();
            let body = move || {
                if let Err(what) = read(&db, &history, (seed, theirs), late) {
                    wrong.lock().get_or_insert(what);
                }
            };
            threads.push(sched.spawn("reader", Priority::Normal, body).map_err(|error| error.to_string())?);
        }
        for thread in threads {
            if !thread.join() {
                return Err("a thread panicked".to_owned());
            }
        }
        disk.cut_now();
        wrong.lock().take().map_or(Ok(()), Err)
    })?;
    let survival = [Survival::None, Survival::All, Survival::Random, Survival::Random][rng.below(4) as usize];
    let after = Sched::simulated(seed + 1);
    let disk = disk.after_cut(survival, &mut rng).on(&after);
    let found = after.run(|| {
        let db = Db::open_in(&options, world(&after, &disk, &options))
            .map_err(|error| format!("open: {error}"))?;
        contents(&db).map_err(|error| error.to_string())
    })?;
    let values: Vec<Option<&Vec<u8>>> = KEYS.iter().map(|key| found[""].get(key.as_bytes())).collect();
    if values.iter().any(|value| *value != values[0]) {
        return Err("half a batch survived the cut".to_owned());
    }
    let history = history.lock();
    let synced = history.iter().filter(|begun| begun.synced).filter_map(|begun| begun.acknowledged).max();
    let survivor = history.iter().find(|begun| Some(&begun.value) == values[0]);
    match (survivor, synced) {
        (None, Some(_)) if values[0].is_none() => Err("a synced batch is lost".to_owned()),
        (None, _) if values[0].is_some() => Err("a value that nobody wrote".to_owned()),
        (Some(Begun { acknowledged: Some(number), .. }), Some(synced)) if *number < synced => {
            Err(format!("batch {number} survived, though batch {synced} was synced after it"))
        }
        _ => Ok(1),
    }
}

fn write(db: &Db, history: &History, (writer, seed, sched): (u64, u64, Sched), late: bool) {
    let mut rng = Rng::new(seed);
    for i in 0..BATCHES {
        let value = vec![b'0' + writer as u8; 1 + i as usize * 30];
        let sync = rng.one_in(4);
        let mut batch = Batch::new();
        for key in KEYS {
            batch.put(key, &value);
        }
        let at = {
            let mut history = history.lock();
            history.push(Begun { value, acknowledged: None, synced: sync });
            history.len() - 1
        };
        let durability = if sync { Durability::Sync } else { Durability::Os };
        match db.write_with(batch, durability) {
            Ok(number) => history.lock()[at].acknowledged = Some(number),
            Err(_) => return,
        }
        if rng.one_in(if late { 2 } else { 10 }) && db.flush().is_err() {
            return;
        }
        if late {
            sched.sleep(Duration::from_millis(rng.below(PAUSE_MILLIS)));
        }
    }
}

/// What a reader may never see: half a batch, or a batch older than one that was acknowledged before it looked.
fn read(db: &Db, history: &History, (seed, sched): (u64, Sched), late: bool) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    for _ in 0..BATCHES {
        if late {
            sched.sleep(Duration::from_millis(rng.below(PAUSE_MILLIS)));
        }
        let before = history.lock().iter().filter_map(|begun| begun.acknowledged).max();
        // What is late is mostly gets, which leave what they find.
        let found: Vec<Vec<u8>> = match rng.below(if late { 9 } else { 3 }) {
            0 | 3.. => {
                let Ok(found) = db.get_many(&KEYS) else { return Ok(()) };
                found.into_iter().map(|value| value.map_or(Vec::new(), |value| value.to_vec())).collect()
            }
            1 => {
                let Ok(snapshot) = db.snapshot() else { return Ok(()) };
                let mut found = Vec::new();
                for key in KEYS {
                    let Ok(value) = snapshot.get(key) else { return Ok(()) };
                    found.push(value.map_or(Vec::new(), |value| value.to_vec()));
                }
                found
            }
            _ => {
                let pairs = db.scan(Range::all()).and_then(|scan| scan.collect::<cuesta::Result<Vec<_>>>());
                let Ok(pairs) = pairs else { return Ok(()) };
                if !pairs.is_empty() && pairs.len() != KEYS.len() {
                    return Err(format!("a scan shows {} keys of a batch of {}", pairs.len(), KEYS.len()));
                }
                pairs.into_iter().map(|(_, value)| value.to_vec()).collect()
            }
        };
        if found.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err("a reader saw half a batch".to_owned());
        }
        let now = history.lock();
        let seen = found.first().and_then(|value| now.iter().find(|begun| begun.value == *value));
        let number = seen.map(|begun| begun.acknowledged);
        match (before, number) {
            (Some(before), Some(Some(number))) if number < before => {
                return Err(format!("a reader saw batch {number} after batch {before} was acknowledged"));
            }
            (Some(before), None) => return Err(format!("a reader saw nothing after batch {before}")),
            _ => {}
        }
    }
    Ok(())
}
