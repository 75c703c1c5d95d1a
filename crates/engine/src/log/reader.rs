//! Reads records back at open, and decides where a chain of them ends.
//!
//! The log may end anywhere: the writes of the last moments before a power cut arrive in part, in any order. So at
//! the first place X that does not hold a whole record the question is whether anything before the crash had been
//! promised beyond X. Every intact header says how far the log was durable when it was written, and a clean close
//! says it in the superblock. The highest such position anywhere, beyond X too, answers:
//!
//! * above X: something durable is damaged. That is corruption, and the store refuses to open.
//! * at or below X: a torn tail. Replay stops at X for good, also where intact records follow, since the commit
//!   order would have a hole otherwise. The caller makes that cut durable before anything is acknowledged.
//!
//! Time is linear in the log's bytes; beyond damage, headers are looked for at every eighth byte.

use crate::error::{Error, Result};
use crate::format::coding::NUMBER_MAX;
use crate::format::file::{HEADER_BYTES, check_header};
use crate::format::record::{
    RECORD_ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, RecordKind, decode_record_header,
};
use crate::format::window::Window;
use crate::format::{FileId, FileKind, Place, Position, StoreId};
use crate::key::Seq;
use crate::planted::{self, Bug};
use cuesta_device::Device;
use std::sync::Arc;

/// What a replay found.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Where the last record that counts ends.
    pub(crate) end: Position,
    /// Whether appending at `end` is safe: no intact record lies beyond it.
    pub(crate) resumable: bool,
    /// Number of the last entry; what the caller passed when there was none.
    pub(crate) last_seq: Seq,
    /// Bytes of records read.
    pub(crate) bytes: u64,
}

/// One step through a file's records.
#[derive(Debug)]
pub(crate) enum Step {
    /// A whole record; its payload can be had from [`RecordReader::payload`].
    Record(RecordHeader),
    /// No whole record here: the end, or damage, described.
    Bad(String),
}

/// Walks the records of one file.
#[derive(Debug)]
pub(crate) struct RecordReader {
    window: Window,
    place: Place,
    payload: (u64, usize),
}

impl RecordReader {
    /// At the first record of `file`, whose header has been checked.
    pub(crate) fn open(store: StoreId, file: FileId, device: Arc<dyn Device>) -> Result<Self> {
        let mut window = Window::new(device, file)?;
        check_header(window.at(0, HEADER_BYTES)?, store, file)?;
        Ok(Self { window, place: Place { store, file, offset: HEADER_BYTES as u64 }, payload: (0, 0) })
    }

    pub(crate) fn position(&self) -> Position {
        Position { file: self.place.file.number, offset: self.place.offset }
    }

    /// Where the next record would begin.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Moves past the record at the present place if it is whole.
    pub(crate) fn step(&mut self) -> Result<Step> {
        let offset = self.place.offset;
        let header = match decode_record_header(self.window.at(offset, RECORD_HEADER_BYTES)?, self.place) {
            Ok(header) => header,
            Err(malformed) => return Ok(Step::Bad(malformed.to_string())),
        };
        let at = offset + RECORD_HEADER_BYTES as u64;
        let body = header.stored_bytes() - RECORD_HEADER_BYTES;
        let bytes = self.window.at(at, body)?;
        if bytes.len() < body {
            return Ok(Step::Bad(format!("the file ends within a record of {body} bytes")));
        }
        let (payload, padding) = bytes.split_at(header.payload_bytes);
        if !header.covers(self.place, payload) {
            return Ok(Step::Bad("a record's payload does not match its checksum".to_owned()));
        }
        if padding.iter().any(|byte| *byte != 0) {
            return Ok(Step::Bad("a record's padding is not zero".to_owned()));
        }
        self.payload = (at, header.payload_bytes);
        self.place.offset += header.stored_bytes() as u64;
        Ok(Step::Record(header))
    }

    /// The payload of the record last stepped over.
    pub(crate) fn payload(&mut self) -> Result<&[u8]> {
        self.window.at(self.payload.0, self.payload.1)
    }

    /// The first byte at or after the present place that is not zero.
    pub(crate) fn first_nonzero(&mut self) -> Result<Option<u64>> {
        let mut at = self.place.offset;
        while at < self.window.len() {
            let bytes = self.window.at(at, 1 << 16)?;
            if let Some(i) = bytes.iter().position(|byte| *byte != 0) {
                return Ok(Some(at + i as u64));
            }
            at += bytes.len() as u64;
        }
        Ok(None)
    }

    /// A planted bug's way past damage: to the next intact header, if there is one.
    fn skip_damage(&mut self) -> Result<bool> {
        let mut at = self.place.offset + RECORD_ALIGNMENT as u64;
        while at + RECORD_HEADER_BYTES as u64 <= self.window.len() {
            let place = self.place.at(at);
            if decode_record_header(self.window.at(at, RECORD_HEADER_BYTES)?, place).is_ok() {
                self.place = place;
                return Ok(true);
            }
            at += RECORD_ALIGNMENT as u64;
        }
        Ok(false)
    }

    /// Looks for intact headers from the present place on, at any alignment a record can have: the highest durable
    /// position they name, if there are any.
    fn highest_beyond(&mut self) -> Result<Option<Position>> {
        let mut highest = None;
        let mut at = self.place.offset;
        while at + RECORD_HEADER_BYTES as u64 <= self.window.len() {
            let bytes = self.window.at(at, 1 << 16)?;
            let steps = (bytes.len().saturating_sub(RECORD_HEADER_BYTES)) / RECORD_ALIGNMENT + 1;
            for i in (0..steps).map(|i| i * RECORD_ALIGNMENT) {
                let place = self.place.at(at + i as u64);
                if let Ok(header) = decode_record_header(&bytes[i..], place) {
                    highest = highest.max(Some(header.durable));
                }
            }
            at += (steps * RECORD_ALIGNMENT) as u64;
        }
        Ok(highest)
    }
}

