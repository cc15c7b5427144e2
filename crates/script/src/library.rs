//! Libraries of functions: what a library's text registers when it is loaded.
//!
//! A library is loaded once to learn which functions it has ([`functions_of`]), and again by each interpreter that runs
//! one of them. While it is loaded, it sees nothing but a table `redis` with the function that registers, as in Redis.

use crate::failure;
use crate::interpreter::{Bounds, Interpreter, Outcome, Program, Run};
use crate::server::{Halted, LogLevel, Server};
use crate::shebang::{Flags, check_name};
use haypile_resp::{Args, Protocol, Reply};
use mlua::{Lua, MultiValue, Result, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a library may take to be loaded, as in Redis.
pub const LOAD_TIME_MAX: Duration = Duration::from_millis(500);

/// Bytes that an interpreter takes that only loads.
const LOAD_MEMORY_BYTES: usize = 32 << 20;

/// A function that a library has registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: Vec<u8>,
    pub description: Option<Vec<u8>>,
    pub flags: Flags,
}

/// A function with what it runs.
pub(crate) struct Registered {
    pub function: Function,
    pub callback: mlua::Function,
}

/// The functions of the library that is being loaded; nothing while none is.
pub(crate) type Registering = Rc<RefCell<Option<Vec<Registered>>>>;

/// Loads a library and returns its functions.
///
/// # Errors
/// The text is no Lua, does what a library may not, takes too long, or registers nothing: Redis's reply.
pub fn functions_of(
    version: &str,
    text: &[u8],
    head_bytes: usize,
    log: &mut dyn FnMut(LogLevel, &[u8]),
) -> std::result::Result<Vec<Function>, Vec<u8>> {
    let bounds = Bounds { memory_bytes: LOAD_MEMORY_BYTES };
    let mut interpreter = Interpreter::new(version, bounds)?;
    let identity: Arc<[u8]> = text.into();
    let program = Program::Library { identity: &identity, text, head_bytes };
    let run = Run { name: "", program, keys: &[], args: &[], seed: 0, memory_bytes: LOAD_MEMORY_BYTES };
    let mut server = Loading { started: Instant::now(), log };
    match interpreter.run(&run, &mut server) {
        Outcome::Reply(Reply::ErrorBytes(why)) => return Err(why),
        Outcome::Reply(Reply::Error(why)) => return Err(why.into_owned().into_bytes()),
        Outcome::Reply(_) => {}
        Outcome::Halted(Halted::Failed(why)) => return Err(format!("ERR Error registering functions: {why}").into()),
        Outcome::Halted(Halted::Dropped) => unreachable!("nobody drops it"),
    }
    let functions = interpreter.functions(&identity);
    if functions.is_empty() { Err(b"ERR No functions registered".to_vec()) } else { Ok(functions) }
}

/// The server of a library that is loaded for its functions: it runs no command.
struct Loading<'a> {
    started: Instant,
    log: &'a mut dyn FnMut(LogLevel, &[u8]),
}

impl Server for Loading<'_> {
    fn call(&mut self, _: Args<'_>) -> std::result::Result<Reply, Halted> {
        Ok(Reply::error("ERR redis.call can only be called inside a script invocation"))
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn permits(&mut self, _: Args<'_>) -> Option<bool> {
        None
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        (self.log)(level, text);
    }

    fn takes_long(&mut self) -> std::result::Result<(), Halted> {
        self.goes_on()
    }

    fn goes_on(&mut self) -> std::result::Result<(), Halted> {
        match self.started.elapsed() > LOAD_TIME_MAX {
            true => Err(Halted::Failed("ERR FUNCTION LOAD timeout".to_owned())),
            false => Ok(()),
        }
    }
}

/// Makes `redis.register_function`.
pub(crate) fn register_function(lua: &Lua, registering: &Registering) -> Result<mlua::Function> {
    let registering = registering.clone();
    lua.create_function(move |lua, args: MultiValue| {
        let mut registering = registering.borrow_mut();
        let Some(functions) = registering.as_mut() else {
            return Err(failure::command("ERR redis.register_function can only be called on FUNCTION LOAD command"));
        };
        let registered = read(lua, &args).map_err(failure::command)?;
        check_name(&registered.function.name).map_err(failure::command)?;
        if functions.iter().any(|other| other.function.name == registered.function.name) {
            return Err(failure::command("ERR Function already exists in the library"));
        }
        functions.push(registered);
        Ok(())
    })
}

/// Reads the arguments of `redis.register_function`; the text of the error where they are wrong.
fn read(lua: &Lua, args: &MultiValue) -> std::result::Result<Registered, &'static str> {
    match (args.len(), args.front(), args.get(1)) {
        (1, Some(Value::Table(named)), _) => read_named(lua, named),
        (1, ..) => Err("ERR calling redis.register_function with a single argument is only applicable to Lua table \
                        (representing named arguments)."),
        (2, Some(name), Some(callback)) => {
            let name = text(lua, name).ok_or("ERR first argument to redis.register_function must be a string")?;
            let Value::Function(callback) = callback else {
                return Err("ERR second argument to redis.register_function must be a function");
            };
            let function = Function { name, description: None, flags: Flags::default() };
            Ok(Registered { function, callback: callback.clone() })
        }
        _ => Err("ERR wrong number of arguments to redis.register_function"),
    }
}

fn read_named(lua: &Lua, named: &Table) -> std::result::Result<Registered, &'static str> {
    let (mut name, mut description, mut callback, mut flags) = (None, None, None, Flags::default());
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(|_| "ERR unknown argument given to redis.register_function")?;
        let key = text(lua, &key).ok_or("ERR named argument key given to redis.register_function is not a string")?;
        match (key.to_ascii_lowercase().as_slice(), value) {
            (b"function_name", value) => {
                let given = text(lua, &value);
                name =
                    Some(given.ok_or("ERR function_name argument given to redis.register_function must be a string")?);
            }
            (b"description", value) => {
                let given = text(lua, &value);
                description =
                    Some(given.ok_or("ERR description argument given to redis.register_function must be a string")?);
            }
            (b"callback", Value::Function(given)) => callback = Some(given),
            (b"callback", _) => {
                return Err("ERR callback argument given to redis.register_function must be a function");
            }
            (b"flags", Value::Table(given)) => flags = read_flags(lua, &given)?,
            (b"flags", _) => {
                return Err(
                    "ERR flags argument to redis.register_function must be a table representing function flags",
                );
            }
            _ => return Err("ERR unknown argument given to redis.register_function"),
        }
    }
    let name = name.ok_or("ERR redis.register_function must get a function name argument")?;
    let callback = callback.ok_or("ERR redis.register_function must get a callback argument")?;
    Ok(Registered { function: Function { name, description, flags }, callback })
}

fn read_flags(lua: &Lua, given: &Table) -> std::result::Result<Flags, &'static str> {
    let mut flags = Flags::default();
    for number in 1.. {
        match given.raw_get::<Value>(number) {
            Ok(Value::Nil) | Err(_) => break,
            Ok(value) if text(lua, &value).is_some_and(|name| flags.set(&name)) => {}
            Ok(_) => return Err("ERR unknown flag given"),
        }
    }
    Ok(flags)
}

/// The bytes of a string, or of a number as a string.
fn text(lua: &Lua, value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(_) | Value::Number(_) | Value::Integer(_) => {
            lua.coerce_string(value.clone()).ok().flatten().map(|text| text.as_bytes().to_vec())
        }
        _ => None,
    }
}
