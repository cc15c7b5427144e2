//! The entries of a log that was opened, as its records tell of them.

use crate::configuration::Configuration;
use crate::entries::Entries;
use crate::machine::{Fault, Machine};
use haypile_log::{EntrySpan, Index, Kind, Next, Record, Through};
use std::sync::Arc;

/// An entry that is being read, and the members behind it where it changes them.
type Read = (EntrySpan, Option<Arc<Configuration>>);

fn damaged(what: impl Into<String>) -> Fault {
    Fault::Damaged(what.into())
}

/// Returns the entries of a log.
///
/// # Errors
/// The log is damaged.
pub fn survey(machine: &impl Machine) -> Result<Entries, Fault> {
    let log = machine.log();
    let first = log.stats().first;
    let mut reader = log.reader(Index(first.0.saturating_sub(1))).through(Through::Synced);
    let mut entries: Option<Entries> = (first <= Index(1)).then(|| Entries::new(0, 0, Index(0)));
    let mut open: Option<Read> = None;
    loop {
        let record = match reader.next().map_err(|error| damaged(error.to_string()))? {
            Next::Record(record) => Some(record),
            Next::UpToDate => None,
            Next::Gap(first) => return Err(damaged(format!("the log begins with record {first} only"))),
        };
        if let (Some((span, None)), Some(record)) = (&mut open, &record)
            && (span.term, span.number) == (record.term, record.entry)
        {
            span.last = record.index;
            continue;
        }
        if let Some(read) = open.take() {
            add(&mut entries, read)?;
        }
        match record {
            Some(record) => open = Some(begin(&record)?),
            None => return Ok(entries.unwrap_or_else(|| Entries::new(0, 0, Index(0)))),
        }
    }
}

/// Begins to read an entry.
fn begin(record: &Record<'_>) -> Result<Read, Fault> {
    let changes_members = record.kind == Kind::Members;
    let Record { term, entry: number, index, .. } = *record;
    let what = || damaged(format!("record {index} changes the members, and does not say who they are"));
    let change = changes_members.then(|| Configuration::of_record(record.body).ok_or_else(what)).transpose()?;
    Ok((EntrySpan { term, number, first: index, last: index, changes_members }, change.map(Arc::new)))
}

fn add(entries: &mut Option<Entries>, (span, change): Read) -> Result<(), Fault> {
    match entries {
        Some(entries) if span.number == entries.last() + 1 => entries.push(span, change),
        Some(known) if span.number > 0 => {
            return Err(damaged(format!("entry {} of the log does not follow on entry {}", span.number, known.last())));
        }
        // Records from before the group count as its first entry: a member without them gets a copy.
        none if span.number == 0 => *none = Some(Entries::new(1, 1, span.last)),
        // Records before the first entry that is known as a whole.
        none => *none = Some(Entries::new(span.term, span.number, span.last)),
    }
    Ok(())
}
