//! `Extended`: the numbers in which Redis adds floats where C's `long double` has 80 bits, as on x86-64: a mantissa of
//! 64 bits, rounded to nearest, ties to even. Read and printed as Redis does, digit for digit, on every machine.

use num_bigint::BigUint;
use std::cmp::Ordering;
use std::ops::{Add, Neg};

/// Bits of the mantissa.
const PRECISION: u64 = 64;

/// The exponent of the last bit of the smallest number: below this, numbers lose precision, and then are zero.
const EXPONENT_MIN: i64 = -16_445;

/// The exponent of a power of two that no number reaches.
const EXPONENT_LIMIT: i64 = 16_384;

/// Decimal digits before or behind the point at which a number is infinite or zero for certain.
const MAGNITUDE_MAX: i64 = 5000;

/// The most bytes of a text that Redis reads as a number.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;

/// Digits behind the point.
const FRACTION_DIGITS: u32 = 17;

/// A number `mantissa * 2^exponent`, negative or not; or infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    negative: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Finite { mantissa: u64, exponent: i64 },
    Infinite,
}

impl Extended {
    pub const ZERO: Extended = Extended { negative: false, kind: Kind::Finite { mantissa: 0, exponent: 0 } };

    /// The largest finite number.
    pub const MOST: Extended =
        Extended { negative: false, kind: Kind::Finite { mantissa: u64::MAX, exponent: EXPONENT_LIMIT - 64 } };

    /// The finite number that is farthest below zero.
    pub const LEAST: Extended = Extended { negative: true, kind: Extended::MOST.kind };

    /// Returns the number that the whole of `text` spells as C's `strtold` reads it: decimal, hexadecimal or infinite,
    /// with a sign or not. `None` for anything else, NaN, and finite numbers that are too large or too close to zero.
    pub fn parse(text: &[u8]) -> Option<Extended> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        if [&b"inf"[..], b"infinity"].iter().any(|word| digits.eq_ignore_ascii_case(word)) {
            return Some(Extended { negative, kind: Kind::Infinite });
        }
        let (number, exponent) = match digits {
            [b'0', b'x' | b'X', rest @ ..] => scan(rest, 16, b'p')?,
            _ => scan(digits, 10, b'e')?,
        };
        let is_zero = number == BigUint::ZERO;
        let rounded = match digits {
            _ if is_zero => Extended { negative, ..Extended::ZERO },
            [b'0', b'x' | b'X', ..] => Extended::round(negative, number, exponent),
            _ => Extended::of_decimal(negative, number, exponent),
        };
        // A finite number that rounding makes infinite or zero is refused.
        let vanished = matches!(rounded.kind, Kind::Finite { mantissa: 0, .. }) && !is_zero;
        (rounded.is_finite() && !vanished).then_some(rounded)
    }

    pub fn is_finite(self) -> bool {
        self.kind != Kind::Infinite
    }

    /// Returns the number nearest to `number * 10^exponent`.
    fn of_decimal(negative: bool, number: BigUint, exponent: i64) -> Extended {
        // The result is infinite or zero for certain: no need to compute it.
        let magnitude = exponent + (number.bits() as f64 * std::f64::consts::LOG10_2) as i64;
        if magnitude.abs() > MAGNITUDE_MAX {
            let kind = if magnitude > 0 { Kind::Infinite } else { Extended::ZERO.kind };
            return Extended { negative, kind };
        }
        let power = BigUint::from(10u32).pow(exponent.unsigned_abs() as u32);
        if exponent >= 0 {
            return Extended::round(negative, number * power, 0);
        }
        // Enough bits to round by, and one that says whether there are more.
        let shift = (PRECISION + 2 + power.bits()).saturating_sub(number.bits());
        let (shifted, one) = (number << shift, BigUint::from(1u32));
        let quotient = &shifted / &power;
        let more = if &quotient * &power == shifted { BigUint::ZERO } else { one };
        Extended::round(negative, (quotient << 1u32) + more, -(shift as i64) - 1)
    }

    /// Returns the number nearest to `number * 2^exponent`.
    fn round(negative: bool, number: BigUint, exponent: i64) -> Extended {
        let drop = (number.bits() as i64 - PRECISION as i64).max(EXPONENT_MIN - exponent).max(0) as u64;
        let (rounded, exponent) = (half_even(&number, drop), exponent + drop as i64);
        if rounded.bits() as i64 + exponent > EXPONENT_LIMIT {
            return Extended { negative, kind: Kind::Infinite };
        }
        // Rounding up may have made it a power of two that has one bit too many.
        let carried = rounded.bits() > PRECISION;
        let (rounded, exponent) = if carried { (rounded >> 1u32, exponent + 1) } else { (rounded, exponent) };
        let mantissa = rounded.iter_u64_digits().next().unwrap_or(0);
        Extended { negative, kind: Kind::Finite { mantissa, exponent } }
    }

    /// Multiplies by 1000, rounds as C does, then up to the next whole number; beyond the range returns its end. Turns
    /// a time in seconds into milliseconds.
    pub fn thousandfold(self) -> i64 {
        let beyond = if self.negative { i64::MIN } else { i64::MAX };
        let Kind::Finite { mantissa, exponent } = self.kind else { return beyond };
        let product = Extended::round(self.negative, BigUint::from(mantissa) * 1000u32, exponent);
        let Kind::Finite { mantissa, exponent } = product.kind else { return beyond };
        let whole = match exponent {
            _ if mantissa == 0 => 0,
            64.. => return beyond,
            0.. => u128::from(mantissa) << exponent,
            -63..0 => u128::from(mantissa >> -exponent),
            _ => 0,
        };
        let has_fraction = mantissa != 0 && exponent < 0 && (exponent <= -64 || mantissa << (64 + exponent) != 0);
        match (i64::try_from(whole), self.negative) {
            (Err(_), _) => beyond,
            (Ok(whole), true) => -whole,
            (Ok(whole), false) => whole.saturating_add(i64::from(has_fraction)),
        }
    }

    /// Prints the number as Redis does: 17 digits behind the point, without zeros at the end. Infinite numbers are
    /// printed as C does.
    pub fn print(self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let Kind::Finite { mantissa, exponent } = self.kind else { return format!("{sign}inf") };
        let scaled = BigUint::from(mantissa) * BigUint::from(10u32).pow(FRACTION_DIGITS);
        let scaled =
            if exponent >= 0 { scaled << exponent as u64 } else { half_even(&scaled, exponent.unsigned_abs()) };
        let digits = format!("{:0>1$}", scaled.to_string(), FRACTION_DIGITS as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - FRACTION_DIGITS as usize);
        let fraction = fraction.trim_end_matches('0');
        match (whole, fraction) {
            ("0", "") => "0".into(),
            (_, "") => format!("{sign}{whole}"),
            _ => format!("{sign}{whole}.{fraction}"),
        }
    }
}

