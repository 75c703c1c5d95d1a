use super::*;
use crate::Compression;
use crate::key::{Cursor, Entry, KeyspaceId, Kind, Seq, compare};
use cuesta_device::{
    Access, AlignedBuf, Cause, Directory, FileDirectory, Geometry, Meter, Pending, Ticket, WriteRequest,
};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering as AtomicOrdering};

type Listed = Vec<(Vec<u8>, Trailer, Vec<u8>)>;

struct Made {
    _dir: tempfile::TempDir,
    directory: FileDirectory,
    meter: Arc<Meter>,
}

const STORE: StoreId = StoreId(77);

impl Made {
    fn new(entries: &Listed, options: WriterOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let directory = FileDirectory::open(dir.path()).unwrap();
        let create = |name| directory.create(name, Access::Buffered).unwrap();
        let mut writer = BlocksWriter::new(STORE, 5, create("data"), create("meta"), options).unwrap();
        for (key, trailer, value) in entries {
            writer.add(Entry { key, trailer: *trailer, value }).unwrap();
        }
        writer.finish().unwrap();
        Self { _dir: dir, directory, meter: Meter::new(2) }
    }

    fn part(&self, name: &str) -> Arc<dyn Device> {
        self.directory.open(name, Access::Buffered).unwrap()
    }

    fn open(&self) -> Result<Arc<Blocks>> {
        let data = self.meter.attach(self.part("data"), 1, Cause::UserRead);
        let meta = self.meter.attach(self.part("meta"), 0, Cause::Index);
        Blocks::open(STORE, 5, data, meta, Arc::default()).map(Arc::new)
    }
}

fn put(seq: u64) -> Trailer {
    Trailer::new(Seq(seq), Kind::Put)
}

fn sorted(mut entries: Listed) -> Listed {
    entries.sort_by(|a, b| compare((&a.0, a.1), (&b.0, b.1)));
    entries.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
    entries
}

fn numbered(n: u64, value: usize) -> Listed {
    let key = |i: u64| KeyspaceId(1).key(format!("user{i:08}").as_bytes());
    sorted((0..n).map(|i| (key(i * 2), put(i + 1), vec![i as u8; value])).collect())
}

fn options(compression: Compression, block_bytes: u32) -> WriterOptions {
    WriterOptions { compression, block_bytes, filter_bits_per_key: 10, links: false }
}

fn ahead(max_bytes: usize) -> ReadAhead {
    ReadAhead { max_bytes, ..ReadAhead::default() }
}

fn walk(cursor: &mut BlocksCursor, forward: bool) -> Listed {
    let mut out = Listed::new();
    if forward {
        cursor.go(Target::First).unwrap()
    } else {
        cursor.go(Target::Last).unwrap()
    }
    while let Some(entry) = cursor.entry() {
        out.push((entry.key.to_vec(), entry.trailer, entry.value.to_vec()));
        if forward { cursor.next().unwrap() } else { cursor.prev().unwrap() }
    }
    out
}

#[test]
fn everything_written_is_found_and_walked_both_ways() {
    for (compression, value) in [(Compression::None, 100), (Compression::Lz4, 1000), (Compression::Zstd, 10)]
    {
        let entries = numbered(5000, value);
        let made = Made::new(&entries, options(compression, 4096));
        let table = made.open().unwrap();
        let cache = Arc::new(Cache::new(1 << 20, 1));
        for (key, trailer, value) in &entries {
            let found = table.get(&cache, key, Trailer::read_at(Seq(1 << 40)), &mut None).unwrap().unwrap();
            assert_eq!((found.trailer, &found.value[..]), (*trailer, &value[..]));
            let mut absent = key.clone();
            absent.push(b'x');
            assert!(table.get(&cache, &absent, Trailer::FIRST, &mut None).unwrap().is_none());
        }
        let mut cursor = table.cursor(cache.clone(), Fill::Yes, ahead(64 << 10));
        assert_eq!(walk(&mut cursor, true), entries);
        let mut backward = walk(&mut cursor, false);
        backward.reverse();
        assert_eq!(backward, entries);
        let mut merging = table.cursor_over(made.part("data"), cache, 1 << 20);
        assert_eq!(walk(&mut merging, true), entries);
        verify(&table, &mut |_| {}).unwrap();
    }
}