/// Where the chain begins, what is known of it beforehand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<'a> {
    pub(crate) store: StoreId,
    pub(crate) kind: FileKind,
    /// Number of the first file.
    pub(crate) first: u64,
    /// Numbers of the files that exist, in order; those before `first` do not count.
    pub(crate) present: &'a [u64],
    /// Everything before this is known to have been durable.
    pub(crate) floor: Position,
    /// Entries up to this number are in tables or in earlier records.
    pub(crate) last_seq: Seq,
}

/// Takes a record: its kind, its header, its payload.
pub(crate) type Apply<'a> = &'a mut dyn FnMut(RecordKind, &RecordHeader, &[u8]) -> Result<()>;

/// Hands each record of a chain to `apply`, in order, and finds where it ends.
///
/// # Errors
/// `Corrupt` when something that was durable is damaged or missing; what `apply` or the device says.
pub(crate) fn replay(
    chain: Chain<'_>,
    open: &dyn Fn(FileId) -> Result<Arc<dyn Device>>,
    apply: Apply<'_>,
) -> Result<Replayed> {
    let mut number = chain.first;
    let mut replayed = Replayed {
        end: Position { file: number, offset: HEADER_BYTES as u64 },
        resumable: true,
        last_seq: chain.last_seq,
        bytes: 0,
    };
    loop {
        let file = FileId::new(chain.kind, number);
        if !chain.present.contains(&number) {
            return Err(Error::corrupt(file.to_string(), 0, "the file is missing"));
        }
        let mut reader = RecordReader::open(chain.store, file, open(file)?)?;
        let bad = loop {
            let before = reader.place();
            let header = match reader.step()? {
                Step::Record(header) => header,
                Step::Bad(_) if planted::has(Bug::HoleInReplay) && reader.skip_damage()? => continue,
                Step::Bad(why) => break Some(why),
            };
            let kind = header.known_kind(file)?;
            if kind == Some(RecordKind::Batch) && header.first_seq <= replayed.last_seq {
                // What a failed append left behind; its numbers were given out again.
                reader.place = before;
                break Some(format!("record {:?} is older than what it follows", header.first_seq));
            }
            replayed.bytes += header.stored_bytes() as u64;
            replayed.end = reader.position();
            if kind == Some(RecordKind::Seal) {
                number = sealed_successor(&file, reader.payload()?, before.offset)?;
                // The chain ends in the next file from here on, even if that has no record yet.
                replayed.end = Position { file: number, offset: HEADER_BYTES as u64 };
                break None;
            }
            if kind == Some(RecordKind::Batch) && header.entries > 0 {
                replayed.last_seq = Seq(header.first_seq.0 + u64::from(header.entries) - 1);
            }
            if let Some(kind) = kind {
                apply(kind, &header, reader.payload()?)?;
            }
        };
        if let Some(why) = bad {
            let beyond = highest_beyond(&chain, &mut reader, number, open)?;
            replayed.resumable = beyond.is_none();
            let durable = beyond.unwrap_or_default().max(chain.floor);
            if durable > replayed.end {
                let found = format!(
                    "{why}, though everything before {}:{} was durable",
                    durable.file, durable.offset
                );
                return Err(Error::corrupt(file.to_string(), replayed.end.offset, found));
            }
            return Ok(replayed);
        }
    }
}

/// Checks a record of the log that says where the manifest ended, which ends at `end` now.
///
/// # Errors
/// `Corrupt` when the manifest was longer.
pub(crate) fn check_manifest_end(end: Position, payload: &[u8]) -> Result<()> {
    let found = payload.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect::<Vec<_>>();
    match found[..] {
        [file, offset] if end >= Position { file, offset } => Ok(()),
        [file, offset] => {
            let file = FileId::new(FileKind::Manifest, file);
            let why = format!("the manifest ends before byte {offset} of {file}, up to where it was durable");
            Err(Error::corrupt(FileId::new(FileKind::Manifest, end.file).to_string(), end.offset, why))
        }
        _ => Err(Error::corrupt("log", 0, "a record that names no end of the manifest")),
    }
}

/// The file that a seal names.
fn sealed_successor(file: &FileId, payload: &[u8], offset: u64) -> Result<u64> {
    match <[u8; 8]>::try_from(payload).map(u64::from_le_bytes) {
        Ok(next) if next > file.number && next <= NUMBER_MAX => Ok(next),
        _ => Err(Error::corrupt(file.to_string(), offset, "a seal that names no later file")),
    }
}

/// The highest durable position named by any intact record after the point where `reader` stopped: in the rest of
/// its file, and in all later files.
fn highest_beyond(
    chain: &Chain<'_>,
    reader: &mut RecordReader,
    number: u64,
    open: &dyn Fn(FileId) -> Result<Arc<dyn Device>>,
) -> Result<Option<Position>> {
    let mut highest = reader.highest_beyond()?;
    for later in chain.present.iter().filter(|later| **later > number) {
        let file = FileId::new(chain.kind, *later);
        let place = Place { store: chain.store, file, offset: HEADER_BYTES as u64 };
        let mut later = RecordReader { window: Window::new(open(file)?, file)?, place, payload: (0, 0) };
        highest = highest.max(later.highest_beyond()?);
    }
    Ok(highest)
}
