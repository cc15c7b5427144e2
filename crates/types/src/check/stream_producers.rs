//! Producers of a stream and their idempotent IDs: docs/format/stream_producers.md. Each idempotent ID has three rows,
//! which must agree, and is counted by its producer and by all.
//!
//! Producers are kept in memory while the rows of their idempotent IDs pass by.

use super::place::{Report, Shown};
use crate::stream::{Kind, ProducerState, ProducersState, StreamId};
use haypile_store::check::Agreement;
use std::collections::BTreeMap;

/// The producers of one stream, as far as rows have shown them. Rows come in the order of their kinds.
#[derive(Default)]
pub(super) struct ProducersRows {
    all: Option<ProducersState>,
    by_number: BTreeMap<u32, Producer>,
    ids: u64,
    by_name: Agreement,
    of_producer: Agreement,
    by_age: Agreement,
}

struct Producer {
    name: Vec<u8>,
    state: ProducerState,
    ids: u64,
}

/// Splits off a number of four bytes.
fn numbered(rest: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = rest.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*number), rest))
}

/// Splits off the id of an entry.
fn with_id(rest: &[u8]) -> Option<(StreamId, &[u8])> {
    let (id, rest) = rest.split_first_chunk::<{ StreamId::BYTES }>()?;
    Some((StreamId::from_bytes(*id), rest))
}

fn add(to: &mut Agreement, number: u32, id: StreamId, name: &[u8]) {
    to.add(&[&number.to_be_bytes(), &id.to_bytes(), name]);
}

impl ProducersRows {
    /// Checks a row by its kind and the rest of its key.
    pub fn check(&mut self, kind: u8, rest: &[u8], value: &[u8], report: &mut Report<'_, '_, '_>) {
        let wrong = match kind {
            kind if kind == Kind::Producers as u8 => self.all(rest, value),
            kind if kind == Kind::Producer as u8 => self.producer(rest, value),
            kind if kind == Kind::Idempotent as u8 => self.idempotent(rest, value),
            kind if kind == Kind::OfProducer as u8 => self.of_producer(rest, value),
            _ => self.by_age(rest, value),
        };
        if let Err(what) = wrong {
            report.add(what);
        }
    }

    fn all(&mut self, rest: &[u8], value: &[u8]) -> Result<(), String> {
        self.all = ProducersState::parse(value);
        match self.all {
            Some(_) if rest.is_empty() => Ok(()),
            _ => Err("the row about all of its producers does not parse".into()),
        }
    }

    fn producer(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let place = format!("producer {}", Shown(name));
        let state = ProducerState::parse(value).ok_or_else(|| format!("{place}: its row does not parse"))?;
        let next = self.all.map_or(0, |all| all.next);
        let other = self.by_number.insert(state.number, Producer { name: name.to_vec(), state, ids: 0 });
        match other {
            Some(other) => Err(format!("{place}: it has number {}, as has {}", state.number, Shown(&other.name))),
            None if state.number >= next => {
                Err(format!("{place}: its number is {}, the next new one gets {next}", state.number))
            }
            None => Ok(()),
        }
    }

    fn idempotent(&mut self, rest: &[u8], value: &[u8]) -> Result<(), String> {
        let (Some((number, name)), Some((id, []))) = (numbered(rest), with_id(value)) else {
            return Err("the row of an idempotent ID does not parse".into());
        };
        let place = format!("idempotent ID {} of producer {number}", Shown(name));
        let all = self.all.ok_or_else(|| format!("{place}: there is no row about all producers"))?;
        let of = self.by_number.get_mut(&number).ok_or_else(|| format!("{place}: there is no such producer"))?;
        of.ids += 1;
        self.ids += 1;
        add(&mut self.by_name, number, id, name);
        if id < of.state.from || id > of.state.last || id < all.from {
            return Err(format!("{place}: its entry {id} is not within those of its producer, or of all"));
        }
        Ok(())
    }

    fn of_producer(&mut self, rest: &[u8], value: &[u8]) -> Result<(), String> {
        let found = numbered(rest).and_then(|(number, rest)| Some((number, with_id(rest)?)));
        let (Some((number, (id, name))), []) = (found, value) else {
            return Err("the row of an idempotent ID by its producer does not parse".into());
        };
        add(&mut self.of_producer, number, id, name);
        Ok(())
    }

    fn by_age(&mut self, rest: &[u8], value: &[u8]) -> Result<(), String> {
        let Some((id, (number, name))) = with_id(rest).and_then(|(id, rest)| Some((id, numbered(rest)?))) else {
            return Err("the row of an idempotent ID by its age does not parse".into());
        };
        add(&mut self.by_age, number, id, name);
        match self.by_number.get(&number) {
            Some(producer) if producer.name == value => Ok(()),
            _ => Err(format!("the idempotent ID of entry {id} is not of producer {}", Shown(value))),
        }
    }

    /// Compares the counts after the last row.
    pub fn finish(&self, report: &mut Report<'_, '_, '_>) {
        let (producers, ids) = self.all.map_or((0, 0), |all| (all.producers, all.ids));
        if u64::from(producers) != self.by_number.len() as u64 {
            report.add(format_args!("it is said to have {producers} producers, there are {}", self.by_number.len()));
        }
        if ids != self.ids {
            report.add(format_args!("it is said to have {ids} idempotent IDs, there are {}", self.ids));
        }
        for Producer { name, state, ids } in self.by_number.values() {
            if u64::from(state.ids) != *ids || *ids == 0 {
                let name = Shown(name);
                report.add(format_args!(
                    "producer {name}: it is said to have {} idempotent IDs, and has {ids}",
                    state.ids
                ));
            }
        }
        if self.by_name != self.of_producer || self.by_name != self.by_age {
            report.add("the rows of idempotent IDs do not agree");
        }
    }
}
