//! The course of a scenario: pauses, and nodes by their part in the group, as plays of all kinds need them.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use crate::raft_chaos::group::Group;
use crate::raft_chaos::system::Ability;
use crate::random::Random;

/// The course of a scenario.
pub struct Course<'g, 's> {
    pub group: &'g mut Group<'s>,
    pub random: &'g mut Random,
}

impl Course<'_, '_> {
    pub fn pause(&mut self, from_ms: u64, to_ms: u64) {
        sleep(Duration::from_millis(self.random.between(from_ms, to_ms)));
    }

    pub fn any(&mut self) -> usize {
        self.random.below(self.group.count() as u64) as usize
    }

    /// Returns the leader, or any node if none is known.
    pub fn leader(&mut self) -> usize {
        self.group.wait_leader(Duration::from_secs(5)).unwrap_or_else(|| self.any())
    }

    /// Returns all nodes but one.
    pub fn others(&self, number: usize) -> Vec<usize> {
        (0..self.group.count()).filter(|other| *other != number).collect()
    }

    /// Starts a node, unless it runs.
    pub fn start(&mut self, number: usize) -> Result<()> {
        if self.group.is_up(number) { Ok(()) } else { self.group.start_node(number) }
    }

    /// Moves leadership somehow: by request if the system has that, else by a stop that is long enough.
    pub fn depose(&mut self) -> Result<()> {
        let leader = self.leader();
        if self.group.system.can(Ability::Transfer) && self.random.percent(70) {
            let to = *self.random.pick(&self.others(leader));
            // The group may be in the middle of an election: the attempt does not count then.
            if let Err(error) = self.group.transfer(leader, to) {
                println!("raft-chaos: node {leader} does not hand over to node {to}: {error:#}");
            }
            return Ok(());
        }
        self.group.freeze(leader, true)?;
        self.pause(800, 1500);
        self.group.freeze(leader, false)
    }
}
