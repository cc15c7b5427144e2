//! The table `redis` of scripts.

use crate::failure::{self, Raised};
use crate::memory::Unbounded;
use crate::server::{Halted, LogLevel, SERVER};
use crate::{sha1_hex, to_lua};
use haypile_resp::{Args, Protocol, Reply, number};
use mlua::{IntoLua, Lua, MultiValue, Result, Table, Value};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// The state of a run that its functions share.
#[derive(Default)]
pub(crate) struct RunState {
    /// The protocol in which the script sees replies.
    pub protocol: Cell<Protocol>,
    /// Why the run has ended, once its server has said so.
    pub halted: RefCell<Option<Halted>>,
    /// The arguments of the call under way.
    arguments: RefCell<Arguments>,
}

/// Arguments of a call, in memory that stays from call to call.
#[derive(Default)]
struct Arguments {
    bytes: Vec<u8>,
    ranges: Vec<Range<u32>>,
}

/// Bytes of arguments that are kept room for between calls.
const ARGUMENT_BYTES_KEPT: usize = 64 << 10;

impl RunState {
    pub fn reset(&self) {
        self.protocol.set(Protocol::Resp2);
        *self.halted.borrow_mut() = None;
    }

    /// Notes that the run has ended.
    pub fn halt(&self, why: Halted) -> mlua::Error {
        *self.halted.borrow_mut() = Some(why);
        Raised::Halted.into()
    }

    /// # Errors
    /// The run has ended.
    pub fn goes_on(&self) -> Result<()> {
        if self.halted.borrow().is_some() { Err(Raised::Halted.into()) } else { Ok(()) }
    }
}

impl Arguments {
    /// Takes the arguments of a call; the text of the error if one is of the wrong type.
    fn fill(&mut self, values: &MultiValue) -> std::result::Result<(), &'static str> {
        if values.is_empty() {
            return Err("ERR Please specify at least one argument for this redis lib call");
        }
        if self.bytes.capacity() > ARGUMENT_BYTES_KEPT {
            *self = Arguments::default();
        }
        self.bytes.clear();
        self.ranges.clear();
        for value in values {
            let start = self.bytes.len();
            match value {
                Value::String(text) => self.bytes.extend_from_slice(&text.as_bytes()),
                Value::Number(value) => number::write_double(&mut self.bytes, *value),
                Value::Integer(value) => number::write_i64(&mut self.bytes, *value),
                _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
            }
            let end = u32::try_from(self.bytes.len()).map_err(|_| "ERR the arguments are longer than 4 GB")?;
            self.ranges.push(start as u32..end);
        }
        Ok(())
    }
}

/// Makes the table.
pub(crate) fn library(lua: &Lua, state: &Rc<RunState>, version: &str) -> Result<Table> {
    let redis = lua.create_table()?;
    let own = state.clone();
    redis.raw_set("call", lua.create_function(move |lua, args: MultiValue| call(lua, &own, &args, true))?)?;
    let own = state.clone();
    redis.raw_set("pcall", lua.create_function(move |lua, args: MultiValue| call(lua, &own, &args, false))?)?;
    redis.raw_set("error_reply", lua.create_function(|lua, args| single(lua, args, "err"))?)?;
    redis.raw_set("status_reply", lua.create_function(|lua, args| single(lua, args, "ok"))?)?;
    redis.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    redis.raw_set("log", lua.create_function(log)?)?;
    let own = state.clone();
    redis.raw_set("setresp", lua.create_function(move |lua, args| set_protocol(lua, &own, &args))?)?;
    redis.raw_set("set_repl", lua.create_function(set_replication)?)?;
    redis.raw_set("replicate_commands", lua.create_function(|_, _: MultiValue| Ok(true))?)?;
    // Without a debugger there is nothing to stop for.
    redis.raw_set("breakpoint", lua.create_function(|_, _: MultiValue| Ok(false))?)?;
    redis.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    let own = state.clone();
    redis.raw_set("acl_check_cmd", lua.create_function(move |_, args: MultiValue| permits(&own, &args))?)?;
    for (name, level) in [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)] {
        redis.raw_set(name, level)?;
    }
    for (name, flags) in [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)] {
        redis.raw_set(name, flags)?;
    }
    redis.raw_set("REDIS_VERSION", version)?;
    redis.raw_set("REDIS_VERSION_NUM", version_number(version))?;
    Ok(redis)
}

