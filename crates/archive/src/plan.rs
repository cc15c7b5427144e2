//! The way to a moment: a backup at or before the moment that is asked for, and the chunks from there on.
//!
//! Pure bookkeeping over a catalog: nothing is read.

use crate::catalog::Catalog;
use crate::chain::Chain;
use crate::manifest::Manifest;
use crate::names::{ChunkName, exact_time};
use haypile_log::{History, Index};
use std::collections::BTreeMap;
use std::fmt;

/// The moment whose data are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The newest moment that the archive has.
    Newest,
    /// The moment after this record.
    Index(Index),
    /// The moment after the last record that was made at or before this time, in milliseconds since 1970.
    Time(u64),
}

/// The way to a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub backup: Manifest,
    /// The histories on the way; the last one goes on.
    pub chain: Chain,
    /// The chunks in the order of their records, each with the last record that counts of it.
    pub chunks: Vec<(ChunkName, Index)>,
    /// The last record that may be taken; the data end before, at the first one that is later than `time_ms`.
    pub through: Index,
    /// The latest time of a record that is taken, in milliseconds since 1970; None for records of any time.
    pub time_ms: Option<u64>,
}

/// Records that an archive lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The last record before the hole.
    pub after: Index,
    /// The first record behind the hole, if there is one.
    pub next: Option<Index>,
    pub history: History,
}

/// Why there is no way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The archive has no backup, or none of this history.
    NoBackup,
    /// No such history is known.
    NoHistory(History),
    /// The oldest backup on the way is of a later moment than the target: its first record and its time.
    TooEarly(Index, u64),
    /// The archive ends before the record that is asked for, with this one.
    Ends(Index),
    /// Records are missing on the way.
    Hole(Hole),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::NoBackup => f.write_str("there is no backup to begin with"),
            PlanError::NoHistory(history) => write!(f, "there is no history {history} in this archive"),
            PlanError::TooEarly(index, time_ms) => {
                let time = exact_time(*time_ms);
                write!(f, "the oldest backup is of a later moment: record {index}, complete at {time}")
            }
            PlanError::Ends(last) => write!(f, "the archive ends with record {last}"),
            PlanError::Hole(hole) => hole.fmt(f),
        }
    }
}

impl std::error::Error for PlanError {}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hole { after, next, history } = self;
        write!(f, "record {} ", after.next())?;
        if let Some(next) = next {
            write!(f, "to {} ", next.0 - 1)?;
        }
        write!(f, "of history {history} are missing: {}", restorable(*after))
    }
}

/// Returns how people are told how far the data can be restored.
pub fn restorable(through: Index) -> String {
    format!("the data can be restored through record {through} (--to {through})")
}

/// Finds the way to a moment, in this history or in the one that was written to last.
///
/// # Errors
/// There is none.
pub fn plan(catalog: &Catalog, history: Option<History>, target: Target) -> Result<Plan, PlanError> {
    let chain = match history {
        Some(history) => catalog.chain_of(history).ok_or(PlanError::NoHistory(history))?,
        None => catalog.newest().ok_or(PlanError::NoBackup)?.1,
    };
    let backup = choose(catalog, &chain, target)?;
    let found = follow(catalog, &chain, backup, target);
    if let (Err(PlanError::Hole(_) | PlanError::Ends(_)), Target::Index(index)) = (&found, target) {
        // The log of a backup behind a hole may have the record.
        let has_it = |other: &&Manifest| {
            chain.leads_from(other.history(), other.through) && (other.applied..=other.through).contains(&index)
        };
        if let Some(other) = catalog.backups.iter().find(has_it) {
            return follow(catalog, &chain, other, target);
        }
    }
    found
}

