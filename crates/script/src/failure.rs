//! Errors on their way through Lua: what Rust functions raise, what a script may catch of it, and where it came from.
//!
//! A Rust function cannot raise a Lua value, so it raises a [`Raised`], and the sandbox's `pcall` and its relatives
//! show scripts the value that Redis would have raised.

use mlua::{Error, Lua, Value};
use std::fmt;

/// The name of the sandbox's own chunk: its frames are nobody's.
pub(crate) const OWN_CHUNK: &str = "=haypile";

/// The error of an allocation beyond the bound.
pub(crate) const NO_MEMORY: &[u8] = b"not enough memory";

/// The text of an error that a function of Lua's has raised in the sandbox's own frame, without that frame's place.
pub(crate) fn without_own_place(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"haypile:")?;
    let digits = rest.iter().take_while(|digit| digit.is_ascii_digit()).count();
    rest[digits..].strip_prefix(b": ")
}

/// An error that a Rust function has raised.
#[derive(Clone, Debug)]
pub(crate) enum Raised {
    /// A string, as Lua's own functions raise one.
    Text(Vec<u8>),
    /// A table with the field `err`, as of a command that has failed.
    Command(Vec<u8>),
    /// The end of the run, which nothing catches.
    Halted,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raised::Text(text) | Raised::Command(text) => f.write_str(&String::from_utf8_lossy(text)),
            Raised::Halted => f.write_str("the script was ended"),
        }
    }
}

impl std::error::Error for Raised {}

impl From<Raised> for Error {
    fn from(raised: Raised) -> Error {
        Error::external(raised)
    }
}

/// Makes the error of a failed command, or of one that stands for it: its code first.
pub(crate) fn command(text: impl Into<Vec<u8>>) -> Error {
    Raised::Command(text.into()).into()
}

/// Makes the error of a library's function, with the place of its caller in front, as Lua's own functions do.
pub(crate) fn text(lua: &Lua, text: impl AsRef<[u8]>) -> Error {
    let mut positioned = match place(lua, 1) {
        Some(Place { short_source, line, .. }) => format!("{short_source}:{line}: ").into_bytes(),
        None => Vec::new(),
    };
    positioned.extend_from_slice(text.as_ref());
    Raised::Text(positioned).into()
}

/// Makes the error of a wrong argument.
pub(crate) fn argument(lua: &Lua, number: usize, function: &str, what: &str) -> Error {
    text(lua, format!("bad argument #{number} to '{function}' ({what})"))
}

/// Returns what an error of a Rust function was raised as, if it is one of ours.
pub(crate) fn raised(error: &Error) -> Option<&Raised> {
    error.downcast_ref::<Raised>()
}

/// The text of an error value: a string, a table's `err`, or whatever it is.
pub(crate) fn text_of(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Error(error) => match raised(error) {
            Some(Raised::Text(text) | Raised::Command(text)) => text.clone(),
            Some(Raised::Halted) => Raised::Halted.to_string().into_bytes(),
            None => message_of(error).into_bytes(),
        },
        other => other.to_string().unwrap_or_else(|_| "an error".to_owned()).into_bytes(),
    }
}

/// The message of an error that mlua has made: without its traceback.
pub(crate) fn message_of(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } => message_of(cause),
        Error::RuntimeError(message) | Error::SyntaxError { message, .. } => message.clone(),
        Error::MemoryError(_) => "not enough memory".to_owned(),
        other => other.to_string(),
    }
}

/// A line of a script.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The chunk as it was named, with its `@` or `=`.
    pub source: String,
    pub short_source: String,
    pub line: usize,
}

/// Returns the line of the innermost frame that is neither a C function nor the sandbox's own, from this level on; 0
/// is the running function.
pub(crate) fn place(lua: &Lua, from_level: usize) -> Option<Place> {
    /// Frames of C functions and of the sandbox that can lie above a script's own.
    const LEVELS_MAX: usize = 8;
    for level in from_level..from_level + LEVELS_MAX {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let name = source.source.as_deref().unwrap_or_default().to_owned();
            let is_script = source.what == "Lua" || source.what == "main";
            let short_source = source.short_src.as_deref().unwrap_or_default().to_owned();
            (is_script && name != OWN_CHUNK)
                .then(|| debug.current_line().map(|line| Place { source: name, short_source, line }))
        })?;
        match found {
            Some(place) => return place,
            None => continue,
        }
    }
    None
}
