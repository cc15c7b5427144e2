//! JSON as Lua values.

use super::settings::{Invalid, Settings};
use crate::failure;
use mlua::{Lua, Result, Value};

/// Returns the value of a text.
///
/// # Errors
/// The text is no JSON; the words of lua-cjson.
pub(super) fn decode(lua: &Lua, settings: &Settings, text: &[u8]) -> Result<Value> {
    let fail = |why: String| failure::text(lua, why);
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(fail("JSON parser does not support UTF-16 or UTF-32".to_owned()));
    }
    let mut decoder = Decoder { lua, settings, text, at: 0, depth: 0 };
    let first = decoder.next();
    let value = decoder.value(first)?;
    match decoder.next() {
        Token { kind: Kind::End, .. } => Ok(value),
        token => Err(decoder.expected("the end", &token)),
    }
}

struct Token {
    kind: Kind,
    /// The offset at which the token begins, or is wrong.
    at: usize,
}

enum Kind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::ObjectBegin => "T_OBJ_BEGIN",
            Kind::ObjectEnd => "T_OBJ_END",
            Kind::ArrayBegin => "T_ARR_BEGIN",
            Kind::ArrayEnd => "T_ARR_END",
            Kind::String(_) => "T_STRING",
            Kind::Number(_) => "T_NUMBER",
            Kind::Boolean(_) => "T_BOOLEAN",
            Kind::Null => "T_NULL",
            Kind::Colon => "T_COLON",
            Kind::Comma => "T_COMMA",
            Kind::End => "T_END",
            Kind::Wrong(why) => why,
        }
    }
}

struct Decoder<'a> {
    lua: &'a Lua,
    settings: &'a Settings,
    text: &'a [u8],
    at: usize,
    depth: u32,
}

