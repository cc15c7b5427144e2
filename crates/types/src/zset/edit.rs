//! Changes of sorted sets: members that come, move and go. Owns the rows of a member and when a set leaves its meta
//! row; a change takes effect when it is finished, which writes the meta row.

use super::{Form, Large, Maker, Range, Stretch, Zset, encoding_with, kept, next_element, place_of, score_in, sign_of};
use crate::element::{self, Head, lowered};
use crate::key::{self, Header, Object, Tag, damaged};
use crate::packed::{self, Packed, put_string, string_bytes};
use crate::ranks::{Change, Ranks, WALK_MAX, is_few};
use crate::value::encoding::ZSET_LISTPACK;
use crate::{Error, Result, score};
use haypile_store::row::Family;
use haypile_store::{Direction, Key, Txn};
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// ZADD's conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adding {
    /// Adds new members, and changes none.
    pub new_only: bool,
    /// Changes members that exist, and adds none.
    pub old_only: bool,
    /// Changes existing members only if their score becomes higher, or lower.
    pub greater: bool,
    pub less: bool,
    /// Adds the score to the old one.
    pub increment: bool,
}

/// The outcome for one member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Added {
    /// The conditions do not hold.
    Refused,
    New(f64),
    Moved(f64),
    /// The member had this score already.
    Same(f64),
}

/// A change under way.
pub struct Edit {
    /// The header before the change; `None` if the key is new.
    before: Option<Header>,
    form: EditForm,
    is_changed: bool,
}

#[allow(clippy::large_enum_variant)] // One for each command, on the stack.
enum EditForm {
    Packed { encoding: u8, count: u16, entries: Vec<u8> },
    Rows(LargeEdit),
}

/// The score and the place of a member that was found.
struct Found {
    score: f64,
    /// The range of the member among packed entries.
    at: std::ops::Range<usize>,
}

/// The most elements of one removal that are removed in place. Of more, those that stay are copied, if these are fewer.
const REMOVED_IN_PLACE: u64 = 1024;

/// Bytes of the log for a removed element, besides its member, which it has twice.
const REMOVED_BYTES: u64 = 72;

/// Bytes of members that are copied to get rid of deleted rows, at most.
const COPIED_BYTES_MAX: usize = 256 << 10;

impl Edit {
    /// Begins a change of a set, or of a key without value.
    pub fn of(zset: Option<Zset>) -> Result<Edit> {
        let Some(zset) = zset else {
            let form = EditForm::Packed { encoding: ZSET_LISTPACK, count: 0, entries: Vec::new() };
            return Ok(Edit { before: None, form, is_changed: false });
        };
        let form = match zset.form {
            Form::Packed(payload) => {
                let packed = Packed::parse(&payload)?;
                let mut entries = Vec::with_capacity(packed.entries.len() + 64);
                entries.extend_from_slice(packed.entries);
                EditForm::Packed { encoding: packed.encoding, count: packed.count, entries }
            }
            Form::Rows(large) => EditForm::Rows(LargeEdit::of(large)),
        };
        Ok(Edit { before: Some(zset.header), form, is_changed: false })
    }

    fn find(&self, txn: &mut Txn<'_>, member: &[u8]) -> Result<Option<Found>> {
        match &self.form {
            EditForm::Packed { encoding, count, entries } => {
                let mut reader = Packed { encoding: *encoding, count: *count, entries }.reader();
                while !reader.is_at_end() {
                    let from = reader.position();
                    let (other, score) = next_element(&mut reader)?;
                    if other == member {
                        return Ok(Some(Found { score, at: from..reader.position() }));
                    }
                }
                Ok(None)
            }
            EditForm::Rows(LargeEdit { large, .. }) => {
                let score = score_in(txn, large.rows(), element::hash(txn, member), member)?;
                Ok(score.map(|score| Found { score, at: 0..0 }))
            }
        }
    }

    /// Gives a member a score, as far as the conditions allow.
    pub fn add(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, how: Adding, score: f64, member: &[u8]) -> Result<Added> {
        let Some(found) = self.find(txn, member)? else {
            if how.old_only {
                return Ok(Added::Refused);
            }
            self.insert(txn, key, member, score)?;
            return Ok(Added::New(score));
        };
        if how.new_only {
            return Ok(Added::Refused);
        }
        let after = if how.increment { found.score + score } else { score };
        if after.is_nan() {
            return Err(Error::NotANumber);
        }
        if (how.less && after >= found.score) || (how.greater && after <= found.score) {
            return Ok(Added::Refused);
        }
        if after == found.score {
            return Ok(Added::Same(after));
        }
        self.is_changed = true;
        match &mut self.form {
            EditForm::Packed { encoding, entries, .. } => {
                entries.drain(found.at);
                put_packed(entries, member, kept(*encoding, after))?;
            }
            EditForm::Rows(edit) => {
                let (after, rows) = (kept(edit.large.head.encoding, after), *edit.large.rows());
                let row = rows.element(element::hash(txn, member), member);
                txn.put_row(&row, &[&score::to_bytes(after)])?;
                edit.leave(txn, member, found.score)?;
                edit.take_place(txn, member, after)?;
            }
        }
        Ok(Added::Moved(after))
    }

