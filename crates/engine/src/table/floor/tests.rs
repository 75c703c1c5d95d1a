use super::cursor::TreeCursor;
use super::entry::Pointer;
use super::verify::verify;
use super::writer::{FloorOptions, FloorWriter};
use super::*;
use crate::key::{Cursor, Entry, KeyspaceId, Kind, Seq, Target, compare};
use cuesta_device::mapped::{MappedDirectory, Mapping, Region, Timing, Toll, begin_operation, touched};
use cuesta_device::sim::{SimConfig, SimDisk, Survival};
use cuesta_device::{ALIGNMENT, Access, Device, Directory, FileDirectory, Geometry};
use cuesta_sched::{Rng, Sched};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io;
use std::sync::{Arc, Mutex};

const STORE: StoreId = StoreId(77);

/// A file in memory.
#[derive(Debug, Default)]
struct Heap(Mutex<Vec<u8>>);

impl Device for Heap {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut file = self.0.lock().unwrap();
        let end = offset as usize + bytes.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn geometry(&self) -> Geometry {
        Geometry { direct: false, sector_bytes: 4096, atomic_write_bytes: 1 }
    }
}

type Version = (Vec<u8>, Trailer, Vec<u8>);

/// What two files hold.
#[derive(Clone)]
struct Files {
    data: Vec<u8>,
    meta: Vec<u8>,
}

impl Files {
    fn open(&self, number: u64) -> Result<Arc<Floor>> {
        Floor::open(STORE, number, View::from(self.data.clone()), View::from(self.meta.clone())).map(Arc::new)
    }
}

fn write(number: u64, versions: &[Version], options: FloorOptions, below: &Tree) -> Result<Files> {
    let [data, meta] = [Arc::new(Heap::default()), Arc::new(Heap::default())];
    let mut writer = FloorWriter::new(STORE, number, data.clone(), meta.clone(), options, below.clone())?;
    for (key, trailer, value) in versions {
        writer.add(Entry { key, trailer: *trailer, value })?;
    }
    writer.finish()?;
    let [data, meta] = [data, meta].map(|file| file.0.lock().unwrap().clone());
    Ok(Files { data, meta })
}

fn add(tree: &Tree, versions: &[Version], options: FloorOptions) -> Tree {
    let number = tree.floors().len() as u64 + 1;
    let floor = write(number, versions, options, tree).unwrap().open(number).unwrap();
    Tree::new(tree.floors().iter().cloned().chain([floor]).collect()).unwrap()
}

/// The newest version of `key` that a read at `bound` sees.
fn get(tree: &Tree, key: &[u8], bound: Trailer) -> Result<Option<(Trailer, Vec<u8>)>> {
    tree.get(key, bound, |hit| (hit.trailer, hit.value.to_vec()))
}

fn sorted(mut versions: Vec<Version>) -> Vec<Version> {
    versions.sort_by(|a, b| compare((&a.0, a.1), (&b.0, b.1)));
    versions
}

/// Trees of a few keys, so that floors meet, and what is in them.
struct Generated {
    tree: Tree,
    /// Floor by floor, the bottom first.
    floors: Vec<Vec<Version>>,
    all: Vec<Version>,
    keys: Vec<Vec<u8>>,
}

/// How a new floor lies to the old top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    Overlapped,
    Partly,
    Behind,
    Before,
}

/// Some keys in order: short ones with zeros, ones that fit an entry, ones that differ only behind it.
fn keys(rng: &mut Rng) -> Vec<Vec<u8>> {
    let n = 4 + rng.below(60);
    let style = rng.below(3);
    let mut keys = BTreeSet::new();
    for i in 0..n {
        let user = match style {
            0 => (0..rng.below(4)).map(|_| [0, 0, 1, 0xff][rng.below(4) as usize]).collect(),
            1 => format!("user{:012}", i * 7919 % 1000).into_bytes(),
            _ => {
                let mut key = b"the same for all but".to_vec();
                key.truncate(14 + rng.below(7) as usize);
                key.extend((0..rng.below(5)).map(|_| [0, b'a'][rng.below(2) as usize]));
                key
            }
        };
        keys.insert(KeyspaceId(3).key(&user));
    }
    keys.into_iter().collect()
}

