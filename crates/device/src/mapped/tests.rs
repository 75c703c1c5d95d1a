#![allow(clippy::single_range_in_vec_init, reason = "places of one piece")]

use super::*;
use crate::sim::{Effect, Fault, SimConfig, SimDisk, Survival, SyncFailure};
use crate::{Access, Device, Directory, FileDirectory};
use cuesta_sched::{Priority, Rng, Sched};
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

const PREFIXES: &[&str] = &["data-", "meta-"];
const MIB: u64 = 1 << 20;

fn on_files(path: &Path, bytes: u64) -> Arc<MappedDirectory> {
    let memory = Box::new(Mapping::open(&path.join("PMEM"), bytes).unwrap());
    let own = OwnFiles { prefixes: &["log-"], map: FileMaps::new(path, None) };
    MappedDirectory::new(
        Arc::new(FileDirectory::open(path).unwrap()),
        Region::new(memory),
        PREFIXES,
        Some(own),
    )
}

fn on_disk(disk: &SimDisk, bytes: u64) -> Arc<MappedDirectory> {
    let own = OwnFiles { prefixes: &["log-"], map: disk.maps(0) };
    let region = Region::new(disk.memory(0, "PMEM", bytes));
    MappedDirectory::new(disk.directory(0), region, PREFIXES, Some(own))
}

fn simulated() -> SimDisk {
    SimDisk::new(&Sched::simulated(1), 1, SimConfig::default())
}

fn persist(memory: &dyn Memory, range: Range<u64>) -> io::Result<()> {
    memory.persist(std::slice::from_ref(&range))
}

fn create(directory: &MappedDirectory, name: &str) -> Arc<dyn Device> {
    directory.create(name, Access::Buffered).unwrap()
}

/// Writes a file in pieces of any size at any place, as the same changes make `model`.
fn scribble(file: &dyn Device, model: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..1 + rng.below(200) {
        let at = rng.below(model.len() as u64 + 2000) as usize;
        let bytes: Vec<u8> = (0..rng.below(3000)).map(|_| rng.next_u64() as u8).collect();
        match rng.below(20) {
            0 => file.sync().unwrap(),
            1 => {
                file.set_len(at as u64).unwrap();
                model.resize(at, 0);
            }
            _ => {
                file.write_at(&bytes, at as u64).unwrap();
                model.resize(model.len().max(at), 0);
                let known = (model.len() - at).min(bytes.len());
                model[at..at + known].copy_from_slice(&bytes[..known]);
                model.extend_from_slice(&bytes[known..]);
            }
        }
    }
}

#[test]
fn files_are_what_was_written_and_are_there_again_when_they_are_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(7);
    for _ in 0..20 {
        let mut made = Vec::new();
        {
            let directory = on_files(dir.path(), 8 * MIB);
            let free = directory.free_bytes().unwrap();
            for i in 0..4 {
                let (name, mut model) = (format!("data-{i:08}"), Vec::new());
                let file = create(&directory, &name);
                scribble(&*file, &mut model, &mut rng);
                let mut read = vec![0; model.len()];
                file.read_at(&mut read, 0).unwrap();
                assert!(read == model);
                assert_eq!(file.extents(), None, "it may grow");
                let view = file.view().unwrap().unwrap();
                assert!(view[..] == model[..] && view.check().is_ok());
                assert!(file.write_at(b"no more", 0).is_err());
                made.push((name, file.extents().unwrap(), model));
            }
            let used: u64 =
                made.iter().map(|(.., model)| (model.len() as u64).next_multiple_of(PAGE_BYTES)).sum();
            assert_eq!(directory.free_bytes().unwrap(), free - used);
            // A file that is gone is read by those who have a view of it, and its pages are free behind the last.
            let view = create(&directory, "data-9").view().unwrap().unwrap();
            let gone = directory.open(&made[3].0, Access::Buffered).unwrap().view().unwrap().unwrap();
            directory.remove(&made[3].0).unwrap();
            assert!(gone[..] == made[3].2[..] && directory.free_bytes().unwrap() == free - used);
            drop((gone, view));
            assert!(directory.open(&made[3].0, Access::Buffered).is_err());
            assert_eq!(
                directory.free_bytes().unwrap(),
                free - used + (made[3].2.len() as u64).next_multiple_of(PAGE_BYTES)
            );
        }
        made.pop();
        let directory = on_files(dir.path(), MIB);
        for (name, at, model) in &made {
            directory.claim(name, at, model.len() as u64).unwrap();
            let view = directory.open(name, Access::Direct).unwrap().view().unwrap().unwrap();
            assert!(view[..] == model[..]);
        }
        let listed = directory.list().unwrap();
        assert_eq!(listed.iter().filter(|file| file.name.starts_with("data-")).count(), 3);
        assert!(listed.iter().any(|file| file.name == "PMEM"), "an ordinary file");
    }
}

