//! Two stores from one checkpoint, one fed with the records of the other's log, and the model of their content: random
//! transactions between freezes, flushes, compactions, stops and kills of either. After each of these the follower
//! holds what its leader held at the same index, and in the end both have the same rows.

use super::model::{DATABASES, Model, check, transact};
use super::node::{Bases, NoReaders, Node, feed, rows_of};
use super::wait_for_reclaims;
use crate::databases::Counter;
use crate::options::StoreOptions;
use crate::row::{Family, SystemScope, system_row};
use crate::stop::{Mode, Stop};
use crate::store::Store;
use crate::txn::{Call, TxnBuffers};
use haypile_log::testing::Random;
use haypile_log::{Index, Next, Record, Through};
use std::collections::BTreeMap;

/// Steps between the checkpoint and the comparison.
const STEPS: u64 = 25;

/// Sets the options of a leader.
pub fn leads(options: &mut StoreOptions) {
    options.databases = DATABASES + 1;
    options.memtable_bytes = 64 << 10;
    options.log.segment_bytes = 64 << 10;
    // The follower comes back for records that it lost.
    options.log.retention.bytes = 1 << 30;
}

/// Sets the options of a follower.
pub fn follows(options: &mut StoreOptions) {
    leads(options);
    options.log.follows = true;
}

/// Runs one random transaction on a store and its model; returns its record, if it made one.
pub fn write(store: &Store, model: &mut Model, seed: u64) -> Option<Index> {
    loop {
        let mut after = model.clone();
        let call = Call { now_ms: 1_000, seed: 1, database: 0, mode: Mode::Disk, pins: None };
        let mut txn = store.begin(TxnBuffers::default(), call);
        match transact(&mut txn, &mut after, seed, seed.is_multiple_of(7)).and_then(|()| txn.commit()) {
            Ok(committed) => {
                *model = after;
                return committed.index;
            }
            // Rows that the transaction had written ahead stay behind, as garbage or in the log.
            Err(Stop::TooLarge) => return None,
            Err(Stop::Refused(_)) => drop(txn),
            Err(stop) => panic!("{stop:?}"),
        }
        store.flush_now().expect("nothing is broken");
    }
}

/// Checks that a node holds what the model does.
pub fn holds(node: &Node, model: &Model, seed: u64) {
    let mut txn = node.begin();
    check(&mut txn, model, 1 + seed as usize % 5).expect("reads go on");
    for database in 0..DATABASES {
        assert_eq!(node.store.counter(database, Counter::Keys), model.key_count(database), "seed {seed}");
    }
}

/// Returns the rows that stand for data and for facts that all nodes have to agree about, in the base, with everything
/// in it that is not dead.
pub fn replicated(node: &Node) -> BTreeMap<Vec<u8>, Vec<u8>> {
    node.store.flush_now().expect("nothing is broken");
    wait_for_reclaims(&node.store);
    // Rows of objects without an owner go when a compaction comes upon them.
    node.compact();
    let local = system_row(SystemScope::Local, b"");
    rows_of(&*node.base).into_iter().filter(|(row, _)| !row.starts_with(&local)).collect()
}

/// A record with its position: everything that two nodes' logs have to agree about.
type Said = (Index, [u8; 20], u64, u64, u64, Vec<u8>);

/// Returns the records of a log, with their positions.
fn records(store: &Store) -> Vec<Said> {
    let mut reader = store.log().reader(Index(0)).through(Through::Synced);
    std::iter::from_fn(|| match reader.next().expect("the log can be read") {
        Next::Record(Record { index, history, term, entry, time_ms, body, .. }) => {
            Some((index, history.0, term, entry, time_ms, body.to_vec()))
        }
        Next::UpToDate => None,
        Next::Gap(first) => panic!("a gap up to {first}"),
    })
    .collect()
}

/// A leader and its follower, and the model.
pub struct Pair {
    pub leader: Node,
    pub follower: Node,
    pub model: Model,
    /// The model after each record that a transaction made, the oldest first.
    past: Vec<(Index, Model)>,
}

