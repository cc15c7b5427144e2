//! The rows of the base with what the log holds above it, in order: what a server would show once it had replayed the
//! log.

use super::records::Above;
use super::{Meter, Stored};
use crate::base::{BaseError, Cursor, Step};
use crate::row::{Family, RowKey};
use std::collections::btree_map;
use std::iter::Peekable;

pub struct Merged<'m> {
    base: &'m dyn Stored,
    above: &'m Above,
    meter: &'m Meter,
}

/// Rows in ascending order, each once; `row` is the current one.
pub struct Rows<'m> {
    view: &'m Merged<'m>,
    /// The families that are read beside this one at the same time: the share that is done counts all of them.
    families: &'static [Family],
    base: Box<dyn Cursor + 'm>,
    above: Peekable<btree_map::Range<'m, RowKey, Option<Vec<u8>>>>,
    /// The base's next row; the buffers are reused.
    key: Vec<u8>,
    value: Vec<u8>,
    base_ended: bool,
    /// The row of the log at which the cursor stands, if it stands at one.
    found: Option<(&'m [u8], &'m [u8])>,
    at: At,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Base,
    Above,
    End,
}

impl<'m> Merged<'m> {
    pub fn new(base: &'m dyn Stored, above: &'m Above, meter: &'m Meter) -> Merged<'m> {
        Merged { base, above, meter }
    }

    pub fn get(&self, row: &[u8]) -> Result<Option<Vec<u8>>, BaseError> {
        match self.above.rows.get(row) {
            Some(value) => Ok(value.clone()),
            None => Ok(self.base.row(row)?.map(|value| value.to_vec())),
        }
    }

    /// Returns the rows with `from <= key < until`.
    pub fn rows(&self, from: &[u8], until: &[u8]) -> Result<Rows<'_>, BaseError> {
        self.rows_beside(from, until, &[])
    }

    /// Returns all rows of a family. `families` are those that are read beside it.
    pub fn family(&self, family: Family, families: &'static [Family]) -> Result<Rows<'_>, BaseError> {
        self.rows_beside(&[family as u8], &[family as u8 + 1], families)
    }

    fn rows_beside(&self, from: &[u8], until: &[u8], families: &'static [Family]) -> Result<Rows<'_>, BaseError> {
        let range = RowKey::from_slice(from)..RowKey::from_slice(until);
        let mut rows = Rows {
            view: self,
            families,
            base: self.base.rows(from, until)?,
            above: self.above.rows.range(range).peekable(),
            key: Vec::new(),
            value: Vec::new(),
            base_ended: false,
            found: None,
            at: At::Base,
        };
        rows.step_base()?;
        rows.settle()?;
        Ok(rows)
    }

    /// Notes that all rows of these families have been read.
    pub fn on_end_of(&self, families: &[Family]) {
        self.meter.on_end_of(families, self.base);
    }
}

impl Rows<'_> {
    /// Returns the current row; None behind the last one.
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        match self.at {
            At::Base => Some((&self.key, &self.value)),
            At::Above => self.found,
            At::End => None,
        }
    }

    pub fn advance(&mut self) -> Result<(), BaseError> {
        if let Some((row, value)) = self.row() {
            self.view.meter.on_row(row, value, self.view.base, self.families);
        }
        match self.at {
            At::Base => self.step_base()?,
            At::Above => drop(self.above.next()),
            At::End => {}
        }
        self.settle()
    }

    fn step_base(&mut self) -> Result<(), BaseError> {
        if self.base_ended {
            return Ok(());
        }
        match self.base.step()? {
            Step::Row { key, value } => {
                self.key.clear();
                self.key.extend_from_slice(key);
                self.value.clear();
                self.value.extend_from_slice(value);
            }
            Step::End => self.base_ended = true,
            Step::WouldBlock => return Err(BaseError::Failed("a read of the disk would block".into())),
        }
        Ok(())
    }

    /// Finds the next row that stands: a row above hides the one below, a tombstone too.
    fn settle(&mut self) -> Result<(), BaseError> {
        loop {
            let Some(&(row, value)) = self.above.peek() else {
                self.at = if self.base_ended { At::End } else { At::Base };
                return Ok(());
            };
            if !self.base_ended && self.key[..] < row[..] {
                self.at = At::Base;
                return Ok(());
            }
            if !self.base_ended && self.key[..] == row[..] {
                self.step_base()?;
            }
            if let Some(value) = value {
                self.at = At::Above;
                self.found = Some((row, value));
                return Ok(());
            }
            self.above.next();
        }
    }
}
