//! The store's own facts as the directory states them: the spaces, the counters, the ids that were given out. Each
//! system row has to parse and to have a known name (docs/format/directory.md).

use super::{Above, Findings, Kind, Merged};
use crate::base::BaseError;
use crate::databases::{COUNTERS, CountsAt, DATABASES_MAX};
use crate::facts::is_fact_row;
use crate::origin::{ORIGIN, ORIGIN_BYTES};
use crate::row::{Family, Space, SystemScope};
use crate::store::members_row;
use haypile_log::Index;
use std::collections::BTreeMap;

/// The standing of a space: a database, dead, or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Database(u32),
    /// The space's rows are garbage.
    Dead,
    /// The space's rows belong to no database that is known.
    Unknown,
}

#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The key hash's secret; None of a store that was never written to.
    pub hash_seed: Option<u64>,
    /// The first object id that was never leased.
    pub next_object: u64,
    /// Invariant: objects below this id are wholly in the base, or gone.
    pub settled: u64,
    /// Databases that are not the space of their own number.
    databases: BTreeMap<u32, Space>,
    dead: Vec<Space>,
    next_space: u32,
    counts: BTreeMap<u32, CountsAt>,
}

/// A name of a system row, the bytes that follow the name in the row's key, and the bytes of the value.
struct Name {
    scope: SystemScope,
    name: &'static [u8],
    number_bytes: usize,
    value_bytes: usize,
    note: fn(&mut Facts, u32, &[u8]),
}

/// The system rows that are known. A row of another name is a defect.
const NAMES: [Name; 10] = [
    Name {
        scope: SystemScope::Replicated,
        name: b"database/",
        number_bytes: 4,
        value_bytes: 4,
        note: |facts, database, value| {
            facts.databases.insert(database, Space(u32_of(value)));
        },
    },
    Name {
        scope: SystemScope::Local,
        name: b"dead/",
        number_bytes: 4,
        value_bytes: 0,
        note: |facts, space, _| facts.dead.push(Space(space)),
    },
    Name {
        scope: SystemScope::Replicated,
        name: b"next-space",
        number_bytes: 0,
        value_bytes: 4,
        note: |facts, _, value| facts.next_space = u32_of(value),
    },
    Name {
        scope: SystemScope::Replicated,
        name: b"counts/",
        number_bytes: 4,
        value_bytes: COUNTERS * 8,
        note: |facts, space, value| {
            facts.counts.insert(space, counts_of(value));
        },
    },
    Name {
        scope: SystemScope::Replicated,
        name: b"next-object",
        number_bytes: 0,
        value_bytes: 8,
        note: |facts, _, value| facts.next_object = u64_of(value),
    },
    Name {
        scope: SystemScope::Replicated,
        name: b"hash-seed",
        number_bytes: 0,
        value_bytes: 8,
        note: |facts, _, value| facts.hash_seed = Some(u64_of(value)),
    },
    // An intent of a transaction that may not have committed: its object's rows are garbage then, as those of any other
    // object without an owner.
    Name { scope: SystemScope::Replicated, name: b"ahead/", number_bytes: 8, value_bytes: 6, note: |_, _, _| {} },
    Name { scope: SystemScope::Local, name: b"applied", number_bytes: 0, value_bytes: 28, note: |_, _, _| {} },
    Name {
        scope: SystemScope::Replicated,
        name: b"objects-settled",
        number_bytes: 0,
        value_bytes: 8,
        note: |facts, _, value| facts.settled = u64_of(value),
    },
    Name {
        scope: SystemScope::Replicated,
        name: ORIGIN,
        number_bytes: 0,
        value_bytes: ORIGIN_BYTES,
        note: |_, _, _| {},
    },
];

fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("the table of names has checked the length"))
}

fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("the table of names has checked the length"))
}

fn counts_of(bytes: &[u8]) -> CountsAt {
    std::array::from_fn(|at| u64_of(&bytes[at * 8..at * 8 + 8]) as i64)
}

