//! The lives of nodes: processes end and start, follow other ones, and one of them is made the leader.

use super::{Cluster, Life, NODES, SETTLE_ROUNDS, count, follows, leads};
use haypile_log::Durability;
use haypile_store::testing::node::End;

impl Cluster<'_> {
    /// Ends a process.
    pub(super) fn end(&mut self) {
        let number = self.draw_node();
        let seed = self.random.number();
        let how = match self.random.below(3) {
            0 => End::Stop,
            1 => End::Kill,
            // Without syncs, a write is safe from the loss of one machine, not of all that have it.
            _ if self.durability == Durability::Os && !self.is_safe_without(number) => End::Kill,
            _ => End::LosePower(seed),
        };
        if self.is_up(number) {
            self.end_by(number, how);
        }
    }

    fn end_by(&mut self, number: usize, how: End) {
        self.tell(|| format!("{number} ends: {how:?}"));
        count(&self.seen.power_losses, matches!(how, End::LosePower(_)).into());
        self.drop_links(number);
        self.copies.retain(|copy| copy.from != number && copy.replica != number);
        let Life::Up(node) = std::mem::replace(&mut self.members[number].life, Life::Gone) else { return };
        if matches!(how, End::LosePower(_)) && self.durability == Durability::Os {
            self.members[number].had = node.store.log().last();
        }
        self.members[number].life = Life::Down(node.end(how));
        if number == self.leader {
            // Clients lose their connections.
            self.waiting.clear();
            if matches!(how, End::LosePower(_)) && self.durability == Durability::Os {
                // The leader may have forgotten what was acknowledged: another node has to lead, if one has it.
                self.force_promotion();
            }
        }
    }

    /// Starts a process: the leader as one, another one as a replica, or now and then as a leader that nobody asked
    /// for.
    pub(super) fn start(&mut self) {
        let number = self.draw_node();
        let rogue = self.random.chance(20);
        self.start_as(number, rogue);
    }

    pub(super) fn start_as(&mut self, number: usize, rogue: bool) {
        if !matches!(self.members[number].life, Life::Down(_)) {
            return;
        }
        let Life::Down(rest) = std::mem::replace(&mut self.members[number].life, Life::Gone) else { return };
        let leads_now = number == self.leader || rogue;
        self.tell(|| format!("{number} starts, leads {leads_now}"));
        self.members[number].life = Life::Up(rest.start(if leads_now { leads } else { follows }));
        if number != self.leader {
            self.members[number].follows = if leads_now { None } else { Some(self.leader) };
            if leads_now {
                self.members[number].in_step = None;
            }
        } else {
            self.expect_acknowledged();
        }
        self.begin(number);
    }

    /// Has a node that leads without being asked to, or follows, follow another one.
    pub(super) fn follow_another(&mut self) {
        let number = self.draw_node();
        if number == self.leader || !self.is_up(number) {
            return;
        }
        let others: Vec<usize> = (0..NODES).filter(|other| *other != number).collect();
        let mut master = others[self.random.below(others.len() as u64) as usize];
        if self.members[master].follows == Some(number) {
            // A circle is refused.
            master = self.leader;
        }
        self.follow(number, master);
    }

    pub(super) fn follow(&mut self, number: usize, master: usize) {
        self.links.retain(|link| link.replica != number);
        self.copies.retain(|copy| copy.replica != number);
        (self.members[number].follows, self.members[number].asks_plainly) = (Some(master), false);
        self.tell(|| format!("{number} is to follow {master}"));
        let is_leading = self.node(number).is_some_and(|node| !node.store.follows());
        if is_leading {
            // The data are closed and opened again.
            self.links.retain(|link| link.master != number);
            self.copies.retain(|copy| copy.from != number);
            let Life::Up(node) = std::mem::replace(&mut self.members[number].life, Life::Gone) else { return };
            self.members[number].life = Life::Up(node.end(End::Stop).start(follows));
            self.begin(number);
        }
    }

    /// Has the replica lead that has most, if all replicas are there: one that is not may have what was acknowledged.
    pub(super) fn promote(&mut self) {
        let had = self.members.iter().map(|member| member.had).max();
        let next = self.choose();
        if let Some(next) = next.filter(|next| self.node(*next).map(|node| node.store.log().last()) >= had) {
            self.promote_to(next, false);
        }
    }

    /// The replica that has most, of those that have gone no way of their own.
    fn choose(&self) -> Option<usize> {
        let others: Vec<usize> = (0..NODES).filter(|number| *number != self.leader).collect();
        // Where replies wait for replicas, any of them may be the one.
        let all_there = others.iter().all(|number| self.node(*number).is_some_and(|node| node.store.follows()));
        let last = |number: &usize| self.node(*number).map(|node| node.store.log().last());
        let is_candidate = |number: &&usize| self.members[**number].in_step == Some(self.reign);
        let most = others.iter().filter(is_candidate).max_by_key(|number| last(number)).copied();
        most.filter(|number| all_there && self.is_up(*number))
    }

    /// The leader may have lost what was acknowledged: all replicas come up, and one of them leads.
    fn force_promotion(&mut self) {
        let others: Vec<usize> = (0..NODES).filter(|number| *number != self.leader).collect();
        for number in others {
            self.start_as(number, false);
            if self.members[number].follows.is_none() {
                self.follow(number, self.leader);
            }
        }
        match self.choose() {
            Some(next) => self.promote_to(next, false),
            None if self.asks => {
                count(&self.seen.from_elsewhere, 1);
                let has_all = |number: &usize| {
                    *number != self.leader && self.node(*number).is_some_and(|node| self.lacking(node).is_none())
                };
                let next =
                    (0..NODES).find(has_all).expect("a replica has what was acknowledged, wherever it went since");
                self.promote_to(next, false);
            }
            // Nobody else has to have what was acknowledged: in step was only the leader itself.
            None => (self.acknowledged, self.reign) = (Vec::new(), self.reign + 1),
        }
    }

    fn promote_to(&mut self, next: usize, hands_over: bool) {
        let old = self.leader;
        self.tell(|| format!("{next} is to lead, hands over {hands_over}"));
        count(&self.seen.promotions, 1);
        self.links.retain(|link| link.replica != next);
        self.copies.retain(|copy| copy.replica != next);
        let Some(node) = self.node(next) else { return };
        let fork = node.store.log().last();
        node.store.lead().expect("nothing is broken");
        node.store.log().ask_others(self.asks);
        self.members[next].follows = None;
        (self.leader, self.reign) = (next, self.reign + 1);
        self.waiting.clear();
        if !self.asks && !hands_over {
            // Records that the old leader alone had are lost, and nothing before them.
            self.acknowledged.retain(|(_, index)| *index <= fork);
        }
        self.expect_acknowledged();
        for number in (0..NODES).filter(|number| *number != next) {
            if number == old {
                // The old leader may be told much later.
                let tells = hands_over || self.random.chance(50);
                if tells && self.is_up(old) {
                    self.follow(old, next);
                } else {
                    self.drop_links(old);
                    self.members[old].in_step = None;
                }
            } else if self.is_up(number) {
                self.follow(number, next);
            }
        }
        self.audit(next);
    }

    /// Hands over to a replica that is connected, without a lost write.
    pub(super) fn hand_over(&mut self) {
        let leader = self.leader;
        let Some(at) = self.links.iter().position(|link| link.master == leader) else { return };
        let replica = self.links[at].replica;
        for _ in 0..SETTLE_ROUNDS {
            let Cluster { members, links, .. } = self;
            let (Life::Up(master), Life::Up(node)) = (&members[leader].life, &members[replica].life) else { return };
            let through = master.store.log().last();
            if node.store.log().last() == through {
                self.promote_to(replica, true);
                return;
            }
            if self.durability == Durability::Fsync {
                master.sync();
            } else {
                master.store.log().write();
            }
            if links[at].send(&master.store, 20).is_err() || links[at].deliver(&node.store, 100).is_err() {
                links.remove(at);
                return;
            }
        }
        panic!("a connected replica gets all");
    }
}
