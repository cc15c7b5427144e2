//! The load of a library to learn which functions it has. Each interpreter that runs one of them loads it again.
//!
//! While a library is loaded, it sees nothing but a table `redis` with the function that registers, as in Redis.

use crate::interpreter::{Bounds, Interpreter, Outcome, Program, Run};
use crate::library::Function;
use crate::server::{Halted, LogLevel, Server};
use haypile_resp::{Args, Protocol, Reply};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a library may take to be loaded, as in Redis.
pub const LOAD_TIME_MAX: Duration = Duration::from_millis(500);

/// Bytes that an interpreter takes that only loads.
const LOAD_MEMORY_BYTES: usize = 32 << 20;

/// Loads a library and returns its functions.
///
/// # Errors
/// The text is no Lua, does what a library may not, takes too long, or registers nothing: Redis's reply.
pub fn functions_of(
    version: &str,
    text: &[u8],
    head_bytes: usize,
    log: &mut dyn FnMut(LogLevel, &[u8]),
) -> Result<Vec<Function>, Vec<u8>> {
    let bounds = Bounds { memory_bytes: LOAD_MEMORY_BYTES };
    let mut interpreter = Interpreter::new(version, bounds)?;
    let identity: Arc<[u8]> = text.into();
    let program = Program::Library { identity: &identity, text, head_bytes };
    let run = Run {
        name: "",
        program,
        keys: &[],
        args: &[],
        seed: 0,
        memory_bytes: LOAD_MEMORY_BYTES,
        memory_rule: "while it is loaded, whatever 'maxmemory' is",
    };
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
    fn call(&mut self, _: Args<'_>) -> Result<Reply, Halted> {
        Ok(Reply::error("ERR redis.call can only be called inside a script invocation"))
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn permits(&mut self, _: Args<'_>) -> Option<bool> {
        None
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        (self.log)(level, text);
    }

    fn takes_long(&mut self) -> Result<(), Halted> {
        self.goes_on()
    }

    fn goes_on(&mut self) -> Result<(), Halted> {
        match self.started.elapsed() > LOAD_TIME_MAX {
            true => Err(Halted::Failed("ERR FUNCTION LOAD timeout".to_owned())),
            false => Ok(()),
        }
    }
}
