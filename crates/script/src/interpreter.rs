//! An interpreter: compiled scripts, loaded libraries, and the run of one.

use crate::failure::{self, Place};
use crate::libraries::random::Random;
use crate::libraries::{bit, cjson, cmsgpack, structs};
use crate::library::{self, Registered, Registering, register_function};
use crate::memory::Bounded;
use crate::redis;
use crate::sandbox;
use crate::server::{Halted, SERVER, Server};
use crate::state::{RUN, Strings, ask_whether_it_goes_on, note_no_memory};
use crate::to_reply;
use haypile_resp::Reply;
use mlua::{Error, Function, HookTriggers, Lua, LuaOptions, StdLib, Value, VmState};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

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

/// The text that a run executes. The first line of each is not for Lua.
#[derive(Clone, Copy, Debug)]
pub enum Program<'a> {
    /// A script.
    Script {
        text: &'a [u8],
        /// Bytes of the first line.
        head_bytes: usize,
    },
    /// A library: the run registers its functions.
    Library {
        /// The library itself: an interpreter loads it once, and again when another one has its name.
        identity: &'a Arc<[u8]>,
        text: &'a [u8],
        /// Bytes of the first line.
        head_bytes: usize,
    },
    /// A function of a library, which is loaded if it is not yet: the one of the run's name.
    Function {
        identity: &'a Arc<[u8]>,
        text: &'a [u8],
        /// Bytes of the first line.
        head_bytes: usize,
    },
}

/// A script or a function with its arguments.
pub struct Run<'a> {
    /// The name of what runs, in errors: the function's, or the script's SHA-1 in hex digits.
    pub name: &'a str,
    pub program: Program<'a>,
    pub keys: &'a [&'a [u8]],
    pub args: &'a [&'a [u8]],
    /// The seed of `math.random`.
    pub seed: u64,
    /// Bytes that the run may take beside what its interpreter has.
    pub memory_bytes: usize,
    /// The rule that these bytes follow from: part of the error of a run that needs more.
    pub memory_rule: &'a str,
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
    function_runner: Function,
    environment: sandbox::Environment,
    registering: Registering,
    libraries: Vec<Loaded>,
}

/// A library that was loaded.
struct Loaded {
    identity: Arc<[u8]>,
    functions: Vec<Registered>,
}

/// An error that has ended a script.
struct Failure {
    /// The text of the error, its code first.
    message: Vec<u8>,
    place: Option<Place>,
}

/// The end of a run that has no value.
enum NotRun {
    /// The library cannot be loaded: the reply.
    NotLoaded(Vec<u8>),
    Failed(Error),
}

