//! Holds `docs/format/` to the code: every constant that a page names must have the value that it names, and the
//! pages' layouts must place fields where the encoders do.

use super::file::{FORMAT_VERSION, HEADER_BYTES, encode_header};
use super::record::{RECORD_ALIGNMENT, RECORD_HEADER_BYTES, RecordKind, SKIPPABLE_KIND, encode_record};
use super::{FileId, FileKind, Place, Position, StoreId};
use crate::key::{Kind, Seq};
use crate::table::documented as table;

/// A page, wherever its lines end.
fn page(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format/").to_owned() + name;
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn constants_are_as_documented() {
    let named = [
        ("README.md", "HEADER_BYTES", HEADER_BYTES),
        ("README.md", "FORMAT_VERSION", FORMAT_VERSION as usize),
        ("record.md", "RECORD_HEADER_BYTES", RECORD_HEADER_BYTES),
        ("record.md", "RECORD_ALIGNMENT", RECORD_ALIGNMENT),
        ("superblock.md", "SLOT_BYTES", crate::version::superblock::SLOT_BYTES),
        ("table.md", "BLOCK_TRAILER_BYTES", table::BLOCK_TRAILER_BYTES),
        ("table.md", "HANDLE_BYTES", table::HANDLE_BYTES),
        ("table.md", "RESTART_INTERVAL", table::RESTART_INTERVAL),
        ("table.md", "LINE_BYTES", table::LINE_BYTES),
        ("table.md", "FOOTER_BYTES", table::FOOTER_BYTES),
        ("table.md", "ENTRY_BYTES", table::ENTRY_BYTES),
        ("table.md", "PREFIX_BYTES", table::PREFIX_BYTES),
        ("table.md", "SECTOR_BYTES", table::SECTOR_BYTES),
        ("table.md", "FLOORS_MAX", table::FLOORS_MAX),
        ("slab.md", "SLOT_HEADER_BYTES", crate::store::SLOT_HEADER_BYTES),
        ("slab.md", "SLOT_BYTES_MIN", crate::size_class::SLOT_BYTES_MIN as usize),
        ("slab.md", "SHAPE_BYTES", crate::store::SHAPE_BYTES),
        ("slab.md", "SLOTS_FROM", crate::store::SLOTS_FROM as usize),
    ];
    for (file, name, value) in named {
        let text = page(file);
        assert!(text.contains(&format!("`{name}` = {value}")), "{file} does not say that {name} is {value}");
    }
}

#[test]
fn kinds_are_as_documented() {
    let text = page("README.md");
    let kinds = [("delete", Kind::Delete), ("put", Kind::Put), ("merge (reserved)", Kind::Merge)];
    let more = [
        ("range delete (in logs only)", Kind::RangeDelete),
        ("value handle (reserved)", Kind::ValueHandle),
        ("put with expiry (reserved)", Kind::PutExpiring),
    ];
    for (word, kind) in kinds.into_iter().chain(more) {
        assert!(text.contains(&format!("| {word} | {} |", kind as u8)), "{word}");
    }
    assert!(text.contains("superblock 1, manifest 2, log 3, data 4, meta 5, slab 6, image 7"));
    assert_eq!([FileKind::Superblock as u8, FileKind::Manifest as u8, FileKind::Log as u8], [1, 2, 3]);
    assert_eq!([FileKind::Data as u8, FileKind::Meta as u8, FileKind::Slab as u8], [4, 5, 6]);
    assert_eq!(FileKind::Image as u8, 7);
    assert!(page("record.md").contains("kind: batch 1, seal 2, edit 3, heat 4, index 5, counts 6"));
    assert!(page("record.md").contains(&format!("`SKIPPABLE_KIND` = {SKIPPABLE_KIND}")));
    assert_eq!([RecordKind::Batch as u8, RecordKind::Seal as u8, RecordKind::Edit as u8], [1, 2, 3]);
    assert_eq!([RecordKind::Heat as u8, RecordKind::Index as u8, RecordKind::Counts as u8], [4, 5, 6]);
    assert_eq!(RecordKind::ManifestEnd as u8, 7);
}

#[test]
fn fields_lie_where_the_pages_draw_them() {
    let file = FileId::new(FileKind::Log, 0x0807_0605_0403_0201);
    let header = encode_header(StoreId(7), file);
    assert_eq!((&header[..8], header[8], header[12]), (&b"CUESTA\r\n"[..], 1, 3));
    assert_eq!((header[16], &header[32..40]), (7, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
    let place = Place { store: StoreId(7), file, offset: 64 };
    let durable = Position { file: 5, offset: 6 };
    let record = encode_record(place, RecordKind::Seal, (Seq(4), 3), b"payload", durable);
    assert_eq!((record[8], record[12], record[16], record[24], record[32], record[40]), (7, 3, 4, 5, 6, 2));
    assert_eq!((&record[48..55], record.len()), (&b"payload"[..], 56));
}
