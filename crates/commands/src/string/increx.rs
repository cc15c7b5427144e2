//! INCREX: adds to a number within bounds, and sets a deadline (Redis 8.8). A counter of a rate limiter in one command.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::string::options::{Expiry, state_set, time_word};
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::{Reply, number};
use haypile_store::Txn;
use haypile_types::event;
use haypile_types::extended::Extended;
use haypile_types::key::{self, Entry};
use haypile_types::string;

pub(crate) const COMMANDS: &[Command] = &[INCREX];

const INCREX: Command = Command {
    name: "increx",
    since: "8.8.0",
    group: Group::String,
    arity: Arity::at_least(2),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Adds to the number in a key, within bounds, and sets or removes its deadline.",
    syntax: "key [increment=(BYFLOAT float:double | BYINT integer:integer)] [LBOUND lowerbound] [UBOUND upperbound] \
             [SATURATE] [expiration=(EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT \
             unix-time-milliseconds | PERSIST)] [ENX]",
    access: Access::Write,
    body: Body::Txn(increx),
    flags: &[Flag::Denyoom, Flag::Fast],
    ..Command::USUAL
};

/// The options, no one twice.
#[derive(Default)]
struct Options {
    by: Option<By>,
    /// Arguments that are bounds.
    lower: Option<usize>,
    upper: Option<usize>,
    saturates: bool,
    expiry: Expiry,
    /// The deadline is set only where there is none.
    only_without: bool,
}

#[derive(Clone, Copy)]
enum By {
    Int(i64),
    Float(Extended),
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options::default();
        let mut at = 2;
        let once = |is_first: bool| if is_first { Ok(()) } else { Err(Error::Syntax) };
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if args.is(at, "BYINT") && has_value {
                once(options.by.is_none())?;
                at += 1;
                let error = Error::text("ERR Increment is not an integer or out of range");
                options.by = Some(By::Int(number::parse_i64(args.get(at)).ok_or(error)?));
            } else if args.is(at, "BYFLOAT") && has_value {
                once(options.by.is_none())?;
                at += 1;
                let float = Extended::parse(args.get(at)).ok_or(Error::text("ERR Increment is not a valid float"))?;
                if !float.is_finite() {
                    return Err(Error::text("ERR BYFLOAT increment cannot be Infinity"));
                }
                options.by = Some(By::Float(float));
            } else if args.is(at, "LBOUND") && has_value {
                at += 1;
                once(options.lower.replace(at).is_none())?;
            } else if args.is(at, "UBOUND") && has_value {
                at += 1;
                once(options.upper.replace(at).is_none())?;
            } else if args.is(at, "SATURATE") {
                once(!std::mem::replace(&mut options.saturates, true))?;
            } else if args.is(at, "ENX") {
                once(!std::mem::replace(&mut options.only_without, true))?;
            } else if args.is(at, "PERSIST") {
                once(options.expiry == Expiry::Unsaid)?;
                options.expiry = Expiry::Persist;
            } else {
                let time = time_word(args, at).filter(|_| has_value).ok_or(Error::Syntax)?;
                once(options.expiry == Expiry::Unsaid)?;
                at += 1;
                options.expiry = Expiry::At(time, at);
            }
            at += 1;
        }
        once(!(options.only_without && options.expiry == Expiry::Persist))?;
        Ok(options)
    }
}

fn increx(txn: &mut Txn, args: Args) -> Result<Reply> {
    let options = Options::parse(args)?;
    match options.by.unwrap_or(By::Int(1)) {
        By::Int(by) => add::<i64>(txn, args, &options, by),
        By::Float(by) => add::<Extended>(txn, args, &options, by),
    }
}

/// A kind of number that INCREX adds.
trait Number: Copy + PartialOrd {
    const LEAST: Self;
    const MOST: Self;
    const EVENT: &'static str;

    /// Returns the number of a bound; None if it is none.
    fn bound(text: &[u8]) -> Option<Self>;
    fn wrong_bound(name: &str) -> Error;
    /// Returns the number that a key holds; 0 if there is none.
    fn stored(entry: Option<&Entry>) -> Result<Self>;
    /// Returns the sum; None if it leaves the range.
    fn sum(self, by: Self) -> Option<Self>;
    fn is_negative(self) -> bool;
    fn zero() -> Self;
    /// Returns `self` less `other`.
    ///
    /// # Errors
    /// The difference leaves the range.
    fn less(self, other: Self) -> Result<Self>;
    fn text(self) -> String;
    fn reply(self) -> Reply;
}

impl Number for i64 {
    const LEAST: i64 = i64::MIN;
    const MOST: i64 = i64::MAX;
    const EVENT: &'static str = "incrby";

