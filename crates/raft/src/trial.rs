//! A member over fake disks that is told single messages, for tests of what it makes of each.

#[path = "../tests/simulation/machine.rs"]
#[allow(dead_code, reason = "the simulation looks at more of it")]
mod machine;

use crate::ballot::Ballot;
use crate::configuration::Configuration;
use crate::loader::{Loader, Outgoing};
use crate::machine::Machine;
use crate::member::{Member, Options};
use crate::members::Members;
use crate::reads::Reads;
use crate::rounds::Rounds;
use crate::wire::Envelope;
use haypile_log::{EntrySpan, Index, Kind, Record};
use haypile_store::StoreOptions;
use haypile_store::testing::node::{MemoryBases, Node};
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
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
pub(crate) fn keep(data: &Data, entry: (u64, u64)) {
    keep_records(data, entry, 1);
}

/// Puts an entry of so many records without effects into a log.
pub(crate) fn keep_records(data: &Data, (term, entry): (u64, u64), count: u64) {
    let log = data.node().store.log();
    let (last, history) = (log.last(), log.history());
    let body_crc = haypile_log::body_crc(&[]);
    let kind = Kind::Term;
    let record = |at: u64| {
        let index = Index(last.0 + 1 + at);
        Record { index, history, term, entry, kind, time_ms: 1000, body: &[], body_crc, segment: 0, offset: 0 }
    };
    let records: Vec<Record<'_>> = (0..count).map(record).collect();
    data.node().store.keep(&records).expect("they come next");
}

/// Has a leader change the members, and a member that has all the leader's entries before keep that one; `entry` is its
/// term and number.
pub(crate) fn keep_change(leader: &mut Data, member: &mut Member<Data>, entry: (u64, u64), members: &Configuration) {
    let (term, number) = entry;
    leader.change_members(members.to_string().as_bytes()).expect("there is room");
    leader.log().write();
    let last = leader.log().last();
    let mut message = message(MessageType::MsgAppend, 2, term);
    (message.index, message.log_term) = (number - 1, term);
    let mut entry = Entry { index: number, term, ..Entry::default() };
    entry.set_entry_type(EntryType::EntryConfChangeV2);
    message.mut_entries().push(entry);
    let spans = vec![EntrySpan { term, number, first: last, last, changes_members: true }];
    let mut hear = |envelope| {
        member.receive(envelope).expect("nothing is broken");
        Ok(())
    };
    Loader::default().load(leader.log(), Outgoing { message, spans }, &mut hear).expect("it is there");
    member.machine().log().write();
    member.machine().node().sync();
    member.on_progress().expect("nothing is broken");
}

/// Returns member 1 of five. Its elections begin as late as they may.
pub(crate) fn member(has_leases: bool) -> Member<Data> {
    let data = data();
    let (files, history) = (data.node().files(), data.node().store.history());
    let ballot = Ballot::open(&*files, Path::new("/ballot"), history, 1, true).expect("the disk is empty");
    begin(data, ballot, has_leases)
}

/// Returns member 1 of five, which begins with restored data of this term: a record behind entry `unnamed` is to name
/// it.
pub(crate) fn restored(data: Data, term: u64, unnamed: u64) -> Member<Data> {
    let (files, history) = (data.node().files(), data.node().store.history());
    let ballot = Ballot::begin_restored(&*files, Path::new("/ballot"), (history, 1), term, unnamed);
    begin(data, ballot.expect("the disk has none"), false)
}

fn begin(data: Data, ballot: Ballot, has_leases: bool) -> Member<Data> {
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
