//! A store of ours as what is measured; on persistent memory that is modelled, with the cache lines that it touches.

use crate::failure::{Failure, Result};
use cuesta::{Db, MEMORY_NAME, Options, Range, World, mapped_tier};
use cuesta_bench::Store;
use cuesta_device::FileDirectory;
use cuesta_device::mapped::{FileMaps, Mapping, Region, Timing, Toll, begin_operation, touched};
use cuesta_sched::Sched;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Persistent memory that another stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryModel(Timing);

impl std::str::FromStr for MemoryModel {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "pcm" => Ok(Self(Timing::PCM)),
            "nvdimm" => Ok(Self(Timing::NVDIMM)),
            _ => Err(format!("there is no model {text:?} of persistent memory; there are pcm and nvdimm")),
        }
    }
}

impl MemoryModel {
    /// A world in which the options' only tier is as slow as that, and who counts what is touched there.
    fn world(self, options: &Options) -> Result<(World, Arc<Toll>)> {
        let sched = Sched::real(options.seed);
        let [tier] = &options.tiers[..] else {
            return Err(Failure::Input("a model of persistent memory needs --pmem".to_owned()));
        };
        let opened = FileDirectory::open(&tier.path);
        let opened = opened.map_err(Failure::io(format!("open {}", tier.path.display())))?;
        let toll = Arc::new(Toll::new(&sched, self.0));
        let memory = tier.path.join(MEMORY_NAME);
        let mapping = Mapping::open_modelled(&memory, options.mapped_bytes(tier), toll.clone());
        let mapping = mapping.map_err(Failure::io(format!("map {}", memory.display())))?;
        let files = Arc::new(opened.with_threads(&sched));
        let logs = FileMaps::new(&tier.path, Some(toll.clone()));
        let directory = mapped_tier(files, Region::new(Box::new(mapping)), logs);
        Ok((World { sched, directories: vec![directory] }, toll))
    }
}

/// Cache lines and bytes that operations touched, each line once an operation.
#[derive(Debug, Default)]
struct Touches {
    lines: AtomicU64,
    bytes: AtomicU64,
}

/// Counts what is touched of persistent memory, by whom.
#[derive(Debug)]
struct Counting {
    toll: Arc<Toll>,
    gets: Touches,
    scans: Touches,
}

/// An open store.
#[derive(Debug)]
pub(crate) struct Cuesta {
    pub(crate) db: Db,
    counting: Option<Counting>,
    /// The first error of an operation, or of work in the background that was waited for. A benchmark knows it as text,
    /// which no exit code can be told from.
    failed: Mutex<Option<cuesta::Error>>,
}

impl Cuesta {
    /// One that is open.
    pub(crate) fn new(db: Db) -> Self {
        Self { db, counting: None, failed: Mutex::new(None) }
    }

    /// Opens one, on modelled memory where a model is given.
    pub(crate) fn open(options: &Options, model: Option<MemoryModel>) -> Result<Self> {
        let Some(model) = model else { return Ok(Self::new(Db::open(options)?)) };
        let (world, toll) = model.world(options)?;
        let counting = Counting { toll, gets: Touches::default(), scans: Touches::default() };
        Ok(Self { counting: Some(counting), ..Self::new(Db::open_in(options, world)?) })
    }

    /// Cache lines of persistent memory by name: `touched:gets`, `touched:scans` and `touched` by everybody, each in
    /// lines and, with `:bytes`, in bytes, and `lines:written` that were written back. None where it is not modelled.
    pub(crate) fn touched(&self) -> BTreeMap<String, u64> {
        let Some(Counting { toll, gets, scans }) = &self.counting else { return BTreeMap::new() };
        let all = toll.touched();
        let of = |touches: &Touches| {
            (touches.lines.load(Ordering::Relaxed), touches.bytes.load(Ordering::Relaxed))
        };
        let mut counts = BTreeMap::from([("lines:written".to_owned(), all.written)]);
        for (name, (lines, bytes)) in
            [("touched:gets", of(gets)), ("touched:scans", of(scans)), ("touched", (all.lines, all.bytes))]
        {
            counts.insert(name.to_owned(), lines);
            counts.insert(format!("{name}:bytes"), bytes);
        }
        counts
    }

    /// That first error, once.
    pub(crate) fn take_failure(&self) -> Option<cuesta::Error> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// An error as text; the first is kept.
    pub(crate) fn told(&self, error: cuesta::Error) -> String {
        let text = error.to_string();
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        text
    }

    /// Does one operation, and adds what it touched.
    fn count<T>(&self, of: impl Fn(&Counting) -> &Touches, operation: impl FnOnce() -> T) -> T {
        let Some(counting) = &self.counting else { return operation() };
        begin_operation();
        let before = touched();
        let done = operation();
        let (after, touches) = (touched(), of(counting));
        touches.lines.fetch_add(after.lines - before.lines, Ordering::Relaxed);
        touches.bytes.fetch_add(after.bytes - before.bytes, Ordering::Relaxed);
        done
    }
}

impl Store for Cuesta {
    fn read(&self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> std::result::Result<(), String> {
        let value = self.count(|counting| &counting.gets, || self.db.get(key));
        see(value.map_err(|error| self.told(error))?.as_deref());
        Ok(())
    }

    fn write(&self, key: &[u8], value: &[u8]) -> std::result::Result<(), String> {
        self.db.put(key, value).map(drop).map_err(|error| self.told(error))
    }

    fn delete(&self, key: &[u8]) -> std::result::Result<(), String> {
        self.db.delete(key).map(drop).map_err(|error| self.told(error))
    }

    fn scan(&self, key: &[u8], records: u64) -> std::result::Result<u64, String> {
        let scan = || -> cuesta::Result<u64> {
            let pairs = self.db.scan(Range::from(key..).with_limit(records))?;
            pairs.map(|pair| pair.map(|_| 1)).sum()
        };
        self.count(|counting| &counting.scans, scan).map_err(|error| self.told(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_is_counted_where_memory_is_modelled() {
        let dir = tempfile::tempdir().unwrap();
        let options = |name: &str| Options {
            memory_bytes: 8 << 20,
            profile: Some(cuesta::Profile::NvLsm),
            ..Options::in_memory(dir.path().join(name), 64 << 20)
        };
        for model in [Some("nvdimm".parse().unwrap()), None] {
            let store = Cuesta::open(&options(&format!("{model:?}").replace(' ', "")), model).unwrap();
            (0..1000u32).for_each(|i| store.write(&i.to_be_bytes(), &[7; 100]).unwrap());
            store.db.flush().unwrap();
            let read = || {
                let see = &mut |value: Option<&[u8]>| assert_eq!(value, Some(&[7; 100][..]));
                store.read(&5u32.to_be_bytes(), see).unwrap();
            };
            // The first time pages are compared with their checksums.
            read();
            let before = store.touched();
            read();
            assert_eq!(store.scan(&5u32.to_be_bytes(), 10).unwrap(), 10);
            let after = store.touched();
            let of = |name: &str| after[name] - before[name];
            assert_eq!(after.is_empty(), model.is_none());
            if model.is_some() {
                // A value of 100 bytes has two lines or three; there are the entries, too.
                assert!((4..100).contains(&of("touched:gets")), "{after:?}");
                assert!(of("touched:scans") > 20 && of("touched:gets:bytes") > 100, "{after:?}");
                assert!(after["lines:written"] > 1000 * 100 / 64, "{after:?}");
            }
            store.db.close().unwrap();
        }
        assert!("optane".parse::<MemoryModel>().is_err());
    }
}