#[test]
fn what_cannot_be_a_files_place_is_refused() {
    let directory = on_disk(&simulated(), MIB);
    directory.allot_memory().unwrap();
    let claim = |name: &str, pieces: &[Range<u64>], bytes| directory.claim(name, pieces, bytes);
    claim("data-1", &[8192..12288, 16384..20480], 5000).unwrap();
    let refused = |name: &str, pieces: &[Range<u64>], bytes| claim(name, pieces, bytes).unwrap_err().kind();
    assert_eq!(refused("data-1", &[0..4096], 10), io::ErrorKind::AlreadyExists);
    for (start, end) in [
        (8192, 12288),
        (16384, 20480),
        (0, 12288),
        (4097, 8193),
        (4096, 4096),
        (8192, 4096),
        (MIB - 4096, MIB + 4096),
        (u64::MAX - 4095, u64::MAX),
    ] {
        let bytes = end.saturating_sub(start);
        let (place, kind) = (start..end, io::ErrorKind::InvalidData);
        assert_eq!(refused("data-2", std::slice::from_ref(&place), bytes), kind, "{place:?}");
        // Nor is it with a place that could be.
        assert_eq!(refused("data-2", &[4096..8192, place], bytes + 4096), kind);
    }
    assert_eq!(refused("data-2", &[0..4096, 0..4096], 8192), io::ErrorKind::InvalidData, "twice");
    assert_eq!(refused("data-2", &[0..4096], 4097), io::ErrorKind::InvalidData, "longer than its place");
    assert_eq!(refused("data-2", &[0..8192], 4096), io::ErrorKind::InvalidData, "shorter than its place");
    claim("data-2", &[0..8192], 8192).unwrap();
    let rest = [12288..16384, 20480..MIB];
    claim("data-3", &rest, MIB - 16384).unwrap();
    let full = create(&directory, "data-4").write_at(b"x", 0).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    let why = "simulated tier 0/PMEM has no room for 4096 bytes: 0 are free, in 0 pieces";
    assert!(full.to_string().contains(why), "{full}");
}

