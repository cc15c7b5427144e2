//! Sorted sets: members with scores, in the order of (score, member). Small ones lie in the meta row (`packed`), large
//! ones in two rows for each member, one found by the member and one in order, and a rank tree over the latter
//! (`ranks`). Owns that choice and the reads of single members; ranges are in `range`, changes in `edit`, new sets as a
//! whole in `make`, several sets together in `combine`. Format: docs/format/zset.md.

mod combine;
mod edit;
mod make;
mod range;

pub use combine::{Aggregate, Combination, Input, Operation};
pub use edit::{Added, Adding, Edit};
pub use make::Maker;
pub use range::{LexBound, Range, ScoreBound, Stretch};

use crate::EncodingLimit;
use crate::element::{self, Head, Rows};
use crate::key::{self, Entry, Header, Tag, Type, damaged};
use crate::packed::{Packed, Reader};
use crate::ranks::Ranks;
use crate::value::encoding::{ZSET_LISTPACK, ZSET_SKIPLIST};
use crate::{Error, Result, score, walk};
use haypile_store::row::{Family, RowKey, join};
use haypile_store::{Key, Txn, Value};
use smallvec::SmallVec;

/// A sorted set of a key, looked up.
#[derive(Clone, Debug)]
pub struct Zset {
    pub header: Header,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    /// A set in its meta row, by its payload.
    Packed(Value),
    Rows(Large),
}

/// The header of a sorted set in rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Large {
    head: Head,
    ranks: Ranks,
}

/// Bytes of a header beyond the part of all collections: `next_node: u32`.
const OWN_BYTES: usize = 4;

impl Large {
    fn rows(&self) -> &Rows {
        &self.ranks.rows
    }
}

/// The elements of a packed set, in order.
type Elements<'p> = SmallVec<[(&'p [u8], f64); 64]>;

/// Returns `score | member`: the part behind the prefix in the key of a score row. Both zeros are one place.
fn place_of(member: &[u8], score: f64) -> RowKey {
    join(score::place(score), member)
}

/// Returns the member and the score of a score row: of its key behind the prefix, and its value, which only minus zero
/// has.
#[inline]
pub fn element_of<'r>(row: &'r [u8], value: &[u8]) -> Option<(&'r [u8], f64)> {
    let (place, member) = row.get(element::ROW_PREFIX_BYTES..)?.split_first_chunk::<{ score::BYTES }>()?;
    let score = score::from_bytes(*place);
    Some((member, if value.is_empty() { score } else { -0.0 }))
}

/// Returns the value of a score row.
fn sign_of(score: f64) -> &'static [u8] {
    if score == 0.0 && score.is_sign_negative() { &[1] } else { &[] }
}

/// Returns the encoding that Redis would use for a set of so many elements after one with this member was added.
fn encoding_with(txn: &Txn<'_>, encoding: u8, count: u64, member_bytes: usize) -> u8 {
    let holds = |limit: EncodingLimit, size: u64| i64::try_from(size).is_ok_and(|size| size <= limit.of(txn));
    let fits = holds(EncodingLimit::ZsetEntries, count) && holds(EncodingLimit::ZsetValue, member_bytes as u64);
    if encoding == ZSET_LISTPACK && fits { ZSET_LISTPACK } else { ZSET_SKIPLIST }
}

/// Returns a score as Redis keeps it: a listpack holds integers without the sign of a zero.
fn kept(encoding: u8, score: f64) -> f64 {
    if encoding == ZSET_LISTPACK && score == 0.0 { 0.0 } else { score }
}

/// Returns the next element of a packed set.
#[inline]
fn next_element<'p>(reader: &mut Reader<'p>) -> Result<(&'p [u8], f64)> {
    let member = reader.string()?;
    Ok((member, score::from_bytes(reader.fixed::<{ score::BYTES }>()?)))
}

