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

use crate::key::{Header, Object, deadline_rows};
use haypile_store::base::BaseError;
use haypile_store::check::{Facts, Finding, Findings, Merged};
use haypile_store::{Key, Txn, row};
use place::Shown;

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

/// Returns the defects of the keys that a transaction writes and leaves there, in words, as far as memory tells:
/// collections without elements, or with others than they count; heads that say what cannot be; deadline and owner
/// rows that are missing or those of another key. No disk is read: a row that only the disk may have passes for sound.
pub fn defects_left(txn: &Txn<'_>) -> Vec<String> {
    let (mut defects, mut beside) = (Vec::new(), Vec::new());
    txn.visit_left(|key, row| {
        let Some(header) = Header::parse(row) else { return defects.push("a meta row does not parse".into()) };
        defects.extend(defects_of_meta_row(key, &header, row));
        for (deadline_ms, value) in deadline_rows(Some(&header)) {
            beside.push((row::expire_row(key, deadline_ms), value.to_vec()));
        }
        if let Some(Object { id, slot }) = header.object {
            beside.push((row::owner_row(key.space, slot, id), key.name.to_vec()));
        }
    });
    for (row, value) in beside {
        let Some(left) = txn.left_in_memory(&row) else { continue };
        if left.as_deref() != Some(&value[..]) {
            defects.push(format!("row {} is to be {}, and is {left:?}", Shown(&row), Shown(&value)));
        }
    }
    defects
}

/// Returns the defects of a key's meta row that its own bytes tell, in words.
fn defects_of_meta_row(key: &Key<'_>, header: &Header, row: &[u8]) -> Vec<String> {
    let mut defects = Vec::new();
    let mut tell = |finding: &Finding| defects.push(format!("{}: {}", finding.place, finding.what));
    let mut findings = Findings::new(u64::MAX, &mut tell);
    let payload = &row[header.bytes_len()..];
    values::check_payload(header, payload, &mut place::Report { findings: &mut findings, database: 0, key });
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
