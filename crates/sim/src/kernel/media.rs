//! Small file systems, made and mounted by the system's own commands.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes of a page of an image.
const PAGE: usize = 4096;

fn run(command: &str, args: &[&OsStr]) -> Result<(), String> {
    let output = Command::new(command).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// A file of `len` bytes that begins with `bytes`; what is zero is left out.
///
/// # Errors
/// What the file system says.
pub fn image(path: &Path, len: u64, bytes: &[u8]) -> Result<(), String> {
    let write = || -> std::io::Result<()> {
        let file = File::create(path)?;
        file.set_len(len)?;
        for (i, page) in bytes.chunks(PAGE).enumerate() {
            if page.iter().any(|byte| *byte != 0) {
                file.write_all_at(page, (i * PAGE) as u64)?;
            }
        }
        Ok(())
    };
    write().map_err(|error| format!("{}: {error}", path.display()))
}

/// Makes an ext4 with a small journal in a file.
///
/// # Errors
/// What `mkfs.ext4` says.
pub fn make_ext4(file: &Path) -> Result<(), String> {
    let args = ["-q", "-F", "-b", "4096", "-J", "size=4", "-E", "nodiscard"].map(OsStr::new);
    run("mkfs.ext4", &[&args[..], &[file.as_os_str()]].concat())
}

/// A mounted file system; unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
}

impl Mount {
    /// Mounts the ext4 in `file` at `at`, through a loop device.
    ///
    /// # Errors
    /// What `mount` says.
    pub fn ext4(file: &Path, at: &Path) -> Result<Self, String> {
        Self::put(at, &["-t", "ext4", "-o", "loop"].map(OsStr::new), file.as_os_str())
    }

    /// A file system of `bytes` bytes in memory.
    ///
    /// # Errors
    /// What `mount` says.
    pub fn tmpfs(bytes: u64, at: &Path) -> Result<Self, String> {
        let size = format!("size={bytes}");
        Self::put(at, &["-t", "tmpfs", "-o", &size].map(OsStr::new), OsStr::new("tmpfs"))
    }

    fn put(at: &Path, options: &[&OsStr], what: &OsStr) -> Result<Self, String> {
        fs::create_dir_all(at).map_err(|error| format!("{}: {error}", at.display()))?;
        run("mount", &[options, &[what, at.as_os_str()]].concat())?;
        Ok(Self { at: at.to_owned() })
    }

    /// Where it is mounted.
    pub fn at(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A thread that is still ending may hold a file for a moment.
        if run("umount", &[self.at.as_os_str()]).is_err() {
            drop(run("umount", &[OsStr::new("-l"), self.at.as_os_str()]));
        }
    }
}
