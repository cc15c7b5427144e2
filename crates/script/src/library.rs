//! Functions as a library registers them while it is loaded.

use crate::failure;
use crate::shebang::{Flags, check_name};
use mlua::{Lua, MultiValue, Result, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;

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
