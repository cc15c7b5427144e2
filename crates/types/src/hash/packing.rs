//! A packed hash whose entries are changed, and written when all is done: packed again, or moved into rows.

use super::field::{Deadlines, Fields, HAS_DEADLINES, NO_DEADLINE};
use super::find;
use super::rows::Rows;
use crate::Result;
use crate::event;
use crate::key::{self, FieldTimes, Header, Tag};
use crate::packed::{self, Packed, put_string};
use haypile_store::{Key, Txn};

/// The deadline of a field after its value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    Keep,
    /// A new deadline, or none.
    Is(Option<u64>),
}

impl Deadline {
    /// Returns the deadline after the change, of a field that had `before`.
    pub fn after(self, before: Option<u64>) -> Option<u64> {
        match self {
            Deadline::Keep => before,
            Deadline::Is(deadline) => deadline,
        }
    }
}

pub struct Packing {
    before: Option<Header>,
    pub encoding: u8,
    pub count: usize,
    pub entries: Vec<u8>,
}

impl Packing {
    /// Returns a hash that does not exist yet.
    pub fn empty(encoding: u8) -> Packing {
        Packing { before: None, encoding, count: 0, entries: Vec::new() }
    }

    /// Opens a packed hash. Fields whose deadlines have passed are left out, and so are not written again.
    pub fn of(txn: &mut Txn<'_>, key: &Key<'_>, header: &Header, packed: &Packed<'_>) -> Result<Packing> {
        let mut packing = Packing {
            before: Some(*header),
            encoding: packed.encoding,
            count: packed.count.into(),
            entries: packed.entries.to_vec(),
        };
        if header.fields.is_some_and(|fields| txn.expiry_ms() > fields.first_ms) && packing.reclaim(txn, key)? > 0 {
            txn.on_event(event::HASH, "hexpired", key);
        }
        Ok(packing)
    }

    /// Takes out the fields whose deadlines have passed; returns how many.
    fn reclaim(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<u64> {
        let (now_ms, mut gone) = (txn.expiry_ms(), Vec::new());
        {
            let mut fields = Fields::of(&self.as_packed());
            while let Some(field) = fields.next()? {
                if !field.stored.is_live(now_ms) {
                    txn.on_found_expired_field(key, field.name);
                    gone.push(field.place.entry);
                }
            }
        }
        let reclaimed = gone.len();
        for entry in gone.into_iter().rev() {
            self.entries.drain(entry);
        }
        self.count -= reclaimed;
        Ok(reclaimed as u64)
    }

    pub fn as_packed(&self) -> Packed<'_> {
        // The count fits: it is at most one above the bound of a packed hash.
        Packed { encoding: self.encoding, count: self.count as u16, entries: &self.entries }
    }

    fn has_deadlines(&self) -> bool {
        self.encoding & HAS_DEADLINES != 0
    }

    /// Gives every entry room for a deadline.
    fn make_room_for_deadlines(&mut self) -> Result<()> {
        let mut entries = Vec::with_capacity(self.entries.len() + 8 * self.count);
        let mut fields = Fields::of(&self.as_packed());
        while let Some(field) = fields.next()? {
            entries.extend_from_slice(&self.entries[field.place.entry]);
            entries.extend_from_slice(&NO_DEADLINE.to_be_bytes());
        }
        self.entries = entries;
        self.encoding |= HAS_DEADLINES;
        Ok(())
    }

    pub fn fits(&self) -> bool {
        packed::fits(self.entries.len(), self.count)
    }

    /// Sets one field; returns whether it is new.
    pub fn set(&mut self, name: &[u8], value: &[u8], deadline: Deadline) -> Result<bool> {
        let mut place = find(&self.as_packed(), name)?;
        let deadline_ms = deadline.after(place.as_ref().and_then(|place| place.deadline_ms));
        debug_assert!(deadline_ms != Some(NO_DEADLINE), "Invariant: a deadline of 0 is none");
        if deadline_ms.is_some() && !self.has_deadlines() {
            self.make_room_for_deadlines()?;
            place = find(&self.as_packed(), name)?;
        }
        let mut new = Vec::with_capacity(value.len() + 16);
        if place.is_none() {
            put_string(&mut new, name);
        }
        put_string(&mut new, value);
        if self.has_deadlines() {
            new.extend_from_slice(&deadline_ms.unwrap_or(NO_DEADLINE).to_be_bytes());
        }
        match place {
            Some(place) => {
                self.entries.splice(place.value_length..place.entry.end, new);
                Ok(false)
            }
            None => {
                self.entries.extend_from_slice(&new);
                self.count += 1;
                Ok(true)
            }
        }
    }

    /// Gives a field another deadline.
    pub fn set_deadline(&mut self, name: &[u8], deadline_ms: Option<u64>) -> Result<()> {
        if !self.has_deadlines() {
            self.make_room_for_deadlines()?;
        }
        if let Some(place) = find(&self.as_packed(), name)? {
            let bytes = deadline_ms.unwrap_or(NO_DEADLINE).to_be_bytes();
            self.entries[place.entry.end - 8..place.entry.end].copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Removes a field; returns whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> Result<bool> {
        let Some(place) = find(&self.as_packed(), name)? else { return Ok(false) };
        self.entries.drain(place.entry);
        self.count -= 1;
        Ok(true)
    }

    fn times(&self) -> Result<Option<FieldTimes>> {
        let mut deadlines = Deadlines::default();
        let mut fields = Fields::of(&self.as_packed());
        while let Some(field) = fields.next()? {
            deadlines.add(field.stored.deadline_ms);
        }
        Ok(deadlines.times())
    }

    pub fn deadline_ms(&self) -> Option<u64> {
        self.before.and_then(|before| before.deadline_ms)
    }

    /// Writes the hash; one without fields is removed.
    pub fn finish(self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        if self.count == 0 {
            return match &self.before {
                Some(before) => key::remove(txn, key, before),
                None => Ok(()),
            };
        }
        if !self.fits() {
            return self.into_rows(txn, key)?.finish(txn, key);
        }
        let fields = if self.has_deadlines() { self.times()? } else { None };
        let header = Header { tag: Tag::HashPacked, deadline_ms: self.deadline_ms(), fields, object: None };
        let encoding = super::change::encoding_of_count(txn, self.encoding, self.count as u64);
        let head = Packed { encoding, ..self.as_packed() }.head();
        key::write(txn, key, self.before.as_ref(), &header, &[&head, &self.entries])
    }

    /// Writes the fields as rows of a new object, which nothing names yet.
    pub fn into_rows(self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Rows> {
        let mut rows = Rows::new(txn, key, self.before, self.encoding)?;
        let mut fields = Fields::of(&self.as_packed());
        while let Some(field) = fields.next()? {
            rows.insert(txn, key, field.name, field.stored)?;
        }
        debug_assert_eq!(rows.head.count, self.count as u64, "Invariant: a hash has as many rows as fields");
        Ok(rows)
    }
}
