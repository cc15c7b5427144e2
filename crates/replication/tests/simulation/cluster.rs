//! The nodes of a case, who leads and who follows whom, and the steps that the seed draws.

use crate::Seen;
use crate::link::Link;
use crate::truth::{Place, Truth};
use haypile_log::testing::Random;
use haypile_log::{Durability, Index};
use haypile_replication::stream::admit;
use haypile_replication::{FullReason, Position};
use haypile_store::StoreOptions;
use haypile_store::testing::model::{DATABASES, Model, transact};
use haypile_store::testing::node::{End, MemoryBases, Node, Rest};
use haypile_store::testing::pair::replicated;
use haypile_store::{Call, Mode, Stop, TxnBuffers};
use std::sync::atomic::{AtomicU64, Ordering};

const NODES: usize = 3;

/// Rounds in which all is connected and nothing fails, until nothing more may be missing.
const SETTLE_ROUNDS: u64 = 400;

/// Sets the options of a node that leads.
fn leads(options: &mut StoreOptions) {
    options.databases = DATABASES + 1;
    options.memtable_bytes = 64 << 10;
    options.log.segment_bytes = 64 << 10;
    // The seed alone says what is synced.
    options.log.sync_interval_ms = 3_600_000;
    options.log.retention.bytes = 0;
}

/// Sets the options of a node that follows.
fn follows(options: &mut StoreOptions) {
    leads(options);
    options.log.follows = true;
}

/// A process, or the disks of one that has ended.
enum Life {
    Up(Node),
    Down(Rest),
    /// In between.
    Gone,
}

struct Member {
    life: Life,
    /// The node that this one follows; None if it leads.
    follows: Option<usize>,
    /// The record up to which it was compared with the truth.
    audited: Index,
    /// The reign of the leader to which it was connected last, if it has gone no way of its own since.
    in_step: Option<u64>,
    /// The last record that it had when its power was lost, without syncs: nobody with less is promoted at will.
    had: Index,
    /// Whether its master has turned out to be in a history that it has left without a record.
    asks_plainly: bool,
}

/// A copy of a node's data, which its replica has still to put in place.
struct Copy {
    from: usize,
    replica: usize,
    node: Node,
}

/// A write that a client waits for.
struct Waiting {
    place: Place,
}

pub struct Cluster<'s> {
    seed: u64,
    random: Random,
    seen: &'s Seen,
    members: Vec<Member>,
    links: Vec<Link>,
    copies: Vec<Copy>,
    truth: Truth,
    /// The node whose word counts, and the number of its reign.
    leader: usize,
    reign: u64,
    /// Replies wait for a replica.
    asks: bool,
    durability: Durability,
    waiting: Vec<Waiting>,
    acknowledged: Vec<Place>,
    /// Each step is printed.
    tells: bool,
}

fn count(of: &AtomicU64, by: u64) {
    of.fetch_add(by, Ordering::Relaxed);
}

impl<'s> Cluster<'s> {
    pub fn new(seed: u64, seen: &'s Seen, tells: bool) -> Cluster<'s> {
        let mut random = Random(seed);
        let asks = random.chance(60);
        let durability = if random.chance(50) { Durability::Os } else { Durability::Fsync };
        let member = |number: usize| {
            let change = if number == 0 { leads } else { follows };
            let life = Life::Up(Node::new(&MemoryBases, change));
            let follows = (number > 0).then_some(0);
            Member { life, follows, audited: Index(0), in_step: None, had: Index(0), asks_plainly: false }
        };
        let members: Vec<Member> = (0..NODES).map(member).collect();
        let mut cluster = Cluster {
            seed,
            random,
            seen,
            members,
            links: Vec::new(),
            copies: Vec::new(),
            truth: Truth::default(),
            leader: 0,
            reign: 1,
            asks,
            durability,
            waiting: Vec::new(),
            acknowledged: Vec::new(),
            tells,
        };
        (0..NODES).for_each(|number| cluster.begin(number));
        cluster
    }

    fn node(&self, number: usize) -> Option<&Node> {
        match &self.members[number].life {
            Life::Up(node) => Some(node),
            _ => None,
        }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            let at = |number| self.node(number).map(|node| (node.store.log().last().0, node.store.follows()));
            println!("{:?} leader {}: {}", [at(0), at(1), at(2)], self.leader, what());
        }
    }

