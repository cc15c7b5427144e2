//! Scores of sorted sets: how Redis reads them, and bytes that sort as scores do.
//!
//! Zero and minus zero are one place in the order, but not one score: a stored score keeps the sign (`to_bytes`), the
//! key of a row leaves it out (`place`).

/// Bytes of a score in a row.
pub const BYTES: usize = 8;

const SIGN: u64 = 1 << 63;

/// Returns bytes that compare as scores do, the sign of a zero kept: minus zero comes right before zero.
#[inline]
pub fn to_bytes(score: f64) -> [u8; BYTES] {
    let bits = score.to_bits();
    (if bits & SIGN == 0 { bits | SIGN } else { !bits }).to_be_bytes()
}

/// Returns the score of such bytes.
#[inline]
pub fn from_bytes(bytes: [u8; BYTES]) -> f64 {
    let ordered = u64::from_be_bytes(bytes);
    f64::from_bits(if ordered & SIGN == 0 { !ordered } else { ordered & !SIGN })
}

/// Returns where a score stands in the order: the same for both zeros.
#[inline]
pub fn place(score: f64) -> [u8; BYTES] {
    to_bytes(if score == 0.0 { 0.0 } else { score })
}

/// Returns the place right behind all elements of this score.
#[inline]
pub fn place_behind(score: f64) -> [u8; BYTES] {
    (u64::from_be_bytes(place(score)) + 1).to_be_bytes()
}

/// Returns the number that the whole of `text` spells, as Redis reads the score of an element: nothing that C's
/// `strtod` calls out of range, no blanks before it, no NaN.
pub fn parse(text: &[u8]) -> Option<f64> {
    if text.first().is_none_or(|byte| is_blank(*byte)) {
        return None;
    }
    let (number, length) = strtod(text);
    let is_whole = length == text.len() && !number.value.is_nan();
    (is_whole && !number.out_of_range).then_some(number.value)
}

/// Returns the number that SORT sorts by: blanks may stand before it, and an empty text is zero.
pub fn parse_weight(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let (number, length) = strtod(text);
    (length == text.len() && !number.value.is_nan() && !number.out_of_range).then_some(number.value)
}

/// Returns the number of a bound of a range of scores, which Redis reads with less care: blanks may stand before it, an
/// empty text is zero, a number out of range is infinite or zero, and a NUL ends it.
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let (number, length) = strtod(text);
    (length == text.len() && !number.value.is_nan()).then_some(number.value)
}

