//! The globals of scripts: Lua's own without what reaches beyond a run, in tables that cannot be written to.
//!
//! The tables are made by `sandbox.lua`; the functions that they need of the host are here. Lua 5.1 has no read-only
//! tables, so a script sees empty ones that read through to the real ones.
//!
//! Lua's own functions are guarded where one call may take long, which nothing interrupts: the server is asked first.
//! A pattern of more than 500 quantifiers is refused ("pattern too complex", as by later versions of Lua): matching
//! takes some of the thread's stack for each.

use crate::failure::{self, OWN_CHUNK, Raised};
use crate::libraries::random::Random;
use crate::libraries::type_name;
use crate::state::{RUN, ask_before_long, ask_whether_it_goes_on, note_no_memory};
use mlua::{Function, Lua, MultiValue, Result, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// The globals of an interpreter.
pub(crate) struct Environment {
    /// The real table behind those of scripts, in which KEYS and ARGV are set.
    pub globals: Table,
    /// The globals that libraries and their functions see.
    pub functions: Table,
    set_loading: Function,
}

impl Environment {
    /// Runs something while libraries see what they may use when they are loaded.
    pub fn load_with<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        self.set_loading.call::<()>(true)?;
        let result = run();
        self.set_loading.call::<()>(false)?;
        result
    }
}

/// Makes the globals, with these libraries among them, and makes them those of all chunks from now on. `loading` is the
/// table `redis` of libraries that are being loaded.
pub(crate) fn globals(
    lua: &Lua,
    libraries: &[(&str, Table)],
    loading: Table,
    random: &Rc<RefCell<Random>>,
) -> Result<Environment> {
    let host = lua.create_table()?;
    let named = lua.create_table()?;
    for (name, library) in libraries {
        named.raw_set(*name, library)?;
    }
    host.raw_set("libraries", named)?;
    host.raw_set("loading", loading)?;
    add_refusals(lua, &host)?;
    add_caught(lua, &host)?;
    host.raw_set("kilobytes", lua.create_function(|lua, ()| Ok(lua.used_memory() as f64 / 1024.0))?)?;
    add_random(lua, &host, random)?;
    add_guards(lua, &host)?;
    let made: Table = lua.load(include_str!("sandbox.lua")).set_name(OWN_CHUNK).call(host)?;
    lua.set_globals(made.raw_get("seen_globals")?)?;
    Ok(Environment {
        globals: made.raw_get("globals")?,
        functions: made.raw_get("seen_functions")?,
        set_loading: made.raw_get("set_loading")?,
    })
}

fn add_refusals(lua: &Lua, host: &Table) -> Result<()> {
    const READ_ONLY: &str = "Attempt to modify a readonly table";
    host.raw_set(
        "refuse_write",
        lua.create_function(|lua, _: MultiValue| Err::<(), _>(failure::text(lua, READ_ONLY)))?,
    )?;
    host.raw_set(
        "refuse",
        lua.create_function(|_, ()| Err::<(), mlua::Error>(Raised::Text(READ_ONLY.into()).into()))?,
    )?;
    let unknown = |lua: &Lua, (_, name): (Value, Value)| {
        let name = failure::text_of(&name);
        let text = [b"Script attempted to access nonexistent global variable '", &name[..], b"'"].concat();
        Err::<(), _>(failure::text(lua, text))
    };
    host.raw_set("refuse_unknown", lua.create_function(unknown)?)?;
    let bad_argument = |lua: &Lua, (number, function, what): (usize, String, String)| {
        Err::<(), _>(failure::argument(lua, number, &function, &what))
    };
    host.raw_set("bad_argument", lua.create_function(bad_argument)?)?;
    let no_table = |lua: &Lua, (number, function, rest): (usize, String, MultiValue)| {
        let what = format!("table expected, got {}", rest.front().map_or("no value", Value::type_name));
        Err::<(), _>(failure::argument(lua, number, &function, &what))
    };
    host.raw_set("no_table", lua.create_function(no_table)?)
}

/// Adds the functions that turn an error that a script has caught into the value that Redis would have raised. The end
/// of a run is raised again.
fn add_caught(lua: &Lua, host: &Table) -> Result<()> {
    host.raw_set("caught", lua.create_function(|lua, value: Value| caught(lua, value))?)?;
    // Redis's pcall shows the text of an error that is a table.
    let caught_text = |lua: &Lua, value: Value| match caught(lua, value)? {
        Value::Table(table) => match table.raw_get("err")? {
            text @ (Value::String(_) | Value::Number(_) | Value::Integer(_)) => Ok(text),
            _ => Ok(Value::Table(table)),
        },
        other => Ok(other),
    };
    host.raw_set("caught_text", lua.create_function(caught_text)?)
}

