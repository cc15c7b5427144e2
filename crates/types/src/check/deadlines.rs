//! Deadline rows: each key with a deadline has exactly one, and one for the first of its fields'. A row that does not
//! agree with its key means nothing, as an overwrite that did not look may leave it, and is counted.

use super::Context;
use super::keys::{Tallies, check_standing, note_space};
use super::place::{KeyPlace, Shown};
use crate::key::{Header, deadline_rows};
use haypile_store::base::BaseError;
use haypile_store::check::{Agreement, Findings, Kind, Standing};
use haypile_store::row::{self, Family, Space};
use std::collections::BTreeMap;

pub(super) fn check(context: &Context<'_>, tallies: &Tallies, findings: &mut Findings<'_>) -> Result<(), BaseError> {
    let mut found: BTreeMap<Space, Agreement> = BTreeMap::new();
    let mut unknown = None;
    let mut rows = context.merged.family(Family::Expire, &[Family::Expire])?;
    while let Some((row, value)) = rows.row() {
        match row::parse_expire_row(row) {
            None => findings.add(Kind::Row, format_args!("row {}", Shown(row)), "its key is too short"),
            Some((_, key)) => match context.facts.standing(key.space) {
                Standing::Database(database) => {
                    let place = KeyPlace { database, name: key.name };
                    check_standing(context, &key, &place, findings);
                    found.entry(key.space).or_default().add(&[value, row]);
                }
                standing => note_space(standing, key.space, row, value, &mut unknown, findings),
            },
        }
        rows.advance()?;
    }
    context.merged.on_end_of(&[Family::Expire]);
    let mut spaces: Vec<Space> = tallies.keys().chain(found.keys()).copied().collect();
    spaces.sort_unstable();
    spaces.dedup();
    for space in spaces {
        let expected = tallies.get(&space).copied().unwrap_or_default();
        if found.get(&space).copied().unwrap_or_default() != expected.deadline_rows {
            let agreeing = count_stale(context, space, findings)?;
            // Each row agrees with another key, so equal counts mean that none is missing.
            if agreeing != expected.deadlines {
                find_missing(context, space, findings)?;
            }
        }
    }
    Ok(())
}

/// Counts the deadline rows of a space that do not agree with their key; returns how many do.
fn count_stale(context: &Context<'_>, space: Space, findings: &mut Findings<'_>) -> Result<u64, BaseError> {
    let (mut agreeing, standing) = (0, context.facts.standing(space));
    let (from, until) = row::family_range(Family::Expire, space);
    let mut rows = context.merged.rows(&from, &until)?;
    while let Some((row, value)) = rows.row() {
        if let (Some((deadline_ms, key)), Standing::Database(database)) = (row::parse_expire_row(row), standing) {
            let meta = context.merged.get(&row::meta_row(&key))?;
            let header = meta.as_deref().and_then(Header::parse);
            match deadline_rows(header.as_ref()).into_iter().find(|row| row.0 == deadline_ms) {
                Some((_, right)) => {
                    agreeing += 1;
                    if value != right {
                        let place = KeyPlace { database, name: key.name };
                        let what = format!("its deadline row has the value {}, not {}", Shown(value), Shown(right));
                        findings.add(Kind::Deadline, place, what);
                    }
                }
                None => findings.garbage.stale_deadlines += 1,
            }
        }
        rows.advance()?;
    }
    Ok(agreeing)
}

/// Finds the keys of a space whose deadline row is missing.
fn find_missing(context: &Context<'_>, space: Space, findings: &mut Findings<'_>) -> Result<(), BaseError> {
    let Standing::Database(database) = context.facts.standing(space) else { return Ok(()) };
    let (from, until) = row::family_range(Family::Meta, space);
    let mut rows = context.merged.rows(&from, &until)?;
    while let Some((row, value)) = rows.row() {
        if let (Some(key), Some(header)) = (row::parse_meta_row(row), Header::parse(value)) {
            for (deadline_ms, _) in deadline_rows(Some(&header)) {
                if context.merged.get(&row::expire_row(&key, deadline_ms))?.is_none() {
                    let place = KeyPlace { database, name: key.name };
                    findings.add(Kind::Deadline, place, format_args!("there is no deadline row at {deadline_ms}"));
                }
            }
        }
        rows.advance()?;
    }
    Ok(())
}