fn shared_by(keys: &[Vec<u8>]) -> Vec<u8> {
    let (first, last) = (&keys[0], &keys[keys.len() - 1]);
    first.iter().zip(last).take_while(|(a, b)| a == b).map(|(byte, _)| *byte).collect()
}

fn generate(seed: u64, conditions: &mut BTreeSet<Condition>) -> Generated {
    let mut rng = Rng::new(seed);
    let keys = keys(&mut rng);
    let n = keys.len() as u64;
    let options = FloorOptions {
        shared: if rng.one_in(2) { shared_by(&keys) } else { keys[0][..KEYSPACE].to_vec() },
        filter_bits_per_key: if rng.one_in(2) { 10 } else { 0 },
        ..FloorOptions::default()
    };
    let (mut tree, mut floors) = (Tree::default(), Vec::<Vec<Version>>::new());
    let mut seq = 1;
    for _ in 0..1 + rng.below(9) {
        let from = rng.below(n);
        let until = if rng.one_in(5) { from + 1 } else { from + 1 + rng.below(n - from) };
        let one_in = 1 + rng.below(4);
        let mut chosen: Vec<u64> = (from..until).filter(|_| rng.one_in(one_in)).collect();
        if chosen.is_empty() {
            chosen.push(from);
        }
        let mut versions = Vec::new();
        for i in chosen {
            for _ in 0..if rng.one_in(4) { 3 } else { 1 } {
                let kind = if rng.one_in(5) { Kind::Delete } else { Kind::Put };
                let bytes = if kind == Kind::Delete { 0 } else { rng.below(40) as usize };
                versions.push((
                    keys[i as usize].clone(),
                    Trailer::new(Seq(seq), kind),
                    vec![seq as u8; bytes],
                ));
                seq += 1;
            }
        }
        let versions = sorted(versions);
        if let Some(top) = floors.last() {
            let ((first, ..), (last, ..)) = (&versions[0], &versions[versions.len() - 1]);
            let ((top_first, ..), (top_last, ..)) = (&top[0], &top[top.len() - 1]);
            conditions.insert(if first > top_last {
                Condition::Behind
            } else if last < top_first {
                Condition::Before
            } else if last > top_last {
                Condition::Partly
            } else {
                Condition::Overlapped
            });
        }
        tree = add(&tree, &versions, options.clone());
        floors.push(versions);
    }
    let all = sorted(floors.concat());
    Generated { tree, floors, all, keys }
}

const KEYSPACE: usize = crate::key::KEYSPACE_BYTES;
const TREES: u64 = 3000;

/// Each tree that is tried, with a generator of its own.
fn for_each_tree(mut test: impl FnMut(&Generated, &mut Rng)) {
    let mut conditions = BTreeSet::new();
    for seed in 0..TREES {
        test(&generate(seed, &mut conditions), &mut Rng::new(!seed));
    }
    assert_eq!(conditions.len(), 4, "{conditions:?}");
}

/// A place: of a version, of a key that may be there or not, before or behind all.
fn some_place(made: &Generated, rng: &mut Rng) -> (Vec<u8>, Trailer) {
    if rng.one_in(4) {
        let (key, trailer, _) = &made.all[rng.below(made.all.len() as u64) as usize];
        return (key.clone(), *trailer);
    }
    let mut key = made.keys[rng.below(made.keys.len() as u64) as usize].clone();
    match rng.below(8) {
        0 => key.push(rng.below(2) as u8),
        1 if key.len() > KEYSPACE => drop(key.pop()),
        2 => key = KeyspaceId(2 + rng.below(3) as u32).key(b""),
        _ => {}
    }
    let bound = match rng.below(4) {
        0 => Trailer::FIRST,
        1 => Trailer::LAST,
        _ => Trailer::read_at(Seq(rng.below(made.all.len() as u64 + 2))),
    };
    (key, bound)
}

#[test]
fn a_lookup_finds_what_a_scan_of_all_floors_finds() {
    for_each_tree(|made, rng| {
        for _ in 0..60 {
            let (key, bound) = some_place(made, rng);
            let expected = made
                .all
                .iter()
                .find(|(k, trailer, _)| compare((k, *trailer), (&key, bound)) != Ordering::Less)
                .filter(|(k, ..)| *k == key)
                .map(|(_, trailer, value)| (*trailer, value.clone()));
            assert_eq!(get(&made.tree, &key, bound).unwrap(), expected, "{}", key.escape_ascii());
        }
    });
}

