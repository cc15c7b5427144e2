//! Whole files: `REDIS` and four digits of a version; then keys, each behind its deadline and counters; ff and a
//! checksum.

use crate::encoded;
use crate::error::{Error, Failure, Why};
use crate::event::{Event, Key, Sink};
use crate::form::Form;
use crate::input::Input;
use crate::source::Source;
use crate::tape::Tape;
use crate::value::Reader;
use std::io::Read;

/// Codes in the place of a value's form. Redis's numbers.
mod code {
    pub const SLOT: u8 = 244;
    /// A library of functions: its code as a string.
    pub const FUNCTION: u8 = 245;
    pub const FUNCTION_EARLY: u8 = 246;
    pub const MODULE: u8 = 247;
    pub const IDLE: u8 = 248;
    pub const FREQUENCY: u8 = 249;
    pub const AUX: u8 = 250;
    pub const SIZES: u8 = 251;
    pub const DEADLINE_MS: u8 = 252;
    pub const DEADLINE_S: u8 = 253;
    pub const DATABASE: u8 = 254;
    pub const END: u8 = 255;
}

pub use code::FUNCTION;
pub(crate) use code::{AUX, DATABASE, DEADLINE_MS, END, FREQUENCY, IDLE, SIZES};

pub(crate) const MAGIC: &[u8; 5] = b"REDIS";

/// The first version with a checksum.
const VERSION_WITH_CHECKSUM: u32 = 5;

/// A summary of a file that was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub version: u32,
    /// Bytes of the file.
    pub bytes: u64,
    /// Whether the file had a checksum, which was right then.
    pub has_checksum: bool,
}

/// Gives the content of a file to a sink. The checksum comes last: the sink's data is only known to be whole when this
/// returns.
pub fn read_file<R: Read, K: Sink>(from: R, sink: &mut K) -> Result<Summary, Failure<K::Error>> {
    read_input(Input::new(from), sink)
}

/// Reads like `read_file`, with the bytes of each value on a tape: from the `Event::End` that completes the value to
/// the next event.
pub fn read_file_recorded<R: Read, K: Sink>(from: R, tape: &Tape, sink: &mut K) -> Result<Summary, Failure<K::Error>> {
    read_input(Input::new(from).recorded_by(tape.clone()), sink)
}

fn read_input<R: Read, K: Sink>(input: Input<R>, sink: &mut K) -> Result<Summary, Failure<K::Error>> {
    let mut reader = Reader::new(input);
    let version = version(&mut reader.source)?;
    let mut about = About::default();
    loop {
        let number = reader.source.byte()?;
        let event = match number {
            code::END => break,
            code::AUX => {
                let (name, value) = reader.strings()?;
                Event::Aux { name, value }
            }
            code::DATABASE => Event::Database(encoded::length(&mut reader.source)?),
            code::SIZES => {
                let keys = encoded::length(&mut reader.source)?;
                Event::Sizes { keys, deadlines: encoded::length(&mut reader.source)? }
            }
            code::FUNCTION => Event::Function(reader.string()?),
            code::FUNCTION_EARLY => {
                let why = Why::Unsupported("functions of a release candidate of Redis 7.0");
                return Err(reader.source.error(why).into());
            }
            code::MODULE => {
                let id = encoded::length(&mut reader.source)?;
                // The moment at which the module's data was saved: before the keys or behind them.
                encoded::length(&mut reader.source)?;
                encoded::length(&mut reader.source)?;
                skip_module(&mut reader)?;
                sink.take(Event::Module { name: &module_name(id), key: None }).map_err(Failure::Sink)?;
                continue;
            }
            code::SLOT => {
                for _ in 0..3 {
                    encoded::length(&mut reader.source)?;
                }
                continue;
            }
            code::DEADLINE_MS => {
                about.deadline_ms = time(i64::from_le_bytes(reader.source.array()?));
                continue;
            }
            code::DEADLINE_S => {
                let seconds = i32::from_le_bytes(reader.source.array()?);
                about.deadline_ms = time(i64::from(seconds).saturating_mul(1000));
                continue;
            }
            code::IDLE => {
                about.idle_s = Some(encoded::length(&mut reader.source)?);
                continue;
            }
            code::FREQUENCY => {
                about.frequency = Some(reader.source.byte()?);
                continue;
            }
            _ => {
                key(&mut reader, number, std::mem::take(&mut about), sink)?;
                continue;
            }
        };
        sink.take(event).map_err(Failure::Sink)?;
    }
    let has_checksum = version >= VERSION_WITH_CHECKSUM && checksum(&mut reader.source)?;
    Ok(Summary { version, bytes: reader.source.position(), has_checksum })
}

