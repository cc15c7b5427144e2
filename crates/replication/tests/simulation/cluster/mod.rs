//! The nodes of a case, who leads and who follows whom, and the steps that the seed draws. Next: `traffic` (what goes
//! between nodes), `lives` (processes that end and start, and who leads then).

mod lives;
mod traffic;

use crate::Seen;
use crate::link::Link;
use crate::truth::{Place, Truth};
use haypile_log::testing::Random;
use haypile_log::{Durability, Index};
use haypile_store::testing::model::{DATABASES, Model, transact};
use haypile_store::testing::node::{MemoryBases, Node, Rest};
use haypile_store::testing::pair::replicated;
use haypile_store::{Call, Mode, Stop, StoreOptions, TxnBuffers};
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
