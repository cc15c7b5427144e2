//! A transaction's own writes: the body of its log record as it grows, and an index into it, so that the transaction
//! reads its writes and nothing is encoded twice.
//!
//! Two bodies: `main`, and `ahead` for rows of objects that the transaction itself made, which may go to the log before
//! the rest because no key names them yet. Invariant: a row's writes go ahead first and never again once one of them is
//! in `main`, so that they stay in order.

use crate::memtable::{Change, Patch, Splice};
use crate::row::Key;
use crate::value::Value;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use haypile_log::{Body, Effect, Placed};
use std::borrow::Cow;

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Put,
    Delete,
    Patch { offset: u32, len_after: u32 },
    Splice { offset: u32, removed: u32, len_after: u32 },
}

impl Op {
    /// Returns the change with these bytes; `None` if the row was written as a whole.
    #[inline]
    pub fn change(self, bytes: &[u8]) -> Option<Change<'_>> {
        match self {
            Op::Put | Op::Delete => None,
            Op::Patch { offset, len_after } => Some(Change::Patch(Patch { offset, bytes, len_after })),
            Op::Splice { offset, removed, len_after } => {
                Some(Change::Splice(Splice { offset, removed, bytes, len_after }))
            }
        }
    }

    pub fn is_change(self) -> bool {
        matches!(self, Op::Patch { .. } | Op::Splice { .. })
    }
}

/// One write. A block or a command may have a million, so that each byte counts.
struct Own {
    print: u64,
    /// Where the row's key begins in its body, where the value follows on it, and where that ends.
    key: u32,
    value: u32,
    end: u32,
    /// The transaction's previous write of a row with the same print, or `NONE`.
    previous: u32,
    /// The place in `Overlay::changes`, of a change.
    change: u32,
    kind: Kind,
    ahead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Put,
    Delete,
    Change,
}

/// The rest of a write that changes a part of its row.
struct Changed {
    op: Op,
    /// The row below the change, where the transaction had not written it before.
    before: Option<Value>,
    /// The row after the change, where it is known already. Only the newest change of a row keeps it.
    after: Option<Value>,
}

/// The place of no write.
const NONE: u32 = u32::MAX;

impl Own {
    fn new(print: u64, placed: &Placed, kind: Kind, ahead: bool) -> Own {
        debug_assert_eq!(placed.key.end, placed.value.start, "a value follows on its key");
        let (key, value, end) = (placed.key.start, placed.value.start, placed.value.end);
        Own { print, key, value, end, previous: NONE, change: NONE, kind, ahead }
    }

    fn key(&self) -> std::ops::Range<usize> {
        self.key as usize..self.value as usize
    }

    fn value(&self) -> std::ops::Range<usize> {
        self.value as usize..self.end as usize
    }
}

/// The writes in their order.
#[derive(Default)]
pub struct Overlay {
    main: Body,
    ahead: Body,
    /// The words of the record beside its writes.
    statements: Body,
    own: Vec<Own>,
    /// In the order of their writes.
    changes: Vec<Changed>,
    /// The last write of each print, once there are too many writes to look at each.
    last: HashTable<u32>,
    /// The number of times that `ahead` was written out.
    spills: u32,
    /// The writes are known by `main` alone: `own` and `last` are given back.
    is_sealed: bool,
}