impl Neg for Extended {
    type Output = Extended;

    fn neg(self) -> Extended {
        Extended { negative: !self.negative, ..self }
    }
}

/// Compares two numbers; both zeros are equal.
impl PartialOrd for Extended {
    fn partial_cmp(&self, other: &Extended) -> Option<Ordering> {
        // The sign of the difference, which no rounding makes zero.
        let sign = |number: Extended| match number.kind {
            Kind::Finite { mantissa: 0, .. } => Ordering::Equal,
            _ if number.negative => Ordering::Less,
            _ => Ordering::Greater,
        };
        match *self + -*other {
            Some(difference) => Some(sign(difference)),
            // Both are the same infinity.
            None => Some(Ordering::Equal),
        }
    }
}

/// Adds two numbers and rounds; `None` stands for C's NaN.
impl Add for Extended {
    type Output = Option<Extended>;

    fn add(self, other: Extended) -> Option<Extended> {
        let (Kind::Finite { mantissa: left, exponent: from }, Kind::Finite { mantissa: right, exponent: other_from }) =
            (self.kind, other.kind)
        else {
            let opposed = self.kind == other.kind && self.negative != other.negative;
            return (!opposed).then_some(if self.is_finite() { other } else { self });
        };
        let exponent = from.min(other_from);
        let left = BigUint::from(left) << (from - exponent) as u64;
        let right = BigUint::from(right) << (other_from - exponent) as u64;
        let (negative, sum) = match self.negative == other.negative {
            true => (self.negative, left + right),
            false if left >= right => (self.negative, left - right),
            false => (other.negative, right - left),
        };
        Some(Extended::round(negative, sum, exponent))
    }
}

/// Returns `number / 2^bits`, rounded to nearest, ties to even.
fn half_even(number: &BigUint, bits: u64) -> BigUint {
    if bits == 0 {
        return number.clone();
    }
    let quotient = number >> bits;
    let is_tie = number.trailing_zeros() == Some(bits - 1);
    let up = if is_tie { quotient.bit(0) } else { number.bit(bits - 1) };
    if up { quotient + 1u32 } else { quotient }
}

