//! Which names a [`crate::Directory`] takes, checked alike by every implementation, so that what a simulation accepts
//! a file system accepts too. Pure functions; any thread.

use std::io;

/// The file that carries a tier's lock; never listed, and no file of a store may be called so.
pub(crate) const LOCK_NAME: &str = "LOCK";

/// Longest name that common Linux file systems take, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// # Errors
/// `InvalidInput` for a name that is empty, too long, a path, or the lock's.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    let refused = match name {
        "" => "is empty",
        "." | ".." => "names a directory",
        LOCK_NAME => "is the lock's",
        _ if name.len() > NAME_BYTES_MAX => "is longer than 255 bytes",
        _ if name.contains(['/', '\0']) => "holds a slash or a zero byte",
        _ => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("file name {name:?} {refused}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_passes_and_paths_do_not() {
        assert!(check_name("000012.log").is_ok());
        let long = "x".repeat(256);
        for name in ["", ".", "..", "a/b", "/", "a\0b", "LOCK", long.as_str()] {
            let error = check_name(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }
}
