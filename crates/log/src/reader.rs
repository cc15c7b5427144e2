//! A live reader: follows the log from an index, out of memory where that is still there, else out of the segments.
//!
//! It sees durable records only, or those that its user chose, and never holds the log back: what was purged before it
//! got there is a gap.

use std::sync::Arc;

use crate::error::{Damage, OpenError};
use crate::format::{GROUP_HEADER_BYTES, GroupHeader, HistoryStart, Index, Kind};
use crate::histories::Histories;
use crate::listing::known_kind;
use crate::record::Record;
use crate::segment::{Held, Segment};
use crate::state::{Retained, Shared};
use crate::walk::{Found, Walk};

/// Bytes that are copied out of memory at a time, under the log's mutex; at least one group.
const COPY_BYTES: usize = 64 * 1024;

/// Which records a reader sees.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Through {
    /// The reader sees records that are as durable as the log's setting asks.
    #[default]
    Durable,
    /// The reader sees records that were handed to the operating system: a power failure may take them back.
    Written,
    /// The reader sees records that are on the disk; [`Log::request_sync`](crate::Log::request_sync) asks for more.
    Synced,
}

pub struct Reader {
    shared: Arc<Shared>,
    through: Through,
    next: Index,
    source: Option<Source>,
}

/// The histories of a log, for who reads it: they stay those of that log when its store is opened again.
pub struct Chain(Arc<Shared>);

impl Chain {
    /// Returns the histories that the log went through.
    pub fn histories(&self) -> Histories {
        self.0.state.lock().histories.clone()
    }
}

/// A place at which records through `last` can be read without asking the log again.
struct Source {
    segment: Arc<Segment>,
    walk: Walk,
    last: Index,
    in_file: bool,
}

