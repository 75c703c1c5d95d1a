//! Printing: bytes as text or JSON, and progress on a terminal.

use crate::failure::{Failure, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value, json};
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Writes to standard output; a closed pipe ends the command quietly.
pub(crate) fn print(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Failure::io("write to standard output"))
}

/// A line on standard output.
pub(crate) fn print_line(text: &str) -> Result<()> {
    print(format!("{text}\n").as_bytes())
}

/// A line on standard output of what goes into a file as well: that nobody reads it any more is no reason to stop.
pub(crate) fn tell_line(text: &str) -> Result<()> {
    match print_line(text) {
        Err(failure) if failure.is_closed_pipe() => Ok(()),
        told => told,
    }
}

/// How lines are shown: by [`print_line`] or [`tell_line`].
pub(crate) type Say = fn(&str) -> Result<()>;

/// Writes a file that is whole or not there, wherever this process ends: under another name first.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<()> {
    let unfinished = unfinished(path);
    fs::write(&unfinished, text).map_err(Failure::io(format!("write {}", unfinished.display())))?;
    fs::rename(&unfinished, path).map_err(Failure::io(format!("write {}", path.display())))
}

/// The name of a file until it is whole.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// A line on standard error, beside what is asked for. Nobody who should read it is no reason to fail.
pub(crate) fn note(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Whether a file can be written: better known before the work than after it. What it holds stays until there is
/// something to write.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(Failure::io(format!("write {}", path.display())))
}

/// A JSON value on standard output, in one line.
pub(crate) fn print_json(value: &Value) -> Result<()> {
    print_line(&value.to_string())
}

/// Bytes as fields of a JSON object: `name` if they are text, else `name_hex`.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), json!(text)),
        Err(_) => object.insert(format!("{name}_hex"), json!(hex(bytes))),
    };
}

/// A pair as a JSON object.
pub(crate) fn pair_json(key: &[u8], value: Option<&[u8]>) -> Map<String, Value> {
    let mut object = Map::new();
    insert_bytes(&mut object, "key", key);
    if let Some(value) = value {
        insert_bytes(&mut object, "value", value);
    }
    object
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of a field that [`insert_bytes`] wrote.
pub(crate) fn take_bytes(object: &Map<String, Value>, name: &str) -> Option<Vec<u8>> {
    if let Some(text) = object.get(name) {
        return text.as_str().map(|text| text.as_bytes().to_vec());
    }
    let text = object.get(&format!("{name}_hex"))?.as_str()?.as_bytes();
    let (pairs, rest) = text.as_chunks::<2>();
    let digits = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    rest.is_empty().then(|| pairs.iter().map(digits).collect()).flatten()
}

/// A progress bar on standard error, shown once a second has passed, and only on a terminal.
pub(crate) fn progress(total: u64, what: &str, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}

/// Shows the bar if it has run for a second.
pub(crate) fn reveal(bar: &ProgressBar) {
    if bar.is_hidden() && bar.elapsed() > Duration::from_secs(1) && io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
    }
}

/// A bar that counts bytes.
pub(crate) const BYTES: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
/// A bar that counts operations.
pub(crate) const COUNT: &str = "{msg} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
/// Counts operations of which nobody knows how many there will be.
pub(crate) const COUNT_UP: &str = "{msg} {human_pos} {per_sec} {elapsed}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_go_through_json() {
        for bytes in [&b""[..], b"text", "größer".as_bytes(), &[0xff, 0, 7]] {
            let object = pair_json(b"k", Some(bytes));
            assert_eq!(take_bytes(&object, "value").as_deref(), Some(bytes));
        }
        let bad: Map<String, Value> = serde_json::from_str(r#"{"key_hex": "0g"}"#).unwrap();
        assert_eq!(take_bytes(&bad, "key"), None);
    }
}
