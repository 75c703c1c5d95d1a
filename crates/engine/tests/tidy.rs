//! The layers of `ARCHITECTURE.md`, held by the `use` lines of the engine's modules.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What each module may use of this crate, besides itself; lowest layer first.
const MAY_USE: &[(&str, &[&str])] = &[
    ("planted", &[]),
    ("cache", &["error", "key", "memory", "range_tombstones", "size_class"]),
    ("error", &[]),
    ("format", &["error", "key"]),
    ("key", &["error"]),
    ("range_tombstones", &["key"]),
    ("log", &["error", "format", "key", "range_tombstones"]),
    ("memory", &[]),
    ("size_class", &[]),
    ("memtable", &["error", "key", "range_tombstones"]),
    ("merge", &["error", "key"]),
    ("table", &["cache", "error", "format", "key", "memory", "merge"]),
    ("profile", &["error"]),
    ("options", &["error", "key", "log", "profile", "table"]),
    ("tier", &["error", "format", "options", "table"]),
    ("garbage", &["error", "format", "tier"]),
    ("store", &["error", "format", "garbage", "key", "memory", "tier"]),
    (
        "version",
        &[
            "cache",
            "error",
            "format",
            "garbage",
            "key",
            "log",
            "memory",
            "profile",
            "range_tombstones",
            "store",
            "table",
            "tier",
        ],
    ),
    ("tracker", &[]),
    ("policy", &["key", "options", "profile", "range_tombstones", "tracker", "version"]),
    (
        "compaction",
        &[
            "cache",
            "error",
            "format",
            "key",
            "memory",
            "range_tombstones",
            "store",
            "table",
            "tier",
            "version",
        ],
    ),
    ("value", &["cache"]),
];

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, out),
            false => out.push(path),
        }
    }
}

/// Top-level modules that a file names by `crate::`, comments and tests aside.
fn used(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut used = Vec::new();
    for line in lines {
        for rest in line.split("crate::").skip(1) {
            used.push(rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect());
        }
    }
    used.retain(|module: &String| !module.is_empty());
    used
}

#[test]
fn arrows_between_layers_point_down_only() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > 40);
    for file in files.iter().filter(|file| !file.ends_with("tests.rs") && !file.ends_with("documented.rs")) {
        let relative = file.strip_prefix(&src).unwrap();
        let module =
            relative.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        let Some(allowed) = allowed.get(module) else { continue };
        for used in used(&fs::read_to_string(file).unwrap()) {
            // What every layer may ask: whether a bug was planted in its line.
            let fine = used == module || used == "planted" || allowed.contains(&used.as_str());
            assert!(fine, "{} uses {used}, which is no layer below {module}", relative.display());
        }
    }
}

#[test]
fn what_the_architecture_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for page in ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let quoted = text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| word.starts_with("crates/") || word.starts_with("docs/"));
        for path in quoted {
            assert!(root.join(path).exists(), "{page} names {path}, which is not there");
        }
    }
}
