//! The operations of the chaos test: objects of a few kinds, which every system under test maps to its own commands,
//! and what a session says of an operation's outcome.
//!
//! All values are numbers that no other operation of a run writes, and 0 stands for what is missing. So a read tells
//! whose write it has seen, and one history has the same form for all systems.

use std::fmt;

/// The number of lists of a family.
pub const FAMILY: usize = 3;

/// The form of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A string: writes, reads, compare-and-set.
    Register,
    /// A sum: additions, reads.
    Counter,
    /// A list: appends, reads of the whole.
    List,
    /// A sorted set: scores that are set and raised, members that are removed, reads of the whole.
    Sorted,
    /// Two strings, always written and read together; exchanged by a script.
    Pair,
    /// Three lists: transactions of appends and reads.
    Family,
}

impl Kind {
    pub const ALL: [Kind; 6] = [Kind::Register, Kind::Counter, Kind::List, Kind::Sorted, Kind::Pair, Kind::Family];

    /// Returns the kind with this word.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the kind's word in histories and keys.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Register => "register",
            Kind::Counter => "counter",
            Kind::List => "list",
            Kind::Sorted => "sorted",
            Kind::Pair => "pair",
            Kind::Family => "family",
        }
    }
}

/// One object: operations on it are checked together, and apart from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    pub kind: Kind,
    pub number: u64,
}

impl Object {
    /// Returns the object's keys, which lie in one slot.
    pub fn keys(self) -> Vec<String> {
        match self.kind {
            Kind::Pair => (0..2).map(|part| format!("{{{self}}}:{part}")).collect(),
            Kind::Family => (0..FAMILY).map(|part| format!("{{{self}}}:{part}")).collect(),
            _ => vec![format!("{{{self}}}")],
        }
    }

    /// Returns the operation that reads all of the object.
    pub fn read(self) -> Operation {
        match self.kind {
            Kind::Family => Operation::Transact((0..FAMILY).map(|key| Step::Read { key }).collect()),
            _ => Operation::Read,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.number)
    }
}

/// An operation on an object of the kind that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads the whole of an object that is no family.
    Read,
    /// Sets a register.
    Write(i64),
    /// Sets a register to `new` if it holds `old`; answers what it held.
    Swap { old: i64, new: i64 },
    /// Adds to a counter; answers the sum.
    Add(i64),
    /// Appends to a list; answers the length.
    Append(i64),
    /// Sets a member's score; answers 1 if the member is new.
    Score { member: i64, score: i64 },
    /// Raises a member's score; answers the score.
    Raise { member: i64, by: i64 },
    /// Removes a member; answers 1 if it was there.
    Remove { member: i64 },
    /// Sets both strings of a pair.
    Both(i64, i64),
    /// Exchanges both strings of a pair; answers what they held.
    Exchange,
    /// Runs steps on a family's lists as one transaction; answers a list for each read.
    Transact(Vec<Step>),
}

/// A step of a transaction on a family, with the number of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Append { key: usize, value: i64 },
    Read { key: usize },
}

impl Operation {
    /// Whether the operation changes nothing, whatever its outcome.
    pub fn is_read(&self) -> bool {
        match self {
            Operation::Read => true,
            Operation::Transact(steps) => steps.iter().all(|step| matches!(step, Step::Read { .. })),
            _ => false,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Read => write!(f, "read"),
            Operation::Write(value) => write!(f, "write {value}"),
            Operation::Swap { old, new } => write!(f, "swap {old} {new}"),
            Operation::Add(by) => write!(f, "add {by}"),
            Operation::Append(value) => write!(f, "append {value}"),
            Operation::Score { member, score } => write!(f, "score {member} {score}"),
            Operation::Raise { member, by } => write!(f, "raise {member} {by}"),
            Operation::Remove { member } => write!(f, "remove {member}"),
            Operation::Both(first, second) => write!(f, "both {first} {second}"),
            Operation::Exchange => write!(f, "exchange"),
            Operation::Transact(steps) => {
                write!(f, "transact")?;
                steps.iter().try_for_each(|step| match step {
                    Step::Append { key, value } => write!(f, " {key}+{value}"),
                    Step::Read { key } => write!(f, " {key}?"),
                })
            }
        }
    }
}

impl Operation {
    /// Reads what `Display` has written.
    pub fn parse(text: &str) -> Option<Operation> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (verb, words) = words.split_first()?;
        if *verb == "transact" {
            return words.iter().map(|word| Step::parse(word)).collect::<Option<_>>().map(Operation::Transact);
        }
        let numbers = words.iter().map(|word| word.parse().ok()).collect::<Option<Vec<i64>>>()?;
        Some(match (*verb, numbers.as_slice()) {
            ("read", []) => Operation::Read,
            ("write", [value]) => Operation::Write(*value),
            ("swap", [old, new]) => Operation::Swap { old: *old, new: *new },
            ("add", [by]) => Operation::Add(*by),
            ("append", [value]) => Operation::Append(*value),
            ("score", [member, score]) => Operation::Score { member: *member, score: *score },
            ("raise", [member, by]) => Operation::Raise { member: *member, by: *by },
            ("remove", [member]) => Operation::Remove { member: *member },
            ("both", [first, second]) => Operation::Both(*first, *second),
            ("exchange", []) => Operation::Exchange,
            _ => return None,
        })
    }
}

impl Step {
    fn parse(word: &str) -> Option<Step> {
        if let Some(key) = word.strip_suffix('?') {
            return Some(Step::Read { key: key.parse().ok()? });
        }
        let (key, value) = word.split_once('+')?;
        Some(Step::Append { key: key.parse().ok()?, value: value.parse().ok()? })
    }
}

/// The numbers that an operation answers; a transaction has a list for each of its reads, all others have one list.
pub type Answer = Vec<Vec<i64>>;

/// A session's word on an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done(Answer),
    /// The operation has had no effect and will have none.
    Failed(String),
    /// The operation may take effect, now or later, or not.
    Unknown(String),
    /// The reply is none that the operation can have.
    Wrong(String),
}

impl Outcome {
    /// Returns the outcome of an operation that answers one list.
    pub fn numbers(numbers: impl Into<Vec<i64>>) -> Outcome {
        Outcome::Done(vec![numbers.into()])
    }
}

/// A client of the system under test. A session connects again by itself, to whichever node it likes; it never sends an
/// operation again that may have been carried out.
pub trait Session: Send {
    fn call(&mut self, object: Object, operation: &Operation) -> Outcome;
}