/// The next thing that a reader has.
#[derive(Debug)]
pub enum Next<'a> {
    Record(Record<'a>),
    /// Nothing is durable beyond what was read: wait for `on_durable`.
    UpToDate,
    /// The next record is gone; the log begins with the given one.
    Gap(Index),
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, after: Index) -> Reader {
        Reader { shared, through: Through::default(), next: after.next(), source: None }
    }

    /// Chooses which records the reader sees.
    pub fn through(self, through: Through) -> Reader {
        Reader { through, ..self }
    }

    /// Returns the histories of the log that is read.
    pub fn chain(&self) -> Chain {
        Chain(self.shared.clone())
    }

    /// Index of the record that comes next.
    pub fn position(&self) -> Index {
        self.next
    }

    /// The next record, if it is durable. Reads files where it is behind; never waits for new records.
    #[allow(clippy::should_implement_trait)] // the record borrows from the reader, which an Iterator cannot express
    pub fn next(&mut self) -> Result<Next<'_>, OpenError> {
        let durable = self.durable();
        if self.next > durable {
            return Ok(Next::UpToDate);
        }
        if self.source.as_ref().is_none_or(|source| self.next > source.last)
            && let Some(first) = self.locate(durable)?
        {
            return Ok(Next::Gap(first));
        }
        let mut found = self.find();
        if found.is_err() {
            // After a failed sync the records are in another segment, or in memory only.
            let before = self.source.take().map(|source| source.segment.header.number);
            if let Some(first) = self.locate(durable)? {
                return Ok(Next::Gap(first));
            }
            if self.source.as_ref().map(|source| source.segment.header.number) != before {
                found = self.find();
            }
        }
        let (found, kind) = found?;
        let source = self.source.as_ref().expect("the record was found there");
        self.next = self.next.next();
        Ok(Next::Record(Record {
            index: found.header.index,
            history: source.segment.header.start.history,
            term: found.group.entry.term,
            entry: found.group.entry.number,
            kind,
            time_ms: found.header.time_ms,
            body: source.walk.body(&found),
            body_crc: found.header.body_crc,
            segment: source.segment.header.number,
            offset: found.offset,
        }))
    }

    /// Returns the history of the record that was returned last, and where it comes from.
    ///
    /// # Panics
    /// A record was returned.
    pub fn start(&self) -> HistoryStart {
        let source = self.source.as_ref().expect("a record was returned");
        source.segment.header.start
    }

    fn durable(&self) -> Index {
        let reached = &self.shared.reached;
        match self.through {
            Through::Durable => reached.durable(),
            Through::Written => reached.written(),
            Through::Synced => reached.synced(),
        }
    }

    /// Finds a source of the next record; the first record that there is if it is gone.
    fn locate(&mut self, durable: Index) -> Result<Option<Index>, OpenError> {
        let next = self.next;
        let mut was_missing = false;
        loop {
            let state = self.shared.state.lock();
            let Some(held) = state.segments.iter().rfind(|held| held.first <= next && next <= held.last) else {
                self.source = None;
                let first = state.segments.iter().map(|held| held.first).find(|first| *first > next);
                return Ok(Some(first.unwrap_or(next)));
            };
            let position = state.retained.partition_point(|entry| entry.last < next);
            if let Some(entry) = state.retained.get(position).filter(|entry| entry.first <= next) {
                self.source = Some(Source::in_memory(held, entry, next, durable));
                return Ok(None);
            }
            let (segment, first) = (held.segment.clone(), held.first);
            let (last, end) = (held.last.min(durable), held.end);
            drop(state);
            let number = segment.header.number;
            if let Some(source) = &mut self.source
                && source.in_file
                && source.segment.header.number == number
            {
                source.walk.set_limit(end);
                source.last = last;
                return Ok(None);
            }
            match self.shared.files.open(&segment.path) {
                Ok(file) => {
                    let mut walk = Walk::new(file, segment.header.salt, first, end);
                    // The copy of the memory ends where the rest is: nothing is read from the segment's beginning.
                    let before = self.source.as_ref().filter(|source| source.segment.header.number == number);
                    if let Some(before) = before.filter(|source| source.walk.next_index() == next) {
                        walk.skip_to(&before.walk);
                    }
                    self.source = Some(Source { segment, walk, last, in_file: true });
                    return Ok(None);
                }
                // The segment was purged since.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && !was_missing => was_missing = true,
                Err(error) => return Err(OpenError::io(&segment.path)(error)),
            }
        }
    }

    fn find(&mut self) -> Result<(Found, Kind), OpenError> {
        let source = self.source.as_mut().expect("a record was just located");
        let path = &source.segment.path;
        loop {
            match source.walk.step().map_err(OpenError::io(path))? {
                Ok(found) if found.header.index < self.next => {}
                Ok(found) => return known_kind(&source.segment, found.header.kind).map(|kind| (found, kind)),
                Err(bad) => {
                    let (file, reason) = (path.clone(), bad.reason.into());
                    return Err(OpenError::Damage(Damage { file, offset: bad.offset, index: bad.index, reason }));
                }
            }
        }
    }
}

impl Source {
    /// Copies groups from the one that holds `next`. What is retained is always of the active segment.
    fn in_memory(held: &Held, entry: &Retained, next: Index, durable: Index) -> Source {
        // Where the copy begins, and with which record; and where it ends.
        let (mut from, mut first, mut end, mut last) = (0, entry.first, 0, entry.last);
        while end < entry.bytes.len() {
            let GroupHeader { record_bytes, first: group_first, .. } = GroupHeader::sealed(&entry.bytes[end..]);
            if group_first > durable || group_first > next && end - from >= COPY_BYTES {
                last = Index(group_first.0 - 1);
                break;
            }
            if group_first <= next {
                (from, first) = (end, group_first);
            }
            end += GROUP_HEADER_BYTES + record_bytes as usize;
        }
        let segment = held.segment.clone();
        let (copy, start) = (entry.bytes[from..end].to_vec(), entry.offset + from as u64);
        let walk = Walk::within(segment.header.salt, first, start, copy);
        Source { segment, walk, last, in_file: false }
    }
}