/// Runs a random sequence of steps on a fresh pair, compares both and has the follower take over. Returns the pair.
pub fn run(bases: &dyn Bases, seed: u64) -> Pair {
    let mut random = Random(seed);
    let mut pair = Pair::new(bases, seed);
    for _ in 0..STEPS {
        pair = pair.step(&mut random);
    }
    pair.compare(seed);
    let start = pair.follower.store.lead().expect("nothing is broken");
    assert_eq!(start.after(), pair.leader.store.log().last());
    for number in 0..8 {
        write(&pair.follower.store, &mut pair.model, seed ^ number << 44);
    }
    holds(&pair.follower, &pair.model, seed);
    pair
}

impl Pair {
    /// Starts a leader, which writes and flushes something, and a follower from its checkpoint.
    pub fn new(bases: &dyn Bases, seed: u64) -> Pair {
        let leader = Node::new(bases, leads);
        let (mut model, mut past) = (Model::default(), vec![(Index(0), Model::default())]);
        for number in 0..8 {
            past.extend(write(&leader.store, &mut model, seed ^ number << 40).map(|index| (index, model.clone())));
            if number == seed % 8 {
                leader.store.flush_now().expect("nothing is broken");
            }
        }
        leader.sync();
        let follower = leader.checkpoint(bases, follows);
        Pair { leader, follower, model, past }
    }

    /// Runs a random transaction on the leader.
    pub fn write(&mut self, seed: u64) {
        let index = write(&self.leader.store, &mut self.model, seed);
        self.past.extend(index.map(|index| (index, self.model.clone())));
    }

    /// Brings the follower to where its leader is synced.
    pub fn feed(&self) {
        feed(&self.leader.store, &self.follower.store, &NoReaders);
    }

    /// Returns the model as it was at a record.
    fn at(&self, index: Index) -> &Model {
        &self.past.iter().rfind(|(made, _)| *made <= index).expect("the first is at 0").1
    }

    fn restart_leader(self, restart: impl FnOnce(Node) -> Node) -> Pair {
        let leader = restart(self.leader);
        let mut pair = Pair { leader, ..self };
        let last = pair.leader.store.log().last();
        pair.past.retain(|(index, _)| *index <= last);
        pair.model = pair.past.last().expect("the first is at 0").1.clone();
        pair
    }

    fn step(mut self, random: &mut Random) -> Pair {
        let seed = random.number();
        match random.below(20) {
            0..8 => (0..1 + random.below(6)).for_each(|number| self.write(seed ^ number << 40)),
            8 | 9 => self.leader.sync(),
            10 => drop(self.leader.store.flush_now()),
            11 => drop(self.follower.store.flush_now()),
            12 => drop(replicated(&self.leader)),
            13 => drop(replicated(&self.follower)),
            14 => self = self.restart_leader(Node::stop),
            15 => self = self.restart_leader(Node::kill),
            16 => self = self.restart_leader(|node| node.lose_power(seed)),
            17 => self.follower = self.follower.stop(),
            18 => self.follower = self.follower.kill(),
            _ => self.follower = self.follower.lose_power(seed),
        }
        self.feed();
        holds(&self.follower, self.at(self.follower.store.log().last()), seed);
        self
    }

    /// Brings both to the same record and compares their logs and all their rows.
    pub fn compare(&self, seed: u64) {
        self.leader.sync();
        // The flush may make a record, which the follower has to have before its own flush.
        let of_leader = replicated(&self.leader);
        self.leader.sync();
        self.feed();
        let (leader, follower) = (&self.leader.store, &self.follower.store);
        assert_eq!(follower.log().last(), leader.log().last(), "seed {seed}");
        let of_follower = replicated(&self.follower);
        self.follower.sync();
        assert!(records(leader) == records(follower), "seed {seed}: the logs have the same records");
        assert_eq!(leader.log().histories(), follower.log().histories(), "seed {seed}");
        let wrong: Vec<String> = of_leader
            .keys()
            .chain(of_follower.keys())
            .filter(|row| of_leader.get(*row) != of_follower.get(*row))
            .map(|row| format!("{:?} {}", Family::of(row), row.escape_ascii()))
            .collect();
        assert!(wrong.is_empty(), "seed {seed}: {} rows differ: {wrong:?}", wrong.len());
    }
}