#[test]
fn one_search_finds_the_place_of_a_key_in_every_floor() {
    for_each_tree(|made, rng| {
        let mut seats = Vec::new();
        for _ in 0..40 {
            let (key, bound) = some_place(made, rng);
            made.tree.seats(&key, bound, &mut seats).unwrap();
            let before =
                |version: &Version| compare((&version.0, version.1), (&key, bound)) == Ordering::Less;
            let expected: Vec<u32> =
                made.floors.iter().map(|floor| floor.partition_point(before) as u32).collect();
            assert_eq!(seats, expected, "{}", key.escape_ascii());
        }
    });
}

#[test]
fn any_walk_is_a_walk_over_the_sorted_union_of_the_floors() {
    for_each_tree(|made, rng| {
        let mut cursor = TreeCursor::new(made.tree.clone());
        let mut at: Option<usize> = None;
        for _ in 0..80 {
            let (key, bound) = some_place(made, rng);
            let split = made.all.partition_point(|v| compare((&v.0, v.1), (&key, bound)) == Ordering::Less);
            match rng.below(12) {
                0 => {
                    cursor.go(Target::AtOrAfter(&key, bound)).unwrap();
                    at = Some(split);
                }
                1 => {
                    cursor.go(Target::Before(&key, bound)).unwrap();
                    at = split.checked_sub(1);
                }
                2 => {
                    cursor.go(Target::First).unwrap();
                    at = Some(0);
                }
                3 => {
                    cursor.go(Target::Last).unwrap();
                    at = made.all.len().checked_sub(1);
                }
                4..8 if cursor.entry().is_some() => {
                    cursor.next().unwrap();
                    at = at.map(|at| at + 1);
                }
                8.. if cursor.entry().is_some() => {
                    cursor.prev().unwrap();
                    at = at.and_then(|at| at.checked_sub(1));
                }
                _ => {}
            }
            at = at.filter(|at| *at < made.all.len());
            let expected = at.map(|at| &made.all[at]).map(|(key, trailer, value)| Entry {
                key,
                trailer: *trailer,
                value,
            });
            assert_eq!(cursor.entry(), expected);
        }
    });
}

#[test]
fn every_pointer_leads_where_the_floors_below_say() {
    for_each_tree(|made, _| {
        for n in 1..=made.floors.len() {
            let lower = Tree::new(made.tree.floors()[..n].to_vec()).unwrap();
            verify(&lower, &mut |_| {}).unwrap();
        }
    });
}

#[test]
fn a_tree_without_floors_has_nothing_and_a_floor_has_something() {
    let tree = Tree::default();
    assert_eq!(get(&tree, b"key", Trailer::FIRST).unwrap(), None);
    let mut cursor = TreeCursor::new(tree.clone());
    for target in [Target::First, Target::Last, Target::Before(b"key", Trailer::LAST)] {
        cursor.go(target).unwrap();
        assert_eq!(cursor.entry(), None);
    }
    verify(&tree, &mut |_| {}).unwrap();
    let refused = write(1, &[], FloorOptions::default(), &tree).map(drop).unwrap_err();
    assert!(refused.to_string().contains("no entries"), "{refused}");
}

fn put(key: &str, seq: u64, value: usize) -> Version {
    (KeyspaceId(3).key(key.as_bytes()), Trailer::new(Seq(seq), Kind::Put), vec![seq as u8; value])
}

/// Four floors that overlap, with values of many pages.
fn four_floors() -> (Vec<Files>, Vec<Version>) {
    let (mut tree, mut files, mut all) = (Tree::default(), Vec::new(), Vec::new());
    for floor in 0..4 {
        let key = |i: u64| format!("a key that is longer than an entry {:04}", i * 4 + floor);
        let versions: Vec<_> = (0..150).map(|i| put(&key(i), floor * 150 + i + 1, 100)).collect();
        let options = FloorOptions {
            shared: KeyspaceId(3).key(b"a key"),
            filter_bits_per_key: 10,
            ..FloorOptions::default()
        };
        let made = write(floor + 1, &versions, options, &tree).unwrap();
        tree = Tree::new(tree.floors().iter().cloned().chain([made.open(floor + 1).unwrap()]).collect())
            .unwrap();
        files.push(made);
        all.extend(versions);
    }
    (files, all)
}

