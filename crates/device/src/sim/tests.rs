//! What the simulated device promises, one sentence a test.

use super::*;
use crate::{ALIGNMENT, AlignedBuf};
use cuesta_sched::Priority;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

fn disk() -> SimDisk {
    SimDisk::new(&Sched::real(1), 2, SimConfig::default())
}

/// A file of `bytes` on tier 0, durable with its name.
fn synced(disk: &SimDisk, bytes: &[u8]) -> Arc<dyn Device> {
    let directory = disk.directory(0);
    let device = directory.create("f", Access::Buffered).unwrap();
    device.write_at(bytes, 0).unwrap();
    device.sync().unwrap();
    directory.sync().unwrap();
    device
}

fn read(device: &Arc<dyn Device>, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    device.read_at(&mut bytes, offset).unwrap();
    bytes
}

fn survivor(disk: &SimDisk, survival: Survival) -> Vec<u8> {
    disk.after_cut(survival, &mut Rng::new(1)).read_file(0, "f")
}

fn names(disk: &SimDisk, tier: usize) -> Vec<String> {
    disk.files(tier).into_iter().map(|file| file.name).collect()
}

fn names_after(disk: &SimDisk, survival: Survival) -> Vec<String> {
    names(&disk.after_cut(survival, &mut Rng::new(1)), 0)
}

