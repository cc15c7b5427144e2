//! A Redis that follows a replica, or a member of a Raft group that does not lead: its connection goes on to the
//! master.
//!
//! The records of another server are applied here, and no command runs of which something could be said. So this server
//! asks its master in the place of the Redis, and hands the bytes on in both directions.

use super::feed::RedisFeed;
use super::request::Asked;
use crate::replication::connect::reach;
use crate::socket::Socket;
use haypile_engine::{Leader, Master};
use std::io::{self, Error};

/// Bytes that are handed on at once.
const PIECE_BYTES: usize = 64 << 10;

impl RedisFeed {
    /// Hands the connection on to where the data come from, until one of the two ends.
    pub(super) fn relay(self) -> io::Result<()> {
        let replication = self.feed.replication.clone();
        let (master, wanted) = replication.wanted();
        let master = match replication.engine.group.leader_now() {
            Leader::At(address) => address
                .rsplit_once(':')
                .and_then(|(host, port)| Some(Master { host: host.to_owned(), port: port.parse().ok()? })),
            _ => master,
        };
        let master = master.ok_or_else(|| Error::other("nobody is known to lead"))?;
        let version = replication.version();
        let mut remote = reach(&replication, &master, || replication.goes_on(version))?;
        // The connection ends where this server gets another master, or leads.
        let _registered = replication.register(wanted, remote.handle())?;
        tracing::info!("{}, a Redis, follows {}:{} by way of this server", self.feed.host, master.host, master.port);
        for words in words(&self.asked, &self.feed.host) {
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            remote.call(&words)?;
        }
        let asked = match &self.asked.place {
            _ if self.asked.is_old => vec!["SYNC".to_owned()],
            Some((id, had)) => vec!["PSYNC".to_owned(), id.clone(), (had + 1).to_string()],
            None => ["PSYNC", "?", "-1"].map(str::to_owned).into(),
        };
        remote.send(&asked.iter().map(String::as_bytes).collect::<Vec<_>>())?;
        remote.flush()?;
        let (upstream, read) = remote.into_parts();
        let downstream = &self.feed.socket;
        downstream.write_all(&read)?;
        upstream.write_all(&self.feed.read)?;
        for socket in [&upstream, downstream] {
            socket.set_read_timeout(None)?;
            socket.set_write_timeout(Some(replication.timeout()))?;
        }
        std::thread::scope(|threads| {
            let (upstream, back) = (&upstream, downstream);
            threads.spawn(move || {
                // The other direction says why it has ended.
                let _ = hand_on(back, upstream);
                upstream.shutdown();
            });
            let ended = hand_on(upstream, downstream);
            upstream.shutdown();
            downstream.shutdown();
            ended
        })
    }
}

/// The words with which a replica says what it is.
fn words(asked: &Asked, host: &str) -> Vec<Vec<String>> {
    let mut said = vec![vec!["listening-port".to_owned(), asked.port.to_string()]];
    said.push(vec!["ip-address".into(), asked.address.clone().unwrap_or_else(|| host.to_owned())]);
    let flags = [
        (asked.knows_end, ["capa", "eof"]),
        (asked.knows_ids, ["capa", "psync2"]),
        (asked.only_data, ["rdb-only", "1"]),
        (asked.only_functions, ["rdb-filter-only", "functions"]),
    ];
    said.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, words)| words.map(str::to_owned).into()));
    said.into_iter().map(|words| std::iter::once("REPLCONF".to_owned()).chain(words).collect()).collect()
}

fn hand_on(from: &Socket, to: &Socket) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            read => to.write_all(&piece[..read])?,
        }
    }
}
