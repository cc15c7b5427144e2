//! Rounds in which nothing fails: the end of each case, and the cases whose steps are not drawn.

use super::{Group, Life, Terms};
use crate::machine::Data;
use crate::truth::Path;
use haypile_raft::{Change, Machine, Member, Part, PeerStanding, Role};
use haypile_store::testing::node::{MemoryBases, Node};
use haypile_store::testing::pair::replicated;

/// Rounds in which all is connected and nothing fails, until nothing more may be missing.
const SETTLE_ROUNDS: u64 = 3000;

/// Rounds in which the longest leases end.
const RELY_ROUNDS: u64 = 200;

impl Group<'_> {
    /// Brings all up and connects them, until they agree; and compares them.
    pub fn settle(&mut self) {
        self.network.heal();
        self.stalls = 0;
        for at in 0..self.lives.len() {
            self.clocks[at].stall(0);
            self.start_at(at);
            self.restart_for_terms(at);
        }
        for round in 0..SETTLE_ROUNDS {
            self.round(round);
            if self.is_settled() {
                break;
            }
        }
        assert!(self.is_settled(), "all are connected, and somebody does not get on");
        for at in self.members() {
            // The log is read anew: it has all that clients were told, whatever it had before.
            self.paths[at] = Path::default();
            self.after(at);
            self.told.writes.iter().for_each(|place| self.paths[at].expect_told(*place, at as u64 + 1));
        }
        let followers: Vec<_> = self.members().into_iter().filter(|at| !self.leaders().contains(at)).collect();
        let node = |at: usize| match &self.lives[at] {
            Life::Up(up) => up.member.machine().node(),
            _ => unreachable!("all are up"),
        };
        let rows: Vec<_> = followers.iter().map(|at| replicated(node(*at))).collect();
        assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "all have the same rows");
    }

    /// A step in which nothing fails.
    fn round(&mut self, round: u64) {
        self.network.now += 1;
        if round.is_multiple_of(4) {
            self.tick_all();
        }
        for at in 0..self.lives.len() {
            if let Life::Up(up) = &self.lives[at] {
                up.member.machine().log().write();
                up.member.machine().node().sync();
            }
            self.call(at, Member::on_progress);
        }
        self.fetch();
        self.install();
        self.deliver();
    }

    /// Goes on until all of so many members vote.
    fn grow(&mut self, voters: u64) {
        self.network.heal();
        for round in 0..SETTLE_ROUNDS {
            self.round(round);
            let Some(at) = self.leaders().first().copied() else { continue };
            let Life::Up(up) = &mut self.lives[at] else { continue };
            let next = up.member.configuration().iter().count() as u64 + 1;
            let votes = up.member.configuration().iter().filter(|(_, _, part)| *part == Part::Voter).count() as u64;
            if votes == voters && self.is_settled() {
                return;
            }
            if next <= voters {
                let change = Change::Add { id: next, address: format!("member-{next}:6379") };
                // A change that is refused is tried again.
                self.call(at, |member| member.change(&change).map(drop));
            }
        }
        panic!("all are connected, and the group does not grow");
    }

    /// Grows from one member, kills all, and starts the first one alone: it must not lead by itself.
    pub fn begin_again_alone(&mut self) {
        self.grow(self.lives.len() as u64);
        (0..self.lives.len()).for_each(|at| self.kill(at));
        self.start_at(0);
        for round in 0..SETTLE_ROUNDS {
            self.round(round);
            let Life::Up(up) = &self.lives[0] else { unreachable!("it is up") };
            assert!(!matches!(up.member.role(), Role::Elected | Role::Leader), "it leads without the others");
        }
        self.settle();
    }

    /// Has a leader show, through many checks of its quorum, that it hears of the others; and not of one that is gone.
    pub fn show_all_that_answer(&mut self) {
        self.grow(3);
        let heard = |group: &Self, at: usize| match &group.lives[at] {
            Life::Up(up) => up.member.standing().peers.iter().filter(|peer| peer.is_heard).count(),
            _ => unreachable!("it is up"),
        };
        let leader = self.leaders()[0];
        for round in 0..SETTLE_ROUNDS {
            self.round(round);
            assert_eq!((self.leaders(), heard(self, leader)), (vec![leader], 2), "in round {round}");
        }
        self.kill((leader + 1) % 3);
        (0..SETTLE_ROUNDS).for_each(|round| self.round(round));
        assert_eq!((self.leaders(), heard(self, leader)), (vec![leader], 1));
    }

    /// Restarts all but the leader with other directives, so many rounds one after the other, while it has a lease of
    /// the last one: whoever leads then must not serve before the lease has ended.
    pub fn leave_a_leader_with_its_lease(&mut self, terms: Terms, apart: u64) {
        self.grow(3);
        let (leader, mut round) = (self.leaders()[0], 0);
        self.terms = terms;
        for at in (0..3).filter(|at| *at != leader) {
            for number in 0..apart {
                self.write_on(leader, number);
                self.step_on(&mut round);
            }
            // Records that are not agreed on would hold back reads there.
            while !self.has_agreed(leader) {
                self.step_on(&mut round);
            }
            self.restart_for_terms(at);
        }
        for number in 0..RELY_ROUNDS {
            let next = self.leaders().into_iter().find(|at| *at != leader);
            next.into_iter().for_each(|at| self.write_on(at, number));
            (0..3).for_each(|_| self.read());
            self.step_on(&mut round);
        }
        self.settle();
    }

    /// Has the last server begin with data that lack so many entries and name it as a learner, stalls it as soon as the
    /// leader hears of it, and kills the leader: the voters of before must go on without both, and the new member must
    /// vote in the end.
    pub fn lose_the_leader_of_an_unnamed_member(&mut self, lag: u64) {
        let (new, mut round) = (self.lives.len() - 1, 0);
        self.kill(new);
        self.grow(new as u64);
        let leader = self.leaders()[0];
        let (id, address) = (new as u64 + 1, "new:6379".to_owned());
        self.call(leader, |member| member.change(&Change::Add { id, address }).map(drop));
        let is_there = |group: &Self| group.up(leader).configuration().get(id).is_some() && group.has_agreed(leader);
        self.step_until(&mut round, is_there);
        let copy = self.up(leader).machine().node().copy(&MemoryBases).expect("there are records");
        for number in 0..lag {
            self.write_on(leader, number);
            self.step_on(&mut round);
        }
        self.step_until(&mut round, |group| group.has_agreed(leader));
        let commit = self.up(leader).standing().commit;
        self.begin_restored(new, Node::new(&MemoryBases, self.options).install(copy), commit);
        let is_heard = |peer: &PeerStanding| peer.id == id && peer.matched > 0;
        self.step_until(&mut round, |group| group.up(leader).standing().peers.iter().any(is_heard));
        self.clocks[new].stall(u64::MAX);
        assert!(self.up(new).standing().is_unnamed, "it has too little to know that it was named");
        (0..RELY_ROUNDS).for_each(|_| self.step_on(&mut round));
        self.kill(leader);
        // Messages of the leader are lost with it.
        self.network.forget(leader as u64 + 1);
        self.begin_again(new);
        self.step_until(&mut round, |group| !group.leaders().is_empty());
        self.start_at(leader);
        self.grow(id);
    }

    /// Returns a member that is up.
    fn up(&self, at: usize) -> &Member<Data> {
        let Life::Up(up) = &self.lives[at] else { panic!("member {} is not up", at + 1) };
        &up.member
    }

    fn step_until(&mut self, round: &mut u64, is_done: impl Fn(&Self) -> bool) {
        let until = *round + SETTLE_ROUNDS;
        while !is_done(self) {
            assert!(*round < until, "all that are up are connected, and somebody does not get on");
            self.step_on(round);
        }
    }

    fn step_on(&mut self, round: &mut u64) {
        self.round(*round);
        *round += 1;
    }

    /// Whether a leader has no records of its own that are not agreed on.
    fn has_agreed(&self, at: usize) -> bool {
        let Life::Up(up) = &self.lives[at] else { unreachable!("it is up") };
        up.member.standing().committed == up.member.machine().log().last()
    }

    /// Returns those that the leader has for members.
    fn members(&self) -> Vec<usize> {
        let leaders = self.leaders();
        let members = leaders.iter().filter_map(|at| match &self.lives[*at] {
            Life::Up(up) => Some(up.member.configuration().iter().map(|(id, ..)| id as usize - 1)),
            _ => None,
        });
        members.flatten().collect()
    }

    /// Whether one member leads, and all have all, applied and committed.
    fn is_settled(&self) -> bool {
        let [leader] = self.leaders()[..] else { return false };
        let of = |at: usize| match &self.lives[at] {
            Life::Up(up) => {
                let data = up.member.machine();
                let standing = up.member.standing();
                Some((standing.term, data.log().last(), data.applied(), standing.committed, up.clients.are_served()))
            }
            _ => None,
        };
        let expected = of(leader);
        let (_, last, applied, committed, _) = expected.expect("a leader is up");
        last == applied && last == committed && self.members().iter().all(|at| of(*at) == expected)
    }
}