#[test]
fn who_says_how_much_will_come_has_it_in_one_piece() {
    let directory = on_disk(&simulated(), MIB);
    let (first, second) = (create(&directory, "data-1"), create(&directory, "data-2"));
    first.reserve(100_000).unwrap();
    for i in 0..20 {
        first.write_at(&[7; 5000], i * 5000).unwrap();
        second.write_at(&[8; 5000], i * 5000).unwrap();
    }
    assert_eq!(first.view().unwrap().unwrap().len(), 100_000);
    assert_eq!(first.extents(), Some(vec![Range { start: 0, end: 102_400 }]));
    assert_eq!(second.len().unwrap(), 100_000);
    assert!(first.reserve(1).is_err(), "it is not written any more");
    assert_eq!(create(&directory, "data-3").reserve(2 * MIB).unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_file_in_many_pieces_is_viewed_as_one() {
    let dir = tempfile::tempdir().unwrap();
    for directory in [on_files(dir.path(), MIB), on_disk(&simulated(), MIB)] {
        // Every other page is another's.
        let pages = (0..MIB / PAGE_BYTES).map(|i| {
            let page = create(&directory, &format!("data-{i}"));
            page.write_at(&[1; PAGE_BYTES as usize], 0).unwrap();
            page
        });
        let pages: Vec<_> = pages.collect();
        (0..pages.len()).step_by(2).for_each(|i| directory.remove(&format!("data-{i}")).unwrap());
        let kept: Vec<_> = pages.into_iter().skip(1).step_by(2).collect();
        let bytes = 40 * PAGE_BYTES - 100;
        let model: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        let mut rng = Rng::new(5);
        for round in 0..20 {
            let file = create(&directory, "meta-1");
            if rng.one_in(2) {
                file.reserve(bytes).unwrap();
            }
            for (i, piece) in model.chunks(7001).enumerate() {
                file.write_at(piece, i as u64 * 7001).unwrap();
            }
            let mut read = vec![0; 30_000];
            file.read_at(&mut read, 50_001).unwrap();
            assert_eq!(read, model[50_001..80_001]);
            let view = file.view().unwrap().unwrap();
            assert!(view[..] == model[..], "round {round}");
            let pieces = file.extents().unwrap();
            assert_eq!(pieces.len(), 40);
            directory.remove("meta-1").unwrap();
            drop(file);
            // Its pages are not free as long as somebody looks at them.
            assert_eq!(directory.free_bytes().unwrap(), 88 * PAGE_BYTES);
            drop(view);
            if round % 2 == 0 {
                directory.claim("meta-1", &pieces, bytes).unwrap();
                let view = directory.open("meta-1", Access::Direct).unwrap().view().unwrap().unwrap();
                assert!(view[..] == model[..] && view.check().is_ok());
                directory.remove("meta-1").unwrap();
            }
        }
        // There may be as many pieces, and no more.
        create(&directory, "meta-3").reserve(64 * PAGE_BYTES).unwrap();
        assert!(create(&directory, "meta-4").reserve(65 * PAGE_BYTES).is_err());
        drop(kept);
    }
}

#[test]
fn a_file_that_was_viewed_is_whole_after_a_power_cut() {
    let mut lost = 0;
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let disk = simulated();
        let (mut model, mut unfinished) = (Vec::new(), Vec::new());
        let at = {
            let directory = on_disk(&disk, 8 * MIB);
            let file = create(&directory, "data-1");
            scribble(&*file, &mut model, &mut rng);
            // What comes behind it in memory makes it go on elsewhere.
            scribble(&*create(&directory, "data-2"), &mut unfinished, &mut rng);
            scribble(&*file, &mut model, &mut rng);
            drop(file.view().unwrap());
            scribble(&*create(&directory, "data-3"), &mut unfinished, &mut rng);
            disk.cut_now();
            file.extents().unwrap()
        };
        for survival in [Survival::None, Survival::All, Survival::Random] {
            let after = disk.after_cut(survival, &mut rng);
            let directory = on_disk(&after, 8 * MIB);
            directory.claim("data-1", &at, model.len() as u64).unwrap();
            let view = directory.open("data-1", Access::Buffered).unwrap().view().unwrap().unwrap();
            assert!(view[..] == model[..], "seed {seed}, {survival:?}");
        }
        lost += disk.pending_len();
    }
    assert!(lost > 500, "{lost} stores that nobody waited for");
}

#[test]
fn a_file_whose_sync_has_failed_is_never_viewed() {
    let disk = simulated();
    let directory = on_disk(&disk, MIB);
    let file = create(&directory, "data-1");
    file.write_at(&[7; 5000], 0).unwrap();
    disk.set_faults(vec![Fault::new(Effect::SyncFails(SyncFailure::CleanNew))]);
    file.sync().unwrap_err();
    disk.set_faults(Vec::new());
    assert!(file.sync().is_err() && file.view().is_err() && file.extents().is_none());
    // Another is whole.
    let file = create(&directory, "data-2");
    file.write_at(&[7; 5000], 0).unwrap();
    assert_eq!(file.view().unwrap().unwrap()[..], [7; 5000]);
}

/// Memory that the kernel writes back, which says once that it could not.
#[derive(Debug)]
struct WrittenBackByPages {
    memory: Box<dyn Memory>,
    fails: Arc<AtomicBool>,
}

impl Memory for WrittenBackByPages {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    #[expect(unsafe_code, reason = "as of the other")]
    unsafe fn store(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: as of the caller.
        unsafe { self.memory.store(at, bytes) }
    }

    #[expect(unsafe_code, reason = "as of the other")]
    unsafe fn load(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        // SAFETY: as of the caller.
        unsafe { self.memory.load(at, buffer) }
    }

    #[expect(unsafe_code, reason = "as of the other")]
    unsafe fn view(&self, ranges: &[Range<u64>], holder: Arc<dyn Holder>) -> io::Result<View> {
        // SAFETY: as of the caller.
        unsafe { self.memory.view(ranges, holder) }
    }

    fn write_back(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        match self.fails.swap(false, Ordering::Relaxed) {
            true => Err(io::ErrorKind::Other.into()),
            false => self.memory.write_back(ranges),
        }
    }

    fn fence(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        self.memory.fence(ranges)
    }

    fn check(&self) -> io::Result<()> {
        self.memory.check()
    }

    fn place(&self) -> String {
        self.memory.place()
    }

    fn persistence(&self) -> Persistence {
        Persistence::Msync
    }
}

#[test]
fn once_the_kernel_could_not_write_a_page_back_nobody_believes_it_any_more() {
    let disk = simulated();
    let memory = disk.memory(0, "PMEM", MIB);
    memory.allot().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let region = Region::new(Box::new(WrittenBackByPages { memory, fails: fails.clone() }));
    let directory = MappedDirectory::new(disk.directory(0), region, PREFIXES, None);
    let [whole, one, other] = ["data-1", "data-2", "data-3"].map(|name| create(&directory, name));
    [&whole, &one, &other].into_iter().for_each(|file| file.write_at(&[7; 5000], 0).unwrap());
    whole.sync().unwrap();
    // The page may be the other's, whom nobody tells.
    fails.store(true, Ordering::Relaxed);
    one.sync().unwrap_err();
    assert!(other.sync().is_err() && other.view().is_err());
    assert_eq!(whole.view().unwrap().unwrap()[..], [7; 5000]);
}

#[test]
fn of_memory_only_the_lines_that_were_persisted_are_sure() {
    const BYTES: u64 = 4096;
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let disk = simulated();
        let memory = disk.memory(0, "PMEM", BYTES);
        memory.allot().unwrap();
        let (mut image, mut durable) = (vec![0u8; BYTES as usize], vec![0u8; BYTES as usize]);
        // What each byte may be after a cut, besides what is durable.
        let mut pending: Vec<Vec<u8>> = vec![Vec::new(); BYTES as usize];
        for round in 1..1 + rng.below(40) {
            let at = rng.below(BYTES);
            let len = rng.below((BYTES - at).min(500) + 1);
            if rng.one_in(3) {
                persist(&*memory, at..at + len).unwrap();
                let (from, to) = (at - at % LINE_BYTES, (at + len).next_multiple_of(LINE_BYTES));
                for i in from as usize..to as usize {
                    if !pending[i].is_empty() {
                        durable[i] = image[i];
                        pending[i].clear();
                    }
                }
            } else {
                #[expect(unsafe_code, reason = "the memory is this test's alone")]
                // SAFETY: as said.
                unsafe { memory.store(at, &vec![round as u8; len as usize]) }.unwrap();
                for i in at as usize..(at + len) as usize {
                    image[i] = round as u8;
                    pending[i].push(round as u8);
                }
            }
        }
        disk.cut_now();
        assert!(memory.check().is_err() && persist(&*memory, 0..1).is_err());
        let after = |survival, rng: &mut Rng| disk.after_cut(survival, rng).read_file(0, "PMEM");
        assert!(after(Survival::None, &mut rng) == durable, "seed {seed}");
        assert!(after(Survival::All, &mut rng) == image, "seed {seed}");
        let left = after(Survival::Random, &mut rng);
        for i in 0..BYTES as usize {
            assert!(left[i] == durable[i] || pending[i].contains(&left[i]), "seed {seed}, byte {i}");
        }
    }
}

