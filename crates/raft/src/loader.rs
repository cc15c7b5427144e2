//! The messages that go out, and the records of their entries, which are read from the log when they leave.
//!
//! Raft counts entries, so that what it lets be on its way may be of any size; here it is cut into messages of a size.

use crate::wire::{EntryRecords, Envelope};
use haypile_log::{EntrySpan, Index, Log, Next, Reader, Through};
use raft::eraftpb::{Message, MessageType};
use std::io;

/// A message takes no further entry when its records have so many bytes.
const RECORDS_BYTES: usize = 1 << 20;

/// A message on its way to another member, whose entries' records are still in the log.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub(crate) message: Message,
    pub(crate) spans: Vec<EntrySpan>,
}

impl Outgoing {
    /// Returns the member that this is for.
    pub fn to(&self) -> u64 {
        self.message.to
    }

    /// Returns whether the member asks for a vote by this, or grants one.
    pub fn is_vote(&self) -> bool {
        match self.message.get_msg_type() {
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => true,
            MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => !self.message.reject,
            _ => false,
        }
    }
}

/// Reads the records of entries for one other member: in order, where nothing goes wrong.
#[derive(Default)]
pub struct Loader {
    reader: Option<Reader>,
}

impl Loader {
    /// Hands on the messages that make one that goes out, with the records of its entries: several where these are
    /// many, one after the other, so that no more than one is in memory.
    ///
    /// # Errors
    /// The log does not have the records, or not any more; or `send` has failed.
    pub fn load(
        &mut self,
        log: &Log,
        outgoing: Outgoing,
        send: &mut dyn FnMut(Envelope) -> io::Result<()>,
    ) -> io::Result<()> {
        let Outgoing { message, spans } = outgoing;
        if spans.is_empty() {
            return send(Envelope { message, entries: Vec::new() });
        }
        let mut entries = message.entries.to_vec().into_iter();
        let mut next = Message { entries: Default::default(), ..message.clone() };
        let (mut loaded, mut bytes) = (Vec::new(), 0);
        for span in spans {
            let entry = self.load_entry(log, span)?;
            bytes += entry.bytes.len();
            next.mut_entries().push(entries.next().expect("each entry has a place"));
            loaded.push(entry);
            if bytes >= RECORDS_BYTES {
                let (index, log_term) = (span.number, span.term);
                let behind = Message { index, log_term, entries: Default::default(), ..message.clone() };
                let message = std::mem::replace(&mut next, behind);
                send(Envelope { message, entries: std::mem::take(&mut loaded) })?;
                bytes = 0;
            }
        }
        if loaded.is_empty() { Ok(()) } else { send(Envelope { message: next, entries: loaded }) }
    }

    fn load_entry(&mut self, log: &Log, span: EntrySpan) -> io::Result<EntryRecords> {
        let mut reader = match self.reader.take() {
            Some(reader) if reader.position() == span.first => reader,
            _ => log.reader(Index(span.first.0 - 1)).through(Through::Written),
        };
        let mut entry = EntryRecords::new(span);
        while reader.position() <= span.last {
            match reader.next().map_err(|error| io::Error::other(error.to_string()))? {
                Next::Record(record) if (record.term, record.entry) == (span.term, span.number) => entry.push(&record),
                Next::Record(record) => {
                    let what = format!("record {} is of term {}, entry {}", record.index, record.term, record.entry);
                    return Err(io::Error::other(format!("{what}, not of {span:?}")));
                }
                Next::UpToDate => return Err(io::Error::other(format!("{span:?} is not written"))),
                Next::Gap(first) => return Err(io::Error::other(format!("the log begins with record {first}"))),
            }
        }
        self.reader = Some(reader);
        Ok(entry)
    }
}