/// Appends a score with up to 17 digits, as C's `%.17g` prints it: more than are needed to read it back.
pub fn write_digits(out: &mut Vec<u8>, score: f64) {
    const DIGITS: i32 = 17;
    if score.is_infinite() {
        return out.extend_from_slice(if score < 0.0 { b"-inf" } else { b"inf" });
    }
    let scientific = format!("{score:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the exponent form has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is an integer");
    let text = if (-4..DIGITS).contains(&exponent) {
        let fixed = format!("{score:.*}", (DIGITS - 1 - exponent) as usize);
        if fixed.contains('.') { fixed.trim_end_matches('0').trim_end_matches('.').to_owned() } else { fixed }
    } else {
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    };
    out.extend_from_slice(text.as_bytes());
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Number {
    value: f64,
    /// Whether the number is infinite or zero only because a double cannot hold it.
    out_of_range: bool,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Reads like C's `strtod` in the C locale: returns the number that the beginning of `text` spells, and how many bytes
/// do; zero and none if none do.
fn strtod(text: &[u8]) -> (Number, usize) {
    let blanks = text.iter().take_while(|byte| is_blank(**byte)).count();
    let rest = &text[blanks..];
    let sign_bytes = usize::from(matches!(rest.first(), Some(b'-' | b'+')));
    let (negative, rest) = (rest.first() == Some(&b'-'), &rest[sign_bytes..]);
    let (number, length) = unsigned(rest);
    if length == 0 {
        return (Number { value: 0.0, out_of_range: false }, 0);
    }
    let value = if negative { -number.value } else { number.value };
    (Number { value, ..number }, blanks + sign_bytes + length)
}

fn unsigned(text: &[u8]) -> (Number, usize) {
    let begins = |word: &str| text.get(..word.len()).is_some_and(|t| t.eq_ignore_ascii_case(word.as_bytes()));
    for (word, value) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
        if begins(word) {
            // The text that may follow a NaN in parentheses does not matter: no caller takes a NaN.
            return (Number { value, out_of_range: false }, word.len());
        }
    }
    if begins("0x")
        && let Some(hexadecimal) = hexadecimal(text)
    {
        return hexadecimal;
    }
    decimal(text)
}

/// Reads digits, a point, digits: returns how many bytes they are, and whether there is a digit at all.
fn mantissa(text: &[u8], is_digit: fn(&u8) -> bool) -> (usize, bool) {
    let whole = text.iter().take_while(|byte| is_digit(byte)).count();
    if text.get(whole) != Some(&b'.') {
        return (whole, whole > 0);
    }
    let fraction = text[whole + 1..].iter().take_while(|byte| is_digit(byte)).count();
    (whole + 1 + fraction, whole + fraction > 0)
}

/// Returns the bytes of an exponent at the start of `text`: a letter, perhaps a sign, digits.
fn exponent_bytes(text: &[u8], letter: u8) -> usize {
    if !text.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&letter)) {
        return 0;
    }
    let sign = usize::from(matches!(text.get(1), Some(b'-' | b'+')));
    match text[1 + sign..].iter().take_while(|byte| byte.is_ascii_digit()).count() {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

fn decimal(text: &[u8]) -> (Number, usize) {
    let (mantissa_bytes, is_number) = mantissa(text, u8::is_ascii_digit);
    if !is_number {
        return (Number { value: 0.0, out_of_range: false }, 0);
    }
    let length = mantissa_bytes + exponent_bytes(&text[mantissa_bytes..], b'e');
    let digits = std::str::from_utf8(&text[..length]).expect("digits are ASCII");
    let value: f64 = digits.parse().expect("digits, a point and an exponent are a number");
    let is_zero = text[..mantissa_bytes].iter().all(|byte| matches!(byte, b'0' | b'.'));
    (Number { value, out_of_range: value.is_infinite() || (value == 0.0 && !is_zero) }, length)
}

/// Reads `0x`, hexadecimal digits with or without a point, perhaps a binary exponent.
fn hexadecimal(text: &[u8]) -> Option<(Number, usize)> {
    let digits = &text[2..];
    let (mantissa_bytes, is_number) = mantissa(digits, u8::is_ascii_hexdigit);
    if !is_number {
        return None;
    }
    let exponent_bytes = exponent_bytes(&digits[mantissa_bytes..], b'p');
    let mut exponent = match std::str::from_utf8(&digits[mantissa_bytes..][..exponent_bytes]) {
        Ok("") => 0,
        // Beyond any double, but far from where sums overflow.
        Ok(text) => text[1..]
            .parse::<i64>()
            .map_or(if text.contains('-') { -EXPONENT_BOUND } else { EXPONENT_BOUND }, |exponent| {
                exponent.clamp(-EXPONENT_BOUND, EXPONENT_BOUND)
            }),
        Err(_) => unreachable!("digits are ASCII"),
    };
    // `bits` are the leading bits; the last of them is also set if a later digit is not 0.
    let (mut bits, mut behind_point) = (0u64, false);
    for &byte in &digits[..mantissa_bytes] {
        let Some(digit) = (byte as char).to_digit(16) else {
            behind_point = true;
            continue;
        };
        if bits >> 58 == 0 {
            bits = bits << 4 | u64::from(digit);
            exponent -= if behind_point { 4 } else { 0 };
        } else {
            bits |= u64::from(digit != 0);
            exponent += if behind_point { 0 } else { 4 };
        }
    }
    let value = round(bits, exponent);
    let out_of_range = value.is_infinite() || (value == 0.0 && bits != 0);
    Some((Number { value, out_of_range }, 2 + mantissa_bytes + exponent_bytes))
}

const EXPONENT_BOUND: i64 = 1 << 40;

/// Returns the double nearest to `bits * 2^exponent`, ties to even.
fn round(bits: u64, exponent: i64) -> f64 {
    if bits == 0 {
        return 0.0;
    }
    let width = i64::from(64 - bits.leading_zeros());
    // A double has 53 bits, and none below 2^-1074.
    let cut = (width - 53).max(-1074 - exponent).max(0);
    if exponent + width > 1100 {
        return f64::INFINITY;
    }
    if cut > 63 {
        return 0.0;
    }
    let (kept, rest) = (bits >> cut, bits & ((1 << cut) - 1));
    let half = if cut == 0 { 0 } else { 1 << (cut - 1) };
    let up = cut > 0 && (rest > half || (rest == half && kept & 1 == 1));
    // At most 2^53: exact. The power is split so that neither half of it overflows or vanishes.
    let rounded = (kept + u64::from(up)) as f64;
    let power = exponent + cut;
    let half_power = (power / 2) as i32;
    rounded * 2f64.powi(half_power) * 2f64.powi(power as i32 - half_power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_sort_as_scores_do() {
        let scores =
            [f64::NEG_INFINITY, -1e300, -1.5, -f64::MIN_POSITIVE, -5e-324, 0.0, 5e-324, 1.0, 1.5, 1e300, f64::INFINITY];
        for pair in scores.windows(2) {
            assert!(to_bytes(pair[0]) < to_bytes(pair[1]), "{pair:?}");
            assert!(place_behind(pair[0]) <= place(pair[1]), "{pair:?}");
        }
        for score in scores.into_iter().chain([-0.0]) {
            assert_eq!(from_bytes(to_bytes(score)).to_bits(), score.to_bits());
            assert!(place(score) < place_behind(score));
        }
        assert_eq!(place(-0.0), place(0.0));
        assert!(to_bytes(-0.0) < to_bytes(0.0));
    }

    #[test]
    fn scores_are_what_redis_takes_for_one() {
        let check = |text: &str, score: Option<f64>| {
            assert_eq!(parse(text.as_bytes()).map(f64::to_bits), score.map(f64::to_bits), "{text:?}");
        };
        check("1", Some(1.0));
        check("-0", Some(-0.0));
        check("+1.5e3", Some(1500.0));
        check(".5", Some(0.5));
        check("5.", Some(5.0));
        check("0x1.8p3", Some(12.0));
        check("0X10", Some(16.0));
        check("0x.8", Some(0.5));
        check("0x1p-1074", Some(5e-324));
        check("0x1.fffffffffffffp1023", Some(f64::MAX));
        check("0x1.00000000000008p0", Some(1.0));
        check("0x1.000000000000080000001p0", Some(1.0 + f64::EPSILON));
        check("0x1.00000000000018p0", Some(1.0 + 2.0 * f64::EPSILON));
        check("0x100000000000000000000", Some(2f64.powi(80)));
        check("-inf", Some(f64::NEG_INFINITY));
        check("+Infinity", Some(f64::INFINITY));
        check("1e308", Some(1e308));
        check("5e-324", Some(5e-324));
        for text in ["", " 1", "1 ", "abc", "1e", "1e+", "0x", "0xp1", ".", "-", "nan", "1e309", "1e-400", "infinit"] {
            check(text, None);
        }
        for text in ["1\0", "0x1p1024", "0x1p-1080", "0x1p99999999999999999999", "--1", "1_000"] {
            check(text, None);
        }
    }

    #[test]
    fn digits_are_those_of_printf() {
        let check = |score: f64, text: &str| {
            let mut out = Vec::new();
            write_digits(&mut out, score);
            assert_eq!(std::str::from_utf8(&out), Ok(text));
        };
        check(0.1, "0.10000000000000001");
        check(-0.0, "-0");
        check(3.0, "3");
        check(1e16, "10000000000000000");
        check(1e17, "1e+17");
        check(1.5e-5, "1.5e-05");
        check(0.00015, "0.00014999999999999999");
        check(123456.789, "123456.789");
        check(-1e300, "-1.0000000000000001e+300");
        check(f64::NEG_INFINITY, "-inf");
    }

    #[test]
    fn bounds_are_read_with_less_care() {
        let check = |text: &str, bound: Option<f64>| assert_eq!(parse_bound(text.as_bytes()), bound, "{text:?}");
        check("", Some(0.0));
        check(" \t1", Some(1.0));
        check("1\0abc", Some(1.0));
        check("1e999", Some(f64::INFINITY));
        check("-1e999", Some(f64::NEG_INFINITY));
        check("1e-999", Some(0.0));
        for text in ["1 ", "(1", "nan", "x", "0x", "- 1"] {
            check(text, None);
        }
    }
}