    /// Adds a member that is not there.
    fn insert(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, member: &[u8], score: f64) -> Result<()> {
        self.is_changed = true;
        match &mut self.form {
            EditForm::Packed { encoding, count, entries } => {
                *encoding = encoding_with(txn, *encoding, u64::from(*count) + 1, member.len());
                let bytes = entries.len() + string_bytes(member) + score::BYTES;
                let score = kept(*encoding, score);
                if packed::fits(bytes, usize::from(*count) + 1) {
                    put_packed(entries, member, score)?;
                    *count += 1;
                    return Ok(());
                }
                self.unpack_now(txn, key)?;
                let EditForm::Rows(edit) = &mut self.form else { unreachable!("it lies in rows now") };
                edit.put(txn, member, score)
            }
            EditForm::Rows(edit) => {
                let head = &mut edit.large.head;
                head.encoding = encoding_with(txn, head.encoding, head.count + 1, member.len());
                let score = kept(head.encoding, score);
                edit.put(txn, member, score)
            }
        }
    }

    /// Removes a member, and says whether it was there.
    pub fn remove(&mut self, txn: &mut Txn<'_>, member: &[u8]) -> Result<bool> {
        let Some(found) = self.find(txn, member)? else { return Ok(false) };
        self.take_out(txn, member, &found)?;
        Ok(true)
    }

    fn take_out(&mut self, txn: &mut Txn<'_>, member: &[u8], found: &Found) -> Result<()> {
        self.is_changed = true;
        match &mut self.form {
            EditForm::Packed { count, entries, .. } => {
                entries.drain(found.at.clone());
                *count -= 1;
                Ok(())
            }
            EditForm::Rows(edit) => edit.delete(txn, member, found.score),
        }
    }

    /// Moves all elements into rows.
    fn unpack_now(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        let EditForm::Packed { encoding, count, entries } = &mut self.form else { return Ok(()) };
        let (encoding, count, entries) = (*encoding, u64::from(*count), std::mem::take(entries));
        let mut edit = LargeEdit::of(Large::new(txn, key, encoding)?);
        let mut reader = Packed { encoding, count: 0, entries: &entries }.reader();
        while !reader.is_at_end() {
            let (member, score) = next_element(&mut reader)?;
            edit.put(txn, member, score)?;
        }
        debug_assert_eq!(edit.large.head.count, count, "Invariant: a sorted set has as many rows as elements");
        self.form = EditForm::Rows(edit);
        Ok(())
    }