fn open_all(files: &[Files]) -> Result<Tree> {
    Tree::new(files.iter().zip(1..).map(|(files, number)| files.open(number)).collect::<Result<_>>()?)
}

#[test]
fn damage_is_found_when_it_is_first_touched_and_never_believed() {
    let (files, all) = four_floors();
    let mut rng = Rng::new(5);
    let (mut at_open, mut later) = (0, 0);
    for round in 0..1500 {
        let mut damaged = files.clone();
        let floor = rng.below(4) as usize;
        let file = if rng.one_in(2) { &mut damaged[floor].data } else { &mut damaged[floor].meta };
        let at = rng.below(file.len() as u64) as usize;
        if rng.one_in(10) {
            file.truncate(at);
        } else {
            file[at] ^= 1 << rng.below(8);
        }
        let tree = match open_all(&damaged) {
            Ok(tree) => tree,
            Err(error) => {
                at_open += 1;
                assert!(error.is_corrupt(), "round {round}: {error}");
                continue;
            }
        };
        let top = Tree::new(tree.floors()[..=floor].to_vec()).unwrap();
        let found = verify(&top, &mut |_| {}).unwrap_err();
        assert!(found.is_corrupt(), "round {round}: {found}");
        // As it is found by readers, without what the verification has looked at.
        let tree = open_all(&damaged).unwrap();
        for (key, trailer, value) in &all {
            match get(&tree, key, Trailer::FIRST) {
                Ok(hit) => assert_eq!(hit, Some((*trailer, value.clone()))),
                Err(error) => {
                    later += 1;
                    assert!(error.is_corrupt(), "round {round}: {error}");
                }
            }
        }
    }
    assert!(at_open > 50 && later > 1000, "{at_open} at open, {later} later");
}

#[test]
fn floors_in_persistent_memory_are_whole_after_a_power_cut_once_they_are_finished() {
    const BYTES: u64 = 4 << 20;
    let disk = SimDisk::new(&Sched::simulated(1), 1, SimConfig::default());
    let on = |disk: &SimDisk| {
        let region = Region::new(disk.memory(0, "PMEM", BYTES));
        MappedDirectory::new(disk.directory(0), region, &["data-", "meta-"], None)
    };
    let directory = on(&disk);
    let (mut tree, mut named, mut all) = (Tree::default(), Vec::new(), Vec::new());
    for number in 1..=5 {
        let key = |i: u64| format!("key {:05}", i * 5 + number);
        let versions: Vec<_> = (0..800).map(|i| put(&key(i), number * 1000 + i, 100)).collect();
        let names = [FileKind::Data, FileKind::Meta].map(|kind| FileId::new(kind, number).to_string());
        let parts = names.each_ref().map(|name| directory.create(name, Access::Direct).unwrap());
        let [data, meta] = parts.clone();
        let options = FloorOptions {
            shared: KeyspaceId(3).key(b"key "),
            filter_bits_per_key: 10,
            ..FloorOptions::default()
        };
        let mut writer = FloorWriter::new(STORE, number, data, meta, options, tree.clone()).unwrap();
        for (key, trailer, value) in &versions {
            writer.add(Entry { key, trailer: *trailer, value }).unwrap();
        }
        // Eight bytes for each key at least, and ten bits of a filter.
        assert!((800 * 9..800 * 20 + 4096).contains(&writer.held_bytes()), "{}", writer.held_bytes());
        if number == 5 {
            // Nobody waits for this one.
            drop(writer);
            break;
        }
        writer.finish().unwrap();
        let views = parts.each_ref().map(|part| part.view().unwrap().unwrap());
        named.extend(names.into_iter().zip(parts).map(|(name, part)| {
            let (at, bytes) = (part.extents().unwrap(), part.len().unwrap());
            (name, at, bytes)
        }));
        let [data, meta] = views;
        let floor = Arc::new(Floor::open(STORE, number, data, meta).unwrap());
        tree = Tree::new(tree.floors().iter().cloned().chain([floor]).collect()).unwrap();
        all.extend(versions);
    }
    disk.cut_now();
    let after = on(&disk.after_cut(Survival::Random, &mut Rng::new(3)));
    for (name, at, bytes) in &named {
        after.claim(name, at, *bytes).unwrap();
    }
    let view = |kind, number| {
        let file = after.open(&FileId::new(kind, number).to_string(), Access::Direct).unwrap();
        file.view().unwrap().unwrap()
    };
    let floors = (1..5).map(|number| {
        let [data, meta] = [FileKind::Data, FileKind::Meta].map(|kind| view(kind, number));
        Floor::open(STORE, number, data, meta).map(Arc::new).unwrap()
    });
    let tree = Tree::new(floors.collect()).unwrap();
    for (key, trailer, value) in &all {
        assert_eq!(get(&tree, key, Trailer::FIRST).unwrap(), Some((*trailer, value.clone())));
    }
    for n in 1..=4 {
        verify(&Tree::new(tree.floors()[..n].to_vec()).unwrap(), &mut |_| {}).unwrap();
    }
}