#[test]
fn lines_are_sure_when_a_fence_has_ended_their_write_back() {
    let line = std::slice::from_ref(&(64..128));
    let kept = |writes_back, stores_again, fences| {
        let disk = simulated();
        let memory = disk.memory(0, "PMEM", 4096);
        memory.allot().unwrap();
        let store = |byte| {
            #[expect(unsafe_code, reason = "the memory is this test's alone")]
            // SAFETY: as said.
            unsafe { memory.store(64, &[byte; 64]) }.unwrap();
        };
        store(1);
        if writes_back {
            memory.write_back(line).unwrap();
        }
        if stores_again {
            store(2);
        }
        if fences {
            memory.fence(line).unwrap();
        }
        disk.after_cut(Survival::None, &mut Rng::new(1)).read_file(0, "PMEM")[64]
    };
    assert_eq!(kept(true, false, true), 1);
    for lost in [(true, false, false), (false, false, true), (false, false, false)] {
        assert_eq!(kept(lost.0, lost.1, lost.2), 0, "{lost:?}");
    }
    // What is stored behind a write-back is another's to make sure of.
    assert_eq!(kept(true, true, true), 1);
}

#[test]
fn a_cut_tears_lines() {
    let mut torn = 0;
    for seed in 0..100 {
        let disk = simulated();
        let memory = disk.memory(0, "PMEM", 4096);
        memory.allot().unwrap();
        #[expect(unsafe_code, reason = "the memory is this test's alone")]
        // SAFETY: as said.
        unsafe { memory.store(0, &[1; 4096]) }.unwrap();
        let left = disk.after_cut(Survival::Random, &mut Rng::new(seed)).read_file(0, "PMEM");
        assert!(left.chunks(8).all(|word| word == [word[0]; 8]));
        torn +=
            left.chunks(LINE_BYTES as usize).filter(|line| line.contains(&0) && line.contains(&1)).count();
    }
    assert!(torn > 1000, "{torn} lines are torn");
}

