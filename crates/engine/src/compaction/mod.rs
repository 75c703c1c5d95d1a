//! The executor: carries a plan out, and writes what a flush or a merge leaves.
//!
//! [`write_tables`] walks one sorted input and writes disjoint tables; [`Retain`] says which entries stay. Tables
//! are cut between keys, never between versions of one. Outputs are durable, names included, when it returns; if it
//! fails, it removes what it made and the plan can be tried again from the start.
//!
//! Memory is a table writer's buffers and the inputs' read-ahead; each entry is copied once, into the block being
//! built.

pub(crate) mod retain;

use crate::error::Result;
use crate::format::{FileId, FileKind, StoreId};
use crate::key::{Cursor, Target};
use crate::planted::{self, Bug};
use crate::table::{TableWriter, WriterOptions};
use crate::tier::Tiers;
use crate::version::TableMeta;
use cuesta_device::Cause;
pub(crate) use retain::Retain;

/// How outputs are to be made.
pub(crate) struct OutputOptions<'a> {
    pub(crate) store: StoreId,
    pub(crate) tiers: &'a Tiers,
    pub(crate) cause: Cause,
    /// Tier of the data parts. Meta parts go to the first tier.
    pub(crate) data_tier: u32,
    /// Data parts are cut at this size.
    pub(crate) table_bytes: u64,
    pub(crate) block_bytes: u32,
    /// Gives numbers to new files.
    pub(crate) take_number: &'a dyn Fn() -> u64,
    /// Asked now and then; work stops with its error.
    pub(crate) check: &'a dyn Fn() -> Result<()>,
}

/// Entries between two looks at whether the store is closing.
const CHECK_ENTRIES: u64 = 4096;

/// Writes what `retain` keeps of `input`, from its first entry on, into new tables.
///
/// # Errors
/// What the input, the devices or `options.check` say; no output is left then.
pub(crate) fn write_tables(
    input: &mut dyn Cursor,
    retain: &mut Retain,
    options: &OutputOptions<'_>,
) -> Result<Vec<TableMeta>> {
    let mut outputs = Outputs { options, made: Vec::new(), done: Vec::new(), writer: None };
    let written = outputs.write(input, retain);
    if written.is_err() {
        outputs.discard();
    }
    written.map(|()| outputs.done)
}

struct Outputs<'a> {
    options: &'a OutputOptions<'a>,
    /// Numbers of all tables begun.
    made: Vec<u64>,
    done: Vec<TableMeta>,
    writer: Option<TableWriter>,
}

impl Outputs<'_> {
    fn write(&mut self, input: &mut dyn Cursor, retain: &mut Retain) -> Result<()> {
        input.go(Target::First)?;
        let mut seen = 0u64;
        while let Some(entry) = input.entry() {
            let new_key = retain.is_new_key(entry.key);
            let lost = planted::has(Bug::MergeLosesAnEntry) && seen == 30;
            if retain.keeps(entry.key, entry.trailer) && !lost {
                if new_key && self.writer.as_ref().is_some_and(|w| w.data_bytes() >= self.options.table_bytes)
                {
                    self.finish_table()?;
                }
                let writer = match &mut self.writer {
                    Some(writer) => writer,
                    None => {
                        let begun = self.begin_table()?;
                        self.writer.insert(begun)
                    }
                };
                writer.add(entry)?;
            }
            input.next()?;
            seen += 1;
            if seen.is_multiple_of(CHECK_ENTRIES) {
                (self.options.check)()?;
            }
        }
        self.finish_table()?;
        if !self.done.is_empty() && !planted::has(Bug::TableNamesSyncDropped) {
            let tiers = self.options.tiers;
            tiers.get(self.options.data_tier)?.sync_names()?;
            if self.options.data_tier != 0 {
                tiers.fast().sync_names()?;
            }
        }
        Ok(())
    }

    fn begin_table(&mut self) -> Result<TableWriter> {
        let options = self.options;
        let number = (options.take_number)();
        self.made.push(number);
        let create =
            |tier, kind| options.tiers.create_table_file(tier, FileId::new(kind, number), options.cause);
        let data = create(options.data_tier, FileKind::Data)?;
        let meta = create(0, FileKind::Meta)?;
        let tier = options.tiers.get(options.data_tier)?;
        let writer_options = WriterOptions {
            compression: tier.compression,
            filter_bits_per_key: tier.filter_bits_per_key,
            block_bytes: options.block_bytes,
        };
        TableWriter::new(options.store, number, data, meta, writer_options)
    }

    fn finish_table(&mut self) -> Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let number = writer.number();
        let properties = writer.finish()?;
        self.done.push(TableMeta {
            number,
            data_tier: self.options.data_tier,
            meta_tier: 0,
            data_bytes: properties.data_file_bytes,
            meta_bytes: properties.meta_file_bytes,
            entries: properties.entries,
            tombstones: properties.tombstones,
            raw_bytes: properties.raw_bytes,
            smallest: properties.smallest_key,
            largest: properties.largest_key,
            smallest_seq: properties.smallest_seq,
            largest_seq: properties.largest_seq,
        });
        Ok(())
    }

    /// Removes every file that was made. What cannot be removed is an orphan, and the next open removes it.
    fn discard(&mut self) {
        self.writer = None;
        for number in &self.made {
            for (tier, kind) in [(self.options.data_tier, FileKind::Data), (0, FileKind::Meta)] {
                if let Ok(tier) = self.options.tiers.get(tier) {
                    drop(tier.remove(FileId::new(kind, *number)));
                }
            }
        }
    }
}