#[test]
fn a_mapping_that_was_cut_short_is_an_error_and_no_wrong_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("PMEM");
    let region = Region::new(Box::new(Mapping::open(&path, 1 << 20).unwrap()));
    let directory =
        MappedDirectory::new(Arc::new(FileDirectory::open(dir.path()).unwrap()), region, &["data-"], None);
    let (files, all) = four_floors();
    let mapped = |bytes: &[u8]| {
        let file = directory.create("data-1", Access::Direct).unwrap();
        file.write_at(bytes, 0).unwrap();
        // The view keeps it.
        directory.remove("data-1").unwrap();
        file.view().unwrap().unwrap()
    };
    let floors = files.iter().zip(1..).map(|(files, number)| {
        // The data parts last, so that the newest floor's is the end of the file.
        let (meta, data) = (mapped(&files.meta), mapped(&files.data));
        Floor::open(STORE, number, data, meta).map(Arc::new).unwrap()
    });
    let tree = Tree::new(floors.collect()).unwrap();
    let [mut cursor, mut newest] = [(); 2].map(|()| TreeCursor::new(tree.clone()));
    // All sectors are known to be sound.
    all.iter().for_each(|(key, ..)| assert!(get(&tree, key, Trailer::FIRST).unwrap().is_some()));
    cursor.go(Target::First).unwrap();
    newest.go(Target::AtOrAfter(&all[450].0, Trailer::FIRST)).unwrap();
    tree.check_memory().unwrap();
    let cut =
        |bytes: usize| OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes as u64).unwrap();
    let before: usize = files.iter().map(|files| files.meta.len() + files.data.len()).sum();
    cut(before - files[3].data.len());
    // Its entries are all there, and lead to zeros; who has read a value asks whether it was there.
    assert_eq!(newest.entry().unwrap().value, [0; 100]);
    tree.check_memory().unwrap_err();
    let keys: BTreeSet<_> = all.iter().map(|(key, ..)| key.as_slice()).collect();
    let failed = loop {
        assert!(keys.contains(cursor.entry().unwrap().key));
        if let Err(error) = cursor.next() {
            break error;
        }
    };
    assert!(failed.to_string().contains("was cut short"), "{failed}");
    // Nor does a new floor point into it.
    let new = [put("a key that is longer than an entry 0300", 9999, 10)];
    let refused = write(5, &new, FloorOptions::default(), &tree).map(drop).unwrap_err();
    assert!(refused.to_string().contains("was cut short"), "{refused}");
    cut(0);
    for (key, ..) in &all {
        let error = get(&tree, key, Trailer::FIRST).unwrap_err();
        assert!(!error.is_corrupt() && error.to_string().contains("was cut short"), "{error}");
    }
    assert!(tree.check_memory().is_err());
    for target in [Target::First, Target::Last, Target::Before(&all[9].0, Trailer::FIRST)] {
        cursor.go(target).unwrap_err();
        assert_eq!(cursor.entry(), None);
    }
}

