//! Lua values as replies: what a script returns.

use crate::failure;
use crate::server::Server;
use crate::state::RUN;
use haypile_resp::{Bytes, Protocol, Reply};
use mlua::{Result, Table, Value};

/// Tables inside each other that a reply may have. Deeper ones are answered by an error, as in Redis.
const DEPTH_MAX: usize = 128;

/// Elements between two questions whether the run goes on, and the most of all.
const ELEMENTS_PER_QUESTION: u64 = 10_000;
const ELEMENTS_MAX: u64 = 20_000_000;

/// Bytes of all strings of a reply.
const BYTES_MAX: u64 = 512 << 20;

/// Returns the reply to the client. `protocol` is the one that the script has chosen: with RESP3 a boolean stays one.
///
/// # Errors
/// The reply would be too long, or the run ends here, which the thread's `RunState` notes.
pub(crate) fn convert(value: Value, protocol: Protocol, server: &mut dyn Server) -> Result<Reply> {
    Conversion { protocol, server, elements: 0, bytes: 0 }.value(value, 0)
}

/// A conversion under way. Tables may be shared, so that a small script can return very much.
struct Conversion<'a> {
    protocol: Protocol,
    server: &'a mut dyn Server,
    elements: u64,
    bytes: u64,
}

impl Conversion<'_> {
    fn step(&mut self, bytes: usize) -> Result<()> {
        self.elements += 1;
        self.bytes += bytes as u64;
        if self.elements.is_multiple_of(ELEMENTS_PER_QUESTION) {
            self.server.takes_long().map_err(|why| RUN.with(|run| run.halt(why)))?;
        }
        match self.elements > ELEMENTS_MAX || self.bytes > BYTES_MAX {
            true => Err(failure::command("ERR the reply of the script would be too long")),
            false => Ok(()),
        }
    }

    fn value(&mut self, value: Value, depth: usize) -> Result<Reply> {
        self.step(if let Value::String(text) = &value { text.as_bytes().len() } else { 0 })?;
        Ok(match value {
            Value::String(text) => Reply::bulk(Bytes::from(text.as_bytes().to_vec())),
            Value::Integer(number) => Reply::Integer(number),
            Value::Number(number) => Reply::Integer(integer(number)),
            Value::Boolean(value) if self.protocol == Protocol::Resp3 => Reply::Boolean(value),
            Value::Boolean(true) => Reply::Integer(1),
            Value::Table(_) if depth >= DEPTH_MAX => Reply::error("ERR reached lua stack limit"),
            Value::Table(table) => self.table(&table, depth)?,
            _ => Reply::Null,
        })
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<Reply> {
        if let Value::String(why) = table.raw_get("err")? {
            return Ok(Reply::error_bytes(without_line_ends(&why.as_bytes())));
        }
        if let Value::String(status) = table.raw_get("ok")? {
            return Ok(Reply::Status(String::from_utf8_lossy(&without_line_ends(&status.as_bytes())).into_owned()));
        }
        match table.raw_get("double")? {
            Value::Number(number) => return Ok(Reply::Double(number)),
            Value::Integer(number) => return Ok(Reply::Double(number as f64)),
            _ => {}
        }
        if let Value::Table(pairs) = table.raw_get("map")? {
            let mut map = Vec::new();
            for pair in pairs.pairs::<Value, Value>() {
                let (key, value) = pair?;
                map.push((self.value(key, depth + 1)?, self.value(value, depth + 1)?));
            }
            return Ok(Reply::Map(map));
        }
        if let Value::Table(members) = table.raw_get("set")? {
            let mut set = Vec::new();
            for pair in members.pairs::<Value, Value>() {
                set.push(self.value(pair?.0, depth + 1)?);
            }
            return Ok(Reply::Set(set));
        }
        if let Value::String(digits) = table.raw_get("big_number")? {
            let digits = without_line_ends(&digits.as_bytes());
            return Ok(Reply::BigNumber(String::from_utf8_lossy(&digits).into_owned()));
        }
        if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
            && let (Value::String(text), Value::String(format)) =
                (verbatim.raw_get("string")?, verbatim.raw_get("format")?)
        {
            let kind = if &*format.as_bytes() == b"mkd" { "mkd" } else { "txt" };
            return Ok(Reply::Verbatim(kind, Bytes::from(text.as_bytes().to_vec())));
        }
        let mut elements = Vec::new();
        loop {
            match table.raw_get(elements.len() + 1)? {
                Value::Nil => return Ok(Reply::Array(elements)),
                value => elements.push(self.value(value, depth + 1)?),
            }
        }
    }
}

/// The integer of a double: towards zero, and the least one for what is none, as in Redis on x86-64.
fn integer(number: f64) -> i64 {
    /// 2 to the power of 63.
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&number) { number as i64 } else { i64::MIN }
}

fn without_line_ends(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}
