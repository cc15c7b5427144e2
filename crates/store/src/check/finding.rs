//! The findings of a check: defects, told one by one up to a bound for each kind and counted beyond, and garbage, which
//! is no defect and is only counted.

use std::fmt::{self, Display};

/// The rule that a defect breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Records that cannot be read, or cannot be applied.
    Log,
    /// The log and the base do not fit together.
    LogAndBase,
    /// Damage in the base's files.
    Base,
    /// A row of the store's own facts.
    System,
    /// A row whose key has no known form.
    Row,
    /// Rows in a space that is no database, and not known to be dead.
    Space,
    /// A key's meta row.
    Key,
    Deadline,
    Owner,
    ObjectId,
    Counter,
    /// A rule that a type has for its rows.
    Value,
}

impl Kind {
    pub const ALL: [Kind; 12] = [
        Kind::Log,
        Kind::LogAndBase,
        Kind::Base,
        Kind::System,
        Kind::Row,
        Kind::Space,
        Kind::Key,
        Kind::Deadline,
        Kind::Owner,
        Kind::ObjectId,
        Kind::Counter,
        Kind::Value,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Log => "log",
            Kind::LogAndBase => "log against base",
            Kind::Base => "base",
            Kind::System => "system row",
            Kind::Row => "row",
            Kind::Space => "space",
            Kind::Key => "key",
            Kind::Deadline => "deadline",
            Kind::Owner => "owner",
            Kind::ObjectId => "object id",
            Kind::Counter => "counter",
            Kind::Value => "value",
        }
    }
}

/// One defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    /// The key, the row or the file that has the defect.
    pub place: String,
    pub what: String,
}

impl Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.kind.name(), self.place, self.what)
    }
}

/// Rows that compaction or time will take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    pub dead_space_rows: u64,
    pub dead_space_bytes: u64,
    /// Objects without owner.
    pub objects: u64,
    pub object_rows: u64,
    pub object_bytes: u64,
    /// Deadline rows that do not agree with their key.
    pub stale_deadlines: u64,
}

/// Takes findings: tells defects, and counts garbage.
pub struct Findings<'t> {
    tell: &'t mut dyn FnMut(&Finding),
    /// The number of defects of a kind that are told.
    told_max: u64,
    counts: [u64; Kind::ALL.len()],
    pub garbage: Garbage,
}

impl<'t> Findings<'t> {
    pub fn new(told_max: u64, tell: &'t mut dyn FnMut(&Finding)) -> Findings<'t> {
        Findings { tell, told_max, counts: [0; Kind::ALL.len()], garbage: Garbage::default() }
    }

    /// Adds a defect. Its text is only made where the defect is told.
    pub fn add(&mut self, kind: Kind, place: impl Display, what: impl Display) {
        let count = &mut self.counts[kind as usize];
        *count += 1;
        if *count <= self.told_max {
            (self.tell)(&Finding { kind, place: place.to_string(), what: what.to_string() });
        }
    }

    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// Returns how many defects of a kind were not told.
    pub fn untold(&self, kind: Kind) -> u64 {
        self.count(kind).saturating_sub(self.told_max)
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}
