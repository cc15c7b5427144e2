//! The entries of a log that was opened, as its records tell of them.

use crate::configuration::Configuration;
use crate::entries::{ENTRIES_MAX, Entries};
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
    survey_at_most(machine, ENTRIES_MAX)
}

/// Returns the entries of a log: so many, and all that the data lack.
fn survey_at_most(machine: &impl Machine, max: usize) -> Result<Entries, Fault> {
    let (log, applied) = (machine.log(), machine.applied());
    let begin_behind = |(term, number), last| Entries::new(term, number, last).at_most(max);
    let first = log.stats().first;
    let mut reader = log.reader(Index(first.0.saturating_sub(1))).through(Through::Synced);
    let mut entries: Option<Entries> = (first <= Index(1)).then(|| begin_behind((0, 0), Index(0)));
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
            match before_all(entries.as_ref(), &read.0)? {
                Some(entry) => entries = Some(begin_behind(entry, read.0.last)),
                None => entries.iter_mut().for_each(|entries| entries.push(read.0, read.1.clone(), applied)),
            }
        }
        match record {
            Some(record) => open = Some(begin(&record)?),
            None => return Ok(entries.unwrap_or_else(|| begin_behind((0, 0), Index(0)))),
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

/// Returns term and number of an entry that was read if it is to lie before all that are known; None if it is the next
/// one.
fn before_all(entries: Option<&Entries>, span: &EntrySpan) -> Result<Option<(u64, u64)>, Fault> {
    match entries {
        Some(entries) if span.number == entries.last() + 1 => Ok(None),
        Some(known) if span.number > 0 => {
            Err(damaged(format!("entry {} of the log does not follow on entry {}", span.number, known.last())))
        }
        // Records from before the group count as its first entry: a member without them gets a copy.
        _ if span.number == 0 => Ok(Some((1, 1))),
        // Records before the first entry that is known as a whole.
        _ => Ok(Some((span.term, span.number))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Change;
    use crate::trial::{data, keep};

    #[test]
    fn entries_that_the_data_lack_are_all_known() {
        let mut data = data();
        keep(&data, (1, 1));
        data.log().write();
        data.apply(Index(1)).expect("nothing is broken");
        data.lead(1, 2);
        let members = Configuration::parse("1@a:1").expect("these are members");
        let members = members.changed_by(&Change::Add { id: 2, address: "b:1".into() }).expect("there is none");
        data.change_members(members.to_string().as_bytes()).expect("there is room");
        data.log().write();
        data.node().sync();
        // The data have what the base has: nothing of what was applied.
        data.rebuild(Index(u64::MAX), Index(0)).expect("nothing is broken");
        (3..=30).for_each(|number| keep(&data, (1, number)));
        data.log().write();
        data.node().sync();
        let entries = survey_at_most(&data, 8).expect("the log is sound");
        assert_eq!((entries.first(), entries.last()), (1, 30));
        assert_eq!(entries.last_change().map(|known| known.to_string()), Some(members.to_string()));
        data.apply(Index(20)).expect("nothing is broken");
        assert_eq!(survey_at_most(&data, 8).expect("the log is sound").first(), 21);
        data.apply(Index(30)).expect("nothing is broken");
        assert_eq!(survey_at_most(&data, 8).expect("the log is sound").first(), 23);
    }
}
