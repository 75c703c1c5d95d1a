//! The command as a user runs it, one process a call.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "in a test they are the assertion and the report"
)]

use cuesta::{Db, Options, TierOptions};
use std::io::{PipeWriter, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

struct Shell {
    dir: tempfile::TempDir,
}

impl Shell {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    /// A program of some lines.
    fn script(&self, name: &str, lines: &str) -> std::path::PathBuf {
        use std::os::unix::fs::PermissionsExt;
        self.write(name, &format!("#!/bin/sh\n{lines}\n"));
        let path = self.path().join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cuesta"));
        command.args(args).current_dir(self.path()).stdin(Stdio::null()).env_remove("CUESTA_DIR");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Standard output of a command that must succeed.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit code and standard error of a command that must not.
    fn fails(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

const STATUS: &str =
    "Package: bash\nVersion: 5\n\nPackage: libc6\nVersion: 2\nDescription: C\n more\n\nPackage: zsh\n";

#[test]
fn a_file_is_loaded_and_later_processes_answer_from_it() {
    let shell = Shell::new();
    shell.write("status", STATUS);
    let told = shell.ok(&["load", "--format", "deb822", "--key", "Package", "status"]);
    assert!(told.starts_with("3 records, "), "{told}");
    assert_eq!(shell.ok(&["get", "libc6"]), "Package: libc6\nVersion: 2\nDescription: C\n more\n");
    assert_eq!(shell.ok(&["scan", "--keys-only"]), "bash\nlibc6\nzsh\n");
    assert_eq!(shell.ok(&["scan", "--keys-only", "--reverse", "--limit", "2"]), "zsh\nlibc6\n");
    assert_eq!(shell.ok(&["scan", "--keys-only", "--from", "c", "--to", "z"]), "libc6\n");
    assert_eq!(shell.ok(&["scan", "--keys-only", "--prefix", "li"]), "libc6\n");
    assert!(shell.ok(&["stats"]).contains("tier 0"));
    assert!(shell.ok(&["stats", "--json"]).contains("\"sequence\":3"));
    assert!(shell.ok(&["verify"]).starts_with("no problem found"));
    assert_eq!(shell.fails(&["get", "fish"]), (1, String::new()));
    shell.ok(&["delete", "zsh"]);
    assert_eq!(shell.fails(&["get", "zsh"]).0, 1);
}

#[test]
fn a_range_is_deleted_and_nothing_without_saying_what() {
    let shell = Shell::new();
    shell.write("lines", "apple\nbanana\nblackberry\ncherry\ndate\n");
    shell.ok(&["load", "--format", "lines", "--key", "line", "lines"]);
    let (code, told) = shell.fails(&["delete"]);
    assert!(code == 2 && told.contains("--prefix"), "{told}");
    assert_eq!(shell.fails(&["delete", "date", "--all"]).0, 2);
    assert_eq!(shell.fails(&["delete", "--all", "--from", "c"]).0, 2);
    assert_eq!(shell.ok(&["scan", "--keys-only"]).lines().count(), 5);
    shell.ok(&["delete", "--prefix", "b"]);
    assert_eq!(shell.ok(&["scan", "--keys-only"]), "apple\ncherry\ndate\n");
    shell.ok(&["delete", "--from", "b", "--to", "d"]);
    assert_eq!(shell.ok(&["scan", "--keys-only"]), "apple\ndate\n");
    assert!(shell.ok(&["explain", "cherry"]).contains("deleted a range with it"));
    shell.ok(&["delete", "--all"]);
    assert_eq!(shell.ok(&["scan", "--keys-only"]), "");
}

#[test]
fn a_dump_is_loaded_into_an_equal_store() {
    let shell = Shell::new();
    shell.write("lines", "one\ntwo\n");
    shell.ok(&["load", "--format", "lines", "lines"]);
    shell.ok(&["put", "k", "v", "--keyspace", "other"]);
    std::fs::write(shell.path().join("bytes"), [0xff, 0, 10]).unwrap();
    shell.ok(&["load", "--format", "lines", "--key", "line", "bytes"]);
    let dump = shell.ok(&["dump"]);
    assert_eq!(dump.lines().count(), 4);
    shell.write("dump", &dump);
    shell.ok(&["load", "--format", "dump", "--dir", "copy", "dump"]);
    assert_eq!(shell.ok(&["dump", "--dir", "copy"]), dump);
    assert_eq!(shell.ok(&["get", "k", "--keyspace", "other", "--dir", "copy"]), "v");
}

#[test]
fn damage_is_named_with_file_and_offset() {
    let shell = Shell::new();
    shell.write("status", STATUS);
    shell.ok(&["load", "--format", "deb822", "--key", "Package", "status"]);
    let fast = shell.path().join("cuesta-data/fast");
    let log = std::fs::read_dir(&fast).unwrap().map(|entry| entry.unwrap().path());
    let log =
        log.into_iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log-")).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let output = shell.run(&["verify"]);
    assert_eq!(output.status.code(), Some(3));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("log-00000002 at byte 64"), "{told}");
    let (code, told) = shell.fails(&["get", "bash"]);
    assert!(code == 3 && told.contains("log-00000002 at byte 64"), "{told}");
}

#[test]
fn damage_is_given_up_when_that_is_asked_for() {
    let shell = Shell::new();
    let [fast, capacity] = ["fast", "capacity"].map(|name| shell.path().join("cuesta-data").join(name));
    let tiers = (TierOptions::fast(&fast, 1 << 30), TierOptions::capacity(&capacity, 1 << 30));
    let db = Db::open(&Options::tiered(tiers.0, tiers.1)).unwrap();
    (0..3000).for_each(|i| assert!(db.put(format!("key{i:04}"), format!("value {i}")).is_ok()));
    db.flush().unwrap();
    db.close().unwrap();
    assert!(shell.ok(&["repair"]).starts_with("no damage found in "));
    let files = std::fs::read_dir(&fast).unwrap().map(|entry| entry.unwrap().path());
    let is_data =
        |path: &std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("data-");
    let data = files.into_iter().find(is_data).unwrap();
    let mut bytes = std::fs::read(&data).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&data, bytes).unwrap();

    let output = shell.run(&["repair"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(told.contains("lost: versions of keys from \"key") && told.contains("--accept-loss"), "{told}");
    let (code, hint) = shell.fails(&["dump"]);
    assert!(code == 3 && hint.contains("`cuesta repair`"), "{hint}");
    let (code, told) = shell.fails(&["repair", "--accept-loss", "1"]);
    assert!(code == 2 && told.contains("it was agreed to 1; nothing was given up"), "{told}");
    let told = shell.ok(&["repair", "--accept-loss", "3000", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let lost = told["versions_lost"].as_u64().unwrap();
    assert!((10..1000).contains(&lost) && told["repaired"] == true, "{told}");
    assert_eq!(told["left"], serde_json::json!([]));
    assert!(told["damages"][0]["lost"]["first"]["key"].as_str().unwrap().starts_with("key"), "{told}");
    assert_eq!(shell.ok(&["dump"]).lines().count() as u64, 3000 - lost);
    assert!(shell.ok(&["verify"]).starts_with("no problem found"));
    assert!(shell.ok(&["repair"]).starts_with("no damage found in "));
}

#[test]
fn every_file_is_described() {
    let shell = Shell::new();
    shell.write("status", STATUS);
    shell.ok(&["load", "--format", "deb822", "--key", "Package", "status"]);
    for (file, words) in
        [("CUESTA", "copy 0"), ("manifest-00000001", "edit"), ("log-00000002", "batch of 3 entries")]
    {
        let told = shell.ok(&["inspect", &format!("cuesta-data/fast/{file}")]);
        assert!(told.contains(words), "{file}: {told}");
    }
    let tiers = ["fast", "capacity"].map(|name| shell.path().join("cuesta-data").join(name));
    let tiers = (TierOptions::fast(&tiers[0], 1 << 30), TierOptions::capacity(&tiers[1], 1 << 30));
    let db = Db::open(&Options::tiered(tiers.0, tiers.1)).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let find = |kind: &str| {
        let listed = std::fs::read_dir(shell.path().join("cuesta-data/fast")).unwrap();
        let names = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.into_iter().find(|name| name.starts_with(kind)).unwrap()
    };
    let (data, meta) = (find("data-"), find("meta-"));
    assert!(shell.ok(&["inspect", &format!("cuesta-data/fast/{meta}")]).contains("partition 0"));
    let told = shell.ok(&["inspect", &format!("cuesta-data/fast/{data}")]);
    assert!(told.contains("bash #") && told.contains("Put"), "{told}");
    std::fs::rename(shell.path().join("cuesta-data/fast").join(&meta), shell.path().join("elsewhere"))
        .unwrap();
    let alone = shell.ok(&["inspect", &format!("cuesta-data/fast/{data}")]);
    assert!(alone.contains("told by their checksums") && alone.contains("bash #"), "{alone}");
    let told = shell.ok(&["inspect", &format!("cuesta-data/fast/{data}"), "--meta", "elsewhere"]);
    assert!(told.contains("bash #") && !told.contains("checksums"), "{told}");
    assert_eq!(shell.fails(&["inspect", &format!("cuesta-data/fast/{data}"), "--meta", "absent"]).0, 8);
    shell.write("note", "not a store's file, but long enough to be one: 0123456789 0123456789");
    assert_eq!(shell.fails(&["inspect", "note"]).0, 3);
    assert_eq!(shell.fails(&["inspect", "absent"]).0, 8);
}

#[test]
fn help_is_short_in_the_list_and_long_by_itself() {
    let shell = Shell::new();
    let list = shell.ok(&["--help"]);
    assert!(list.contains("verify   Read every byte of every file and check it\n"), "{list}");
    for (command, said) in [
        ("bench", "facebook, twitter19"),
        ("verify", "the store must be closed"),
        ("repair", "an older one"),
        ("get", "Exit code 1"),
        ("repro", "Exits with 7"),
    ] {
        let help = shell.ok(&[command, "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(said), "{command}: {help}");
    }
}

#[test]
fn wrong_usage_is_told_and_changes_nothing() {
    let shell = Shell::new();
    assert_eq!(shell.fails(&["get"]).0, 2);
    assert_eq!(shell.fails(&["frobnicate"]).0, 2);
    assert_eq!(shell.fails(&["bench", "--workload", "z"]).0, 2);
    assert_eq!(shell.fails(&["bench", "--value-bytes", "3"]).0, 6);
    let (code, told) = shell.fails(&["bench", "--profile", "fragmented", "--max-runs", "1"]);
    assert!(code == 2 && told.contains("--max-runs") && told.contains("2..=64"), "{code}: {told}");
    let (code, told) = shell.fails(&["get", "k"]);
    assert!(code == 8 && told.contains("there is no store"), "{told}");
    let (code, told) = shell.fails(&["put", "k", "v", "--memory", "1MiB"]);
    assert!(code == 2 && told.contains("--memory is 1.0 MiB; it must be from 8.0 MiB"), "{told}");
    let (code, told) = shell.fails(&["put", "k", "v", "--fast", "small:1MiB"]);
    assert!(code == 2 && told.contains("of log there") && told.contains("the size of memtables"), "{told}");
    assert_eq!(shell.fails(&["load", "--format", "tsv", "absent"]).0, 5);
    shell.write("bad", "{}\n");
    let (code, told) = shell.fails(&["load", "--format", "jsonl", "--key", "id", "bad"]);
    assert!(code == 6 && told.contains("line 1") && told.contains("--skip-bad"), "{told}");
    let told = shell.ok(&["load", "--format", "jsonl", "--key", "id", "--skip-bad", "bad"]);
    assert!(told.contains("1 bad records skipped"), "{told}");
    shell.write("half", "{\"id\":\"a\"}\n{\"id\":\"b\"}\n{}\n{\"id\":\"c\"}\n");
    let (code, told) = shell.fails(&["load", "--format", "jsonl", "--key", "id", "half"]);
    assert!(
        code == 6 && told.contains("2 records were stored before that") && told.contains("line 3"),
        "{told}"
    );
    assert_eq!(shell.ok(&["scan", "--keys-only"]), "a\nb\n");
}

#[test]
fn a_tier_that_is_missing_is_not_made_anew() {
    let shell = Shell::new();
    shell.ok(&["put", "k", "v"]);
    for name in ["capacity", "fast"] {
        let tier = shell.path().join("cuesta-data").join(name);
        std::fs::rename(&tier, shell.path().join("unmounted")).unwrap();
        for command in [&["get", "k"][..], &["put", "k", "w"], &["stats"]] {
            let (code, told) = shell.fails(command);
            assert!(code == 3 && told.contains("is it mounted"), "{code} {told}");
            assert!(!tier.exists());
        }
        std::fs::rename(shell.path().join("unmounted"), &tier).unwrap();
        assert_eq!(shell.ok(&["get", "k"]), "v");
    }
}

#[test]
fn a_benchmark_runs_and_empties_only_what_it_made() {
    let shell = Shell::new();
    let args = [
        "bench",
        "--records",
        "20000",
        "--ops",
        "1000",
        "--workload",
        "load,a,b,c,d,e,f,w,facebook,twitter19,twitter39,twitter51",
        "--value-bytes",
        "100",
        "--memory",
        "8MiB",
        "--json",
        "out.json",
        "--report",
        "out.html",
    ];
    for _ in 0..2 {
        let told = shell.ok(&args);
        assert!(
            told.contains("best static placement")
                && told.contains("a: ")
                && told.contains("p99.9")
                && told.contains("write amplification"),
            "{told}"
        );
    }
    let json = std::fs::read_to_string(shell.path().join("out.json")).unwrap();
    assert_eq!(json.matches("\"operations_per_second\"").count(), 12);
    // What the page shows is there, too.
    let page = std::fs::read_to_string(shell.path().join("out.html")).unwrap();
    assert!(page.matches("<h2>").count() == 12 && page.ends_with("</html>\n"), "{page}");
    for (shown, kept) in [
        ("which containers answered", "\"found:memtables\""),
        ("blocks, by whether its cache had them", "\"blocks:cached\""),
        ("bytes by cause, and tier where it is known", "\"written:fast:log\""),
        ("Latency of scan", "\"quantiles\""),
        ("device calls/op", "\"counts\""),
    ] {
        assert!(page.contains(shown) && json.contains(kept), "{shown}");
    }
    std::fs::create_dir_all(shell.path().join("mine/fast")).unwrap();
    shell.write("mine/fast/precious", "data");
    let (code, told) = shell.fails(&["bench", "--records", "10", "--ops", "10", "--dir", "mine"]);
    assert!(code == 6 && told.contains("no benchmark made"), "{told}");
}

/// Runs a command in a directory `small` of `mebibytes`, or says why there can be none. The file system goes with the
/// process.
fn on_a_small_disk(shell: &Shell, mebibytes: u64, args: &[&str]) -> Option<Output> {
    std::fs::create_dir_all(shell.path().join("small")).unwrap();
    let script = format!("mount -t tmpfs -o size={mebibytes}m tmpfs small && exec \"$@\"");
    let alone = ["--user", "--map-root-user", "--mount", "sh", "-c"];
    let run = |script: &str, args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(alone).args([script, "sh"]).args(args).current_dir(shell.path());
        command.stdin(Stdio::null()).output()
    };
    match run(&script, &["true"]) {
        Ok(output) if output.status.success() => {}
        told => {
            println!("not tried, since there can be no small disk here: {told:?}");
            return None;
        }
    }
    Some(run(&script, &[&[env!("CARGO_BIN_EXE_cuesta")], args].concat()).unwrap())
}

#[test]
fn a_full_disk_ends_a_benchmark_with_its_name_and_what_was_measured_is_kept() {
    let shell = Shell::new();
    let args = [
        "bench",
        "--dir",
        "small/store",
        "--records",
        "4000",
        "--value-bytes",
        "1000",
        "--memory",
        "8MiB",
        "--workload",
        "load,c,d",
        "--ops",
        "500000",
        "--json",
        "out.json",
        "--report",
        "out.html",
    ];
    let Some(output) = on_a_small_disk(&shell, 24, &args) else { return };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(5) && told.contains("small/store"), "{output:?}");
    let json = std::fs::read_to_string(shell.path().join("out.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["phases"].as_array().unwrap().len(), 2, "{json}");
    assert!(std::fs::read_to_string(shell.path().join("out.html")).unwrap().contains("<h2>c</h2>"));
}

/// A pipe that nobody reads from the start on: a reader who went later might go after the first words.
fn unread() -> PipeWriter {
    std::io::pipe().unwrap().1
}

#[test]
fn a_benchmark_that_ends_in_a_file_goes_on_when_nobody_reads_what_it_prints() {
    let shell = Shell::new();
    let phases_of = |outputs: &str| {
        let args = format!("bench --records 20000 --ops 20000 --memory 8MiB --workload load,a,c{outputs}");
        let mut command = shell.command(&args.split(' ').collect::<Vec<_>>());
        let output = command.stdout(unread()).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let json = std::fs::read_to_string(shell.path().join("out.json")).ok()?;
        Some(serde_json::from_str::<serde_json::Value>(&json).unwrap()["phases"].as_array()?.len())
    };
    assert_eq!(phases_of(""), None);
    // It had not begun.
    assert!(!shell.path().join("cuesta-bench-data/fast/CUESTA").exists());
    assert_eq!(phases_of(" --json out.json"), Some(3));
    // Nor does it stop when somebody goes who read the first words.
    std::fs::remove_file(shell.path().join("out.json")).unwrap();
    let args = "bench --records 20000 --ops 20000 --memory 8MiB --workload load,a,c --json out.json";
    let mut command = shell.command(&args.split(' ').collect::<Vec<_>>());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    assert!(child.wait().unwrap().success() && shell.path().join("out.json").exists());
}

#[test]
fn a_trace_is_played_and_its_bad_lines_are_named() {
    let shell = Shell::new();
    shell.write(
        "trace.csv",
        "time,op,key,value_bytes\n0,put,a,100\n1,get,a,\n2,get,b,\n3,delete,a,\n4,get,a,\n",
    );
    let told = shell.ok(&["bench", "--trace", "trace.csv", "--json", "out.json"]);
    assert!(told.contains("a trace of 5 operations") && told.contains("2 reads found no value"), "{told}");
    let json = std::fs::read_to_string(shell.path().join("out.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["phases"][0]["result"]["operations"][0]["count"], 3, "{json}");
    shell.write("bad.csv", "0,put,a,100\n1,fly,a,\n");
    let (code, told) = shell.fails(&["bench", "--trace", "bad.csv"]);
    assert!(
        code == 6 && told.contains("bad.csv") && told.contains("line 2") && told.contains("fly"),
        "{told}"
    );
    assert_eq!(shell.fails(&["bench", "--trace", "absent.csv"]).0, 5);
}

#[test]
fn a_benchmark_takes_the_time_that_its_model_takes() {
    let shell = Shell::new();
    shell.write("slow.toml", "[fast]\npreset = \"qlc\"\nwrite = { median_us = 3000, p99_us = 3000 }\n");
    let args = [
        "bench",
        "--records",
        "50",
        "--ops",
        "1",
        "--threads",
        "1",
        "--workload",
        "load",
        "--json",
        "out.json",
    ];
    let told = shell.ok(&[&args[..], &["--model", "slow.toml"]].concat());
    assert!(told.contains("fast was modelled as qlc, changed"), "{told}");
    // Nearly all of the time is slept.
    assert!(told.contains("cuesta: valid"), "{told}");
    let json = std::fs::read_to_string(shell.path().join("out.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    // Each put under `Os` is a write call.
    let mean = json["phases"][0]["result"]["operations"][0]["latency"]["mean_us"].as_f64().unwrap();
    assert!(mean > 2500.0 && json["models"][0]["calls"].as_u64().unwrap() >= 50, "{mean}: {json}");
    let args = ["bench", "--records", "500", "--workload", "c", "--seconds", "0.05", "--warm-up", "0.02"];
    assert!(shell.ok(&args).contains("c: "));
    assert_eq!(shell.fails(&["bench", "--seconds", "0"]).0, 6);
    for model in ["capacity=floppy", "slow=qlc", "nowhere.toml"] {
        assert_eq!(shell.fails(&["bench", "--model", model]).0, 2);
    }
}

#[test]
fn a_key_is_explained() {
    let shell = Shell::new();
    shell.ok(&["put", "ridge", "steep"]);
    let told = shell.ok(&["explain", "ridge"]);
    assert!(told.contains("memtable in memory: #1 of 5 bytes, which answers"), "{told}");
    let json: serde_json::Value = serde_json::from_str(&shell.ok(&["explain", "ridge", "--json"])).unwrap();
    assert_eq!(json["holdings"][0]["versions"][0]["value_bytes"], 5, "{json}");
    assert!(shell.ok(&["explain", "slope"]).contains("no container has the key"));
}

#[test]
fn an_open_store_answers_its_owner_and_nobody_else() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let shell = Shell::new();
    let tiers = |name: &str| shell.path().join("cuesta-data").join(name);
    let options = Options::tiered(
        TierOptions::fast(tiers("fast"), 4 << 30),
        TierOptions::capacity(tiers("capacity"), 64 << 30),
    );
    let db = Db::open(&options).unwrap();
    db.create_keyspace("k").unwrap().put(b"there", b"2").unwrap();
    db.put(b"here", b"1").unwrap();
    let socket = tiers("fast").join("live.sock");
    let metadata = std::fs::metadata(&socket).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);

    let told = shell.ok(&["stats"]);
    assert!(told.contains("open, 2 keyspaces") && told.contains("0 gets, 2 writes"), "{told}");
    assert!(shell.ok(&["explain", "here"]).contains("memtable"));
    assert!(shell.ok(&["explain", "--keyspace", "k", "there"]).contains("memtable"));
    let (code, why) = shell.fails(&["explain", "--keyspace", "none", "there"]);
    assert!(code != 0 && why.contains("there is no keyspace \"none\""), "{why}");
    let told = shell.ok(&["top", "--interval", "0.1", "--times", "2"]);
    assert!(told.contains("a second   0 gets") && told.contains("tier 1"), "{told}");
    // What needs the store to itself still says so.
    assert_eq!(shell.fails(&["get", "here"]).0, 4);
    // Nonsense and silence harm nobody.
    drop(std::os::unix::net::UnixStream::connect(&socket).unwrap());
    assert!(shell.ok(&["stats"]).contains("state"));

    db.close().unwrap();
    assert!(!socket.exists());
    let (code, why) = shell.fails(&["top", "--times", "1"]);
    assert!(code != 0 && why.contains("no open store answers"), "{why}");
    assert_eq!(shell.ok(&["get", "here"]), "1");
}

#[test]
fn a_store_in_persistent_memory_is_a_store_like_others() {
    let shell = Shell::new();
    let lines = (0..20_000).map(|i| format!("{{\"key\":\"k{i:05}\",\"value\":\"{}\"}}\n", "7".repeat(200)));
    shell.write("lines", &lines.collect::<String>());
    let place = ["--pmem", "memory:64MiB", "--memory", "8MiB", "--max-floors", "4"];
    let with = |args: &[&'static str]| [args, &place].concat();
    let loaded = shell.run(&with(&["load", "--format", "dump", "--profile", "nvlsm", "lines"]));
    let told = String::from_utf8_lossy(&loaded.stderr);
    assert!(loaded.status.success() && told.contains("persistent memory is made durable by"), "{told}");
    assert_eq!(shell.ok(&with(&["get", "k00007"])), "7".repeat(200));
    assert_eq!(shell.ok(&with(&["scan", "--keys-only", "--reverse", "--limit", "1"])), "k19999\n");
    let explained = shell.run(&with(&["explain", "k00007"]));
    assert!(String::from_utf8_lossy(&explained.stdout).contains("which answers"));
    let told = String::from_utf8_lossy(&explained.stderr);
    assert!(told.contains("persistent memory is made durable by"), "{told}");
    assert!(shell.ok(&with(&["stats"])).contains("persistent memory: "));
    assert!(shell.ok(&with(&["verify"])).starts_with("no problem found"));
    assert!(shell.ok(&["inspect", "memory/PMEM"]).starts_with("persistent memory of "));
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    let table = explained.lines().find(|line| line.contains("which answers")).unwrap().split("table ").nth(1);
    let table: String = table.unwrap().chars().take_while(char::is_ascii_digit).collect();
    let told = shell.ok(&[&["inspect", "--table", &table], &place[..]].concat());
    assert!(told.contains("in persistent memory at") && told.contains("k00007 #"), "{told}");
    assert!(shell.fails(&["inspect"]).1.contains("--table"));
    let (code, why) = shell.fails(&with(&["get", "k00007", "--profile", "leveled"]));
    assert!(code != 0 && why.contains("is of profile nvlsm"), "{why}");

    let memory = shell.path().join("memory");
    let options = Options { floors_max: Some(4), ..Options::in_memory(&memory, 64 << 20) };
    let db = Db::open(&options).unwrap();
    assert_eq!(shell.fails(&with(&["get", "k00007"])).0, 4);
    db.close().unwrap();

    std::fs::OpenOptions::new().write(true).open(memory.join("PMEM")).unwrap().set_len(4096).unwrap();
    let (code, why) = shell.fails(&with(&["get", "k00007"]));
    assert!(code == 3 && why.contains("it was cut short"), "{code}: {why}");
}

#[test]
fn a_store_of_objects_in_slots_is_shown_by_every_command() {
    let shell = Shell::new();
    let with = |args: &[&'static str]| [args, &["--profile", "prismdb"]].concat();
    let pairs: String =
        (0..20).map(|i| format!("{{\"key\":\"k{i:05}\",\"value\":\"value {i}\"}}\n")).collect();
    shell.write("pairs", &pairs);
    shell.ok(&with(&["load", "--format", "dump", "pairs"]));
    shell.ok(&with(&["delete", "k00003"]));
    let tiers = ["fast", "capacity"].map(|name| shell.path().join("cuesta-data").join(name));
    let tiers = (TierOptions::fast(&tiers[0], 1 << 30), TierOptions::capacity(&tiers[1], 1 << 30));
    let db = Db::open(&Options { profile: None, ..Options::tiered(tiers.0, tiers.1) }).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let find = |tier: &str, kind: &str| {
        let listed = std::fs::read_dir(shell.path().join("cuesta-data").join(tier)).unwrap();
        let mut names = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        format!("cuesta-data/{tier}/{}", names.find(|name| name.starts_with(kind)).unwrap())
    };
    let told = shell.ok(&["inspect", &find("fast", "slab-")]);
    assert!(told.contains("slot 0, use ") && told.contains("k00007 #"), "{told}");
    let told = shell.ok(&["inspect", &find("capacity", "image-")]);
    assert!(told.contains("tracked keys") && told.contains("19 entries of the index"), "{told}");
    assert!(shell.ok(&with(&["verify"])).starts_with("no problem found"));
    let told = shell.ok(&with(&["explain", "k00007"]));
    assert!(told.contains("store, slab "), "{told}");
    // A tombstone is an object, too, unless nothing can be below it.
    let told = shell.ok(&with(&["stats"]));
    assert!(told.contains("store      19 objects in 1 slabs"), "{told}");
    assert_eq!(shell.ok(&with(&["get", "k00007"])), "value 7");
    assert_eq!(shell.fails(&with(&["get", "k00003"])).0, 1);
    assert_eq!(shell.ok(&with(&["scan", "--limit", "2", "--reverse"])).lines().count(), 2);
}

#[test]
fn a_store_that_is_killed_between_workloads_is_opened_with_its_log() {
    let shell = Shell::new();
    let told = shell.run(&[
        "repro",
        "nvlsm",
        "s64",
        "s64n",
        "--scale",
        "0.002",
        "--dir",
        "runs",
        "--results",
        "kept",
    ]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("s64.recovery"), "{told}");
    let rows: Vec<Vec<f64>> = told
        .lines()
        .filter_map(|line| line.trim().strip_prefix("before ")?.split_once(' '))
        .map(|(_, numbers)| numbers.split_whitespace().map(|number| number.parse().unwrap()).collect())
        .collect();
    assert_eq!(rows.len(), 3, "{told}");
    // Updates of the workload before are in the log.
    assert!(rows.iter().all(|row| row[0] >= row[1]) && rows[1][2] > 0.0, "{rows:?}");

    // What was claimed before another run fails is not lost.
    let damaged = shell.path().join("kept/nvlsm-block-scale0.002-seed1.json");
    std::fs::write(&damaged, "{").unwrap();
    let (code, why) = shell.fails(&[
        "repro",
        "nvlsm",
        "s64",
        "block",
        "--scale",
        "0.002",
        "--results",
        "kept",
        "--json",
        "claims.json",
    ]);
    assert!(code == 6 && why.contains("nvlsm-block-scale0.002-seed1.json"), "{why}");
    let claims = std::fs::read_to_string(shell.path().join("claims.json")).unwrap();
    assert!(claims.contains("s64.recovery"), "{claims}");
}

#[test]
fn unknown_peers_papers_and_missing_programs_are_named() {
    let shell = Shell::new();
    let (code, told) = shell.fails(&["bench", "--against", "leveldb"]);
    assert!(code == 6 && told.contains("leveldb") && told.contains("rocksdb, fjall, redb"), "{told}");
    // What peers cannot do, or ours would not be given.
    let (_, told) = shell.fails(&["bench", "--against", "redb", "--durability", "unlogged"]);
    assert!(told.contains("--durability must be os or sync"), "{told}");
    assert_eq!(shell.fails(&["bench", "--against", "redb", "--sector", "512"]).0, 2);
    let (code, told) = shell.fails(&["repro", "notapaper"]);
    assert!(code == 6 && told.contains("notapaper") && told.contains("prismdb"), "{told}");
    let (code, told) = shell.fails(&["repro", "prismdb", "fig99"]);
    assert!(code == 6 && told.contains("fig99") && told.contains("table2"), "{told}");
    // Before anything is run, and how large it has to be is right.
    let (code, told) = shell.fails(&["repro", "prismdb", "fig9", "--scale", "0.04"]);
    assert!(code == 6 && told.contains("prismdb-sync") && told.contains("at least 0.05"), "{told}");
    assert!(shell.ok(&["repro", "--list"]).contains("table2"));
    assert_eq!(shell.fails(&["repro"]).0, 2);
    let mut command =
        shell.command(&["bench", "--against", "redb", "--records", "100", "--workload", "load"]);
    let output = command.env("CUESTA_PEERS", "/nowhere/cuesta-peers").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("/nowhere/cuesta-peers") && told.contains("cargo build"), "{told}");
    // What a peer is set to is its own to know, and asked before anything is run.
    let mut command = shell.command(&["bench", "--against", "rocksdb:m9", "--records", "100000000"]);
    let output =
        command.env("CUESTA_PEERS", shell.script("refuses", "echo \"no $1\" >&2; exit 2")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(6) && told.contains("rocksdb:m9: no rocksdb:m9"), "{told}");
}

#[test]
fn what_was_measured_until_a_peer_failed_is_written() {
    let shell = Shell::new();
    let peer = shell
        .script("peer", "read line || exit 0\necho '{\"opened\":\"a peer that fails\"}'\nread line\nexit 3");
    let mut command = shell.command(&[
        "bench",
        "--against",
        "rocksdb",
        "--records",
        "2000",
        "--workload",
        "a",
        "--pairs",
        "1",
        "--seconds",
        "0.1",
        "--memory",
        "16MiB",
        "--fast-size",
        "16MiB",
        "--json",
        "out.json",
        "--report",
        "out.html",
    ]);
    let output = command.env("CUESTA_PEERS", &peer).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(6)
            && told.contains("rocksdb in /")
            && told.contains(" failed: it ended (exit status: 3)"),
        "{told}"
    );
    let json = std::fs::read_to_string(shell.path().join("out.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (turn, settings) = (&json["turns"][0], &json["contenders"][1]["settings"]["load"]);
    assert_eq!(
        (turn["contender"].as_str(), turn["records"].as_u64()),
        (Some("cuesta"), Some(2000)),
        "{json}"
    );
    assert_eq!(settings, "a peer that fails");
    let page = std::fs::read_to_string(shell.path().join("out.html")).unwrap();
    assert!(page.contains("<svg") && page.ends_with("</html>\n") && !page.contains("http-equiv"), "{page}");
    // Nor does it look as if the peer's figures had been checked.
    assert!(page.contains("not checked"), "{page}");
}

#[test]
fn an_experiment_goes_on_when_nobody_reads_what_it_prints() {
    let shell = Shell::new();
    let args = "repro nvlsm s64 --scale 0.002 --dir runs --results kept --json claims.json";
    let mut command = shell.command(&args.split(' ').collect::<Vec<_>>());
    let output = command.stdout(unread()).output().unwrap();
    let claims = std::fs::read_to_string(shell.path().join("claims.json")).unwrap();
    let claims: Vec<serde_json::Value> = serde_json::from_str(&claims).unwrap();
    assert!(!claims.is_empty());
    let code = if claims.iter().all(|claim| claim["met"] == true) { 0 } else { 7 };
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    for claim in &claims {
        assert_eq!(claim["scale"], 0.002, "{claim}");
        assert_eq!(claim["builds"][0].as_str().unwrap().len(), 16, "{claim}");
    }
    // Whole, under their names, and nothing beside them.
    let kept = std::fs::read_dir(shell.path().join("kept")).unwrap();
    let mut kept: Vec<_> = kept.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    kept.sort();
    assert!(kept.iter().all(|name| name.ends_with(".json") || name.ends_with(".html")), "{kept:?}");
    assert!(kept.iter().any(|name| name.contains("-scale0.002-seed1.json")), "{kept:?}");
    // What has another scale's name is not taken for it.
    for name in kept.iter().filter(|name| name.ends_with(".json")) {
        let other = shell.path().join("kept").join(name.replace("scale0.002", "scale0.003"));
        std::fs::copy(shell.path().join("kept").join(name), other).unwrap();
    }
    let again = |scale: &str| {
        let args = format!("repro nvlsm s64 --scale {scale} --dir runs --results kept");
        let output = shell.run(&args.split(' ').collect::<Vec<_>>());
        String::from_utf8(output.stdout).unwrap()
    };
    let (same, other) = (again("0.002"), again("0.003"));
    assert!(same.contains("was measured before") && !same.contains("measured anew"), "{same}");
    assert!(other.contains("measured anew") && !other.contains("was measured before"), "{other}");
}

#[test]
fn where_results_cannot_be_kept_an_experiment_is_not_begun() {
    let shell = Shell::new();
    shell.write("kept", "a file");
    let args = "repro nvlsm s64 --scale 0.002 --dir runs --results kept";
    let output = shell.run(&args.split(' ').collect::<Vec<_>>());
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(5) && why.contains("kept"), "{why}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(!told.contains("medians"), "{told}");
}
