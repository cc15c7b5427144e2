//! An interpreter: compiled scripts, and the run of one.

use crate::failure::{self, Place};
use crate::libraries::random::Random;
use crate::libraries::{bit, cjson, cmsgpack, structs};
use crate::memory::Bounded;
use crate::redis;
use crate::sandbox;
use crate::server::{Halted, SERVER, Server};
use crate::state::{RUN, Strings, ask_whether_it_goes_on};
use crate::to_reply;
use haypile_resp::Reply;
use mlua::{Error, Function, HookTriggers, Lua, LuaOptions, StdLib, Value, VmState};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Instructions after which the server is asked whether the run goes on: some ten microseconds.
const INSTRUCTIONS: u32 = 2000;

/// Compiled scripts that an interpreter keeps. Where there are more, all are compiled anew.
const CHUNKS_MAX: usize = 1000;

/// The bounds of an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes that it takes at most. An allocation beyond is an error of the script, "not enough memory".
    pub memory_bytes: usize,
}

/// A script with its arguments.
pub struct Run<'a> {
    /// The name of the script in errors: its SHA-1 in hex digits.
    pub name: &'a str,
    pub text: &'a [u8],
    /// Bytes of the first line, which Lua does not see.
    pub shebang_bytes: usize,
    pub keys: &'a [&'a [u8]],
    pub args: &'a [&'a [u8]],
    /// The seed of `math.random`.
    pub seed: u64,
    /// Bytes that the run may take beside what its interpreter has.
    pub memory_bytes: usize,
}

/// The end of a run.
pub enum Outcome {
    /// The script has a reply, perhaps an error.
    Reply(Reply),
    /// The server has ended the run.
    Halted(Halted),
}

/// A Lua interpreter with Redis's globals. It belongs to one thread.
pub struct Interpreter {
    lua: Lua,
    random: Rc<RefCell<Random>>,
    json: cjson::Shared,
    failed: Rc<RefCell<Option<Failure>>>,
    handler: Function,
    chunks: HashMap<Box<str>, Function>,
    bounds: Bounds,
    runner: Function,
}

/// An error that has ended a script.
struct Failure {
    /// Its code first.
    message: Vec<u8>,
    place: Option<Place>,
}

