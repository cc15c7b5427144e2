//! Lua scripts as Redis runs them: an interpreter with Redis's globals, and the way between Lua values and replies.
//!
//! Owns the sandbox, the tables `redis`, `bit`, `cjson`, `cmsgpack` and `struct`, and the bounds of a run. Never runs a
//! command: a script asks its [`Server`]. Read [`server`] first, then [`interpreter`].
//!
//! Invariant: a run leaves nothing in its interpreter that a later one can see, but what functions of a library keep in
//! their own locals. So a run can be dropped and begun again.

pub mod interpreter;
pub mod server;

mod call;
mod failure;
mod libraries;
mod library;
mod load;
mod memory;
mod redis;
mod sandbox;
mod shebang;
mod state;
mod to_lua;
mod to_reply;

pub mod testing;

pub use interpreter::{Bounds, Interpreter, Outcome, Program, Run};
pub use library::Function;
pub use load::{LOAD_TIME_MAX, functions_of};
pub use server::{Halted, LogLevel, Server};
pub use shebang::{Flags, LibraryHead, Shebang};

/// The SHA-1 of a script's text in 40 hex digits, by which clients call it.
pub fn sha1_hex(text: &[u8]) -> String {
    use sha1::{Digest, Sha1};
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    Sha1::digest(text).iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
