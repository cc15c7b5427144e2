//! Checks that all rows of a data directory are as docs/format says: keys and the rows beside them, objects and their
//! owners, counters, and the rules of each type for its values. Reads rows in order, each family once; looks up single
//! rows only where something does not add up, and for the owner of each object. Changes nothing.
//!
//! `keys` is the pass over meta rows, `deadlines` and `objects` those over the rest, `values` picks the checker of a
//! value; each type has a file of its own. Read only: built on `haypile_store::check`.

mod deadlines;
mod keys;
mod objects;
mod place;
mod values;

mod collection;
mod hash;
mod list;
mod set;
mod stream;
mod stream_group;
mod stream_producers;
mod string;
mod tree;
mod zset;

use crate::key::Header;
use haypile_store::Key;
use haypile_store::base::BaseError;
use haypile_store::check::{Facts, Finding, Findings, Merged};

/// The contents of a sound directory, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub keys: u64,
    /// Objects with an owner.
    pub objects: u64,
    pub deadlines: u64,
}

/// Checks all rows but those of the store itself, which `facts` comes from.
pub fn check(merged: &Merged<'_>, facts: &Facts, findings: &mut Findings<'_>) -> Result<Seen, BaseError> {
    let context = Context { merged, facts };
    let tallies = keys::check(&context, findings)?;
    let objects = objects::check(&context, &tallies, findings)?;
    deadlines::check(&context, &tallies, findings)?;
    keys::check_counters(&context, &tallies, findings);
    let sum = |count: fn(&keys::Tally) -> u64| tallies.values().map(count).sum();
    Ok(Seen { keys: sum(|tally| tally.keys), objects, deadlines: sum(|tally| tally.deadlines) })
}

/// Returns the defects of a key's meta row that its own bytes tell, in words.
pub fn defects_of_meta_row(key: &Key<'_>, row: &[u8]) -> Vec<String> {
    let Some(header) = Header::parse(row) else { return vec!["it does not parse".into()] };
    let mut defects = Vec::new();
    let mut tell = |finding: &Finding| defects.push(format!("{}: {}", finding.place, finding.what));
    let mut findings = Findings::new(u64::MAX, &mut tell);
    let payload = &row[header.bytes_len()..];
    values::check_payload(&header, payload, &mut place::Report { findings: &mut findings, database: 0, key });
    defects
}

/// The rows and facts that every pass reads.
struct Context<'c> {
    merged: &'c Merged<'c>,
    facts: &'c Facts,
}

impl Context<'_> {
    /// Returns the secret of key and element hashes. A missing one has been noted, and hashes are not compared then.
    fn hash_seed(&self) -> Option<u64> {
        self.facts.hash_seed
    }
}
