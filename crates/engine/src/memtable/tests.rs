use super::*;
use crate::key::{Kind, Seq};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn put(seq: u64) -> Trailer {
    Trailer::new(Seq(seq), Kind::Put)
}

/// Cases of a property test: Miri is some hundred times slower.
fn cases() -> ProptestConfig {
    let cases = if cfg!(miri) { 4 } else { 256 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_walk_matches_a_sorted_map(
        inserts in proptest::collection::vec((0u8..20, 1u64..50, 0usize..400), 0..80),
        moves in proptest::collection::vec((0u8..6, 0u8..21, 1u64..50), 0..80),
    ) {
        let (mut writer, table) = MemTable::new(7);
        let mut model = BTreeMap::new();
        for (key, seq, len) in inserts {
            let key = vec![key; usize::from(key % 3)];
            writer.insert(&key, put(seq), &vec![seq as u8; len]);
            model.entry((key, std::cmp::Reverse(seq))).or_insert(vec![seq as u8; len]);
        }
        let listed: Vec<_> = model.into_iter().collect();
        let place = |entry: &Entry<'_>| (entry.key.to_vec(), std::cmp::Reverse(entry.trailer.seq().0));
        let walked: Vec<_> = table.entries().map(|entry| (place(&entry), entry.value.to_vec())).collect();
        prop_assert_eq!(&walked, &listed);
        let mut cursor = MemCursor::new(table.clone());
        let mut at: Option<usize> = None;
        for (step, key, seq) in moves {
            let key = vec![key; usize::from(key % 3)];
            let split = listed.partition_point(|((k, s), _)| (k, s) < (&key, &std::cmp::Reverse(seq)));
            match step {
                0 => { cursor.go(Target::AtOrAfter(&key, put(seq))).unwrap(); at = Some(split); }
                1 => { cursor.go(Target::Before(&key, put(seq))).unwrap(); at = split.checked_sub(1); }
                2 => { cursor.go(Target::First).unwrap(); at = Some(0); }
                3 => { cursor.go(Target::Last).unwrap(); at = listed.len().checked_sub(1); }
                4 => { cursor.next().unwrap(); at = at.map(|i| i + 1); }
                _ => { cursor.prev().unwrap(); at = at.and_then(|i| i.checked_sub(1)); }
            }
            at = at.filter(|i| *i < listed.len());
            let found = cursor.entry().map(|e| ((e.key.to_vec(), std::cmp::Reverse(e.trailer.seq().0)), e.value.to_vec()));
            prop_assert_eq!(found.as_ref(), at.map(|i| &listed[i]));
            let got = table.get(&key, Trailer::read_at(Seq(seq))).map(|(trailer, _)| trailer.seq().0);
            prop_assert_eq!(got, listed.get(split).filter(|((k, _), _)| *k == key).map(|((_, s), _)| s.0));
        }
    }
}

#[test]
fn memory_is_counted_and_large_entries_have_chunks_of_their_own() {
    let (mut writer, table) = MemTable::new(1);
    let empty = table.bytes();
    writer.insert(b"large", put(1), &vec![9; 1 << 20]);
    assert!(table.bytes() >= empty + (1 << 20) && table.bytes() < empty + (1 << 20) + 4096);
    writer.insert(b"small", put(2), b"v");
    assert_eq!(table.get(b"large", Trailer::FIRST).unwrap().1.len(), 1 << 20);
    assert_eq!(table.get(b"small", Trailer::FIRST), Some((put(2), &b"v"[..])));
}

#[test]
fn readers_see_whole_sorted_lists_while_the_writer_inserts() {
    let (mut writer, table) = MemTable::new(3);
    let inserts: u64 = if cfg!(miri) { 60 } else { 20_000 };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let table = table.clone();
            scope.spawn(move || {
                let mut seen = 0;
                while seen < inserts {
                    let mut cursor = MemCursor::new(table.clone());
                    cursor.go(Target::First).unwrap();
                    let mut keys = 0;
                    let mut last: Vec<u8> = Vec::new();
                    while let Some(entry) = cursor.entry() {
                        assert!(keys == 0 || last.as_slice() < entry.key);
                        assert_eq!(entry.value, [entry.key, entry.key].concat());
                        last = entry.key.to_vec();
                        keys += 1;
                        cursor.next().unwrap();
                    }
                    assert!(keys >= seen, "a linked entry vanished");
                    seen = keys;
                }
            });
        }
        for i in 0..inserts {
            let key = (i.wrapping_mul(0x9e37_79b9) % (1 << 32)).to_be_bytes();
            writer.insert(&key, put(i + 1), &[key, key].concat());
        }
    });
}
