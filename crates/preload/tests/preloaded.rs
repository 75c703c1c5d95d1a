//! The library under programs that know nothing of it: `dd`, and one that is compiled with checked calls.

#![allow(clippy::unwrap_used, reason = "in a test they are the assertion")]

use cuesta_model::Report;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The library: cargo does not build it for tests, so they ask for it.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // target/debug/deps/preloaded-…
        let test = std::env::current_exe().unwrap();
        let target = test.ancestors().nth(3).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "-p", "cuesta-preload", "--target-dir"]).arg(target);
        assert!(build.status().unwrap().success());
        target.join("debug/libcuesta_preload.so")
    })
}

struct Tier {
    dir: tempfile::TempDir,
}

impl Tier {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn run(&self, model: &str, program: &str, args: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.path());
        command.env("LD_PRELOAD", library()).env("CUESTA_MODEL", model);
        command.env("CUESTA_MODEL_PATHS", format!("capacity={}", self.path().display()));
        command.env("CUESTA_MODEL_REPORT", self.path().join("report"));
        command.env("CUESTA_MODEL_COUNTS", self.path().join("counts"));
        command.output().unwrap()
    }

    /// Makes a program of C source in its directory.
    fn compile(&self, name: &str, source: &str, flags: &[&str]) {
        let file = format!("{name}.c");
        std::fs::write(self.path().join(&file), source).unwrap();
        let mut compile = Command::new("cc");
        compile.args(flags).args(["-U_FORTIFY_SOURCE", "-o", name, &file]).current_dir(self.path());
        assert!(compile.status().unwrap().success());
    }

    fn report(&self) -> Report {
        serde_json::from_str(&std::fs::read_to_string(self.path().join("report")).unwrap()).unwrap()
    }
}

#[test]
fn buffered_writes_reach_the_device_at_the_sync_and_cached_reads_cost_nothing() {
    let tier = Tier::new();
    let wrote =
        tier.run("capacity=hdd", "dd", &["if=/dev/zero", "of=data", "bs=8k", "count=50", "conv=fsync"]);
    assert!(wrote.status.success(), "{wrote:?}");
    let report = tier.report();
    let counts = report.counts.tiers[0];
    // 400 KiB, handed over together.
    assert_eq!((counts.writes, counts.written_bytes, counts.flushes), (1, 50 * 8192, 1), "{report:?}");
    // It waited for the disk, unless the real one is slower.
    assert!(counts.waited_nanos > 0 || counts.late > 0, "{report:?}");
    assert!(report.counts.seen_written_bytes >= 50 * 8192 && report.invalid().is_none(), "{report:?}");
    // Read twice by one process: the second time from the page cache, which begins empty with each process.
    let read = tier.run("", "sh", &["-c", "dd if=data of=/dev/null bs=4k count=10; :"]);
    assert!(read.status.success(), "{read:?}");
    let bytes = std::fs::read(tier.path().join("counts")).unwrap();
    assert!(cuesta_model::Counts::from_bytes(&bytes).is_some());
}

#[test]
fn direct_calls_are_the_devices_own() {
    let tier = Tier::new();
    let wrote = tier.run("", "dd", &["if=/dev/zero", "of=data", "bs=4k", "count=20", "oflag=direct"]);
    assert!(wrote.status.success(), "{wrote:?}");
    let counts = tier.report().counts.tiers[0];
    assert_eq!((counts.writes, counts.written_bytes), (20, 20 * 4096), "{counts:?}");
    let read = tier.run("capacity=qlc", "dd", &["if=data", "of=/dev/null", "bs=4k", "iflag=direct"]);
    assert!(read.status.success(), "{read:?}");
    let counts = tier.report().counts.tiers[0];
    assert_eq!((counts.reads, counts.point_reads, counts.read_bytes), (20, 20, 20 * 4096), "{counts:?}");
    assert!(counts.waited_nanos > 0 || counts.late > 0, "{counts:?}");
}

/// Flags and lengths that the compiler does not know, so that it has them checked.
const FORTIFIED: &str = "
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    char block[4096];
    int bytes = atoi(words[2]);
    int file = open(words[1], count > 3 ? O_RDWR : O_RDONLY);
    return read(file, block, bytes) != bytes || pread(file, block, bytes, bytes) != bytes;
}";

#[test]
fn programs_with_checked_calls_are_seen() {
    let tier = Tier::new();
    std::fs::write(tier.path().join("data"), [1; 8192]).unwrap();
    tier.compile("reads", &format!("#define _FORTIFY_SOURCE 2\n{FORTIFIED}"), &["-O2"]);
    let program = std::fs::read(tier.path().join("reads")).unwrap();
    for name in ["__open_2", "__read_chk", "__pread_chk"] {
        assert!(program.windows(name.len()).any(|window| window == name.as_bytes()), "{name} is not called");
    }
    let read = tier.run("", "./reads", &["data", "4096"]);
    assert!(read.status.success(), "{read:?}");
    let counts = tier.report().counts.tiers[0];
    assert_eq!((counts.reads, counts.read_bytes), (2, 8192), "{counts:?}");
}

