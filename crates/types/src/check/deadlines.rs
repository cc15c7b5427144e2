//! Deadline rows: each key with a deadline has exactly one. A row that does not agree with its key means nothing, as an
//! overwrite that did not look may leave it, and is counted.

use super::Context;
use super::keys::{Tallies, check_standing, note_space};
use super::place::{KeyPlace, Shown};
use crate::key::Header;
use haypile_store::base::BaseError;
use haypile_store::check::{Findings, Kind, Standing};
use haypile_store::row::{self, Family, Space};
use std::collections::BTreeMap;

pub(super) fn check(context: &Context<'_>, tallies: &Tallies, findings: &mut Findings<'_>) -> Result<(), BaseError> {
    // Rows that agree with their key, which is all that its key may have.
    let mut agreeing: BTreeMap<Space, u64> = BTreeMap::new();
    let mut unknown = None;
    let mut rows = context.merged.family(Family::Expire, &[Family::Expire])?;
    while let Some((row, value)) = rows.row() {
        match row::parse_expire_row(row) {
            None => findings.add(Kind::Row, format_args!("row {}", Shown(row)), "its key is too short"),
            Some((deadline_ms, key)) => match context.facts.standing(key.space) {
                Standing::Database(database) => {
                    let place = KeyPlace { database, name: key.name };
                    check_standing(context, &key, &place, findings);
                    if !value.is_empty() {
                        findings.add(Kind::Deadline, place, "its deadline row has a value");
                    }
                    let meta = context.merged.get(&row::meta_row(&key))?;
                    let header = meta.as_deref().and_then(Header::parse);
                    if header.is_some_and(|header| header.deadline_ms == Some(deadline_ms)) {
                        *agreeing.entry(key.space).or_default() += 1;
                    } else {
                        findings.garbage.stale_deadlines += 1;
                    }
                }
                standing => note_space(standing, key.space, row, value, &mut unknown, findings),
            },
        }
        rows.advance()?;
    }
    context.merged.on_end_of(&[Family::Expire]);
    // Each of them is of another key: as many as there should be are all.
    for (space, tally) in tallies {
        if agreeing.get(space).copied().unwrap_or_default() != tally.deadlines {
            find_missing(context, *space, findings)?;
        }
    }
    Ok(())
}

/// The keys of a space whose deadline row is missing.
fn find_missing(context: &Context<'_>, space: Space, findings: &mut Findings<'_>) -> Result<(), BaseError> {
    let Standing::Database(database) = context.facts.standing(space) else { return Ok(()) };
    let (from, until) = row::family_range(Family::Meta, space);
    let mut rows = context.merged.rows(&from, &until)?;
    while let Some((row, value)) = rows.row() {
        if let (Some(key), Some(header)) = (row::parse_meta_row(row), Header::parse(value))
            && let Some(deadline_ms) = header.deadline_ms
            && context.merged.get(&row::expire_row(&key, deadline_ms))?.is_none()
        {
            let place = KeyPlace { database, name: key.name };
            findings.add(Kind::Deadline, place, format_args!("there is no deadline row at {deadline_ms}"));
        }
        rows.advance()?;
    }
    Ok(())
}
