//! The state of the run on a thread: what the functions of its interpreter share.

use crate::failure::{NO_MEMORY, Raised};
use crate::server::{Halted, SERVER};
use haypile_resp::{Protocol, Reply};
use mlua::Result;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ops::Range;

thread_local! {
    /// The state of the run on this thread: one at a time.
    pub(crate) static RUN: RunState = RunState::default();
}

/// The state of a run that its functions share.
#[derive(Default)]
pub(crate) struct RunState {
    /// The protocol in which the script sees replies.
    pub protocol: Cell<Protocol>,
    /// Why the run has ended, once its server has said so.
    pub halted: RefCell<Option<Halted>>,
    /// The arguments of the call under way.
    pub arguments: RefCell<Arguments>,
    /// The reply of the call under way.
    pub reply: RefCell<Option<Reply>>,
    /// The panic of a call, which ends the run and goes on behind it.
    pub panic: RefCell<Option<Box<dyn Any + Send>>>,
    /// An allocation beyond the bound has failed.
    pub no_memory: Cell<bool>,
    /// The library that is loaded has written to the log before.
    pub quiet: Cell<bool>,
    /// Coroutines that the run has made.
    pub coroutines: Cell<u32>,
    /// KEYS and ARGV of the run.
    pub inputs: Cell<(Strings, Strings)>,
}

/// Strings that live as long as a run, of which only `call` reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strings {
    pub at: *const &'static [u8],
    pub len: usize,
}

impl Default for Strings {
    fn default() -> Strings {
        Strings::of(&[])
    }
}

impl Strings {
    pub fn of(strings: &[&[u8]]) -> Strings {
        Strings { at: strings.as_ptr().cast(), len: strings.len() }
    }
}

/// A reply as it is pushed onto Lua's stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    /// Bytes of the reply in the run's state.
    Bytes {
        at: *const u8,
        len: usize,
    },
    Number(f64),
    Boolean(bool),
    Nil,
    /// A reply that is none of these simple ones.
    Other,
}

/// Arguments of a call, in memory that stays from call to call.
#[derive(Default)]
pub(crate) struct Arguments {
    pub bytes: Vec<u8>,
    pub ranges: Vec<Range<u32>>,
}

/// Bytes of arguments that are kept room for between calls.
const ARGUMENT_BYTES_KEPT: usize = 64 << 10;

/// Bytes of arguments that are copied without a question, and whose room is given back with the end of the call.
const ARGUMENT_BYTES_FEW: usize = 1 << 20;

/// Bytes that the arguments of a call have at most: a script may name one long string thousands of times.
const ARGUMENT_BYTES_MAX: usize = 512 << 20;

/// Why a call has no arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoArguments {
    /// An argument is wrong: the text of the error.
    Wrong(&'static str),
    /// The run has ended, which the thread's [`RunState`] notes.
    Halted,
}

impl RunState {
    pub fn reset(&self) {
        self.protocol.set(Protocol::Resp2);
        *self.halted.borrow_mut() = None;
        *self.reply.borrow_mut() = None;
        *self.panic.borrow_mut() = None;
        self.no_memory.set(false);
        self.quiet.set(false);
    }

    /// Notes that the run has ended.
    pub fn halt(&self, why: Halted) -> mlua::Error {
        *self.halted.borrow_mut() = Some(why);
        Raised::Halted.into()
    }

    /// Looks whether the run goes on.
    ///
    /// # Errors
    /// The run has ended.
    pub fn goes_on(&self) -> Result<()> {
        match self.halted.borrow().is_some() || self.panic.borrow().is_some() {
            true => Err(Raised::Halted.into()),
            false => Ok(()),
        }
    }
}

impl Arguments {
    pub fn clear(&mut self) {
        if self.bytes.capacity() > ARGUMENT_BYTES_KEPT {
            *self = Arguments::default();
        }
        self.bytes.clear();
        self.ranges.clear();
    }

    /// Adds a string. The server is asked before many bytes are copied.
    pub fn add(&mut self, string: &[u8]) -> std::result::Result<(), NoArguments> {
        let (before, after) = (self.bytes.len(), self.bytes.len() + string.len());
        if after > ARGUMENT_BYTES_FEW {
            if after > ARGUMENT_BYTES_MAX {
                return Err(NoArguments::Wrong("ERR the arguments of the call are longer than 512 MB"));
            }
            if before <= ARGUMENT_BYTES_FEW {
                ask_before_long().map_err(|_| NoArguments::Halted)?;
            }
        }
        self.bytes.extend_from_slice(string);
        self.end();
        Ok(())
    }

    /// Ends an argument, which the bytes since the last one are.
    pub fn end(&mut self) {
        let start = self.ranges.last().map_or(0, |last| last.end);
        let end = u32::try_from(self.bytes.len()).expect("strings have 512 MB at most, and numbers some bytes each");
        self.ranges.push(start..end);
    }

    /// Gives back the room of a call that has needed much.
    #[inline]
    pub fn give_back(&mut self) {
        if self.bytes.capacity() > ARGUMENT_BYTES_FEW {
            *self = Arguments::default();
        }
    }
}

/// Notes that an allocation beyond the bound has failed, if this is the text of an error that says so.
pub(crate) fn note_no_memory(text: &[u8]) {
    if text == NO_MEMORY {
        RUN.with(|run| run.no_memory.set(true));
    }
}

/// Asks the server of the running script before something that takes long.
///
/// # Errors
/// The run ends here.
pub(crate) fn ask_before_long() -> mlua::Result<()> {
    if !SERVER.is_set() {
        return Ok(());
    }
    SERVER.with(|server| server.takes_long()).map_err(|why| RUN.with(|run| run.halt(why)))
}

/// Asks the server of the running script whether it goes on. A panic of the server's goes on when the script has been
/// left, as one of a call does.
///
/// # Errors
/// The run ends here.
pub(crate) fn ask_whether_it_goes_on() -> Result<()> {
    RUN.with(|run| {
        run.goes_on()?;
        if !SERVER.is_set() {
            return Ok(());
        }
        let asked = std::panic::AssertUnwindSafe(|| SERVER.with(|server| server.goes_on()));
        match std::panic::catch_unwind(asked) {
            Ok(goes_on) => goes_on.map_err(|why| run.halt(why)),
            Err(panic) => {
                *run.panic.borrow_mut() = Some(panic);
                Err(Raised::Halted.into())
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_many_arguments_is_given_back() {
        let mut arguments = Arguments::default();
        for (bytes, is_kept) in [(1000, true), (ARGUMENT_BYTES_FEW + 1, false)] {
            arguments.add(&vec![b'x'; bytes]).expect("there are no more");
            assert_eq!((arguments.bytes.len(), arguments.ranges.len()), (bytes, 1));
            arguments.give_back();
            assert_eq!(arguments.bytes.capacity() > 0, is_kept, "{bytes}");
            arguments.clear();
        }
    }
}
