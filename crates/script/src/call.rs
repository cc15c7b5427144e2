//! `redis.call`, `redis.pcall` and the frame around a script as plain C functions: the one place of the crate with
//! unsafe code.
//!
//! Through mlua a call costs some 4000 instructions, most of them for handles on the arguments and the reply, and a
//! script is mostly calls. Here arguments are copied from Lua's stack and a short reply is pushed onto it. Anything
//! else (tables, errors, the end of the run) is left to a function of mlua's, `Finish`, which may raise.
//!
//! Lua's errors leave a C function by a jump. Invariant: a frame that calls what may raise owns nothing that has to be
//! dropped; what a call needs is in the thread's [`RunState`].
#![allow(unsafe_code)]

use crate::server::SERVER;
use crate::state::{NoArguments, RUN, RunState, Shown, Strings};
use haypile_resp::{Args, Protocol, Reply, number};
use mlua::ffi::{
    LUA_REGISTRYINDEX, LUA_TNUMBER, LUA_TSTRING, lua_State, lua_call, lua_createtable, lua_getfield, lua_gettop,
    lua_insert, lua_pcall, lua_pushboolean, lua_pushlstring, lua_pushnil, lua_pushnumber, lua_pushvalue, lua_rawseti,
    lua_setfield, lua_tolstring, lua_tonumber, lua_type,
};
use mlua::{Function, Lua, Result, Table};
use std::ffi::{CStr, c_int};

/// The name of `Finish` in Lua's registry: a function that takes the reply that a call has left in the thread's
/// [`RunState`] and returns it as a value, or raises it.
const FINISH: &CStr = c"haypile.finish";

/// The name of the real table of globals in Lua's registry.
const GLOBALS: &CStr = c"haypile.globals";

/// Makes the functions around a script and around a function of a library. The first takes a chunk and an error
/// handler, sets KEYS and ARGV in `globals` to what the thread's [`RunState`] says, runs the chunk, and returns whether
/// it has come to its end, and its value or error. The second does the same with a function, to which it gives both as
/// arguments.
pub(crate) fn runners(lua: &Lua, globals: &Table) -> Result<(Function, Function)> {
    lua.set_named_registry_value(GLOBALS.to_str().expect("it is ASCII"), globals)?;
    // SAFETY: as in `functions`.
    unsafe { Ok((lua.create_c_function(run_chunk)?, lua.create_c_function(run_function)?)) }
}

/// Makes `redis.call` and `redis.pcall`. `finish` is called with true where an error is to be raised.
pub(crate) fn functions(lua: &Lua, finish: &Function) -> Result<(Function, Function)> {
    lua.set_named_registry_value(FINISH.to_str().expect("it is ASCII"), finish)?;
    // SAFETY: both are functions of Lua's C interface that keep its rules: they return the number of values that they
    // have pushed, and no frame of theirs that a jump leaves owns anything.
    unsafe { Ok((lua.create_c_function(call)?, lua.create_c_function(pcall)?)) }
}

unsafe extern "C-unwind" fn call(state: *mut lua_State) -> c_int {
    // SAFETY: Lua has called `call` with a state of its own.
    unsafe { run(state, true) }
}

unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: as in `call`.
    unsafe { run(state, false) }
}

unsafe extern "C-unwind" fn run_chunk(state: *mut lua_State) -> c_int {
    // SAFETY: Lua has called this function with a state of its own, and its caller with a chunk and a handler. The
    // pointers of the thread's state are those of the run that has set them, which goes on. This frame owns nothing.
    unsafe {
        lua_getfield(state, LUA_REGISTRYINDEX, GLOBALS.as_ptr());
        let (keys, args) = RUN.with(|run| run.inputs.get());
        push_strings(state, keys);
        lua_setfield(state, -2, c"KEYS".as_ptr());
        push_strings(state, args);
        lua_setfield(state, -2, c"ARGV".as_ptr());
        lua_pushvalue(state, 1);
        let status = lua_pcall(state, 0, 1, 2);
        lua_pushboolean(state, c_int::from(status == 0));
        lua_insert(state, -2);
    }
    2
}

unsafe extern "C-unwind" fn run_function(state: *mut lua_State) -> c_int {
    // SAFETY: as in `run_chunk`.
    unsafe {
        let (keys, args) = RUN.with(|run| run.inputs.get());
        lua_pushvalue(state, 1);
        push_strings(state, keys);
        push_strings(state, args);
        let status = lua_pcall(state, 2, 1, 2);
        lua_pushboolean(state, c_int::from(status == 0));
        lua_insert(state, -2);
    }
    2
}

