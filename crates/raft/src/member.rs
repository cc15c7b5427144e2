//! A member of a group: what comes in, what Raft makes of it, and what is done about that with log and data.
//!
//! One thread calls it. Each call ends with `work`, which does what Raft asks for in the order that keeps promises: the
//! ballot first; then what a lost office takes back; then the log; then messages, those of a follower when what they
//! acknowledge is on its disk; then the data follow the commit.
//!
//! Next: `receiving` (messages of other members), `ready` (what Raft asks for); then `reading`, `change` and `copy`.

use crate::ballot::{Ballot, Vote};
use crate::configuration::Configuration;
use crate::entries::{BYTES_EACH, Entries, PER_MESSAGE};
use crate::loader::Outgoing;
use crate::machine::{Fault, Machine};
use crate::members::Members;
use crate::reads::{Question, Reads};
use crate::rounds::Round;
use crate::standing::{Hearing, PeerStanding, Role, Standing, Wanted};
use crate::survey::survey;
use crate::wire::EntryRecords;
use haypile_log::{EntrySpan, Index};
use raft::eraftpb::{Entry, HardState, Message, MessageType};
use raft::{ProgressState, RawNode, StateRole};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The most messages with entries on their way to one member.
const IN_FLIGHT_MAX: usize = 256;

/// How a member takes part.
#[derive(Clone, Debug)]
pub struct Options {
    pub id: u64,
    /// The members with which the group has begun: this one need not be among them.
    pub members: Members,
    /// Ticks without a word of a leader before an election, at least; at most twice as many.
    pub election_ticks: usize,
    /// Ticks between two heartbeats of a leader.
    pub heartbeat_ticks: usize,
    /// The time between two ticks.
    pub tick: Duration,
}

/// A Ready whose entries, or those before, are not all on the disk.
#[derive(Debug)]
pub(crate) struct Unpersisted {
    pub number: u64,
    pub through: Index,
    pub messages: Vec<Message>,
}

/// A member of a group.
pub struct Member<M: Machine> {
    pub(crate) raw: RawNode<Entries>,
    pub(crate) ballot: Ballot,
    pub(crate) machine: M,
    founding: Members,
    /// The members, as far as this one has carried out what is committed.
    pub(crate) configuration: Arc<Configuration>,
    /// The members behind the change that this leader has made last, until it comes out of Raft.
    pub(crate) changing: Option<Arc<Configuration>>,
    /// The members of which the last answer to this leader says that they wait to be named.
    pub(crate) unnamed: BTreeSet<u64>,
    pub(crate) wanted: Option<Wanted>,
    /// The entries and members of a copy that is in place, until Raft takes them.
    pub(crate) installed: Option<(Entries, Arc<Configuration>)>,
    pub(crate) copies: u64,
    pub(crate) reads: Arc<Reads>,
    random: Box<dyn FnMut() -> u64 + Send>,
    pub(crate) election_ticks: usize,
    /// A number that no other life of this member has, most likely.
    pub(crate) life: u64,
    /// For how long after a word of a leader this member votes for nobody else, where leaders rely on that.
    pub(crate) leases: Duration,
    /// The time for which it did before it began; and as ticks, in which a leader may still rely on a word from then.
    pub(crate) leased_before: Duration,
    pub(crate) leased_ticks: usize,
    /// The tick at which this follower has last heard its leader.
    pub(crate) heard: Option<usize>,
    hearing: Hearing,
    /// Term and role when the election timeout was drawn last.
    drawn: Option<(u64, StateRole)>,
    /// The term in which clients' transactions make records.
    pub(crate) serves: Option<u64>,
    /// Invariant: in the order of their numbers, and `through` never goes back.
    pub(crate) unpersisted: VecDeque<Unpersisted>,
    /// Entries of this leader that Raft was told of, until they come out of it.
    pub(crate) proposed: VecDeque<EntrySpan>,
    /// The records of the message that is being worked on, by the entries' numbers.
    pub(crate) received: BTreeMap<u64, EntryRecords>,
    /// Entries whose commit confirms a round.
    pub(crate) proofs: VecDeque<(u64, Round)>,
    /// The round that a quorum is asked about.
    pub(crate) asked: Option<Round>,
    /// The round that the leader is asked about.
    pub(crate) question: Option<Question>,
    /// Rounds about which it has answered, each with the entry that the group had agreed on.
    pub(crate) answered: VecDeque<(u64, Round)>,
    /// The last term in which this leader has told another member to lead.
    pub(crate) hands_over_in: Option<u64>,
    /// The last committed record that the log was told of.
    pub(crate) committed: Index,
    pub(crate) outgoing: Vec<Outgoing>,
    /// Ticks since this has begun, and at the last time when members were told that they need a copy.
    pub(crate) ticks: usize,
    told: usize,
}