    fn is_up(&self, number: usize) -> bool {
        self.node(number).is_some()
    }

    /// Tells a process that has started what the settings say.
    fn begin(&mut self, number: usize) {
        let node = self.node(number).expect("it has started");
        node.store.log().set_durability(self.durability);
        node.store.log().ask_others(self.asks && !node.store.follows());
        self.members[number].audited = Index(0);
        self.audit(number);
    }

    fn audit(&mut self, number: usize) {
        let Member { life: Life::Up(node), audited, .. } = &mut self.members[number] else { return };
        self.truth.audit(node, audited, self.seed);
    }

    fn draw_node(&mut self) -> usize {
        self.random.below(NODES as u64) as usize
    }

    pub fn step(&mut self) {
        match self.random.below(100) {
            0..22 => self.write(),
            22..26 => self.tick(),
            26..32 => self.sync(),
            32..48 => self.send(),
            48..66 => self.deliver(),
            66..76 => self.take_acknowledgements(),
            76..79 => self.flush(),
            79..85 => self.connect_all(),
            85..87 => self.cut(),
            87..90 => self.end(),
            90..94 => self.start(),
            94..96 => self.adopt(),
            96..98 => self.promote(),
            98 => self.hand_over(),
            _ => self.follow_another(),
        }
    }

