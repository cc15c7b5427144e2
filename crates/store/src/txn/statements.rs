//! Statements: what a transaction does, in words of its caller's, in the record beside the effects. They change
//! nothing; whoever reads the log can hand them to a server that knows no rows.
//!
//! A store states while somebody wants to hear it (`Store::begin_to_state`). The words are the caller's business; a
//! transaction keeps them in order, takes them back with a rollback, and says what words alone do not: which keys it
//! has found expired. A reader that goes by statements has these keys still, because their deadlines are told, not
//! acted on.

use super::Txn;
use super::own::OverlayMark;
use crate::databases::is_database_row;
use crate::row::{Family, Key};
use crate::store::Store;
use std::sync::atomic::Ordering;

/// Bytes of the statements of a record at most. A transaction that does more says that it says nothing.
pub const STATEMENTS_BYTES_MAX: usize = 256 << 20;

/// The text of the statement that a record, or what is behind it, does something of which nothing is said: who goes by
/// statements needs all data.
pub const UNSAID: &[u8] = b"";

/// The first byte of a note: a statement that is none, for those who read the log themselves. A note of this byte alone
/// says that there is nothing to say of what a command has done.
pub const NOTE: u8 = b'#';

/// Bytes of the notes of a record at most, so that they neither take long nor crowd out what is said.
pub const NOTES_BYTES_MAX: usize = 1 << 20;

/// A key that was found expired, or a field of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstated {
    pub database: u32,
    pub name: Box<[u8]>,
    pub field: Option<Box<[u8]>>,
}

/// The state of a transaction before a command.
#[derive(Clone, Debug)]
pub struct Before(OverlayMark);

/// The reasons why records say what they do.
const TOLD: u8 = 1;
const READ: u8 = 2;

/// Whether the statements note what there was before, too.
const BEFORE: u8 = 4;

/// The store follows, and its own records are going to say what they do.
const TOLD_WHEN_LEADING: u8 = 8;

/// Returns whether commands see a change of this row: a record that has one says what it does, if it says anything.
pub fn is_stated(row: &[u8]) -> bool {
    Family::of(row) == Some(Family::Meta) || is_database_row(row)
}

impl Store {
    /// Has each record from here on say what it does, for servers that are told so; of a store that follows, each
    /// record of its own, as soon as it leads. The caller sees to it that nothing runs.
    pub fn begin_to_state(&self) {
        let reason = if self.follows() { TOLD_WHEN_LEADING } else { TOLD };
        self.states.fetch_or(reason, Ordering::AcqRel);
    }

    /// Ends that.
    pub fn end_to_state(&self) {
        self.states.fetch_and(!(TOLD | TOLD_WHEN_LEADING), Ordering::AcqRel);
    }

    /// Has the records of a store that begins to lead say what they do, if that was asked for while it followed.
    pub(crate) fn state_as_leader(&self) {
        if self.states.fetch_and(!TOLD_WHEN_LEADING, Ordering::AcqRel) & TOLD_WHEN_LEADING != 0 {
            self.states.fetch_or(TOLD, Ordering::AcqRel);
        }
    }

    /// Returns whether servers are told what records do, or are going to be told as soon as the store leads.
    pub fn is_to_be_told(&self) -> bool {
        self.states.load(Ordering::Relaxed) & (TOLD | TOLD_WHEN_LEADING) != 0
    }

    /// Returns whether servers are told what records do.
    #[inline]
    pub fn is_told(&self) -> bool {
        self.states.load(Ordering::Relaxed) & TOLD != 0
    }

    /// Has each record from here on say what it does, or not, for those who read the log themselves. A run that has
    /// begun before this goes on as it was.
    pub fn state_for_readers(&self, on: bool) {
        match on {
            true => self.states.fetch_or(READ, Ordering::AcqRel),
            false => self.states.fetch_and(!READ, Ordering::AcqRel),
        };
    }

    /// Returns whether records say what they do for those who read the log themselves.
    pub fn states_for_readers(&self) -> bool {
        self.states.load(Ordering::Relaxed) & READ != 0
    }

    /// Returns whether records say what they do.
    #[inline]
    pub fn states(&self) -> bool {
        self.states.load(Ordering::Relaxed) & (TOLD | READ) != 0
    }

    /// Has statements come with notes of what there was before, or not any more.
    pub fn note_before(&self, on: bool) {
        match on {
            true => self.states.fetch_or(BEFORE, Ordering::AcqRel),
            false => self.states.fetch_and(!BEFORE, Ordering::AcqRel),
        };
    }

    /// Returns whether statements come with notes of what there was before.
    pub(super) fn notes_before(&self) -> bool {
        self.states.load(Ordering::Relaxed) & BEFORE != 0
    }
}