#[test]
fn lines_are_written_back_where_the_kernel_is_asked_for_pages_and_where_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("PMEM");
    for modelled in [false, true] {
        let toll = Toll::new(&Sched::real(1), Timing::NVDIMM);
        let memory = match modelled {
            true => Mapping::open_modelled(&path, 64 << 10, Arc::new(toll)),
            false => Mapping::open(&path, 64 << 10),
        };
        let (memory, before) = (memory.unwrap(), touched().written);
        memory.allot().unwrap();
        #[expect(unsafe_code, reason = "the memory is this test's alone")]
        // SAFETY: as said.
        unsafe { memory.store(5000, &[9; 9000]) }.unwrap();
        memory.persist(&[5000..14_000, 0..0, 65_535..65_536]).unwrap();
        assert!(persist(&memory, 65_000..65_537).is_err(), "behind the end");
        let shown = memory.persistence().to_string();
        assert!(shown.contains("fence") || shown.contains("msync") && !modelled, "{shown}");
        // 5000 to 14,000 begin and end within a line.
        assert_eq!(touched().written - before, if modelled { 141 + 1 } else { 0 });
    }
    let read = std::fs::read(&path).unwrap();
    assert_eq!((read.len(), read[4999], &read[5000..14_000]), (64 << 10, 0, &[9; 9000][..]));
}

#[test]
fn what_is_behind_the_end_of_a_shorter_file_can_be_claimed_by_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("PMEM");
    let bytes = || path.metadata().unwrap().len();
    let new = Mapping::open(&path, 64 << 10).unwrap();
    assert_eq!((new.present_bytes(), bytes()), (0, 0), "nothing is taken yet");
    new.allot().unwrap();
    assert_eq!((new.present_bytes(), bytes()), (64 << 10, 64 << 10));
    drop(new);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(4096).unwrap();
    let region = Region::new(Box::new(Mapping::open(&path, 64 << 10).unwrap()));
    let piece = |from: u64| from * PAGE_BYTES..(from + 1) * PAGE_BYTES;
    for pieces in [vec![piece(1)], vec![piece(0), piece(1)], vec![piece(99)]] {
        let refused = region.claim(&pieces).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        let is_cut = refused.to_string().contains("cut short, and had 4096 bytes");
        assert_eq!(is_cut, pieces[0] != piece(99), "{refused}");
    }
    let kept = region.claim(&[piece(0)]).unwrap();
    assert_eq!(bytes(), 4096, "who only looks changes nothing");
    // The first that is taken takes room for all.
    let mut taken = region.take(PAGE_BYTES).unwrap();
    taken.store(0, &[1; PAGE_BYTES as usize]).unwrap();
    assert_eq!(bytes(), 64 << 10);
    region.check().unwrap();
    drop((kept, taken));
}

#[test]
fn a_file_system_is_not_filled_to_find_out_that_it_has_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("PMEM");
    let room = rustix::fs::statvfs(dir.path()).unwrap();
    let more = room.f_bfree * room.f_frsize + (1 << 30);
    let memory = Mapping::open(&path, more).unwrap();
    if room.f_blocks == 0 {
        // It has no bound.
        return;
    }
    let full = memory.allot().unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert!(full.to_string().contains(&format!("needs {more} bytes more, and its file system")), "{full}");
    assert_eq!(path.metadata().unwrap().len(), 0);
}

