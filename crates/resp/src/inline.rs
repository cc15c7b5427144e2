//! Requests typed by hand: words on a line, with quotes.
//!
//! Splits a line that has arrived whole; finding the line's end is [`crate::parser`]'s affair. The rules are those of
//! Redis's `sdssplitargs`, which also splits the lines of redis.conf: words are separated by white space; in double
//! quotes `\n \r \t \b \a`, `\xHH` and any other escaped character are rewritten; in single quotes only `\'`; a closing
//! quote is followed by white space or nothing.

use std::ops::Range;

use memchr::memchr2;

use crate::{OwnedArgs, ProtocolError};

/// Tells whether the words of `line` cannot be ranges of it.
pub(crate) fn has_quotes(line: &[u8]) -> bool {
    memchr2(b'"', b'\'', line).is_some()
}

/// Adds the words of a line without quotes, which begins at `offset`, to `args`.
pub(crate) fn split_plain(line: &[u8], offset: u32, args: &mut Vec<Range<u32>>) {
    let mut at = 0;
    while let Some(start) = word_start(line, at) {
        at = start;
        while at < line.len() && !ends_word(line[at]) {
            at += 1;
        }
        args.push(offset + start as u32..offset + at as u32);
    }
}

/// The words of `line`, their quotes taken off. A quote may begin in the middle of a word.
///
/// # Errors
/// [`ProtocolError::UnbalancedQuotes`] if a quote is still open at the end, or closes in the middle of a word.
pub fn split(line: &[u8]) -> Result<OwnedArgs, ProtocolError> {
    let mut args = OwnedArgs::with_capacity(line.len(), 0);
    let mut at = 0;
    while let Some(start) = word_start(line, at) {
        at = start;
        let word = args.open();
        while at < line.len() && !ends_word(line[at]) {
            match line[at] {
                b'"' => {
                    at = double_quoted(line, at + 1, &mut args)?;
                    break;
                }
                b'\'' => {
                    at = single_quoted(line, at + 1, &mut args)?;
                    break;
                }
                byte => args.push_byte(byte),
            }
            at += 1;
        }
        args.close(word);
    }
    Ok(args)
}

/// Adds the bytes between double quotes from `at` on; returns the offset behind the closing one.
fn double_quoted(line: &[u8], mut at: usize, args: &mut OwnedArgs) -> Result<usize, ProtocolError> {
    loop {
        match line[at..] {
            [b'"', ..] => return closed(line, at + 1),
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                args.push_byte(hex_digit(high) << 4 | hex_digit(low));
                at += 4;
            }
            [b'\\', escaped, ..] => {
                args.push_byte(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => other,
                });
                at += 2;
            }
            [byte, ..] => {
                args.push_byte(byte);
                at += 1;
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

/// Adds the bytes between single quotes from `at` on; returns the offset behind the closing one.
fn single_quoted(line: &[u8], mut at: usize, args: &mut OwnedArgs) -> Result<usize, ProtocolError> {
    loop {
        match line[at..] {
            [b'\'', ..] => return closed(line, at + 1),
            [b'\\', b'\'', ..] => {
                args.push_byte(b'\'');
                at += 2;
            }
            [byte, ..] => {
                args.push_byte(byte);
                at += 1;
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

/// Returns `at`, which is behind a closing quote, if the word may end there.
fn closed(line: &[u8], at: usize) -> Result<usize, ProtocolError> {
    match line.get(at) {
        Some(&byte) if !is_space(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(at),
    }
}

/// Returns where the next word from `at` on begins.
fn word_start(line: &[u8], at: usize) -> Option<usize> {
    line[at..].iter().position(|&byte| !is_space(byte)).map(|skipped| at + skipped)
}

/// Tells whether C's `isspace` holds: for more bytes than those that end a word, so `\v` and `\f` are part of a word
/// but cannot begin one.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0)
}

fn hex_digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, words: &[&[u8]]) {
        let args = split(line.as_bytes()).unwrap();
        assert_eq!(args.as_args().iter().collect::<Vec<_>>(), words, "{line:?}");
        if !has_quotes(line.as_bytes()) {
            let mut ranges = Vec::new();
            split_plain(line.as_bytes(), 0, &mut ranges);
            let plain = crate::Args::new(line.as_bytes(), &ranges);
            assert_eq!(plain.to_owned_args(), args, "{line:?}");
        }
    }

    #[test]
    fn words_are_split_as_sdssplitargs_does() {
        check("", &[]);
        check(" \t\x0b\x0c\r ", &[]);
        check("SET key value", &[b"SET", b"key", b"value"]);
        check("  SET\tkey \r value  ", &[b"SET", b"key", b"value"]);
        check("a\x0bb \x0cc", &[b"a\x0bb", b"c"]);
        check(r"plain \n \x41", &[b"plain", br"\n", br"\x41"]);
        check(r#""a b" 'c d'"#, &[b"a b", b"c d"]);
        check(r#""" ''"#, &[b"", b""]);
        check(r#"in"the middle" of'a word'"#, &[b"inthe middle", b"ofa word"]);
        check(r#""\n\r\t\b\a\q\"\\" "\x00\xfF\xg1""#, &[b"\n\r\t\x08\x07q\"\\", b"\x00\xffxg1"]);
        check(r"'\'\n' 'x'", &[br"'\n", b"x"]);
        check("\"a\"\x0b\"b\"", &[b"a", b"b"]);
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [
            r#"""#,
            r#"'"#,
            r#""abc"#,
            r#""a"b"#,
            r#"'a'b"#,
            r#""a"'b'"#,
            r#""abc\"#,
            r#""abc\""#,
            r#"'abc\'"#,
            r#"x "y" "z"#,
        ] {
            assert_eq!(split(line.as_bytes()), Err(ProtocolError::UnbalancedQuotes), "{line}");
        }
    }
}