fn version<R: Read>(source: &mut Input<R>) -> Result<u32, Error> {
    let no_rdb = |error: Error| match error.why {
        Why::Truncated => Error { why: Why::NotRdb, ..error },
        _ => error,
    };
    let head: [u8; 9] = source.array().map_err(no_rdb)?;
    let digits = head.strip_prefix(MAGIC).and_then(|digits| std::str::from_utf8(digits).ok());
    let version = digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| source.error(Why::NotRdb))?;
    if !(1..=u32::from(crate::VERSION_MAX)).contains(&version) {
        return Err(source.error(Why::Version(version)));
    }
    Ok(version)
}

/// Tells whether there is a checksum; an error if it is wrong. Redis writes zero where it is told to make none.
fn checksum<R: Read>(source: &mut Input<R>) -> Result<bool, Error> {
    let sum = source.checksum();
    match u64::from_le_bytes(source.array()?) {
        0 => Ok(false),
        written if written == sum => Ok(true),
        _ => Err(source.error(Why::Checksum)),
    }
}

/// The fields of a key that stand before it.
#[derive(Default)]
struct About {
    deadline_ms: Option<u64>,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

/// Returns a deadline; -1 is none, and a time before 1970 has passed as well as 1970 has.
fn time(ms: i64) -> Option<u64> {
    (ms != -1).then_some(ms.max(0) as u64)
}

fn key<R: Read, K: Sink>(
    reader: &mut Reader<Input<R>>,
    number: u8,
    about: About,
    sink: &mut K,
) -> Result<(), Failure<K::Error>> {
    let unknown = "a value of an unknown type";
    let form = Form::of(number).ok_or_else(|| reader.source.error(Why::Unsupported(unknown)))?;
    let mut name = std::mem::take(&mut reader.name);
    encoded::string(&mut reader.source, &mut name, &mut reader.compressed)?;
    let position = reader.source.position();
    let Some(kind) = form.kind() else { return module(reader, form, &name, sink) };
    let About { deadline_ms, idle_s, frequency } = about;
    let key = Key { name: &name, kind, deadline_ms, idle_s, frequency, position };
    sink.take(Event::Key(key)).map_err(Failure::Sink)?;
    reader.source.record(form);
    let elements = reader.value(form, |part| sink.take(Event::Part(part))).map_err(|failure| failure.of_key(&name))?;
    reader.source.end_record();
    sink.take(Event::End { elements }).map_err(Failure::Sink)?;
    reader.name = name;
    Ok(())
}

/// Reads a key whose value only a module understands.
fn module<R: Read, K: Sink>(
    reader: &mut Reader<Input<R>>,
    form: Form,
    name: &[u8],
    sink: &mut K,
) -> Result<(), Failure<K::Error>> {
    if form == Form::ModuleOld {
        let why = Why::Unsupported("data of a module in a form that only the module can read");
        return Err(Failure::Input(reader.source.error(why)).of_key(name));
    }
    let id = encoded::length(&mut reader.source)?;
    skip_module(reader).map_err(|error| Failure::Input(error).of_key(name))?;
    sink.take(Event::Module { name: &module_name(id), key: Some(name) }).map_err(Failure::Sink)
}

/// Skips data of a module: each value after its type, until the end.
fn skip_module<R: Read>(reader: &mut Reader<Input<R>>) -> Result<(), Error> {
    loop {
        match encoded::length(&mut reader.source)? {
            0 => return Ok(()),
            // Integers, signed and unsigned.
            1 | 2 => drop(encoded::length(&mut reader.source)?),
            3 => reader.source.skip(4)?,
            4 => reader.source.skip(8)?,
            5 => drop(reader.string()?),
            _ => return Err(reader.source.corrupt("data of a module has an unknown form")),
        }
    }
}

/// Returns the name that an identity spells: nine characters of six bits, above ten bits of a version.
fn module_name(id: u64) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|n| char::from(CHARACTERS[(id >> (58 - 6 * n)) as usize & 0x3f])).collect()
}
