//! Lengths and strings as they lie in a file.
//!
//! A length: `00LLLLLL`, `01LLLLLL LLLLLLLL`, 80 and u32 BE, or 81 and u64 BE. A first byte `11......` begins a string
//! in another form: c0, c1, c2 and a number of one, two or four bytes LE, whose digits it is; c3, the length
//! compressed, the length, and LZF.

use crate::error::{Error, Failure};
use crate::event::Part;
use crate::lzf;
use crate::source::{Source, TAKE_MAX};
use crate::text::{Long, WHOLE_BYTES_MAX};

/// The form of a string that is compressed.
const COMPRESSED: u8 = 3;

/// A length, or the form of a string in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(u64),
    /// The low six bits of the first byte.
    Special(u8),
}

#[inline]
fn length_or_special(source: &mut impl Source) -> Result<Length, Error> {
    let first = source.byte()?;
    Ok(match first {
        0..=0x3f => Length::Bytes(u64::from(first)),
        0x40..=0x7f => Length::Bytes(u64::from(first & 0x3f) << 8 | u64::from(source.byte()?)),
        0x80 => Length::Bytes(u64::from(u32::from_be_bytes(source.array()?))),
        0x81 => Length::Bytes(u64::from_be_bytes(source.array()?)),
        0x82..=0xbf => return Err(source.corrupt("a length has an unknown form")),
        _ => Length::Special(first & 0x3f),
    })
}

/// Reads a length, or a number in the form of one.
#[inline]
pub fn length(source: &mut impl Source) -> Result<u64, Error> {
    match length_or_special(source)? {
        Length::Bytes(length) => Ok(length),
        Length::Special(_) => Err(source.corrupt("a string is where a length should be")),
    }
}

/// Reads a string into `out`, which is emptied before. `compressed` is for its bytes as they lie there, if they are
/// compressed and few.
#[inline]
pub fn string(source: &mut impl Source, out: &mut Vec<u8>, compressed: &mut Vec<u8>) -> Result<(), Error> {
    match begin(source, WHOLE_BYTES_MAX, out, compressed)? {
        None => Ok(()),
        Some(long) => long.read(source, out),
    }
}

/// Reads a string that is part of a value, like `string`. A long one is announced first, with the `beside` bytes that
/// are held beside it for the same part.
#[inline]
pub(crate) fn announced<S: Source, E>(
    source: &mut S,
    whole_bytes: u64,
    out: &mut Vec<u8>,
    compressed: &mut Vec<u8>,
    beside: usize,
    each: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), Failure<E>> {
    trim(out);
    let Some(long) = begin(source, whole_bytes, out, compressed)? else { return Ok(()) };
    each(Part::Ahead { bytes: long.bytes().saturating_add(beside as u64) }).map_err(Failure::Sink)?;
    Ok(long.read(source, out)?)
}

/// A larger buffer is not kept for the next string, which is announced as if nothing were held.
const KEPT_BYTES_MAX: usize = 2 * WHOLE_BYTES_MAX as usize;

/// Gives a large buffer back, of which the content is not needed any more.
#[inline]
pub(crate) fn trim(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES_MAX {
        *buffer = Vec::new();
    }
}

/// Begins to read a string. A string of up to `whole_bytes` is read into `out`; the bytes of a longer one are to be
/// taken by [`Long::of`].
#[inline]
pub(crate) fn begin(
    source: &mut impl Source,
    whole_bytes: u64,
    out: &mut Vec<u8>,
    compressed: &mut Vec<u8>,
) -> Result<Option<Long>, Error> {
    let length = length_or_special(source)?;
    begin_of(length, source, whole_bytes, out, compressed)
}

/// A string, or the beginning of a long one.
pub(crate) enum Begun<'a> {
    Whole(&'a [u8]),
    Long(Long),
}

/// Begins to read a string like `begin`, but leaves it in the source if it lies there uncompressed and is short.
#[inline]
pub(crate) fn begin_in_place<'a>(
    source: &'a mut impl Source,
    whole_bytes: u64,
    out: &'a mut Vec<u8>,
    compressed: &mut Vec<u8>,
) -> Result<Begun<'a>, Error> {
    match length_or_special(source)? {
        Length::Bytes(length) if length <= whole_bytes.min(TAKE_MAX as u64) => {
            source.take(length as usize).map(Begun::Whole)
        }
        length => Ok(match begin_of(length, source, whole_bytes, out, compressed)? {
            None => Begun::Whole(out),
            Some(long) => Begun::Long(long),
        }),
    }
}