#[test]
fn a_file_that_is_cut_short_before_it_is_made_longer_stays_short() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("PMEM");
    Mapping::open(&path, 8192).unwrap().allot().unwrap();
    let memory = Mapping::open(&path, 64 << 10).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(memory.allot().unwrap_err().to_string().contains("lost bytes while it was mapped"));
    assert_eq!(path.metadata().unwrap().len(), 4096);
}

#[test]
fn what_cannot_be_mapped_shows_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Mapping::open(&dir.path().join("PMEM"), 1 << 52).is_err());
    assert!(Mapping::open(&dir.path().join("EMPTY"), 0).is_err());
    // Another has it: two mappings of one file would be two views of what each thinks is its own.
    let first = Mapping::open(&dir.path().join("TWICE"), 4096).unwrap();
    let second = Mapping::open(&dir.path().join("TWICE"), 4096).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
    assert!(second.to_string().contains("is mapped already"), "{second}");
    drop(first);
    Mapping::open(&dir.path().join("TWICE"), 4096).unwrap();
    // As often as one likes, while other processes begin.
    let begun = Arc::new(AtomicBool::new(false));
    let begin = {
        let begun = begun.clone();
        move || {
            (0..50).for_each(|_| assert!(Command::new("true").status().unwrap().success()));
            begun.store(true, Ordering::Relaxed);
        }
    };
    let begin = Sched::real(1).spawn("begin", Priority::Normal, begin).unwrap();
    while !begun.load(Ordering::Relaxed) {
        Mapping::open(&dir.path().join("TWICE"), 4096).unwrap();
    }
    assert!(begin.join());
    // A directory that is not there.
    assert!(Mapping::open(&dir.path().join("no/PMEM"), 4096).is_err());
}

#[test]
fn so_is_one_in_several_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let directory = on_files(dir.path(), MIB);
    let [first, between, second] = ["data-1", "data-2", "data-3"].map(|name| create(&directory, name));
    [&first, &between].iter().for_each(|file| file.write_at(&[6; 8192], 0).unwrap());
    second.reserve(MIB - 20_480).unwrap();
    directory.remove("data-1").unwrap();
    drop(first);
    let file = create(&directory, "data-4");
    file.write_at(&[7; 12_288], 0).unwrap();
    let view = file.view().unwrap().unwrap();
    assert_eq!(file.extents().unwrap(), [0..8192, MIB - 4096..MIB]);
    view.check().unwrap();
    OpenOptions::new().write(true).open(dir.path().join("PMEM")).unwrap().set_len(MIB - 4096).unwrap();
    assert_eq!((view[8191], view[8192]), (7, 0));
    assert!(view.check().unwrap_err().to_string().contains("was cut short"));
}

#[test]
fn a_file_cut_short_behind_our_back_is_an_error_and_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let (directory, beside) = (on_files(dir.path(), MIB), on_files(other.path(), MIB));
    let (file, sound) = (create(&directory, "data-1"), create(&beside, "data-1"));
    for file in [&file, &sound] {
        file.write_at(&[7; 100_000], 0).unwrap();
    }
    let (view, sound) = (file.view().unwrap().unwrap(), sound.view().unwrap().unwrap());
    let late = create(&directory, "data-2");
    late.write_at(b"before", 0).unwrap();
    view.check().unwrap();
    OpenOptions::new().write(true).open(dir.path().join("PMEM")).unwrap().set_len(50_000).unwrap();
    assert_eq!((view[0], view[99_999]), (7, 0), "what is gone reads as zeros");
    let error = view.check().unwrap_err();
    assert!(error.to_string().contains("was cut short, or its medium failed"), "{error}");
    assert!(late.write_at(&[8; 5000], 0).and_then(|()| late.sync()).is_err());
    assert!(file.read_at(&mut [0; 10], 0).is_err());
    assert!(sound.iter().all(|byte| *byte == 7) && sound.check().is_ok());
}

const CHILD: &str = "CUESTA_TEST_FOREIGN_SIGBUS";

/// Runs this very test in a process of its own, which reaches into a mapping of its own that has lost its file.
fn in_a_child(how: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "mapped::tests::another_ones_sigbus_is_passed_on", "--nocapture"]);
    command.env(CHILD, how).output().unwrap().status
}