/// Returns the hash of a print, which is a hash already, but not in all of its bits.
#[inline]
fn spread(print: u64) -> u64 {
    let mixed = print.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// Notes the write at `at` as the last one of its print, and the one before as its previous one.
#[inline]
fn note_last(last: &mut HashTable<u32>, own: &mut [Own], at: usize) {
    let print = own[at].print;
    let is_same = |other: &u32| own[*other as usize].print == print;
    let previous = match last.entry(spread(print), is_same, |other| spread(own[*other as usize].print)) {
        Entry::Occupied(mut entry) => std::mem::replace(entry.get_mut(), at as u32),
        Entry::Vacant(entry) => {
            entry.insert(at as u32);
            NONE
        }
    };
    own[at].previous = previous;
}

/// The state of an overlay, to go back to.
#[derive(Clone, Debug)]
pub struct OverlayMark {
    main: usize,
    ahead: usize,
    statements: usize,
    spills: u32,
}

impl OverlayMark {
    /// Returns whether rows were written between this state and a later one.
    pub fn has_written(&self, later: &OverlayMark) -> bool {
        (self.main, self.ahead, self.spills) != (later.main, later.ahead, later.spills)
    }

    /// Returns the length of the statements.
    pub fn statements(&self) -> usize {
        self.statements
    }
}

/// The most writes that are searched one by one.
const LINEAR: usize = 16;

/// More writes than so many are sealed before they take effect: their index takes as much memory as they do.
const SEALED_FROM: usize = 1 << 14;

/// The memory of an unusually large transaction that the next one keeps.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Returns a hash of a key's meta row.
#[inline]
pub fn print_of_key(key: &Key<'_>) -> u64 {
    (u64::from(key.hash) << 32) | (u64::from(key.space.0) << 16) ^ u64::from(key.slot.0)
}

/// Returns a hash of any other row.
pub fn print_of_row(row: &[u8]) -> u64 {
    match crate::row::parse_meta_row(row) {
        Some(key) => print_of_key(&key),
        None => xxhash_rust::xxh3::xxh3_64(row),
    }
}

impl Overlay {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && !self.is_sealed
    }

    /// Returns how many writes there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.own.len()
    }

    pub fn main_bytes(&self) -> usize {
        self.main.len()
    }

    pub fn ahead_bytes(&self) -> usize {
        self.ahead.len()
    }

    /// Makes room for the first writes, so many of rows that have so many bytes together: a list of a million does not
    /// grow to twice its size.
    pub fn reserve_first(&mut self, writes: usize, bytes: usize) {
        if self.own.is_empty() {
            self.own.reserve_exact(writes);
            self.last.clear();
            self.last.reserve(writes, |_| unreachable!("there is none"));
            self.main.reserve_exact(bytes);
        }
    }

    #[inline]
    pub fn put(&mut self, print: u64, key: &[&[u8]], value: &[&[u8]], ahead: bool) {
        let body = if ahead { &mut self.ahead } else { &mut self.main };
        let placed = body.put(key, value);
        self.push(Own::new(print, &placed, Kind::Put, ahead));
    }

    pub fn delete(&mut self, print: u64, key: &[&[u8]], ahead: bool) {
        let body = if ahead { &mut self.ahead } else { &mut self.main };
        let placed = body.delete(key);
        self.push(Own::new(print, &placed, Kind::Delete, ahead));
    }

    /// Adds a change of a row. `before` is the row below, for the first write of it; `earlier` the last write of the
    /// row, if any.
    pub fn change(
        &mut self,
        print: u64,
        key: &[u8],
        change: Change<'_>,
        before: Option<Value>,
        earlier: Option<usize>,
        ahead: bool,
    ) {
        // Where small changes follow one another, the row after the last one is kept: reading the row costs nothing
        // then.
        let after = earlier.filter(|at| self.own[*at].kind == Kind::Change).and_then(|at| {
            let row = self.changes[self.own[at].change as usize].after.take().or_else(|| self.read(at));
            row.map(|row| row.changed(change))
        });
        let body = if ahead { &mut self.ahead } else { &mut self.main };
        let (placed, op) = match change {
            Change::Patch(Patch { offset, bytes, len_after }) => {
                (body.patch(&[key], offset, bytes, len_after), Op::Patch { offset, len_after })
            }
            Change::Splice(Splice { offset, removed, bytes, len_after }) => {
                (body.splice(&[key], offset, removed, bytes, len_after), Op::Splice { offset, removed, len_after })
            }
        };
        let number = self.changes.len() as u32;
        self.changes.push(Changed { op, before, after });
        self.push(Own { change: number, ..Own::new(print, &placed, Kind::Change, ahead) });
    }

    #[inline]
    fn push(&mut self, own: Own) {
        debug_assert!(
            !own.ahead || self.find(own.print, |row| row == self.key_of(&own)).is_none_or(|at| self.own[at].ahead),
            "a row's writes go ahead first, and none behind one that does not"
        );
        let at = self.own.len();
        self.own.push(own);
        if at >= LINEAR {
            self.index(at);
        }
    }

    /// Adds the newest write, at `at`, to the index, which is begun with the first ones.
    fn index(&mut self, at: usize) {
        let from = if at == LINEAR { 0 } else { at };
        if from == 0 {
            self.last.clear();
        }
        (from..=at).for_each(|at| note_last(&mut self.last, &mut self.own, at));
    }

    fn body_of(&self, own: &Own) -> &[u8] {
        if own.ahead { self.ahead.bytes() } else { self.main.bytes() }
    }

    fn key_of(&self, own: &Own) -> &[u8] {
        &self.body_of(own)[own.key()]
    }

    fn value_of(&self, own: &Own) -> &[u8] {
        &self.body_of(own)[own.value()]
    }

    /// Returns the rest of a write that is a change.
    fn changed(&self, own: &Own) -> Option<&Changed> {
        (own.kind == Kind::Change).then(|| &self.changes[own.change as usize])
    }

    /// Returns the last write of a key's meta row.
    #[inline]
    pub fn find_key(&self, key: &Key<'_>) -> Option<usize> {
        let prefix = crate::row::meta_prefix(key);
        self.find(print_of_key(key), |row| {
            row.len() == prefix.len() + key.name.len() && row.starts_with(&prefix) && row.ends_with(key.name)
        })
    }

    /// Returns the last write of any row.
    pub fn find_row(&self, row: &[u8]) -> Option<usize> {
        if self.own.is_empty() {
            return None;
        }
        self.find(print_of_row(row), |other| other == row)
    }

    fn find(&self, print: u64, same: impl Fn(&[u8]) -> bool) -> Option<usize> {
        if self.own.len() <= LINEAR {
            return self.own.iter().rposition(|own| own.print == print && same(self.key_of(own)));
        }
        let last = self.last.find(spread(print), |at| self.own[*at as usize].print == print);
        self.find_from(last.copied().unwrap_or(NONE), same)
    }

    /// Returns the last write of a row among the one at `at` and those before it of the same print.
    fn find_from(&self, mut at: u32, same: impl Fn(&[u8]) -> bool) -> Option<usize> {
        while at != NONE {
            let own = &self.own[at as usize];
            if same(self.key_of(own)) {
                return Some(at as usize);
            }
            at = own.previous;
        }
        None
    }

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

    /// Returns the row's write before the one at `at`.
    fn earlier(&self, at: usize) -> Option<usize> {
        let row = self.key_of(&self.own[at]);
        if self.own.len() <= LINEAR {
            return self.own[..at].iter().rposition(|own| own.print == self.own[at].print && self.key_of(own) == row);
        }
        self.find_from(self.own[at].previous, |other| other == row)
    }

    /// Returns the keys of all writes.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.own.iter().map(|own| self.key_of(own))
    }

    /// Returns the key of the write at `at`.
    pub fn key_at(&self, at: usize) -> &[u8] {
        self.key_of(&self.own[at])
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

    /// Returns whether some of the writes went to the log before the rest.
    pub fn was_written_ahead(&self) -> bool {
        self.spills > 0
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

    pub fn mark(&self) -> OverlayMark {
        let [main, ahead, statements] = [&self.main, &self.ahead, &self.statements].map(Body::len);
        OverlayMark { main, ahead, statements, spills: self.spills }
    }

    pub fn rollback(&mut self, to: OverlayMark) {
        // Rows that were written ahead since are garbage without an owner; the ones that still wait here go too.
        let ahead_len = if to.spills == self.spills { to.ahead } else { 0 };
        self.main.truncate(to.main);
        self.ahead.truncate(ahead_len);
        self.statements.truncate(to.statements);
        let writes = self.own.len();
        self.own.retain(|own| (own.key as usize) < if own.ahead { ahead_len } else { to.main });
        if self.own.len() < writes {
            self.reindex();
        }
    }

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

    /// Makes the index anew, and forgets the changes of writes that are gone.
    fn reindex(&mut self) {
        self.last.clear();
        let is_indexed = self.own.len() > LINEAR;
        let mut changes = 0;
        for at in 0..self.own.len() {
            self.own[at].previous = NONE;
            if is_indexed {
                note_last(&mut self.last, &mut self.own, at);
            }
            if self.own[at].kind == Kind::Change {
                self.changes.swap(changes, self.own[at].change as usize);
                self.own[at].change = changes as u32;
                changes += 1;
            }
        }
        self.changes.truncate(changes);
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

    pub fn clear(&mut self) {
        self.is_sealed = false;
        self.main.clear();
        self.statements.clear();
        self.statements.shrink_to(KEPT_BYTES_MAX);
        self.own.clear();
        self.changes.clear();
        self.spills = 0;
        if !self.ahead.is_empty()
            || !self.last.is_empty()
            || self.main.capacity().max(self.ahead.capacity()) > KEPT_BYTES_MAX
        {
            self.ahead.clear();
            self.last.clear();
            self.main.shrink_to(KEPT_BYTES_MAX);
            self.ahead.shrink_to(KEPT_BYTES_MAX);
            self.own.shrink_to(KEPT_BYTES_MAX / size_of::<Own>());
            self.changes.shrink_to(KEPT_BYTES_MAX / size_of::<Changed>());
            self.last.shrink_to(KEPT_BYTES_MAX / size_of::<u32>(), |_| unreachable!("there is none"));
        }
    }
}
