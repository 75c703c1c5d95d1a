//! A memory group of the kernel's (a cgroup) for a contender: the same bound for each on all that its process takes,
//! page cache that it goes through included. What needs more is ended by the kernel.
//!
//! Not where a tier lies in memory itself: files there would be charged to whoever writes them. Both kinds of hierarchy
//! are known. In the older one a group is made below ours; in the newer one beside ours, for there no group has both
//! processes and groups with controllers. Making one takes the right to write there; where that is not given, there is
//! none, and it is told why.

use crate::failure::{Failure, Result};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a contender may take beyond its memory number: a part of that, for what stores do not count and for page cache
/// that log files go through, and some bytes for its program, its clients and their latencies.
const BEYOND_PART: u64 = 4;
const BEYOND_BYTES: u64 = 64 << 20;
/// How names of groups begin; behind it is the number of the process that made it.
const NAME: &str = "cuesta-bench-";
/// File systems whose files are memory.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// The kernel's two kinds of hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Older,
    Newer,
}

impl Kind {
    /// Where a group's bound is set, and, where the kernel counts it, that of memory and swap.
    fn limits(self, bytes: u64) -> [(&'static str, String); 2] {
        match self {
            Self::Older => [
                ("memory.limit_in_bytes", bytes.to_string()),
                ("memory.memsw.limit_in_bytes", bytes.to_string()),
            ],
            Self::Newer => [("memory.max", bytes.to_string()), ("memory.swap.max", "0".to_owned())],
        }
    }

    /// Where it is told how many processes were ended for want of memory.
    fn events(self) -> &'static str {
        match self {
            Self::Older => "memory.oom_control",
            Self::Newer => "memory.events",
        }
    }
}

/// A group, which is removed with this.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    dir: PathBuf,
    kind: Kind,
    bytes: u64,
}

/// What each contender of this memory number may take.
pub(crate) fn bytes_for(memory_bytes: u64) -> u64 {
    memory_bytes + memory_bytes / BEYOND_PART + BEYOND_BYTES
}

/// Whether contenders with their tiers under `dir`, which is there, can have groups of so many bytes; or why not.
pub(crate) fn check(dir: &Path, bytes: u64) -> std::result::Result<(), String> {
    let system = rustix::fs::statfs(dir).map_err(|error| error.to_string())?;
    if IN_MEMORY.contains(&(system.f_type as u64)) {
        return Err("tiers lie in memory, where files would count".to_owned());
    }
    MemoryGroup::make(bytes).map(drop)
}

/// Where groups are made: from the lines of `/proc/mounts` and `/proc/self/cgroup`.
fn parent(mounts: &str, own: &str) -> Option<(PathBuf, Kind)> {
    let mounted = |is: &dyn Fn(&str, &str) -> bool| {
        let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let line = lines.find(|words| words.len() > 3 && is(words[2], words[3]))?;
        Some(PathBuf::from(line[1]))
    };
    // A path that is not there is another name space's; what is mounted is the root of ours then.
    let below = |mount: PathBuf, path: &str| {
        let dir = mount.join(path.trim_start_matches('/'));
        if dir.is_dir() { dir } else { mount }
    };
    let path_of = |controllers: &str| {
        let mut lines = own.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
        lines.find(|words| words.len() == 3 && words[1].split(',').any(|name| name == controllers))
    };
    if let Some(mount) =
        mounted(&|kind, options| kind == "cgroup" && options.split(',').any(|option| option == "memory"))
    {
        return Some((below(mount, path_of("memory")?[2]), Kind::Older));
    }
    let mount = mounted(&|kind, _| kind == "cgroup2")?;
    let own = below(mount.clone(), path_of("")?[2]);
    let beside = if own == mount { mount } else { own.parent()?.to_owned() };
    Some((beside, Kind::Newer))
}

/// Removes groups whose makers were ended before they could.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next());
        if maker.is_some_and(|maker| !Path::new("/proc").join(maker).exists()) {
            // One that somebody is still in stays.
            fs::remove_dir(entry.path()).ok();
        }
    }
}

impl MemoryGroup {
    /// One of so many bytes, with nobody in it; or why there can be none.
    pub(crate) fn make(bytes: u64) -> std::result::Result<Self, String> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let (parent, kind) = parent(&read("/proc/mounts")?, &read("/proc/self/cgroup")?)
            .ok_or("the kernel's memory groups are not mounted here")?;
        remove_left(&parent);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("{NAME}{}-{number}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let group = Self { dir, kind, bytes };
        group.limit().map_err(|error| format!("{}: {error}", group.dir.display()))?;
        Ok(group)
    }

