//! Lua values as replies: what a script returns.

use haypile_resp::{Bytes, Protocol, Reply};
use mlua::{Result, Table, Value};

/// Tables inside each other that a reply may have. Deeper ones are answered by an error, as in Redis.
const DEPTH_MAX: usize = 128;

/// Returns the reply to the client. `protocol` is the one that the script has chosen: with RESP3 a boolean stays one.
pub(crate) fn convert(value: Value, protocol: Protocol) -> Result<Reply> {
    value_at(value, protocol, 0)
}

fn value_at(value: Value, protocol: Protocol, depth: usize) -> Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::bulk(Bytes::from(text.as_bytes().to_vec())),
        Value::Integer(number) => Reply::Integer(number),
        Value::Number(number) => Reply::Integer(integer(number)),
        Value::Boolean(value) if protocol == Protocol::Resp3 => Reply::Boolean(value),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(_) if depth >= DEPTH_MAX => Reply::error("ERR reached lua stack limit"),
        Value::Table(table) => table_at(&table, protocol, depth)?,
        _ => Reply::Null,
    })
}

/// The integer of a double: towards zero, and the least one for what is none, as in Redis on x86-64.
fn integer(number: f64) -> i64 {
    /// 2 to the power of 63.
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&number) { number as i64 } else { i64::MIN }
}

fn table_at(table: &Table, protocol: Protocol, depth: usize) -> Result<Reply> {
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
            map.push((value_at(key, protocol, depth + 1)?, value_at(value, protocol, depth + 1)?));
        }
        return Ok(Reply::Map(map));
    }
    if let Value::Table(members) = table.raw_get("set")? {
        let mut set = Vec::new();
        for pair in members.pairs::<Value, Value>() {
            set.push(value_at(pair?.0, protocol, depth + 1)?);
        }
        return Ok(Reply::Set(set));
    }
    if let Value::String(digits) = table.raw_get("big_number")? {
        let digits = without_line_ends(&digits.as_bytes());
        return Ok(Reply::BigNumber(String::from_utf8_lossy(&digits).into_owned()));
    }
    if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
        && let (Value::String(text), Value::String(format)) = (verbatim.raw_get("string")?, verbatim.raw_get("format")?)
    {
        let kind = if &*format.as_bytes() == b"mkd" { "mkd" } else { "txt" };
        return Ok(Reply::Verbatim(kind, Bytes::from(text.as_bytes().to_vec())));
    }
    let mut elements = Vec::new();
    loop {
        match table.raw_get(elements.len() + 1)? {
            Value::Nil => return Ok(Reply::Array(elements)),
            value => elements.push(value_at(value, protocol, depth + 1)?),
        }
    }
}

fn without_line_ends(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}