#[test]
fn a_cold_get_is_one_read_of_at_most_two_pages_on_the_data_tier() {
    let made = Made::new(&numbered(20_000, 100), WriterOptions::default());
    let table = made.open().unwrap();
    let key = |i: u64| KeyspaceId(1).key(format!("user{:08}", i * 2).as_bytes());
    let cache = Cache::new(8 << 20, 1);
    for i in (0..20_000).step_by(997) {
        let before = made.meter.snapshot().get(1, Cause::UserRead);
        assert!(table.get(&cache, &key(i), Trailer::FIRST, &mut None).unwrap().is_some());
        let after = made.meter.snapshot().get(1, Cause::UserRead);
        assert_eq!(after.read_ops - before.read_ops, 1);
        assert!(after.read_bytes - before.read_bytes <= 8192);
        assert!(table.get(&cache, &key(i), Trailer::FIRST, &mut None).unwrap().is_some());
        assert_eq!(made.meter.snapshot().get(1, Cause::UserRead), after, "a second get reads nothing");
    }
}

#[test]
fn a_small_table_is_opened_by_one_read_of_its_meta_part_and_another_by_two() {
    for (entries, reads) in [(500, 1), (20_000, 2)] {
        let made = Made::new(&numbered(entries, 100), WriterOptions::default());
        let table = made.open().unwrap();
        assert_eq!(table.properties.meta_file_bytes <= TAIL_BYTES, reads == 1, "{entries} entries");
        assert_eq!(made.meter.snapshot().get(0, Cause::Index).read_ops, reads, "{entries} entries");
        assert_eq!(made.meter.snapshot().get(1, Cause::UserRead).read_ops, 0, "{entries} entries");
    }
}

#[test]
fn a_walk_reads_ahead_either_way() {
    let made = Made::new(&numbered(20_000, 100), WriterOptions::default());
    let table = made.open().unwrap();
    for forward in [true, false] {
        let before = made.meter.snapshot().get(1, Cause::UserRead);
        let mut cursor = table.cursor(Arc::new(Cache::new(8 << 20, 1)), Fill::Yes, ahead(256 << 10));
        assert_eq!(walk(&mut cursor, forward).len(), 20_000);
        let after = made.meter.snapshot().get(1, Cause::UserRead);
        let (ops, bytes) = (after.read_ops - before.read_ops, after.read_bytes - before.read_bytes);
        assert!(ops < 30, "{ops} reads for {bytes} bytes, forward: {forward}");
        assert!(bytes < table.properties().data_file_bytes * 11 / 10, "{bytes} bytes, forward: {forward}");
    }
}

#[test]
fn what_is_expected_comes_with_the_first_read_and_nothing_beyond_the_range() {
    let made = Made::new(&numbered(20_000, 100), WriterOptions::default());
    let table = made.open().unwrap();
    let key = |i: u64| KeyspaceId(1).key(format!("user{:08}", i * 2).as_bytes());
    let read = |read_ahead: &ReadAhead, from: u64, to: u64| {
        let cache = Arc::new(Cache::new(8 << 20, 1));
        // The partition's index comes from elsewhere.
        let mut cursor = table.cursor(cache, Fill::Yes, read_ahead.clone());
        let before = made.meter.snapshot().get(1, Cause::UserRead);
        let (start, end) = (key(from), key(to));
        if from < to {
            cursor.go(Target::AtOrAfter(&start, Trailer::FIRST)).unwrap();
            (from..to).for_each(|_| cursor.next().unwrap());
        } else {
            cursor.go(Target::Before(&start, Trailer::LAST)).unwrap();
            (to..from).for_each(|_| cursor.prev().unwrap());
        }
        assert_eq!(cursor.entry().unwrap().key, end);
        let after = made.meter.snapshot().get(1, Cause::UserRead);
        (after.read_ops - before.read_ops, after.read_bytes - before.read_bytes)
    };
    let known = ReadAhead { expected_bytes: 100 * 140, ..ahead(256 << 10) };
    for (from, to) in [(5000, 5100), (5100, 5000)] {
        let (ops, bytes) = read(&known, from, to);
        assert!(ops == 1 && bytes < 32 << 10, "{ops} reads, {bytes} bytes from {from} to {to}");
        assert!(read(&ahead(256 << 10), from, to).0 > 1);
    }
    let eager = ReadAhead { expected_bytes: 256 << 10, ..ahead(256 << 10) };
    let bounded =
        |low, high| ReadAhead { low: Some(key(low).into()), high: Some(key(high).into()), ..eager.clone() };
    for (from, to) in [(5000, 5010), (5010, 5000)] {
        assert!(read(&eager, from, to).1 > 128 << 10);
        let (ops, bytes) = read(&bounded(5000, 5010), from, to);
        assert!(ops == 1 && bytes < 16 << 10, "{ops} reads, {bytes} bytes from {from} to {to}");
    }
}