#[test]
fn a_floor_fits_only_what_it_was_made_for() {
    let (files, _) = four_floors();
    let corrupt = |opened: Result<Tree>, why: &str| {
        let error = opened.map(drop).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains(why), "{error}");
    };
    // One left out, two exchanged, a file under another name, one that belongs to another store.
    let floor = |i: usize| files[i].open(i as u64 + 1).unwrap();
    corrupt(Tree::new(vec![floor(0), floor(2)]), "was made to lie on 2 others");
    corrupt(Tree::new(vec![floor(1), floor(0)]), "was made to lie on 1 others");
    corrupt(files[0].open(2).map(|_| Tree::default()), "is a copy of meta-00000001");
    let [data, meta] = [&files[0].data, &files[0].meta].map(|bytes| View::from(bytes.clone()));
    corrupt(Floor::open(StoreId(1), 1, data, meta).map(|_| Tree::default()), "belongs to store");
    // Checksums of so many sectors that they lie behind the file's end.
    let mut far = files[0].clone();
    let at = far.meta.len() - FOOTER_BYTES;
    let place = Place { store: STORE, file: FileId::new(FileKind::Meta, 1), offset: at as u64 };
    let footer = Footer::decode(&far.meta[at..], place).unwrap();
    let top = BlockHandle { offset: 1 << 50, ..footer.top };
    far.meta[at..].copy_from_slice(&Footer { top, ..footer }.encode(place));
    corrupt(far.open(1).map(|_| Tree::default()), "that no floor can have");
}

#[test]
fn a_pointer_to_what_is_not_there_is_an_error() {
    let many: Vec<_> = (0..50).map(|i| put(&format!("key{i:03}"), i + 1, 10)).collect();
    let few = [put("key100", 1, 10)];
    let lower = add(&Tree::default(), &many, FloorOptions::default());
    let upper = [put("key040", 100, 10)];
    let upper = write(2, &upper, FloorOptions::default(), &lower).unwrap().open(2).unwrap();
    // It has the right number, and is another.
    let other = write(1, &few, FloorOptions::default(), &Tree::default()).unwrap().open(1).unwrap();
    let tree = Tree::new(vec![other, upper]).unwrap();
    let error = get(&tree, &few[0].0, Trailer::FIRST).map(drop).unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("entry 40 of floor 0"), "{error}");
    let error = verify(&tree, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("instead of"), "{error}");
    let next = write(3, &few, FloorOptions::default(), &tree).map(drop).unwrap_err();
    assert!(next.is_corrupt(), "{next}");
}

#[test]
fn what_cannot_be_in_a_floor_is_refused() {
    let refused = |versions: &[Version], shared: &[u8]| {
        let options =
            FloorOptions { shared: shared.to_vec(), filter_bits_per_key: 0, ..FloorOptions::default() };
        write(1, versions, options, &Tree::default()).map(drop).unwrap_err().to_string()
    };
    let (a, b) = (put("a", 1, 1), put("b", 2, 1));
    assert!(refused(&[b.clone(), a.clone()], b"").contains("out of order"));
    assert!(refused(&[a.clone(), a.clone()], b"").contains("out of order"));
    assert!(refused(&[a, b], &KeyspaceId(3).key(b"a")).contains("cannot be in it"));
    let mut tree = Tree::default();
    while tree.floors().len() < FLOORS_MAX {
        let seq = tree.floors().len() as u64 + 1;
        tree = add(&tree, &[put("key", seq, 1)], FloorOptions::default());
    }
    assert_eq!(tree.floors().len(), FLOORS_MAX);
    let error = write(999, &[put("key", 999, 1)], FloorOptions::default(), &tree).map(drop).unwrap_err();
    assert!(error.to_string().contains("one more than a tree can have"), "{error}");
    let newest = get(&tree, &KeyspaceId(3).key(b"key"), Trailer::FIRST).unwrap().unwrap();
    assert_eq!(newest.0.seq(), Seq(FLOORS_MAX as u64));
    let oldest = get(&tree, &KeyspaceId(3).key(b"key"), Trailer::read_at(Seq(1))).unwrap().unwrap();
    assert_eq!(oldest.0.seq(), Seq(1));
    assert_eq!(tree.floors()[254].pointer(0).unwrap(), Some(Pointer { slot: 253, at: 0 }));
}

/// Bytes where a file would lie: from a page's first on, so that lines are counted alike each time.
fn on_a_page(bytes: &[u8]) -> View {
    let mut room = vec![0; bytes.len() + ALIGNMENT];
    let at = room.as_ptr().align_offset(ALIGNMENT);
    room[at..at + bytes.len()].copy_from_slice(bytes);
    View::from(room).part(at..at + bytes.len()).unwrap()
}

