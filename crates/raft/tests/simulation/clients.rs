//! Clients of leaders, and of members that take themselves for leaders: what they asked for, and what they were told.

use crate::truth::{Path, Place, Truth};
use haypile_log::testing::Random;
use haypile_store::testing::model::{self, DATABASES, Model, transact};
use haypile_store::testing::node::Node;
use haypile_store::{Call, Mode, Stop, TxnBuffers};

/// A call that was carried out, and whose reply waits.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// The record that it made, and the last one that was acknowledged before.
    Write { place: Place, floor: u64 },
    /// The last record that it has seen, the round that proves it, and the last record that was acknowledged before.
    Read { seen: u64, round: u64, floor: u64 },
    /// The round behind which a member that does not lead reads, and the last record that was acknowledged before.
    Beside { round: u64, floor: u64 },
}

/// The clients of one member.
#[derive(Default)]
pub struct Clients {
    waiting: Vec<Waiting>,
}

/// The replies that clients of all members have had.
#[derive(Default)]
pub struct Told {
    pub writes: Vec<Place>,
    pub reads: u64,
    pub reads_beside: u64,
    /// The last record that was acknowledged, or that a client has seen.
    pub floor: u64,
}

/// How far a member is: what is confirmed, the rounds of reads, and what its data have.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    pub confirmed: u64,
    pub round: u64,
    pub beside: u64,
    pub applied: u64,
    pub term: u64,
}

impl Clients {
    pub fn wrote(&mut self, place: Place, told: &Told) {
        self.waiting.push(Waiting::Write { place, floor: told.floor });
    }

    pub fn read(&mut self, seen: u64, round: u64, told: &Told) {
        self.waiting.push(Waiting::Read { seen, round, floor: told.floor });
    }

    pub fn asked(&mut self, round: u64, told: &Told) {
        self.waiting.push(Waiting::Beside { round, floor: told.floor });
    }

    /// The member leads now: who was about to read beside the leader reads as its client.
    pub fn forget_asked(&mut self) {
        self.waiting.retain(|waiting| !matches!(waiting, Waiting::Beside { .. }));
    }

    /// Ends the clients' connections: what became of their calls is unknown.
    pub fn end(&mut self) {
        self.waiting.clear();
    }

    pub fn are_served(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Replies to those whose records and rounds are confirmed. Who has waited to read beside the leader reads now.
    pub fn reply(&mut self, node: &Node, reached: Reached, (path, truth): (&Path, &Truth), told: &mut Told) {
        let Reached { confirmed, round, beside, applied, term } = reached;
        self.waiting.retain(|waiting| {
            match *waiting {
                Waiting::Write { place, floor } if place.0 <= confirmed => {
                    truth.expect_committed(place, "a write is acknowledged that is not committed");
                    assert!(place.0 > floor, "a write that began later comes later: {place:?}, {floor}");
                    told.writes.push(place);
                    told.floor = told.floor.max(place.0);
                }
                Waiting::Read { seen, round: needed, floor } if seen <= confirmed && needed <= round => {
                    if let Some(term) = path.term(seen) {
                        truth.expect_committed((seen, term), "what a client reads is committed");
                    }
                    assert!(seen >= floor, "a stale read: record {seen} was seen, {floor} was acknowledged before");
                    told.reads += 1;
                    told.floor = told.floor.max(seen);
                }
                Waiting::Beside { round, floor } if round <= beside => {
                    assert!(applied >= floor, "a stale read beside the leader: {applied}, after {floor}");
                    read_on(node, &truth.content(path, applied, term), told.reads_beside);
                    told.reads_beside += 1;
                    told.floor = told.floor.max(applied);
                }
                _ => return true,
            }
            false
        });
    }
}

/// Reads something of a member's data, which must be as this content has it.
pub fn read_on(node: &Node, content: &Model, seed: u64) {
    let mut random = Random(seed);
    let database = random.below(DATABASES.into()) as u32;
    model::read(&mut node.begin(), content, database, &mut random).expect("reads go on");
}

/// Runs a random transaction over this content; returns its record and the content behind it, if it made one.
pub fn transact_on(node: &Node, content: &Model, seed: u64) -> Option<(u64, Model)> {
    let mut after = content.clone();
    let call = Call { now_ms: 1_000, seed: 1, database: 0, mode: Mode::Disk, pins: None };
    let mut txn = node.store.begin(TxnBuffers::default(), call);
    match transact(&mut txn, &mut after, seed, false).and_then(|()| txn.commit()) {
        Ok(committed) => committed.index.map(|index| (index.0, after)),
        Err(Stop::TooLarge | Stop::Refused(_)) => None,
        Err(stop) => panic!("{stop:?}"),
    }
}
