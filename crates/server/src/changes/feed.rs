//! A connection of somebody who follows the changes, from the request to its end.
//!
//! A thread reads the log and writes to the socket; a reader who does not read stops it, and nobody else. The log is
//! held for a reader within the bounds of a replica (`replica-log-size`), and beyond them as long as it is there; a
//! reader who takes nothing for `repl-timeout` is let go. It comes back with the index that it has got to.

use super::VERSION;
use super::asked::{Asked, From};
use super::record::Record;
use crate::replication::feed::Feed;
use crate::replication::send::HEARTBEAT;
use crate::replication::state::Replication;
use crate::replication::to_redis::stream::sendable;
use crate::replication::wire::show;
use haypile_commands::Table;
use haypile_commands::host::ClientType;
use haypile_log::{Histories, HistoryStart, Hold, Index, Log, Next, Origin, Reader};
use haypile_resp::write;
use haypile_store::Store;
use std::io::{self, Error};
use std::time::{Duration, Instant};

/// Bytes that are gathered before they are sent.
const SEND_BYTES: usize = 64 << 10;

/// The capacity above which the buffer of a long record is not kept.
const KEPT_BYTES: usize = 4 << 20;

/// How long records are gathered behind those that were sent.
const GATHER: Duration = Duration::from_millis(1);

/// Records that are passed before the reader hears something, and bytes of a write.
const PASSES_MAX: u32 = 1024;
const PIECE_BYTES: usize = 64 << 10;

/// The time between looks at what a group has agreed on.
const GROUP_LOOK: Duration = Duration::from_millis(10);

/// See the file's head.
pub struct ChangesFeed {
    pub feed: Feed,
    pub asked: Asked,
}

/// The place in the log that a stream has come to.
struct At<'s> {
    replication: &'s Replication,
    reader: Reader,
    /// The hold on the log; None once more of the log is kept for the reader than may be.
    hold: Option<Hold>,
    index: Index,
    /// The histories of the log, the last of which the reader was told.
    known: Histories,
    out: Vec<u8>,
}

impl ChangesFeed {
    /// Serves the connection to its end.
    pub fn run(self) {
        let replication = self.feed.replication.clone();
        let _shown = show(&replication.engine, ClientType::Normal, &self.feed.names, &self.feed.socket);
        let (host, socket) = (self.feed.host.clone(), self.feed.socket.clone());
        if let Err(error) = self.serve() {
            tracing::info!("the connection of {host}, which follows the changes, has ended: {error}");
        }
        socket.shutdown();
    }

    fn serve(&self) -> io::Result<()> {
        let replication = &*self.feed.replication;
        let socket = &self.feed.socket;
        socket.set_write_timeout(Some(replication.timeout()))?;
        let refuse = |why: &str| socket.write_all(format!("-{why}\r\n").as_bytes());
        let version = replication.version();
        let Some(store) = replication.engine.store() else { return refuse("LOADING the data are not loaded") };
        let at = match self.begin(replication, &store) {
            Ok(at) => at,
            Err(why) => return refuse(&why),
        };
        // A store that is exchanged is to have no users.
        drop(store);
        let _following = replication.progress.follow();
        self.stream(version, at)
    }

