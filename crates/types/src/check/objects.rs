//! Objects: their owners and their rows. The rows of owners, elements and scores lie in the same order, so that one
//! walk over the three meets all rows of an object at once.
//!
//! An object without owner is garbage. One with an owner belongs to exactly the key that names it; its rows are then
//! for the type's checker.

use super::keys::{Tallies, is_slot, note_space};
use super::place::{KeyPlace, ObjectPlace, Report, Shown};
use super::{Context, values};
use crate::key::{Header, Object};
use haypile_store::Key;
use haypile_store::base::BaseError;
use haypile_store::check::{Findings, Kind, Merged, Rows, Standing};
use haypile_store::row::{self, Family, ObjectId, Slot, Space};
use std::collections::BTreeMap;

/// The families of an object's rows, which are read beside each other.
const FAMILIES: &[Family] = &[Family::Data, Family::Score, Family::Owner];

/// Bytes of a row's key up to the element.
const PREFIX_BYTES: usize = 15;

/// Space, slot and id of an object, in the order of its rows.
type At = [u8; PREFIX_BYTES - 1];

/// Rows of one object in one family, in the order of their elements.
pub(super) struct Elements<'e, 'm> {
    rows: &'e mut Rows<'m>,
    at: At,
    begun: bool,
}

impl Elements<'_, '_> {
    /// Returns the next element and its value.
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>, BaseError> {
        if std::mem::replace(&mut self.begun, true) && self.is_within() {
            self.rows.advance()?;
        }
        if !self.is_within() {
            return Ok(None);
        }
        Ok(self.rows.row().map(|(row, value)| (&row[PREFIX_BYTES..], value)))
    }

    fn is_within(&self) -> bool {
        self.rows.row().is_some_and(|(row, _)| row.get(1..PREFIX_BYTES) == Some(&self.at[..]))
    }

    /// Passes over the remaining rows; returns how many rows and bytes they were.
    fn skip(&mut self) -> Result<(u64, u64), BaseError> {
        let (mut rows, mut bytes) = (0, 0);
        while let Some((row, value)) = self.rows.row().filter(|_| self.is_within()) {
            (rows, bytes) = (rows + 1, bytes + (row.len() + value.len()) as u64);
            self.rows.advance()?;
        }
        Ok((rows, bytes))
    }
}

/// The rows of an object with an owner.
pub(super) struct ObjectRows<'o, 'm> {
    pub data: Elements<'o, 'm>,
    pub score: Elements<'o, 'm>,
    look: Look<'m>,
    pub hash_seed: Option<u64>,
}

/// Looks up single rows of an object.
#[derive(Clone, Copy)]
pub(super) struct Look<'m> {
    merged: &'m Merged<'m>,
    space: Space,
    object: Object,
}

impl Look<'_> {
    pub fn data(&self, element: &[u8]) -> Result<Option<Vec<u8>>, BaseError> {
        self.merged.get(&row::data_row(self.space, self.object.slot, self.object.id, element))
    }

    pub fn score(&self, element: &[u8]) -> Result<Option<Vec<u8>>, BaseError> {
        self.merged.get(&row::score_row(self.space, self.object.slot, self.object.id, element))
    }

    /// Walks over all elements and values of a family once more, from the first.
    fn each(
        &self,
        family: Family,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), BaseError>,
    ) -> Result<(), BaseError> {
        let (from, until) = row::object_range(family, self.space, self.object.slot, self.object.id);
        let mut rows = self.merged.rows(&from, &until)?;
        while let Some((row, value)) = rows.row() {
            each(&row[PREFIX_BYTES..], value)?;
            rows.advance()?;
        }
        Ok(())
    }

    pub fn each_data(&self, each: impl FnMut(&[u8], &[u8]) -> Result<(), BaseError>) -> Result<(), BaseError> {
        self.each(Family::Data, each)
    }

    pub fn each_score(&self, each: impl FnMut(&[u8], &[u8]) -> Result<(), BaseError>) -> Result<(), BaseError> {
        self.each(Family::Score, each)
    }
}

impl<'m> ObjectRows<'_, 'm> {
    pub fn look(&self) -> Look<'m> {
        self.look
    }

    /// Reports rows of scores, for a type whose rows are of the family `data` only.
    pub fn expect_no_scores(&mut self, report: &mut Report<'_, '_, '_>) -> Result<(), BaseError> {
        let (rows, _) = self.score.skip()?;
        if rows > 0 {
            report.add(format_args!("there are {rows} rows of scores, and its type has none"));
        }
        Ok(())
    }
}

struct Walk<'w> {
    context: &'w Context<'w>,
    owners: Rows<'w>,
    data: Rows<'w>,
    score: Rows<'w>,
    /// Objects that belong to the key that names them.
    owned: BTreeMap<Space, u64>,
    /// The last space that was found to be unknown.
    unknown: Option<Space>,
}

/// Checks all objects; returns how many have an owner.
pub(super) fn check(context: &Context<'_>, tallies: &Tallies, findings: &mut Findings<'_>) -> Result<u64, BaseError> {
    let mut walk = Walk {
        context,
        owners: context.merged.family(Family::Owner, FAMILIES)?,
        data: context.merged.family(Family::Data, FAMILIES)?,
        score: context.merged.family(Family::Score, FAMILIES)?,
        owned: BTreeMap::new(),
        unknown: None,
    };
    while let Some(at) = walk.next(findings)? {
        walk.check_object(at, findings)?;
    }
    let owned = walk.owned;
    context.merged.on_end_of(FAMILIES);
    // Each key was met at most once through the object that it names, so equal counts mean that none is missing.
    for (space, tally) in tallies {
        if owned.get(space).copied().unwrap_or_default() != tally.objects {
            find_missing(context, *space, findings)?;
        }
    }
    Ok(owned.values().sum())
}