    pub fn len(&self) -> u64 {
        match &self.form {
            EditForm::Packed { count, .. } => (*count).into(),
            EditForm::Rows(LargeEdit { large, .. }) => large.head.count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells whether anything changed so far.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Puts the change into effect; a set without elements is removed.
    pub fn finish(self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        let (before, is_empty) = (self.before, self.is_empty());
        let deadline_ms = before.and_then(|before| before.deadline_ms);
        match (self.form, before) {
            (_, None) if is_empty => Ok(()),
            (_, Some(before)) if is_empty => key::remove(txn, key, &before),
            (EditForm::Packed { encoding, count, entries }, before) => {
                let header = Header { tag: Tag::ZsetPacked, deadline_ms, fields: None, object: None };
                let packed = Packed { encoding, count, entries: &entries };
                key::write(txn, key, before.as_ref(), &header, &[&packed.head(), &entries])
            }
            (EditForm::Rows(edit), before) => edit.finish(txn, key, before.as_ref(), deadline_ms),
        }
    }
}

/// Adds an element to packed entries, at its place.
fn put_packed(entries: &mut Vec<u8>, member: &[u8], score: f64) -> Result<()> {
    debug_assert!(!score.is_nan(), "Invariant: a score is never NaN");
    let mut reader = Packed { encoding: 0, count: 0, entries }.reader();
    let mut at = 0;
    while !reader.is_at_end() {
        let (other, other_score) = next_element(&mut reader)?;
        if other_score > score || (other_score == score && other > member) {
            break;
        }
        at = reader.position();
    }
    let length = entries.len();
    put_string(entries, member);
    entries.extend_from_slice(&score::to_bytes(score));
    let added = entries.len() - length;
    entries[at..].rotate_right(added);
    Ok(())
}

impl Zset {
    /// Removes the elements of a stretch, gives them to `each` in its order, and says how many there were. The other
    /// elements are copied to new rows where that is less, or where a transaction cannot hold the removals.
    pub fn remove_range(
        self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        stretch: Stretch<'_>,
        mut each: impl FnMut(&[u8], f64),
    ) -> Result<u64> {
        let length = self.cardinality()?;
        let count = self.count(txn, stretch.range)?.saturating_sub(stretch.skip).min(stretch.take);
        if count > REMOVED_IN_PLACE {
            txn.long()?;
        }
        if count == 0 {
            return Ok(0);
        }
        let bytes_max = txn.bytes_max() / 4 * 3;
        let is_all = count == length;
        let (mut gone, mut bytes) = (Vec::new(), 0);
        self.visit(txn, stretch, |member, score| {
            each(member, score);
            bytes += 2 * member.len() as u64 + REMOVED_BYTES;
            if !is_all && bytes <= bytes_max {
                gone.push((member.to_vec(), score));
            }
            ControlFlow::Continue(())
        })?;
        if is_all {
            key::remove(txn, key, &self.header)?;
            return Ok(count);
        }
        let stays = length - count;
        if !self.is_packed() && (bytes > bytes_max || (count > REMOVED_IN_PLACE && stays < count / 2)) {
            drop(gone);
            self.copy_rest(txn, key, stretch, count)?;
            return Ok(count);
        }
        let mut edit = Edit::of(Some(self))?;
        edit.is_changed = true;
        match &mut edit.form {
            EditForm::Packed { .. } => {
                for (member, _) in &gone {
                    edit.remove(txn, member)?;
                }
            }
            EditForm::Rows(edit) => {
                for (member, score) in &gone {
                    edit.delete(txn, member, *score)?;
                }
            }
        }
        edit.finish(txn, key)?;
        Ok(count)
    }

    /// Copies what lies outside of a stretch of `count` elements, which is not all, to the rows of a new object.
    fn copy_rest(self, txn: &mut Txn<'_>, key: &Key<'_>, stretch: Stretch<'_>, count: u64) -> Result<()> {
        let length = self.cardinality()?;
        let first = match stretch.range {
            Range::Index { from, .. } if stretch.direction == Direction::Forward => from + stretch.skip,
            Range::Index { until, .. } => until.min(length) - stretch.skip - count,
            range => self.before(txn, range)?,
        };
        let Form::Rows(old) = &self.form else { unreachable!("a packed set is changed in place") };
        let mut maker = Maker::rows(txn, key, old.head.encoding)?;
        for (from, until) in [(0, first), (first + count, length)] {
            maker.add_from(txn, &self, from, until)?;
        }
        maker.finish_rows(txn, key, Some(&self.header), self.header.deadline_ms)
    }
}

impl Large {
    /// Returns a set without elements, which nothing names yet.
    pub(super) fn new(txn: &mut Txn<'_>, key: &Key<'_>, encoding: u8) -> Result<Large> {
        let head = Head { object: Object::new(txn, key)?, encoding, count: 0 };
        let ranks = Ranks { rows: head.rows(key), family: Family::Score, next_node: 0 };
        Ok(Large { head, ranks })
    }

    /// Writes the meta row.
    fn write(&self, txn: &mut Txn<'_>, key: &Key<'_>, before: Option<&Header>, deadline_ms: Option<u64>) -> Result<()> {
        let header = Header { tag: Tag::ZsetRows, deadline_ms, fields: None, object: Some(self.head.object) };
        key::write(txn, key, before, &header, &[&self.head.encode(), &self.ranks.next_node.to_be_bytes()])
    }
}

/// A set in rows under change.
pub(super) struct LargeEdit {
    pub large: Large,
    /// The elements that came and went since the rank tree was right; none where there is no tree.
    changes: SmallVec<[Change; 2]>,
}

impl LargeEdit {
    pub fn of(large: Large) -> LargeEdit {
        LargeEdit { large, changes: SmallVec::new() }
    }

    /// Adds an element that is not there.
    pub fn put(&mut self, txn: &mut Txn<'_>, member: &[u8], score: f64) -> Result<()> {
        let hash = element::hash(txn, member);
        txn.put_row(&self.large.rows().element(hash, member), &[&score::to_bytes(score)])?;
        self.large.head.count += 1;
        self.take_place(txn, member, score)
    }

    /// Makes the score of an element that is there zero, where it was minus zero: its place is the same.
    pub fn drop_sign(&mut self, txn: &mut Txn<'_>, member: &[u8]) -> Result<()> {
        let hash = element::hash(txn, member);
        txn.put_row(&self.large.rows().element(hash, member), &[&score::to_bytes(0.0)])?;
        txn.put_row(&self.large.ranks.row(&place_of(member, 0.0)), &[sign_of(0.0)])?;
        Ok(())
    }

    fn delete(&mut self, txn: &mut Txn<'_>, member: &[u8], score: f64) -> Result<()> {
        let hash = element::hash(txn, member);
        txn.delete_row(&self.large.rows().element(hash, member))?;
        self.large.head.count = lowered(txn, self.large.head.count, 1);
        self.leave(txn, member, score)
    }

    fn take_place(&mut self, txn: &mut Txn<'_>, member: &[u8], score: f64) -> Result<()> {
        debug_assert!(!score.is_nan(), "Invariant: a score is never NaN");
        let (place, ranks) = (place_of(member, score), &self.large.ranks);
        txn.put_row(&ranks.row(&place), &[sign_of(score)])?;
        if ranks.is_there() {
            self.changes.push(Change { key: place, delta: 1 });
        }
        Ok(())
    }

    fn leave(&mut self, txn: &mut Txn<'_>, member: &[u8], score: f64) -> Result<()> {
        let (place, ranks) = (place_of(member, score), &self.large.ranks);
        txn.delete_row(&ranks.row(&place))?;
        if ranks.is_there() {
            self.changes.push(Change { key: place, delta: -1 });
        }
        Ok(())
    }

    /// Brings the rank tree up to date and writes the meta row.
    pub fn finish(
        mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        before: Option<&Header>,
        deadline_ms: Option<u64>,
    ) -> Result<()> {
        let copies = before.is_some() && self.is_to_be_copied(txn);
        if copies {
            // The walk passes the deleted rows, too.
            txn.long()?;
        }
        self.large.ranks.apply(txn, &mut self.changes, self.large.head.count, copies)?;
        if let Some(before) = before.filter(|_| copies) {
            if self.copy(txn, key, before, deadline_ms)? {
                return Ok(());
            }
            self.large.ranks.clear_if_few(txn, self.large.head.count)?;
        }
        self.large.write(txn, key, before, deadline_ms)
    }

    /// Returns whether what is left of the set is to go to a new object, because a walk would pass over many more
    /// deleted rows than there are elements.
    fn is_to_be_copied(&self, txn: &Txn<'_>) -> bool {
        let Large { head, ranks } = &self.large;
        // The set was larger, and loses the tree by which walks pass deleted rows.
        let shrinks = ranks.is_there() && is_few(head.count);
        let is_sparse = head.count <= WALK_MAX && txn.is_sparse(head.object.id);
        (shrinks || is_sparse) && !txn.forgets_deleted(&ranks.row(b""))
    }

    /// Copies the elements to a new object, unless they are too long, and says whether it has. The tree is there, or
    /// walks need none.
    fn copy(&self, txn: &mut Txn<'_>, key: &Key<'_>, before: &Header, deadline_ms: Option<u64>) -> Result<bool> {
        let Large { head, .. } = self.large;
        txn.forget_sparse(head.object.id);
        let zset = Zset { header: *before, form: Form::Rows(self.large) };
        let range = Range::Index { from: 0, until: head.count };
        let stretch = Stretch { range, direction: Direction::Forward, skip: 0, take: head.count };
        let (mut elements, mut bytes) = (Vec::with_capacity(head.count as usize), 0);
        zset.visit(txn, stretch, |member, score| {
            bytes += member.len();
            elements.push((Box::<[u8]>::from(member), score));
            if bytes <= COPIED_BYTES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if bytes > COPIED_BYTES_MAX {
            return Ok(false);
        }
        if elements.len() as u64 != head.count {
            return Err(damaged("the count of a sorted set", &head.count.to_be_bytes()));
        }
        let mut copy = LargeEdit::of(Large::new(txn, key, head.encoding)?);
        for (member, score) in &elements {
            copy.put(txn, member, *score)?;
        }
        copy.finish(txn, key, Some(before), deadline_ms)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a score is never NaN")]
    fn a_score_that_is_no_number_is_noticed() {
        _ = put_packed(&mut Vec::new(), b"m", f64::NAN);
    }
}
