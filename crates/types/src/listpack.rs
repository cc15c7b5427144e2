//! How many bytes Redis's listpack takes for strings, and when a list is too large for one: OBJECT ENCODING of a list
//! depends on it. Nothing is stored in this form.

use crate::integer;

/// Bytes of a listpack without entries: six before them, one behind.
pub const EMPTY_BYTES: usize = 7;

/// A list with a bound of entries is too large at so many bytes all the same.
const SAFETY_BYTES_MAX: usize = 8192;

/// Returns the bytes of an entry: its encoding, its content, and its length once more for the way back.
pub fn entry_bytes(element: &[u8]) -> usize {
    let bytes = match integer::parse(element) {
        Some(0..=127) => 1,
        Some(-4096..=4095) => 2,
        Some(-0x8000..=0x7fff) => 3,
        Some(-0x80_0000..=0x7f_ffff) => 4,
        Some(-0x8000_0000..=0x7fff_ffff) => 5,
        Some(_) => 9,
        None => match element.len() {
            length @ 0..64 => 1 + length,
            length @ 64..4096 => 2 + length,
            length => 5 + length,
        },
    };
    bytes
        + match bytes {
            0..=127 => 1,
            128..16_383 => 2,
            16_383..2_097_151 => 3,
            2_097_151..268_435_455 => 4,
            _ => 5,
        }
}

/// Tells whether `list-max-listpack-size` forbids a listpack of so many bytes and entries: a positive limit is one of
/// entries, -1 to -5 are 4 to 64 KB.
pub fn exceeds(limit: i64, bytes: usize, entries: u64) -> bool {
    match limit {
        0.. => bytes > SAFETY_BYTES_MAX || entries > limit.max(1) as u64,
        _ => bytes > 4096 << (-1 - limit.max(-5)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_take_what_they_take_in_redis() {
        let cases: &[(&[u8], usize)] = &[
            (b"", 2),
            (b"0", 2),
            (b"127", 2),
            (b"128", 3),
            (b"-1", 3),
            (b"-4096", 3),
            (b"4096", 4),
            (b"-32769", 5),
            (b"8388608", 6),
            (b"2147483648", 10),
            (b"01", 4),
            (&[b'x'; 63], 65),
            (&[b'x'; 64], 67),
            (&[b'x'; 125], 128),
            (&[b'x'; 126], 130),
            (&[b'x'; 4095], 4099),
            (&[b'x'; 4096], 4103),
        ];
        for (element, bytes) in cases {
            assert_eq!(entry_bytes(element), *bytes, "{}", element.escape_ascii());
        }
    }

    #[test]
    fn limits_are_of_bytes_or_of_entries() {
        let cases = [
            (-1, 4096, 9999, false),
            (-1, 4097, 1, true),
            (-2, 8192, 9999, false),
            (-5, 65_537, 1, true),
            (-9, 65_536, 1, false),
            (4, 8192, 4, false),
            (4, 10, 5, true),
            (4, 8193, 1, true),
            (0, 10, 1, false),
            (0, 10, 2, true),
        ];
        for (limit, bytes, entries, expected) in cases {
            assert_eq!(exceeds(limit, bytes, entries), expected, "{limit}: {bytes} bytes, {entries} entries");
        }
    }
}
