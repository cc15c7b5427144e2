//! The way of the writes into the log: the bodies that become records, and their writes, handed out to be applied.

use super::{Kind, Op, Overlay};
use crate::value::Value;
use hashbrown::HashTable;
use haypile_log::{Body, Effect};

/// More writes than so many are sealed before they take effect: their index takes as much memory as they do.
const SEALED_FROM: usize = 1 << 14;

impl Overlay {
    /// Puts the body `ahead` in front of `main`, for one record of all. A row that has writes in both was first written
    /// ahead.
    pub fn join(&mut self) {
        if self.ahead.is_empty() {
            return;
        }
        let shift = self.ahead.len() as u32;
        self.ahead.append(&self.main);
        std::mem::swap(&mut self.ahead, &mut self.main);
        self.ahead.clear();
        for own in self.own.iter_mut().filter(|own| !own.ahead) {
            (own.key, own.value, own.end) = (own.key + shift, own.value + shift, own.end + shift);
        }
        self.own.iter_mut().for_each(|own| own.ahead = false);
    }

    /// Returns the record's body, joined.
    pub fn body(&mut self) -> &mut Body {
        &mut self.main
    }

    pub fn body_bytes(&self) -> &[u8] {
        self.main.bytes()
    }

    pub fn statements(&mut self) -> &mut Body {
        &mut self.statements
    }

    /// Adds the statements to the record.
    pub fn state(&mut self) {
        self.main.append(&self.statements);
    }

    pub fn ahead_body(&self) -> &[u8] {
        self.ahead.bytes()
    }

    /// Returns whether some of the writes went to the log before the rest.
    pub fn was_written_ahead(&self) -> bool {
        self.spills > 0
    }

    /// Notes that the body `ahead` is in the log: hands out its writes as `take_writes` does, to be applied, and
    /// forgets them.
    pub fn on_written_ahead(&mut self, apply: impl FnMut(&[u8], Op, &[u8], Option<Value>)) {
        for at in 0..self.own.len() {
            // A change that stays has its row below in the memtable from now on, and perhaps soon in the base.
            if !self.own[at].ahead
                && self.own[at].kind == Kind::Change
                && let Some(earlier) = self.earlier(at).filter(|earlier| self.own[*earlier].ahead)
            {
                self.changes[self.own[at].change as usize].before = self.read(earlier);
            }
        }
        self.take_writes(true, apply);
        self.own.retain(|own| !own.ahead);
        self.ahead.clear();
        self.spills += 1;
        self.reindex();
    }

    /// Returns the keys of the writes ahead, or of the rest.
    pub fn keys_of(&self, ahead: bool) -> impl Iterator<Item = &[u8]> {
        self.own.iter().filter(move |own| own.ahead == ahead).map(|own| self.key_of(own))
    }

    /// Hands out the writes ahead, or the rest, in order: row, operation, value (a change's bytes), the row below a
    /// change, which is not kept.
    #[inline]
    pub fn take_writes(&mut self, ahead: bool, mut apply: impl FnMut(&[u8], Op, &[u8], Option<Value>)) {
        if self.is_sealed {
            return self.sealed().for_each(|(key, op, value)| apply(key, op, value, None));
        }
        let bytes = if ahead { self.ahead.bytes() } else { self.main.bytes() };
        for own in self.own.iter().filter(|own| own.ahead == ahead) {
            let (key, value) = (&bytes[own.key()], &bytes[own.value()]);
            match own.kind {
                Kind::Put => apply(key, Op::Put, value, None),
                Kind::Delete => apply(key, Op::Delete, value, None),
                Kind::Change => {
                    let changed = &mut self.changes[own.change as usize];
                    changed.after = None;
                    apply(key, changed.op, value, changed.before.take());
                }
            }
        }
    }

    /// Gives the index of very many writes back, whose record is made: nothing reads them any more, and they lie in
    /// the record's body in their order. Changes of rows stay, because what lies below them is known here alone.
    pub fn seal(&mut self) {
        if self.own.len() < SEALED_FROM || !self.changes.is_empty() {
            return;
        }
        assert!(self.ahead.is_empty(), "a record has one body");
        (self.own, self.last, self.is_sealed) = (Vec::new(), HashTable::new(), true);
    }

    /// Returns the sealed writes, in their order: the key, the kind, and the value of a row that is put.
    fn sealed(&self) -> impl Iterator<Item = (&[u8], Op, &[u8])> {
        let body = if self.is_sealed { self.main.bytes() } else { &[] };
        haypile_log::effects(body).filter_map(|effect| match effect.expect("a body of our own parses") {
            Effect::Put { key, value } => Some((key, Op::Put, value)),
            Effect::Delete { key } => Some((key, Op::Delete, &[][..])),
            Effect::Patch { .. } | Effect::Splice { .. } => unreachable!("changes are not sealed"),
            Effect::Count { .. } | Effect::Touch { .. } | Effect::Statement { .. } => None,
        })
    }

    /// Returns the keys of the writes that are sealed.
    pub fn sealed_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.sealed().map(|(key, ..)| key)
    }
}