impl Interpreter {
    /// Makes an interpreter. `version` is the one of Redis that scripts see.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(version: &str, bounds: Bounds) -> Result<Interpreter, String> {
        Interpreter::make(version, bounds).map_err(|error| failure::message_of(&error))
    }

    fn make(version: &str, bounds: Bounds) -> mlua::Result<Interpreter> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let random = Rc::<RefCell<Random>>::default();
        let (json_library, json) = cjson::library(&lua)?;
        let libraries = [
            ("redis", redis::library(&lua, version)?),
            ("bit", bit::library(&lua)?),
            ("cjson", json_library),
            ("cmsgpack", cmsgpack::library(&lua)?),
            ("struct", structs::library(&lua)?),
        ];
        let globals = sandbox::globals(&lua, &libraries, &random)?;
        let failed = Rc::<RefCell<Option<Failure>>>::default();
        let handler = handler(&lua, &failed)?;
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS), move |_, _| {
            ask_whether_it_goes_on()?;
            Ok(VmState::Continue)
        })?;
        let runner = crate::call::runner(&lua, &globals)?;
        let chunks = HashMap::new();
        Ok(Interpreter { lua, random, json, failed, handler, chunks, bounds, runner })
    }

    /// Compiles a script, so that its run finds it compiled.
    ///
    /// # Errors
    /// The text is no Lua; the message of the compiler.
    pub fn compile(&mut self, name: &str, text: &[u8], shebang_bytes: usize) -> Result<(), String> {
        self.chunk(name, text, shebang_bytes).map(drop)
    }

    fn chunk(&mut self, name: &str, text: &[u8], shebang_bytes: usize) -> Result<Function, String> {
        if let Some(chunk) = self.chunks.get(name) {
            return Ok(chunk.clone());
        }
        let chunk =
            self.lua.load(&text[shebang_bytes..]).set_name("@user_script").set_mode(mlua::chunk::ChunkMode::Text);
        let chunk = chunk.into_function().map_err(|error| failure::message_of(&error))?;
        if self.chunks.len() >= CHUNKS_MAX {
            self.chunks.clear();
        }
        self.chunks.insert(name.into(), chunk.clone());
        Ok(chunk)
    }

    /// Forgets all compiled scripts.
    pub fn forget_scripts(&mut self) {
        self.chunks.clear();
    }

    /// Whether so much memory has stayed that another interpreter should take this one's place.
    pub fn is_worn(&self) -> bool {
        self.lua.used_memory() > self.bounds.memory_bytes / 2
    }

    /// Returns the bytes that the interpreter takes.
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Runs a script.
    pub fn run(&mut self, run: &Run<'_>, server: &mut dyn Server) -> Outcome {
        let chunk = match self.chunk(run.name, run.text, run.shebang_bytes) {
            Ok(chunk) => chunk,
            Err(why) => {
                let why = format!("ERR Error compiling script (new function): {why}");
                return Outcome::Reply(Reply::error(why));
            }
        };
        RUN.with(|state| state.reset());
        self.random.borrow_mut().seed(run.seed as u32);
        *self.json.borrow_mut() = Default::default();
        *self.failed.borrow_mut() = None;
        RUN.with(|state| state.inputs.set((Strings::of(run.keys), Strings::of(run.args))));
        let result = {
            let bytes = self.bounds.memory_bytes.min(self.lua.used_memory() + run.memory_bytes);
            let bounded = Bounded::new(&self.lua, bytes);
            let run = || self.runner.call::<(bool, Value)>((&chunk, &self.handler));
            bounded.and_then(|_bounded| SERVER.set(&mut *server, run))
        };
        RUN.with(|state| state.inputs.set(Default::default()));
        let no_memory = RUN.with(|state| {
            *state.reply.borrow_mut() = None;
            state.no_memory.take()
        });
        if let Some(panic) = RUN.with(|state| state.panic.borrow_mut().take()) {
            std::panic::resume_unwind(panic);
        }
        if let Some(why) = RUN.with(|state| state.halted.borrow_mut().take()) {
            return Outcome::Halted(why);
        }
        let why = match result {
            Ok((true, value)) => return self.reply(run.name, value, server),
            Ok((false, value)) => failure::text_of(&value),
            Err(error) => failure::message_of(&error).into_bytes(),
        };
        if (no_memory || why == failure::NO_MEMORY)
            && let Err(why) = server.takes_long()
        {
            return Outcome::Halted(why);
        }
        Outcome::Reply(self.failure(run.name, why))
    }

    fn reply(&self, name: &str, value: Value, server: &mut dyn Server) -> Outcome {
        let converted = to_reply::convert(value, RUN.with(|state| state.protocol.get()), server);
        if let Some(why) = RUN.with(|state| state.halted.borrow_mut().take()) {
            return Outcome::Halted(why);
        }
        Outcome::Reply(match converted {
            Ok(reply) => reply,
            Err(error) => match failure::raised(&error) {
                Some(failure::Raised::Command(text)) => Reply::error_bytes(text.clone()),
                _ => self.failure(name, failure::message_of(&error).into_bytes()),
            },
        })
    }

    /// The reply to a script that an error has ended: the one that its handler has noted, or else this.
    fn failure(&self, name: &str, otherwise: Vec<u8>) -> Reply {
        let failure = self.failed.borrow_mut().take();
        let Failure { mut message, place } =
            failure.unwrap_or_else(|| Failure { message: [b"ERR ", &otherwise[..]].concat(), place: None });
        message.extend_from_slice(format!(" script: {name}").as_bytes());
        if let Some(Place { source, line, .. }) = place {
            message.extend_from_slice(format!(", on {source}:{line}.").as_bytes());
        }
        Reply::error_bytes(message)
    }
}

/// Makes the function that is called where an error ends a script, and notes where.
fn handler(lua: &Lua, failed: &Rc<RefCell<Option<Failure>>>) -> mlua::Result<Function> {
    let failed = failed.clone();
    lua.create_function(move |lua, value: Value| {
        let place = failure::place(lua, 1);
        let message = match &value {
            Value::Error(error) => match failure::raised(error) {
                Some(failure::Raised::Command(text)) => text.clone(),
                _ => [b"ERR ", &failure::text_of(&value)[..]].concat(),
            },
            Value::Table(table) => match table.raw_get::<Value>("err")? {
                text @ (Value::String(_) | Value::Number(_) | Value::Integer(_)) => failure::text_of(&text),
                _ => b"ERR unknown error".to_vec(),
            },
            other => text_with_place(&failure::text_of(other), place.as_ref()),
        };
        if failure::text_of(&value) == failure::NO_MEMORY {
            RUN.with(|run| run.no_memory.set(true));
        }
        *failed.borrow_mut() = Some(Failure { message, place });
        Ok::<_, Error>(())
    })
}

/// The message of an error that is a text. One that the sandbox's own frame is named in gets the script's place.
fn text_with_place(text: &[u8], place: Option<&Place>) -> Vec<u8> {
    match (failure::without_own_place(text), place) {
        (Some(text), Some(place)) => [format!("ERR {}:{}: ", place.short_source, place.line).as_bytes(), text].concat(),
        (Some(text), None) => [b"ERR ", text].concat(),
        (None, _) => [b"ERR ", text].concat(),
    }
}