fn caught(lua: &Lua, value: Value) -> Result<Value> {
    // Whatever the value: an error that is raised in an error handler becomes a text.
    RUN.with(|run| run.goes_on())?;
    if failure::text_of(&value) == failure::NO_MEMORY {
        note_no_memory(failure::NO_MEMORY);
        ask_before_long()?;
    }
    if let Value::String(text) = &value {
        let text = text.as_bytes();
        if let Some(text) = failure::without_own_place(&text) {
            return Ok(Value::String(lua.create_string(text)?));
        }
    }
    let Value::Error(error) = &value else { return Ok(value) };
    match failure::raised(error) {
        Some(Raised::Halted) => Err(Raised::Halted.into()),
        Some(Raised::Text(text)) => Ok(Value::String(lua.create_string(text)?)),
        Some(Raised::Command(text)) => crate::to_lua::failed(lua, text),
        None => Ok(Value::String(lua.create_string(failure::message_of(error))?)),
    }
}

/// Coroutines between two questions whether the run goes on.
const COROUTINES_PER_QUESTION: u32 = 20;

/// Adds the questions before functions of Lua's own that nothing interrupts.
fn add_guards(lua: &Lua, host: &Table) -> Result<()> {
    host.raw_set("before_long", lua.create_function(|_, ()| ask_before_long())?)?;
    // Each coroutine has its own count of instructions.
    let coroutine = |_: &Lua, ()| {
        let made = RUN.with(|run| run.coroutines.replace(run.coroutines.get().wrapping_add(1)));
        if made.is_multiple_of(COROUTINES_PER_QUESTION) { ask_whether_it_goes_on() } else { Ok(()) }
    };
    host.raw_set("coroutine", lua.create_function(coroutine)?)?;
    let quantifiers = |_: &Lua, pattern: mlua::LuaString| Ok(quantifiers(&pattern.as_bytes()) as f64);
    host.raw_set("quantifiers", lua.create_function(quantifiers)?)?;
    let wrong = |lua: &Lua, (number, function, expected, rest): (usize, String, String, MultiValue)| {
        let got = rest.get(number - 1).map_or("no value", type_name);
        Err::<(), _>(failure::argument(lua, number, &function, &format!("{expected} expected, got {got}")))
    };
    host.raw_set("wrong", lua.create_function(wrong)?)
}

/// Counts the quantifiers of a pattern, and `%b` and `%1` to `%9`, which go over bytes again as quantifiers do. As in
/// Lua, a quantifier stands behind a character or a class; elsewhere, and within brackets, it is a character.
fn quantifiers(pattern: &[u8]) -> usize {
    let (mut count, mut at, mut may_repeat) = (0, 0, false);
    while let Some(byte) = pattern.get(at) {
        at += 1;
        may_repeat = match byte {
            b'%' => {
                let escaped = pattern.get(at).copied().unwrap_or_default();
                count += usize::from(matches!(escaped, b'b' | b'1'..=b'9'));
                at += if escaped == b'b' { 3 } else { 1 };
                !matches!(escaped, b'b' | b'f' | b'1'..=b'9')
            }
            b'[' => {
                at = end_of_class(pattern, at);
                true
            }
            b'*' | b'+' | b'-' | b'?' if may_repeat => {
                count += 1;
                false
            }
            b'(' | b')' => false,
            b'^' if at == 1 => false,
            _ => true,
        };
    }
    count
}

/// Returns where a class in brackets ends that begins before `at`, or the pattern, whose error Lua finds.
fn end_of_class(pattern: &[u8], mut at: usize) -> usize {
    at += usize::from(pattern.get(at) == Some(&b'^'));
    let begin = at;
    while let Some(byte) = pattern.get(at) {
        match byte {
            b']' if at > begin => return at + 1,
            b'%' => at += 2,
            _ => at += 1,
        }
    }
    pattern.len()
}

fn add_random(lua: &Lua, host: &Table, random: &Rc<RefCell<Random>>) -> Result<()> {
    let own = random.clone();
    let draw = move |lua: &Lua, args: MultiValue| own.borrow_mut().draw(lua, args);
    host.raw_set("random", lua.create_function(draw)?)?;
    let own = random.clone();
    let seed = move |lua: &Lua, args: MultiValue| {
        let seed = crate::libraries::number_argument(lua, &args, 1, "randomseed")?;
        own.borrow_mut().seed(seed as i64 as u32);
        Ok(())
    };
    host.raw_set("randomseed", lua.create_function(seed)?)
}
