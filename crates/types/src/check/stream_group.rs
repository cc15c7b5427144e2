//! Consumer groups of a stream: docs/format/stream_group.md. Every pending entry has two rows, which must agree, and
//! both are counted: by the group and by its consumer, if it has one.
//!
//! Groups and consumers are kept in memory while the rows of pending entries, which may be many more, pass by.

use super::objects::Look;
use super::place::{Report, Shown};
use crate::stream::{Census, ConsumerState, GroupState, Holder, Kind, Pending, StreamId};
use haypile_store::base::BaseError;
use haypile_store::check::Agreement;
use std::collections::BTreeMap;

/// The groups of one stream, as far as rows have shown them. Rows come in the order of their kinds.
#[derive(Default)]
pub(super) struct Groups {
    by_number: BTreeMap<u32, Group>,
    census: Option<Census>,
    /// Rows by id, and rows by consumer.
    by_id: Agreement,
    by_consumer: Agreement,
    /// Rows by id of entries without consumer, and rows by their order.
    unowned_by_id: Agreement,
    by_order: Agreement,
}

struct Group {
    name: Vec<u8>,
    state: GroupState,
    consumers: BTreeMap<u32, Consumer>,
    numbers: BTreeMap<Vec<u8>, u32>,
    pending: u64,
    nacked: u64,
}

struct Consumer {
    name: Vec<u8>,
    stated: u64,
    pending: u64,
}

/// A pending entry as both of its rows name it: group, consumer, id.
type Claim = (u32, u32, StreamId);

fn add(to: &mut Agreement, (group, consumer, id): Claim) {
    to.add(&[&group.to_be_bytes(), &consumer.to_be_bytes(), &id.to_bytes()]);
}

/// Adds an entry without consumer as both of its rows name it.
fn add_unowned(to: &mut Agreement, group: u32, order: u64, id: StreamId) {
    to.add(&[&group.to_be_bytes(), &order.to_be_bytes(), &id.to_bytes()]);
}

/// Splits off a number of four bytes.
fn numbered(rest: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = rest.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*number), rest))
}

fn id_of(rest: &[u8]) -> Option<StreamId> {
    Some(StreamId::from_bytes(rest.try_into().ok()?))
}

impl Groups {
    /// Checks a row that is not an entry's, by its kind and the rest of its key.
    pub fn check(&mut self, kind: u8, rest: &[u8], value: &[u8], report: &mut Report<'_, '_, '_>) {
        let wrong = match kind {
            kind if kind == Kind::Group as u8 => self.group(rest, value, report),
            kind if kind == Kind::Consumer as u8 => self.consumer(rest, value, report),
            kind if kind == Kind::Pending as u8 => self.pending(rest, value),
            kind if kind == Kind::ByConsumer as u8 => self.by_consumer(rest, value),
            kind if kind == Kind::Census as u8 => self.census(rest, value),
            kind if kind == Kind::Nacked as u8 => self.nacked(rest, value),
            _ => Err(format!("there is a row of kind {kind}, which is none")),
        };
        if let Err(what) = wrong {
            report.add(what);
        }
    }

    fn group(&mut self, name: &[u8], value: &[u8], report: &mut Report<'_, '_, '_>) -> Result<(), String> {
        let state = GroupState::parse(value).ok_or_else(|| format!("group {}: its row does not parse", Shown(name)))?;
        let (consumers, numbers) = Default::default();
        let group = Group { name: name.to_vec(), state, consumers, numbers, pending: 0, nacked: 0 };
        if let Some(other) = self.by_number.insert(state.number, group) {
            report.add(format_args!("groups {} and {} have number {}", Shown(&other.name), Shown(name), state.number));
        }
        Ok(())
    }