#[test]
fn extremes_are_kept() {
    let mut entries = vec![
        (KeyspaceId(0).key(b""), put(1), Vec::new()),
        (KeyspaceId(0).key(&[7; 64 << 10]), put(2), vec![1; 1 << 20]),
        (KeyspaceId(9).key(b""), Trailer::new(Seq(3), Kind::Delete), Vec::new()),
    ];
    entries.extend((0..2000).map(|i| (KeyspaceId(0).key(b"same"), put(10 + i), vec![i as u8; 20])));
    let entries = sorted(entries);
    let made = Made::new(&entries, WriterOptions::default());
    let table = made.open().unwrap();
    let cache = Arc::new(Cache::new(1 << 20, 1));
    for (key, trailer, value) in &entries {
        let found = table.get(&cache, key, Trailer::read_at(trailer.seq()), &mut None).unwrap().unwrap();
        assert_eq!((found.trailer, &found.value[..]), (*trailer, &value[..]));
    }
    assert_eq!(walk(&mut table.cursor(cache, Fill::Yes, ahead(64 << 10)), true), entries);
    assert_eq!(table.properties().tombstones, 1);
    verify(&table, &mut |_| {}).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_seek_lands_where_a_sorted_list_says(
        entries in proptest::collection::vec(
            (proptest::collection::vec(0u8..3, 0..7), 1u64..4, 0usize..300), 1..200),
        probes in proptest::collection::vec((proptest::collection::vec(0u8..3, 0..7), 0u64..5, any::<bool>()), 1..40),
    ) {
        let key = |user: &[u8]| KeyspaceId(0).key(user);
        let entries = sorted(entries.into_iter().map(|(user, seq, len)| (key(&user), put(seq), vec![7; len])).collect());
        let made = Made::new(&entries, options(Compression::None, 512));
        let table = made.open().unwrap();
        let cache = Arc::new(Cache::new(1 << 20, 1));
        let mut cursor = table.cursor(cache.clone(), Fill::Yes, ahead(4096));
        for (user, seq, forward) in probes {
            let user = key(&user);
            let split = entries.partition_point(|e| compare((&e.0, e.1), (&user, put(seq))) == Ordering::Less);
            let expected = match forward {
                true => { cursor.go(Target::AtOrAfter(&user, put(seq))).unwrap(); entries.get(split) }
                false => { cursor.go(Target::Before(&user, put(seq))).unwrap(); split.checked_sub(1).map(|i| &entries[i]) }
            };
            prop_assert_eq!(cursor.entry().map(|e| (e.key, e.trailer)), expected.map(|e| (&e.0[..], e.1)));
            let got = table.get(&cache, &user, put(seq), &mut None).unwrap().map(|found| found.trailer);
            prop_assert_eq!(got, entries.get(split).filter(|e| e.0 == user).map(|e| e.1));
        }
    }
}

#[test]
fn no_flipped_bit_goes_unseen() {
    let entries = numbered(60, 30);
    let made = Made::new(&entries, options(Compression::None, 512));
    for name in ["meta", "data"] {
        let part = made.part(name);
        for at in 0..part.len().unwrap() {
            let mut byte = [0];
            part.read_at(&mut byte, at).unwrap();
            part.write_at(&[byte[0] ^ 1 << (at % 8)], at).unwrap();
            let verified = made.open().and_then(|table| verify(&table, &mut |_| {}));
            assert!(verified.is_err(), "{name} byte {at}");
            let cache = Cache::new(1 << 20, 1);
            if let Ok(table) = made.open() {
                for (key, trailer, value) in &entries {
                    if let Ok(found) = table.get(&cache, key, Trailer::FIRST, &mut None) {
                        let found = found.unwrap_or_else(|| panic!("{name} byte {at} hides a key"));
                        assert_eq!(
                            (found.trailer, &found.value[..]),
                            (*trailer, &value[..]),
                            "{name} byte {at}"
                        );
                    }
                }
            }
            part.write_at(&byte, at).unwrap();
        }
    }
    verify(&made.open().unwrap(), &mut |_| {}).unwrap();
}

#[test]
fn a_cut_or_foreign_file_is_refused() {
    let made = Made::new(&numbered(500, 30), WriterOptions::default());
    let (data, meta) = (made.part("data"), made.part("meta"));
    assert!(
        Blocks::open(StoreId(1), 5, data.clone(), meta.clone(), Arc::default()).unwrap_err().is_corrupt()
    );
    assert!(Blocks::open(STORE, 6, data.clone(), meta.clone(), Arc::default()).unwrap_err().is_corrupt());
    assert!(Blocks::open(STORE, 5, meta.clone(), data.clone(), Arc::default()).unwrap_err().is_corrupt());
    data.set_len(data.len().unwrap() - 4096).unwrap();
    assert!(verify(&made.open().unwrap(), &mut |_| {}).unwrap_err().is_corrupt());
    meta.set_len(meta.len().unwrap() - 4096).unwrap();
    assert!(made.open().unwrap_err().is_corrupt());
}