impl Facts {
    /// Reads the system rows, and notes their defects; also rows that belong to no family at all.
    pub fn read(merged: &Merged<'_>, above: &Above, findings: &mut Findings<'_>) -> Result<Facts, BaseError> {
        let mut facts = Facts { next_space: DATABASES_MAX, ..Facts::default() };
        for (from, until) in [(&[][..], &[Family::Meta as u8][..]), (&[Family::System as u8 + 1], &[u8::MAX; 64])] {
            let mut rows = merged.rows(from, until)?;
            while let Some((row, _)) = rows.row() {
                findings.add(Kind::Row, format_args!("row {}", row.escape_ascii()), "it is of no family");
                rows.advance()?;
            }
        }
        let mut rows = merged.rows(&[Family::System as u8], &[Family::System as u8 + 1])?;
        while let Some((row, value)) = rows.row() {
            if let Err(what) = facts.note(row, value) {
                findings.add(Kind::System, format_args!("row {}", row.escape_ascii()), what);
            }
            rows.advance()?;
        }
        for (space, deltas) in &above.counts {
            let counts = facts.counts.entry(*space).or_default();
            counts.iter_mut().zip(deltas).for_each(|(count, delta)| *count += delta);
        }
        facts.check_together(above.last, findings);
        Ok(facts)
    }

    fn note(&mut self, row: &[u8], value: &[u8]) -> Result<(), String> {
        let [_, scope, text @ ..] = row else { return Err("its key is too short".into()) };
        if is_fact_row(row) {
            // The value of a fact is up to the program above.
            return Ok(());
        }
        if *row == *members_row() {
            // A text of the group's.
            let is_text = std::str::from_utf8(value).is_ok_and(|text| !text.is_empty());
            return is_text.then_some(()).ok_or_else(|| "its value is no text".into());
        }
        let of_name = |name: &&Name| {
            *scope == name.scope as u8
                && text.strip_prefix(name.name).is_some_and(|rest| rest.len() == name.number_bytes)
        };
        let name = NAMES.iter().find(of_name).ok_or("nothing is known by this name")?;
        if value.len() != name.value_bytes {
            return Err(format!("its value has {} bytes, not {}", value.len(), name.value_bytes));
        }
        let number = text[name.name.len()..].try_into().map_or(0, u32::from_be_bytes);
        (name.note)(self, number, value);
        Ok(())
    }

    /// Checks the system rows against each other.
    fn check_together(&self, last: Index, findings: &mut Findings<'_>) {
        let mut add = |what: String| findings.add(Kind::System, "system rows", what);
        let mut spaces: BTreeMap<Space, u32> = BTreeMap::new();
        for (&database, &space) in &self.databases {
            if let Some(other) = spaces.insert(space, database) {
                add(format!("databases {other} and {database} are both space {}", space.0));
            }
            if space.0 >= self.next_space {
                add(format!("database {database} is space {}, and {} was never given out", space.0, self.next_space));
            }
            if self.dead.contains(&space) {
                add(format!("database {database} is space {}, which is dead", space.0));
            }
        }
        for (&database, &space) in &self.databases {
            // A database without a row is the space of its own number.
            if space.0 < DATABASES_MAX && !self.databases.contains_key(&space.0) {
                add(format!("databases {} and {database} are both space {}", space.0, space.0));
            }
        }
        if self.settled > self.next_object {
            let (settled, next) = (self.settled, self.next_object);
            add(format!("objects below {settled} are settled, and {next} was never leased"));
        }
        // The base has it from before the first record.
        if self.hash_seed.is_none() && last.0 > 0 {
            add("the hash seed is missing".into());
        }
        for (&space, counts) in &self.counts {
            if self.standing(Space(space)) == Standing::Unknown && counts.iter().any(|count| *count != 0) {
                add(format!("there are counters of space {space}, which is no database"));
            }
        }
    }

    pub fn standing(&self, space: Space) -> Standing {
        if self.dead.contains(&space) {
            return Standing::Dead;
        }
        if let Some((database, _)) = self.databases.iter().find(|(_, at)| **at == space) {
            return Standing::Database(*database);
        }
        if space.0 < DATABASES_MAX && !self.databases.contains_key(&space.0) {
            return Standing::Database(space.0);
        }
        Standing::Unknown
    }

    /// Returns the counters of a space.
    pub fn counts(&self, space: Space) -> CountsAt {
        self.counts.get(&space.0).copied().unwrap_or_default()
    }

    /// Returns the live spaces that have counters.
    pub fn counted_spaces(&self) -> impl Iterator<Item = Space> {
        let spaces = self.counts.keys().map(|space| Space(*space));
        spaces.filter(|space| matches!(self.standing(*space), Standing::Database(_)))
    }
}