#[test]
fn what_is_written_is_read_back_before_any_sync() {
    let disk = disk();
    let device = disk.directory(1).create("f", Access::Buffered).unwrap();
    device.write_at(b"world", 3).unwrap();
    assert_eq!(device.len().unwrap(), 8);
    assert_eq!(read(&device, 0, 8), b"\0\0\0world");
    device.set_len(4).unwrap();
    device.set_len(6).unwrap();
    assert_eq!(disk.read_file(1, "f"), b"\0\0\0w\0\0");
    let error = device.read_at(&mut [0; 7], 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn only_synced_bytes_under_a_synced_name_survive_a_strict_cut() {
    let disk = disk();
    let device = synced(&disk, b"old");
    device.write_at(b"new longer", 0).unwrap();
    let unnamed = disk.directory(0).create("g", Access::Buffered).unwrap();
    unnamed.write_at(b"bytes", 0).unwrap();
    unnamed.sync().unwrap();
    let after = disk.after_cut(Survival::None, &mut Rng::new(1));
    assert_eq!(names(&after, 0), ["f"]);
    assert_eq!(after.read_file(0, "f"), b"old");
    assert_eq!(after.pending_len(), 0);
    assert_eq!(survivor(&disk, Survival::All), b"new longer");
    assert_eq!(names_after(&disk, Survival::All), ["f", "g"]);
}

#[test]
fn a_synced_name_without_a_file_sync_is_an_empty_file() {
    let disk = disk();
    let device = disk.directory(0).create("f", Access::Buffered).unwrap();
    device.write_at(b"bytes", 0).unwrap();
    disk.directory(0).sync().unwrap();
    assert_eq!(survivor(&disk, Survival::None), b"");
}

#[test]
fn each_pending_change_can_survive_or_be_lost_alone() {
    let disk = disk();
    let device = synced(&disk, &[1; 8]);
    device.write_at(&[2; 2], 0).unwrap();
    device.write_at(&[3; 4], 6).unwrap();
    let expected = ["tier 0 f: write 2 at 0", "tier 0 f: write 4 at 6", "tier 0 f: length 10"];
    assert_eq!(disk.pending(), expected);
    assert_eq!(disk.pending_len(), 3);
    assert_eq!(survivor(&disk, Survival::Only(0)), [2, 2, 1, 1, 1, 1, 1, 1]);
    // The data beyond the old end cannot be seen without the length, and the length shows zeros without the data.
    assert_eq!(survivor(&disk, Survival::Only(1)), [1, 1, 1, 1, 1, 1, 3, 3]);
    assert_eq!(survivor(&disk, Survival::Only(2)), [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(survivor(&disk, Survival::Without(1)), [2, 2, 1, 1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(survivor(&disk, Survival::Without(2)), [2, 2, 1, 1, 1, 1, 3, 3]);
}

#[test]
fn a_shorter_length_that_survives_zeroes_what_grows_again() {
    let disk = disk();
    let device = synced(&disk, &[1; 8]);
    device.set_len(2).unwrap();
    device.set_len(6).unwrap();
    assert_eq!(survivor(&disk, Survival::All), [1, 1, 0, 0, 0, 0]);
    assert_eq!(survivor(&disk, Survival::Only(0)), [1, 1]);
    assert_eq!(survivor(&disk, Survival::None), [1; 8]);
    device.sync().unwrap();
    assert_eq!(survivor(&disk, Survival::None), [1, 1, 0, 0, 0, 0]);
}

#[test]
fn a_torn_write_keeps_whole_sectors_and_old_bytes_between() {
    let disk = disk();
    let device = synced(&disk, &[1; 4 * 512]);
    // Off the sector: it touches all four.
    device.write_at(&[2; 3 * 512], 256).unwrap();
    let torn = |keep| {
        let bytes = survivor(&disk, Survival::Torn { index: 0, bytes: 512, keep });
        assert_eq!(bytes.len(), 4 * 512);
        // As runs of (value, count).
        bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect::<Vec<_>>()
    };
    assert_eq!(torn(Keep::First), [(1, 256), (2, 256 + 512), (1, 1024)]);
    assert_eq!(torn(Keep::Last), [(1, 1024), (2, 512 + 256), (1, 256)]);
    assert_eq!(torn(Keep::Alternate), [(1, 256), (2, 256), (1, 512), (2, 512), (1, 512)]);
    let whole = survivor(&disk, Survival::Torn { index: 0, bytes: 4096, keep: Keep::Last });
    assert_eq!(whole, [1; 4 * 512], "one sector of 4,096 bytes is not torn but lost");
    let whole = survivor(&disk, Survival::Torn { index: 0, bytes: 4096, keep: Keep::Alternate });
    assert_eq!(whole, [1; 4 * 512]);
}

#[test]
fn a_torn_write_leaves_the_other_changes_whole() {
    let disk = disk();
    let device = synced(&disk, &[]);
    device.write_at(&[2; 1024], 0).unwrap();
    device.write_at(&[3; 512], 1024).unwrap();
    let bytes = survivor(&disk, Survival::Torn { index: 0, bytes: 512, keep: Keep::First });
    assert_eq!(bytes, [[2; 512], [0; 512], [3; 512]].concat());
}

#[test]
fn random_survival_is_fixed_by_its_seed_and_finds_all_outcomes() {
    let disk = disk();
    let device = synced(&disk, &[1; 1024]);
    device.write_at(&[2; 1024], 0).unwrap();
    disk.directory(0).rename("f", "g").unwrap();
    let outcome = |seed| {
        let after = disk.after_cut(Survival::Random, &mut Rng::new(seed));
        let name = names(&after, 0).remove(0);
        let bytes = after.read_file(0, &name);
        (name, bytes[0], bytes[1023])
    };
    let outcomes: BTreeSet<_> = (0..200).map(outcome).collect();
    assert_eq!(outcomes.len(), 8, "two names, and each sector old or new: {outcomes:?}");
    assert!((0..50).all(|seed| outcome(seed) == outcome(seed)));
}

#[test]
fn names_survive_each_for_itself() {
    let disk = disk();
    let directory = disk.directory(0);
    for name in ["a", "b"] {
        directory.create(name, Access::Buffered).unwrap();
    }
    directory.sync().unwrap();
    directory.remove("a").unwrap();
    directory.rename("b", "c").unwrap();
    directory.create("d", Access::Buffered).unwrap();
    assert_eq!(disk.pending(), ["tier 0: remove a", "tier 0: rename b to c", "tier 0: create d"]);
    assert_eq!(names(&disk, 0), ["c", "d"]);
    assert_eq!(names_after(&disk, Survival::None), ["a", "b"]);
    assert_eq!(names_after(&disk, Survival::Only(0)), ["b"]);
    assert_eq!(names_after(&disk, Survival::Only(1)), ["a", "c"]);
    assert_eq!(names_after(&disk, Survival::Without(0)), ["a", "c", "d"]);
    assert_eq!(names_after(&disk, Survival::All), ["c", "d"]);
    directory.sync().unwrap();
    assert_eq!(names_after(&disk, Survival::None), ["c", "d"]);
}

#[test]
fn a_renamed_file_has_one_name_whatever_survives() {
    let disk = disk();
    synced(&disk, b"x");
    let directory = disk.directory(0);
    directory.rename("f", "g").unwrap();
    directory.rename("g", "h").unwrap();
    assert_eq!(names_after(&disk, Survival::Only(1)), ["h"]);
    assert_eq!(names_after(&disk, Survival::Only(0)), ["g"]);
}

#[test]
fn a_removal_that_survives_alone_spares_the_file_that_has_the_name() {
    let disk = disk();
    synced(&disk, b"old");
    let directory = disk.directory(0);
    directory.create("tmp", Access::Buffered).unwrap();
    directory.rename("tmp", "f").unwrap();
    directory.remove("f").unwrap();
    assert_eq!(survivor(&disk, Survival::Only(2)), b"old");
}

#[test]
fn a_rename_replaces_and_the_replaced_file_comes_back_if_it_is_lost() {
    let disk = disk();
    let directory = disk.directory(0);
    synced(&disk, b"old");
    let device = directory.create("tmp", Access::Buffered).unwrap();
    device.write_at(b"new", 0).unwrap();
    device.sync().unwrap();
    directory.rename("tmp", "f").unwrap();
    assert_eq!(disk.read_file(0, "f"), b"new");
    assert_eq!(survivor(&disk, Survival::None), b"old");
    assert_eq!(survivor(&disk, Survival::All), b"new");
}

#[test]
fn directories_refuse_what_file_systems_refuse() {
    let disk = disk();
    let directory = disk.directory(0);
    directory.create("f", Access::Buffered).unwrap();
    assert_eq!(directory.create("f", Access::Buffered).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(directory.open("g", Access::Buffered).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(directory.remove("g").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(directory.rename("g", "h").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(directory.create("a/b", Access::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
    directory.rename("f", "f").unwrap();
    assert_eq!(directory.list().unwrap(), [Listed { name: "f".into(), bytes: 0 }]);
    assert!(disk.directory(1).list().unwrap().is_empty());
}

#[test]
fn from_the_cut_on_every_call_fails_and_nothing_changes() {
    let disk = disk();
    let device = synced(&disk, b"old");
    disk.cut_at(disk.ops() + 2);
    device.len().unwrap();
    assert!(is_power_cut(&device.write_at(b"new", 0).unwrap_err()));
    assert!(disk.is_cut());
    let ops = disk.ops();
    assert!(is_power_cut(&device.read_at(&mut [0; 1], 0).unwrap_err()));
    assert!(is_power_cut(&device.write_at(b"xxx", 0).unwrap_err()));
    assert!(is_power_cut(&device.sync().unwrap_err()));
    assert!(is_power_cut(&disk.directory(1).create("g", Access::Buffered).unwrap_err()));
    assert!(is_power_cut(&disk.directory(0).lock().unwrap_err()));
    assert_eq!(disk.ops(), ops);
    // The write that was cut may have happened.
    assert_eq!(survivor(&disk, Survival::None), b"old");
    assert_eq!(survivor(&disk, Survival::All), b"new");
    assert!(!is_power_cut(&Failure::Io.error()));
}

#[test]
fn a_sync_that_is_cut_makes_nothing_certain() {
    let disk = disk();
    let device = synced(&disk, b"old");
    device.write_at(b"new", 0).unwrap();
    disk.cut_at(disk.ops() + 1);
    assert!(is_power_cut(&device.sync().unwrap_err()));
    assert_eq!(survivor(&disk, Survival::None), b"old");
    assert_eq!(survivor(&disk, Survival::All), b"new");
}

#[test]
fn the_power_can_fail_between_operations() {
    let disk = disk();
    disk.cut_now();
    assert!(is_power_cut(&disk.directory(0).list().unwrap_err()));
    assert_eq!(disk.ops(), 0);
}

#[test]
fn operations_of_all_tiers_count_together() {
    let disk = disk();
    disk.directory(0).create("a", Access::Buffered).unwrap();
    disk.directory(1).create("b", Access::Buffered).unwrap();
    assert_eq!(disk.ops(), 2);
    disk.directory(0).open("a", Access::Buffered).unwrap().set_len(1).unwrap();
    disk.directory(0).rename("a", "c").unwrap();
    let expected = ["tier 0: create a", "tier 1: create b", "tier 0 c: length 1", "tier 0: rename a to c"];
    assert_eq!(disk.pending(), expected);
}

#[test]
fn a_killed_process_loses_nothing_but_its_writes_stay_pending() {
    let disk = disk();
    let device = synced(&disk, b"old");
    let _held = disk.directory(0).lock().unwrap();
    device.write_at(b"new", 0).unwrap();
    let killed = disk.kill();
    assert_eq!(killed.read_file(0, "f"), b"new");
    assert_eq!(killed.pending_len(), 1);
    killed.directory(0).lock().unwrap();
    assert_eq!(survivor(&killed, Survival::None), b"old");
    // The old process is gone: what it still does reaches nobody.
    device.write_at(b"xxx", 0).unwrap();
    assert_eq!(killed.read_file(0, "f"), b"new");
    killed.directory(0).open("f", Access::Buffered).unwrap().sync().unwrap();
    assert_eq!(survivor(&killed, Survival::None), b"new");
}

#[test]
fn the_lock_has_one_holder_until_dropped_and_none_after_a_cut() {
    let disk = disk();
    let held = disk.directory(0).lock().unwrap();
    assert_eq!(disk.directory(0).lock().unwrap_err().kind(), ErrorKind::WouldBlock);
    disk.directory(1).lock().unwrap();
    disk.after_cut(Survival::None, &mut Rng::new(1)).directory(0).lock().unwrap();
    drop(held);
    disk.directory(0).lock().unwrap();
}

#[test]
fn a_removed_file_stays_readable_while_open_and_then_frees_its_space() {
    let disk = disk();
    let device = synced(&disk, &[7; 100]);
    disk.directory(0).remove("f").unwrap();
    assert_eq!(read(&device, 99, 1), [7]);
    assert_eq!(disk.used_bytes(0), 100);
    assert_eq!(disk.kill().used_bytes(0), 0, "a killed process has nothing open");
    drop(device);
    assert_eq!(disk.used_bytes(0), 0);
    assert_eq!(survivor(&disk, Survival::None), [7; 100], "the removal was not synced");
    disk.directory(0).sync().unwrap();
    assert_eq!(names_after(&disk, Survival::None), [""; 0]);
    assert_eq!(disk.with(|state| state.files.len()), 0);
}

#[test]
fn a_fault_strikes_the_nth_operation_that_passes_its_filter() {
    let disk = disk();
    let device = synced(&disk, b"old");
    let fault = Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Write).in_tier(0).named("f").nth(2);
    disk.set_faults(vec![fault.clone()]);
    let other = disk.directory(1).create("f", Access::Buffered).unwrap();
    let elsewhere = disk.directory(0).create("g", Access::Buffered).unwrap();
    for _ in 0..3 {
        other.write_at(b"x", 0).unwrap();
        elsewhere.write_at(b"x", 0).unwrap();
        device.sync().unwrap();
    }
    device.write_at(b"1", 0).unwrap();
    let error = device.write_at(b"2", 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    device.write_at(b"3", 1).unwrap();
    assert_eq!(read(&device, 0, 3), b"13d");
    assert_eq!(disk.faults_struck(), 1);
    disk.set_faults(vec![fault.since(2)]);
    let failed = (0..5).filter(|_| device.write_at(b"4", 0).is_err()).count();
    assert_eq!(failed, 4);
}

#[test]
fn failures_carry_the_kind_that_a_file_system_gives() {
    let kinds = [(Failure::NoSpace, ErrorKind::StorageFull), (Failure::Quota, ErrorKind::QuotaExceeded)];
    for (failure, kind) in kinds {
        let disk = disk();
        disk.set_faults(vec![Fault::new(Effect::Fail(failure))]);
        assert_eq!(disk.directory(0).list().unwrap_err().kind(), kind);
        assert!(disk.directory(0).list().is_ok());
    }
}

#[test]
fn a_short_write_does_its_first_bytes_and_fails() {
    let disk = disk();
    let device = synced(&disk, b"old");
    disk.set_faults(vec![Fault::new(Effect::Short { bytes: 2, failure: Failure::NoSpace })]);
    assert_eq!(device.write_at(b"new", 0).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(read(&device, 0, 3), b"ned");
}

#[test]
fn an_interrupted_call_is_retried_unseen_and_counted() {
    let disk = disk();
    let device = synced(&disk, b"old");
    disk.set_faults(vec![Fault::new(Effect::Interrupted).since(1)]);
    let ops = disk.ops();
    device.write_at(b"new", 0).unwrap();
    assert_eq!(read(&device, 0, 3), b"new");
    assert_eq!(disk.counts()[0].interrupted, 2);
    assert_eq!(disk.ops(), ops + 4);
}

#[test]
fn a_failed_sync_can_drop_what_reads_still_show() {
    let disk = disk();
    let device = synced(&disk, b"old");
    device.write_at(b"newer", 0).unwrap();
    disk.set_faults(vec![Fault::new(Effect::SyncFails(SyncFailure::CleanNew))]);
    assert!(device.sync().is_err());
    device.sync().unwrap();
    assert_eq!(read(&device, 0, 5), b"newer");
    assert_eq!(disk.pending_len(), 0);
    assert_eq!(survivor(&disk, Survival::All), b"old");
    // A later write is made durable by a later sync, but brings the lost ones back nowhere else.
    device.write_at(b"R", 4).unwrap();
    device.sync().unwrap();
    assert_eq!(survivor(&disk, Survival::None), b"old\0R");
}

#[test]
fn a_failed_sync_can_bring_the_old_bytes_back() {
    let disk = disk();
    let device = synced(&disk, b"old");
    device.write_at(b"newer", 0).unwrap();
    disk.set_faults(vec![Fault::new(Effect::SyncFails(SyncFailure::CleanOld))]);
    assert!(device.sync().is_err());
    assert_eq!(read(&device, 0, 3), b"old");
    assert_eq!(device.len().unwrap(), 3);
    assert_eq!(disk.used_bytes(0), 3);
    device.sync().unwrap();
    assert_eq!(survivor(&disk, Survival::All), b"old");
}

#[test]
fn a_failed_sync_can_stay_failed() {
    let disk = disk();
    let device = synced(&disk, b"old");
    device.write_at(b"new", 0).unwrap();
    disk.set_faults(vec![Fault::new(Effect::SyncFails(SyncFailure::Sticky)).on(OpKind::Sync)]);
    assert!((0..3).all(|_| device.sync().is_err()));
    assert_eq!(disk.faults_struck(), 1);
    assert!(disk.kill().directory(0).open("f", Access::Buffered).unwrap().sync().is_err());
    assert_eq!(read(&device, 0, 3), b"new");
    assert_eq!(survivor(&disk, Survival::None), b"old");
    assert_eq!(survivor(&disk, Survival::All), b"new");
}

#[test]
fn a_lying_sync_says_ok_and_makes_nothing_durable() {
    let disk = disk();
    let device = synced(&disk, b"old");
    device.write_at(b"new", 0).unwrap();
    disk.set_faults(vec![Fault::new(Effect::SyncLies)]);
    device.sync().unwrap();
    assert_eq!(survivor(&disk, Survival::None), b"old");
    device.sync().unwrap();
    assert_eq!(survivor(&disk, Survival::None), b"new");
}

#[test]
fn a_directorys_sync_fails_in_the_same_ways() {
    let after = |effect| {
        let disk = disk();
        let directory = disk.directory(0);
        synced(&disk, b"old");
        directory.rename("f", "g").unwrap();
        disk.set_faults(vec![Fault::new(effect).on(OpKind::SyncDirectory)]);
        let first = directory.sync().is_ok();
        let now = names(&disk, 0).join(" ");
        let second = directory.sync().is_ok();
        (first, now, second, names_after(&disk, Survival::None).join(" "))
    };
    let fails = |mode| after(Effect::SyncFails(mode));
    assert_eq!(fails(SyncFailure::CleanNew), (false, "g".into(), true, "f".into()));
    assert_eq!(fails(SyncFailure::CleanOld), (false, "f".into(), true, "f".into()));
    assert_eq!(fails(SyncFailure::Sticky), (false, "g".into(), false, "f".into()));
    assert_eq!(after(Effect::SyncLies), (true, "g".into(), true, "g".into()));
}

#[test]
fn a_removal_that_a_failed_directory_sync_undoes_takes_its_space_again() {
    let disk = disk();
    drop(synced(&disk, &[1; 100]));
    disk.directory(0).remove("f").unwrap();
    assert_eq!(disk.used_bytes(0), 0);
    disk.set_faults(vec![Fault::new(Effect::SyncFails(SyncFailure::CleanOld))]);
    assert!(disk.directory(0).sync().is_err());
    assert_eq!(disk.used_bytes(0), 100);
    assert_eq!(disk.read_file(0, "f"), [1; 100]);
}

#[test]
fn a_stale_read_returns_what_was_durable_before() {
    let disk = disk();
    let device = synced(&disk, b"old....");
    let stale = || vec![Fault::new(Effect::StaleRead)];
    device.write_at(b"new", 0).unwrap();
    disk.set_faults(stale());
    assert_eq!(read(&device, 0, 7), b"old....");
    assert_eq!(read(&device, 0, 7), b"new....");
    device.sync().unwrap();
    disk.set_faults(stale());
    assert_eq!(read(&device, 1, 3), b"ld.", "what the sync overwrote");
    disk.set_faults(stale());
    assert_eq!(read(&device, 4, 3), b"...", "these bytes never were anything else");
}

#[test]
fn a_late_read_takes_its_time_and_returns_what_was_there() {
    let sched = Sched::simulated(1);
    let disk = SimDisk::new(&sched, 1, SimConfig::default());
    sched.run(|| {
        let device = synced(&disk, b"bytes");
        disk.set_faults(vec![Fault::new(Effect::LateRead(Duration::from_millis(7))).nth(2)]);
        let takes = || {
            let begun = sched.now();
            assert_eq!(read(&device, 0, 5), b"bytes");
            (sched.now() - begun).as_millis()
        };
        assert_eq!([takes(), takes(), takes()], [0, 7, 0]);
    });
}

#[test]
fn misdirected_transfers_land_one_block_beside() {
    let disk = disk();
    let blocks = [[1; 4096], [2; 4096], [3; 4096]].concat();
    let device = synced(&disk, &blocks);
    disk.set_faults(vec![Fault::new(Effect::MisdirectedRead).since(1)]);
    assert_eq!(read(&device, 4096, 4), [1; 4]);
    assert_eq!(read(&device, 0, 4), [2; 4]);
    disk.set_faults(vec![Fault::new(Effect::MisdirectedWrite)]);
    device.write_at(&[9; 4096], 8192).unwrap();
    assert_eq!(disk.read_file(0, "f"), [[1; 4096], [9; 4096], [3; 4096]].concat());
}

#[test]
fn edits_at_rest_change_what_is_read_and_what_is_durable() {
    let disk = disk();
    let device = synced(&disk, b"abcd");
    disk.flip_bit(0, "f", 0, 1);
    disk.overwrite(0, "f", 2, b"XY");
    assert_eq!(read(&device, 0, 4), b"cbXY");
    assert_eq!(survivor(&disk, Survival::None), b"cbXY");
    disk.write_file(0, "g", b"fresh");
    disk.write_file(0, "f", b"other");
    disk.remove_file(0, "g");
    assert_eq!(names(&disk, 0), ["f"]);
    assert_eq!(survivor(&disk, Survival::None), b"other");
    assert_eq!(read(&device, 0, 4), b"cbXY", "an open device keeps the file it opened");
    drop(device);
    assert_eq!(disk.used_bytes(0), 5);
}

#[test]
fn a_full_tier_refuses_to_grow_until_it_has_room_again() {
    let disk = disk();
    let device = synced(&disk, &[1; 100]);
    let directory = disk.directory(0);
    disk.set_capacity(0, 150);
    assert_eq!(directory.free_bytes().unwrap(), 50);
    assert_eq!(device.write_at(&[2; 60], 91).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(device.set_len(151).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(disk.read_file(0, "f"), [1; 100], "a refused write changes nothing");
    device.write_at(&[2; 60], 90).unwrap();
    device.write_at(&[3; 150], 0).unwrap();
    assert_eq!(directory.free_bytes().unwrap(), 0);
    device.set_len(10).unwrap();
    assert_eq!(directory.free_bytes().unwrap(), 140);
    let after = disk.after_cut(Survival::All, &mut Rng::new(1));
    assert_eq!((after.used_bytes(0), after.directory(0).free_bytes().unwrap()), (10, 140));
    disk.set_capacity(0, 5);
    assert_eq!(directory.free_bytes().unwrap(), 0);
}

#[test]
fn direct_access_refuses_what_is_not_aligned_and_can_be_withheld() {
    let disk = disk();
    let device = disk.directory(0).create("f", Access::Direct).unwrap();
    assert!(device.geometry().direct);
    let mut page = AlignedBuf::zeroed(2 * ALIGNMENT);
    device.write_at(&page, 0).unwrap();
    device.read_at(&mut page[..ALIGNMENT], ALIGNMENT as u64).unwrap();
    let ops = disk.ops();
    assert_eq!(device.write_at(&page, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(device.write_at(&page[..100], 0).unwrap_err().kind(), ErrorKind::InvalidInput);
    let off = &mut page[1..=ALIGNMENT];
    assert_eq!(device.read_at(off, 0).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(disk.ops(), ops);
    let config = SimConfig { direct: false, ..SimConfig::default() };
    let plain = SimDisk::new(&Sched::real(1), 1, config);
    let device = plain.directory(0).create("f", Access::Direct).unwrap();
    assert!(!device.geometry().direct);
    device.write_at(b"x", 1).unwrap();
}

#[test]
fn counts_tell_tiers_and_the_largest_read_apart() {
    let disk = disk();
    let device = synced(&disk, &[1; 100]);
    disk.reset_counts();
    read(&device, 0, 10);
    read(&device, 50, 30);
    device.write_at(&[2; 5], 0).unwrap();
    device.sync().unwrap();
    let [fast, capacity] = disk.counts()[..] else { panic!("two tiers") };
    assert_eq!((fast.reads(), fast.read_bytes, fast.read_bytes_max), (2, 40, 30));
    assert_eq!((fast.writes(), fast.write_bytes, fast.syncs()), (1, 5, 1));
    assert_eq!(fast.of(OpKind::SyncDirectory), 0);
    assert_eq!(capacity, Counts::default());
}

#[test]
fn the_trace_keeps_the_last_operations() {
    let config = SimConfig { trace_ops: 2, ..SimConfig::default() };
    let disk = SimDisk::new(&Sched::real(1), 1, config);
    let device = synced(&disk, b"abc");
    device.write_at(b"xy", 1).unwrap();
    assert_eq!(disk.trace(), ["4 SyncDirectory tier 0  0 at 0", "5 Write tier 0 f 2 at 1"]);
}

#[test]
fn the_log_hash_sees_every_byte_and_place() {
    let hash = |bytes: &[u8], offset| {
        let disk = disk();
        let device = synced(&disk, b"start");
        device.write_at(bytes, offset).unwrap();
        disk.log_hash()
    };
    assert_eq!(hash(b"123456789", 0), hash(b"123456789", 0));
    let others =
        [hash(b"123456788", 0), hash(b"123456789", 1), hash(b"12345678", 0), hash(b"123456789\0", 0)];
    assert!(others.iter().all(|&other| other != hash(b"123456789", 0)));
}

#[test]
fn every_kind_stands_at_its_own_place() {
    assert!(OpKind::ALL.into_iter().enumerate().all(|(index, kind)| kind as usize == index));
}

/// Two threads that append to a file each; the digest of what reached the device, in its order.
fn appends(seed: u64) -> (u64, u64) {
    let sched = Sched::simulated(seed);
    let disk = SimDisk::new(&sched, 1, SimConfig::default());
    sched.run(|| {
        let start = |name: &'static str| {
            let directory = disk.directory(0);
            let body = move || {
                let device = directory.create(name, Access::Buffered).unwrap();
                for step in 0..10 {
                    device.write_at(&[step; 3], u64::from(step) * 3).unwrap();
                }
                device.sync().unwrap();
            };
            sched.spawn(name, Priority::Normal, body).unwrap()
        };
        let threads = [start("a"), start("b")];
        assert!(threads.into_iter().all(|thread| thread.join()));
    });
    (disk.log_hash(), sched.trace_hash())
}

#[test]
fn one_seed_replays_the_io_of_many_threads() {
    assert!((0..20).all(|seed| appends(seed) == appends(seed)));
    let orders: BTreeSet<_> = (0..20).map(|seed| appends(seed).0).collect();
    assert!(orders.len() >= 19, "only {} orders of 20 seeds", orders.len());
}

#[test]
fn a_disk_can_move_to_another_scheduler() {
    let disk = disk();
    synced(&disk, b"x");
    let sched = Sched::simulated(1);
    let moved = disk.after_cut(Survival::None, &mut Rng::new(1)).on(&sched);
    let before = sched.now();
    sched.run(|| moved.directory(0).list().unwrap());
    assert!(sched.now() > before);
}