/// Reads digits with a point among them or not, and an exponent behind `mark`: returns all digits as one number, and
/// the exponent that puts the point where it was (of two for hexadecimal digits). `None` unless that is the whole text.
fn scan(text: &[u8], radix: u32, mark: u8) -> Option<(BigUint, i64)> {
    let end = text.iter().position(|byte| byte.eq_ignore_ascii_case(&mark)).unwrap_or(text.len());
    let (digits, exponent) = text.split_at(end);
    let point = digits.iter().position(|byte| *byte == b'.');
    let behind = point.map_or(0, |point| digits.len() - point - 1);
    let mut all = digits.to_vec();
    if let Some(point) = point {
        all.remove(point);
    }
    // Signs and underscores are no digits here, though the library would take them.
    if all.is_empty() || !all.iter().all(|byte| char::from(*byte).is_digit(radix)) {
        return None;
    }
    let number = BigUint::parse_bytes(&all, radix)?;
    let exponent = match exponent {
        [] => 0,
        [_, number @ ..] => parse_exponent(number)?,
    };
    let per_digit = if radix == 16 { 4 } else { 1 };
    Some((number, exponent - behind as i64 * per_digit))
}

/// Reads a signed decimal number; one that is too large for any use stands for the largest that is not.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    const MOST: i64 = 1 << 40;
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number: i64, digit| (number * 10 + i64::from(digit - b'0')).min(MOST));
    Some(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(left: &str, right: &str) -> Option<String> {
        let sum = (Extended::parse(left.as_bytes())? + Extended::parse(right.as_bytes())?)?;
        Some(sum.print())
    }

    #[test]
    fn a_thousandfold_is_rounded_up() {
        let cases = [
            ("0", 0),
            ("-0", 0),
            ("0.1", 100),
            ("0.001", 1),
            ("1e-9", 1),
            ("1e-4000", 1),
            ("-1e-9", 0),
            ("-0.0015", -1),
            ("1.0005", 1001),
            ("0x1p-1", 500),
            ("0x1p-3", 125),
            ("9223372036854775", 9_223_372_036_854_775_000),
            ("9223372036854775.807", i64::MAX),
            ("1e20", i64::MAX),
            ("1e4000", i64::MAX),
            ("inf", i64::MAX),
            ("-1e20", i64::MIN),
            ("-inf", i64::MIN),
        ];
        for (text, thousandfold) in cases {
            let number = Extended::parse(text.as_bytes()).expect("a number");
            assert_eq!(number.thousandfold(), thousandfold, "{text}");
        }
    }

    /// Sums as redis-server 7.0 on x86-64 answers them to SET and INCRBYFLOAT.
    #[test]
    fn sums_are_those_of_redis() {
        let cases = [
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("1", "-1", "0"),
            ("-0", "0", "0"),
            ("1e-20", "0", "0"),
            ("-1e-20", "0", "0"),
            ("3.0e-17", "0", "0.00000000000000003"),
            ("9223372036854775807", "1", "9223372036854775808"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551615", "0.5", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            ("0x10", "0x1p-1", "16.5"),
            ("1e30", "1", "1000000000000000000024696061952"),
        ];
        for (left, right, expected) in cases {
            assert_eq!(sum(left, right).as_deref(), Some(expected), "{left} + {right}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let refused: &[&[u8]] = &[
            b"", b" 1", b"1 ", b"1a", b".", b"e1", b"1e", b"nan", b"0x", b"1e5000", b"1e-5000", b"1\0", b"1_0", b"--1",
        ];
        for text in refused {
            assert_eq!(Extended::parse(text), None, "{}", text.escape_ascii());
        }
        let taken: &[&[u8]] =
            &[b"1.", b".5", b"+1", b"1E5", b"Inf", b"-infinity", b"0e99999999999999", b"0x.8p1", b"1e-4945"];
        for text in taken {
            assert!(Extended::parse(text).is_some(), "{}", text.escape_ascii());
        }
        for text in ["1e999999999999", "-1e-999999999999", "0x1p999999999999", "0x1p-999999999999"] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text}");
        }
        let long = format!("{}e-5100", "7".repeat(5100));
        assert_eq!(
            sum(&long, "0").as_deref(),
            Some("0.77777777777777778"),
            "digits and exponent make up for each other"
        );
        assert_eq!(sum("inf", "-inf"), None);
        assert_eq!(sum("inf", "1").as_deref(), Some("inf"));
    }
}