/// Follows the log from a backup to a moment.
fn follow(catalog: &Catalog, chain: &Chain, backup: &Manifest, target: Target) -> Result<Plan, PlanError> {
    let (mut reached, mut chunks, mut last_ms) = (backup.through, Vec::new(), 0);
    let is_there = |reached: Index, last_ms: u64| match target {
        Target::Newest => false,
        Target::Index(index) => reached >= index,
        Target::Time(time_ms) => last_ms > time_ms,
    };
    while !is_there(reached, last_ms) {
        let Some((chunk, last)) = catalog.next_chunk(chain, reached) else { break };
        chunks.push((chunk, last));
        // The records of a chunk that do not count may be the late ones.
        (reached, last_ms) = (last, if last == chunk.last { chunk.time_ms } else { 0 });
    }
    if !is_there(reached, last_ms) {
        // All that is there was gone through.
        if let Some(next) = behind(catalog, chain, reached) {
            let history = chain.history_behind(reached).unwrap_or(backup.history());
            return Err(PlanError::Hole(Hole { after: reached, next: Some(next), history }));
        }
        if let Target::Index(_) = target {
            return Err(PlanError::Ends(reached));
        }
    }
    let (through, time_ms) = match target {
        Target::Newest => (reached, None),
        Target::Index(index) => (index, None),
        Target::Time(time_ms) => (reached, Some(time_ms)),
    };
    Ok(Plan { backup: backup.clone(), chain: chain.clone(), chunks, through, time_ms })
}

/// Returns the records that are missing behind the backups that lead to where a chain ends, the oldest first.
pub fn holes(catalog: &Catalog, chain: &Chain) -> Vec<Hole> {
    let leads = catalog.backups.iter().filter(|backup| chain.leads_from(backup.history(), backup.through));
    let found = leads.filter_map(|backup| {
        let after = catalog.reach(chain, backup.through);
        let next = behind(catalog, chain, after)?;
        Some((after, Hole { after, next: Some(next), history: chain.history_behind(after)? }))
    });
    let by_place: BTreeMap<Index, Hole> = found.collect();
    by_place.into_values().collect()
}

/// Returns the last record through which the data can be restored before each of these damaged chunks, of which the
/// last record that can be read is known, or the one before the first; None where nothing leads there.
pub fn through_damage(catalog: &Catalog, damaged: &[(ChunkName, Index)]) -> Vec<Option<Index>> {
    let sound = catalog.sound(damaged);
    let reached = damaged.iter().map(|(chunk, last)| {
        let way = plan(&sound, Some(chunk.history), Target::Index(*last));
        way.is_ok().then_some(*last)
    });
    reached.collect()
}

/// Returns the first record behind `reached` that the archive has of this chain.
fn behind(catalog: &Catalog, chain: &Chain, reached: Index) -> Option<Index> {
    let starts = chain.starts().iter().enumerate();
    let of_lanes = starts.filter_map(|(at, start)| {
        let lane = catalog.lanes.get(&start.history)?;
        lane.first_behind(reached.max(start.after())).filter(|first| *first <= chain.end(at))
    });
    of_lanes.min()
}

/// Returns the backup to begin with: the newest one that is not behind the moment.
fn choose<'a>(catalog: &'a Catalog, chain: &Chain, target: Target) -> Result<&'a Manifest, PlanError> {
    let leads = |backup: &&Manifest| chain.leads_from(backup.history(), backup.through);
    let usable: Vec<&Manifest> = catalog.backups.iter().filter(leads).collect();
    let oldest = usable.iter().min_by_key(|backup| backup.applied).ok_or(PlanError::NoBackup)?;
    let chosen = match target {
        Target::Newest => usable.iter().max_by_key(|backup| backup.through),
        Target::Index(index) => {
            let before = usable.iter().filter(|backup| backup.through <= index).max_by_key(|backup| backup.through);
            // The log of a backup may be taken in part.
            before.or_else(|| usable.iter().find(|backup| (backup.applied..=backup.through).contains(&index)))
        }
        Target::Time(time_ms) => {
            usable.iter().filter(|backup| backup.made_ms <= time_ms).max_by_key(|backup| backup.through)
        }
    };
    chosen.copied().ok_or(PlanError::TooEarly(oldest.applied, oldest.made_ms))
}
