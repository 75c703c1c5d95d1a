//! Inputs that fuzzing once found something with, fed again. Alone in its process, since checksums are off in all of
//! it.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta_sim::planted::{Bug, wake};
use cuesta_sim::rows::{Format, feed};
use cuesta_sim::{Kind, set_kind};
use std::path::Path;

#[test]
fn inputs_that_found_something_find_nothing_now() {
    wake(Some(Bug::ChecksumsSkipped));
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile");
    let mut fed = 0;
    for input in std::fs::read_dir(inputs).unwrap() {
        let input = input.unwrap();
        let name = input.file_name().into_string().unwrap();
        let format =
            Format::ALL.into_iter().find(|format| name.starts_with(&format!("{format:?}-").to_lowercase()));
        let format = format.unwrap();
        set_kind(format.kind().unwrap_or(Kind::Leveled));
        feed(format, &std::fs::read(input.path()).unwrap());
        fed += 1;
    }
    assert!(fed > 0);
}
