//! Two stores from one checkpoint, one fed with the records of the other's log: whatever is written, frozen, flushed,
//! dropped by compactions, stopped and killed on either side, the follower holds what its leader held at the same index.

mod machine;

use haypile_log::testing::Random;
use haypile_log::{History, HistoryStart, Index, Next, Origin, Record, Through};
use haypile_store::base::{Base, BaseError, Direction, Rows, Step, Tier};
use haypile_store::testing::model::{DATABASES, Model, check, transact};
use haypile_store::testing::wait_for_reclaims;
use haypile_store::{
    Counter, FollowError, MemoryBase, Mode, Named, RecordLocks, Stop, Store, StoreOptions, TxnBuffers,
};
use machine::{Machine, call};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nobody reads a store of this test while it takes a record.
struct NoReaders;

impl RecordLocks for NoReaders {
    fn hold(&self, _: Named<'_>, apply: &mut dyn FnMut()) {
        apply();
    }
}

fn leads(options: &mut StoreOptions) {
    options.databases = DATABASES + 1;
    options.memtable_bytes = 64 << 10;
    options.log.segment_bytes = 64 << 10;
    // The follower comes back for what it lost.
    options.log.retention.bytes = 1 << 30;
}

fn follows(options: &mut StoreOptions) {
    leads(options);
    options.log.follows = true;
}

/// All rows of a base, in ascending order.
struct Copied(std::vec::IntoIter<(Vec<u8>, Vec<u8>)>, (Vec<u8>, Vec<u8>));

impl Rows for Copied {
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
        let Some(next) = self.0.next() else { return Ok(None) };
        self.1 = next;
        Ok(Some((&self.1.0, Some(&self.1.1))))
    }
}

fn rows_of(base: &MemoryBase) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut cursor = base.scan(&[0], &[255], Direction::Forward, Tier::Disk).expect("memory can be read");
    while let Step::Row { key, value } = cursor.step().expect("memory can be read") {
        rows.push((key.to_vec(), value.to_vec()));
    }
    rows
}

/// A machine that holds what `leader` has on its disk now, and follows it.
fn checkpoint(leader: &Machine) -> Machine {
    let base = MemoryBase::default();
    base.ingest(&mut Copied(rows_of(&leader.rows).into_iter(), Default::default())).expect("memory has room");
    Machine::start(leader.disk.copy(), Arc::new(base), follows)
}

/// Brings a follower to where its leader is synced, through all histories that it has not gone through.
fn feed(leader: &Store, follower: &Store) {
    let histories = leader.log().histories();
    let (history, last) = (follower.log().history(), follower.log().last());
    assert_eq!(
        histories.shared_through(history, last),
        Some(last),
        "a follower of synced records is on its leader's way"
    );
    let mut ahead: Vec<HistoryStart> =
        histories.starts().iter().rev().take_while(|start| start.history != history).copied().collect();
    let mut adopt = |through: Option<History>| {
        while through.is_none_or(|history| history != follower.log().history())
            && let Some(start) = ahead.pop()
        {
            follower.adopt_history(start).expect("nothing is broken");
        }
    };
    let mut reader = leader.log().reader(last).through(Through::Synced);
    loop {
        match reader.next().expect("the log can be read") {
            Next::Record(record) => {
                adopt(Some(record.history));
                follower.follow(&record, &NoReaders).expect("nothing is broken");
                assert_eq!(follower.log().last(), record.index);
            }
            Next::UpToDate => return adopt(None),
            Next::Gap(first) => panic!("a gap up to {first}"),
        }
    }
}

/// Runs one random transaction on a store and its model; returns its record, if it made one.
fn write(store: &Store, model: &mut Model, seed: u64) -> Option<Index> {
    loop {
        let mut after = model.clone();
        let mut txn = store.begin(TxnBuffers::default(), call(Mode::Disk));
        match transact(&mut txn, &mut after, seed, seed.is_multiple_of(7)).and_then(|()| txn.commit()) {
            Ok(committed) => {
                *model = after;
                return committed.index;
            }
            // The rows that it had written ahead stay behind, as garbage or in the log.
            Err(Stop::TooLarge) => return None,
            Err(Stop::Refused(_)) => drop(txn),
            Err(stop) => panic!("{stop:?}"),
        }
        store.flush_now().expect("nothing is broken");
    }
}

fn holds(machine: &Machine, model: &Model, seed: u64) {
    let mut txn = machine.store.begin(TxnBuffers::default(), call(Mode::Disk));
    check(&mut txn, model, 1 + seed as usize % 5).expect("reads go on");
    for database in 0..DATABASES {
        assert_eq!(machine.store.counter(database, Counter::Keys), model.key_count(database), "seed {seed}");
    }
}

/// The rows that stand for data and for what all nodes have to agree about.
fn replicated(machine: &Machine) -> BTreeMap<Vec<u8>, Vec<u8>> {
    machine.store.flush_now().expect("nothing is broken");
    wait_for_reclaims(&machine.store);
    // Rows of objects without an owner go when a compaction comes upon them.
    machine.rows.reclaim_range(&[0], &[255]).expect("memory can be changed");
    let is_local = |row: &[u8]| row.starts_with(&[6, 1]);
    rows_of(&machine.rows).into_iter().filter(|(row, _)| !is_local(row)).collect()
}

