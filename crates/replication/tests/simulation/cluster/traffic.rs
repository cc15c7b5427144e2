//! The writes of nodes, and what goes from one to another: records, acknowledgements and copies.

use super::{Cluster, Copy, Life, NODES, Waiting, count, follows, transact_on};
use crate::link::Link;
use haypile_log::{Durability, Index};
use haypile_replication::stream::admit;
use haypile_replication::{FullReason, Position};
use haypile_store::testing::node::MemoryBases;

impl Cluster<'_> {
    /// Runs a transaction on the leader, or on another node that takes itself for one.
    pub(super) fn write(&mut self) {
        let number = if self.random.chance(90) { self.leader } else { self.draw_node() };
        let seed = self.random.number();
        let Some(node) = self.node(number).filter(|node| !node.store.follows()) else { return };
        let log = node.store.log();
        let before = self.truth.content(&log.histories(), log.last());
        let Some((index, after)) = transact_on(node, &before, seed) else { return };
        let place = (log.history(), index);
        self.truth.note(place, after);
        self.tell(|| format!("node {number} writes {}", place.1));
        count(&self.seen.records, 1);
        if number == self.leader {
            self.waiting.push(Waiting { place });
        }
        self.audit(number);
        self.reply();
    }

    /// Hands what was written to the operating system, on a node that leads: the end of an event loop's round.
    pub(super) fn tick(&mut self) {
        if let Some(node) = self.node(self.leader) {
            node.store.log().write();
        }
        self.reply();
    }

    /// Has a node sync its log, and say so.
    pub(super) fn sync(&mut self) {
        let number = self.draw_node();
        if let Some(node) = self.node(number) {
            node.sync();
        }
        self.acknowledge(number);
        self.reply();
    }

    fn acknowledge(&mut self, number: usize) {
        let Cluster { members, links, .. } = self;
        let Life::Up(node) = &members[number].life else { return };
        links.iter_mut().filter(|link| link.replica == number).for_each(|link| link.acknowledge(&node.store));
    }

    pub(super) fn send(&mut self) {
        let (records, at) = (self.random.below(6), self.random.below(self.links.len().max(1) as u64) as usize);
        let Cluster { members, links, .. } = self;
        let Some(link) = links.get_mut(at) else { return };
        let Life::Up(master) = &members[link.master].life else { unreachable!("a connection ends with its nodes") };
        if link.send(&master.store, records).is_err() {
            links.remove(at);
        }
    }

    pub(super) fn deliver(&mut self) {
        let (frames, at) = (self.random.below(8), self.random.below(self.links.len().max(1) as u64) as usize);
        let writes = self.random.chance(80);
        let Cluster { members, links, .. } = self;
        let Some(link) = links.get_mut(at) else { return };
        let replica = link.replica;
        let Life::Up(node) = &members[replica].life else { unreachable!("a connection ends with its nodes") };
        let taken = link.deliver(&node.store, frames);
        if writes {
            node.store.log().write();
        }
        link.acknowledge(&node.store);
        if let Err(why) = taken {
            // The master has not left the history that the replica has left without a record.
            let is_elsewhere = link.named() != node.store.history();
            assert!(is_elsewhere || why.contains("room"), "a replica takes what its master sends: {why}");
            members[replica].asks_plainly = is_elsewhere;
            links.remove(at);
        }
        self.audit(replica);
    }

    pub(super) fn take_acknowledgements(&mut self) {
        let at = self.random.below(self.links.len().max(1) as u64) as usize;
        if let Some(link) = self.links.get_mut(at) {
            while link.take_acknowledgement() {}
        }
        self.confirm();
        self.reply();
    }

    /// Notes through where a replica of the leader has all.
    pub(super) fn confirm(&mut self) {
        let Some(leader) = self.node(self.leader).filter(|_| self.asks) else { return };
        let of_leader = self.links.iter().filter(|link| link.master == self.leader);
        let has = of_leader.map(|link| {
            let [written, synced, applied] = link.acknowledged;
            if self.durability == Durability::Fsync { synced } else { written }.min(applied)
        });
        leader.store.log().confirm(has.max().unwrap_or_default());
    }

    /// Answers the clients whose writes are confirmed.
    pub(super) fn reply(&mut self) {
        let Cluster { members, leader, waiting, acknowledged, seen, tells, .. } = self;
        let Life::Up(node) = &members[*leader].life else { return };
        let confirmed = node.store.log().confirmed();
        waiting.retain(|Waiting { place }| {
            let is_confirmed = place.1 <= confirmed;
            if is_confirmed {
                acknowledged.push(*place);
                if *tells {
                    println!("acknowledged {}", place.1);
                }
                count(&seen.acknowledged, 1);
            }
            !is_confirmed
        });
    }

    pub(super) fn flush(&mut self) {
        let number = self.draw_node();
        let compacts = self.random.chance(50);
        if let Some(node) = self.node(number) {
            node.store.flush_now().expect("nothing is broken");
            if compacts {
                node.compact();
            }
        }
        self.audit(number);
    }

    /// Has each node that follows, and is not connected, ask.
    pub(super) fn connect_all(&mut self) {
        (0..NODES).for_each(|number| self.connect(number));
    }

    fn connect(&mut self, number: usize) {
        let is_busy = self.links.iter().any(|link| link.replica == number)
            || self.copies.iter().any(|copy| copy.replica == number);
        let Some(master) = self.members[number].follows.filter(|_| !is_busy) else { return };
        let (Some(replica), Some(of_master)) = (self.node(number), self.node(master)) else { return };
        let log = replica.store.log();
        let plain = Position { history: log.history(), index: log.last() };
        let oldest = Position::oldest(&log.histories(), log.last()).expect("an open log has a history");
        let at = if self.members[number].asks_plainly { plain } else { oldest };
        let is_in_step = |number: usize| number == self.leader || self.members[number].in_step == Some(self.reign);
        let was_in_step = is_in_step(number) && is_in_step(master);
        match admit(of_master.store.log(), at) {
            Ok(hold) => {
                count(&self.seen.partial, 1);
                self.tell(|| format!("{number} follows {master} from {}", at.index));
                self.links.push(Link::begin((master, &of_master.store), number, at, hold));
                self.members[number].in_step =
                    self.members[master].in_step.or((master == self.leader).then_some(self.reign));
            }
            // The master is on its way to where the replica is.
            Err(FullReason::Ahead { .. }) if of_master.store.follows() => {}
            Err(why) => {
                count(&self.seen.beyond, matches!(why, FullReason::Beyond { .. }).into());
                // A leader never comes back with less than its replica has, and each knows the other's history. A
                // master that follows as well gets there.
                let is_gone = matches!(why, FullReason::Purged { .. });
                assert!(!was_in_step || is_gone, "no copy where records are enough: {why}");
                self.tell(|| format!("{number} fetches a copy of {master}: {why}"));
                // One moment of the master, on its disk.
                of_master.sync();
                let node = of_master.checkpoint(&MemoryBases, follows);
                self.copies.push(Copy { from: master, replica: number, node });
            }
        }
    }

    /// Has a replica put a copy in place of its data.
    pub(super) fn adopt(&mut self) {
        if self.copies.is_empty() {
            return;
        }
        let at = self.random.below(self.copies.len() as u64) as usize;
        let Copy { from, replica, node } = self.copies.swap_remove(at);
        if !self.is_up(replica) || self.members[replica].follows != Some(from) {
            return;
        }
        count(&self.seen.copies, 1);
        self.tell(|| format!("{replica} adopts a copy of {from}"));
        self.drop_links(replica);
        self.members[replica].life = Life::Up(node);
        (self.members[replica].in_step, self.members[replica].had) = (None, Index(0));
        self.members[replica].asks_plainly = false;
        self.begin(replica);
        self.connect(replica);
    }

    pub(super) fn drop_links(&mut self, number: usize) {
        self.links.retain(|link| link.master != number && link.replica != number);
    }

    pub(super) fn cut(&mut self) {
        if !self.links.is_empty() {
            let at = self.random.below(self.links.len() as u64) as usize;
            self.links.swap_remove(at);
        }
    }
}
