//! The values of directives, and the numbers in them. How words become a value, and a value words, is in `kind.rs`.
//!
//! Error texts are those of Redis 7.2, word for word, so that a client which compares them keeps working. Values know
//! nothing about names, files or defaults; `crate::table` ties them to directives.

use std::borrow::Cow;

/// Text of a refused value; the part after `CONFIG SET failed (possibly related to argument 'x') - `.
pub type Refusal = Cow<'static, str>;

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i64),
    Bytes(u64),
    Percent(u32),
    Auto,
    Octal(u32),
    Text(Vec<u8>),
    Choice(u32),
    Flags(u32),
    Words(Vec<Vec<u8>>),
    Numbers(Vec<i64>),
    Percentiles(Vec<f64>),
}

/// The source of a value: some directives add up over the lines of a file, but replace on CONFIG SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The first time at this start that the directive appears.
    FirstLine,
    /// The directive again, later in the file or on the command line.
    LaterLine,
    /// CONFIG SET.
    Runtime,
}

/// Parses a 64-bit integer written as Redis writes it: no plus sign, no leading zeros or blanks (`string2ll`).
pub(crate) fn integer(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    match digits {
        b"0" if digits.len() == word.len() => return Some(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {}
        _ => return None,
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Parses an integer as C's `strtoll` with base 10 takes it when it must use up the whole word; no digits at all are a
/// 0.
pub(crate) fn lenient_integer(word: &[u8]) -> Option<i64> {
    let start = word.iter().position(|byte| !crate::words::is_blank(*byte)).unwrap_or(word.len());
    if word.is_empty() {
        return Some(0);
    }
    let number = std::str::from_utf8(&word[start..]).ok()?;
    let digits = number.strip_prefix(['-', '+']).unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let saturated = if number.starts_with('-') { i64::MIN } else { i64::MAX };
    Some(number.parse().unwrap_or(saturated))
}

/// Parses a number of bytes with an optional unit (`memtoull`); too large a number becomes the largest.
pub fn bytes(word: &[u8]) -> Option<u64> {
    let unit_at = word.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(word.len());
    let (digits, unit) = word.split_at(unit_at);
    let factor: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let number =
        digits.iter().fold(0u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(number.saturating_mul(factor))
}

pub(crate) fn octal(word: &[u8]) -> Option<i64> {
    let start = word.iter().position(|byte| !crate::words::is_blank(*byte)).unwrap_or(word.len());
    let number = std::str::from_utf8(&word[start..]).ok()?;
    if word.is_empty() {
        return Some(0);
    }
    let number = number.strip_prefix('+').unwrap_or(number);
    i64::from_str_radix(number, 8).ok()
}

/// Prints a number of bytes with the largest unit that divides it: `64mb`, `1536`.
pub fn human(bytes: u64) -> String {
    for (unit, shift) in [("gb", 30), ("mb", 20), ("kb", 10)] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}
