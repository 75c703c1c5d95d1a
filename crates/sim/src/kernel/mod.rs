//! What the simulation cannot show: real processes, a real kernel, real file systems.
//!
//! Nothing here is replayed to the last step by its seed: what a case does to the store is fixed by it, when the
//! kernel writes what is not. A failing case is run again, with others beside it, until it shows itself.

pub mod blocks;
pub mod media;
pub mod script;

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A directory for one case, in memory where that can be; gone when dropped.
///
/// # Errors
/// When none can be made.
pub fn scratch() -> Result<tempfile::TempDir, String> {
    let memory = PathBuf::from("/dev/shm");
    let parent = if fs::metadata(&memory).is_ok_and(|m| m.is_dir()) { memory } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("cuesta-sim-").tempdir_in(parent).map_err(|error| error.to_string())
}

/// Why no file system can be made and mounted here; `None` if one can.
pub fn no_mounts() -> Option<String> {
    static WHY: OnceLock<Option<String>> = OnceLock::new();
    let probe = || -> Result<(), String> {
        let dir = scratch()?;
        let image = dir.path().join("probe");
        media::image(&image, 16 << 20, &[])?;
        media::make_ext4(&image)?;
        drop(media::Mount::ext4(&image, &dir.path().join("mounted"))?);
        Ok(())
    };
    WHY.get_or_init(|| probe().err().map(|why| format!("needs root, loop devices and mkfs.ext4: {why}")))
        .clone()
}

/// Why no block device can be recorded here; `None` if one can.
pub fn no_recording() -> Option<String> {
    static WHY: OnceLock<Option<String>> = OnceLock::new();
    let probe = || -> Result<(), String> {
        let dir = scratch()?;
        drop(blocks::Recorder::start(&dir.path().join("disks"), &[1 << 20])?);
        Ok(())
    };
    no_mounts().or_else(|| WHY.get_or_init(|| probe().err().map(|why| format!("needs FUSE: {why}"))).clone())
}
