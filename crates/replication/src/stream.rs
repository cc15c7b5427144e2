//! A master's side of a stream: the records of its log as frames, each history named before the first record of it.

use crate::frame::{Frame, RecordFrame};
use crate::resync::{self, FullReason, Position, Resync};
use haypile_log::{Chain, History, Hold, Index, Log, Next, Reader};
use std::io::{self, Error};

/// Takes frames on their way to a replica.
pub trait Sink {
    /// Sends a frame.
    ///
    /// # Errors
    /// The connection broke.
    fn send(&mut self, frame: &Frame<'_>) -> io::Result<()>;
}

/// Looks how a replica goes on: behind its last record, with a hold on all that come then.
///
/// # Errors
/// The reason why the replica needs a copy.
pub fn admit(log: &Log, at: Position) -> Result<Hold, FullReason> {
    // Held first: what is decided then is not purged in between.
    let hold = log.hold_after(at.index);
    let first = log.stats().first;
    match (resync::decide(&log.histories(), first, log.last(), at), hold) {
        (Resync::Partial, Some(hold)) => Ok(hold),
        (Resync::Partial, None) => Err(FullReason::Purged { first, index: at.index }),
        (Resync::Full(why), _) => Err(why),
    }
}

/// The records behind the one at which a replica stood, as they become as durable as the log's setting asks.
pub struct Stream {
    reader: Reader,
    chain: Chain,
    /// The history that the replica is in.
    announced: History,
}

impl Stream {
    /// Begins behind the last record of a replica that was admitted.
    pub fn begin(log: &Log, at: Position) -> Stream {
        let reader = log.reader(at.index);
        Stream { chain: reader.chain(), reader, announced: at.history }
    }

    /// Returns the last record that was sent, or that the replica had.
    pub fn sent(&self) -> Index {
        Index(self.reader.position().0 - 1)
    }

    /// Sends the next record, if there is one; returns whether there was.
    ///
    /// # Errors
    /// The log cannot be read, or has no longer what comes next; or the connection broke.
    pub fn send_next(&mut self, out: &mut impl Sink) -> io::Result<bool> {
        let record = match self.reader.next().map_err(|error| Error::other(error.to_string()))? {
            Next::Record(record) => record,
            Next::UpToDate => return Ok(false),
            Next::Gap(first) => {
                return Err(Error::other(format!("the replica is too far behind: the log begins with {first}")));
            }
        };
        if record.history != self.announced {
            let before = Index(record.index.0 - 1);
            name_histories(&self.chain, &mut self.announced, before, Some(record.history), out)?;
        }
        out.send(&Frame::Record(RecordFrame::from(&record)))?;
        Ok(true)
    }

    /// Names the histories that begin where the replica is: none of their records has been sent.
    ///
    /// # Errors
    /// The replica needs a copy, or the connection broke.
    pub fn send_histories(&mut self, out: &mut impl Sink) -> io::Result<()> {
        let sent = self.sent();
        name_histories(&self.chain, &mut self.announced, sent, None, out)
    }
}

/// Names the histories behind the replica's that begin where the replica is, at `sent`: all of them, or those through
/// the one of the next record.
///
/// # Errors
/// The history of the next record does not come then: frames of records do not say which one they are of. Or the
/// connection broke.
fn name_histories(
    chain: &Chain,
    announced: &mut History,
    sent: Index,
    through: Option<History>,
    out: &mut impl Sink,
) -> io::Result<()> {
    let histories = chain.histories();
    let starts = histories.starts();
    let Some(at) = starts.iter().rposition(|start| start.history == *announced) else {
        return Err(Error::other("the replica's history is not known any more"));
    };
    for start in &starts[at + 1..] {
        if start.after() > sent || through == Some(*announced) {
            break;
        }
        if start.parent().is_none() {
            return Err(Error::other("data were loaded past the log: the replica needs a copy"));
        }
        out.send(&Frame::History(*start))?;
        *announced = start.history;
    }
    match through {
        Some(through) if through != *announced => {
            Err(Error::other(format!("record {} is of a history that does not begin there", sent.next())))
        }
        _ => Ok(()),
    }
}