pub(crate) fn damaged(what: impl Into<String>) -> Fault {
    Fault::Damaged(what.into())
}

/// Returns the members that data tell of, or those with which their group has begun.
fn founding_or(founding: &Members, told: Option<Arc<[u8]>>) -> Result<Configuration, Fault> {
    let Some(told) = told else { return Ok(Configuration::from(founding)) };
    let read = std::str::from_utf8(&told).ok().and_then(|text| Configuration::parse(text).ok());
    read.ok_or_else(|| damaged("the data do not say who the members are"))
}

/// Checks that data which have all through record `applied` go on with a log of the records from `first` to `last`. The
/// data may end within an entry: the rest of it is in the log then, and it is no change of the members, which is one
/// record.
///
/// # Errors
/// The log ends before, or begins later: changes of the members in between would be unknown.
fn check_data(first: Index, last: Index, applied: Index) -> Result<(), Fault> {
    if applied > last {
        return Err(damaged(format!("the log ends with record {last}, and the data have all through {applied}")));
    }
    if applied.next() < first {
        return Err(damaged(format!("the log begins with record {first}, and the data have all through {applied}")));
    }
    Ok(())
}

impl<M: Machine> Member<M> {
    /// Begins with what is on the disk: the ballot, the log, and the data, which have what the base has.
    ///
    /// # Errors
    /// These are damaged, or do not belong together.
    pub fn begin(
        options: &Options,
        mut ballot: Ballot,
        machine: M,
        reads: Arc<Reads>,
        mut random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Result<Member<M>, Fault> {
        let mut entries = survey(&machine)?;
        check_data(machine.log().stats().first, machine.log().last(), machine.applied())?;
        let applied = entries.whole_at(machine.applied());
        let Vote { term, vote } = ballot.vote();
        let newest = entries.term_of(entries.last()).unwrap_or_default();
        if term < newest {
            return Err(damaged(format!("the log has entries of term {newest}, and the ballot knows of {term} only")));
        }
        let configuration = founding_or(&options.members, machine.members())?;
        let leases = if reads.led.has_lease() { options.tick * options.election_ticks as u32 } else { Duration::ZERO };
        let leased = ballot.leased();
        // Before a leader hears anything of this member.
        if leases > leased {
            ballot.lease(leases)?;
        }
        // A member that campaigns by members of long ago would lead without those of today: no more than one change,
        // the last one, may be unknown to be committed.
        let commit = applied.max(entries.committed_by_changes().unwrap_or(0));
        let hard = HardState { term, vote, commit, ..HardState::default() };
        entries.begin_with(hard, configuration.state());
        let config = raft::Config {
            id: options.id,
            election_tick: options.election_ticks,
            heartbeat_tick: options.heartbeat_ticks,
            applied,
            max_size_per_msg: PER_MESSAGE as u64 * BYTES_EACH,
            max_committed_size_per_ready: PER_MESSAGE as u64 * BYTES_EACH,
            max_inflight_msgs: IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            ..raft::Config::default()
        };
        let raw = RawNode::new(&config, entries, &slog::Logger::root(slog::Discard, slog::o!()));
        let mut member = Member {
            raw: raw.map_err(|error| damaged(error.to_string()))?,
            ballot,
            machine,
            founding: options.members.clone(),
            configuration: Arc::new(configuration),
            changing: None,
            unnamed: BTreeSet::new(),
            wanted: None,
            installed: None,
            copies: 0,
            reads,
            life: random(),
            random,
            election_ticks: options.election_ticks,
            leases,
            leased_before: leased,
            heard: None,
            leased_ticks: leased.as_micros().div_ceil(options.tick.as_micros()) as usize,
            drawn: None,
            serves: None,
            hearing: Hearing::default(),
            unpersisted: VecDeque::new(),
            proposed: VecDeque::new(),
            received: BTreeMap::new(),
            proofs: VecDeque::new(),
            asked: None,
            question: None,
            answered: VecDeque::new(),
            hands_over_in: None,
            committed: Index(0),
            outgoing: Vec::new(),
            ticks: 0,
            told: 0,
        };
        member.work()?;
        Ok(member)
    }

    /// Returns the machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns the machine, for calls that change neither the log nor what is applied.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Ends the member, and returns its machine.
    pub fn into_machine(self) -> M {
        self.machine
    }

    /// Returns the rounds that who reads takes part in.
    pub fn reads(&self) -> Arc<Reads> {
        self.reads.clone()
    }

    /// Returns the messages that are to be sent, in order.
    pub fn take_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
    }

