//! Streams: docs/format/stream.md.

use super::collection::check_count;
use super::objects::ObjectRows;
use super::place::Report;
use super::stream_group::Groups;
use super::stream_producers::ProducersRows;
use crate::stream::{Fields, Head, Kind, StreamId};
use haypile_store::base::BaseError;

pub(super) fn check_head(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    let Some(head) = Head::parse(payload) else {
        report.add(format_args!("its payload has {} bytes, not {}", payload.len(), Head::BYTES));
        return;
    };
    let Head { count, last, first, .. } = head;
    if (count == 0) != (first == StreamId::MIN) {
        report.add(format_args!("it has {count} entries, and its first one is said to be {first}"));
    }
    if first > last {
        report.add(format_args!("its first entry is {first}, above its last id {last}"));
    }
}

pub(super) fn check_rows(
    payload: &[u8],
    rows: &mut ObjectRows<'_, '_>,
    report: &mut Report<'_, '_, '_>,
) -> Result<(), BaseError> {
    let Some(head) = Head::parse(payload) else { return Ok(()) };
    let mut entries = Entries { count: 0, first: None, last: StreamId::MIN };
    let (mut groups, look) = (Groups::default(), rows.look());
    let mut producers = ProducersRows::default();
    while let Some((element, value)) = rows.data.next()? {
        match element.split_first() {
            Some((kind, rest)) if *kind == Kind::Entry as u8 => entries.check(rest, value, report),
            Some((kind, rest)) if (Kind::Producers as u8..Kind::End as u8).contains(kind) => {
                producers.check(*kind, rest, value, report)
            }
            Some((kind, rest)) => groups.check(*kind, rest, value, report),
            None => report.add("there is a row without a kind"),
        }
    }
    entries.finish(&head, report);
    groups.finish(look, report)?;
    producers.finish(report);
    rows.expect_no_scores(report)
}

/// The sums that the rows of entries have to give.
struct Entries {
    count: u64,
    first: Option<StreamId>,
    last: StreamId,
}

impl Entries {
    fn check(&mut self, id: &[u8], value: &[u8], report: &mut Report<'_, '_, '_>) {
        let Ok(id) = id.try_into().map(StreamId::from_bytes) else {
            report.add(format_args!("the row of an entry has a key of {} bytes behind the kind", id.len()));
            return;
        };
        if Fields::of(value).is_none() {
            report.add(format_args!("entry {id}: its fields are cut off, or no pairs"));
        }
        self.count += 1;
        self.first = self.first.or(Some(id));
        self.last = id;
    }

    fn finish(self, head: &Head, report: &mut Report<'_, '_, '_>) {
        check_count(head.count, self.count, report);
        if let Some(first) = self.first.filter(|first| *first != head.first) {
            report.add(format_args!("its first entry is said to be {}, and is {first}", head.first));
        }
        if self.last > head.last {
            report.add(format_args!("it has an entry {}, above its last id {}", self.last, head.last));
        }
    }
}