#[expect(unsafe_code, reason = "a mapping behind the back of what is tested, and a handler of its own")]
fn reach_into_nothing(how: &str) {
    extern "C" fn own(_: libc::c_int) {
        // SAFETY: ends the process, and nothing else.
        unsafe { libc::_exit(42) };
    }
    if how.ends_with("handled") {
        // SAFETY: the handler does what a handler may.
        unsafe { libc::signal(libc::SIGBUS, own as *const () as usize) };
    }
    let instead = match how.split_once(", ") {
        Some((_, "ignored")) => Some(libc::SIG_IGN),
        Some((_, "default")) => Some(libc::SIG_DFL),
        _ => None,
    };
    if let Some(action) = instead {
        // SAFETY: no handler at all, not even Rust's own.
        unsafe { libc::signal(libc::SIGBUS, action) };
    }
    let dir = tempfile::tempdir().unwrap();
    let _guarded = Mapping::open(&dir.path().join("PMEM"), 64 << 10).unwrap();
    if how.starts_with("sent") {
        // SAFETY: a signal to this very thread.
        unsafe { libc::raise(libc::SIGBUS) };
        return;
    }
    let file = File::create_new(dir.path().join("other")).unwrap();
    file.set_len(8192).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(dir.path().join("other")).unwrap();
    let access = rustix::mm::ProtFlags::READ;
    let flags = rustix::mm::MapFlags::SHARED;
    // SAFETY: no address is asked for.
    let mapped =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 8192, access, flags, file.as_fd(), 0) }.unwrap();
    file.set_len(0).unwrap();
    // SAFETY: it is mapped; that it has no bytes is what is tested.
    let byte = unsafe { mapped.cast::<u8>().read_volatile() };
    assert_eq!(byte, 1, "this is not reached");
}

#[test]
fn another_ones_sigbus_is_passed_on() {
    if let Ok(how) = std::env::var(CHILD) {
        return reach_into_nothing(&how);
    }
    for kind in ["fault", "sent"] {
        assert_eq!(in_a_child(&format!("{kind}, handled")).code(), Some(42), "{kind}: to who had it before");
        let by_default = in_a_child(&format!("{kind}, default"));
        assert_eq!(by_default.signal(), Some(libc::SIGBUS), "{kind}: to the default");
    }
    assert_eq!(in_a_child("fault, Rust's own").signal(), Some(libc::SIGBUS), "which finds no stack there");
    assert_eq!(in_a_child("fault, ignored").signal(), Some(libc::SIGBUS), "which no process can");
    assert!(in_a_child("sent, ignored").success());
}

#[test]
fn guards_are_given_back() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..300 {
        Mapping::open(&dir.path().join(format!("PMEM{}", i % 3)), 4096).unwrap();
    }
}

/// Whether a file has these bytes and, behind them, zeros.
fn has(file: &dyn Device, bytes: &[u8]) -> bool {
    let mut read = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut read, 0).unwrap();
    read.len() >= bytes.len() && read[..bytes.len()] == *bytes && read[bytes.len()..].iter().all(|b| *b == 0)
}

#[test]
fn a_log_is_an_ordinary_file_that_is_written_through_memory() {
    let dir = tempfile::tempdir().unwrap();
    let disk = simulated();
    let (on_files, on_disk) = (on_files(dir.path(), MIB), on_disk(&disk, MIB));
    for (seed, directory) in [on_files, on_disk].into_iter().enumerate() {
        let mut rng = Rng::new(seed as u64);
        for i in 0..10 {
            let (name, mut model) = (format!("log-{i}"), Vec::new());
            let mut file = create(&directory, &name);
            if rng.one_in(2) {
                file.reserve(300_000).unwrap();
                assert!(file.len().unwrap() >= 300_000);
            }
            for _ in 0..5 {
                scribble(&*file, &mut model, &mut rng);
                assert!(has(&*file, &model) && file.extents().is_none() && file.view().unwrap().is_none());
                file = match rng.below(3) {
                    // By another that has it open, and by the first again, which does not map it any more.
                    0 => {
                        let second = directory.open(&name, Access::Buffered).unwrap();
                        scribble(&*second, &mut model, &mut rng);
                        file.write_at(b"by the first", model.len() as u64).unwrap();
                        model.extend(b"by the first");
                        assert!(has(&*file, &model) && has(&*second, &model));
                        second
                    }
                    1 => {
                        drop(file);
                        directory.open(&name, Access::Buffered).unwrap()
                    }
                    _ => file,
                };
            }
            let other = format!("log-{i}-recycled");
            directory.rename(&name, &other).unwrap();
            file.write_at(b"behind", model.len() as u64).unwrap();
            model.extend(b"behind");
            let renamed = directory.open(&other, Access::Buffered).unwrap();
            renamed.write_at(b"under its new name", 0).unwrap();
            model.resize(model.len().max(18), 0);
            model[..18].copy_from_slice(b"under its new name");
            assert!(has(&*renamed, &model) && directory.open(&name, Access::Buffered).is_err());
            directory.remove(&other).unwrap();
        }
    }
}

