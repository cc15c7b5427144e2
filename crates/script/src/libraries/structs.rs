//! `struct`: values in the layouts of C, as of Roberto Ierusalimschy's library of this name.

use super::{number_argument, string_argument, wrong_type};
use crate::failure;
use mlua::{Lua, MultiValue, Result, Table, Value};

/// The most bytes that an integer may have.
const INTEGER_BYTES_MAX: usize = 32;

/// The alignment that `!` alone asks for.
const NATIVE_ALIGNMENT: usize = 8;

/// Values that a function can return.
const VALUES_MAX: usize = 7900;

/// Makes the library.
pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("pack", lua.create_function(pack)?)?;
    library.raw_set("unpack", lua.create_function(unpack)?)?;
    library.raw_set("size", lua.create_function(size)?)?;
    Ok(library)
}

/// An option of a format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Signed,
    Unsigned,
    Float,
    Double,
    /// A byte of padding.
    Pad,
    /// A text that ends with a zero.
    Text,
    /// A text of so many bytes.
    Bytes,
}

struct Format<'a> {
    lua: &'a Lua,
    function: &'a str,
    rest: &'a [u8],
    is_little: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(lua: &'a Lua, function: &'a str, text: &'a [u8]) -> Format<'a> {
        Format { lua, function, rest: text, is_little: cfg!(target_endian = "little"), alignment: 1 }
    }

    /// Takes a number; `otherwise` where there are no digits.
    fn number(&mut self, otherwise: usize) -> Result<usize> {
        let digits = self.rest.iter().take_while(|digit| digit.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(otherwise);
        }
        let (text, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i32>().ok());
        number.map(|number| number as usize).ok_or_else(|| failure::text(self.lua, "integral size overflow"))
    }

    fn integer_bytes(&mut self, otherwise: usize) -> Result<usize> {
        let bytes = self.number(otherwise)?;
        if bytes > INTEGER_BYTES_MAX {
            let why = format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}");
            return Err(failure::text(self.lua, why));
        }
        Ok(bytes)
    }

    /// Takes the next field with its size in bytes, settings before it included. A text has no size of its own.
    fn next(&mut self) -> Result<Option<(Field, usize, u8)>> {
        loop {
            let Some((&option, rest)) = self.rest.split_first() else { return Ok(None) };
            self.rest = rest;
            let field = match option {
                b'b' => (Field::Signed, 1),
                b'B' => (Field::Unsigned, 1),
                b'h' => (Field::Signed, 2),
                b'H' => (Field::Unsigned, 2),
                b'l' => (Field::Signed, 8),
                b'L' | b'T' => (Field::Unsigned, 8),
                b'i' => (Field::Signed, self.integer_bytes(4)?),
                b'I' => (Field::Unsigned, self.integer_bytes(4)?),
                b'f' => (Field::Float, 4),
                b'd' => (Field::Double, 8),
                b'x' => (Field::Pad, 1),
                b's' => (Field::Text, 0),
                b'c' => (Field::Bytes, self.number(1)?),
                b' ' => continue,
                b'<' => {
                    self.is_little = true;
                    continue;
                }
                b'>' => {
                    self.is_little = false;
                    continue;
                }
                b'!' => {
                    let alignment = self.number(NATIVE_ALIGNMENT)?;
                    if !alignment.is_power_of_two() {
                        return Err(failure::text(self.lua, format!("alignment {alignment} is not a power of 2")));
                    }
                    self.alignment = alignment;
                    continue;
                }
                other => {
                    let what = format!("invalid format option '{}'", char::from(other));
                    return Err(failure::argument(self.lua, 1, self.function, &what));
                }
            };
            return Ok(Some((field.0, field.1, option)));
        }
    }

    /// The padding in front of a field at an offset.
    fn padding(&self, at: usize, field: Field, bytes: usize) -> usize {
        if bytes == 0 || field == Field::Bytes {
            return 0;
        }
        let bytes = bytes.min(self.alignment);
        if bytes > 1 { (bytes - (at & (bytes - 1))) & (bytes - 1) } else { 0 }
    }
}

fn pack(lua: &Lua, mut args: MultiValue) -> Result<mlua::LuaString> {
    let format = string_argument(lua, &args, 1, "pack")?;
    let format = format.as_bytes();
    let mut format = Format::new(lua, "pack", &format);
    // A missing argument is nil.
    args.push_back(Value::Nil);
    let (mut packed, mut argument) = (Vec::new(), 1);
    while let Some((field, bytes, _)) = format.next()? {
        let padding = format.padding(packed.len(), field, bytes);
        packed.resize(packed.len() + padding, 0);
        if field != Field::Pad {
            argument += 1;
        }
        match field {
            Field::Signed | Field::Unsigned => {
                let number = strict_number(lua, &args, argument)?;
                let value = if number < 0.0 { number as i64 as u64 } else { number as u64 };
                put_integer(&mut packed, value, bytes, format.is_little);
            }
            Field::Float => {
                let number = strict_number(lua, &args, argument)? as f32;
                packed.extend(if format.is_little { number.to_le_bytes() } else { number.to_be_bytes() });
            }
            Field::Double => {
                let number = strict_number(lua, &args, argument)?;
                packed.extend(if format.is_little { number.to_le_bytes() } else { number.to_be_bytes() });
            }
            Field::Pad => packed.push(0),
            Field::Text => {
                packed.extend_from_slice(&string_argument(lua, &args, argument, "pack")?.as_bytes());
                packed.push(0);
            }
            Field::Bytes => {
                let text = string_argument(lua, &args, argument, "pack")?;
                let text = text.as_bytes();
                let count = if bytes == 0 { text.len() } else { bytes };
                let Some(begin) = text.get(..count) else {
                    return Err(failure::argument(lua, argument, "pack", "string too short"));
                };
                packed.extend_from_slice(begin);
            }
        }
    }
    lua.create_string(packed)
}

