//! `cjson`: JSON as of the library lua-cjson 2.1, with its settings. A run begins with the usual ones.

mod decode;
mod encode;
mod settings;

use super::{ask_before_parsing, not_written, string_argument};
use crate::failure;
use mlua::{Lua, MultiValue, Result, Table, Value};
use settings::Settings;
use std::cell::RefCell;
use std::rc::Rc;

/// The settings that the library of an interpreter has, for `reset`.
pub(crate) type Shared = Rc<RefCell<Settings>>;

/// Makes the library.
pub(crate) fn library(lua: &Lua) -> Result<(Table, Shared)> {
    let settings = Shared::default();
    let library = with_settings(lua, &settings)?;
    Ok((library, settings))
}

fn with_settings(lua: &Lua, settings: &Shared) -> Result<Table> {
    let library = lua.create_table()?;
    let own = settings.clone();
    let encode = move |lua: &Lua, args: MultiValue| {
        expect_one(lua, &args, "encode")?;
        let text =
            encode::encode(&own.borrow(), args.front().unwrap_or(&Value::Nil)).map_err(|why| not_written(lua, why))?;
        lua.create_string(text)
    };
    library.raw_set("encode", lua.create_function(encode)?)?;
    let own = settings.clone();
    let decode = move |lua: &Lua, args: MultiValue| {
        expect_one(lua, &args, "decode")?;
        let text = string_argument(lua, &args, 1, "decode")?;
        ask_before_parsing(&text)?;
        decode::decode(lua, &own.borrow(), &text.as_bytes())
    };
    library.raw_set("decode", lua.create_function(decode)?)?;
    settings::add(lua, &library, settings)?;
    library.raw_set("new", lua.create_function(|lua, ()| with_settings(lua, &Shared::default()))?)?;
    library.raw_set("null", Value::NULL)?;
    library.raw_set("_NAME", "cjson")?;
    library.raw_set("_VERSION", "2.1.0")?;
    Ok(library)
}

fn expect_one(lua: &Lua, args: &MultiValue, function: &str) -> Result<()> {
    if args.len() == 1 { Ok(()) } else { Err(failure::argument(lua, 1, function, "expected 1 argument")) }
}
