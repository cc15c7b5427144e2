//! A follower whose base is compacted after each record, beside a leader whose transactions write large objects ahead
//! of their commits, undo some of them, commit, end otherwise, or die with their process: no compaction of the follower
//! drops a row that its leader still has, and in the end neither has a row of an object without an owner.

use super::node::{Bases, NoReaders, Node, feed, rows_of};
use super::pair::{follows, leads, replicated};
use crate::base::{Base, Direction, Step, Tier};
use crate::row::{Family, Key, ObjectId, RowKey, Slot, Space, SystemScope, data_row, object_of, owner_row, system_row};
use crate::txn::Txn;
use haypile_log::testing::Random;
use std::collections::BTreeSet;

/// Rows of which six are written ahead together.
const ROW_BYTES: usize = 190 << 10;
const ROWS_AHEAD: u32 = 6;

/// Steps of one life of the leader, and its lives.
const STEPS: u64 = 12;
const LIVES: u64 = 3;

/// Ids that exhaust a lease.
const MANY_IDS: u32 = 70_000;

/// An object, and how many rows were written of it.
#[derive(Clone, Copy)]
struct Object {
    id: ObjectId,
    slot: Slot,
    rows: u32,
}

impl Object {
    fn row(&self, number: u32) -> RowKey {
        data_row(Space(0), self.slot, self.id, &number.to_be_bytes())
    }

    fn name(&self) -> Vec<u8> {
        format!("object:{}", self.id.0).into_bytes()
    }

    fn key<'n>(&self, txn: &Txn<'_>, name: &'n [u8]) -> Key<'n> {
        Key { slot: self.slot, ..txn.key(name) }
    }
}

/// A transaction that has not ended, and the objects that it has made.
struct Open<'s> {
    txn: Txn<'s>,
    objects: Vec<Object>,
}

impl Open<'_> {
    /// Writes more of an object, or of a new one, some of it ahead.
    fn write(&mut self, random: &mut Random) {
        if self.objects.is_empty() || random.chance(50) {
            let id = self.txn.new_object().expect("ids can be leased");
            self.objects.push(Object { id, slot: Slot(random.below(3) as u16), rows: 0 });
        }
        let object = self.objects.last_mut().expect("there is one");
        for _ in 0..ROWS_AHEAD {
            let row = object.row(object.rows);
            self.txn.put_row(&row, &[&vec![object.rows as u8; ROW_BYTES]]).expect("the log takes it");
            object.rows += 1;
        }
    }

    /// Writes something that is undone, ahead of the rest or not.
    fn undo(&mut self, random: &mut Random) {
        let (savepoint, objects) = (self.txn.savepoint(), self.objects.clone());
        // A change of a row from before the savepoint is not written ahead.
        self.objects.clear();
        self.write(random);
        self.txn.rollback(savepoint);
        self.objects = objects;
    }

    fn commit(mut self) -> Vec<Object> {
        for object in &self.objects {
            let name = object.name();
            let key = object.key(&self.txn, &name);
            self.txn.put_row(&owner_row(key.space, key.slot, object.id), &[&name]).expect("small");
            self.txn.put_meta(&key, &[b"object"]).expect("small");
        }
        self.txn.commit().expect("the log takes it");
        self.objects
    }
}

/// Counts of a run, which show that it came to the cases it is for.
#[derive(Debug, Default)]
pub struct Seen {
    /// Rows of transactions that had not ended which the follower had after a compaction.
    pub ahead: u64,
    /// Rows that were dropped from the follower's base.
    pub dropped: u64,
}

struct World {
    follower: Option<Node>,
    owned: Vec<Object>,
    /// The highest id that was given out.
    issued: u64,
    seen: Seen,
}

impl World {
    fn follower(&self) -> &Node {
        self.follower.as_ref().expect("it is between restarts only that there is none")
    }

    fn restart(&mut self, random: &mut Random) {
        let node = self.follower.take().expect("there is one");
        let seed = random.number();
        self.follower = Some(match random.below(3) {
            0 => node.stop(),
            1 => node.kill(),
            _ => node.lose_power(seed),
        });
    }

    /// Lives one life of the leader. Its transactions that are open in the end have ended without a commit.
    fn live(&mut self, leader: &Node, random: &mut Random) {
        let mut open: Vec<Open<'_>> = Vec::new();
        for _ in 0..STEPS {
            let some = random.below(open.len().max(1) as u64) as usize;
            match random.below(20) {
                0..4 if open.len() < 4 => open.push(Open { txn: leader.begin(), objects: Vec::new() }),
                0..9 => open.iter_mut().skip(some).take(1).for_each(|open| open.write(random)),
                9 | 10 => open.iter_mut().skip(some).take(1).for_each(|open| open.undo(random)),
                11 | 12 if !open.is_empty() => self.owned.extend(open.swap_remove(some).commit()),
                13 if !open.is_empty() => drop(open.swap_remove(some)),
                14 if !self.owned.is_empty() => self.remove(leader, random),
                15 => {
                    let mut txn = leader.begin();
                    (0..MANY_IDS).for_each(|_| _ = txn.new_object().expect("ids can be leased"));
                    self.issued = self.issued.max(txn.new_object().expect("ids can be leased").0);
                }
                16 => self.restart(random),
                17 => leader.compact(),
                _ => leader.store.flush_now().expect("nothing is broken"),
            }
            let ids = open.iter().flat_map(|open| &open.objects).map(|object| object.id.0);
            self.issued = ids.fold(self.issued, u64::max);
            leader.sync();
            feed(&leader.store, &self.follower().store, &NoReaders);
            self.check(leader, &open);
        }
        if random.chance(50) {
            leader.die();
        }
    }

