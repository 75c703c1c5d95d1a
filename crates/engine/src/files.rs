//! Looking at a store's files from outside: [`verify`] reads every byte of every file of a closed store and says what
//! is wrong; [`inspect`] prints any one file in words, [`inspect_table`] any one table.

use crate::engine::open::{self, World};
use crate::engine::store::read_image;
use crate::error::{Error, ErrorKind, Result};
use crate::format::file::{BadHeader, FORMAT_VERSION, HEADER_BYTES, decode_header};
use crate::format::record::{RecordHeader, RecordKind};
use crate::format::window::Window;
use crate::format::{FileId, FileKind, Place, Position};
use crate::key::Entry;
use crate::log::{BatchEntries, RecordReader, Replayed, Step, check_manifest_end, replay};
use crate::options::{Create, Options};
use crate::store::{Object, SHAPE_BYTES, Slab, SlabMeta, SlabState, decode_slot};
use crate::table::{Table, describe_meta, walk_alone};
use crate::tier::{MEMORY_NAME, Tiers, open_directories};
use crate::version::Edit;
use crate::version::superblock::Superblock;
use cuesta_device::{Access, Cause, Device, Directory, FileDirectory};
use cuesta_sched::Sched;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// How far a verification is.
#[derive(Clone, Debug)]
pub struct VerifyProgress {
    /// The file being read.
    pub file: String,
    /// Bytes read so far, of all files.
    pub bytes_done: u64,
    /// Bytes there are.
    pub bytes_total: u64,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Tier's place and file's name.
    pub file: String,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// What was found.
    pub message: String,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Empty for a sound store.
    pub problems: Vec<Problem>,
}

impl VerifyReport {
    /// As [`VerifyReport::note`], of a file of which the medium may be unable to read some.
    fn note_of(&mut self, file: &str, error: Error) -> Result<()> {
        match error.is_damage() && !error.is_corrupt() {
            true => {
                let message = error.to_string();
                self.problems.push(Problem { file: file.to_owned(), offset: 0, message });
                Ok(())
            }
            false => self.note(error),
        }
    }

