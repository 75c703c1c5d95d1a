//! Files of a closed store, for examples that measure how long it takes to open: out of the kernel's cache, and read in
//! sequence.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

const BUFFER_BYTES: usize = 1 << 20;

/// Takes all files of a directory out of the kernel's cache, as a power cut does.
pub(crate) fn evict(dir: &Path) -> io::Result<()> {
    for file in fs::read_dir(dir)? {
        let file = file?;
        // The socket that commands ask a running store by is none.
        if file.file_type()?.is_file() {
            let file = File::open(file.path())?;
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// Reads the files whose names begin so, one after the other: their bytes, and how long it took. `seen` is told each
/// piece.
pub(crate) fn read(dir: &Path, prefix: &str, mut seen: impl FnMut(&[u8])) -> io::Result<(u64, Duration)> {
    let (mut buffer, mut bytes, begun) = (vec![0; BUFFER_BYTES], 0, Instant::now());
    for file in fs::read_dir(dir)? {
        let file = file?;
        if !file.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let mut file = File::open(file.path())?;
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            seen(&buffer[..n]);
            bytes += n as u64;
        }
    }
    Ok((bytes, begun.elapsed()))
}