    fn limit(&self) -> io::Result<()> {
        let [memory, swap] = self.kind.limits(self.bytes);
        fs::write(self.dir.join(memory.0), memory.1)?;
        // Not there where the kernel does not count swap.
        let path = self.dir.join(swap.0);
        if path.exists() { fs::write(path, swap.1) } else { Ok(()) }
    }

    /// What a process takes from here on counts.
    pub(crate) fn take_in(&self, process: u32) -> Result<()> {
        let path = self.dir.join("cgroup.procs");
        fs::write(&path, process.to_string()).map_err(Failure::io(format!("write {}", path.display())))
    }

    /// Its bound.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether somebody in it was ended for want of memory: its own, or what a group around it or the machine has.
    pub(crate) fn is_exceeded(&self) -> bool {
        let events = fs::read_to_string(self.dir.join(self.kind.events())).unwrap_or_default();
        let mut counts = events.lines().filter_map(|line| line.strip_prefix("oom_kill "));
        counts.any(|count| count.trim().parse::<u64>().is_ok_and(|count| count > 0))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // It stays where a process in it has not ended; the next run removes it.
        fs::remove_dir(&self.dir).ok();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A group of so many bytes, which can be made where a directory is let to be one; `None` where there can be none,
    /// which is told.
    pub(crate) fn made(bytes: u64) -> Option<MemoryGroup> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let is_one = parent(&read("/proc/mounts"), &read("/proc/self/cgroup")).is_some_and(|(dir, kind)| {
            let tried = dir.join(format!("cuesta-test-{}-{bytes}", std::process::id()));
            let is_one = fs::create_dir(&tried).is_ok() && tried.join(kind.limits(bytes)[0].0).exists();
            fs::remove_dir(&tried).ok();
            is_one
        });
        match MemoryGroup::make(bytes) {
            Err(why) if !is_one => {
                println!("not tried, since there can be no group here: {why}");
                None
            }
            group => Some(group.unwrap()),
        }
    }

    #[test]
    fn groups_are_made_where_the_kernel_lets_them_be() {
        let older = "cgroup /no/cpu cgroup rw,cpu 0 0\ncgroup /no/memory cgroup rw,relatime,memory 0 0\ncgroup2 /no/unified cgroup2 rw 0 0\n";
        let own = "4:memory:/a/b\n3:cpu,cpuacct:/\n0::/\n";
        assert_eq!(parent(older, own), Some((PathBuf::from("/no/memory"), Kind::Older)));
        assert_eq!(parent(older, "0::/\n"), None);
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let mounted = format!("cgroup {} cgroup rw,memory 0 0\n", dir.path().display());
        assert_eq!(parent(&mounted, own), Some((dir.path().join("a/b"), Kind::Older)));
        fs::create_dir_all(dir.path().join("user.slice/session")).unwrap();
        let newer =
            format!("proc /proc proc rw 0 0\ncgroup2 {} cgroup2 rw,nsdelegate 0 0\n", dir.path().display());
        let at = |own: &str| parent(&newer, own).unwrap();
        assert_eq!(at("0::/user.slice/session\n"), (dir.path().join("user.slice"), Kind::Newer));
        assert_eq!(at("0::/\n"), (dir.path().to_owned(), Kind::Newer));
        assert_eq!(parent("proc /proc proc rw 0 0\n", own), None);
    }

    #[test]
    fn whoever_takes_more_than_its_group_may_have_is_ended_and_that_is_known() {
        let Some(group) = made(32 << 20) else { return };
        // Waits until it is in the group; then reads into a buffer of so many bytes.
        let run = |bytes: u64| {
            let mut child = Command::new("sh");
            child.args(["-c", &format!("read go; exec dd if=/dev/zero of=/dev/null bs={bytes} count=1")]);
            child.stdin(Stdio::piped()).stderr(Stdio::null());
            let mut child = child.spawn().unwrap();
            group.take_in(child.id()).unwrap();
            drop(child.stdin.take());
            child.wait().unwrap().success()
        };
        assert_eq!((run(1_000_000), group.is_exceeded()), (true, false));
        assert_eq!((run(200_000_000), group.is_exceeded()), (false, true));
        let (dir, beside) = (group.dir.clone(), group.dir.with_file_name(format!("{NAME}0-0")));
        drop(group);
        assert!(!dir.exists());
        // Nobody is the process of number 0: what it seems to have left goes, and what one that is there has made does
        // not.
        fs::create_dir(&beside).unwrap();
        let (one, another) = (made(1 << 24).unwrap(), made(1 << 24).unwrap());
        assert!(!beside.exists() && one.dir.exists() && another.dir.exists());
    }
}