    fn bound(text: &[u8]) -> Option<i64> {
        number::parse_i64(text)
    }

    fn wrong_bound(name: &str) -> Error {
        Error::text(format!("ERR {name} is not an integer or out of range"))
    }

    fn stored(entry: Option<&Entry>) -> Result<i64> {
        Ok(entry.map(string::integer_of).transpose()?.unwrap_or(0))
    }

    fn sum(self, by: i64) -> Option<i64> {
        self.checked_add(by)
    }

    fn is_negative(self) -> bool {
        self < 0
    }

    fn zero() -> i64 {
        0
    }

    fn less(self, other: i64) -> Result<i64> {
        self.checked_sub(other).ok_or(Error::text("ERR applied increment would overflow"))
    }

    fn text(self) -> String {
        self.to_string()
    }

    fn reply(self) -> Reply {
        Reply::Integer(self)
    }
}

impl Number for Extended {
    const LEAST: Extended = Extended::LEAST;
    const MOST: Extended = Extended::MOST;
    const EVENT: &'static str = "incrbyfloat";

    fn bound(text: &[u8]) -> Option<Extended> {
        Extended::parse(text)
    }

    fn wrong_bound(name: &str) -> Error {
        Error::text(format!("ERR {name} is not a valid float"))
    }

    fn stored(entry: Option<&Entry>) -> Result<Extended> {
        let number = entry.map(string::extended_of).transpose()?.unwrap_or(Extended::ZERO);
        if number.is_finite() { Ok(number) } else { Err(Error::text("ERR value cannot be Infinity")) }
    }

    fn sum(self, by: Extended) -> Option<Extended> {
        (self + by).filter(|sum| sum.is_finite())
    }

    fn is_negative(self) -> bool {
        self < Extended::ZERO
    }

    fn zero() -> Extended {
        Extended::ZERO
    }

    fn less(self, other: Extended) -> Result<Extended> {
        self.sum(-other).ok_or(Error::text("ERR applied increment would be Infinity"))
    }

    fn text(self) -> String {
        self.print()
    }

    fn reply(self) -> Reply {
        Reply::Decimal(self.print())
    }
}

fn add<N: Number>(txn: &mut Txn, args: Args, options: &Options, by: N) -> Result<Reply> {
    let bound = |at: Option<usize>, name: &str, unsaid: N| {
        at.map_or(Ok(unsaid), |at| N::bound(args.get(at)).ok_or_else(|| N::wrong_bound(name)))
    };
    let lower = bound(options.lower, "LBOUND", N::LEAST)?;
    let upper = bound(options.upper, "UBOUND", N::MOST)?;
    if lower > upper {
        return Err(Error::text("ERR LBOUND can't be greater than UBOUND"));
    }
    if options.only_without && options.expiry == Expiry::Unsaid {
        return Err(Error::text("ERR ENX flag requires an expiration"));
    }
    let asked = options.expiry.deadline(txn, args, "increx")?;
    let key = args.key(txn, 1);
    let entry = key::lookup_write(txn, &key)?;
    let before = N::stored(entry.as_ref())?;
    let reply = |new: N, added: N| Reply::Array(vec![new.reply(), added.reply()]);
    let after = match before.sum(by) {
        Some(sum) if lower <= sum && sum <= upper => sum,
        _ if !options.saturates => return Ok(reply(before, N::zero())),
        Some(sum) if sum > upper => upper,
        Some(_) => lower,
        // The end of the range, as far as the bounds reach.
        None if by.is_negative() => lower,
        None => upper,
    };
    let added = after.less(before)?;
    let header = entry.as_ref().map(|entry| entry.header);
    let present = header.and_then(|header| header.deadline_ms);
    let sets = asked.is_some() && !(options.only_without && present.is_some());
    let deadline = match options.expiry {
        Expiry::Persist => None,
        _ if sets => asked,
        _ => present,
    };
    string::put(txn, &key, header.as_ref(), after.text().as_bytes(), deadline)?;
    state_set(txn, &key, after.text().as_bytes(), deadline);
    if sets && deadline.is_some_and(|deadline| deadline <= txn.expiry_ms()) {
        if header.is_some() {
            txn.on_event(event::GENERIC, "del", &key);
        }
        return Ok(reply(after, added));
    }
    txn.on_event(event::STRING, N::EVENT, &key);
    if options.expiry == Expiry::Persist && present.is_some() {
        txn.on_event(event::GENERIC, "persist", &key);
    } else if sets {
        txn.on_event(event::GENERIC, "expire", &key);
    }
    Ok(reply(after, added))
}
