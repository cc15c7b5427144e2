//! Bytes that the libraries of scripts read, and what these may not do. For a seeded test and for fuzz targets.

use crate::interpreter::{Bounds, Interpreter, Outcome, Program, Run};
use crate::server::{Halted, LogLevel, Server};
use haypile_resp::{Args, Protocol, Reply};

/// A library that reads bytes, and the script that has it do so: it errs, or what it makes of the bytes can be written
/// and read again, any number of times with the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    Cjson,
    Cmsgpack,
    /// The bytes up to the first zero are the format.
    Struct,
}

const CJSON: &str = "
    local read, value = pcall(cjson.decode, ARGV[1])
    if not read then return 'refused' end
    local written, text = pcall(cjson.encode, value)
    if not written then return 'not written' end
    local again = cjson.encode(cjson.decode(text))
    assert(#again == #text, 'another text')
    return 'same'";

const CMSGPACK: &str = "
    local values = {pcall(cmsgpack.unpack, ARGV[1])}
    if not values[1] then return 'refused' end
    pcall(cmsgpack.unpack_limit, ARGV[1], 2, 1)
    pcall(cmsgpack.unpack_one, ARGV[1], #ARGV[1] - 1)
    local written, bytes = pcall(cmsgpack.pack, values[2])
    if not written then return 'not written' end
    -- A table that nests too deep is written as nil, which is no key.
    local read, again = pcall(function() return cmsgpack.pack(cmsgpack.unpack(bytes)) end)
    if not read then return 'not read' end
    -- What was cut off is gone from here on.
    assert(#cmsgpack.pack(cmsgpack.unpack(again)) == #again, 'other bytes')
    return 'same'";

const STRUCT: &str = "
    local at = string.find(ARGV[1], '%z') or #ARGV[1] + 1
    local format, bytes = string.sub(ARGV[1], 1, at - 1), string.sub(ARGV[1], at + 1)
    pcall(struct.size, format)
    local values = {pcall(struct.unpack, format, bytes)}
    if not values[1] then return 'refused' end
    pcall(struct.unpack, format, bytes, #bytes)
    local written, packed = pcall(struct.pack, format, unpack(values, 2, #values - 1))
    if not written then return 'not written' end
    local again = {struct.unpack(format, packed)}
    assert(#again == #values - 1, 'other values')
    return 'same'";

/// Has a library read bytes.
///
/// # Panics
/// Something happened that may not.
pub fn check_reading(interpreter: &mut Interpreter, reads: Reads, bytes: &[u8]) {
    let text = match reads {
        Reads::Cjson => CJSON,
        Reads::Cmsgpack => CMSGPACK,
        Reads::Struct => STRUCT,
    };
    let run = Run {
        name: NAME,
        program: Program::Script { text: text.as_bytes(), head_bytes: 0 },
        keys: &[],
        args: &[bytes],
        seed: 1,
        memory_bytes: MEMORY_BYTES,
        memory_rule: "of a test",
    };
    let outcome = interpreter.run(&run, &mut Nobody);
    let shown = |outcome: &Outcome| match outcome {
        Outcome::Halted(why) => format!("{why:?}"),
        Outcome::Reply(reply) => format!("{reply:?}"),
    };
    let Outcome::Reply(Reply::Bulk(word)) = &outcome else {
        // A value that nests too deep to be read again, or is too large for the bound, may end the run.
        let text = shown(&outcome);
        assert!(["not enough memory", "nest", "too deep"].iter().any(|why| text.contains(why)), "{reads:?}: {text}");
        return;
    };
    assert!([&b"refused"[..], b"not written", b"not read", b"same"].contains(&&word[..]), "{reads:?}");
}

/// A name of the form that scripts have.
const NAME: &str = "0000000000000000000000000000000000000000";

const MEMORY_BYTES: usize = 16 << 20;

/// Makes an interpreter for [`check_reading`].
pub fn interpreter() -> Interpreter {
    Interpreter::new("7.4.0", Bounds { memory_bytes: MEMORY_BYTES }).expect("an interpreter")
}

/// A server that has no commands.
struct Nobody;

impl Server for Nobody {
    fn call(&mut self, _: Args<'_>) -> Result<Reply, Halted> {
        Ok(Reply::error("ERR no commands"))
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn permits(&mut self, _: Args<'_>) -> Option<bool> {
        None
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn takes_long(&mut self) -> Result<(), Halted> {
        Ok(())
    }

    fn goes_on(&mut self) -> Result<(), Halted> {
        Ok(())
    }
}
