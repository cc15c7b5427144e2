//! The part of a master that sends a replica the log as it grows, and messages behind the records that they tell of.

use crate::replication::state::Replication;
use crate::replication::wire::Outgoing;
use haypile_engine::{Listener, Told};
use haypile_log::{Chain, History, Index, Next, Reader};
use haypile_replication::frame::{Frame, RecordFrame};
use haypile_store::Store;
use std::io::{self, Error};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time between heartbeats where there are no records.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// Sends records to one replica.
pub struct Sender<'a> {
    pub replication: &'a Replication,
    pub reader: Reader,
    pub histories: Announcer,
    /// Messages for the replica's clients.
    pub listener: &'a Listener,
    pub out: Outgoing,
    /// The replica has gone.
    pub ended: &'a AtomicBool,
    /// The number of the connection.
    pub number: u64,
    /// The version of the store whose log is read.
    pub version: u64,
}

impl Sender<'_> {
    /// Sends until the connection is to end.
    pub fn run(mut self) -> io::Result<()> {
        let mut looked: Option<Instant> = None;
        while self.goes_on() {
            // In this order: progress in between ends the wait.
            let seen = self.replication.progress.count();
            let before = self.reader.position();
            self.send_what_is_there()?;
            let sent = Index(self.reader.position().0 - 1);
            send_messages(self.listener, sent, &mut self.out)?;
            if self.replication.tells(self.number, sent) {
                self.out.send(&Frame::Promote { index: sent })?;
            }
            let is_idle = self.reader.position() == before;
            if is_idle || looked.is_none_or(|looked| looked.elapsed() >= HEARTBEAT) {
                looked = Some(Instant::now());
                let dropped = self.listener.take_dropped();
                if dropped > 0 {
                    tracing::warn!("{dropped} messages had no room in the queue of a replica that reads slowly");
                }
                self.histories.announce(sent, None, &mut self.out)?;
            }
            let Some(store) = self.replication.engine.store() else { return Ok(()) };
            self.out.send(&heartbeat(&store))?;
            drop(store);
            self.out.flush()?;
            self.replication.progress.wait(seen, HEARTBEAT);
        }
        Ok(())
    }

    fn goes_on(&self) -> bool {
        self.replication.goes_on(self.version) && !self.ended.load(Ordering::Acquire)
    }

    fn send_what_is_there(&mut self) -> io::Result<()> {
        while self.goes_on() && self.replication.forced.load(Ordering::Relaxed) != self.number {
            let record = match self.reader.next().map_err(|error| Error::other(error.to_string()))? {
                Next::Record(record) => record,
                Next::UpToDate => return Ok(()),
                Next::Gap(first) => {
                    return Err(Error::other(format!("the replica is too far behind: the log begins with {first}")));
                }
            };
            if record.history != self.histories.announced {
                let before = Index(record.index.0 - 1);
                self.histories.announce(before, Some(record.history), &mut self.out)?;
            }
            self.out.send(&Frame::Record(RecordFrame::from(&record)))?;
            send_messages(self.listener, record.index, &mut self.out)?;
        }
        Ok(())
    }
}

/// Names the histories that a replica has still to go through.
pub struct Announcer {
    pub chain: Chain,
    /// The history that the replica is in.
    pub announced: History,
}

impl Announcer {
    /// Names the histories behind the replica's that begin where the replica is, at `sent`: all of them, or those
    /// through the one of the next record.
    ///
    /// # Errors
    /// The history of the next record does not come then: frames of records do not say which one they are of. Or the
    /// connection broke.
    fn announce(&mut self, sent: Index, through: Option<History>, out: &mut Outgoing) -> io::Result<()> {
        let histories = self.chain.histories();
        let starts = histories.starts();
        let Some(at) = starts.iter().rposition(|start| start.history == self.announced) else {
            return Err(Error::other("the replica's history is not known any more"));
        };
        for start in &starts[at + 1..] {
            if start.after() > sent || through == Some(self.announced) {
                break;
            }
            if start.parent().is_none() {
                return Err(Error::other("data were loaded past the log: the replica needs a copy"));
            }
            out.send(&Frame::History(*start))?;
            self.announced = start.history;
        }
        match through {
            Some(through) if through != self.announced => {
                Err(Error::other(format!("record {} is of a history that does not begin there", sent.next())))
            }
            _ => Ok(()),
        }
    }
}

/// Sends the messages that tell of records through `sent`.
fn send_messages(listener: &Listener, sent: Index, out: &mut Outgoing) -> io::Result<()> {
    for told in listener.take_through(sent) {
        out.send(&match &told {
            Told::Message { is_shard, channel, payload } => {
                Frame::Message { is_shard: *is_shard, channel, text: payload.text() }
            }
            Told::Event(event) => {
                Frame::Event { class: event.class, database: event.database, name: &event.name, key: &event.key }
            }
        })?;
    }
    Ok(())
}

/// Returns where the log ends, for a replica.
pub fn heartbeat(store: &Store) -> Frame<'static> {
    let time_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let log = store.log();
    Frame::Heartbeat { written: log.durable(), synced: log.synced(), confirmed: log.confirmed_by_others(), time_ms }
}
