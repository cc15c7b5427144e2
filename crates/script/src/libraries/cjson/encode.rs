//! Lua values as JSON.

use super::settings::{Invalid, Settings};
use crate::libraries::{Written, type_name};
use mlua::{Table, Value};
use std::io::Write;

/// Returns the text of a value.
///
/// # Errors
/// The value, or one in it, cannot be written; the words of lua-cjson.
pub(super) fn encode(settings: &Settings, value: &Value) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    Encoder { settings, text: &mut text, written: Written::new() }.value(value, 0)?;
    Ok(text)
}

struct Encoder<'a> {
    settings: &'a Settings,
    text: &'a mut Vec<u8>,
    written: Written,
}

/// Tables inside each other, whatever the settings allow.
const DEPTH_MAX: u32 = 1000;

impl Encoder<'_> {
    fn value(&mut self, value: &Value, depth: u32) -> Result<(), String> {
        self.step(bytes_of(value))?;
        match value {
            Value::Nil => self.text.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => self.text.extend_from_slice(b"null"),
            Value::Boolean(true) => self.text.extend_from_slice(b"true"),
            Value::Boolean(false) => self.text.extend_from_slice(b"false"),
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Table(table) => self.table(table, depth + 1)?,
            other => return Err(format!("Cannot serialise {}: type not supported", type_name(other))),
        }
        Ok(())
    }

    /// Counts a value of so many bytes.
    fn step(&mut self, bytes: usize) -> Result<(), String> {
        self.written.step(self.text.len() + bytes)
    }

    fn number(&mut self, number: f64) -> Result<(), String> {
        if number.is_finite() {
            write_general(self.text, number, self.settings.precision as usize);
            return Ok(());
        }
        match self.settings.encode_invalid {
            Invalid::Refused => return Err("Cannot serialise number: must not be NaN or Inf".to_owned()),
            Invalid::Null => self.text.extend_from_slice(b"null"),
            Invalid::Kept if number.is_nan() => self.text.extend_from_slice(b"nan"),
            Invalid::Kept => self.text.extend_from_slice(if number < 0.0 { b"-inf" } else { b"inf" }),
        }
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        self.text.push(b'"');
        for &byte in text {
            match byte {
                b'"' | b'\\' | b'/' => self.text.extend_from_slice(&[b'\\', byte]),
                b'\n' => self.text.extend_from_slice(b"\\n"),
                b'\r' => self.text.extend_from_slice(b"\\r"),
                b'\t' => self.text.extend_from_slice(b"\\t"),
                0x08 => self.text.extend_from_slice(b"\\b"),
                0x0c => self.text.extend_from_slice(b"\\f"),
                0..=31 | 127 => write!(self.text, "\\u{byte:04x}").expect("a vector takes all that is written"),
                _ => self.text.push(byte),
            }
        }
        self.text.push(b'"');
    }

    fn table(&mut self, table: &Table, depth: u32) -> Result<(), String> {
        if depth > self.settings.encode_depth_max.min(DEPTH_MAX) {
            return Err(format!("Cannot serialise, excessive nesting ({depth})"));
        }
        match self.array_len(table)? {
            Some(len) => self.array(table, len, depth),
            None => self.object(table, depth),
        }
    }

    /// The length of a table that is an array; an empty one is an object.
    fn array_len(&mut self, table: &Table) -> Result<Option<u64>, String> {
        let (mut max, mut count) = (0u64, 0u64);
        for pair in table.pairs::<Value, Value>() {
            self.step(0)?;
            let number = match pair.map_err(|error| error.to_string())?.0 {
                Value::Integer(number) => number as f64,
                Value::Number(number) => number,
                _ => return Ok(None),
            };
            if !(number >= 1.0 && number.floor() == number) {
                return Ok(None);
            }
            max = max.max(number as u64);
            count += 1;
        }
        let Settings { sparse_converts, sparse_ratio, sparse_safe, .. } = *self.settings;
        if sparse_ratio > 0 && max > count.saturating_mul(sparse_ratio.into()) && max > sparse_safe.into() {
            if !sparse_converts {
                return Err("Cannot serialise table: excessively sparse array".to_owned());
            }
            return Ok(None);
        }
        Ok((max > 0).then_some(max))
    }

    fn array(&mut self, table: &Table, len: u64, depth: u32) -> Result<(), String> {
        self.text.push(b'[');
        for at in 1..=len {
            if at > 1 {
                self.text.push(b',');
            }
            let element: Value = table.raw_get(at).map_err(|error| error.to_string())?;
            self.value(&element, depth)?;
        }
        self.text.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: u32) -> Result<(), String> {
        self.text.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair.map_err(|error| error.to_string())?;
            self.step(bytes_of(&key))?;
            if !std::mem::take(&mut is_first) {
                self.text.push(b',');
            }
            match &key {
                Value::Integer(number) => {
                    write!(self.text, "\"{number}\"").expect("a vector takes all that is written");
                }
                Value::Number(number) => {
                    self.text.push(b'"');
                    self.number(*number)?;
                    self.text.push(b'"');
                }
                Value::String(name) => self.string(&name.as_bytes()),
                other => {
                    let kind = type_name(other);
                    return Err(format!("Cannot serialise {kind}: table key must be a number or string"));
                }
            }
            self.text.push(b':');
            self.value(&value, depth)?;
        }
        self.text.push(b'}');
        Ok(())
    }
}

/// The bytes that a string takes at least.
fn bytes_of(value: &Value) -> usize {
    if let Value::String(text) = value { text.as_bytes().len() } else { 0 }
}

/// Appends a finite number as C's `%.<precision>g` does: the fewest digits of so many that are significant.
fn write_general(text: &mut Vec<u8>, number: f64, precision: usize) {
    let scientific = format!("{number:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').expect("the form has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is an integer");
    let without_zeros = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    let shown = if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", without_zeros(digits), exponent.unsigned_abs())
    } else {
        without_zeros(&format!("{number:.*}", (precision as i32 - 1 - exponent) as usize))
    };
    text.extend_from_slice(shown.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_by_c() {
        let check = |number: f64, expected: &str| {
            let mut text = Vec::new();
            write_general(&mut text, number, 14);
            assert_eq!(String::from_utf8(text).expect("digits"), expected);
        };
        check(0.0, "0");
        check(-0.0, "-0");
        check(100.0, "100");
        check(0.1, "0.1");
        check(1.0 / 3.0, "0.33333333333333");
        check(9_007_199_254_740_992.0, "9.007199254741e+15");
        check(1e100, "1e+100");
        check(12_345_678_901_234.0, "12345678901234");
        check(123_456_789_012_345.0, "1.2345678901234e+14");
        check(0.0001, "0.0001");
        check(0.00001, "1e-05");
        check(-2.5e-7, "-2.5e-07");
    }
}
