//! The rows as the transaction has written them: a transaction reads them in the place of the committed ones.

use super::{Changed, Kind, Op, Overlay};
use crate::value::Value;
use std::borrow::Cow;

impl Overlay {
    /// Returns the row after the write at `at`.
    pub fn read(&self, at: usize) -> Option<Value> {
        let own = &self.own[at];
        match self.changed(own) {
            None if own.kind == Kind::Delete => None,
            None => Some(Value::from(self.value_of(own))),
            Some(Changed { after: Some(after), .. }) => Some(after.clone()),
            Some(_) => Some(Value::from(self.replayed(at))),
        }
    }

    /// Returns the row after the write at `at`, where it lies if possible.
    pub fn look(&self, at: usize) -> Option<Cow<'_, [u8]>> {
        let own = &self.own[at];
        match self.changed(own) {
            None if own.kind == Kind::Delete => None,
            None => Some(Cow::Borrowed(self.value_of(own))),
            Some(Changed { after: Some(after), .. }) => Some(Cow::Borrowed(after)),
            Some(_) => Some(Cow::Owned(self.replayed(at))),
        }
    }

    /// Returns whether the row exists after the write at `at`.
    pub fn is_there(&self, at: usize) -> bool {
        self.own[at].kind != Kind::Delete
    }

    /// Returns how long the row is after the write at `at`; a missing one is empty.
    pub fn len_at(&self, at: usize) -> usize {
        let own = &self.own[at];
        match self.changed(own).map(|changed| changed.op) {
            Some(Op::Patch { len_after, .. } | Op::Splice { len_after, .. }) => len_after as usize,
            _ => self.value_of(own).len(),
        }
    }

    /// Returns the row after the change at `at`, from the last write before it that is known whole.
    fn replayed(&self, at: usize) -> Vec<u8> {
        let mut changes = vec![at];
        let mut first = at;
        let mut row = loop {
            let Some(earlier) = self.earlier(first) else {
                let below = self.changed(&self.own[first]).and_then(|changed| changed.before.as_deref());
                break below.unwrap_or_default().to_vec();
            };
            let own = &self.own[earlier];
            match self.changed(own) {
                // The value of a delete is empty.
                None => break self.value_of(own).to_vec(),
                Some(Changed { after: Some(after), .. }) => break after.to_vec(),
                Some(_) => {
                    changes.push(earlier);
                    first = earlier;
                }
            }
        };
        for &at in changes.iter().rev() {
            let own = &self.own[at];
            if let Some(change) = self.changed(own).and_then(|changed| changed.op.change(self.value_of(own))) {
                change.apply_to(&mut row);
            }
        }
        row
    }

    /// Returns the keys of all writes.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.own.iter().map(|own| self.key_of(own))
    }

    /// Returns the key of the write at `at`.
    pub fn key_at(&self, at: usize) -> &[u8] {
        self.key_of(&self.own[at])
    }

    /// Returns the last writes of the rows in `from <= key < until`, ascending.
    pub fn last_in(&self, from: &[u8], until: &[u8]) -> Vec<usize> {
        let is_in = |at: &usize| (from..until).contains(&self.key_at(*at));
        let mut writes: Vec<usize> = (0..self.own.len()).filter(is_in).collect();
        // The writes of one row are ordered with the last one first.
        writes.sort_unstable_by(|a, b| self.key_at(*a).cmp(self.key_at(*b)).then(b.cmp(a)));
        writes.dedup_by(|later, kept| self.key_at(*later) == self.key_at(*kept));
        writes
    }

    /// Returns the last state of every row that was written.
    pub fn last(&self) -> impl Iterator<Item = (&[u8], Option<Cow<'_, [u8]>>)> {
        let is_last = |at: &usize| self.find(self.own[*at].print, |row| row == self.key_at(*at)) == Some(*at);
        (0..self.own.len()).filter(is_last).map(|at| (self.key_at(at), self.look(at)))
    }

    /// Returns the last state of every row in `from <= key < until` that was written.
    pub fn range(&self, from: &[u8], until: &[u8]) -> std::collections::BTreeMap<Vec<u8>, Option<Value>> {
        let mut last = std::collections::BTreeMap::new();
        for (at, own) in self.own.iter().enumerate() {
            let row = self.key_of(own);
            if from <= row && row < until {
                last.insert(row.to_vec(), at);
            }
        }
        last.into_iter().map(|(row, at)| (row, self.read(at))).collect()
    }
}