    fn consumer(&mut self, rest: &[u8], value: &[u8], report: &mut Report<'_, '_, '_>) -> Result<(), String> {
        let (group, name) = numbered(rest).ok_or("the row of a consumer has a key that is too short")?;
        let place = format!("consumer {} of group {group}", Shown(name));
        let state = ConsumerState::parse(value).ok_or_else(|| format!("{place}: its row does not parse"))?;
        let group = self.by_number.get_mut(&group).ok_or_else(|| format!("{place}: there is no such group"))?;
        if state.number >= group.state.next_consumer {
            let next = group.state.next_consumer;
            report.add(format_args!("{place}: its number is {}, the next new one gets {next}", state.number));
        }
        let consumer = Consumer { name: name.to_vec(), stated: state.pending, pending: 0 };
        group.numbers.insert(name.to_vec(), state.number);
        match group.consumers.insert(state.number, consumer) {
            Some(other) => Err(format!("{place}: it has number {}, as has {}", state.number, Shown(&other.name))),
            None => Ok(()),
        }
    }

    fn pending(&mut self, rest: &[u8], value: &[u8]) -> Result<(), String> {
        let Some((number, Some(id))) = numbered(rest).map(|(number, rest)| (number, id_of(rest))) else {
            return Err(format!("the row of a pending entry has a key of {} bytes behind the kind", rest.len()));
        };
        let place = format!("pending entry {id} of group {number}");
        let pending = Pending::parse(value).ok_or_else(|| format!("{place}: its row does not parse"))?;
        let group = self.by_number.get_mut(&number).ok_or_else(|| format!("{place}: there is no such group"))?;
        group.pending += 1;
        let name = match pending.holder {
            Holder::Consumer(name) => name,
            Holder::Nobody { order } => {
                add_unowned(&mut self.unowned_by_id, number, order, id);
                return Ok(());
            }
        };
        match group.numbers.get(name) {
            Some(consumer) => {
                add(&mut self.by_id, (number, *consumer, id));
                Ok(())
            }
            None => Err(format!("{place}: its consumer {} is none of the group", Shown(name))),
        }
    }

    fn nacked(&mut self, rest: &[u8], value: &[u8]) -> Result<(), String> {
        let place =
            numbered(rest).and_then(|(number, order)| Some((number, u64::from_be_bytes(order.try_into().ok()?))));
        let (Some((number, order)), Some(id)) = (place, id_of(value)) else {
            return Err("the row of an entry without consumer does not parse".into());
        };
        let place = format!("entry {id} of group {number}, which has no consumer");
        let group = self.by_number.get_mut(&number).ok_or_else(|| format!("{place}: there is no such group"))?;
        group.nacked += 1;
        add_unowned(&mut self.by_order, number, order, id);
        let next = group.state.next_nack;
        if order < next { Ok(()) } else { Err(format!("{place}: its order is {order}, the next one gets {next}")) }
    }

    fn by_consumer(&mut self, rest: &[u8], value: &[u8]) -> Result<(), String> {
        let Some((number, consumer, id)) = claim_of(rest) else {
            return Err(format!("the row of a consumer's entry has a key of {} bytes behind the kind", rest.len()));
        };
        let place = format!("entry {id} of consumer {consumer} of group {number}");
        let group = self.by_number.get_mut(&number).ok_or_else(|| format!("{place}: there is no such group"))?;
        let of = group.consumers.get_mut(&consumer).ok_or_else(|| format!("{place}: there is no such consumer"))?;
        of.pending += 1;
        add(&mut self.by_consumer, (number, consumer, id));
        if value.is_empty() { Ok(()) } else { Err(format!("{place}: its row has a value")) }
    }

    fn census(&mut self, rest: &[u8], value: &[u8]) -> Result<(), String> {
        self.census = Census::parse(value);
        match self.census {
            Some(_) if rest.is_empty() => Ok(()),
            _ => Err("the row with the number of its groups does not parse".into()),
        }
    }