/// Trees as a level of them has them: floors of as many keys each, drawn from all. The keys that are there, and the
/// tree.
fn random_tree(floors: u64, entries: usize, filter_bits_per_key: u32) -> (Tree, Vec<Vec<u8>>) {
    let toll = Arc::new(Toll::new(&Sched::real(1), Timing::NVDIMM));
    let mut rng = Rng::new(floors);
    let (mut tree, mut all) = (Tree::default(), Vec::new());
    for number in 1..=floors {
        let keys: BTreeSet<_> =
            (0..entries).map(|_| format!("{:016}", rng.below(10_000_000_000_000_000))).collect();
        let versions: Vec<_> =
            keys.iter().zip(number * 1_000_000..).map(|(key, seq)| put(key, seq, 128)).collect();
        let options =
            FloorOptions { shared: KeyspaceId(3).key(b""), filter_bits_per_key, ..FloorOptions::default() };
        let files = write(number, &versions, options, &tree).unwrap();
        let [data, meta] = [files.data, files.meta].map(|bytes| on_a_page(&bytes).counted(toll.clone()));
        let floor = Arc::new(Floor::open(STORE, number, data, meta).unwrap());
        tree = Tree::new(tree.floors().iter().cloned().chain([floor]).collect()).unwrap();
        all.extend(versions.into_iter().map(|(key, ..)| key));
    }
    (tree, all)
}

/// Cache lines that a lookup of one of the keys touches, in the mean.
fn lines_per_get(tree: &Tree, keys: &[Vec<u8>]) -> f64 {
    let get_all = || {
        let before = touched().lines;
        for key in keys {
            begin_operation();
            assert!(get(tree, key, Trailer::FIRST).unwrap().is_some());
        }
        touched().lines - before
    };
    // The first time sectors are compared with their checksums.
    let first = get_all();
    let lines = get_all();
    assert!(lines < first);
    lines as f64 / keys.len() as f64
}

#[test]
fn a_floor_more_costs_a_lookup_two_lines() {
    let (one, keys) = random_tree(1, 14_000, 0);
    let single = lines_per_get(&one, &keys);
    // Fourteen probes, the last few in one or two lines; the entry; three for the value.
    assert!((15.0..19.0).contains(&single), "{single} lines");
    let mut told = format!("lines a lookup: 1 floor {single:.1}");
    for floors in [5, 10, 20] {
        let (tree, keys) = random_tree(floors, 14_000, 0);
        // A key is as likely to be on any floor.
        let lines = lines_per_get(&tree, &keys);
        let each = (lines - single) / ((floors - 1) as f64 / 2.0);
        told += &format!(", {floors} floors {lines:.1}");
        assert!((0.5..2.2).contains(&each), "{each} lines for each further floor of {floors}");
    }
    println!("{told}");
}

#[test]
fn of_a_filter_a_lookup_touches_one_line() {
    let (tree, _) = random_tree(10, 14_000, 10);
    let lines = || {
        let mut lines = 0;
        for absent in 0..1000 {
            let before = touched().lines;
            begin_operation();
            tree.may_contain(&KeyspaceId(3).key(format!("absent {absent}").as_bytes())).unwrap();
            lines += touched().lines - before;
        }
        lines as f64 / 1000.0
    };
    lines();
    let lines = lines();
    // Some of ten floors' filters are wrong for one in ten.
    assert!((9.0..=10.0).contains(&lines), "{lines}");
}

#[test]
fn a_seek_reads_the_value_of_one_floor_alone() {
    let seeks = |floors: u64| {
        let (tree, keys) = random_tree(floors, 2000, 0);
        let mut cursor = TreeCursor::new(tree);
        let mut seek_all = || {
            let before = touched().lines;
            for key in &keys {
                begin_operation();
                cursor.go(Target::AtOrAfter(key, Trailer::FIRST)).unwrap();
                assert_eq!(cursor.entry().unwrap().value.len(), 128);
            }
            (touched().lines - before) as f64 / keys.len() as f64
        };
        seek_all();
        seek_all()
    };
    let (one, ten) = (seeks(1), seeks(10));
    println!("lines a seek: 1 floor {one:.1}, 10 floors {ten:.1}");
    assert!((ten - one) / 9.0 < 3.0, "{one} lines for one floor, {ten} for ten");
}
