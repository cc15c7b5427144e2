//! How long a group takes no writes when its leader is killed: from SIGKILL to the first acknowledged write of a client
//! that retries. etcd's own client does the same to etcd.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};

use super::haypile::{Mode, moved_to};
use super::table::{Bound, Row};
use super::{Options, etcd, haypile};
use crate::client::{Client, Reply};
use crate::random::Random;

/// The longest wait of the client for one reply.
const REPLY_MAX: Duration = Duration::from_millis(100);
/// The pause between two tries, and between two writes.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest wait for a new leader.
const PATIENCE: Duration = Duration::from_secs(60);
/// etcd's default.
const ETCD_ELECTION: Duration = Duration::from_secs(1);

pub fn run(options: &Options) -> Result<Vec<Row>> {
    let mut all = Vec::new();
    // One server alone has no failover.
    if !options.standalone {
        all.extend(rows("", options.election, ours(options)?, [Some(1.5), Some(3.0)]));
    }
    all.extend(rows(" (etcd)", ETCD_ELECTION, of_etcd(options)?, [None, None]));
    Ok(all)
}

/// Returns the rows about the times of many kills, as multiples of the election timeout.
fn rows(whose: &str, election: Duration, mut took: Vec<Duration>, bounds: [Option<f64>; 2]) -> Vec<Row> {
    took.sort();
    let row = |(percent, bound): (usize, Option<f64>)| {
        // The nearest rank: of few kills, the 99th percentile is the longest.
        let rank = (took.len() * percent).div_ceil(100).max(1);
        let time = took.get(rank - 1).copied().unwrap_or_default();
        Row {
            name: format!("from a kill of the leader to the next write, of the election timeout, p{percent}{whose}"),
            found: format!("{} ms of {}, {} kills", time.as_millis(), election.as_millis(), took.len()),
            value: time.as_secs_f64() / election.as_secs_f64(),
            bound: bound.map(Bound::AtMost),
        }
    };
    [50, 99].into_iter().zip(bounds).map(row).collect()
}

fn ours(options: &Options) -> Result<Vec<Duration>> {
    let election = options.election.as_millis();
    let times = format!("--raft-election-timeout {election} --raft-heartbeat-interval {}", (election / 10).max(1));
    let mut group = haypile::start(&options.server.with(&times)?, Mode::Group, &options.dir)?;
    let (mut random, mut all) = (Random::new(4), Vec::new());
    for _ in 0..options.kills {
        let leader = haypile::wait_for_leader(&mut group)?;
        let mut writer = Writer::new(group.nodes.iter().map(|node| node.port()).collect());
        // The kill comes at any moment between two heartbeats.
        let until = Instant::now() + options.election.mul_f64(random.fraction());
        while Instant::now() < until {
            writer.write(Instant::now())?;
            sleep(PAUSE);
        }
        let killed = Instant::now();
        group.kill(leader)?;
        all.push(writer.write(killed)?);
        println!("a write after {} ms", all.last().map_or(0, Duration::as_millis));
        group.restart(leader)?;
        haypile::wait_until_it_follows(&mut group, leader)?;
        sleep(options.election * 2);
    }
    Ok(all)
}

/// A client that knows all nodes, writes to the one that took its last write, and retries on all.
struct Writer {
    nodes: Vec<(u16, Option<Client>)>,
    at: usize,
}

impl Writer {
    fn new(ports: Vec<u16>) -> Writer {
        Writer { nodes: ports.into_iter().map(|port| (port, None)).collect(), at: 0 }
    }

    /// Writes until that is acknowledged; returns how long after `since` that was.
    fn write(&mut self, since: Instant) -> Result<Duration> {
        while since.elapsed() < PATIENCE {
            match self.ask() {
                Some(reply) if reply.is_ok() => return Ok(since.elapsed()),
                reply => {
                    let to = reply.as_ref().and_then(moved_to);
                    let known = self.nodes.iter().position(|(port, _)| Some(*port) == to);
                    self.at = known.unwrap_or((self.at + 1) % self.nodes.len());
                }
            }
            sleep(PAUSE);
        }
        bail!("no write within {} s", PATIENCE.as_secs())
    }

    /// Sends a write to one node. A connection without a reply is given up.
    fn ask(&mut self) -> Option<Reply> {
        let (port, kept) = &mut self.nodes[self.at];
        let mut client = kept.take().or_else(|| Client::connect(*port, REPLY_MAX).ok())?;
        let reply = client.command("SET retried value").ok()?;
        *kept = Some(client);
        Some(reply)
    }
}

fn of_etcd(options: &Options) -> Result<Vec<Duration>> {
    let client = etcd::Client::build()?;
    let mut group = etcd::start(&client, &options.dir)?;
    let mut writer = etcd::retry(&client, &group)?;
    let (mut random, mut all) = (Random::new(4), Vec::new());
    for _ in 0..options.kills {
        let leader = etcd::wait_for_leader(&client, &group)?;
        sleep(ETCD_ELECTION.mul_f64(random.fraction()));
        let (killed, begin) = (SystemTime::now().duration_since(UNIX_EPOCH)?, Instant::now());
        group.kill(leader)?;
        let came = loop {
            let came = writer.acknowledged_after_a_gap()?;
            if came > killed {
                break came;
            }
            ensure!(begin.elapsed() < PATIENCE, "no write within {} s", PATIENCE.as_secs());
        };
        all.push(came - killed);
        println!("a write of etcd after {} ms", (came - killed).as_millis());
        group.restart(leader)?;
        etcd::wait_for_leader(&client, &group)?;
        sleep(ETCD_ELECTION * 2);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_multiples_of_the_election_timeout() {
        let took = (1..=100).rev().map(|n| Duration::from_millis(n * 20)).collect();
        let rows = rows("", Duration::from_secs(1), took, [Some(1.5), None]);
        assert_eq!(rows.iter().map(|row| row.value).collect::<Vec<_>>(), [1.0, 1.98]);
        assert!(rows[0].is_met() && rows[0].found == "1000 ms of 1000, 100 kills", "{}", rows[0].found);
    }
}