    fn remove(&mut self, leader: &Node, random: &mut Random) {
        let object = self.owned.swap_remove(random.below(self.owned.len() as u64) as usize);
        let (mut txn, name) = (leader.begin(), object.name());
        let key = object.key(&txn, &name);
        txn.delete_row(&owner_row(key.space, key.slot, object.id)).expect("small");
        txn.delete_meta(&key).expect("small");
        txn.commit().expect("the log takes it");
    }

    fn has_only_owned(&self) {
        let owned: BTreeSet<u64> = self.owned.iter().map(|object| object.id.0).collect();
        let rows = data_rows(&*self.follower().base);
        let found: BTreeSet<u64> = rows.iter().filter_map(|row| object_of(row)).map(|id| id.0).collect();
        assert_eq!(found, owned, "objects without an owner are gone, and no others");
        let intent = system_row(SystemScope::Replicated, b"ahead/");
        let is_left = rows_of(&*self.follower().base).iter().any(|(row, _)| row.starts_with(&intent));
        assert!(!is_left, "nothing is noted any more of transactions that have ended");
    }

    /// Has the follower lead while transactions of its leader are open: it gives out other ids, keeps the rows that it
    /// writes ahead, and drops those that its leader had not committed.
    fn take_over(&mut self, random: &mut Random) {
        let node = self.follower.take().expect("there is one");
        node.store.lead().expect("nothing is broken");
        let mut open = Open { txn: node.begin(), objects: Vec::new() };
        open.write(random);
        let object = open.objects[0];
        assert!(object.id.0 > self.issued, "{} was given out before: up to {}", object.id.0, self.issued);
        let settle = || {
            for _ in 0..ROUNDS_SETTLED {
                write_small(&node);
                replicated(&node);
            }
        };
        settle();
        assert!(node.begin().row(&object.row(0)).expect("reads go on").is_some(), "its own are alive");
        self.owned.extend(open.commit());
        settle();
        self.follower = Some(node);
        self.has_only_owned();
    }

    /// Compacts the follower, and compares both nodes' rows of each object that is not garbage.
    fn check(&mut self, leader: &Node, open: &[Open<'_>]) {
        let follower = self.follower.as_ref().expect("there is one");
        follower.store.flush_now().expect("nothing is broken");
        let before = data_rows(&*follower.base).len();
        follower.compact();
        self.seen.dropped += (before - data_rows(&*follower.base).len()) as u64;
        let [mut theirs, mut ours] = [leader, follower].map(Node::begin);
        let ahead = open.iter().flat_map(|open| &open.objects).map(|object| (object, true));
        for (object, is_ahead) in self.owned.iter().map(|object| (object, false)).chain(ahead) {
            for row in (0..object.rows).map(|number| object.row(number)) {
                let [of_leader, of_follower] = [&mut theirs, &mut ours].map(|txn| txn.row(&row).expect("reads go on"));
                assert!(of_leader.is_some() || is_ahead, "the leader has all of object {}", object.id.0);
                let what = if is_ahead { "not committed yet" } else { "committed" };
                assert!(of_leader == of_follower, "a row of object {}, {what}", object.id.0);
                self.seen.ahead += u64::from(is_ahead && of_follower.is_some());
            }
        }
    }
}

/// Flushes after which no uncommitted row is left.
const ROUNDS_SETTLED: u64 = 3;

/// Writes something small: a flush writes which objects are decided only where there is something to flush.
fn write_small(node: &Node) {
    let mut txn = node.begin();
    let key = txn.key(b"small");
    txn.put_meta(&key, &[b"small"]).expect("small");
    txn.commit().expect("the log takes it");
}

/// Returns the rows of a base that objects have.
fn data_rows(base: &dyn Base) -> BTreeSet<Vec<u8>> {
    let (from, until) = ([Family::Data as u8], [Family::Owner as u8]);
    let mut rows = BTreeSet::new();
    let mut cursor = base.scan(&from, &until, Direction::Forward, Tier::Disk).expect("the base can be read");
    while let Step::Row { key, .. } = cursor.step().expect("the base can be read") {
        rows.insert(key.to_vec());
    }
    rows
}

/// Runs some lives of a leader with a follower beside it, and compares both or has the follower take over in the
/// middle.
pub fn run(bases: &dyn Bases, seed: u64) -> Seen {
    let mut random = Random(seed);
    let mut leader = Node::new(bases, leads);
    let follower = Some(leader.checkpoint(bases, follows));
    let mut world = World { follower, owned: Vec::new(), issued: 0, seen: Seen::default() };
    for life in 1..=LIVES {
        world.live(&leader, &mut random);
        if life == LIVES && seed.is_multiple_of(2) {
            world.take_over(&mut random);
            return world.seen;
        }
        leader = if random.chance(50) { leader.kill() } else { leader.stop() };
    }
    // The last life's objects are disowned with one flush, and gone when a later one has written which objects are
    // decided.
    for _ in 0..ROUNDS_SETTLED {
        write_small(&leader);
        let of_leader = replicated(&leader);
        leader.sync();
        feed(&leader.store, &world.follower().store, &NoReaders);
        assert!(of_leader == replicated(world.follower()), "seed {seed}: the rows are the same");
    }
    world.has_only_owned();
    world.seen
}
