//! How a field lies: as an entry of a packed hash, or in a row of its own.
//!
//! Packed, a hash of which fields may have deadlines has one behind each value, 0 for none. In a row, a flag says
//! whether the value has a deadline before it.

use crate::Result;
use crate::element::of_row;
use crate::key::{FieldTimes, NEVER_MS, damaged};
use crate::packed::{Packed, Reader};
use std::ops::Range;

/// The bit of the encoding that says that fields may have deadlines. A hash keeps the bit, as Redis keeps the encoding.
pub const HAS_DEADLINES: u8 = 0x80;

/// No deadline, in a packed hash.
pub const NO_DEADLINE: u64 = 0;

/// The first byte of a field's row.
pub const PLAIN: u8 = 0;
pub const TIMED: u8 = 1;

/// A field's value and deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<'r> {
    pub value: &'r [u8],
    /// Unix time; from the next millisecond on, the field is absent to readers.
    pub deadline_ms: Option<u64>,
}

impl Stored<'_> {
    #[inline]
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.deadline_ms.is_none_or(|deadline| now_ms <= deadline)
    }
}

/// Parses a field's row.
#[inline]
pub fn stored_in_row(row: &[u8]) -> Result<Stored<'_>> {
    match row {
        [PLAIN, value @ ..] => Ok(Stored { value, deadline_ms: None }),
        [TIMED, a, b, c, d, e, f, g, h, value @ ..] => {
            Ok(Stored { value, deadline_ms: Some(u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h])) })
        }
        _ => Err(damaged("the row of a field", row)),
    }
}

/// Returns the field in the key of a field's row.
pub fn field_of_row(row: &[u8]) -> Result<&[u8]> {
    of_row(row).map(|(_, field)| field).ok_or_else(|| damaged("the key of a field's row", row))
}

/// The bytes before the value in a field's row.
pub struct RowHead {
    bytes: [u8; 9],
    len: usize,
}

impl RowHead {
    pub fn new(deadline_ms: Option<u64>) -> RowHead {
        let mut head = RowHead { bytes: [PLAIN; 9], len: 1 };
        if let Some(deadline) = deadline_ms {
            head.bytes[0] = TIMED;
            head.bytes[1..].copy_from_slice(&deadline.to_be_bytes());
            head.len = 9;
        }
        head
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A summary of the deadlines of a hash's fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadlines {
    /// Fields that have one.
    pub count: u64,
    fields: u64,
    first_ms: Option<u64>,
    last_ms: u64,
}

impl Deadlines {
    /// Adds the deadline of one field.
    pub fn add(&mut self, deadline_ms: Option<u64>) {
        self.fields += 1;
        if let Some(deadline) = deadline_ms {
            self.count += 1;
            self.first_ms = Some(self.first_ms.map_or(deadline, |first| first.min(deadline)));
            self.last_ms = self.last_ms.max(deadline);
        }
    }

    /// Returns the span of deadlines as the meta row states it.
    pub fn times(&self) -> Option<FieldTimes> {
        let last_ms = if self.count == self.fields { self.last_ms } else { NEVER_MS };
        self.first_ms.map(|first_ms| FieldTimes { first_ms, last_ms })
    }
}

/// The place of a field among packed entries.
#[derive(Clone, Debug)]
pub struct Place {
    /// The whole entry.
    pub entry: Range<usize>,
    /// The offset at which the value's length begins.
    pub value_length: usize,
    /// The value's bytes.
    pub value: Range<usize>,
    pub deadline_ms: Option<u64>,
}

impl Place {
    #[inline]
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.deadline_ms.is_none_or(|deadline| now_ms <= deadline)
    }
}

/// A field of a packed hash.
pub struct Field<'p> {
    pub name: &'p [u8],
    pub stored: Stored<'p>,
    pub place: Place,
}

/// A walk over the fields of a packed hash.
pub struct Fields<'p> {
    reader: Reader<'p>,
    has_deadlines: bool,
}

impl<'p> Fields<'p> {
    #[inline]
    pub fn of(packed: &Packed<'p>) -> Fields<'p> {
        Fields { reader: packed.reader(), has_deadlines: packed.encoding & HAS_DEADLINES != 0 }
    }

    /// Returns the next field; none at the end.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Field<'p>>> {
        if self.reader.is_at_end() {
            return Ok(None);
        }
        let start = self.reader.position();
        let name = self.reader.string()?;
        let value_length = self.reader.position();
        let value = self.reader.string()?;
        let value_end = self.reader.position();
        let deadline_ms = match self.has_deadlines {
            true => Some(u64::from_be_bytes(self.reader.fixed()?)).filter(|deadline| *deadline != NO_DEADLINE),
            false => None,
        };
        let place = Place {
            entry: start..self.reader.position(),
            value_length,
            value: value_end - value.len()..value_end,
            deadline_ms,
        };
        Ok(Some(Field { name, stored: Stored { value, deadline_ms }, place }))
    }
}
