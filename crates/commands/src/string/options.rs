//! The options of SET and its relatives: conditions and deadlines.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::keys::expire::Time;
use haypile_store::Txn;

/// When SET sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Absent,
    Present,
}

impl Condition {
    pub fn met_by(present: bool) -> Condition {
        if present { Condition::Present } else { Condition::Absent }
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
    pub const OF_GETEX: [&str; 1] = ["PERSIST"];

    /// The options from argument `i` on: `words`, and the four with a number.
    pub fn parse(args: Args, mut i: usize, words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        while i < args.len() {
            match words.iter().find(|word| args.is(i, word)) {
                Some(&"NX") => options.require(Condition::Absent)?,
                Some(&"XX") => options.require(Condition::Present)?,
                Some(&"GET") => options.get = true,
                Some(&"KEEPTTL") => options.expire(Expiry::Keep)?,
                Some(_) => options.expire(Expiry::Persist)?,
                None => {
                    let times = [
                        ("EX", Time::InSeconds),
                        ("PX", Time::InMilliseconds),
                        ("EXAT", Time::AtSecond),
                        ("PXAT", Time::AtMillisecond),
                    ];
                    let (_, time) = times.into_iter().find(|(word, _)| args.is(i, word)).ok_or(Error::Syntax)?;
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
        match self.condition.replace(condition) {
            Some(other) if other != condition => Err(Error::Syntax),
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
        match self.expiry {
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
