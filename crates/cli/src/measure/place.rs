//! Directories that a benchmark makes, and may empty when it runs again.

use crate::failure::{Failure, Result};
use std::fs;
use std::path::Path;

/// Marks a directory as such a one.
const MARK: &str = "cuesta-bench";

/// Makes a directory, or empties that of an earlier benchmark; refuses any other that holds something.
pub(crate) fn make_room(path: &Path) -> Result<()> {
    let fail = || Failure::io(format!("prepare {}", path.display()));
    let mark = path.join(MARK);
    if path.exists() {
        let empty = fs::read_dir(path).map_err(fail())?.next().is_none();
        if !empty && !mark.exists() {
            let what =
                format!("{} holds something that no benchmark made; name another directory", path.display());
            return Err(Failure::Input(what));
        }
        fs::remove_dir_all(path).map_err(fail())?;
    }
    fs::create_dir_all(path).map_err(fail())?;
    fs::write(mark, "made by `cuesta bench`, which empties it when it runs again\n").map_err(fail())
}