/// `7.2.0` as 0x070200.
fn version_number(version: &str) -> u32 {
    version.split('.').fold(0, |number, part| number << 8 | part.parse::<u32>().unwrap_or(0))
}

fn call(lua: &Lua, state: &RunState, args: &MultiValue, raises: bool) -> Result<Value> {
    state.goes_on()?;
    let _unbounded = Unbounded::new(lua)?;
    let mut arguments = state.arguments.borrow_mut();
    let reply = match arguments.fill(args) {
        Err(why) => Reply::error(why),
        Ok(()) => {
            let args = Args::new(&arguments.bytes, &arguments.ranges);
            SERVER.with(|server| server.call(args)).map_err(|why| state.halt(why))?
        }
    };
    match reply {
        Reply::Error(why) if raises => Err(failure::command(why.into_owned())),
        Reply::ErrorBytes(why) if raises => Err(failure::command(why)),
        reply => to_lua::convert(lua, reply, state.protocol.get()),
    }
}

/// A table with one text, for a script to return.
fn single(lua: &Lua, args: MultiValue, field: &str) -> Result<Value> {
    let (1, Some(Value::String(text))) = (args.len(), args.front()) else {
        return to_lua::failed(lua, b"ERR wrong number or type of arguments");
    };
    let text = text.as_bytes();
    let whole = match &text[..] {
        [b'-', rest @ ..] if field == "err" => rest.to_vec(),
        text if field == "err" && !text.contains(&b' ') => [b"ERR ", text].concat(),
        text => text.to_vec(),
    };
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, lua.create_string(whole)?)?;
    table.into_lua(lua)
}

fn sha1hex(lua: &Lua, args: MultiValue) -> Result<String> {
    let (1, Some(value)) = (args.len(), args.front()) else {
        return Err(failure::command("ERR wrong number of arguments"));
    };
    let text = lua.coerce_string(value.clone())?;
    Ok(sha1_hex(text.as_ref().map(|text| text.as_bytes()).as_deref().unwrap_or_default()))
}

fn log(lua: &Lua, args: MultiValue) -> Result<()> {
    if args.len() < 2 {
        return Err(failure::command("ERR redis.log() requires two arguments or more."));
    }
    let level = match args.front() {
        Some(Value::Number(level)) => *level as i64,
        Some(Value::Integer(level)) => *level,
        _ => return Err(failure::command("ERR First argument must be a number (log level).")),
    };
    let level = match level {
        0 => LogLevel::Debug,
        1 => LogLevel::Verbose,
        2 => LogLevel::Notice,
        3 => LogLevel::Warning,
        _ => return Err(failure::command("ERR Invalid debug level.")),
    };
    let mut line = Vec::new();
    for value in args.iter().skip(1) {
        let text = lua.coerce_string(value.clone())?;
        if let Some(text) = text {
            if !line.is_empty() {
                line.push(b' ');
            }
            line.extend_from_slice(&text.as_bytes());
        }
    }
    SERVER.with(|server| server.log(level, &line));
    Ok(())
}

fn set_protocol(lua: &Lua, state: &RunState, args: &MultiValue) -> Result<()> {
    let (1, Some(version)) = (args.len(), args.front()) else {
        return Err(failure::command("ERR redis.setresp() requires one argument."));
    };
    let protocol = match lua.coerce_number(version.clone())? {
        Some(2.0) => Protocol::Resp2,
        Some(3.0) => Protocol::Resp3,
        _ => return Err(failure::command("ERR RESP version must be 2 or 3.")),
    };
    state.protocol.set(protocol);
    SERVER.with(|server| server.set_protocol(protocol));
    Ok(())
}

/// What is replicated is decided by what a script changes: the flags are looked at, and have no effect.
fn set_replication(lua: &Lua, args: MultiValue) -> Result<()> {
    let (1, Some(flags)) = (args.len(), args.front()) else {
        return Err(failure::command("ERR redis.set_repl() requires two arguments."));
    };
    match lua.coerce_number(flags.clone())?.unwrap_or(0.0) as i64 {
        0..=3 => Ok(()),
        _ => Err(failure::command("ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")),
    }
}

fn permits(state: &RunState, args: &MultiValue) -> Result<bool> {
    let mut arguments = state.arguments.borrow_mut();
    arguments.fill(args).map_err(failure::command)?;
    let args = Args::new(&arguments.bytes, &arguments.ranges);
    let permitted = SERVER.with(|server| server.permits(args));
    permitted.ok_or_else(|| failure::command("ERR Invalid command passed to redis.acl_check_cmd()"))
}