fn strict_number(lua: &Lua, args: &MultiValue, number: usize) -> Result<f64> {
    match args.get(number - 1) {
        None => Err(wrong_type(lua, args, number, "pack", "number")),
        Some(_) => number_argument(lua, args, number, "pack"),
    }
}

fn put_integer(to: &mut Vec<u8>, value: u64, bytes: usize, is_little: bool) {
    let byte = |at: usize| if at < 8 { (value >> (8 * at)) as u8 } else { 0 };
    match is_little {
        true => to.extend((0..bytes).map(byte)),
        false => to.extend((0..bytes).rev().map(byte)),
    }
}

fn integer(bytes: &[u8], is_signed: bool, is_little: bool) -> f64 {
    let mut value = 0u64;
    let mut add = |at: usize, byte: u8| {
        if at < 8 {
            value |= u64::from(byte) << (8 * at);
        }
    };
    match is_little {
        true => bytes.iter().enumerate().for_each(|(at, byte)| add(at, *byte)),
        false => bytes.iter().rev().enumerate().for_each(|(at, byte)| add(at, *byte)),
    }
    if !is_signed {
        return value as f64;
    }
    let unused = 64 - 8 * bytes.len().min(8) as u32;
    if unused == 64 { 0.0 } else { ((value << unused) as i64 >> unused) as f64 }
}

fn unpack(lua: &Lua, args: MultiValue) -> Result<MultiValue> {
    let format = string_argument(lua, &args, 1, "unpack")?;
    let format = format.as_bytes();
    let data = string_argument(lua, &args, 2, "unpack")?;
    let data = data.as_bytes();
    let start = if args.len() > 2 { number_argument(lua, &args, 3, "unpack")? } else { 1.0 };
    if start < 1.0 {
        return Err(failure::argument(lua, 3, "unpack", "offset must be 1 or greater"));
    }
    let mut format = Format::new(lua, "unpack", &format);
    let (mut at, mut values) = (start as usize - 1, Vec::new());
    let short = || failure::argument(lua, 2, "unpack", "data string too short");
    while let Some((field, bytes, _)) = format.next()? {
        at = at.saturating_add(format.padding(at, field, bytes));
        let content = data.get(at..at.saturating_add(bytes)).ok_or_else(short)?;
        if values.len() >= VALUES_MAX {
            return Err(failure::text(lua, "too many results to unpack"));
        }
        at += bytes;
        match field {
            Field::Signed | Field::Unsigned => {
                values.push(Value::Number(integer(content, field == Field::Signed, format.is_little)));
            }
            Field::Float => {
                let raw = content.try_into().expect("its size is 4");
                let number = if format.is_little { f32::from_le_bytes(raw) } else { f32::from_be_bytes(raw) };
                values.push(Value::Number(number.into()));
            }
            Field::Double => {
                let raw = content.try_into().expect("its size is 8");
                let number = if format.is_little { f64::from_le_bytes(raw) } else { f64::from_be_bytes(raw) };
                values.push(Value::Number(number));
            }
            Field::Pad => {}
            Field::Text => {
                let Some(len) = data[at..].iter().position(|byte| *byte == 0) else {
                    return Err(failure::text(lua, "unfinished string in data"));
                };
                values.push(Value::String(lua.create_string(&data[at..at + len])?));
                at += len + 1;
            }
            Field::Bytes if bytes == 0 => {
                let Some(Value::Number(len)) = values.last() else {
                    return Err(failure::text(lua, "format 'c0' needs a previous size"));
                };
                let len = *len as usize;
                let content = data.get(at..at.saturating_add(len)).ok_or_else(short)?;
                values.pop();
                values.push(Value::String(lua.create_string(content)?));
                at += len;
            }
            Field::Bytes => values.push(Value::String(lua.create_string(content)?)),
        }
    }
    values.push(Value::Number(at as f64 + 1.0));
    Ok(values.into_iter().collect())
}

fn size(lua: &Lua, args: MultiValue) -> Result<f64> {
    let format = string_argument(lua, &args, 1, "size")?;
    let format = format.as_bytes();
    let mut format = Format::new(lua, "size", &format);
    let mut size = 0;
    while let Some((field, bytes, option)) = format.next()? {
        if bytes == 0 && matches!(field, Field::Text | Field::Bytes) {
            let option = if option == b's' { "s" } else { "c0" };
            return Err(failure::argument(lua, 1, "size", &format!("option '{option}' has no fixed size")));
        }
        size += format.padding(size, field, bytes) + bytes;
    }
    Ok(size as f64)
}
