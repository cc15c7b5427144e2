//! The disturbances of a round: which node ends, is stopped or cut off, and who leads then.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::cluster::{Cluster, NODES};
use super::network::Flow;
use crate::random::Random;

/// A disturbance while clients write to the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// The servers run undisturbed, over a network that is slow, or is not.
    Calm,
    /// Replicas are killed and come back.
    KillReplica,
    /// The master is killed and comes back as one.
    KillMaster,
    /// The master is killed, and the replica that has most leads.
    KillAndPromote,
    /// The master is stopped cleanly, and the replica that has most leads.
    StopAndPromote,
    /// The master does not run for a while, and the replica that has most leads meanwhile.
    FreezeAndPromote,
    /// The master is cut off from the others, one of which leads meanwhile.
    CutAndPromote,
    /// A replica, or both, are cut off for a while.
    CutReplica,
    /// FAILOVER.
    Failover,
    /// FAILOVER, while one of the two is killed.
    KillInFailover,
    /// A replica finds no room on its disk for a while.
    FullDisk,
    /// A replica loses all its data; it may be killed again while it fetches a copy.
    Wipe,
}

/// The longest wait until a replica can be handed over to.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// The longest wait for the first files of a copy.
const COPY_MAX: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// The directive's default, which holds but in `Scenario::FullDisk`.
const DISK_FREE_MIN: &str = "64mb";

/// Scenarios, and how often each comes.
const SCENARIOS: &[(u64, Scenario)] = &[
    (8, Scenario::Calm),
    (12, Scenario::KillReplica),
    (10, Scenario::KillMaster),
    (18, Scenario::KillAndPromote),
    (5, Scenario::StopAndPromote),
    (10, Scenario::FreezeAndPromote),
    (15, Scenario::CutAndPromote),
    (10, Scenario::CutReplica),
    (10, Scenario::Failover),
    (8, Scenario::KillInFailover),
    (5, Scenario::FullDisk),
    (10, Scenario::Wipe),
];

impl Scenario {
    pub fn draw(random: &mut Random) -> Scenario {
        let mut at = random.below(SCENARIOS.iter().map(|(weight, _)| weight).sum());
        for (weight, scenario) in SCENARIOS {
            if at < *weight {
                return *scenario;
            }
            at -= weight;
        }
        Scenario::Calm
    }

    /// Whether what the master has acknowledged by itself survives: it goes on, or hands over.
    pub fn keeps_all(self) -> bool {
        use Scenario::*;
        matches!(self, Calm | KillReplica | KillMaster | CutReplica | Failover | KillInFailover | FullDisk | Wipe)
    }

    /// Whether the master goes on, so that its clients are neither refused nor disconnected.
    pub fn serves_all(self) -> bool {
        use Scenario::*;
        matches!(self, Calm | KillReplica | CutReplica | FullDisk)
    }

    /// Whether records are enough for all replicas, as far as the master's log reaches.
    pub fn needs_no_copy(self) -> bool {
        use Scenario::*;
        matches!(self, Calm | KillReplica | CutReplica)
    }
}

/// The course of a disturbance.
pub struct Course<'a> {
    pub cluster: &'a mut Cluster,
    pub random: &'a mut Random,
    pub master: usize,
}

