//! Numbers and byte strings: fixed-width little-endian integers, LEB128 varints, length-prefixed bytes, and
//! tag-length-value fields with a must-understand bit (`docs/format/README.md`).

use crate::key::Seq;
use cuesta_device::ByteBuf;
use std::fmt;

/// Why bytes could not be decoded. The caller adds the file and the offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

impl Malformed {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The result of decoding.
pub(crate) type Decode<T> = Result<T, Malformed>;

/// Longest varint of 64 bits.
pub(crate) const VARINT_BYTES_MAX: usize = 10;
/// The largest number, count or offset that is taken from media, which is the largest sequence number, too: sums of a
/// few of them fit 64 bits, and no store gets there.
pub(crate) const NUMBER_MAX: u64 = Seq::MAX.0;
/// Set in a field's tag when a reader that does not know the tag must refuse the whole.
pub(crate) const MUST_UNDERSTAND: u64 = 1;

fn check_number(number: u64) -> Decode<u64> {
    match number <= NUMBER_MAX {
        true => Ok(number),
        false => Err(Malformed(format!("a number of {number} is past the limit"))),
    }
}

/// Where encoded bytes go.
pub(crate) trait Append {
    fn append(&mut self, bytes: &[u8]);
}

impl Append for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Append for ByteBuf {
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Appends `value` as LEB128: seven bits a byte, lowest first, the top bit set on all but the last byte.
pub(crate) fn put_varint(out: &mut impl Append, mut value: u64) {
    let (mut bytes, mut len) = ([0; VARINT_BYTES_MAX], 0);
    while value >= 0x80 {
        bytes[len] = (value & 0x7f) as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    out.append(&bytes[..=len]);
}

/// Appends a varint length and the bytes.
pub(crate) fn put_bytes(out: &mut impl Append, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.append(bytes);
}

/// Appends a field: tag (number << 1 | must-understand), length, body.
pub(crate) fn put_field(out: &mut Vec<u8>, number: u64, must_understand: bool, body: &[u8]) {
    put_varint(out, number << 1 | u64::from(must_understand));
    put_bytes(out, body);
}

/// Takes values off the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

/// A tag-length-value field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u64,
    pub(crate) must_understand: bool,
    pub(crate) body: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Refuses bytes left over.
    pub(crate) fn finish(self) -> Decode<()> {
        match self.rest.len() {
            0 => Ok(()),
            n => Err(Malformed(format!("{n} bytes left over"))),
        }
    }

    pub(crate) fn take(&mut self, n: usize) -> Decode<&'a [u8]> {
        match self.rest.split_at_checked(n) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => Err(Malformed(format!("{n} bytes expected, {} left", self.rest.len()))),
        }
    }

    fn array<const N: usize>(&mut self) -> Decode<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Decode<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Decode<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Decode<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Decode<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Decode<u128> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Decode<u64> {
        // Nearly all are of one byte.
        match self.rest {
            [byte @ 0..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Decode<u64> {
        let mut value = 0u64;
        for shift in (0..).step_by(7).take(VARINT_BYTES_MAX) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed::new("a varint of more than 64 bits"))
    }

    /// A varint that is at most [`NUMBER_MAX`].
    pub(crate) fn number(&mut self) -> Decode<u64> {
        self.varint().and_then(check_number)
    }

    /// Eight bytes that are at most [`NUMBER_MAX`].
    pub(crate) fn fixed_number(&mut self) -> Decode<u64> {
        self.u64().and_then(check_number)
    }

    /// A varint that counts bytes or things in memory.
    pub(crate) fn length(&mut self) -> Decode<usize> {
        usize::try_from(self.varint()?).map_err(|_| Malformed::new("a length past the address space"))
    }

    /// A varint that fits 32 bits.
    pub(crate) fn varint_u32(&mut self) -> Decode<u32> {
        u32::try_from(self.varint()?).map_err(|_| Malformed::new("a number past 32 bits"))
    }

    /// Length-prefixed bytes.
    pub(crate) fn bytes(&mut self) -> Decode<&'a [u8]> {
        let n = self.length()?;
        self.take(n)
    }

    /// Length-prefixed UTF-8.
    pub(crate) fn text(&mut self) -> Decode<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::new("text that is not UTF-8"))
    }

    pub(crate) fn field(&mut self) -> Decode<Field<'a>> {
        let tag = self.varint()?;
        let body = self.bytes()?;
        Ok(Field { number: tag >> 1, must_understand: tag & MUST_UNDERSTAND != 0, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_put_is_taken(a: u64, bytes: Vec<u8>, number in 0u64..1 << 62, must: bool) {
            let mut out = Vec::new();
            put_varint(&mut out, a);
            put_bytes(&mut out, &bytes);
            put_field(&mut out, number, must, &bytes);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint().unwrap(), a);
            prop_assert_eq!(reader.bytes().unwrap(), &bytes[..]);
            prop_assert_eq!(reader.field().unwrap(), Field { number, must_understand: must, body: &bytes });
            reader.finish().unwrap();
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while reader.field().is_ok() {}
            prop_assert!(reader.rest().len() <= bytes.len());
        }
    }

    #[test]
    fn a_varint_past_64_bits_is_refused() {
        assert!(Reader::new(&[0xff; 10]).varint().is_err());
        let mut largest = Vec::new();
        put_varint(&mut largest, u64::MAX);
        assert_eq!((largest.len(), Reader::new(&largest).varint()), (10, Ok(u64::MAX)));
    }
}
