//! Sizes as people write them, and directories with sizes.

use std::path::PathBuf;
use std::str::FromStr;

/// A number of bytes: `4096`, `64KiB`, `1.5GiB`, `2GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

const UNITS: [(&str, u64); 13] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse =
            || format!("{text:?} is no size; write bytes, or a number with KiB, MiB, GiB, TiB, MB, GB or TB");
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit.trim()).ok_or_else(refuse)?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(Self).ok_or_else(refuse);
        }
        let number: f64 = number.parse().map_err(|_| refuse())?;
        Ok(Self((number * scale as f64) as u64))
    }
}

/// A tier: `DIR:SIZE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) size: Size,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once(':').filter(|(path, _)| !path.is_empty());
        let (path, size) =
            parts.ok_or_else(|| format!("{text:?}: write DIR:SIZE, such as /mnt/nvme/store:8GiB"))?;
        Ok(Self { path: path.into(), size: size.parse()? })
    }
}

/// Bytes for people.
pub(crate) fn human(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(units.len() as u32 - 1);
    match power {
        0 => format!("{bytes} B"),
        _ => format!("{:.1} {}", bytes as f64 / (1u64 << (10 * power)) as f64, units[power as usize]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in
            [("4096", 4096), ("64KiB", 65536), ("1.5GiB", 3 << 29), ("2GB", 2_000_000_000), ("7M", 7 << 20)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "x", "12q", "1.2.3MiB", "-5", "99999999999TiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn places_have_a_directory_and_a_size() {
        let place: Place = "/a:b/c:8MiB".parse().unwrap();
        assert_eq!((place.path, place.size), ("/a:b/c".into(), Size(8 << 20)));
        assert!("8MiB".parse::<Place>().is_err() && ":8MiB".parse::<Place>().is_err());
    }

    #[test]
    fn bytes_are_rounded_for_people() {
        assert_eq!(
            [human(0), human(1023), human(1536), human(5 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
        );
    }
}