impl Course<'_> {
    fn replicas(&self) -> Vec<usize> {
        (0..NODES).filter(|number| *number != self.master).collect()
    }

    fn pause(&mut self, ms_max: u64) {
        sleep(Duration::from_millis(self.random.below(ms_max)));
    }

    /// Disturbs the cluster; returns the node that leads in the end. What was ended or cut off may still be so.
    pub fn disturb(&mut self, scenario: Scenario) -> Result<usize> {
        match scenario {
            Scenario::Calm => self.pause(500),
            Scenario::KillReplica => {
                for _ in 0..self.random.between(1, 3) {
                    let replica = *self.random.pick(&self.replicas());
                    self.cluster.kill(replica)?;
                    self.pause(300);
                    self.cluster.start_node(replica, true)?;
                    self.pause(500);
                }
            }
            Scenario::KillMaster => {
                self.cluster.kill(self.master)?;
                self.pause(300);
                self.cluster.start_node(self.master, true)?;
            }
            Scenario::KillAndPromote => {
                self.cluster.kill(self.master)?;
                return self.promote_most();
            }
            Scenario::StopAndPromote => {
                self.cluster.stop(self.master)?;
                return self.promote_most();
            }
            Scenario::FreezeAndPromote => {
                self.cluster.freeze(self.master, true)?;
                return self.promote_most();
            }
            Scenario::CutAndPromote => {
                let flow = *self.random.pick(&[Flow::Cut, Flow::Stalled]);
                self.cluster.isolate(self.master, flow);
                self.pause(500);
                return self.promote_most();
            }
            Scenario::CutReplica => {
                let flow = *self.random.pick(&[Flow::Cut, Flow::Stalled]);
                for replica in self.replicas() {
                    if self.random.percent(60) {
                        self.cluster.set_flow(self.master, replica, flow);
                    }
                }
                self.pause(4000);
                self.cluster.heal();
                self.pause(500);
            }
            Scenario::Failover => return self.hand_over(None),
            Scenario::KillInFailover => {
                let victim = self.random.below(2) as usize;
                return self.hand_over(Some(victim));
            }
            Scenario::FullDisk => {
                let replica = *self.random.pick(&self.replicas());
                self.cluster.configure_node(replica, "disk-free-min", "1000000gb")?;
                self.pause(1500);
                self.cluster.configure_node(replica, "disk-free-min", DISK_FREE_MIN)?;
            }
            Scenario::Wipe => {
                let replica = *self.random.pick(&self.replicas());
                self.cluster.kill(replica)?;
                self.cluster.wipe(replica)?;
                self.cluster.start_node(replica, true)?;
                while self.random.percent(40) {
                    self.wait_for_copy(replica);
                    let victim = if self.random.percent(70) { replica } else { self.master };
                    self.cluster.kill(victim)?;
                    self.cluster.copies_cut += u64::from(self.cluster.has_half_a_copy(replica));
                    self.cluster.start_node(victim, true)?;
                }
            }
        }
        Ok(self.master)
    }

    /// Waits until a replica has fetched a part of a copy, or for a moment, in which it may have got anywhere.
    fn wait_for_copy(&mut self, replica: usize) {
        if self.random.percent(40) {
            return self.pause(300);
        }
        let begin = Instant::now();
        while !self.cluster.has_half_a_copy(replica) && begin.elapsed() < COPY_MAX {
            sleep(LOOK);
        }
    }

    /// Has the replica lead that has most, and the other one follow it. Whoever is not chosen does not follow the old
    /// master any more when they are compared: a frozen one, when it runs on, finds what replicas have acknowledged
    /// meanwhile, and tells its clients.
    fn promote_most(&mut self) -> Result<usize> {
        let replicas = self.replicas();
        let first = self.cluster.most(&replicas)?;
        for replica in replicas.iter().filter(|replica| **replica != first) {
            self.cluster.follow(*replica, Some(first))?;
        }
        let mut next = self.cluster.most(&replicas)?;
        if next != first {
            self.cluster.follow(first, Some(next))?;
            next = self.cluster.most(&replicas)?;
        }
        self.cluster.follow(next, None)?;
        for replica in replicas.into_iter().filter(|replica| *replica != next) {
            self.cluster.follow(replica, Some(next))?;
        }
        self.cluster.wait_for_leader(next)?;
        Ok(next)
    }

    /// Hands over by FAILOVER; the old master is killed in the middle (0), or the new one (1). Returns who leads.
    fn hand_over(&mut self, victim: Option<usize>) -> Result<usize> {
        let next = *self.random.pick(&self.replicas());
        // A replica of a replica is none of the master.
        let follower = self.cluster.nodes[next].follows;
        let next = if follower == Some(self.master) { next } else { follower.context("a replica follows a node")? };
        let to = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 10000", self.cluster.port(next)?);
        // The replica may be about to connect again.
        let begin = Instant::now();
        while let Some(error) = self.cluster.command(self.master, &to)?.error() {
            let may_connect = ["is not", "requires connected"].iter().any(|text| error.contains(text));
            ensure!(may_connect && begin.elapsed() < CONNECT_MAX, "{to} was answered by {error}");
            sleep(LOOK);
        }
        if let Some(victim) = victim {
            self.pause(30);
            let victim = if victim == 0 { self.master } else { next };
            self.cluster.kill(victim)?;
            self.cluster.start_node(victim, true)?;
        }
        self.wait_for_end_of_failover()?;
        if victim.is_none() {
            let facts = self.cluster.facts(next)?;
            ensure!(facts.is_master, "nothing disturbs {to}, and node {next} does not lead: {facts:?}");
            self.cluster.failovers += 1;
        }
        self.find_leader(next)
    }

    fn wait_for_end_of_failover(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let info = self.cluster.client(self.master)?.info("replication")?.unwrap_or_default();
            if info.contains("master_failover_state:no-failover") {
                return Ok(());
            }
            ensure!(begin.elapsed() < Duration::from_secs(30), "the failover does not end:\n{info}");
            sleep(LOOK);
        }
    }

    /// Finds out who leads after a failover that was perhaps cut short: a replica leads only if it was told to, and
    /// then it has all; a master that was killed comes up as one.
    fn find_leader(&mut self, next: usize) -> Result<usize> {
        let (of_next, of_master) = (self.cluster.facts(next)?, self.cluster.facts(self.master)?);
        let leader = match (of_next.is_master, of_master.is_master) {
            (true, _) => next,
            (false, true) => self.master,
            // The master follows one that was killed then, and has come up as what it was before.
            (false, false) => self.cluster.most(&[next, self.master])?,
        };
        if !(of_next.is_master || of_master.is_master) {
            self.cluster.follow(leader, None)?;
        }
        self.cluster.nodes[leader].follows = None;
        for number in (0..NODES).filter(|number| *number != leader) {
            self.cluster.follow(number, Some(leader))?;
        }
        self.cluster.wait_for_leader(leader)?;
        Ok(leader)
    }
}