    /// Takes an error in that is about a file's content; any other ends the verification.
    fn note(&mut self, error: Error) -> Result<()> {
        match error.kind().clone() {
            ErrorKind::Corrupt { file, offset } => {
                self.problems.push(Problem { file, offset, message: error.to_string() });
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Reads every byte of a store's files and checks it. The store must be closed.
///
/// # Errors
/// `Locked`, `NotFound`, `Io`, `Invalid`; damage is not an error but part of the report.
pub fn verify(options: &Options, progress: &mut dyn FnMut(&VerifyProgress)) -> Result<VerifyReport> {
    let (options, world) = here(options)?;
    verify_in(&options, world, progress)
}

/// The world of a store that must be there, on the operating system.
pub(crate) fn here(options: &Options) -> Result<(Options, World)> {
    let options = Options { create: Create::Never, ..options.clone() };
    options.validate()?;
    let sched = Sched::real(1);
    let directories = open_directories(&sched, &options)?;
    Ok((options, World { sched, directories }))
}

/// What a store's files hold, with its locks held.
fn find(options: &Options) -> Result<open::Found> {
    let (options, world) = here(options)?;
    let (tiers, locks) = locked(&options, &world)?;
    open::find(&options, &world, tiers, locks)
}

/// The tiers of a store that is there, locked.
pub(crate) fn locked(options: &Options, world: &World) -> Result<(Arc<Tiers>, open::Locks)> {
    let tiers = open::tiers(options, world)?;
    let locks = open::lock(&tiers)?;
    if open::read_superblocks(&tiers).is_ok_and(|found| found.iter().all(Option::is_none)) {
        let place = tiers.fast().directory.place();
        return Err(Error::new(ErrorKind::NotFound, format!("there is no store in {place}")));
    }
    Ok((tiers, locks))
}

/// As [`verify`], in a world that is handed in.
pub fn verify_in(
    options: &Options,
    world: World,
    progress: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport> {
    let options = Options { create: Create::Never, ..options.clone() };
    options.validate()?;
    let (tiers, locks) = locked(&options, &world)?;
    let mut report = VerifyReport::default();
    check_superblock_slots(&tiers, &mut report)?;
    let found = match open::find(&options, &world, tiers, locks) {
        Ok(found) => found,
        Err(error) => {
            report.note(error)?;
            return Ok(report);
        }
    };
    let total = found.listed.iter().flatten().map(|file| file.bytes).sum();
    let mut told = VerifyProgress { file: String::new(), bytes_done: 0, bytes_total: total };
    verify_manifest(&found, &mut report)?;
    verify_logs(&found, &mut report)?;
    for handle in found.catalog.version.tables() {
        told.file = FileId::new(FileKind::Data, handle.meta.number).to_string();
        progress(&told);
        // Through the handle first, which checks the table against the manifest; then through devices of our own.
        let opened = handle.table().and_then(|_| handle.open(Cause::Verify, Cause::Verify));
        let checked = opened.and_then(|table| {
            table.verify(&mut |bytes| {
                told.bytes_done += bytes;
                progress(&told);
            })
        });
        checked.or_else(|error| report.note_of(&told.file, error))?;
    }
    verify_slabs(&found, &mut report, &mut told, progress)?;
    let listed = |image: u64| {
        let name = FileId::new(FileKind::Image, image).to_string();
        found.listed.iter().flatten().any(|file| file.name == name)
    };
    // An open that did not get to its first edit has removed it.
    if let Some(image) = found.catalog.image.filter(|image| listed(*image)) {
        let read = read_image(&found.tiers, found.tables.store, image, &found.catalog.slabs, Cause::Verify);
        read.map(drop).or_else(|error| report.note(error))?;
    }
    // After a crash there may be files that the next open removes; after a clean close there are none.
    let superblock = found.superblocks[0];
    if superblock.log_end != Position::default() {
        for (tier, file, _) in found.orphans(superblock.log_end.file, found.manifest.end.file) {
            let name = format!("{}/{file}", tier.directory.place());
            report.note(Error::corrupt(name, 0, "nothing names this file"))?;
        }
    }
    report.files = found.listed.iter().map(|files| files.len() as u64).sum();
    report.bytes = total;
    Ok(report)
}

/// Opening is content with one whole slot; verification wants both.
fn check_superblock_slots(tiers: &Tiers, report: &mut VerifyReport) -> Result<()> {
    for tier in &tiers.all {
        let name = crate::format::file::SUPERBLOCK_NAME;
        let Ok(device) = tier.directory.open(name, Access::Buffered) else { continue };
        let mut window = Window::new(device, FileId::new(FileKind::Superblock, 0))?;
        let len = window.len() as usize;
        for (slot, described) in Superblock::describe(window.at(0, len)?).into_iter().enumerate() {
            if let Err(why) = described {
                let file = format!("{}/{name}", tier.directory.place());
                let offset = (slot * crate::version::superblock::SLOT_BYTES) as u64;
                report.note(Error::corrupt(file, offset, format!("copy {slot} of the superblock: {why}")))?;
            }
        }
    }
    Ok(())
}

fn open_on_fast(found: &open::Found, file: FileId) -> Result<Arc<dyn Device>> {
    let directory = &found.tiers.fast().directory;
    let fail = |source| Error::io(format!("open {file} in {}", directory.place()), source);
    Ok(found.tiers.metered(
        directory.open(&file.to_string(), Access::Buffered).map_err(fail)?,
        0,
        Cause::Verify,
    ))
}

/// The records were read to find the tables; behind them there must be nothing.
fn verify_manifest(found: &open::Found, report: &mut VerifyReport) -> Result<()> {
    let file = FileId::new(FileKind::Manifest, found.manifest.end.file);
    let mut reader = RecordReader::open(found.tables.store, file, open_on_fast(found, file)?)?;
    while let Step::Record(_) = reader.step()? {}
    nothing_follows(&mut reader, &file, report)
}

/// Whether anything lies behind the last whole record of the manifest: after a crash, what was torn then, or what was
/// damaged since.
pub(crate) fn manifest_goes_on(found: &open::Found) -> Result<bool> {
    let file = FileId::new(FileKind::Manifest, found.manifest.end.file);
    let mut reader = RecordReader::open(found.tables.store, file, open_on_fast(found, file)?)?;
    while let Step::Record(_) = reader.step()? {}
    Ok(reader.first_nonzero()?.is_some())
}

fn nothing_follows(reader: &mut RecordReader, file: &FileId, report: &mut VerifyReport) -> Result<()> {
    match reader.first_nonzero()? {
        Some(at) => report.note(Error::corrupt(file.to_string(), at, "bytes behind the last record")),
        None => Ok(()),
    }
}

/// Reads the log as an open does.
pub(crate) fn check_logs(found: &open::Found) -> Result<Replayed> {
    let present = open::log_numbers(&found.listed[0]);
    let mut apply = |kind: RecordKind, header: &RecordHeader, payload: &[u8]| {
        if kind == RecordKind::ManifestEnd {
            return check_manifest_end(found.manifest.end, payload);
        }
        let mut entries = BatchEntries::new(payload, header.first_seq);
        let mut seen = 0;
        let corrupt =
            |why| Error::corrupt(format!("log record {:?}", header.first_seq), header.durable.offset, why);
        while entries.next().map_err(|malformed| corrupt(malformed.to_string()))?.is_some() {
            seen += 1;
        }
        // Without a payload it is of numbers that nobody got.
        match seen == header.entries || payload.is_empty() {
            true => Ok(()),
            false => Err(corrupt(format!("{seen} entries, {} were written", header.entries))),
        }
    };
    replay(found.chain(&present), &|file| open_on_fast(found, file), &mut apply)
}

fn verify_logs(found: &open::Found, report: &mut VerifyReport) -> Result<()> {
    let superblock = found.superblocks[0];
    let replayed = match check_logs(found) {
        Ok(replayed) => replayed,
        Err(error) => return report.note(error),
    };
    found.check_announced().or_else(|error| report.note(error))?;
    // After a clean close nothing lies behind the end; after a crash stale records of a recycled file may.
    if superblock.log_end != Position::default() {
        let file = FileId::new(FileKind::Log, replayed.end.file);
        let mut reader = RecordReader::open(found.tables.store, file, open_on_fast(found, file)?)?;
        while let Step::Record(_) = reader.step()? {}
        return nothing_follows(&mut reader, &file, report);
    }
    Ok(())
}

/// Every live slot, with its value; what is in others counts for nothing.
fn verify_slabs(
    found: &open::Found,
    report: &mut VerifyReport,
    told: &mut VerifyProgress,
    progress: &mut dyn FnMut(&VerifyProgress),
) -> Result<()> {
    for SlabState { meta, live, generations } in found.catalog.slabs.values() {
        told.file = meta.file().to_string();
        progress(told);
        let (garbage, store) = (&found.tables.garbage, found.tables.store);
        let opened = Slab::open(&found.tiers, garbage, store, *meta, generations);
        let mut noted = Ok(());
        let checked = opened.and_then(|slab| {
            if let Some(flaw) = slab.flaw() {
                noted = report.note(flaw.clone());
            }
            if slab.lost().is_some() {
                return Ok(());
            }
            let slots: Vec<u32> = live.iter().collect();
            slab.read_slots(&found.tiers, &slots, Cause::Verify, &mut |slot, bytes| {
                if let Err(error) = bytes.and_then(|bytes| slab.decode(slot, bytes)) {
                    noted = std::mem::replace(&mut noted, Ok(())).and_then(|()| report.note(error));
                }
            })
        });
        noted?;
        checked.or_else(|error| report.note(error))?;
        told.bytes_done += meta.file_bytes();
        progress(told);
    }
    Ok(())
}

/// Every object that a slab's file shows, slot by slot.
fn describe_slab(place: Place, device: Arc<dyn Device>, out: &mut dyn Write) -> Result<()> {
    let mut window = Window::new(device, place.file)?;
    let corrupt = |offset: u64, why| Error::corrupt(place.file.to_string(), offset, why);
    let shape = window.at(HEADER_BYTES as u64, SHAPE_BYTES)?;
    let meta = SlabMeta::decode_shape(shape, place.store, place.file.number)
        .map_err(|malformed| corrupt(HEADER_BYTES as u64, malformed))?;
    say(out, format_args!("{meta}; the manifest says which are live\n"))?;
    for slot in 0..meta.slots {
        let offset = meta.offset(slot);
        let bytes = window.at(offset, meta.slot_bytes as usize)?;
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        match decode_slot(bytes, place.at(offset)) {
            Ok(Object { entry, generation, .. }) => {
                let entry = short(&format!("{entry:?}"));
                say(out, format_args!("{offset}: slot {slot}, use {generation}: {entry}\n"))?;
            }
            Err(why) => say(out, format_args!("{offset}: slot {slot}: no object: {why}\n"))?,
        }
    }
    Ok(())
}

/// Prints one file of a store in words. A table's data part is read by what its meta part says: the file `meta`, or
/// else the one of that name beside it, and without it where there is none. Of persistent memory it says where to look:
/// what its pieces are is in the manifest.
///
/// # Errors
/// `NotFound`, `Io`, `Unsupported` for a newer format, `Corrupt` for a damaged or foreign file.
pub fn inspect(path: &Path, meta: Option<&Path>, out: &mut dyn Write) -> Result<()> {
    let device = open_file(path)?;
    if path.file_name().is_some_and(|name| name == MEMORY_NAME) {
        let bytes =
            device.len().map_err(|source| Error::io(format!("inspect {}", path.display()), source))?;
        return say(
            out,
            format_args!(
                "persistent memory of {bytes} bytes, in which tables lie; the store's manifest names them and their places, \
                 `inspect --table` prints one, and `verify` reads all of them\n"
            ),
        );
    }
    let open_meta = |file: FileId| {
        let beside = path.with_file_name(file.to_string());
        match open_file(meta.unwrap_or(&beside)) {
            Err(error) if *error.kind() == ErrorKind::NotFound && meta.is_none() => Ok(None),
            opened => opened.map(Some),
        }
    };
    inspect_device(&path.display().to_string(), device, &open_meta, out)
}

/// Prints a table of a store in words, wherever its parts are: what the manifest and the table say of it, then its
/// entries; of a floor in persistent memory, where each points. The store must be closed.
///
/// # Errors
/// `Locked`, `NotFound` where there is no such store or table, `Io`, `Invalid`, `Corrupt`.
pub fn inspect_table(options: &Options, number: u64, out: &mut dyn Write) -> Result<()> {
    let found = find(options)?;
    let levels = found.catalog.version.levels.iter().enumerate();
    let tables = levels.flat_map(|(level, of)| of.tables().map(move |table| (level, table)));
    let by_number: BTreeMap<u64, _> =
        tables.map(|(level, table)| (table.meta.number, (level, table))).collect();
    let Some((level, handle)) = by_number.get(&number) else {
        let there = match (by_number.first_key_value(), by_number.last_key_value()) {
            (Some((first, _)), Some((last, _))) => {
                format!("{} tables, numbers {first} to {last}", by_number.len())
            }
            _ => "no tables".to_owned(),
        };
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("the store has no table {number}; it has {there}"),
        ));
    };
    say(out, format_args!("level {level}, table {number}, as the manifest has it:\n"))?;
    for (part, (tier, file, bytes)) in handle.meta.parts().into_iter().enumerate() {
        let pieces = handle.meta.memory.as_ref().map(|memory| &memory.places[part]);
        let place = pieces.map_or(String::new(), |pieces| format!(", in persistent memory at {pieces:?}"));
        say(out, format_args!("  {file} of {bytes} bytes on tier {tier}{place}\n"))?;
    }
    let table = handle.table()?;
    table.describe(&mut |line| say(out, format_args!("{}\n", short(line))))
}

/// Opens one file, wherever it is.
fn open_file(path: &Path) -> Result<Arc<dyn Device>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(Error::invalid(format!("{} names no file", path.display())));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let fail = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("there is no file {}", path.display()))
        }
        _ => Error::io(format!("open {}", path.display()), source),
    };
    FileDirectory::open_existing(parent)
        .and_then(|directory| directory.open(name, Access::Buffered))
        .map_err(fail)
}

