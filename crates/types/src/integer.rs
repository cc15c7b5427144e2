//! Decimal integers as Redis reads and writes them: one spelling for each number, so that reading and writing a number
//! gives back the same bytes.

/// Returns the number that `digits` spell, if they are its only spelling: no blanks, no `+`, no leading zeros, no `-0`.
pub fn parse(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    // Any nineteen digits fit a u64.
    let mut magnitude: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_number_has_one_spelling() {
        let cases: &[(&[u8], Option<i64>)] = &[
            (b"0", Some(0)),
            (b"-1", Some(-1)),
            (b"10", Some(10)),
            (b"9223372036854775807", Some(i64::MAX)),
            (b"-9223372036854775808", Some(i64::MIN)),
            (b"9223372036854775808", None),
            (b"-9223372036854775809", None),
            (b"9999999999999999999", None),
            (b"10000000000000000000", None),
            (b"", None),
            (b"-", None),
            (b"-0", None),
            (b"00", None),
            (b"01", None),
            (b"-01", None),
            (b"+1", None),
            (b" 1", None),
            (b"1 ", None),
            (b"1.0", None),
            (b"0x1", None),
            (b"1\0", None),
        ];
        for (digits, number) in cases {
            assert_eq!(parse(digits), *number, "{:?}", digits.escape_ascii().to_string());
        }
    }
}