    /// Compares the counts after the last row.
    pub fn finish(&self, look: Look<'_>, report: &mut Report<'_, '_, '_>) -> Result<(), BaseError> {
        let census = self.census.unwrap_or_default();
        if u64::from(census.groups) != self.by_number.len() as u64 {
            report.add(format_args!("it is said to have {} groups, there are {}", census.groups, self.by_number.len()));
        }
        for (number, group) in &self.by_number {
            let GroupState { pending, consumers, .. } = group.state;
            let name = Shown(&group.name);
            if *number >= census.next {
                report.add(format_args!("group {name}: its number is {number}, the next new one gets {}", census.next));
            }
            if u64::from(consumers) != group.consumers.len() as u64 {
                let found = group.consumers.len();
                report.add(format_args!("group {name}: it is said to have {consumers} consumers, there are {found}"));
            }
            if pending != group.pending {
                let found = group.pending;
                report.add(format_args!("group {name}: {pending} entries are said to be pending, there are {found}"));
            }
            if group.state.nacked != group.nacked {
                let (stated, found) = (group.state.nacked, group.nacked);
                report.add(format_args!(
                    "group {name}: {stated} entries are said to have no consumer, there are {found}"
                ));
            }
            for Consumer { name: consumer, stated, pending } in group.consumers.values() {
                if stated != pending {
                    report.add(format_args!(
                        "group {name}: {stated} entries are said to be pending for consumer {}, there are {pending}",
                        Shown(consumer)
                    ));
                }
            }
        }
        if self.by_id != self.by_consumer {
            report.add("the rows of pending entries by id and those by consumer do not agree");
            self.explain(look, report)?;
        }
        if self.unowned_by_id != self.by_order {
            report.add("the rows of entries without consumer by id and those by order do not agree");
        }
        Ok(())
    }

    /// Reports which rows of pending entries lack the other one.
    fn explain(&self, look: Look<'_>, report: &mut Report<'_, '_, '_>) -> Result<(), BaseError> {
        let element = |kind: Kind, parts: &[&[u8]]| [&[kind as u8], &parts.concat()[..]].concat();
        look.each_data(|row, value| {
            let Some((kind, rest)) = row.split_first() else { return Ok(()) };
            if *kind == Kind::Pending as u8
                && let Some((number, rest)) = numbered(rest)
                && let (Some(id), Some(pending)) = (id_of(rest), Pending::parse(value))
                && let Some(group) = self.by_number.get(&number)
                && let Some(name) = pending.holder.consumer()
                && let Some(consumer) = group.numbers.get(name)
            {
                let other = [&number.to_be_bytes()[..], &consumer.to_be_bytes(), &id.to_bytes()];
                if look.data(&element(Kind::ByConsumer, &other))?.is_none() {
                    let (group, consumer) = (Shown(&group.name), Shown(name));
                    report.add(format_args!(
                        "group {group}: entry {id} is pending, and consumer {consumer} has no row of it"
                    ));
                }
            } else if *kind == Kind::ByConsumer as u8
                && let Some((number, consumer, id)) = claim_of(rest)
                && let Some(group) = self.by_number.get(&number)
                && let Some(Consumer { name, .. }) = group.consumers.get(&consumer)
            {
                let found = look.data(&element(Kind::Pending, &[&number.to_be_bytes(), &id.to_bytes()]))?;
                let (group, consumer) = (Shown(&group.name), Shown(name));
                match found.as_deref().map(Pending::parse) {
                    None => report.add(format_args!(
                        "group {group}: consumer {consumer} has a row of entry {id}, which is not pending"
                    )),
                    Some(Some(pending)) if pending.holder.consumer() != Some(name) => report.add(format_args!(
                        "group {group}: consumer {consumer} has a row of entry {id}, which {} has",
                        Shown(pending.holder.consumer().unwrap_or(b"nobody"))
                    )),
                    Some(_) => {}
                }
            }
            Ok(())
        })
    }
}

/// Returns what the key of a row by consumer says, behind its kind.
fn claim_of(rest: &[u8]) -> Option<Claim> {
    let (group, rest) = numbered(rest)?;
    let (consumer, rest) = numbered(rest)?;
    Some((group, consumer, id_of(rest)?))
}