    /// Returns what the member is.
    pub fn role(&self) -> Role {
        match self.raw.raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Leader if self.serves.is_some() => Role::Leader,
            StateRole::Leader => Role::Elected,
        }
    }

    /// Returns the member that leads, as far as this one knows; 0 for none.
    pub fn leader(&self) -> u64 {
        self.raw.raft.leader_id
    }

    /// Returns the last record that the group has agreed on, as far as this member knows.
    pub fn committed(&self) -> Index {
        self.committed
    }

    /// Returns the member's facts.
    pub fn standing(&self) -> Standing {
        let raft = &self.raw.raft;
        let others = raft.prs().iter().filter(|(id, _)| **id != raft.id && raft.state == StateRole::Leader);
        let mut peers: Vec<_> = others
            .map(|(id, of)| PeerStanding {
                id: *id,
                matched: of.matched,
                is_heard: of.recent_active || self.hearing.has(raft.term, *id, self.ticks, self.election_ticks),
                needs_copy: of.state == ProgressState::Snapshot,
            })
            .collect();
        peers.sort_unstable_by_key(|peer| peer.id);
        Standing {
            role: self.role(),
            term: raft.term,
            leader: raft.leader_id,
            first: raft.store().first(),
            last: raft.raft_log.last_index(),
            commit: raft.raft_log.committed,
            committed: self.committed,
            copies: self.copies,
            is_unnamed: self.ballot.unnamed().is_some(),
            peers,
        }
    }

    /// A tick of the clock.
    ///
    /// # Errors
    /// The member cannot go on; so in all calls that follow.
    pub fn tick(&mut self) -> Result<(), Fault> {
        self.forget_purged();
        self.ticks += 1;
        self.note_hearing();
        if self.may_campaign() {
            self.raw.tick();
        }
        self.note_leases_ended()?;
        if self.ticks >= self.told + self.election_ticks {
            self.told = self.ticks;
            self.tell_of_copies();
        }
        self.go_on_changing();
        self.work()
    }

    /// Notes whom this leader hears of, before Raft may begin its own note of that anew.
    fn note_hearing(&mut self) {
        let raft = &self.raw.raft;
        if raft.state == StateRole::Leader {
            let heard = raft.prs().iter().filter(|(_, of)| of.recent_active).map(|(id, _)| *id);
            self.hearing.note(raft.term, self.ticks, heard);
        }
    }

    /// Forgets entries of which the log has let go.
    fn forget_purged(&mut self) {
        let first = self.machine.log().stats().first;
        let applied = self.raw.raft.raft_log.applied;
        let entries = self.raw.raft.mut_store();
        // Raft looks at what it has not been told is applied.
        let gone = entries.whole_at(Index(first.0.saturating_sub(1))).min(applied);
        if gone >= entries.first() {
            entries.forget(gone);
        }
    }

    /// Returns the members that the data tell of, or those with which the group has begun.
    pub(crate) fn founding_or(&self, told: Option<Arc<[u8]>>) -> Result<Configuration, Fault> {
        founding_or(&self.founding, told)
    }

    /// The log has written or synced more; or reads wait for a round.
    pub fn on_progress(&mut self) -> Result<(), Fault> {
        self.work()
    }

    /// Has another member lead, if this one does. Entries that are made meanwhile wait until that has failed, or are
    /// taken back.
    pub fn transfer(&mut self, to: u64) -> Result<(), Fault> {
        if self.serves.is_some() && to != self.raw.raft.id {
            self.hands_over_in = Some(self.raw.raft.term);
            self.reads.led.end_lease();
            self.raw.transfer_leader(to);
        }
        self.work()
    }

    pub(crate) fn work(&mut self) -> Result<(), Fault> {
        loop {
            self.propose();
            self.look_after_reads();
            self.release_persisted();
            self.draw_timeout();
            if !self.raw.has_ready() {
                break;
            }
            let ready = self.raw.ready();
            self.handle(ready)?;
        }
        self.follow_commit()
    }

    /// Tells Raft of the entries that the log has written as a leader's.
    ///
    /// Invariant: Raft numbers them as the log did.
    fn propose(&mut self) {
        // While another member is about to lead, Raft would refuse them: they stay in the log until that has failed.
        if self.serves.is_none() || self.raw.raft.state != StateRole::Leader || self.raw.raft.lead_transferee.is_some()
        {
            return;
        }
        let spans = self.machine.log().take_entries();
        let Some(last) = spans.last().map(|span| span.number) else { return };
        for spans in spans.chunk_by(|one, other| !one.changes_members && !other.changes_members) {
            self.proposed.extend(spans);
            if let [EntrySpan { changes_members: true, number, .. }] = spans {
                let next = self.changing.as_ref().expect("this leader makes one change after the other");
                let change = next.change_from(&self.configuration);
                let proposed = self.raw.propose_conf_change(Vec::new(), change);
                assert!(proposed.is_ok() && self.raw.raft.pending_conf_index == *number, "Raft takes a change as one");
                continue;
            }
            let mut message = Message { from: self.raw.raft.id, ..Message::default() };
            message.set_msg_type(MessageType::MsgPropose);
            message.set_entries(spans.iter().map(|_| Entry::default()).collect());
            self.raw.raft.step(message).expect("a leader that hands over to nobody takes proposals");
        }
        assert_eq!(self.raw.raft.raft_log.last_index(), last, "Raft numbers entries as the log did");
        self.proofs.push_back((last, self.reads.led.close()));
    }

    /// Draws the election timeout where Raft has drawn one of its own: only so a seed replays a group.
    fn draw_timeout(&mut self) {
        let now = (self.raw.raft.term, self.raw.raft.state);
        if self.drawn != Some(now) {
            self.drawn = Some(now);
            let ticks = self.election_ticks + ((self.random)() % self.election_ticks as u64) as usize;
            self.raw.raft.set_randomized_election_timeout(ticks);
        }
    }

    /// Returns whether another member is about to lead, by this one's will.
    pub fn is_transferring(&self) -> bool {
        self.raw.raft.lead_transferee.is_some()
    }

    /// Has replies leave that wait for what is committed, applies it, and begins to serve where it is of this term.
    fn follow_commit(&mut self) -> Result<(), Fault> {
        let raft = &self.raw.raft;
        let commit = raft.raft_log.committed;
        let committed = raft.store().end_of(commit).expect("what is committed is known");
        if committed > self.committed {
            self.machine.log().confirm(committed);
            self.committed = committed;
        }
        self.note_filled()?;
        self.note_named()?;
        while let Some((_, round)) = self.proofs.pop_front_if(|(entry, _)| *entry <= commit) {
            self.confirm_led(round);
        }
        if self.serves.is_none() {
            // A record that is not written yet cannot be read.
            let through = committed.min(self.machine.log().written());
            if self.machine.applied() < through {
                self.machine.apply(through)?;
            }
            self.release_reads_beside();
            self.begin_to_serve();
        }
        Ok(())
    }

    /// Opens the log to clients, once an entry of this leader's term is committed.
    fn begin_to_serve(&mut self) {
        let raft = &self.raw.raft;
        let leads = raft.state == StateRole::Leader && raft.commit_to_current_term() && raft.lead_transferee.is_none();
        let last = raft.raft_log.last_index();
        if leads && raft.raft_log.committed == last && self.machine.applied() == self.machine.log().last() {
            self.serves = Some(raft.term);
            (self.question, self.answered) = (None, VecDeque::new());
            self.machine.lead(raft.term, last + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_lack_what_the_log_forgot_are_noticed() {
        let checked = |first, last, applied| check_data(Index(first), Index(last), Index(applied));
        for (first, last, applied) in [(1, 0, 0), (1, 9, 0), (5, 9, 4), (5, 9, 7), (5, 9, 9), (10, 9, 9)] {
            assert_eq!(checked(first, last, applied), Ok(()), "{first} {last} {applied}");
        }
        for (first, last, applied) in [(5, 9, 3), (5, 9, 0), (5, 8, 9), (10, 9, 8)] {
            assert!(matches!(checked(first, last, applied), Err(Fault::Damaged(_))), "{first} {last} {applied}");
        }
    }
}