#[inline]
fn begin_of(
    length_or_special: Length,
    source: &mut impl Source,
    whole_bytes: u64,
    out: &mut Vec<u8>,
    compressed: &mut Vec<u8>,
) -> Result<Option<Long>, Error> {
    match length_or_special {
        Length::Bytes(bytes) if bytes > whole_bytes => {
            source.may_have(bytes)?;
            Ok(Some(Long::plain(bytes)))
        }
        Length::Special(COMPRESSED) => {
            let compressed_bytes = length(source)?;
            let bytes = length(source)?;
            source.may_have(compressed_bytes)?;
            if bytes > whole_bytes {
                return Long::compressed(compressed_bytes, bytes).map(Some).map_err(|what| source.corrupt(what));
            }
            compressed.clear();
            source.append(compressed_bytes, compressed)?;
            lzf::decompress(compressed, bytes, out).map_err(|what| source.corrupt(what))?;
            Ok(None)
        }
        short => string_of(short, source, out).map(|()| None),
    }
}

#[inline]
fn string_of(length_or_special: Length, source: &mut impl Source, out: &mut Vec<u8>) -> Result<(), Error> {
    out.clear();
    let number = match length_or_special {
        Length::Bytes(length) => return source.append(length, out),
        Length::Special(0) => i32::from(i8::from_le_bytes(source.array()?)),
        Length::Special(1) => i32::from(i16::from_le_bytes(source.array()?)),
        Length::Special(2) => i32::from_le_bytes(source.array()?),
        Length::Special(_) => return Err(source.corrupt("a string has an unknown form")),
    };
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Slice;

    #[test]
    fn strings_have_six_forms() {
        let long = [&[0x41, 0x00][..], &[b'x'; 256]].concat();
        let wide = [&[0x80, 0, 0, 0, 2][..], b"ab"].concat();
        let wider = [&[0x81, 0, 0, 0, 0, 0, 0, 0, 2][..], b"ab"].concat();
        let xs = "x".repeat(256);
        let cases: [(&[u8], &str); 9] = [
            (b"\x03hay", "hay"),
            (&long, &xs),
            (&wide, "ab"),
            (&wider, "ab"),
            (b"\xc0\xff", "-1"),
            (b"\xc1\x00\x80", "-32768"),
            (b"\xc2\x15\xcd\x5b\x07", "123456789"),
            (b"\xc3\x05\x0a\x00a\xe0\x00\x00", "aaaaaaaaaa"),
            (b"\x00", ""),
        ];
        for (bytes, expected) in cases {
            let (mut source, mut out, mut compressed) = (Slice::new(bytes), vec![1], vec![1]);
            string(&mut source, &mut out, &mut compressed).unwrap();
            assert_eq!((String::from_utf8(out).unwrap().as_str(), source.rest().len()), (expected, 0));
            let (mut source, mut out) = (Slice::new(bytes), vec![1]);
            let begun = begin_in_place(&mut source, WHOLE_BYTES_MAX, &mut out, &mut compressed).unwrap();
            assert!(matches!(begun, Begun::Whole(text) if text == expected.as_bytes()));
            for len in 0..bytes.len() {
                let cut = string(&mut Slice::new(&bytes[..len]), &mut Vec::new(), &mut Vec::new());
                assert!(cut.is_err(), "{bytes:02x?} cut to {len}");
            }
        }
        for bytes in
            [&b"\xc4"[..], b"\x82", b"\x81\x7f\xff\xff\xff\xff\xff\xff\xffab", b"\xc3\x01\x81\x7f\0\0\0\0\0\0\0a"]
        {
            let mut out = Vec::new();
            assert!(string(&mut Slice::new(bytes), &mut out, &mut Vec::new()).is_err(), "{bytes:02x?}");
            assert!(out.capacity() < 1000);
        }
    }
}
