//! Digits to numbers and back, as Redis 7.2 reads and writes them.
//!
//! Owns the textual forms: which strings are integers at all ("01", "+1" and "-0" are not), and how many digits a
//! double prints. The use of a number is never known here. The integer rules are those of Redis's `string2ll`, the
//! double rules those of its `d2string`.

use std::io::Write;

/// The longest text of an `i64`: the minus sign and 19 digits.
const I64_TEXT_BYTES_MAX: usize = 20;

/// "00" to "99", one after the other: two digits are written with one division.
const DIGIT_PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut i = 0;
    while i < 100 {
        pairs[2 * i] = b'0' + (i / 10) as u8;
        pairs[2 * i + 1] = b'0' + (i % 10) as u8;
        i += 1;
    }
    pairs
};

/// Returns the integer that `text` spells, if it spells one as Redis does: no sign but a minus, no leading zero, no
/// spaces, and within 64 bits.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < I64_TEXT_BYTES_MAX => {}
        _ => return None,
    }
    // 19 digits fit a u64, so the sum cannot overflow.
    let mut magnitude = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Appends `value` in decimal.
#[inline]
pub fn write_i64(out: &mut Vec<u8>, value: i64) {
    let mut text = [0; I64_TEXT_BYTES_MAX];
    let mut start = write_digits(&mut text, value.unsigned_abs());
    if value < 0 {
        start -= 1;
        text[start] = b'-';
    }
    out.extend_from_slice(&text[start..]);
}

/// Appends `value` in decimal.
///
/// # Panics
/// Never: a `u64` has 20 digits at most.
#[inline]
pub fn write_u64(out: &mut Vec<u8>, value: u64) {
    let mut text = [0; I64_TEXT_BYTES_MAX];
    let start = write_digits(&mut text, value);
    out.extend_from_slice(&text[start..]);
}

/// Writes the digits of `value` at the end of `text`; returns where they start.
#[inline]
fn write_digits(text: &mut [u8; I64_TEXT_BYTES_MAX], mut value: u64) -> usize {
    let mut start = text.len();
    while value >= 100 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        start -= 2;
        text[start..start + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    }
    if value >= 10 {
        let pair = value as usize * 2;
        start -= 2;
        text[start..start + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    } else {
        start -= 1;
        text[start] = b'0' + value as u8;
    }
    start
}

/// Appends `value` with the fewest digits that read back as the same double, laid out as Redis 7.2 does: `inf`, `-inf`,
/// `nan`, `-0`, integers below 2^62 without an exponent, and otherwise an exponent only where it is shorter to read
/// (`1e-7`, `1e+20`).
///
/// Redis finds its digits by Grisu2, which for about one double in a thousand takes a digit more than needed; here they
/// are always the fewest.
pub fn write_double(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
    } else if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if value.abs() <= (i64::MAX / 2) as f64 && value.trunc() == value {
        write_i64(out, value as i64);
    } else {
        write_shortest(out, value);
    }
}

