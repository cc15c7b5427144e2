//! A member over fake disks that is told single messages, for tests of what it makes of each.

#[path = "../tests/simulation/machine.rs"]
#[allow(dead_code, reason = "the simulation looks at more of it")]
mod machine;

use crate::ballot::Ballot;
use crate::member::{Member, Options};
use crate::members::Members;
use crate::reads::Reads;
use crate::rounds::Rounds;
use crate::wire::Envelope;
use haypile_log::{Kind, Record};
use haypile_store::StoreOptions;
use haypile_store::testing::node::{MemoryBases, Node};
use raft::eraftpb::{Message, MessageType};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use machine::Data;

/// Ticks of the election timeout, at least.
pub(crate) const ELECTION_TICKS: usize = 10;

const TICK: Duration = Duration::from_millis(10);

fn members() -> Members {
    Members::parse("1@a:1,2@b:1,3@c:1,4@d:1,5@e:1").expect("these are members")
}

fn options(options: &mut StoreOptions) {
    options.in_group = true;
    options.log.follows = true;
    options.log.founding = Some(members().founding());
    options.log.sync_interval_ms = 3_600_000;
    options.log.retention.bytes = 1 << 30;
}

/// Returns an empty log and empty data.
pub(crate) fn data() -> Data {
    Data::new(Node::new(&MemoryBases, options))
}

/// Puts an entry of one record without effects into a log.
pub(crate) fn keep(data: &Data, (term, entry): (u64, u64)) {
    let log = data.node().store.log();
    let (index, history) = (log.last().next(), log.history());
    let body_crc = haypile_log::body_crc(&[]);
    let kind = Kind::Term;
    let record =
        Record { index, history, term, entry, kind, time_ms: 1000, body: &[], body_crc, segment: 0, offset: 0 };
    data.node().store.keep(&[record]).expect("it comes next");
}

/// Returns member 1 of five. Its elections begin as late as they may.
pub(crate) fn member(has_leases: bool) -> Member<Data> {
    let data = data();
    let (files, history) = (data.node().files(), data.node().store.history());
    let ballot = Ballot::open(&*files, Path::new("/ballot"), history, 1, true).expect("the disk is empty");
    let options = Options { id: 1, members: members(), election_ticks: ELECTION_TICKS, heartbeat_ticks: 2, tick: TICK };
    let mut reads = Reads::default();
    if has_leases {
        reads.led = Rounds::with_lease(TICK, Box::new(|| 0));
    }
    let late = || ELECTION_TICKS as u64 - 1;
    Member::begin(&options, ballot, data, Arc::new(reads), Box::new(late)).expect("there is nothing")
}

/// Returns a message to member 1.
pub(crate) fn message(kind: MessageType, from: u64, term: u64) -> Message {
    let mut message = Message { from, to: 1, term, ..Message::default() };
    message.set_msg_type(kind);
    message
}

/// Has a member hear a message without entries.
pub(crate) fn hear(member: &mut Member<Data>, message: Message) {
    member.receive(Envelope { message, entries: Vec::new() }).expect("nothing is broken");
}
