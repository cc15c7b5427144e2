//! The options of SET and its relatives: conditions and deadlines.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::keys::expire::Time;
use crate::statement;
use crate::string::compare::Comparison;
use haypile_store::{Key, Txn};
use haypile_types::key::{Entry, Header};

/// The condition under which SET sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Absent,
    Present,
    /// The string of a key that exists compares so; a missing key meets only the comparisons that ask for a difference.
    Compares(Comparison),
}

impl Condition {
    /// Returns whether a key that was looked up meets the condition.
    pub fn is_met(self, txn: &mut Txn, args: Args, key: &Key, entry: Option<Entry>) -> Result<bool> {
        match (self, entry) {
            (Condition::Absent, entry) => Ok(entry.is_none()),
            (Condition::Present, entry) => Ok(entry.is_some()),
            (Condition::Compares(comparison), Some(entry)) => comparison.holds(txn, args, key, entry),
            (Condition::Compares(comparison), None) => Ok(comparison.differs),
        }
    }
}

/// The effect of an option on the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Expiry {
    /// No option: SET removes the deadline, GETEX leaves it.
    #[default]
    Unsaid,
    Keep,
    Persist,
    /// A new deadline: the unit of the number, and its argument.
    At(Time, usize),
}

/// The options of SET and GETEX. Like options may be repeated, the last one counts; unlike ones exclude each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub condition: Option<Condition>,
    pub get: bool,
    pub expiry: Expiry,
}

impl Options {
    pub const OF_SET: [&str; 4] = ["NX", "XX", "GET", "KEEPTTL"];
    pub const OF_MSETEX: [&str; 3] = ["NX", "XX", "KEEPTTL"];
    pub const OF_GETEX: [&str; 1] = ["PERSIST"];

    /// The options from argument `i` on: `words`, comparisons where they are those of SET, and the four with a number.
    pub fn parse(args: Args, mut i: usize, words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        let compares = words == Options::OF_SET;
        while i < args.len() {
            match words.iter().find(|word| args.is(i, word)) {
                Some(&"NX") => options.require(Condition::Absent)?,
                Some(&"XX") => options.require(Condition::Present)?,
                Some(&"GET") => options.get = true,
                Some(&"KEEPTTL") => options.expire(Expiry::Keep)?,
                Some(_) => options.expire(Expiry::Persist)?,
                None if let Some(comparison) = Comparison::parse(args, i).filter(|_| compares) => {
                    i += 1;
                    options.require(Condition::Compares(comparison))?;
                    args.opt(i).ok_or(Error::Syntax)?;
                }
                None => {
                    let time = time_word(args, i).ok_or(Error::Syntax)?;
                    i += 1;
                    options.expire(Expiry::At(time, i))?;
                    args.opt(i).ok_or(Error::Syntax)?;
                }
            }
            i += 1;
        }
        Ok(options)
    }

    fn require(&mut self, condition: Condition) -> Result<()> {
        match (self.condition.replace(condition), condition) {
            (Some(Condition::Compares(other)), Condition::Compares(one)) if one.is_like(other) => Ok(()),
            (Some(other), _) if other != condition => Err(Error::Syntax),
            _ => Ok(()),
        }
    }

    fn expire(&mut self, expiry: Expiry) -> Result<()> {
        match (std::mem::replace(&mut self.expiry, expiry), expiry) {
            (Expiry::Unsaid, _) => Ok(()),
            (Expiry::At(before, _), Expiry::At(time, _)) if before == time => Ok(()),
            (before, after) if before == after => Ok(()),
            _ => Err(Error::Syntax),
        }
    }

    /// The deadline that the options ask for, if any.
    pub fn deadline(&self, txn: &Txn, args: Args, command: &'static str) -> Result<Option<u64>> {
        self.expiry.deadline(txn, args, command)
    }
}

/// States that a string was set, until a deadline or for ever.
pub(super) fn state_set(txn: &mut Txn, key: &Key, value: &[u8], deadline_ms: Option<u64>) {
    if !txn.states() {
        return;
    }
    match deadline_ms {
        None => statement::state(txn, &[b"SET", key.name, value]),
        Some(_) if Header::inline(deadline_ms).is_expired(txn.expiry_ms()) => {
            statement::state_deletion(txn, key.name);
        }
        Some(ms) => statement::state(txn, &[b"SET", key.name, value, b"PXAT", &statement::digits(ms)]),
    }
}

/// Returns the unit of the deadline that the word at an argument announces.
pub(super) fn time_word(args: Args, at: usize) -> Option<Time> {
    let times = [
        ("EX", Time::InSeconds),
        ("PX", Time::InMilliseconds),
        ("EXAT", Time::AtSecond),
        ("PXAT", Time::AtMillisecond),
    ];
    times.into_iter().find(|(word, _)| args.is(at, word)).map(|(_, time)| time)
}

impl Expiry {
    /// The deadline that is asked for, if any.
    pub fn deadline(self, txn: &Txn, args: Args, command: &'static str) -> Result<Option<u64>> {
        match self {
            Expiry::At(time, i) => deadline(txn, args, i, time, command).map(Some),
            _ => Ok(None),
        }
    }
}

/// Argument `i` as a deadline, a Unix time in milliseconds. The number itself has to be positive.
pub(super) fn deadline(txn: &Txn, args: Args, i: usize, time: Time, command: &'static str) -> Result<u64> {
    let number = args.int(i)?;
    let ms = if number > 0 { time.to_ms(number, txn.now_ms()) } else { None };
    ms.and_then(|ms| u64::try_from(ms).ok()).ok_or(Error::InvalidExpire(command))
}
