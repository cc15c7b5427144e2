//! The table `redis` of scripts.

use crate::failure::{self, Raised};
use crate::memory::Unbounded;
use crate::server::{LogLevel, SERVER};
use crate::state::{Arguments, NoArguments, RUN};
use crate::{sha1_hex, to_lua};
use haypile_resp::{Args, Protocol, Reply, number};
use mlua::{IntoLua, Lua, MultiValue, Result, Table, Value};

/// Makes the table.
pub(crate) fn library(lua: &Lua, version: &str) -> Result<Table> {
    let redis = lua.create_table()?;
    let (call, pcall) = crate::call::functions(lua, &lua.create_function(finish)?)?;
    redis.raw_set("call", call)?;
    redis.raw_set("pcall", pcall)?;
    redis.raw_set("error_reply", lua.create_function(|lua, args| single(lua, args, "err"))?)?;
    redis.raw_set("status_reply", lua.create_function(|lua, args| single(lua, args, "ok"))?)?;
    redis.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    redis.raw_set("setresp", lua.create_function(set_protocol)?)?;
    redis.raw_set("set_repl", lua.create_function(set_replication)?)?;
    redis.raw_set("replicate_commands", lua.create_function(|_, _: MultiValue| Ok(true))?)?;
    // Without a debugger there is nothing to stop for.
    redis.raw_set("breakpoint", lua.create_function(|_, _: MultiValue| Ok(false))?)?;
    redis.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    redis.raw_set("acl_check_cmd", lua.create_function(permits)?)?;
    for (name, flags) in [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)] {
        redis.raw_set(name, flags)?;
    }
    add_common(lua, &redis, version)?;
    Ok(redis)
}

/// Makes the table that libraries see while they are loaded.
pub(crate) fn loading_library(lua: &Lua, version: &str, register_function: mlua::Function) -> Result<Table> {
    let redis = lua.create_table()?;
    redis.raw_set("register_function", register_function)?;
    add_common(lua, &redis, version)?;
    Ok(redis)
}

/// Adds what both tables have.
fn add_common(lua: &Lua, redis: &Table, version: &str) -> Result<()> {
    redis.raw_set("log", lua.create_function(log)?)?;
    for (name, level) in [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)] {
        redis.raw_set(name, level)?;
    }
    redis.raw_set("REDIS_VERSION", version)?;
    redis.raw_set("REDIS_VERSION_NUM", version_number(version))
}

/// `7.2.0` as 0x070200.
fn version_number(version: &str) -> u32 {
    version.split('.').fold(0, |number, part| number << 8 | part.parse::<u32>().unwrap_or(0))
}

/// The end of a call whose reply is a table, an error, or none.
fn finish(lua: &Lua, raises: bool) -> Result<Value> {
    let (reply, protocol) = RUN.with(|run| {
        run.goes_on()?;
        Ok::<_, mlua::Error>((run.reply.borrow_mut().take(), run.protocol.get()))
    })?;
    match reply.unwrap_or(Reply::None) {
        Reply::Error(why) if raises => Err(failure::command(why.into_owned())),
        Reply::ErrorBytes(why) if raises => Err(failure::command(why)),
        reply => {
            let _unbounded = Unbounded::new(lua)?;
            to_lua::convert(lua, reply, protocol)
        }
    }
}

/// A table with one text, for a script to return.
fn single(lua: &Lua, args: MultiValue, field: &str) -> Result<Value> {
    let (1, Some(Value::String(text))) = (args.len(), args.front()) else {
        return to_lua::failed(lua, b"ERR wrong number or type of arguments");
    };
    let text = text.as_bytes();
    let whole = match &text[..] {
        [b'-', rest @ ..] if field == "err" && rest.contains(&b' ') => rest.to_vec(),
        [b'-', rest @ ..] if field == "err" => [b"ERR ", rest].concat(),
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

/// Bytes of a line of the log, as of most of Redis's own (`LOG_MAX_LEN`). What is behind them is cut off.
const LOG_BYTES_MAX: usize = 1024;

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
            let text = text.as_bytes();
            line.extend_from_slice(&text[..text.len().min(LOG_BYTES_MAX)]);
        }
        if line.len() >= LOG_BYTES_MAX {
            line.truncate(LOG_BYTES_MAX);
            break;
        }
    }
    if !RUN.with(|run| run.quiet.get()) {
        SERVER.with(|server| server.log(level, &line));
    }
    Ok(())
}

fn set_protocol(lua: &Lua, args: MultiValue) -> Result<()> {
    let (1, Some(version)) = (args.len(), args.front()) else {
        return Err(failure::command("ERR redis.setresp() requires one argument."));
    };
    let protocol = match lua.coerce_number(version.clone())? {
        Some(2.0) => Protocol::Resp2,
        Some(3.0) => Protocol::Resp3,
        _ => return Err(failure::command("ERR RESP version must be 2 or 3.")),
    };
    RUN.with(|run| run.protocol.set(protocol));
    SERVER.with(|server| server.set_protocol(protocol));
    Ok(())
}

/// Looks at the flags, which have no effect: what a script changes decides what is replicated.
fn set_replication(lua: &Lua, args: MultiValue) -> Result<()> {
    let (1, Some(flags)) = (args.len(), args.front()) else {
        return Err(failure::command("ERR redis.set_repl() requires two arguments."));
    };
    match lua.coerce_number(flags.clone())?.unwrap_or(0.0) as i64 {
        0..=3 => Ok(()),
        _ => Err(failure::command("ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")),
    }
}

fn permits(_: &Lua, args: MultiValue) -> Result<bool> {
    let mut arguments = Arguments::default();
    for value in &args {
        match value {
            Value::String(text) => {
                arguments.add(&text.as_bytes()).map_err(|why| match why {
                    NoArguments::Wrong(why) => failure::command(why),
                    NoArguments::Halted => Raised::Halted.into(),
                })?;
                continue;
            }
            Value::Number(value) => number::write_double(&mut arguments.bytes, *value),
            Value::Integer(value) => number::write_i64(&mut arguments.bytes, *value),
            _ => return Err(failure::command("ERR Lua redis lib command arguments must be strings or integers")),
        }
        arguments.end();
    }
    if args.is_empty() {
        return Err(failure::command("ERR Please specify at least one argument for this redis lib call"));
    }
    let args = Args::new(&arguments.bytes, &arguments.ranges);
    let permitted = SERVER.with(|server| server.permits(args));
    permitted.ok_or_else(|| failure::command("ERR Invalid command passed to redis.acl_check_cmd()"))
}
