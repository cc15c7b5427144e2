//! A group that nothing disturbs any more: every node serves, all have the same, and their data are equal.

use std::thread::sleep;
use std::time::Instant;

use anyhow::{Result, bail, ensure};

use super::{Group, LOOK, SERVE_MAX};
use crate::raft_chaos::operation::{Kind, Object, Operation, Outcome};
use crate::raft_chaos::system::{Ability, Facts, REPLY_MAX};

impl Group<'_> {
    /// Waits until every node serves new sessions, and knows to be committed what the leader does. A group that nothing
    /// disturbs has to come to that.
    pub(super) fn wait_serving(&mut self) -> Result<()> {
        for number in 0..self.count() {
            self.wait_served_by(number)?;
            self.nodes[number].has_served = true;
        }
        if self.system.can(Ability::Facts) { self.wait_caught_up() } else { Ok(()) }
    }

    /// Waits until a session that knows this node alone writes and reads.
    fn wait_served_by(&mut self, number: usize) -> Result<()> {
        let object = Object { kind: Kind::Register, number: 0 };
        let begin = Instant::now();
        loop {
            let mut session = self.system.session(&[self.nodes[number].member], 0, REPLY_MAX);
            let outcomes = [Operation::Write(1), Operation::Read].map(|operation| session.call(object, &operation));
            if let Some(text) = outcomes.iter().find_map(|outcome| match outcome {
                Outcome::Wrong(text) => Some(text),
                _ => None,
            }) {
                bail!("node {number} answers a write or a read by {text}");
            }
            if outcomes.iter().all(|outcome| matches!(outcome, Outcome::Done(_))) {
                return Ok(());
            }
            let seconds = SERVE_MAX.as_secs();
            ensure!(
                begin.elapsed() < SERVE_MAX,
                "node {number} does not serve within {seconds} s: a write and a read: {outcomes:?}"
            );
            sleep(LOOK);
            self.check_all_alive()?;
        }
    }

    /// Waits until all nodes know to be committed what the leader did at the beginning.
    fn wait_caught_up(&mut self) -> Result<()> {
        let (begin, mut wanted) = (Instant::now(), None);
        loop {
            let facts = self.facts();
            let leader = facts.iter().flatten().filter(|facts| facts.leads).max_by_key(|facts| facts.term);
            wanted = wanted.or(leader.map(|leader| leader.commit));
            let is_there = |facts: &Option<Facts>| facts.is_some_and(|facts| Some(facts.commit) >= wanted);
            if wanted.is_some() && facts.iter().all(is_there) {
                return Ok(());
            }
            let seconds = SERVE_MAX.as_secs();
            ensure!(begin.elapsed() < SERVE_MAX, "not all nodes have entry {wanted:?} within {seconds} s: {facts:?}");
            sleep(LOOK);
            self.check_all_alive()?;
        }
    }

    /// Waits until the data of all nodes are equal, while no client writes; counts the copies that they have had.
    pub fn compare(&mut self) -> Result<()> {
        if !self.system.can(Ability::Facts) {
            return Ok(());
        }
        let begin = Instant::now();
        loop {
            let before = self.facts();
            let digests: Vec<_> = self.nodes.iter().map(|node| self.system.digest(node.member)).collect();
            let after = self.facts();
            if are_equal(&before) && after == before && are_digests_equal(&digests) {
                self.counts.compared += 1;
                self.count_copies(&after);
                return Ok(());
            }
            let seconds = SERVE_MAX.as_secs();
            ensure!(
                begin.elapsed() < SERVE_MAX,
                "the data of all nodes are not equal within {seconds} s: {digests:?}, of {after:?}"
            );
            sleep(LOOK);
            self.check_all_alive()?;
        }
    }

    fn count_copies(&mut self, facts: &[Option<Facts>]) {
        for (node, copies) in self.nodes.iter_mut().zip(facts.iter().map(|facts| facts.map_or(0, |facts| facts.copies)))
        {
            self.counts.copies += copies.saturating_sub(node.copies);
            node.copies = copies;
        }
    }

    fn facts(&self) -> Vec<Option<Facts>> {
        self.nodes.iter().map(|node| self.system.facts(node.member)).collect()
    }

    fn check_all_alive(&mut self) -> Result<()> {
        for number in 0..self.count() {
            self.check_alive(number)?;
            ensure!(self.is_up(number), "node {number} has ended with room on its disk");
        }
        Ok(())
    }
}

/// Whether all nodes tell that all of their entries are committed, the same on each.
fn are_equal(facts: &[Option<Facts>]) -> bool {
    let end = |facts: &Option<Facts>| facts.map(|facts| (facts.last, facts.commit));
    let first = facts.first().and_then(end);
    first.is_some_and(|(last, commit)| last == commit) && facts.iter().all(|facts| end(facts) == first)
}

fn are_digests_equal(digests: &[Result<String>]) -> bool {
    let first = digests.first().and_then(|digest| digest.as_ref().ok());
    first.is_some() && digests.iter().all(|digest| digest.as_ref().ok() == first)
}