impl From<Error> for NotRun {
    fn from(error: Error) -> NotRun {
        NotRun::Failed(error)
    }
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
        let registering = Registering::default();
        let loading = redis::loading_library(&lua, version, register_function(&lua, &registering)?)?;
        let environment = sandbox::globals(&lua, &libraries, loading, &random)?;
        let failed = Rc::<RefCell<Option<Failure>>>::default();
        let handler = handler(&lua, &failed)?;
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS), move |_, _| {
            ask_whether_it_goes_on()?;
            Ok(VmState::Continue)
        })?;
        let (runner, function_runner) = crate::call::runners(&lua, &environment.globals)?;
        Ok(Interpreter {
            lua,
            random,
            json,
            failed,
            handler,
            chunks: HashMap::new(),
            bounds,
            runner,
            function_runner,
            environment,
            registering,
            libraries: Vec::new(),
        })
    }

    /// Compiles a script, so that its run finds it compiled.
    ///
    /// # Errors
    /// The text is no Lua; the message of the compiler.
    pub fn compile(&mut self, name: &str, text: &[u8], head_bytes: usize) -> Result<(), String> {
        self.chunk(name, text, head_bytes).map(drop)
    }

    fn chunk(&mut self, name: &str, text: &[u8], head_bytes: usize) -> Result<Function, String> {
        if let Some(chunk) = self.chunks.get(name) {
            return Ok(chunk.clone());
        }
        let chunk = self.lua.load(&text[head_bytes..]).set_name("@user_script").set_mode(mlua::chunk::ChunkMode::Text);
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
        self.lua.used_memory() > self.bounds.memory_bytes / 8
    }

    /// Returns the bytes that the interpreter takes.
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// The functions of a library that was loaded.
    pub(crate) fn functions(&self, identity: &Arc<[u8]>) -> Vec<library::Function> {
        let loaded = self.libraries.iter().find(|loaded| Arc::ptr_eq(&loaded.identity, identity));
        let functions = loaded.into_iter().flat_map(|loaded| &loaded.functions);
        functions.map(|registered| registered.function.clone()).collect()
    }

    /// Runs a script, a library or a function.
    pub fn run(&mut self, run: &Run<'_>, server: &mut dyn Server) -> Outcome {
        let chunk = match run.program {
            Program::Script { text, head_bytes } => match self.chunk(run.name, text, head_bytes) {
                Ok(chunk) => Some(chunk),
                Err(why) => {
                    let why = format!("ERR Error compiling script (new function): {why}");
                    return Outcome::Reply(Reply::error(why));
                }
            },
            Program::Library { .. } | Program::Function { .. } => None,
        };
        RUN.with(|state| state.reset());
        self.random.borrow_mut().seed(run.seed as u32);
        *self.json.borrow_mut() = Default::default();
        *self.failed.borrow_mut() = None;
        let result = {
            let bytes = self.bounds.memory_bytes.min(self.lua.used_memory() + run.memory_bytes);
            let lua = self.lua.clone();
            let bounded = Bounded::new(&lua, bytes);
            bounded.map_err(Into::into).and_then(|_bounded| {
                SERVER.set(&mut *server, || match (chunk, run.program) {
                    (Some(chunk), _) => Ok(self.enter(&self.runner, &chunk, run)?),
                    (None, Program::Function { identity, text, head_bytes }) => {
                        self.load(identity, text, head_bytes, true)?;
                        Ok(self.enter(&self.function_runner, &self.callback(identity, run.name), run)?)
                    }
                    (None, Program::Library { identity, text, head_bytes }) => {
                        self.load(identity, text, head_bytes, false).map(|()| (true, Value::Nil))
                    }
                    (None, Program::Script { .. }) => unreachable!("its chunk was made"),
                })
            })
        };
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
        let (mut failure, is_loaded) = match result {
            Ok((true, value)) => return self.reply(run.name, value, server),
            Ok((false, value)) => (self.failure(failure::text_of(&value)), true),
            Err(NotRun::NotLoaded(message)) => (Failure { message, place: None }, false),
            Err(NotRun::Failed(error)) => (self.failure(failure::message_of(&error).into_bytes()), true),
        };
        if no_memory || failure.message.strip_prefix(b"ERR ") == Some(failure::NO_MEMORY) {
            if let Err(why) = server.takes_long() {
                return Outcome::Halted(why);
            }
            failure.name_bound(run);
        }
        Outcome::Reply(if is_loaded { failure.reply(run.name) } else { Reply::error_bytes(failure.message) })
    }

    /// Runs a chunk or a function with the keys and arguments of a run. Returns whether it has come to its end, and its
    /// value or error.
    fn enter(&self, runner: &Function, program: &Function, run: &Run<'_>) -> mlua::Result<(bool, Value)> {
        RUN.with(|state| state.inputs.set((Strings::of(run.keys), Strings::of(run.args))));
        let ended = runner.call::<(bool, Value)>((program, &self.handler));
        RUN.with(|state| state.inputs.set(Default::default()));
        ended
    }

    /// Loads a library, unless it is loaded. Others that only this interpreter still knows are forgotten.
    fn load(&mut self, identity: &Arc<[u8]>, text: &[u8], head_bytes: usize, is_quiet: bool) -> Result<(), NotRun> {
        if self.libraries.iter().any(|loaded| Arc::ptr_eq(&loaded.identity, identity)) {
            return Ok(());
        }
        self.libraries.retain(|loaded| Arc::strong_count(&loaded.identity) > 1);
        let chunk = self.lua.load(&text[head_bytes..]).set_name("@user_function");
        let chunk = chunk.set_mode(mlua::chunk::ChunkMode::Text).set_environment(self.environment.functions.clone());
        let chunk = chunk.into_function().map_err(|error| {
            let why = failure::message_of(&error);
            note_no_memory(why.as_bytes());
            NotRun::NotLoaded(format!("ERR Error compiling function: {why}").into_bytes())
        })?;
        *self.registering.borrow_mut() = Some(Vec::new());
        RUN.with(|state| state.quiet.set(is_quiet));
        let ended = self.environment.load_with(|| self.runner.call::<(bool, Value)>((chunk, &self.handler)));
        RUN.with(|state| state.quiet.set(false));
        let functions = self.registering.take().unwrap_or_default();
        let (is_loaded, error) = ended?;
        if !is_loaded {
            let failure = self.failed.borrow_mut().take();
            note_no_memory(&failure::text_of(&error));
            let message = failure.map_or_else(|| failure::text_of(&error), |failure| failure.message);
            return Err(NotRun::NotLoaded([b"ERR Error registering functions: ", &message[..]].concat()));
        }
        self.libraries.push(Loaded { identity: identity.clone(), functions });
        Ok(())
    }

    /// The function of a name, in either case, of a loaded library.
    fn callback(&self, identity: &Arc<[u8]>, name: &str) -> Function {
        let loaded = self.libraries.iter().find(|loaded| Arc::ptr_eq(&loaded.identity, identity));
        let mut functions = loaded.into_iter().flat_map(|loaded| &loaded.functions);
        let named = functions.find(|registered| registered.function.name.eq_ignore_ascii_case(name.as_bytes()));
        named.expect("a library registers the same functions each time").callback.clone()
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
                _ => self.failure(failure::message_of(&error).into_bytes()).reply(name),
            },
        })
    }

    /// Takes the error that has ended a script: the one that its handler has noted, or else this.
    fn failure(&self, otherwise: Vec<u8>) -> Failure {
        let failure = self.failed.borrow_mut().take();
        failure.unwrap_or_else(|| Failure { message: [b"ERR ", &otherwise[..]].concat(), place: None })
    }
}

impl Failure {
    /// Adds to the error of an allocation beyond the bound of a run how large that is, and why.
    fn name_bound(&mut self, run: &Run<'_>) {
        if self.message.ends_with(failure::NO_MEMORY) {
            let (megabytes, rule) = (run.memory_bytes as f64 / f64::from(1 << 20), run.memory_rule);
            let megabytes = (megabytes * 10.0).round() / 10.0;
            self.message.extend_from_slice(format!(": a script may take {megabytes} MB ({rule})").as_bytes());
        }
    }

    /// Makes the reply to a script of this name.
    fn reply(mut self, name: &str) -> Reply {
        self.message.extend_from_slice(format!(" script: {name}").as_bytes());
        if let Some(Place { source, line, .. }) = self.place {
            self.message.extend_from_slice(format!(", on {source}:{line}.").as_bytes());
        }
        Reply::error_bytes(self.message)
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
        note_no_memory(&failure::text_of(&value));
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
