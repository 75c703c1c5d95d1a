//! Compression of blocks. The numbers are part of the format; a block whose bytes it does not shrink by an eighth is
//! stored as it is.

use crate::error::{Error, Result};
use crate::format::{Decode, Malformed};
use cuesta_device::ByteBuf;
use std::fmt;

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    #[default]
    None = 0,
    /// lz4: fast both ways.
    Lz4 = 1,
    /// zstd, level 3: smaller, slower to write.
    Zstd = 2,
}

/// Longest block before compression: the largest value and key, with room for what surrounds them.
pub(crate) const RAW_BLOCK_BYTES_MAX: usize = (64 << 20) + (256 << 10);
const ZSTD_LEVEL: i32 = 3;

impl Compression {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The choice of a stored number.
    pub(crate) fn from_stored(number: u8) -> Decode<Self> {
        let found = Self::ALL.into_iter().find(|choice| *choice as u8 == number);
        found.ok_or_else(|| Malformed(format!("compression {number} is not known")))
    }

    /// `raw` compressed, where that pays.
    pub(crate) fn compress(self, raw: &[u8]) -> Option<ByteBuf> {
        let mut packed = ByteBuf::default();
        let len = match self {
            Self::None => return None,
            Self::Lz4 => {
                packed.resize(lz4_flex::block::get_maximum_output_size(raw.len()));
                lz4_flex::block::compress_into(raw, &mut packed).ok()?
            }
            Self::Zstd => {
                packed.resize(zstd::zstd_safe::compress_bound(raw.len()));
                zstd::bulk::compress_to_buffer(raw, &mut packed[..], ZSTD_LEVEL).ok()?
            }
        };
        packed.resize(len);
        (len <= raw.len() - raw.len() / 8).then_some(packed)
    }

    /// Fills `raw`, whose length is what was compressed.
    pub(crate) fn decompress(self, packed: &[u8], raw: &mut [u8]) -> Decode<()> {
        let len = match self {
            Self::None => {
                if packed.len() == raw.len() {
                    raw.copy_from_slice(packed);
                }
                packed.len()
            }
            Self::Lz4 => lz4_flex::block::decompress_into(packed, raw)
                .map_err(|error| Malformed(format!("lz4 refuses the block: {error}")))?,
            Self::Zstd => zstd::bulk::decompress_to_buffer(packed, raw)
                .map_err(|error| Malformed(format!("zstd refuses the block: {error}")))?,
        };
        match len == raw.len() {
            true => Ok(()),
            false => Err(Malformed(format!("the block has {len} bytes, {} were stored", raw.len()))),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|choice| choice.name() == text);
        found.ok_or_else(|| Error::invalid(format!("compression {text:?}: use none, lz4 or zstd")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_comes_back_and_noise_is_left_alone() {
        let text = b"the same words again and again ".repeat(100);
        let mut rng = cuesta_sched::Rng::new(1);
        let noise: Vec<u8> = (0..4096).map(|_| rng.next_u64() as u8).collect();
        for choice in [Compression::Lz4, Compression::Zstd] {
            let packed = choice.compress(&text).unwrap();
            let mut raw = vec![0; text.len()];
            choice.decompress(&packed, &mut raw).unwrap();
            assert_eq!(raw, text);
            assert!(choice.decompress(&packed, &mut vec![0; text.len() - 1]).is_err());
            assert!(choice.decompress(&packed[..packed.len() - 1], &mut raw).is_err());
            assert!(choice.compress(&noise).is_none());
        }
    }
}
