//! Our server: three of a Raft group, or one without a group; the leader is whoever takes a write.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::Options;
use super::cases::{Figures, KEYS, Load, Op};
use super::group::{Group, free_ports};
use super::resp::Crowd;
use crate::client::{Client, Reply};
use crate::server::{REPLY_TIMEOUT, Template};

/// The directives of our server: each node has one event loop, as three share the machine.
pub const DIRECTIVES: &str = "--workers 1 --maxmemory 512mb --durability fsync";

/// The longest wait for a leader.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest wait for the reply of a node that may have no leader.
const REPLY_MAX: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);

/// The kind of servers that a load is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Three servers that are one group.
    Group,
    /// One server that belongs to no group.
    Standalone,
}

/// Starts the servers, and waits until one of them takes writes.
pub fn start(server: &Template, mode: Mode, dir: &Path) -> Result<Group> {
    let ports = free_ports(if mode == Mode::Group { 3 } else { 1 })?;
    let peers: Vec<_> = ports.iter().zip(1..).map(|(port, id)| format!("{id}@127.0.0.1:{port}")).collect();
    let peers = peers.join(",");
    let node = |(&port, id): (&u16, u32)| {
        let template = server.with(DIRECTIVES)?;
        let membership = format!("--raft-node-id {id} --raft-peers {peers}");
        Ok((port, if mode == Mode::Group { template.with(&membership)? } else { template }))
    };
    let nodes = ports.iter().zip(1..).map(node).collect::<Result<Vec<_>>>()?;
    let mut group = Group::spawn("bench-raft", dir, &nodes)?;
    group.leader = wait_for_leader(&mut group)?;
    Ok(group)
}

/// Waits until a node acknowledges a write; returns its place.
pub fn wait_for_leader(group: &mut Group) -> Result<usize> {
    let begin = Instant::now();
    loop {
        group.check_running()?;
        for (at, node) in group.nodes.iter().enumerate() {
            if write(node.port()).is_some_and(|reply| reply.is_ok()) {
                return Ok(at);
            }
        }
        ensure!(begin.elapsed() < PATIENCE, "no server takes a write");
        sleep(LOOK);
    }
}

/// Waits until a node that was started again knows who leads: it redirects a write, or takes it.
pub fn wait_until_it_follows(group: &mut Group, node: usize) -> Result<()> {
    let begin = Instant::now();
    loop {
        group.check_running()?;
        let reply = write(group.nodes[node].port());
        if reply.is_some_and(|reply| reply.is_ok() || moved_to(&reply).is_some()) {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "the node does not come back to its group");
        sleep(LOOK);
    }
}

/// Sends a write over a connection of its own; none if no reply comes.
fn write(port: u16) -> Option<Reply> {
    Client::connect(port, REPLY_MAX).and_then(|mut client| client.command("SET probe written")).ok()
}

/// Returns the port that a redirection names: `-MOVED slot host:port`.
pub fn moved_to(reply: &Reply) -> Option<u16> {
    let text = reply.error()?;
    text.strip_prefix("MOVED ")?.rsplit_once(':')?.1.parse().ok()
}

/// Measures a load on servers of its own.
pub fn measure(options: &Options, server: &Template, mode: Mode, load: Load) -> Result<Figures> {
    let group = start(server, mode, &options.dir)?;
    if load.op == Op::Get {
        fill(group.leader_port(), load.value_bytes)?;
    }
    let mut crowd = Crowd::connect(group.leader_port(), load)?;
    crowd.run(options.warm())?;
    let before = group.read_cpu();
    let seen = crowd.run(options.window)?;
    Ok(seen.at_cost(group.cost_since(before)))
}

/// Writes each key once.
fn fill(port: u16, value_bytes: usize) -> Result<()> {
    const PIPELINE: u64 = 100;
    let values = super::resp::Values::new(value_bytes);
    let mut client = Client::connect(port, REPLY_TIMEOUT)?;
    for first in (0..KEYS).step_by(PIPELINE as usize) {
        let numbers = first..KEYS.min(first + PIPELINE);
        for number in numbers.clone() {
            client.push(&[b"SET", &super::resp::key(number)[..], values.of(number)]);
        }
        client.flush()?;
        for _ in numbers {
            let reply = client.read()?;
            if !reply.is_ok() {
                bail!("SET was answered by {reply}");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_names_a_port() {
        let error = |text: &str| Reply::Error(text.as_bytes().to_vec());
        assert_eq!(moved_to(&error("MOVED 3999 127.0.0.1:6381")), Some(6381));
        assert_eq!(moved_to(&error("MOVED 3999 ::1:6381")), Some(6381));
        assert_eq!(moved_to(&error("CLUSTERDOWN no quorum: 3")), None);
        assert_eq!(moved_to(&Reply::ok()), None);
    }
}