    /// Finds the place where the stream begins.
    fn begin<'s>(&self, replication: &'s Replication, store: &Store) -> Result<At<'s>, String> {
        let (log, histories) = (store.log(), store.log().histories());
        let last = tellable(replication, store);
        // Data were loaded behind this record, past the log.
        let loaded = histories.starts().iter().filter(|start| matches!(start.origin, Origin::Loaded(_)));
        let loaded = loaded.map(HistoryStart::after).max().unwrap_or(Index(0));
        let index = match self.asked.from {
            From::Oldest => oldest(log)?.max(loaded),
            From::Now => last,
            From::Behind(index) => index,
        };
        let not_yet = || format!("NOTYET the log has come to record {last}, not to {index}");
        if let Some(asked) = self.asked.history {
            let start = histories.starts().iter().find(|start| start.history == asked);
            let start = start.ok_or_else(|| match index > last && store.takes_no_writes() {
                // The leader may have begun this history behind the last record here.
                true => not_yet(),
                false => format!("GONE the log never was in history {asked}"),
            })?;
            // A reader that is told of a history stands on the way to it, or in it.
            let place = index.max(start.after());
            if histories.shared_through(asked, place) != Some(place) {
                return Err(format!("GONE history {asked} has gone on elsewhere before record {index}"));
            }
        }
        if index < loaded {
            return Err(format!("GONE data were loaded behind record {loaded}"));
        }
        if index > last {
            return Err(not_yet());
        }
        let gone = || {
            format!("GONE the log does not go back to record {index}: {}", oldest(log).map_or_else(|why| why, begins))
        };
        let hold = Some(log.hold_after(index).ok_or_else(gone)?);
        Ok(At { replication, reader: log.reader(index), hold, index, known: histories, out: Vec::new() })
    }

    fn stream(&self, version: u64, mut at: At<'_>) -> io::Result<()> {
        let replication = at.replication;
        let wait = if replication.engine.group.is_member() { GROUP_LOOK } else { HEARTBEAT };
        // By the names of commands that the log has, whatever this server calls them.
        let table = Table::new();
        self.tell_begin(&mut at);
        self.send(&mut at)?;
        let mut spoken = Instant::now();
        while replication.goes_on(version) {
            // In this order: progress in between ends the wait.
            let seen = replication.progress.count();
            let Some(through) = replication.engine.store().map(|store| tellable(replication, &store)) else {
                return Ok(());
            };
            let before = at.index;
            let mut passes = 0;
            while at.index < through && at.out.len() < SEND_BYTES && passes < PASSES_MAX {
                if !self.pass(&table, &mut at)? {
                    break;
                }
                passes += 1;
            }
            if !at.out.is_empty() {
                spoken = Instant::now();
            } else if spoken.elapsed() >= HEARTBEAT {
                spoken = Instant::now();
                let heartbeat = format!("{{\"index\":{}}}", at.index);
                self.message("heartbeat", heartbeat.as_bytes(), &mut at.out);
            }
            let sends = !at.out.is_empty();
            self.send(&mut at)?;
            at.let_go();
            match at.index > before {
                // More is on its way, as a rule.
                true if sends && at.index == through => std::thread::sleep(GATHER),
                true => {}
                false => replication.progress.wait(seen, wait),
            }
        }
        Ok(())
    }

    /// Tells the reader in which history it is.
    fn tell_begin(&self, at: &mut At<'_>) {
        let history = at.known.newest().map_or_else(String::new, |newest| newest.history.to_string());
        let begin = format!("{{\"version\":{VERSION},\"history\":\"{history}\",\"index\":{}}}", at.index);
        self.message("begin", begin.as_bytes(), &mut at.out);
    }

    /// Adds what the next record has done; returns whether the record was there.
    fn pass(&self, table: &Table, at: &mut At<'_>) -> io::Result<bool> {
        let (index, history, json) = match at.reader.next().map_err(|error| Error::other(error.to_string()))? {
            Next::Record(record) => {
                let (index, history) = (record.index, record.history);
                let record = Record { index, time_ms: record.time_ms, kind: record.kind, body: record.body };
                (index, history, record.json(table, &self.asked.wanted)?)
            }
            Next::UpToDate => return Ok(false),
            Next::Gap(first) => return Err(Error::other(format!("the log begins with {first}"))),
        };
        if !at.known.starts().iter().any(|start| start.history == history) {
            // A replica that leads from here on, or whose master was another one.
            at.known = at.reader.chain().histories();
            self.tell_begin(at);
        }
        if let Some(json) = json {
            self.message("record", &json, &mut at.out);
        }
        at.index = index;
        Ok(true)
    }

    /// Adds a message: an array, or what RESP3 pushes.
    fn message(&self, kind: &str, json: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(if self.asked.pushes { b">2\r\n" } else { b"*2\r\n" });
        write::bulk(out, kind.as_bytes());
        write::bulk(out, json);
    }

    /// Sends what was gathered. A reader who takes it drop by drop holds no more of the log than may be.
    fn send(&self, at: &mut At<'_>) -> io::Result<()> {
        let out = std::mem::take(&mut at.out);
        for piece in out.chunks(PIECE_BYTES) {
            self.feed.socket.write_all(piece)?;
            at.look_at_hold();
        }
        at.out = out;
        at.out.clear();
        at.out.shrink_to(KEPT_BYTES);
        Ok(())
    }
}

impl At<'_> {
    /// Lets go of the records that were sent.
    fn let_go(&mut self) {
        let index = self.index;
        if let Some(hold) = &mut self.hold {
            hold.advance(index);
        }
        self.look_at_hold();
    }

    /// Lets go of the log as a whole where too much of it is kept. What else keeps it is there to be read all the same.
    fn look_at_hold(&mut self) {
        let Some(store) = self.replication.engine.store() else { return };
        if self.hold.as_ref().is_some_and(|hold| self.replication.is_too_much(&store, hold.kept_bytes()).is_some()) {
            self.hold = None;
        }
    }
}

/// Returns the last record that may be told: one that cannot be lost any more, and whose effects readers see.
fn tellable(replication: &Replication, store: &Store) -> Index {
    sendable(store.log(), replication.engine.group.is_member()).min(store.applied_through())
}

fn begins(oldest: Index) -> String {
    format!("it begins behind {oldest}")
}

/// Returns the place before the oldest record that the log has.
fn oldest(log: &Log) -> Result<Index, String> {
    match log.reader(Index(0)).next().map_err(|error| error.to_string())? {
        Next::Gap(first) => Ok(Index(first.0 - 1)),
        Next::Record(_) | Next::UpToDate => Ok(Index(0)),
    }
}