/// A device that does a submitted write only when it is waited for, or fails it then.
#[derive(Debug)]
struct Lazy {
    device: Arc<dyn Device>,
    fails: bool,
    begun: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Begun {
    device: Arc<dyn Device>,
    request: WriteRequest,
    fails: bool,
    begun: Arc<AtomicUsize>,
}

impl Pending for Begun {
    fn wait(self: Box<Self>) -> io::Result<AlignedBuf> {
        self.begun.fetch_sub(1, AtomicOrdering::Relaxed);
        if self.fails {
            return Err(io::Error::other("the medium is gone"));
        }
        let WriteRequest { buffer, bytes, offset } = self.request;
        self.device.write_at(&buffer[..bytes], offset).map(|()| buffer)
    }
}

impl Device for Lazy {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.device.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.device.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        assert_eq!(self.begun.load(AtomicOrdering::Relaxed), 0, "a sync does not cover writes under way");
        self.device.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.device.set_len(len)
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn submit_write(&self, request: WriteRequest) -> Ticket {
        assert_eq!(self.begun.fetch_add(1, AtomicOrdering::Relaxed), 0, "one piece at a time");
        let (device, begun) = (self.device.clone(), self.begun.clone());
        Ticket::pending(Box::new(Begun { device, request, fails: self.fails, begun }))
    }
}

#[test]
fn what_is_being_written_is_waited_for_before_it_is_synced() {
    // One piece is under way when the second one, the last, is written.
    let entries = numbered(400, 1000);
    for fails in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let directory = FileDirectory::open(dir.path()).unwrap();
        let create = |name| directory.create(name, Access::Buffered).unwrap();
        let data = Arc::new(Lazy { device: create("data"), fails, begun: Arc::default() });
        let options = options(Compression::None, 4096);
        let mut writer = BlocksWriter::new(STORE, 5, data, create("meta"), options).unwrap();
        for (key, trailer, value) in &entries {
            writer.add(Entry { key, trailer: *trailer, value }).unwrap();
        }
        assert_eq!(writer.finish().is_err(), fails);
        if !fails {
            let made = Made { _dir: dir, directory, meter: Meter::new(2) };
            let cache = Arc::new(Cache::new(1 << 20, 1));
            let table = made.open().unwrap();
            assert_eq!(walk(&mut table.cursor(cache, Fill::Yes, ahead(0)), true), entries);
        }
    }
}

#[test]
fn a_partition_says_where_a_search_goes_on_below_and_is_believed_only_where_that_is_so() {
    let below = Made::new(&numbered(60_000, 20), WriterOptions::default());
    let below = below.open().unwrap();
    assert!(below.top.len() > 3);
    let entries: Listed = numbered(60_000, 20).into_iter().step_by(3).collect();
    let dir = tempfile::tempdir().unwrap();
    let directory = FileDirectory::open(dir.path()).unwrap();
    let create = |name| directory.create(name, Access::Buffered).unwrap();
    let linked = WriterOptions { links: true, ..WriterOptions::default() };
    let mut writer = BlocksWriter::new(STORE, 6, create("data"), create("meta"), linked).unwrap();
    let mut links = 0;
    for (key, trailer, value) in &entries {
        writer.add(Entry { key, trailer: *trailer, value }).unwrap();
        if writer.wants_link() {
            writer.set_link(Some(below.link_to(key, *trailer)));
            links += 1;
        }
    }
    writer.finish().unwrap();
    let open = |name| directory.open(name, Access::Buffered).unwrap();
    let above = Arc::new(Blocks::open(STORE, 6, open("data"), open("meta"), Arc::default()).unwrap());
    verify(&above, &mut |_| {}).unwrap();
    assert_eq!(links, above.top.len());
    let cache = Cache::new(8 << 20, 1);
    // What is behind all that is above nobody asks it for.
    for (key, trailer, value) in numbered(60_000, 20).into_iter().take(59_998) {
        let mut link = None;
        above.get(&cache, &key, Trailer::FIRST, &mut link).unwrap();
        let named = link.unwrap();
        let partition = below.top.find(&below.top_block, &key, trailer) as u32;
        // It is the partition of the first key of the one above, which has keys for three of these.
        assert!(named.table == 5 && (named.partition..named.partition + 4).contains(&partition), "{named:?}");
        // What is right, what leads behind the key or past the end, and what is of another table: found all the same.
        let wrong = [(5, named.partition), (5, u32::MAX), (5, partition + 1), (5, 0), (9, 1)];
        for (table, partition) in wrong {
            let mut link = Some(Link { table, partition });
            let found = below.get(&cache, &key, Trailer::FIRST, &mut link).unwrap().unwrap();
            assert_eq!((found.trailer, &found.value[..], link), (trailer, &value[..], None));
        }
    }
}