impl<'w> Walk<'w> {
    /// Returns the first object that has rows left.
    fn next(&mut self, findings: &mut Findings<'_>) -> Result<Option<At>, BaseError> {
        let mut first: Option<At> = None;
        for rows in [&mut self.owners, &mut self.data, &mut self.score] {
            while let Some((row, _)) = rows.row() {
                if let Some(at) = row.get(1..PREFIX_BYTES).and_then(|at| at.try_into().ok()) {
                    first = Some(first.map_or(at, |first: At| first.min(at)));
                    break;
                }
                findings.add(Kind::Row, format_args!("row {}", Shown(row)), "its key is too short");
                rows.advance()?;
            }
        }
        Ok(first)
    }

    fn check_object(&mut self, at: At, findings: &mut Findings<'_>) -> Result<(), BaseError> {
        let [s0, s1, s2, s3, l0, l1, id @ ..] = at;
        let space = Space(u32::from_be_bytes([s0, s1, s2, s3]));
        let object = Object { slot: Slot(u16::from_be_bytes([l0, l1])), id: ObjectId(u64::from_be_bytes(id)) };
        let database = match self.context.facts.standing(space) {
            Standing::Database(database) => database,
            standing => return self.pass_over(at, standing, space, findings),
        };
        let place = || ObjectPlace { database, slot: object.slot, id: object.id };
        let next = self.context.facts.next_object;
        if object.id.0 == 0 || object.id.0 >= next {
            findings.add(Kind::ObjectId, place(), format_args!("it was never leased: the next one is {next}"));
        }
        if !is_slot(object.slot) {
            findings.add(Kind::Row, place(), "there is no such slot");
        }
        let owner = match self.owners.row() {
            Some((row, name)) if row[1..PREFIX_BYTES] == at => {
                if row.len() != PREFIX_BYTES {
                    findings.add(Kind::Row, format_args!("row {}", Shown(row)), "its key is too long");
                }
                let name = name.to_vec();
                self.owners.advance()?;
                Some(name)
            }
            _ => None,
        };
        let mut data = Elements { rows: &mut self.data, at, begun: false };
        let mut score = Elements { rows: &mut self.score, at, begun: false };
        let Some(name) = owner else {
            let (data, score) = (data.skip()?, score.skip()?);
            findings.garbage.objects += 1;
            findings.garbage.object_rows += data.0 + score.0;
            findings.garbage.object_bytes += data.1 + score.1;
            return Ok(());
        };
        let slot = row::slot_of(&name);
        let hash = self.context.hash_seed().map_or(0, |seed| row::hash_of(&name, seed));
        let key = Key { space, slot, hash, name: &name };
        let meta = self.context.merged.get(&row::meta_row(&key))?;
        let header = meta.as_deref().and_then(Header::parse);
        match (&meta, &header) {
            (Some(meta), Some(header)) if header.object == Some(object) => {
                *self.owned.entry(space).or_default() += 1;
                let payload = &meta[header.bytes_len()..];
                let mut rows = ObjectRows {
                    data,
                    score,
                    look: Look { merged: self.context.merged, space, object },
                    hash_seed: self.context.hash_seed(),
                };
                values::check_rows(header, payload, &mut rows, &mut Report { findings, database, key: &key })?;
                (data, score) = (rows.data, rows.score);
            }
            (None, _) => findings.add(
                Kind::Owner,
                place(),
                format_args!("it belongs to key {}, which is not there", Shown(&name)),
            ),
            // A meta row that does not parse has been found before.
            (Some(_), None) => {}
            (Some(_), Some(header)) => {
                let names = match header.object {
                    Some(other) => format!("object {} in slot {}", other.id.0, other.slot.0),
                    None => "no object".into(),
                };
                findings.add(
                    Kind::Owner,
                    place(),
                    format_args!("it belongs to key {}, which names {names}", Shown(&name)),
                );
            }
        }
        data.skip()?;
        score.skip()?;
        Ok(())
    }

    /// Passes over the rows of a space that is no database.
    fn pass_over(
        &mut self,
        at: At,
        standing: Standing,
        space: Space,
        findings: &mut Findings<'_>,
    ) -> Result<(), BaseError> {
        for rows in [&mut self.owners, &mut self.data, &mut self.score] {
            while let Some((row, value)) = rows.row().filter(|(row, _)| row.get(1..PREFIX_BYTES) == Some(&at[..])) {
                note_space(standing, space, row, value, &mut self.unknown, findings);
                rows.advance()?;
            }
        }
        Ok(())
    }
}

/// Finds the keys of a space whose object does not belong to them.
fn find_missing(context: &Context<'_>, space: Space, findings: &mut Findings<'_>) -> Result<(), BaseError> {
    let Standing::Database(database) = context.facts.standing(space) else { return Ok(()) };
    let (from, until) = row::family_range(Family::Meta, space);
    let mut rows = context.merged.rows(&from, &until)?;
    while let Some((row, value)) = rows.row() {
        if let (Some(key), Some(header)) = (row::parse_meta_row(row), Header::parse(value))
            && let Some(Object { id, slot }) = header.object
        {
            let place = KeyPlace { database, name: key.name };
            match context.merged.get(&row::owner_row(space, slot, id))? {
                None => findings.add(
                    Kind::Owner,
                    place,
                    format_args!("its object {} in slot {} has no owner row", id.0, slot.0),
                ),
                Some(owner) if owner != key.name => {
                    let what = format!("its object {} in slot {} belongs to key {}", id.0, slot.0, Shown(&owner));
                    findings.add(Kind::Owner, place, what);
                }
                Some(_) => {}
            }
        }
        rows.advance()?;
    }
    Ok(())
}
