//! `cmsgpack`: MessagePack as of the library lua-cmsgpack 0.4.

use super::{Written, ask_before_parsing, not_written, number_argument, string_argument};
use crate::failure;
use mlua::{Lua, MultiValue, Result, Table, Value};

/// Tables inside each other that are written; what is deeper becomes nil.
const PACK_DEPTH_MAX: u32 = 16;

/// Values inside each other that are read.
const UNPACK_DEPTH_MAX: u32 = 1000;

/// Makes the library.
pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("pack", lua.create_function(pack)?)?;
    library.raw_set("unpack", lua.create_function(unpack)?)?;
    library.raw_set("unpack_one", lua.create_function(unpack_one)?)?;
    library.raw_set("unpack_limit", lua.create_function(unpack_limit)?)?;
    library.raw_set("_NAME", "cmsgpack")?;
    library.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    library.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    library.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(library)
}

fn pack(lua: &Lua, args: MultiValue) -> Result<mlua::LuaString> {
    if args.is_empty() {
        return Err(failure::argument(lua, 0, "pack", "MessagePack pack needs input."));
    }
    let mut packer = Packer { packed: Vec::new(), written: Written::new() };
    for value in &args {
        packer.value(value, 0).map_err(|why| not_written(lua, why))?;
    }
    lua.create_string(packer.packed)
}

struct Packer {
    packed: Vec<u8>,
    written: Written,
}

impl Packer {
    fn value(&mut self, value: &Value, depth: u32) -> std::result::Result<(), String> {
        self.step(if let Value::String(text) = value { text.as_bytes().len() } else { 0 })?;
        let to = &mut self.packed;
        match value {
            Value::String(text) => pack_string(to, &text.as_bytes()),
            Value::Boolean(true) => to.push(0xc3),
            Value::Boolean(false) => to.push(0xc2),
            Value::Integer(number) => pack_number(to, *number as f64),
            Value::Number(number) => pack_number(to, *number),
            Value::Table(table) if depth < PACK_DEPTH_MAX => return self.table(table, depth),
            _ => to.push(0xc0),
        }
        Ok(())
    }

    /// Counts a value of so many bytes.
    fn step(&mut self, bytes: usize) -> std::result::Result<(), String> {
        self.written.step(self.packed.len() + bytes)
    }

    fn table(&mut self, table: &Table, depth: u32) -> std::result::Result<(), String> {
        let (mut max, mut count, mut is_array) = (0.0f64, 0u32, true);
        for pair in table.pairs::<Value, Value>() {
            self.step(0)?;
            count += 1;
            let number = match pair.map_err(|error| error.to_string())?.0 {
                Value::Integer(number) => number as f64,
                Value::Number(number) => number,
                _ => -1.0,
            };
            is_array &= number > 0.0 && number.floor() == number;
            max = max.max(number);
        }
        if is_array && max == f64::from(count) {
            collection_head(&mut self.packed, 0x90, 0xdc, count);
            for at in 1..=count {
                let element: Value = table.raw_get(at).map_err(|error| error.to_string())?;
                self.value(&element, depth + 1)?;
            }
            return Ok(());
        }
        collection_head(&mut self.packed, 0x80, 0xde, count);
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair.map_err(|error| error.to_string())?;
            self.value(&key, depth + 1)?;
            self.value(&value, depth + 1)?;
        }
        Ok(())
    }
}

fn pack_string(to: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        len @ 0..32 => to.push(0xa0 | len as u8),
        len @ 32..=0xff => to.extend_from_slice(&[0xd9, len as u8]),
        len @ 0x100..=0xffff => with_head(to, 0xda, &(len as u16).to_be_bytes()),
        len => with_head(to, 0xdb, &(len as u32).to_be_bytes()),
    }
    to.extend_from_slice(text);
}

fn with_head(to: &mut Vec<u8>, head: u8, bytes: &[u8]) {
    to.push(head);
    to.extend_from_slice(bytes);
}

fn pack_number(to: &mut Vec<u8>, number: f64) {
    /// 2 to the powers of 63 and 64.
    const INT_BOUND: f64 = 9_223_372_036_854_775_808.0;
    if number.floor() != number || !(-INT_BOUND..INT_BOUND).contains(&number) {
        let short = number as f32;
        return match f64::from(short) == number {
            true => with_head(to, 0xca, &short.to_be_bytes()),
            false => with_head(to, 0xcb, &number.to_be_bytes()),
        };
    }
    match number as i64 {
        small @ 0..=127 => to.push(small as u8),
        byte @ 0..=0xff => to.extend_from_slice(&[0xcc, byte as u8]),
        short @ 0..=0xffff => with_head(to, 0xcd, &(short as u16).to_be_bytes()),
        int @ 0..=0xffff_ffff => with_head(to, 0xce, &(int as u32).to_be_bytes()),
        long @ 0.. => with_head(to, 0xcf, &long.to_be_bytes()),
        small @ -32..0 => to.push(small as u8),
        byte @ -128..-32 => to.extend_from_slice(&[0xd0, byte as u8]),
        short @ -32768..-128 => with_head(to, 0xd1, &(short as i16).to_be_bytes()),
        int @ -2_147_483_648..-32768 => with_head(to, 0xd2, &(int as i32).to_be_bytes()),
        long => with_head(to, 0xd3, &long.to_be_bytes()),
    }
}

fn collection_head(to: &mut Vec<u8>, short: u8, long: u8, count: u32) {
    match count {
        0..16 => to.push(short | count as u8),
        16..=0xffff => with_head(to, long, &(count as u16).to_be_bytes()),
        _ => with_head(to, long + 1, &count.to_be_bytes()),
    }
}