struct Pair {
    leader: Machine,
    follower: Machine,
    model: Model,
    /// The model after each record that a transaction made, the oldest first.
    past: Vec<(Index, Model)>,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let leader = Machine::new(leads);
        let (mut model, mut past) = (Model::default(), vec![(Index(0), Model::default())]);
        for number in 0..8 {
            past.extend(write(&leader.store, &mut model, seed ^ number << 40).map(|index| (index, model.clone())));
            if number == seed % 8 {
                leader.store.flush_now().expect("nothing is broken");
            }
        }
        leader.store.log().sync_through(leader.store.log().last()).expect("nothing is broken");
        let follower = checkpoint(&leader);
        Pair { leader, follower, model, past }
    }

    /// The model as it was at a record.
    fn at(&self, index: Index) -> &Model {
        &self.past.iter().rfind(|(made, _)| *made <= index).expect("the first is at 0").1
    }

    fn restart_leader(self, restart: impl FnOnce(Machine) -> Machine) -> Pair {
        let leader = restart(self.leader);
        let mut pair = Pair { leader, ..self };
        let last = pair.leader.store.log().last();
        pair.past.retain(|(index, _)| *index <= last);
        pair.model = pair.past.last().expect("the first is at 0").1.clone();
        pair
    }

    fn step(mut self, random: &mut Random) -> Pair {
        let power_loss = |machine: Machine, seed| {
            machine.die();
            machine.disk.crash(seed);
            Machine::start(machine.disk.clone(), machine.rows.clone(), machine.change)
        };
        let stop = |machine: Machine| {
            machine.store.close().expect("nothing is broken");
            machine.kill()
        };
        let seed = random.number();
        match random.below(20) {
            0..8 => {
                for number in 0..1 + random.below(6) {
                    let index = write(&self.leader.store, &mut self.model, seed ^ number << 40);
                    self.past.extend(index.map(|index| (index, self.model.clone())));
                }
            }
            8 | 9 => self.leader.store.log().sync_through(self.leader.store.log().last()).expect("nothing is broken"),
            10 => drop(self.leader.store.flush_now()),
            11 => drop(self.follower.store.flush_now()),
            12 => drop(replicated(&self.leader)),
            13 => drop(replicated(&self.follower)),
            14 => self = self.restart_leader(stop),
            15 => self = self.restart_leader(|machine| machine.kill()),
            16 => self = self.restart_leader(|machine| power_loss(machine, seed)),
            17 => self.follower = stop(self.follower),
            18 => self.follower = self.follower.kill(),
            _ => self.follower = power_loss(self.follower, seed),
        }
        feed(&self.leader.store, &self.follower.store);
        holds(&self.follower, self.at(self.follower.store.log().last()), seed);
        self
    }

    fn compare(&self, seed: u64) {
        self.leader.store.log().sync_through(self.leader.store.log().last()).expect("nothing is broken");
        // The flush may make a record, which the follower has to have before its own.
        let of_leader = replicated(&self.leader);
        self.leader.store.log().sync_through(self.leader.store.log().last()).expect("nothing is broken");
        feed(&self.leader.store, &self.follower.store);
        assert_eq!(self.follower.store.log().last(), self.leader.store.log().last(), "seed {seed}");
        let of_follower = replicated(&self.follower);
        let differ = |row: &&Vec<u8>| of_leader.get(*row) != of_follower.get(*row);
        let wrong: Vec<String> = of_leader
            .keys()
            .chain(of_follower.keys())
            .filter(differ)
            .map(|row| format!("{:?}", String::from_utf8_lossy(row)))
            .collect();
        assert!(wrong.is_empty(), "seed {seed}: {} rows differ: {wrong:?}", wrong.len());
    }
}

#[test]
fn a_follower_holds_what_its_leader_held_at_the_same_index() {
    let cases = std::env::var("HAYPILE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40);
    for seed in 0..cases {
        let mut random = Random(seed);
        let mut pair = Pair::new(seed);
        for _ in 0..25 {
            pair = pair.step(&mut random);
        }
        pair.compare(seed);
        // The follower takes over where its leader ends.
        let start = pair.follower.store.lead().expect("nothing is broken");
        assert_eq!(start.after(), pair.leader.store.log().last());
        for number in 0..8 {
            write(&pair.follower.store, &mut pair.model, seed ^ number << 44);
        }
        holds(&pair.follower, &pair.model, seed);
    }
}

#[test]
fn what_does_not_come_next_is_refused_and_changes_nothing() {
    let mut pair = Pair::new(1);
    for seed in 0..8 {
        let index = write(&pair.leader.store, &mut pair.model, seed);
        pair.past.extend(index.map(|index| (index, pair.model.clone())));
    }
    let (leader, follower) = (&pair.leader.store, &pair.follower.store);
    leader.log().sync_through(leader.log().last()).expect("nothing is broken");
    let (history, last) = (follower.log().history(), follower.log().last());
    assert!(leader.log().last() > last.next(), "there is a record to leave out");
    let is_refused = |taken: Result<(), FollowError>| {
        assert!(matches!(taken, Err(FollowError::Damaged(_))), "{taken:?}");
        assert_eq!((follower.log().history(), follower.log().last()), (history, last));
    };
    let mut reader = leader.log().reader(last).through(Through::Synced);
    let Ok(Next::Record(next)) = reader.next() else { panic!("the next record is there") };
    is_refused(follower.follow(&Record { history: History([7; 20]), ..next }, &NoReaders));
    is_refused(follower.follow(&Record { index: next.index.next(), ..next }, &NoReaders));
    is_refused(follower.follow(&Record { index: last, ..next }, &NoReaders));
    for origin in [Origin::Nothing, Origin::Fork(History([8; 20]), last), Origin::Fork(history, last.next())] {
        is_refused(follower.adopt_history(HistoryStart { history: History([7; 20]), origin }));
    }
    feed(leader, follower);
    holds(&pair.follower, &pair.model, 1);
    pair.compare(1);
}