fn inspect_device(
    name: &str,
    device: Arc<dyn Device>,
    open_meta: &dyn Fn(FileId) -> Result<Option<Arc<dyn Device>>>,
    out: &mut dyn Write,
) -> Result<()> {
    let mut window = Window::new(device.clone(), FileId::new(FileKind::Superblock, 0))?;
    let len = window.len();
    let head = window.at(0, HEADER_BYTES)?;
    if head.starts_with(b"CUESTASB") {
        let slots = Superblock::describe(window.at(0, len as usize)?);
        return slots.into_iter().enumerate().try_for_each(|(slot, described)| match described {
            Ok(found) => say(out, format_args!("copy {slot}: {found}\n")),
            Err(why) => say(out, format_args!("copy {slot}: damaged: {why}\n")),
        });
    }
    let (store, file) = match decode_header(head) {
        Ok(found) => found,
        Err(BadHeader::Version(version)) => {
            let why = format!("{name} is of format {version}; this version reads format {FORMAT_VERSION}");
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        Err(BadHeader::Malformed(malformed)) => return Err(Error::corrupt(name, 0, malformed)),
    };
    say(out, format_args!("{file} of store {store}, format {FORMAT_VERSION}, {len} bytes\n"))?;
    match file.kind {
        FileKind::Log | FileKind::Manifest | FileKind::Image => {
            describe_records(RecordReader::open(store, file, device)?, file, out)
        }
        FileKind::Meta => describe_meta(Place { store, file, offset: 0 }, device, out),
        FileKind::Data => {
            let meta = open_meta(FileId::new(FileKind::Meta, file.number))?;
            if meta.is_none() {
                say(
                    out,
                    format_args!(
                        "its meta part is not beside it, and nobody said where it is: blocks are told by their checksums\n"
                    ),
                )?;
            }
            let describe =
                &mut |entry: Entry<'_>| say(out, format_args!("{}\n", short(&format!("{entry:?}"))));
            match meta {
                Some(meta) => {
                    Table::open(store, file.number, (device, meta), None, Arc::default())?.walk(describe)
                }
                None => walk_alone(Place { store, file, offset: 0 }, device, describe),
            }
        }
        FileKind::Slab => describe_slab(Place { store, file, offset: 0 }, device, out),
        FileKind::Superblock => Err(Error::corrupt(name, 0, "a superblock with a file header")),
    }
}

fn say(out: &mut dyn Write, text: fmt::Arguments<'_>) -> Result<()> {
    out.write_fmt(text).map_err(|_| Error::internal("the output failed"))
}

fn describe_records(mut reader: RecordReader, file: FileId, out: &mut dyn Write) -> Result<()> {
    loop {
        let at = reader.position().offset;
        let header = match reader.step()? {
            Step::Record(header) => header,
            Step::Bad(why) => {
                return match reader.first_nonzero()? {
                    None => say(out, format_args!("{at}: end\n")),
                    Some(_) => say(out, format_args!("{at}: no further record: {why}\n")),
                };
            }
        };
        let durable = header.durable;
        let bytes = header.stored_bytes();
        let payload = reader.payload()?;
        match header.known_kind(file)? {
            None => say(out, format_args!("{at}: a record of a newer version, {bytes} bytes\n"))?,
            Some(RecordKind::Batch) => {
                let (first, n) = (header.first_seq, header.entries);
                say(
                    out,
                    format_args!(
                        "{at}: batch of {n} entries from {first:?}, {bytes} bytes, durable up to {}:{}\n",
                        durable.file, durable.offset
                    ),
                )?;
                let mut entries = BatchEntries::new(payload, header.first_seq);
                loop {
                    match entries.next() {
                        Ok(Some(entry)) => say(out, format_args!("    {}\n", short(&format!("{entry:?}"))))?,
                        Ok(None) => break,
                        Err(malformed) => return Err(Error::corrupt(file.to_string(), at, malformed)),
                    }
                }
            }
            Some(RecordKind::Seal) => say(out, format_args!("{at}: seal, the log goes on in {payload:?}\n"))?,
            Some(RecordKind::ManifestEnd) => {
                say(out, format_args!("{at}: the manifest was durable up to {payload:?}\n"))?;
            }
            Some(RecordKind::Heat) => say(out, format_args!("{at}: {} tracked keys\n", bytes / 8))?,
            Some(RecordKind::Counts) => say(out, format_args!("{at}: counts of {} keys\n", bytes / 2))?,
            Some(RecordKind::Index) => {
                let n = header.entries;
                say(out, format_args!("{at}: {n} entries of the index, {bytes} bytes\n"))?;
            }
            Some(RecordKind::Edit) => {
                let edit = Edit::decode(payload, &file.to_string(), at)?;
                say(out, format_args!("{at}: edit, {bytes} bytes: {edit}\n"))?;
            }
        }
    }
}

/// At most one line's worth.
fn short(text: &str) -> String {
    const CHARS_MAX: usize = 160;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