impl Zset {
    /// Returns the set of a key, for a reader.
    #[inline]
    pub fn read(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Zset>> {
        key::lookup(txn, key)?.map(|entry| Zset::of(key, entry)).transpose()
    }

    /// Returns the set of a key, for a writer.
    #[inline]
    pub fn write(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Zset>> {
        key::lookup_write(txn, key)?.map(|entry| Zset::of(key, entry)).transpose()
    }

    /// Returns the set of a key that was looked up; an error if it holds something else.
    #[inline]
    pub fn of(key: &Key<'_>, entry: Entry) -> Result<Zset> {
        let header = entry.header;
        let form = match header.tag {
            Tag::ZsetPacked => Form::Packed(entry.into_payload()),
            Tag::ZsetRows => {
                let (head, own) = Head::parse(&entry, OWN_BYTES)?;
                let next_node = u32::from_be_bytes(own.try_into().expect("as many bytes as were asked for"));
                let ranks = Ranks { rows: head.rows(key), family: Family::Score, next_node };
                Form::Rows(Large { head, ranks })
            }
            tag => {
                debug_assert!(tag.type_of() != Type::Zset);
                return Err(Error::WrongType);
            }
        };
        Ok(Zset { header, form })
    }

    /// Returns the number of elements.
    #[inline]
    pub fn cardinality(&self) -> Result<u64> {
        match &self.form {
            Form::Packed(payload) => Ok(Packed::parse(payload)?.count.into()),
            Form::Rows(large) => Ok(large.head.count),
        }
    }

    /// Returns the score of a member.
    pub fn score(&self, txn: &mut Txn<'_>, member: &[u8]) -> Result<Option<f64>> {
        match &self.form {
            Form::Packed(payload) => {
                let mut reader = Packed::parse(payload)?.reader();
                while !reader.is_at_end() {
                    let (other, score) = next_element(&mut reader)?;
                    if other == member {
                        return Ok(Some(score));
                    }
                }
                Ok(None)
            }
            Form::Rows(large) => score_in(txn, large.rows(), element::hash(txn, member), member),
        }
    }

    /// Returns how many elements lie before a member, from the lowest on or from the highest, and its score.
    pub fn rank(&self, txn: &mut Txn<'_>, member: &[u8], reverse: bool) -> Result<Option<(u64, f64)>> {
        let found = match &self.form {
            Form::Packed(payload) => {
                let elements = elements_of(payload)?;
                elements.iter().position(|(other, _)| *other == member).map(|at| (at as u64, elements[at].1))
            }
            Form::Rows(large) => match self.score(txn, member)? {
                Some(score) => Some((large.ranks.rank(txn, &place_of(member, score))?, score)),
                None => None,
            },
        };
        let last = self.cardinality()?.saturating_sub(1);
        Ok(found.map(|(rank, score)| (if reverse { last.saturating_sub(rank) } else { rank }, score)))
    }

    /// Looks at up to about `max` members from a hash on, in the order of the hashes; of a packed set at all of them.
    /// Returns where to go on, if there is more.
    pub fn page(
        &self,
        txn: &mut Txn<'_>,
        from: Option<u32>,
        max: usize,
        mut each: impl FnMut(&[u8], f64),
    ) -> Result<Option<u32>> {
        match (&self.form, from) {
            (_, None) => Ok(None),
            (Form::Packed(payload), _) => {
                elements_of(payload)?.iter().for_each(|(member, score)| each(member, *score));
                Ok(None)
            }
            (Form::Rows(large), Some(from)) => {
                let mut bad = false;
                let next = walk::page(txn, *large.rows(), from, max, |member, value| match value.try_into() {
                    Ok(score) => each(member, score::from_bytes(score)),
                    Err(_) => bad = true,
                })?;
                if bad { Err(damaged("the score of a member", &[])) } else { Ok(next) }
            }
        }
    }

    /// Checks that each member has its place, nothing else has one, and the rank tree counts them; the inner error is
    /// the defect.
    pub fn verify(&self, txn: &mut Txn<'_>) -> Result<std::result::Result<(), String>> {
        let Form::Rows(large) = &self.form else { return Ok(Ok(())) };
        let mut wrong = Ok(());
        let (mut at, mut members) = (Some(0), 0);
        while let Some(from) = at {
            let mut found = Vec::new();
            at = self.page(txn, Some(from), 1000, |member, score| found.push((member.to_vec(), score)))?;
            for (member, score) in found {
                members += 1;
                match txn.row(&large.ranks.row(&place_of(&member, score)))? {
                    Some(sign) if *sign == *sign_of(score) => {}
                    place => wrong = Err(format!("{}: {score}, its place {place:?}", member.escape_ascii())),
                }
            }
        }
        if members != large.head.count {
            wrong = Err(format!("{members} members, the count is {}", large.head.count));
        }
        if wrong.is_err() {
            return Ok(wrong);
        }
        large.ranks.verify(txn, large.head.count)
    }

    /// Returns the numbers of levels and nodes of the rank tree.
    pub fn tree_size(&self, txn: &mut Txn<'_>) -> Result<(u32, u64)> {
        match &self.form {
            Form::Packed(_) => Ok((0, 0)),
            Form::Rows(large) => large.ranks.size(txn),
        }
    }

    /// Tells whether all elements lie in the meta row.
    pub fn is_packed(&self) -> bool {
        matches!(self.form, Form::Packed(_))
    }

    /// Tells whether Redis would hold the set in a listpack.
    pub fn is_listpack(&self) -> Result<bool> {
        let encoding = match &self.form {
            Form::Packed(payload) => Packed::parse(payload)?.encoding,
            Form::Rows(large) => large.head.encoding,
        };
        Ok(encoding == ZSET_LISTPACK)
    }
}

fn score_in(txn: &mut Txn<'_>, rows: &Rows, hash: u32, member: &[u8]) -> Result<Option<f64>> {
    match txn.row(&rows.element(hash, member))? {
        None => Ok(None),
        Some(value) => match (*value).try_into() {
            Ok(bytes) => Ok(Some(score::from_bytes(bytes))),
            Err(_) => Err(damaged("the score of a member", &value)),
        },
    }
}

fn elements_of(payload: &[u8]) -> Result<Elements<'_>> {
    let mut reader = Packed::parse(payload)?.reader();
    let mut elements = Elements::new();
    while !reader.is_at_end() {
        elements.push(next_element(&mut reader)?);
    }
    Ok(elements)
}