/// Appends a finite double that is not zero.
fn write_shortest(out: &mut Vec<u8>, value: f64) {
    // "-1.2345678901234567e-308" is the longest text.
    let mut buffer = [0; 32];
    let mut rest = &mut buffer[..];
    write!(rest, "{value:e}").expect("the shortest form of a double has at most 24 bytes");
    let unused = rest.len();
    let text = &buffer[..buffer.len() - unused];

    let (negative, text) = match text {
        [b'-', text @ ..] => (true, text),
        text => (false, text),
    };
    let e = text.iter().position(|&byte| byte == b'e').expect("the exponent form has an exponent");
    let exponent = parse_i64(&text[e + 1..]).expect("the exponent is an integer") as i32;
    let mut digits = [0; 20];
    let mut count = 0;
    for &digit in text[..e].iter().filter(|&&byte| byte != b'.') {
        digits[count] = digit;
        count += 1;
    }
    let digits = &digits[..count];

    if negative {
        out.push(b'-');
    }
    // The value is `digits` times ten to the power of `last`.
    let last = exponent - (count as i32 - 1);
    if (0..8).contains(&last) {
        out.extend_from_slice(digits);
        out.resize(out.len() + last as usize, b'0');
    } else if last < 0 && (last > -7 || exponent.abs() < 4) {
        if exponent < 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + (-exponent - 1) as usize, b'0');
            out.extend_from_slice(digits);
        } else {
            let (whole, fraction) = digits.split_at(exponent as usize + 1);
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    } else {
        out.push(digits[0]);
        if count > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        write_u64(out, u64::from(exponent.unsigned_abs()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_what_redis_takes_for_one() {
        let check = |text: &str, value: Option<i64>| {
            assert_eq!(parse_i64(text.as_bytes()), value, "{text:?}");
        };
        check("0", Some(0));
        check("-1", Some(-1));
        check("100", Some(100));
        check("9223372036854775807", Some(i64::MAX));
        check("-9223372036854775808", Some(i64::MIN));
        check("9223372036854775808", None);
        check("-9223372036854775809", None);
        check("9999999999999999999", None);
        check("99999999999999999999", None);
        check("18446744073709551617", None);
        for text in ["", "-", "-0", "+1", "01", "00", "-01", " 1", "1 ", "1.0", "0x1", "1e3", "--1"] {
            check(text, None);
        }
    }

    #[test]
    fn integers_are_written_as_std_does() {
        let mut values = vec![0, i64::MIN, i64::MAX];
        for shift in 0..63 {
            for near in -2..=2 {
                values.extend([(1i64 << shift) + near, -(1i64 << shift) + near]);
            }
        }
        let mut ten = 1i64;
        while let Some(next) = ten.checked_mul(10) {
            values.extend([ten - 1, ten, ten + 1, -ten, 1 - ten]);
            ten = next;
        }
        for value in values {
            let mut out = Vec::new();
            write_i64(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
            assert_eq!(parse_i64(&out), Some(value));
        }
        let mut out = Vec::new();
        write_u64(&mut out, u64::MAX);
        assert_eq!(out, u64::MAX.to_string().as_bytes());
    }

    #[test]
    fn doubles_are_laid_out_as_redis_7_2_does() {
        let check = |value: f64, text: &str| {
            let mut out = Vec::new();
            write_double(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        };
        check(0.0, "0");
        check(-0.0, "-0");
        check(f64::INFINITY, "inf");
        check(f64::NEG_INFINITY, "-inf");
        check(f64::NAN, "nan");
        check(3.0, "3");
        check(-17.0, "-17");
        check(0.1, "0.1");
        check(-1.5, "-1.5");
        check(2.5066282746310002, "2.5066282746310002");
        check(0.0001, "0.0001");
        check(0.000001, "0.000001");
        check(0.0000001, "1e-7");
        check(0.00012345678, "1.2345678e-4");
        check(0.0012345678, "0.0012345678");
        check(1234.5678, "1234.5678");
        check(12345.678901234, "1.2345678901234e+4");
        check(12345.678901, "12345.678901");
        check(1e15, "1000000000000000");
        check(4611686018427387904.0, "4611686018427387904");
        check(9223372036854775808.0, "9223372036854776000");
        check(1e19, "1e+19");
        check(1e20, "1e+20");
        check(1.7976931348623157e308, "1.7976931348623157e+308");
        check(-1.7976931348623157e308, "-1.7976931348623157e+308");
        check(5e-324, "5e-324");
        check(2.2250738585072014e-308, "2.2250738585072014e-308");
    }

    #[test]
    fn doubles_read_back_as_themselves() {
        let mut bits = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let value = f64::from_bits(bits);
            let mut out = Vec::new();
            write_double(&mut out, value);
            let back: f64 = std::str::from_utf8(&out).unwrap().parse().unwrap();
            assert!(back == value || (back.is_nan() && value.is_nan()), "{value:e}");
        }
    }
}