#[test]
fn what_was_synced_of_a_log_outlives_a_cut_and_what_was_not_is_in_doubt() {
    let mut lost = 0;
    for seed in 0..200 {
        let (disk, mut rng) = (simulated(), Rng::new(seed));
        let directory = on_disk(&disk, MIB);
        let file = create(&directory, "log-1");
        directory.sync().unwrap();
        let (mut model, mut durable) = (Vec::new(), 0);
        for _ in 0..rng.below(100) {
            match rng.below(10) {
                0 => {
                    file.sync().unwrap();
                    durable = model.len();
                }
                1 => file.reserve(rng.below(600_000)).unwrap(),
                _ => {
                    let bytes: Vec<u8> = (0..rng.below(2000)).map(|_| 1 + rng.below(255) as u8).collect();
                    file.write_at(&bytes, model.len() as u64).unwrap();
                    model.extend(bytes);
                }
            }
        }
        disk.cut_now();
        let left = disk.after_cut(Survival::Random, &mut rng).read_file(0, "log-1");
        assert!(left.get(..durable) == Some(&model[..durable]), "seed {seed}");
        lost += usize::from(left.get(..model.len()) != Some(&model[..]));
    }
    assert!(lost > 50, "something was lost of {lost} of 200 files");
}

#[test]
fn a_commit_to_a_log_writes_back_the_lines_that_it_touched() {
    let dir = tempfile::tempdir().unwrap();
    let toll = Arc::new(Toll::new(&Sched::real(1), Timing::NVDIMM));
    let memory = Box::new(Mapping::open(&dir.path().join("PMEM"), MIB).unwrap());
    let own = OwnFiles { prefixes: &["log-"], map: FileMaps::new(dir.path(), Some(toll)) };
    let files = Arc::new(FileDirectory::open(dir.path()).unwrap());
    let directory = MappedDirectory::new(files, Region::new(memory), PREFIXES, Some(own));
    let file = create(&directory, "log-1");
    file.reserve(MIB).unwrap();
    let commit = |at: u64, bytes: usize| {
        let before = touched().written;
        file.write_at(&vec![1; bytes], at).unwrap();
        file.sync().unwrap();
        touched().written - before
    };
    assert_eq!(commit(0, 200), 4);
    // Of the line that both have, each wrote its part back.
    assert_eq!(commit(200, 200), 4);
    assert_eq!(commit(MIB - 64, 64), 1);
    assert_eq!(commit(MIB, 64), 0, "behind what is mapped");
    let before = touched().written;
    file.sync().unwrap();
    assert_eq!(touched().written, before, "nothing is left");
}

#[test]
fn after_a_failed_sync_of_a_log_none_succeeds() {
    // Of the file, with its new length, and of lines alone.
    for (kind, is_of_lines) in [(SyncFailure::CleanNew, true), (SyncFailure::CleanNew, false)] {
        let disk = simulated();
        let directory = on_disk(&disk, MIB);
        let file = create(&directory, "log-1");
        file.reserve(1000).unwrap();
        file.write_at(&[1; 100], 0).unwrap();
        if is_of_lines {
            file.sync().unwrap();
            file.write_at(&[1; 100], 50).unwrap();
        }
        disk.set_faults(vec![Fault::new(Effect::SyncFails(kind))]);
        assert!(file.sync().is_err());
        file.write_at(&[2; 100], 100).unwrap();
        assert!(file.sync().is_err());
    }
}

#[test]
fn a_log_that_is_cut_short_under_its_mapping_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let directory = on_files(dir.path(), MIB);
    let file = create(&directory, "log-1");
    file.reserve(100_000).unwrap();
    file.write_at(&[1; 100_000], 0).unwrap();
    OpenOptions::new().write(true).open(dir.path().join("log-1")).unwrap().set_len(0).unwrap();
    assert!(file.write_at(&[2; 100], 50_000).is_err() && file.sync().is_err());
}
