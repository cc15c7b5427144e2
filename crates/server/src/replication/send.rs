//! The part of a master that sends a replica the log as it grows, and messages behind the records that they tell of.

use crate::replication::state::Replication;
use crate::replication::wire::Outgoing;
use haypile_engine::{Listener, StoreGate, Told};
use haypile_replication::frame::Frame;
use haypile_replication::{Sink, Stream};
use haypile_store::Store;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time between heartbeats where there are no records.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// Sends records to one replica.
pub struct Sender<'a> {
    pub replication: &'a Replication,
    pub stream: Stream,
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
            let before = self.stream.sent();
            self.replication.mark(self.number);
            self.send_what_is_there()?;
            let sent = self.stream.sent();
            self.send_messages()?;
            if self.replication.tells(self.number, sent) {
                self.out.send(&Frame::Promote { index: sent })?;
            }
            let is_idle = sent == before;
            if is_idle || looked.is_none_or(|looked| looked.elapsed() >= HEARTBEAT) {
                looked = Some(Instant::now());
                let dropped = self.listener.take_dropped();
                if dropped > 0 {
                    tracing::warn!("{dropped} messages had no room in the queue of a replica that reads slowly");
                }
                self.stream.send_histories(&mut self.out)?;
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
            if !self.stream.send_next(&mut self.out)? {
                return Ok(());
            }
            self.send_messages()?;
        }
        Ok(())
    }

    /// Sends the messages that tell of records which have left.
    fn send_messages(&mut self) -> io::Result<()> {
        let sent = StoreGate { index: self.stream.sent(), version: self.version };
        for told in self.listener.take_through(sent, usize::MAX) {
            self.out.send(&match &told {
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
}

/// Returns where the log ends, for a replica.
pub fn heartbeat(store: &Store) -> Frame<'static> {
    let time_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let log = store.log();
    Frame::Heartbeat { written: log.durable(), synced: log.synced(), confirmed: log.confirmed_by_others(), time_ms }
}
