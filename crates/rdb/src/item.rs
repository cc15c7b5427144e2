//! An element of a packed encoding: bytes, or a number that stands for its digits.

use crate::error::{Damage, Fault};

pub(crate) const ALONE: Damage = "the last element lacks what belongs to it";

/// Items in order, from any encoding. An item is valid until the next one is asked for.
pub(crate) trait Items {
    fn next(&mut self) -> Result<Option<Item<'_>>, Fault>;

    /// Returns the bytes that the next item takes in memory; 0 where all items are there already.
    fn ahead(&mut self) -> Result<usize, Fault> {
        Ok(0)
    }

    /// Returns the next item, which belongs to the one before.
    fn other(&mut self) -> Result<Item<'_>, Fault> {
        self.next()?.ok_or(Fault::from(ALONE))
    }

    /// Returns the next item, which is a number.
    fn number(&mut self) -> Result<i64, Fault> {
        self.other()?.number().ok_or(Fault::from("an element is no number where there should be one"))
    }
}

/// An element as it lies in a listpack, a ziplist or an intset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    Bytes(&'a [u8]),
    Number(i64),
}

impl<'a> Item<'a> {
    /// Returns the bytes that the item stands for.
    #[inline]
    pub fn bytes<'b>(self, digits: &'b mut itoa::Buffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Item::Bytes(bytes) => bytes,
            Item::Number(number) => digits.format(number).as_bytes(),
        }
    }

    /// Returns the number, if the item is kept as one.
    pub fn number(self) -> Option<i64> {
        match self {
            Item::Bytes(_) => None,
            Item::Number(number) => Some(number),
        }
    }

    /// Returns the score that the item stands for; `None` if it is none.
    pub fn score(self) -> Option<f64> {
        match self {
            Item::Bytes(bytes) => score_of(bytes),
            Item::Number(number) => Some(number as f64),
        }
    }
}

/// Parses a score in digits, as `printf("%.17g")` or a shorter algorithm wrote them; no NaN.
pub(crate) fn score_of(digits: &[u8]) -> Option<f64> {
    let score: f64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (!score.is_nan()).then_some(score)
}

/// Returns the number that `digits` spell, if they are its only spelling: Redis keeps these as numbers.
pub(crate) fn number_of(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits[digits.len() - 1].is_ascii_digit() {
        return None;
    }
    let number: i64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (itoa::Buffer::new().format(number).as_bytes() == digits).then_some(number)
}

/// Digits of `-9223372036854775808`.
const DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_spelling() {
        for (digits, number) in [("0", Some(0)), ("-1", Some(-1)), ("9223372036854775807", Some(i64::MAX))] {
            assert_eq!(number_of(digits.as_bytes()), number, "{digits}");
        }
        for digits in ["", "-", "-0", "+1", "01", " 1", "1 ", "1.0", "9223372036854775808", "x"] {
            assert_eq!(number_of(digits.as_bytes()), None, "{digits}");
        }
    }

    #[test]
    fn scores_are_read_as_they_were_printed() {
        for (digits, score) in [("1.5", 1.5), ("-inf", f64::NEG_INFINITY), ("inf", f64::INFINITY), ("1e+17", 1e17)] {
            assert_eq!(score_of(digits.as_bytes()), Some(score), "{digits}");
        }
        for digits in ["nan", "", "x", "1 "] {
            assert_eq!(score_of(digits.as_bytes()), None, "{digits}");
        }
    }
}
