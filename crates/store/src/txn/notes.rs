//! Notes that a transaction takes for others while it runs: events about keys, keys that came to be, results of
//! lookups, deadlines that had passed. Notes have no effect by themselves; the engine acts on them when the transaction
//! has committed.

use super::{KeyEvent, Lapsed, Lookups, Ready, Txn};
use crate::row::Key;

impl Txn<'_> {
    /// Sets the classes of events that are noted.
    #[inline]
    pub fn note_events(&mut self, classes: u32) {
        self.event_classes = classes;
    }

    /// Notes an event of a key.
    #[inline]
    pub fn on_event(&mut self, class: u32, name: &'static str, key: &Key<'_>) {
        if self.event_classes & class != 0 {
            self.note_event(class, name, key);
        }
    }

    #[cold]
    fn note_event(&mut self, class: u32, name: &'static str, key: &Key<'_>) {
        if let Some(database) = self.database_of(key) {
            self.events.push(KeyEvent { class, name, database, key: key.name.into() });
        }
    }

    fn database_of(&self, key: &Key<'_>) -> Option<u32> {
        let is_there = |database: &u32| self.space(*database) == key.space;
        // The database is nearly always the selected one.
        Some(self.call.database).filter(is_there).or_else(|| (0..self.databases()).find(is_there))
    }

    /// Sets that keys are noted which clients may wait for.
    #[inline]
    pub fn note_ready(&mut self) {
        self.notes_ready = true;
    }

    /// Notes that a key has come to be that clients may wait for, or that one has arrived in place of another value.
    #[inline]
    pub fn on_ready(&mut self, key: &Key<'_>) {
        if self.notes_ready
            && let Some(database) = self.database_of(key)
        {
            self.ready.push(Ready { database, name: key.name.into() });
        }
    }

    /// Returns the keys that have come to be so far, in order.
    #[inline]
    pub fn ready(&self) -> &[Ready] {
        &self.ready
    }

    /// Returns the events so far, in order.
    #[inline]
    pub fn events(&self) -> &[KeyEvent] {
        &self.events
    }

    /// Notes that a key was looked up to read its value.
    #[inline]
    pub fn on_lookup(&mut self, found: bool) {
        self.lookups.hits += u64::from(found);
        self.lookups.misses += u64::from(!found);
    }

    pub fn lookups(&self) -> Lookups {
        self.lookups
    }

    /// Notes that a key was removed, or is about to be overwritten, because its deadline had passed.
    pub fn on_expired(&mut self) {
        self.expired += 1;
    }

    /// Returns how many keys were removed because their deadlines had passed.
    #[inline]
    pub fn expired(&self) -> u32 {
        self.expired
    }

    /// Notes that fields were removed because their deadlines had passed.
    #[inline]
    pub fn on_expired_fields(&mut self, fields: u64) {
        self.expired_fields += fields;
    }

    /// Returns how many fields were removed because their deadlines had passed.
    #[inline]
    pub fn expired_fields(&self) -> u64 {
        self.expired_fields
    }

    /// Notes that a key was removed because its deadline had passed.
    pub fn on_lapsed(&mut self, key: &Key<'_>, deadline_ms: u64) {
        self.lapsed.push(Lapsed { space: key.space, name: key.name.into(), deadline_ms });
    }

    /// Returns the deadline of a key that the transaction removed for no other reason, in milliseconds since 1970.
    pub fn lapsed(&self, key: &Key<'_>) -> Option<u64> {
        let lapsed = self.lapsed.iter().find(|lapsed| (lapsed.space, &*lapsed.name) == (key.space, key.name));
        lapsed.map(|lapsed| lapsed.deadline_ms)
    }
}
