//! Splits a line of redis.conf into words, and quotes a word so that the splitter gives it back.
//!
//! The rules are those of Redis's `sdssplitargs` and `sdscatrepr`, which redis.conf, the command line and inline
//! commands share. Nothing here knows what a directive is; `crate::read` is the next file to read.

/// The error for a quote that is not closed, or that is followed by something else than a blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unbalanced;

/// Splits a line into words. Outside quotes a blank, tab, CR, LF or NUL ends a word; between double quotes `\xHH`,
/// `\n`, `\r`, `\t`, `\b` and `\a` are escapes and any other escaped byte stands for itself; between single quotes only
/// `\'` is one. A quote may begin inside a word, and after its end a blank must follow.
pub fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, Unbalanced> {
    let mut words = Vec::new();
    let mut rest = skip_blanks(line);
    while !rest.is_empty() && rest[0] != 0 {
        let (word, after) = word(rest)?;
        words.push(word);
        rest = skip_blanks(after);
    }
    Ok(words)
}

fn word(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), Unbalanced> {
    let mut word = Vec::new();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' | 0 => break,
            b'"' => {
                rest = double_quoted(after, &mut word)?;
                return Ok((word, rest));
            }
            b'\'' => {
                rest = single_quoted(after, &mut word)?;
                return Ok((word, rest));
            }
            other => word.push(other),
        }
    }
    Ok((word, rest))
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        match rest {
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(nibble(*high) << 4 | nibble(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = after;
            }
            [b'"', after @ ..] => return closed(after),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return Err(Unbalanced),
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        match rest {
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                rest = after;
            }
            [b'\'', after @ ..] => return closed(after),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return Err(Unbalanced),
        }
    }
}

/// Checks that a blank or the end follows a closing quote.
fn closed(after: &[u8]) -> Result<&[u8], Unbalanced> {
    match after.first() {
        Some(byte) if !is_blank(*byte) => Err(Unbalanced),
        _ => Ok(after),
    }
}

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// Tells whether C's `isspace` holds in the C locale.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn skip_blanks(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|byte| !is_blank(*byte)).unwrap_or(line.len());
    &line[start..]
}

/// Returns the line without the blanks around it that Redis takes off: blank, tab, CR and LF.
pub(crate) fn trim(line: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = line.iter().position(|byte| !blank(byte)).unwrap_or(line.len());
    let end = line.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    &line[start..end]
}

/// Returns a word between double quotes, with everything escaped that is not a printable ASCII character.
pub fn quote(word: &[u8]) -> String {
    let mut quoted = String::with_capacity(word.len() + 2);
    quoted.push('"');
    for byte in word {
        match byte {
            b'\\' | b'"' => {
                quoted.push('\\');
                quoted.push(*byte as char);
            }
            b'\n' => quoted.push_str("\\n"),
            b'\r' => quoted.push_str("\\r"),
            b'\t' => quoted.push_str("\\t"),
            7 => quoted.push_str("\\a"),
            8 => quoted.push_str("\\b"),
            b' '..=b'~' => quoted.push(*byte as char),
            other => quoted.push_str(&format!("\\x{other:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: &str, line: &str, words: Option<&[&str]>) {
        let split = split(line.as_bytes()).ok();
        let expected: Option<Vec<Vec<u8>>> =
            words.map(|words| words.iter().map(|word| word.as_bytes().to_vec()).collect());
        assert_eq!(split, expected, "{rule}");
    }

    #[test]
    fn lines_split_as_redis_splits_them() {
        check("blanks separate words", "  port\t6380  ", Some(&["port", "6380"]));
        check("an empty line has no words", " \t ", Some(&[]));
        check("double quotes keep blanks", r#"dir "/a b""#, Some(&["dir", "/a b"]));
        check("an empty word", r#"save """#, Some(&["save", ""]));
        check("escapes between double quotes", r#"a "\n\t\x41\"\\\q""#, Some(&["a", "\n\tA\"\\q"]));
        check("an incomplete \\x is an x", r#"a "\x4""#, Some(&["a", "x4"]));
        check("single quotes escape only themselves", r"a 'b\'c\n'", Some(&["a", r"b'c\n"]));
        check("a quote may begin inside a word", r#"a b"c d""#, Some(&["a", "bc d"]));
        check("a backslash outside quotes is a byte", r"a b\n", Some(&["a", r"b\n"]));
        check("an open double quote", r#"a "b"#, None);
        check("an open single quote", "a 'b", None);
        check("no blank after the closing quote", r#"a "b"c"#, None);
        check("a hash inside a line is no comment", "a # b", Some(&["a", "#", "b"]));
        check("an escape at the end", r#"a "\"#, None);
    }

    #[test]
    fn a_quoted_word_comes_back() {
        let word: Vec<u8> = (0..=255).collect();
        assert_eq!(split(quote(&word).as_bytes()), Ok(vec![word]));
        assert_eq!(quote(b"a\"b\\\n\x01"), r#""a\"b\\\n\x01""#);
    }
}
