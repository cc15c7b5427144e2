//! The settings of the library, and the functions that show and change them.

use super::Shared;
use crate::failure;
use mlua::{Lua, MultiValue, Result, Table, Value};

/// The ways to write and read numbers that JSON does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    Refused,
    Kept,
    Null,
}

/// How values are written and read.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub sparse_converts: bool,
    pub sparse_ratio: u32,
    pub sparse_safe: u32,
    pub encode_depth_max: u32,
    pub decode_depth_max: u32,
    pub precision: u32,
    pub keeps_buffer: bool,
    pub encode_invalid: Invalid,
    pub decode_invalid: Invalid,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sparse_converts: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            precision: 14,
            keeps_buffer: true,
            encode_invalid: Invalid::Refused,
            decode_invalid: Invalid::Kept,
        }
    }
}

pub(super) fn add(lua: &Lua, library: &Table, settings: &Shared) -> Result<()> {
    number(lua, library, settings, "encode_max_depth", i32::MAX as u32, |s| &mut s.encode_depth_max)?;
    number(lua, library, settings, "decode_max_depth", i32::MAX as u32, |s| &mut s.decode_depth_max)?;
    number(lua, library, settings, "encode_number_precision", 16, |s| &mut s.precision)?;
    invalid(lua, library, settings, "encode_invalid_numbers", |s| &mut s.encode_invalid)?;
    invalid(lua, library, settings, "decode_invalid_numbers", |s| &mut s.decode_invalid)?;
    let own = settings.clone();
    let keep = move |lua: &Lua, args: MultiValue| {
        at_most(lua, &args, 1)?;
        let mut settings = own.borrow_mut();
        if let Some(value) = args.front() {
            settings.keeps_buffer = switch(lua, value, 1, "encode_keep_buffer")?;
        }
        Ok(settings.keeps_buffer)
    };
    library.raw_set("encode_keep_buffer", lua.create_function(keep)?)?;
    let own = settings.clone();
    let sparse = move |lua: &Lua, args: MultiValue| {
        const NAME: &str = "encode_sparse_array";
        at_most(lua, &args, 3)?;
        let mut settings = own.borrow_mut();
        if let Some(value) = args.front().filter(|value| !value.is_nil()) {
            settings.sparse_converts = switch(lua, value, 1, NAME)?;
        }
        if let Some(value) = args.get(1).filter(|value| !value.is_nil()) {
            settings.sparse_ratio = between(lua, value, 2, NAME, 0, i32::MAX as u32)?;
        }
        if let Some(value) = args.get(2).filter(|value| !value.is_nil()) {
            settings.sparse_safe = between(lua, value, 3, NAME, 0, i32::MAX as u32)?;
        }
        Ok((settings.sparse_converts, f64::from(settings.sparse_ratio), f64::from(settings.sparse_safe)))
    };
    library.raw_set("encode_sparse_array", lua.create_function(sparse)?)
}

fn number(
    lua: &Lua,
    library: &Table,
    settings: &Shared,
    name: &'static str,
    max: u32,
    of: fn(&mut super::Settings) -> &mut u32,
) -> Result<()> {
    let own = settings.clone();
    let function = move |lua: &Lua, args: MultiValue| {
        at_most(lua, &args, 1)?;
        let mut settings = own.borrow_mut();
        let setting = of(&mut settings);
        if let Some(value) = args.front() {
            *setting = between(lua, value, 1, name, 1, max)?;
        }
        Ok(f64::from(*setting))
    };
    library.raw_set(name, lua.create_function(function)?)
}

fn invalid(
    lua: &Lua,
    library: &Table,
    settings: &Shared,
    name: &'static str,
    of: fn(&mut super::Settings) -> &mut Invalid,
) -> Result<()> {
    let own = settings.clone();
    let function = move |lua: &Lua, args: MultiValue| {
        at_most(lua, &args, 1)?;
        let mut settings = own.borrow_mut();
        let setting = of(&mut settings);
        if let Some(value) = args.front() {
            *setting = match value {
                Value::String(text) if &*text.as_bytes() == b"null" && name.starts_with("encode") => Invalid::Null,
                value if switch(lua, value, 1, name)? => Invalid::Kept,
                _ => Invalid::Refused,
            };
        }
        match setting {
            Invalid::Null => Ok(Value::String(lua.create_string("null")?)),
            other => Ok(Value::Boolean(*other == Invalid::Kept)),
        }
    };
    library.raw_set(name, lua.create_function(function)?)
}

fn at_most(lua: &Lua, args: &MultiValue, count: usize) -> Result<()> {
    if args.len() <= count { Ok(()) } else { Err(failure::text(lua, "found too many arguments")) }
}

fn between(lua: &Lua, value: &Value, number: usize, name: &str, min: u32, max: u32) -> Result<u32> {
    let given = lua.coerce_number(value.clone())?.map(|given| given as i64);
    match given.and_then(|given| u32::try_from(given).ok()).filter(|given| (min..=max).contains(given)) {
        Some(given) => Ok(given),
        None => Err(failure::argument(lua, number, name, &format!("expected integer between {min} and {max}"))),
    }
}

fn switch(lua: &Lua, value: &Value, number: usize, name: &str) -> Result<bool> {
    match value {
        Value::Boolean(value) => Ok(*value),
        Value::String(text) if &*text.as_bytes() == b"on" => Ok(true),
        Value::String(text) if &*text.as_bytes() == b"off" => Ok(false),
        other => {
            let text = super::super::type_name(other);
            Err(failure::argument(lua, number, name, &format!("invalid option '{text}'")))
        }
    }
}
