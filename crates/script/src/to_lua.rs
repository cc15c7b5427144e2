//! Replies of commands as Lua values.
//!
//! The frequent ones are converted as they are. Any other one is encoded for the script's protocol first and read from
//! there, so that a script sees what a client would.

use haypile_resp::{Pieces, Protocol, Reply};
use mlua::{IntoLua, Lua, Result, Table, Value};

/// Returns the value that a script sees.
pub(crate) fn convert(lua: &Lua, reply: Reply, protocol: Protocol) -> Result<Value> {
    match reply {
        Reply::Bulk(bytes) => text(lua, &bytes),
        Reply::Integer(number) => Ok(number_value(number)),
        Reply::Simple(status) => named(lua, "ok", status.as_bytes()),
        Reply::Null | Reply::NullArray => Ok(null(protocol)),
        Reply::Error(why) => failed(lua, why.as_bytes()),
        Reply::ErrorBytes(why) => failed(lua, &why),
        Reply::None => Ok(Value::Nil),
        other => read_encoded(lua, &encoded(other, protocol)?, protocol),
    }
}

/// The table of an error reply, whose text counts for the server's statistics once already.
pub(crate) fn failed(lua: &Lua, why: &[u8]) -> Result<Value> {
    let table = lua.create_table_with_capacity(0, 2)?;
    // As it is sent: a text of one line.
    let line: Vec<u8> = why.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect();
    table.raw_set("err", lua.create_string(line)?)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(Value::Table(table))
}

fn encoded(reply: Reply, protocol: Protocol) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if !reply.has_stream() {
        reply.encode(protocol, &mut bytes);
        return Ok(bytes);
    }
    let mut pieces = reply.into_pieces();
    while pieces.next(protocol, &mut bytes).map_err(|why| crate::failure::command(format!("ERR {why}")))? {}
    Ok(bytes)
}

fn text(lua: &Lua, bytes: &[u8]) -> Result<Value> {
    Ok(Value::String(lua.create_string(bytes)?))
}

/// A number of Lua 5.1, which is a double.
fn number_value(number: i64) -> Value {
    Value::Number(number as f64)
}

fn null(protocol: Protocol) -> Value {
    match protocol {
        Protocol::Resp2 => Value::Boolean(false),
        Protocol::Resp3 => Value::Nil,
    }
}

fn named(lua: &Lua, field: &str, bytes: &[u8]) -> Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, lua.create_string(bytes)?)?;
    Ok(Value::Table(table))
}

fn read_encoded(lua: &Lua, bytes: &[u8], protocol: Protocol) -> Result<Value> {
    let mut encoded = Encoded { lua, rest: bytes, protocol };
    encoded.value()
}

/// A reply that our own encoder has written.
struct Encoded<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
    protocol: Protocol,
}

impl<'a> Encoded<'a> {
    fn value(&mut self) -> Result<Value> {
        let (kind, line) = self.line();
        let lua = self.lua;
        Ok(match kind {
            b'$' => match count(line) {
                Some(bytes) => text(lua, self.bytes(bytes))?,
                None => null(self.protocol),
            },
            b':' => number_value(std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).unwrap_or(0)),
            b'+' => named(lua, "ok", line)?,
            b'-' => named(lua, "err", line)?,
            b'_' => Value::Nil,
            b'#' => Value::Boolean(line == b"t"),
            b',' => {
                let table = lua.create_table_with_capacity(0, 1)?;
                table.raw_set("double", double(line))?;
                Value::Table(table)
            }
            b'(' => named(lua, "big_number", line)?,
            b'=' => {
                let content = self.bytes(count(line).unwrap_or(0));
                let (format, string) = content.split_at_checked(4).unwrap_or((b"txt:", content));
                let inner = lua.create_table_with_capacity(0, 2)?;
                inner.raw_set("string", lua.create_string(string)?)?;
                inner.raw_set("format", lua.create_string(&format[..3])?)?;
                let table = lua.create_table_with_capacity(0, 1)?;
                table.raw_set("verbatim_string", inner)?;
                Value::Table(table)
            }
            b'*' | b'>' => match count(line) {
                Some(elements) => Value::Table(self.array(elements)?),
                None => null(self.protocol),
            },
            b'~' => {
                let members = lua.create_table_with_capacity(0, count(line).unwrap_or(0))?;
                for _ in 0..count(line).unwrap_or(0) {
                    members.raw_set(self.value()?, true)?;
                }
                within(lua, "set", members)?
            }
            b'%' => {
                let pairs = lua.create_table_with_capacity(0, count(line).unwrap_or(0))?;
                for _ in 0..count(line).unwrap_or(0) {
                    let key = self.value()?;
                    pairs.raw_set(key, self.value()?)?;
                }
                within(lua, "map", pairs)?
            }
            // Attributes are not shown.
            b'|' => {
                for _ in 0..2 * count(line).unwrap_or(0) {
                    self.value()?;
                }
                self.value()?
            }
            other => unreachable!("no reply begins with {other}"),
        })
    }

    fn array(&mut self, elements: usize) -> Result<Table> {
        let table = self.lua.create_table_with_capacity(elements, 0)?;
        for at in 1..=elements {
            table.raw_set(at, self.value()?)?;
        }
        Ok(table)
    }

    /// Takes the next line: its first byte, and what follows.
    fn line(&mut self) -> (u8, &'a [u8]) {
        let end = self.rest.windows(2).position(|pair| pair == b"\r\n").expect("a line of a reply ends");
        let (line, rest) = self.rest.split_at(end);
        self.rest = &rest[2..];
        (line[0], &line[1..])
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(count);
        self.rest = &rest[2..];
        bytes
    }
}

/// A length; none for that of no value.
fn count(line: &[u8]) -> Option<usize> {
    std::str::from_utf8(line).ok()?.parse().ok()
}

fn double(line: &[u8]) -> f64 {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

fn within(lua: &Lua, field: &str, inner: Table) -> Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, inner)?;
    table.into_lua(lua)
}