fn unpack(lua: &Lua, args: MultiValue) -> Result<MultiValue> {
    let text = string_argument(lua, &args, 1, "unpack")?;
    ask_before_parsing(&text)?;
    let (values, _) = read(lua, &text.as_bytes(), 0, usize::MAX)?;
    Ok(values.into_iter().collect())
}

fn unpack_one(lua: &Lua, args: MultiValue) -> Result<MultiValue> {
    let offset = if args.len() > 1 { number_argument(lua, &args, 2, "unpack_one")? as i64 } else { 0 };
    from_offset(lua, &args, "unpack_one", offset, 1)
}

fn unpack_limit(lua: &Lua, args: MultiValue) -> Result<MultiValue> {
    let limit = number_argument(lua, &args, 2, "unpack_limit")? as i64;
    let offset = if args.len() > 2 { number_argument(lua, &args, 3, "unpack_limit")? as i64 } else { 0 };
    from_offset(lua, &args, "unpack_limit", offset, limit)
}

/// Reads up to `limit` values from an offset on: where the next one begins, -1 if there is none, and the values.
fn from_offset(lua: &Lua, args: &MultiValue, function: &str, offset: i64, limit: i64) -> Result<MultiValue> {
    let text = string_argument(lua, args, 1, function)?;
    ask_before_parsing(&text)?;
    let text = text.as_bytes();
    let (Ok(start), Ok(limit)) = (usize::try_from(offset), usize::try_from(limit)) else {
        let len = text.len();
        let why = format!("Invalid request to unpack with offset of {offset} and limit of {len}.");
        return Err(failure::text(lua, why));
    };
    if start > text.len() {
        let why = format!("Start offset {offset} greater than input length {}.", text.len());
        return Err(failure::text(lua, why));
    }
    if limit == 0 && start == 0 {
        return Ok(read(lua, &text, 0, usize::MAX)?.0.into_iter().collect());
    }
    let (values, end) = read(lua, &text, start, limit)?;
    let next = if end == text.len() { -1.0 } else { end as f64 };
    Ok(std::iter::once(Value::Number(next)).chain(values).collect())
}

fn read(lua: &Lua, text: &[u8], start: usize, limit: usize) -> Result<(Vec<Value>, usize)> {
    let mut reader = Reader { lua, text, at: start };
    let mut values = Vec::new();
    while values.len() < limit && reader.at < text.len() {
        if values.len() >= VALUES_MAX {
            return Err(failure::text(lua, "stack overflow (in function mp_unpack)"));
        }
        values.push(reader.value(0)?);
    }
    Ok((values, reader.at))
}

/// Values that a function can return.
const VALUES_MAX: usize = 7900;

struct Reader<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: u32) -> Result<Value> {
        if depth > UNPACK_DEPTH_MAX {
            return Err(failure::text(self.lua, "stack overflow (in function mp_decode_to_lua_type)"));
        }
        let number = |number: f64| Ok(Value::Number(number));
        match self.take::<1>()?[0] {
            byte @ 0..=0x7f => number(f64::from(byte)),
            byte @ 0xe0..=0xff => number(f64::from(byte as i8)),
            byte @ 0x80..=0x8f => self.map(usize::from(byte & 15), depth),
            byte @ 0x90..=0x9f => self.array(usize::from(byte & 15), depth),
            byte @ 0xa0..=0xbf => self.string(usize::from(byte & 31)),
            0xc0 => Ok(Value::Nil),
            0xc2 => Ok(Value::Boolean(false)),
            0xc3 => Ok(Value::Boolean(true)),
            0xca => number(f32::from_be_bytes(self.take()?).into()),
            0xcb => number(f64::from_be_bytes(self.take()?)),
            0xcc => number(self.take::<1>()?[0].into()),
            0xcd => number(u16::from_be_bytes(self.take()?).into()),
            0xce => number(u32::from_be_bytes(self.take()?).into()),
            0xcf => number(u64::from_be_bytes(self.take()?) as f64),
            0xd0 => number((self.take::<1>()?[0] as i8).into()),
            0xd1 => number(i16::from_be_bytes(self.take()?).into()),
            0xd2 => number(i32::from_be_bytes(self.take()?).into()),
            0xd3 => number(i64::from_be_bytes(self.take()?) as f64),
            0xc4 | 0xd9 => {
                let len = self.take::<1>()?[0];
                self.string(len.into())
            }
            0xc5 | 0xda => {
                let len = u16::from_be_bytes(self.take()?);
                self.string(len.into())
            }
            0xc6 | 0xdb => {
                let len = u32::from_be_bytes(self.take()?);
                self.string(len as usize)
            }
            0xdc => {
                let len = u16::from_be_bytes(self.take()?);
                self.array(len.into(), depth)
            }
            0xdd => {
                let len = u32::from_be_bytes(self.take()?);
                self.array(len as usize, depth)
            }
            0xde => {
                let len = u16::from_be_bytes(self.take()?);
                self.map(len.into(), depth)
            }
            0xdf => {
                let len = u32::from_be_bytes(self.take()?);
                self.map(len as usize, depth)
            }
            _ => Err(failure::text(self.lua, "Bad data format in input.")),
        }
    }

    fn missing(&self) -> mlua::Error {
        failure::text(self.lua, "Missing bytes in input.")
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.text.get(self.at..self.at + N).ok_or_else(|| self.missing())?;
        self.at += N;
        Ok(bytes.try_into().expect("it has so many"))
    }

    fn string(&mut self, len: usize) -> Result<Value> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.text.len()).ok_or_else(|| self.missing())?;
        let bytes = &self.text[self.at..end];
        self.at = end;
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn array(&mut self, len: usize, depth: u32) -> Result<Value> {
        let table = self.lua.create_table()?;
        for at in 1..=len {
            table.raw_set(at, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: usize, depth: u32) -> Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            table.raw_set(key, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }
}