    /// Runs a transaction on the leader, or on another node that takes itself for one.
    fn write(&mut self) {
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
    fn tick(&mut self) {
        if let Some(node) = self.node(self.leader) {
            node.store.log().write();
        }
        self.reply();
    }

    /// Has a node sync its log, and say so.
    fn sync(&mut self) {
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

    fn send(&mut self) {
        let (records, at) = (self.random.below(6), self.random.below(self.links.len().max(1) as u64) as usize);
        let Cluster { members, links, .. } = self;
        let Some(link) = links.get_mut(at) else { return };
        let Life::Up(master) = &members[link.master].life else { unreachable!("a connection ends with its nodes") };
        if link.send(&master.store, records).is_err() {
            links.remove(at);
        }
    }

    fn deliver(&mut self) {
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

    fn take_acknowledgements(&mut self) {
        let at = self.random.below(self.links.len().max(1) as u64) as usize;
        if let Some(link) = self.links.get_mut(at) {
            while link.take_acknowledgement() {}
        }
        self.confirm();
        self.reply();
    }

    /// Notes through where a replica of the leader has all.
    fn confirm(&mut self) {
        let Some(leader) = self.node(self.leader).filter(|_| self.asks) else { return };
        let of_leader = self.links.iter().filter(|link| link.master == self.leader);
        let has = of_leader.map(|link| {
            let [written, synced, applied] = link.acknowledged;
            if self.durability == Durability::Fsync { synced } else { written }.min(applied)
        });
        leader.store.log().confirm(has.max().unwrap_or_default());
    }

    /// Answers the clients whose writes are confirmed.
    fn reply(&mut self) {
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

    fn flush(&mut self) {
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
    fn connect_all(&mut self) {
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
    fn adopt(&mut self) {
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

    fn drop_links(&mut self, number: usize) {
        self.links.retain(|link| link.master != number && link.replica != number);
    }

    fn cut(&mut self) {
        if !self.links.is_empty() {
            let at = self.random.below(self.links.len() as u64) as usize;
            self.links.swap_remove(at);
        }
    }

    /// Ends a process.
    fn end(&mut self) {
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
    fn start(&mut self) {
        let number = self.draw_node();
        let rogue = self.random.chance(20);
        self.start_as(number, rogue);
    }

    fn start_as(&mut self, number: usize, rogue: bool) {
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
    fn follow_another(&mut self) {
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

    fn follow(&mut self, number: usize, master: usize) {
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
    fn promote(&mut self) {
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
    fn hand_over(&mut self) {
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

    /// Whether another node than this one has all that was acknowledged.
    fn is_safe_without(&self, number: usize) -> bool {
        let others = (0..NODES).filter(|other| *other != number).filter_map(|other| self.node(other));
        others.map(|node| self.lacking(node)).any(|lacking| lacking.is_none())
    }

    /// Returns a write that a client was told of and that a node does not have.
    fn lacking(&self, node: &Node) -> Option<Place> {
        let (histories, last) = (node.store.log().histories(), node.store.log().last());
        let is_there = |(history, index): &Place| *index <= last && histories.of(*index) == Some(*history);
        self.acknowledged.iter().find(|place| !is_there(place)).copied()
    }

    /// Each write that a client was told of is on the leader's way.
    fn expect_acknowledged(&self) {
        let Some(leader) = self.node(self.leader) else { return };
        if let Some((history, index)) = self.lacking(leader) {
            let (last, asks, durability) = (leader.store.log().last(), self.asks, self.durability);
            panic!(
                "an acknowledged write is lost: {index} of {history}; the leader has {last}, asks {asks}, {durability:?}"
            );
        }
    }

    /// Brings all up, connects them, and compares them.
    pub fn settle(&mut self) {
        self.copies.clear();
        (0..NODES).for_each(|number| self.start_as(number, false));
        let leader = self.leader;
        (0..NODES).filter(|number| *number != leader).for_each(|number| self.follow(number, leader));
        if let Some(node) = self.node(leader) {
            // A flush may make a record, which the others have to have before their own flush.
            node.store.flush_now().expect("nothing is broken");
            node.sync();
        }
        for _ in 0..SETTLE_ROUNDS {
            self.connect_all();
            while !self.copies.is_empty() {
                self.adopt();
            }
            for at in (0..self.links.len()).rev() {
                let Cluster { members, links, .. } = self;
                let link = &mut links[at];
                let (Life::Up(master), Life::Up(node)) = (&members[link.master].life, &members[link.replica].life)
                else {
                    unreachable!("all are up")
                };
                let sent = link.send(&master.store, 50).map_err(|error| error.to_string());
                if let Err(why) = sent.and_then(|()| link.deliver(&node.store, 100)) {
                    let is_elsewhere = link.named() != node.store.history();
                    assert!(is_elsewhere || why.contains("room") || why.contains("behind"), "{why}");
                    members[link.replica].asks_plainly = is_elsewhere;
                    links.remove(at);
                    continue;
                }
                node.sync();
                link.acknowledge(&node.store);
                while link.take_acknowledgement() {}
            }
            self.confirm();
            self.reply();
            if self.is_settled() {
                break;
            }
        }
        assert!(self.is_settled(), "all are connected, and somebody does not get on");
        assert!(self.waiting.is_empty(), "what all have is acknowledged");
        (0..NODES).for_each(|number| self.audit(number));
        self.expect_acknowledged();
        let rows: Vec<_> = (0..NODES).filter_map(|number| self.node(number)).map(replicated).collect();
        assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "all have the same rows");
    }

    fn is_settled(&self) -> bool {
        let Some(leader) = self.node(self.leader) else { return false };
        let (history, last) = (leader.store.log().history(), leader.store.log().last());
        // A replica may stand in a history of its own, without a record, as long as its leader has not gone on.
        let is_equal = |node: &Node| {
            let log = node.store.log();
            log.last() == last && log.histories().standing(last).any(|standing| standing == history)
        };
        let all_equal = (0..NODES).all(|number| self.node(number).is_some_and(is_equal));
        all_equal && self.links.len() == NODES - 1 && self.links.iter().all(Link::is_idle)
    }
}

/// Runs a random transaction over this content; returns its record and the content behind it, if it made one.
fn transact_on(node: &Node, content: &Model, seed: u64) -> Option<(Index, Model)> {
    loop {
        let mut after = content.clone();
        let call = Call { now_ms: 1_000, seed: 1, database: 0, mode: Mode::Disk, pins: None };
        let mut txn = node.store.begin(TxnBuffers::default(), call);
        match transact(&mut txn, &mut after, seed, false).and_then(|()| txn.commit()) {
            Ok(committed) => return committed.index.map(|index| (index, after)),
            Err(Stop::TooLarge) => return None,
            Err(Stop::Refused(_)) => drop(txn),
            Err(stop) => panic!("{stop:?}"),
        }
        node.store.flush_now().expect("nothing is broken");
    }
}
