//! Sorted sets that are made as a whole: results of ...STORE. They may have any size: elements beyond a meta row go to
//! the rows of an object that nothing names until it is complete, so that it is written ahead; the rank tree is built
//! afterwards.

use super::edit::LargeEdit;
use super::{Large, Stretch, Zset, kept, next_element};
use crate::EncodingLimit;
use crate::key::{self, Header, Tag};
use crate::packed::{self, Packed, put_string, string_bytes};
use crate::value::encoding::{ZSET_LISTPACK, ZSET_SKIPLIST};
use crate::{Result, element, score};
use haypile_store::{Direction, Key, RowPresence, Txn};
use std::ops::ControlFlow;

/// Elements copied in one step.
const STEP: u64 = 1024;

/// A new set.
pub struct Maker {
    /// Elements as packed entries, in the order in which they were added.
    entries: Vec<u8>,
    large: Option<LargeEdit>,
    count: u64,
    member_bytes_max: usize,
    /// Members in rows with the score minus zero, as long as the set may be a listpack in Redis.
    minus_zeros: Vec<Box<[u8]>>,
    /// Redis would add to a listpack from the beginning, in which zeros lose their signs, as long as it may be one.
    begins_as_listpack: bool,
}

impl Maker {
    pub fn new() -> Maker {
        Maker {
            entries: Vec::new(),
            large: None,
            count: 0,
            member_bytes_max: 0,
            minus_zeros: Vec::new(),
            begins_as_listpack: false,
        }
    }

    /// Returns a set to which Redis would add each element by itself, with `count` of them if it knew that before.
    pub fn one_by_one(txn: &Txn<'_>, count: Option<u64>) -> Maker {
        Maker { begins_as_listpack: may_be_listpack(txn, count.unwrap_or(0), 0), ..Maker::new() }
    }

    /// Returns a set that lies in rows from the beginning.
    pub(super) fn rows(txn: &mut Txn<'_>, key: &Key<'_>, encoding: u8) -> Result<Maker> {
        Ok(Maker { large: Some(LargeEdit::of(Large::new(txn, key, encoding)?)), ..Maker::new() })
    }

