//! A Redis that follows a replica, or a member of a Raft group that does not lead: its connection goes on to the
//! master.
//!
//! The records of another server are applied here, and no command runs of which something could be said. So this server
//! asks its master in the place of the Redis, and hands the bytes on in both directions. Where the master turns out to
//! be a Redis, this server is about to have commands to tell of itself, and the replica is to ask again.

use super::feed::RedisFeed;
use crate::remote::Remote;
use crate::replication::connect::{is_redis, reach};
use crate::replication::state::{Registered, Replication};
use crate::socket::Socket;
use haypile_engine::{Leader, Master};
use std::io::{self, Error};

/// Bytes that are handed on at once.
const PIECE_BYTES: usize = 64 << 10;

impl RedisFeed {
    /// Hands the connection on to where the data come from, until one of the two ends.
    pub(super) fn relay(self) -> io::Result<()> {
        let replication = self.feed.replication.clone();
        let (mut remote, _registered) = match self.reach_master(&replication) {
            Ok(reached) => reached,
            Err(error) => {
                self.refuse_for_now()?;
                return Err(error);
            }
        };
        let commands = self.asked.commands(&self.feed.host);
        let (asks, says) = commands.split_last().expect("the request is the last command");
        for command in says {
            remote.call(&words_of(command))?;
        }
        remote.send(&words_of(asks))?;
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

    /// Connects to where the data come from, which is no Redis.
    fn reach_master<'r>(&self, replication: &'r Replication) -> io::Result<(Remote, Registered<'r>)> {
        let (master, wanted) = replication.wanted();
        let master = match replication.engine.group.leader_now() {
            Leader::At(address) => address
                .rsplit_once(':')
                .and_then(|(host, port)| Some(Master { host: host.to_owned(), port: port.parse().ok()? })),
            _ => master,
        };
        let master = master.ok_or_else(|| Error::other("nobody is known to lead"))?;
        let version = replication.version();
        let mut remote = reach(replication, &master, || replication.goes_on(version))?;
        // The connection ends where this server gets another master, or leads.
        let registered = replication.register(wanted, remote.handle())?;
        if !replication.engine.group.is_member() && is_redis(&mut remote)? {
            return Err(Error::other("the master is a Redis, whose commands do not come yet"));
        }
        tracing::info!("{}, a Redis, follows {}:{} by way of this server", self.feed.host, master.host, master.port);
        Ok((remote, registered))
    }
}

/// Returns the words of a command as they are sent.
fn words_of(command: &[String]) -> Vec<&[u8]> {
    command.iter().map(String::as_bytes).collect()
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
