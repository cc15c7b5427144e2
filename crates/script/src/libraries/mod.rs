//! The libraries that Redis gives scripts beside Lua's own, a file each.

pub(crate) mod bit;
pub(crate) mod cjson;
pub(crate) mod cmsgpack;
pub(crate) mod random;
pub(crate) mod structs;

use crate::failure;
use crate::state::{RUN, ask_before_long};
use mlua::{Lua, MultiValue, Result, Value};

/// Argument `number`, counted from 1, as a number: Lua takes a string that reads as one.
///
/// # Errors
/// As of Lua's own functions.
pub(crate) fn number_argument(lua: &Lua, args: &MultiValue, number: usize, function: &str) -> Result<f64> {
    match args.get(number - 1) {
        Some(Value::Number(value)) => Ok(*value),
        Some(Value::Integer(value)) => Ok(*value as f64),
        other => {
            if let Some(Value::String(text)) = other
                && let Some(value) = lua.coerce_number(Value::String(text.clone()))?
            {
                return Ok(value);
            }
            Err(wrong_type(lua, args, number, function, "number"))
        }
    }
}

/// Argument `number`, counted from 1, as bytes: Lua takes a number's digits.
///
/// # Errors
/// As of Lua's own functions.
pub(crate) fn string_argument(lua: &Lua, args: &MultiValue, number: usize, function: &str) -> Result<mlua::LuaString> {
    match args.get(number - 1) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(value @ (Value::Number(_) | Value::Integer(_))) => {
            lua.coerce_string(value.clone())?.ok_or_else(|| wrong_type(lua, args, number, function, "string"))
        }
        _ => Err(wrong_type(lua, args, number, function, "string")),
    }
}

pub(crate) fn wrong_type(lua: &Lua, args: &MultiValue, number: usize, function: &str, expected: &str) -> mlua::Error {
    let got = args.get(number - 1).map_or("no value", type_name);
    failure::argument(lua, number, function, &format!("{expected} expected, got {got}"))
}

/// Asks the server before much is parsed, which nothing interrupts.
///
/// # Errors
/// The run ends here.
pub(crate) fn ask_before_parsing(text: &mlua::LuaString) -> Result<()> {
    /// Bytes that are parsed in about a millisecond.
    const BYTES_MAX: usize = 64 << 10;
    if text.as_bytes().len() > BYTES_MAX { ask_before_long() } else { Ok(()) }
}

/// The part of a value that a library has written. Tables may be shared, so that a small script can have very much
/// written.
pub(crate) struct Written {
    /// Values that were written, or that a table was looked at for.
    values: u64,
    /// Bytes of the text from which on the server is asked again.
    next_question: usize,
}

impl Written {
    /// Values and bytes between two questions whether the run goes on, and the most of all.
    const VALUES_PER_QUESTION: u64 = 10_000;
    const VALUES_MAX: u64 = 50_000_000;
    const BYTES_PER_QUESTION: usize = 1 << 20;
    const BYTES_MAX: usize = 512 << 20;

    pub fn new() -> Written {
        Written { values: 0, next_question: Written::BYTES_PER_QUESTION }
    }

    /// Counts a value. `bytes` are those of the text with the value.
    ///
    /// # Errors
    /// There are too many, or the run ends here: `not_written` makes the error of it.
    pub fn step(&mut self, bytes: usize) -> std::result::Result<(), String> {
        self.values += 1;
        if self.values > Written::VALUES_MAX || bytes > Written::BYTES_MAX {
            return Err("Cannot serialise: the text would be too long".to_owned());
        }
        if self.values.is_multiple_of(Written::VALUES_PER_QUESTION) || bytes > self.next_question {
            self.next_question = bytes + Written::BYTES_PER_QUESTION;
            ask_before_long().map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// Makes the error of a value that could not be written.
pub(crate) fn not_written(lua: &Lua, why: String) -> mlua::Error {
    RUN.with(|run| run.goes_on()).err().unwrap_or_else(|| failure::text(lua, why))
}

/// The name that Lua gives a value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        other => other.type_name(),
    }
}