impl Decoder<'_> {
    fn expected(&self, what: &str, token: &Token) -> mlua::Error {
        let found = token.kind.name();
        failure::text(self.lua, format!("Expected {what} but found {found} at character {}", token.at + 1))
    }

    fn value(&mut self, token: Token) -> Result<Value> {
        Ok(match token.kind {
            Kind::String(text) => Value::String(self.lua.create_string(text)?),
            Kind::Number(number) => Value::Number(number),
            Kind::Boolean(value) => Value::Boolean(value),
            Kind::Null => Value::NULL,
            Kind::ObjectBegin => self.object()?,
            Kind::ArrayBegin => self.array()?,
            _ => return Err(self.expected("value", &token)),
        })
    }

    fn descend(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth <= self.settings.decode_depth_max.min(DEPTH_MAX) {
            return Ok(());
        }
        let (depth, at) = (self.depth, self.at);
        Err(failure::text(self.lua, format!("Found too many nested data structures ({depth}) at character {at}")))
    }

    fn object(&mut self) -> Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if !matches!(token.kind, Kind::ObjectEnd) {
            loop {
                let Kind::String(key) = token.kind else { return Err(self.expected("object key string", &token)) };
                match self.next() {
                    Token { kind: Kind::Colon, .. } => {}
                    token => return Err(self.expected("colon", &token)),
                }
                let first = self.next();
                let value = self.value(first)?;
                table.raw_set(self.lua.create_string(key)?, value)?;
                match self.next() {
                    Token { kind: Kind::ObjectEnd, .. } => break,
                    Token { kind: Kind::Comma, .. } => token = self.next(),
                    token => return Err(self.expected("comma or object end", &token)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if !matches!(token.kind, Kind::ArrayEnd) {
            for at in 1.. {
                let value = self.value(token)?;
                table.raw_set(at, value)?;
                match self.next() {
                    Token { kind: Kind::ArrayEnd, .. } => break,
                    Token { kind: Kind::Comma, .. } => token = self.next(),
                    token => return Err(self.expected("comma or array end", &token)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn next(&mut self) -> Token {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        let at = self.at;
        let Some(&byte) = self.text.get(at) else { return Token { kind: Kind::End, at } };
        let single = match byte {
            b'{' => Some(Kind::ObjectBegin),
            b'}' => Some(Kind::ObjectEnd),
            b'[' => Some(Kind::ArrayBegin),
            b']' => Some(Kind::ArrayEnd),
            b':' => Some(Kind::Colon),
            b',' => Some(Kind::Comma),
            _ => None,
        };
        if let Some(kind) = single {
            self.at += 1;
            return Token { kind, at };
        }
        match byte {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(at),
            _ => {
                for (word, kind) in
                    [("true", Kind::Boolean(true)), ("false", Kind::Boolean(false)), ("null", Kind::Null)]
                {
                    if self.text[at..].starts_with(word.as_bytes()) {
                        self.at += word.len();
                        return Token { kind, at };
                    }
                }
                if is_invalid_number(&self.text[at..]) && self.settings.decode_invalid == Invalid::Kept {
                    return self.number(at);
                }
                Token { kind: Kind::Wrong("invalid token"), at }
            }
        }
    }

    fn number(&mut self, at: usize) -> Token {
        let rest = &self.text[at..];
        if self.settings.decode_invalid != Invalid::Kept && is_invalid_number(rest) {
            return Token { kind: Kind::Wrong("invalid number"), at };
        }
        match leading_number(rest) {
            Some((number, bytes)) => {
                self.at += bytes;
                Token { kind: Kind::Number(number), at }
            }
            None => Token { kind: Kind::Wrong("invalid number"), at },
        }
    }

    fn string(&mut self) -> Token {
        let at = self.at;
        let mut string = Vec::new();
        let mut here = at + 1;
        loop {
            let Some(&byte) = self.text.get(here) else {
                return Token { kind: Kind::Wrong("unexpected end of string"), at: here };
            };
            here += 1;
            match byte {
                b'"' => break,
                b'\\' => match self.escape(here - 1, &mut string) {
                    Ok(next) => here = next,
                    Err(why) => return Token { kind: Kind::Wrong(why), at: here - 1 },
                },
                _ => string.push(byte),
            }
        }
        self.at = here;
        Token { kind: Kind::String(string), at }
    }

    /// Reads what a backslash at `at` begins, and returns where it ends.
    fn escape(&self, at: usize, string: &mut Vec<u8>) -> std::result::Result<usize, &'static str> {
        let plain = match self.text.get(at + 1) {
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                let (code, bytes) = self.code_point(at).ok_or("invalid unicode escape code")?;
                let mut utf8 = [0; 4];
                string.extend_from_slice(code.encode_utf8(&mut utf8).as_bytes());
                return Ok(at + bytes);
            }
            _ => return Err("invalid escape code"),
        };
        string.push(plain);
        Ok(at + 2)
    }

    /// Reads `\uXXXX` at `at`, or two of them for a character beyond 16 bits.
    fn code_point(&self, at: usize) -> Option<(char, usize)> {
        let unit = |at: usize| {
            let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
            digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
        };
        let first = unit(at)?;
        if let Some(code) = char::from_u32(first) {
            return Some((code, 6));
        }
        let second = unit(at + 6).filter(|second| (0xdc00..0xe000).contains(second))?;
        if first >= 0xdc00 {
            return None;
        }
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        Some((char::from_u32(code)?, 12))
    }
}

/// Values inside each other, whatever the settings allow.
const DEPTH_MAX: u32 = 1000;

/// Whether a number is one that C reads and JSON does not have: with a leading zero, in hexadecimal digits, infinite or
/// none.
fn is_invalid_number(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    match text {
        [b'0', next, ..] => next.eq_ignore_ascii_case(&b'x') || next.is_ascii_digit(),
        [b'0'..=b'9', ..] => false,
        _ => text.get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")),
    }
}

/// The number that a text begins with, as C's strtod reads it, and its length.
fn leading_number(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(text.first() == Some(&b'-'));
    let unsigned = &text[sign..];
    let signed = |number: f64| if sign == 1 { -number } else { number };
    let is_word = |word: &[u8]| unsigned.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    if is_word(b"infinity") {
        return Some((signed(f64::INFINITY), sign + 8));
    }
    if is_word(b"inf") {
        return Some((signed(f64::INFINITY), sign + 3));
    }
    if is_word(b"nan") {
        return Some((signed(f64::NAN), sign + 3));
    }
    if is_word(b"0x") {
        let digits = unsigned[2..].iter().take_while(|digit| digit.is_ascii_hexdigit()).count();
        if digits > 0 {
            let value = unsigned[2..2 + digits]
                .iter()
                .fold(0.0, |value, digit| value * 16.0 + f64::from(char::from(*digit).to_digit(16).unwrap_or(0)));
            return Some((signed(value), sign + 2 + digits));
        }
    }
    let run = |from: usize| unsigned[from..].iter().take_while(|digit| digit.is_ascii_digit()).count();
    let whole = run(0);
    let mut end = whole;
    if unsigned.get(end) == Some(&b'.') {
        let fraction = run(end + 1);
        if whole + fraction > 0 {
            end += 1 + fraction;
        }
    }
    if end == 0 {
        return None;
    }
    if matches!(unsigned.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(unsigned.get(end + 1), Some(b'+' | b'-')));
        let from = end + 1 + sign;
        let digits = if from <= unsigned.len() { run(from) } else { 0 };
        if digits > 0 {
            end = from + digits;
        }
    }
    let number = std::str::from_utf8(&unsigned[..end]).ok()?.parse().ok()?;
    Some((signed(number), sign + end))
}
