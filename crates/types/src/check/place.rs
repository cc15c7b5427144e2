//! How a finding names its subject, and how a type tells its defects.

use haypile_store::Key;
use haypile_store::check::{Findings, Kind};
use haypile_store::row::{ObjectId, Slot};
use std::fmt::{self, Display};

/// Bytes of a name that are shown.
const SHOWN_BYTES_MAX: usize = 80;

/// Bytes, printed for people.
pub struct Shown<'b>(pub &'b [u8]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.len().min(SHOWN_BYTES_MAX);
        write!(f, "\"{}\"{}", self.0[..end].escape_ascii(), if end < self.0.len() { "..." } else { "" })
    }
}

/// A key of a database.
pub struct KeyPlace<'k> {
    pub database: u32,
    pub name: &'k [u8],
}

impl Display for KeyPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} of database {}", Shown(self.name), self.database)
    }
}

/// An object of a database.
pub struct ObjectPlace {
    pub database: u32,
    pub slot: Slot,
    pub id: ObjectId,
}

impl Display for ObjectPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {} in slot {} of database {}", self.id.0, self.slot.0, self.database)
    }
}

/// Collects the findings about the value of one key.
pub struct Report<'r, 'f, 'k> {
    pub findings: &'r mut Findings<'f>,
    pub database: u32,
    pub key: &'r Key<'k>,
}

impl Report<'_, '_, '_> {
    pub fn add(&mut self, what: impl Display) {
        self.findings.add(Kind::Value, KeyPlace { database: self.database, name: self.key.name }, what);
    }
}
