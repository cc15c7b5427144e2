//! A connection of somebody who follows the changes, from the request to its end.
//!
//! A thread reads the log and writes to the socket; a reader who does not read stops it, and nobody else. What is kept
//! of the log for a reader is bounded as for a replica (`replica-log-size`), and a reader who takes nothing for
//! `repl-timeout` is let go: it comes back with the index that it has got to.

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
use haypile_log::{Hold, Index, Log, Next, Reader};
use haypile_resp::write;
use haypile_store::Store;
use std::io::{self, Error};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Bytes that are gathered before they are sent.
const SEND_BYTES: usize = 64 << 10;

/// The capacity above which the buffer of a long record is not kept.
const KEPT_BYTES: usize = 4 << 20;

/// How long records are gathered behind those that were sent.
const GATHER: Duration = Duration::from_millis(1);

/// The time between looks at what a group has agreed on.
const GROUP_LOOK: Duration = Duration::from_millis(10);

/// See the file's head.
pub struct ChangesFeed {
    pub feed: Feed,
    pub asked: Asked,
}

/// The place in the log behind which a stream begins.
struct Begun {
    reader: Reader,
    hold: Hold,
    at: Index,
    history: String,
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
        let refuse = |why: &str| socket.write_all(format!("-ERR {why}\r\n").as_bytes());
        let version = replication.version();
        let Some(store) = replication.engine.store() else { return refuse("the data are not loaded") };
        let begun = match self.begin(&store, replication.engine.group.is_member()) {
            Ok(begun) => begun,
            Err(why) => return refuse(&why),
        };
        // A store that is exchanged is to have no users.
        drop(store);
        let _following = replication.progress.follow();
        self.stream(replication, version, begun)
    }

    /// Finds the place where the stream begins.
    fn begin(&self, store: &Store, is_member: bool) -> Result<Begun, String> {
        let log = store.log();
        let last = sendable(log, is_member);
        let at = match self.asked.from {
            From::Oldest => oldest(log)?,
            From::Now => last,
            From::Behind(index) => index,
        };
        if at > last {
            return Err(format!("the log has come to record {last}, not to {at}"));
        }
        let gone =
            || format!("the log does not go back to record {at}: it begins behind {}", oldest(log).unwrap_or(at));
        let hold = log.hold_after(at).ok_or_else(gone)?;
        if let Some(asked) = self.asked.history {
            let histories = log.histories();
            if !histories.starts().iter().any(|start| start.history == asked) {
                return Err(format!("the log never was in history {asked}"));
            }
            if histories.shared_through(asked, at) != Some(at) {
                return Err(format!("history {asked} has gone on elsewhere before record {at}"));
            }
        }
        Ok(Begun { reader: log.reader(at), hold, at, history: log.history().to_string() })
    }

    fn stream(&self, replication: &Replication, version: u64, begun: Begun) -> io::Result<()> {
        let Begun { mut reader, hold, mut at, history } = begun;
        let (hold, is_member) = (Mutex::new(hold), replication.engine.group.is_member());
        // By the names of commands that the log has, whatever this server calls them.
        let (table, mut out) = (Table::new(), Vec::new());
        let begin = format!("{{\"version\":{VERSION},\"history\":\"{history}\",\"index\":{at}}}");
        self.message("begin", begin.as_bytes(), &mut out);
        self.send(&mut out)?;
        let mut spoken = Instant::now();
        while replication.goes_on(version) {
            // In this order: progress in between ends the wait.
            let seen = replication.progress.count();
            let through = {
                let Some(store) = replication.engine.store() else { return Ok(()) };
                if let Some(why) = replication.keeps_too_much(&store, &hold) {
                    return Err(Error::other(format!("it is {why}")));
                }
                sendable(store.log(), is_member)
            };
            let begun = at;
            while at < through && out.len() < SEND_BYTES && self.pass(&table, &mut reader, &mut at, &mut out)? {}
            if at > begun {
                let sends = !out.is_empty();
                self.send(&mut out)?;
                hold.lock().expect("no thread panics with it").advance(at);
                if sends {
                    spoken = Instant::now();
                    if at == through {
                        // More is on its way, as a rule.
                        std::thread::sleep(GATHER);
                    }
                }
                continue;
            }
            if spoken.elapsed() >= HEARTBEAT {
                spoken = Instant::now();
                self.message("heartbeat", format!("{{\"index\":{at}}}").as_bytes(), &mut out);
                self.send(&mut out)?;
            }
            replication.progress.wait(seen, if is_member { GROUP_LOOK } else { HEARTBEAT });
        }
        Ok(())
    }

    /// Adds what the next record has done; returns whether the record was there.
    fn pass(&self, table: &Table, reader: &mut Reader, at: &mut Index, out: &mut Vec<u8>) -> io::Result<bool> {
        match reader.next().map_err(|error| Error::other(error.to_string()))? {
            Next::Record(record) => {
                *at = record.index;
                let record =
                    Record { index: record.index, time_ms: record.time_ms, kind: record.kind, body: record.body };
                if let Some(json) = record.json(table, &self.asked.wanted)? {
                    self.message("record", &json, out);
                }
                Ok(true)
            }
            Next::UpToDate => Ok(false),
            Next::Gap(first) => Err(Error::other(format!("the log begins with {first}"))),
        }
    }

    /// Adds a message: an array, or what RESP3 pushes.
    fn message(&self, kind: &str, json: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(if self.asked.pushes { b">2\r\n" } else { b"*2\r\n" });
        write::bulk(out, kind.as_bytes());
        write::bulk(out, json);
    }

    fn send(&self, out: &mut Vec<u8>) -> io::Result<()> {
        self.feed.socket.write_all(out)?;
        out.clear();
        out.shrink_to(KEPT_BYTES);
        Ok(())
    }
}

/// Returns the place before the oldest record that the log has.
fn oldest(log: &Log) -> Result<Index, String> {
    match log.reader(Index(0)).next().map_err(|error| error.to_string())? {
        Next::Gap(first) => Ok(Index(first.0 - 1)),
        Next::Record(_) | Next::UpToDate => Ok(Index(0)),
    }
}
