//! The bound on an interpreter's memory, which holds while a script runs.
//!
//! mlua calls Lua in protected mode wherever an allocation may fail, which costs more than the call. So there is no
//! bound while the host converts values; what it makes of them is bounded by what they are.

use mlua::{Lua, Result};

/// A script runs: its allocations are bounded until this is dropped.
pub(crate) struct Bounded<'a>(&'a Lua);

impl<'a> Bounded<'a> {
    pub fn new(lua: &'a Lua, bytes: usize) -> Result<Bounded<'a>> {
        lua.set_memory_limit(bytes)?;
        Ok(Bounded(lua))
    }
}

impl Drop for Bounded<'_> {
    fn drop(&mut self) {
        self.0.set_memory_limit(0).expect("the interpreter has an allocator of its own");
    }
}

/// The host converts values for a script that runs: nothing is bounded until this is dropped.
pub(crate) struct Unbounded<'a> {
    lua: &'a Lua,
    bytes: usize,
}

impl<'a> Unbounded<'a> {
    pub fn new(lua: &'a Lua) -> Result<Unbounded<'a>> {
        Ok(Unbounded { lua, bytes: lua.set_memory_limit(0)? })
    }
}

impl Drop for Unbounded<'_> {
    fn drop(&mut self) {
        self.lua.set_memory_limit(self.bytes).expect("the interpreter has an allocator of its own");
    }
}