/// Pushes a table of strings.
///
/// # Safety
/// `strings` are those of a run that goes on.
unsafe fn push_strings(state: *mut lua_State, strings: Strings) {
    // SAFETY: the strings live as long as the run. The stack has room for two values more.
    unsafe {
        lua_createtable(state, strings.len as c_int, 0);
        for at in 0..strings.len {
            let string: &[u8] = *strings.at.add(at);
            lua_pushlstring(state, string.as_ptr().cast(), string.len());
            lua_rawseti(state, -2, at as i64 + 1);
        }
    }
}

/// Runs a call whose arguments are on the stack, and pushes one value.
///
/// # Safety
/// Lua has called the calling function with this state, on the thread that runs its interpreter.
unsafe fn run(state: *mut lua_State, raises: bool) -> c_int {
    // SAFETY: `state` is valid, and the calls below keep the rules of Lua's stack: a C function has room for 20 values.
    // `prepare` raises nothing. From there on this frame owns nothing: `Shown` is plain data, and its bytes are in the
    // thread's state, which no other call changes before they are pushed.
    unsafe {
        match prepare(state) {
            Shown::Bytes { at, len } => {
                lua_pushlstring(state, at.cast(), len);
            }
            Shown::Number(value) => lua_pushnumber(state, value),
            Shown::Boolean(value) => lua_pushboolean(state, c_int::from(value)),
            Shown::Nil => lua_pushnil(state),
            Shown::Other => {
                lua_getfield(state, LUA_REGISTRYINDEX, FINISH.as_ptr());
                lua_pushboolean(state, c_int::from(raises));
                lua_call(state, 1, 1);
            }
        }
    }
    1
}

/// Runs the command and leaves its reply in the thread's state.
///
/// # Safety
/// As of `run`. It calls no function of Lua's that can raise.
unsafe fn prepare(state: *mut lua_State) -> Shown {
    RUN.with(|run| {
        // A panic may not go through Lua's frames: it goes on when the script has been left.
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: as of this function.
            let filled = unsafe { fill(state, run) };
            command(run, filled)
        }));
        run.arguments.borrow_mut().give_back();
        caught.unwrap_or_else(|panic| {
            *run.panic.borrow_mut() = Some(panic);
            Shown::Other
        })
    })
}

/// Copies the arguments of a call.
///
/// # Safety
/// As of `prepare`.
unsafe fn fill(state: *mut lua_State, run: &RunState) -> std::result::Result<(), NoArguments> {
    let mut arguments = run.arguments.borrow_mut();
    arguments.clear();
    // SAFETY: each index is that of an argument. `lua_tolstring` of a string converts nothing and so raises nothing;
    // its bytes stay where they are as long as the string is on the stack.
    unsafe {
        let count = lua_gettop(state);
        if count == 0 {
            return Err(NoArguments::Wrong("ERR Please specify at least one argument for this redis lib call"));
        }
        for at in 1..=count {
            match lua_type(state, at) {
                LUA_TSTRING => {
                    let mut len = 0;
                    let bytes = lua_tolstring(state, at, &raw mut len);
                    arguments.add(std::slice::from_raw_parts(bytes.cast(), len))?;
                }
                LUA_TNUMBER => {
                    number::write_double(&mut arguments.bytes, lua_tonumber(state, at));
                    arguments.end();
                }
                _ => return Err(NoArguments::Wrong("ERR Lua redis lib command arguments must be strings or integers")),
            }
        }
    }
    Ok(())
}

fn command(run: &RunState, filled: std::result::Result<(), NoArguments>) -> Shown {
    if run.halted.borrow().is_some() || run.panic.borrow().is_some() {
        return Shown::Other;
    }
    let reply = match filled {
        Err(NoArguments::Halted) => return Shown::Other,
        Err(NoArguments::Wrong(why)) => Ok(Reply::error(why)),
        Ok(()) => {
            let arguments = run.arguments.borrow();
            SERVER.with(|server| server.call(Args::new(&arguments.bytes, &arguments.ranges)))
        }
    };
    match reply {
        Err(why) => {
            *run.halted.borrow_mut() = Some(why);
            Shown::Other
        }
        Ok(reply) => run.show(reply),
    }
}

impl RunState {
    /// Keeps a reply until it has been pushed, and says what is to be pushed.
    fn show(&self, reply: Reply) -> Shown {
        let mut kept = self.reply.borrow_mut();
        match kept.insert(reply) {
            Reply::Bulk(bytes) => Shown::Bytes { at: bytes.as_ptr(), len: bytes.len() },
            Reply::Integer(number) => Shown::Number(*number as f64),
            Reply::Null | Reply::NullArray if self.protocol.get() == Protocol::Resp2 => Shown::Boolean(false),
            Reply::Null | Reply::NullArray => Shown::Nil,
            _ => Shown::Other,
        }
    }
}
