//! FUNCTION RESTORE, and the payload that FUNCTION DUMP makes: the code of each library as in an RDB file, then the
//! version and checksum of DUMP.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::function::{Functions, Library, USUAL_CHANGE, delete_all, loaded};
use crate::statement;
use crate::table::{Arity, Body, Command, Flag};
use haypile_rdb::{Memory, Payload, Slice, Source, Writer, encoded, file, payload};
use haypile_resp::Reply;
use haypile_script::LibraryHead;
use haypile_store::Txn;

/// The longest payload.
const BYTES_MAX: usize = 512 << 20;

pub(super) const RESTORE: Command = Command {
    name: "restore",
    arity: Arity::at_least(3),
    summary: "Loads the libraries of a payload.",
    syntax: "serialized-value [policy=(FLUSH | APPEND | REPLACE)]",
    complexity: "O(N) where N is the number of functions on the payload",
    body: Body::Txn(restore),
    flags: &[Flag::Denyoom, Flag::Noscript],
    ..USUAL_CHANGE
};

/// The fate of the libraries that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Flush,
    Append,
    Replace,
}

fn restore(txn: &mut Txn, args: Args) -> Result<Reply> {
    let policy = match args.len() {
        3 => Policy::Append,
        4 if args.is(3, "append") => Policy::Append,
        4 if args.is(3, "replace") => Policy::Replace,
        4 if args.is(3, "flush") => Policy::Flush,
        4 => {
            return Err(Error::text(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
        _ => return Err(args.wrong_subcommand()),
    };
    let codes = codes_of(args.get(2))?;
    let mut functions = if policy == Policy::Flush { Functions::default() } else { Functions::of(&txn.facts()) };
    let mut restored: Vec<Library> = Vec::new();
    for code in codes {
        let head = LibraryHead::of_library(&code).map_err(Error::Quoting)?;
        let is_twice = restored.iter().any(|other| other.name == head.name);
        if functions.has_library(&head.name) && (policy != Policy::Replace || is_twice) {
            return Err(Error::Quoting([b"ERR Library ", &head.name[..], b" already exists"].concat()));
        }
        // All that are replaced go first: a function may come from one library to another.
        functions.remove(&head.name);
        restored.push(loaded(txn, &code, head)?);
    }
    for library in &restored {
        functions.add(library.clone()).map_err(Error::Quoting)?;
    }
    // A payload may be of a version that an older Redis does not take.
    statement::state_nothing(txn);
    if policy == Policy::Flush {
        delete_all(txn)?;
        statement::state(txn, &[b"FUNCTION", b"FLUSH"]);
    }
    for library in restored {
        statement::state(txn, &[b"FUNCTION", b"LOAD", b"REPLACE", library.code()]);
        txn.put_fact(&library.fact_name(), Some(&library.fact))?;
    }
    Ok(Reply::ok())
}

/// Reads the codes of the libraries of a payload.
///
/// # Errors
/// The bytes are no payload of FUNCTION DUMP.
pub fn codes_of(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    if Payload::check(bytes).is_err() {
        return Err(Error::text("ERR DUMP payload version or checksum are wrong"));
    }
    let mut source = Slice::new(&bytes[..bytes.len() - payload::FOOTER_BYTES]);
    let (mut codes, mut compressed) = (Vec::new(), Vec::new());
    while !source.rest().is_empty() {
        let kind = source.take(1).map_err(|_| failed())?[0];
        if kind != file::FUNCTION {
            return Err(Error::text("ERR given type is not a function"));
        }
        let mut code = Vec::new();
        encoded::string(&mut source, &mut code, &mut compressed).map_err(|_| failed())?;
        codes.push(code);
    }
    Ok(codes)
}

fn failed() -> Error {
    Error::text("ERR Failed loading library data")
}

/// Makes the payload of some libraries.
///
/// # Errors
/// The libraries are too long for one payload.
pub(super) fn payload<'a>(codes: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>> {
    let too_long = |_: std::io::Error| Error::text("ERR the libraries are too long for one payload");
    let mut writer = Writer::new(Memory::new(BYTES_MAX));
    for code in codes {
        writer.raw(&[file::FUNCTION]).map_err(too_long)?;
        writer.string(code).map_err(too_long)?;
    }
    Ok(writer.seal())
}