/// Every form of the calls that move bytes, once each; those that are refused; and those that cost nothing.
const ALL_FORMS: &str = "
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#define PAGE 4096
#define MOVES(call) if ((call) != PAGE) return fprintf(stderr, \"%s: %s\\n\", #call, strerror(errno)), 1
#define HOLDS(what) if (!(what)) return fprintf(stderr, \"%s: %s\\n\", #what, strerror(errno)), 1
int main(void) {
    char *page = aligned_alloc(PAGE, PAGE);
    memset(page, 7, PAGE);
    struct iovec one = { page, PAGE };
    int file = open(\"data\", O_RDWR | O_CREAT, 0600);
    HOLDS(fallocate(file, FALLOC_FL_KEEP_SIZE, 0, 16 * PAGE) == 0);
    MOVES(write(file, page, PAGE));
    MOVES(writev(file, &one, 1));
    MOVES(pwrite(file, page, PAGE, 2 * PAGE));
    MOVES(pwrite64(file, page, PAGE, 3 * PAGE));
    MOVES(pwritev(file, &one, 1, 4 * PAGE));
    MOVES(pwritev64(file, &one, 1, 5 * PAGE));
    MOVES(pwritev2(file, &one, 1, 6 * PAGE, 0));
    MOVES(pwritev64v2(file, &one, 1, 7 * PAGE, RWF_DSYNC));
    HOLDS(sync_file_range(file, 0, PAGE, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0);
    HOLDS(fdatasync(file) == 0);
    int synced = openat64(AT_FDCWD, \"data\", O_RDWR | O_SYNC);
    MOVES(pwrite(synced, page, PAGE, 8 * PAGE));
    int direct = open64(\"data\", O_RDWR | O_DIRECT);
    MOVES(read(direct, page, PAGE));
    MOVES(readv(direct, &one, 1));
    MOVES(pread(direct, page, PAGE, 2 * PAGE));
    MOVES(pread64(direct, page, PAGE, 3 * PAGE));
    MOVES(preadv(direct, &one, 1, 4 * PAGE));
    MOVES(preadv64(direct, &one, 1, 5 * PAGE));
    MOVES(preadv2(direct, &one, 1, 6 * PAGE, 0));
    MOVES(preadv64v2(direct, &one, 1, 7 * PAGE, 0));
    int copy = dup(direct);
    MOVES(pread(copy, page, PAGE, 8 * PAGE));
    HOLDS(page[0] == 7 && page[PAGE - 1] == 7);
    HOLDS(mmap(0, PAGE, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED && errno == ENODEV);
    HOLDS(mmap(0, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    HOLDS(copy_file_range(file, 0, synced, 0, PAGE, 0) == -1 && errno == ENOSYS);
    HOLDS(syscall(SYS_io_uring_setup, 8, 0) == -1 && errno == ENOSYS);
    HOLDS(ftruncate64(file, 0) == 0);
    int gone = open(\"gone\", O_RDWR | O_CREAT, 0600);
    MOVES(write(gone, page, PAGE));
    HOLDS(fallocate64(gone, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, PAGE) == 0);
    HOLDS(fdatasync(gone) == 0);
    return 0;
}";

#[test]
fn every_form_of_a_call_is_seen_once() {
    let tier = Tier::new();
    tier.compile("forms", ALL_FORMS, &["-O1"]);
    let ran = tier.run("", "./forms", &[]);
    assert!(ran.status.success(), "{ran:?}");
    let report = tier.report();
    let counts = report.counts.tiers[0];
    // Nine reads past the page cache. Of nine pages written eight are together when one of them is synced by its flag,
    // and one is of the file that is always synced; each has the device flushed, and so has the sync. The tenth is made
    // a hole of before anybody syncs it, so there is nothing but a flush.
    assert_eq!((counts.reads, counts.read_bytes), (9, 9 * 4096), "{report:?}");
    assert_eq!((counts.writes, counts.written_bytes, counts.flushes), (2, 9 * 4096, 4), "{report:?}");
    assert_eq!((report.counts.refused, report.counts.seen_written_bytes), (3, 10 * 4096), "{report:?}");
    assert!(report.invalid().is_none(), "{report:?}");
}

#[test]
fn wrong_settings_end_the_program_and_are_named() {
    let tier = Tier::new();
    for (model, word) in [("capacity=floppy", "floppy"), ("fast=qlc", "fast")] {
        let output = tier.run(model, "true", &[]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains(word), "{told}");
    }
}
