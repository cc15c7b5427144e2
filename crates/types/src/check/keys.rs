//! Meta rows: each parses, stands where its name belongs, names an object that may be, and counts.

use super::place::{KeyPlace, Report, Shown};
use super::{Context, values};
use crate::key::{Header, deadline_rows};
use haypile_store::base::BaseError;
use haypile_store::check::{Agreement, Findings, Kind, Standing};
use haypile_store::row::{self, Family, SLOTS, Space};
use haypile_store::{COUNTERS, Counter, CountsAt, Key};
use std::collections::BTreeMap;

/// Counts of the rows that the keys of a space call for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub keys: u64,
    /// Deadline rows of keys and of fields.
    pub deadlines: u64,
    /// Agreement over the expected deadline rows.
    pub deadline_rows: Agreement,
    /// Keys whose value has an object.
    pub objects: u64,
    counts: CountsAt,
}

pub type Tallies = BTreeMap<Space, Tally>;

const COUNTER_NAMES: [&str; COUNTERS] = [
    "keys",
    "deadlines",
    "strings",
    "lists",
    "sets",
    "sorted sets",
    "hashes",
    "streams",
    "hashes with deadlines of fields",
];

pub(super) fn check(context: &Context<'_>, findings: &mut Findings<'_>) -> Result<Tallies, BaseError> {
    let mut tallies = Tallies::new();
    let mut unknown = None;
    let mut rows = context.merged.family(Family::Meta, &[Family::Meta])?;
    while let Some((row, value)) = rows.row() {
        match row::parse_meta_row(row) {
            None => findings.add(Kind::Row, format_args!("row {}", Shown(row)), "its key is too short"),
            Some(key) => match context.facts.standing(key.space) {
                Standing::Database(database) => {
                    check_key(context, database, &key, value, tallies.entry(key.space).or_default(), findings);
                }
                standing => note_space(standing, key.space, row, value, &mut unknown, findings),
            },
        }
        rows.advance()?;
    }
    context.merged.on_end_of(&[Family::Meta]);
    Ok(tallies)
}

/// Notes a row of a space that is no database. `unknown` is the last such space told, so that each is told once for a
/// family.
pub(super) fn note_space(
    standing: Standing,
    space: Space,
    row: &[u8],
    value: &[u8],
    unknown: &mut Option<Space>,
    findings: &mut Findings<'_>,
) {
    if standing == Standing::Dead {
        findings.garbage.dead_space_rows += 1;
        findings.garbage.dead_space_bytes += (row.len() + value.len()) as u64;
    } else if *unknown != Some(space) {
        *unknown = Some(space);
        let family = row[0];
        let what = format!("there are rows of family {family} in it, and it is no database and not known to be dead");
        findings.add(Kind::Space, format_args!("space {}", space.0), what);
    }
}

fn check_key(
    context: &Context<'_>,
    database: u32,
    key: &Key<'_>,
    value: &[u8],
    tally: &mut Tally,
    findings: &mut Findings<'_>,
) {
    let place = KeyPlace { database, name: key.name };
    tally.keys += 1;
    tally.counts[Counter::Keys as usize] += 1;
    check_standing(context, key, &place, findings);
    let Some(header) = Header::parse(value) else {
        return findings.add(Kind::Key, place, format_args!("its meta row does not parse: {}", Shown(value)));
    };
    tally.counts[header.type_of().counter() as usize] += 1;
    for (deadline_ms, value) in deadline_rows(Some(&header)) {
        tally.deadlines += 1;
        tally.deadline_rows.add(&[value, &row::expire_row(key, deadline_ms)]);
    }
    tally.counts[Counter::Deadlines as usize] += i64::from(header.deadline_ms.is_some());
    tally.counts[Counter::FieldDeadlines as usize] += i64::from(header.fields.is_some());
    if let Some(object) = header.object {
        tally.objects += 1;
        if object.id.0 == 0 || object.id.0 >= context.facts.next_object {
            let what =
                format!("its object {} was never leased: the next one is {}", object.id.0, context.facts.next_object);
            findings.add(Kind::ObjectId, place, what);
        }
    }
    let payload = &value[header.bytes_len()..];
    values::check_payload(&header, payload, &mut Report { findings, database, key });
}

/// Checks that slot and hash in a row's key are those of the name.
pub(super) fn check_standing(context: &Context<'_>, key: &Key<'_>, place: &KeyPlace<'_>, findings: &mut Findings<'_>) {
    let slot = row::slot_of(key.name);
    if key.slot != slot {
        findings.add(
            Kind::Key,
            place,
            format_args!("it stands in slot {}, its name belongs to {}", key.slot.0, slot.0),
        );
    }
    if let Some(hash) = context.hash_seed().map(|seed| row::hash_of(key.name, seed))
        && key.hash != hash
    {
        findings.add(Kind::Key, place, format_args!("it stands at hash {:08x}, its name has {hash:08x}", key.hash));
    }
}

/// Compares the counters of each space with what was counted.
pub(super) fn check_counters(context: &Context<'_>, tallies: &Tallies, findings: &mut Findings<'_>) {
    let mut spaces: Vec<Space> = context.facts.counted_spaces().chain(tallies.keys().copied()).collect();
    spaces.sort_unstable();
    spaces.dedup();
    for space in spaces {
        let Standing::Database(database) = context.facts.standing(space) else { continue };
        let (stated, counted) = (context.facts.counts(space), tallies.get(&space).copied().unwrap_or_default().counts);
        for ((name, stated), counted) in COUNTER_NAMES.iter().zip(stated).zip(counted) {
            if stated != counted {
                let what = format!("its counter of {name} is {stated}, there are {counted}");
                findings.add(Kind::Counter, format_args!("database {database}"), what);
            }
        }
    }
}

/// Tells whether rows of an object may stand in a slot.
pub(super) fn is_slot(slot: row::Slot) -> bool {
    usize::from(slot.0) < SLOTS
}