impl Txn<'_> {
    /// Returns whether the transaction's record says what it does.
    #[inline]
    pub fn states(&self) -> bool {
        self.states
    }

    /// Returns whether a note of what there is before a command is wanted; also of a run that only loads what it reads.
    #[inline]
    pub fn notes_before(&self) -> bool {
        self.notes_before
    }

    /// Returns how many more bytes of notes the record may have.
    pub fn note_room(&self) -> usize {
        NOTES_BYTES_MAX - self.noted_bytes
    }

    /// Notes that a note of so many bytes is made, within the room that there is.
    pub fn on_noted(&mut self, bytes: usize) {
        self.noted_bytes += bytes;
        debug_assert!(self.noted_bytes <= NOTES_BYTES_MAX);
    }

    /// Returns whether a statement of so many bytes finds room.
    pub fn may_state(&mut self, bytes: usize) -> bool {
        !self.is_unsaid && self.overlay.statements().len() + bytes <= STATEMENTS_BYTES_MAX
    }

    /// Begins a command.
    pub fn begin_statement(&mut self) -> Before {
        self.is_silent = false;
        Before(self.overlay.mark())
    }

    /// Adds a statement about a database, of so many bytes, which `add` adds to what is there.
    pub fn state_in(&mut self, database: u32, bytes: usize, add: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(self.states, "the caller asks whether somebody wants to hear it");
        let fits = self.may_state(bytes);
        match u32::try_from(bytes) {
            Ok(bytes) if fits => self.overlay.statements().statement_of(Some(database), bytes, add),
            _ => self.is_unsaid = true,
        }
    }

    /// Adds the statements to the record; or, where they have become too many, that there are none.
    pub(crate) fn add_statements(&mut self) {
        if self.is_unsaid {
            self.overlay.statements().clear();
            self.overlay.statements().statement(None, &[UNSAID]);
        }
        self.overlay.state();
    }

    /// Notes that there is more to say than a record may.
    pub fn state_too_much(&mut self) {
        self.is_unsaid = true;
    }

    /// Notes that the command has nothing to say of what it does.
    pub fn state_nothing(&mut self) {
        self.is_silent = true;
    }

    /// Returns whether the command has still to say what it has done.
    pub fn lacks_statement(&self, before: &Before) -> bool {
        let now = self.overlay.mark();
        !self.is_silent && before.0.has_written(&now) && before.0.statements() == now.statements()
    }

    /// Returns whether the command has said that it has nothing to say of what it has done.
    pub fn lacks_words(&self, before: &Before) -> bool {
        let now = self.overlay.mark();
        self.is_silent && before.0.has_written(&now) && before.0.statements() == now.statements()
    }

    /// Returns whether something was said since then.
    pub fn has_stated(&self, before: &Before) -> bool {
        before.0.statements() != self.overlay.mark().statements()
    }

    /// Returns whether keys were found expired that nothing was said of yet.
    pub fn has_unstated(&self) -> bool {
        !self.unstated.is_empty()
    }

    /// Returns the keys that were found expired before the command or by it, if the command has written or said
    /// something: they are to be stated before it, by `state_before`.
    pub fn take_unstated(&mut self, before: &Before) -> Vec<Unstated> {
        let now = self.overlay.mark();
        let is_due = before.0.has_written(&now) || before.0.statements() != now.statements();
        if is_due { std::mem::take(&mut self.unstated) } else { Vec::new() }
    }

    /// Adds statements before those of the command.
    pub fn state_before(&mut self, before: &Before, state: impl FnOnce(&mut Self)) {
        let from = before.0.statements();
        let own = self.overlay.statements().bytes()[from..].to_vec();
        self.overlay.statements().truncate(from);
        state(self);
        self.overlay.statements().extend(&own);
    }

    /// Notes that a key was found expired: to this transaction it is absent.
    #[inline]
    pub fn on_found_expired(&mut self, key: &Key<'_>) {
        if self.states {
            self.note_unstated(key, None);
        }
    }

    /// Notes that a field of a key was found expired, and is removed.
    #[inline]
    pub fn on_found_expired_field(&mut self, key: &Key<'_>, field: &[u8]) {
        self.on_expired_fields(1);
        if self.states {
            self.note_unstated(key, Some(field));
        }
    }

    #[cold]
    fn note_unstated(&mut self, key: &Key<'_>, field: Option<&[u8]>) {
        let selected = self.database();
        let is_there = |database: &u32| self.space(*database) == key.space;
        let Some(database) = std::iter::once(selected).chain(0..self.databases()).find(is_there) else { return };
        let found = Unstated { database, name: key.name.into(), field: field.map(Into::into) };
        // Of the fields of one hash there may be many, each found once.
        if found.field.is_some() || !self.unstated.contains(&found) {
            self.unstated.push(found);
        }
    }
}