    /// Tells whether a member was added.
    pub fn contains(&self, txn: &mut Txn<'_>, member: &[u8]) -> Result<bool> {
        if let Some(LargeEdit { large, .. }) = &self.large {
            let row = large.rows().element(element::hash(txn, member), member);
            return Ok(txn.row_presence(&row)? != RowPresence::Absent);
        }
        let mut reader = Packed { encoding: 0, count: 0, entries: &self.entries }.reader();
        while !reader.is_at_end() {
            if next_element(&mut reader)?.0 == member {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a member that was not added before.
    pub fn add(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, member: &[u8], score: f64) -> Result<()> {
        debug_assert!(!score.is_nan(), "Invariant: a score is never NaN");
        self.member_bytes_max = self.member_bytes_max.max(member.len());
        self.count += 1;
        let is_in_listpack = self.begins_as_listpack && may_be_listpack(txn, self.count, self.member_bytes_max);
        let score = kept(if is_in_listpack { ZSET_LISTPACK } else { ZSET_SKIPLIST }, score);
        let bytes = self.entries.len() + string_bytes(member) + score::BYTES;
        if self.large.is_none() && !packed::fits(bytes, self.count as usize) {
            let mut large = LargeEdit::of(Large::new(txn, key, ZSET_LISTPACK)?);
            let mut reader = Packed { encoding: 0, count: 0, entries: &self.entries }.reader();
            while !reader.is_at_end() {
                let (member, score) = next_element(&mut reader)?;
                large.put(txn, member, score)?;
                if is_minus_zero(score) {
                    self.minus_zeros.push(member.into());
                }
            }
            self.large = Some(large);
        }
        match &mut self.large {
            Some(large) => {
                if is_minus_zero(score) && may_be_listpack(txn, self.count, self.member_bytes_max) {
                    self.minus_zeros.push(member.into());
                }
                large.put(txn, member, score)
            }
            None => {
                put_string(&mut self.entries, member);
                self.entries.extend_from_slice(&score::to_bytes(score));
                Ok(())
            }
        }
    }

    /// Adds the elements of another set from one index to another.
    pub fn add_from(&mut self, txn: &mut Txn<'_>, zset: &Zset, from: u64, until: u64) -> Result<()> {
        let Some(large) = &mut self.large else { unreachable!("only sets in rows are copied") };
        let mut at = from;
        while at < until {
            let part = super::Range::Index { from: at, until: until.min(at + STEP) };
            let mut step = Vec::with_capacity(STEP as usize);
            let stretch = Stretch { range: part, direction: Direction::Forward, skip: 0, take: STEP };
            zset.visit(txn, stretch, |member, score| {
                step.push((member.to_vec(), score));
                ControlFlow::Continue(())
            })?;
            debug_assert!(
                txn.is_dry_run() || step.len() as u64 == STEP.min(until - at),
                "Invariant: as many elements lie between two indexes as these say"
            );
            for (member, score) in &step {
                large.put(txn, member, *score)?;
            }
            at += STEP;
        }
        Ok(())
    }

    /// Returns the number of elements so far.
    pub fn len(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Gives the set, without deadline, to a key, in place of any value; without elements the key is removed.
    pub fn finish(mut self, txn: &mut Txn<'_>, key: &Key<'_>, before: Option<&Header>) -> Result<()> {
        let fits = may_be_listpack(txn, self.count, self.member_bytes_max);
        let encoding = if fits { ZSET_LISTPACK } else { ZSET_SKIPLIST };
        if let Some(edit) = &mut self.large {
            edit.large.head.encoding = encoding;
            let minus_zeros = std::mem::take(&mut self.minus_zeros);
            for member in minus_zeros.iter().filter(|_| fits) {
                edit.drop_sign(txn, member)?;
            }
            return self.finish_rows(txn, key, before, None);
        }
        if self.is_empty() {
            return match before {
                Some(before) => key::remove(txn, key, before),
                None => Ok(()),
            };
        }
        let packed = Packed { encoding, count: self.count as u16, entries: &self.entries };
        let mut elements = super::Elements::new();
        let mut reader = packed.reader();
        while !reader.is_at_end() {
            let (member, score) = next_element(&mut reader)?;
            elements.push((member, kept(encoding, score)));
        }
        elements.sort_unstable_by(|a, b| a.1.partial_cmp(&b.1).expect("no score is NaN").then(a.0.cmp(b.0)));
        let mut entries = Vec::with_capacity(self.entries.len());
        for (member, score) in &elements {
            put_string(&mut entries, member);
            entries.extend_from_slice(&score::to_bytes(*score));
        }
        let header = Header { tag: Tag::ZsetPacked, deadline_ms: None, fields: None, object: None };
        key::write(txn, key, before, &header, &[&packed.head(), &entries])
    }

    /// Gives a set in rows, with a deadline if it shall have one, to a key.
    pub(super) fn finish_rows(
        self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        before: Option<&Header>,
        deadline_ms: Option<u64>,
    ) -> Result<()> {
        let Some(large) = self.large else { unreachable!("it lies in rows") };
        large.finish(txn, key, before, deadline_ms)
    }
}

impl Default for Maker {
    fn default() -> Maker {
        Maker::new()
    }
}

/// Returns whether Redis would keep a set of so many elements, the longest of so many bytes, as a listpack.
fn may_be_listpack(txn: &Txn<'_>, count: u64, member_bytes_max: usize) -> bool {
    let limit = |limit: EncodingLimit| u64::try_from(limit.of(txn)).unwrap_or(0);
    count <= limit(EncodingLimit::ZsetEntries) && member_bytes_max as u64 <= limit(EncodingLimit::ZsetValue)
}

fn is_minus_zero(score: f64) -> bool {
    score == 0.0 && score.is_sign_negative()
}
