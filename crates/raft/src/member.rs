//! A member of a group: what comes in, what Raft makes of it, and what is done about that with log and data.
//!
//! One thread calls it. Each call ends with `work`, which does what Raft asks for in the order that keeps promises: the
//! ballot first; then what a lost office takes back; then the log; then messages, those of a follower when what they
//! acknowledge is on its disk; then the data follow the commit.

use crate::ballot::{Ballot, Vote};
use crate::entries::{BYTES_EACH, Entries, PER_MESSAGE};
use crate::loader::Outgoing;
use crate::machine::{Fault, Machine};
use crate::members::Members;
use crate::rounds::Rounds;
use crate::wire::{EntryRecord, EntryRecords, Envelope, travels};
use haypile_log::{EntrySpan, Index, Kind, Next, Record, Through};
use raft::eraftpb::{ConfState, Entry, HardState, Message, MessageType};
use raft::{RawNode, Ready, StateRole};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The most messages with entries on their way to one member.
const IN_FLIGHT_MAX: usize = 256;

/// Terms that are further ahead than this are none that elections have come to.
const TERMS_AHEAD_MAX: u64 = 1 << 32;

/// How a member takes part.
#[derive(Clone, Debug)]
pub struct Options {
    pub id: u64,
    pub members: Members,
    /// Ticks without a word of a leader before an election, at least; at most twice as many.
    pub election_ticks: usize,
    /// Ticks between two heartbeats of a leader.
    pub heartbeat_ticks: usize,
}

/// The part that a member has in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Follower,
    /// The member asks others whether they would vote for it, or to do so.
    Candidate,
    /// The member was elected, and has not committed anything yet: nobody is served.
    Elected,
    /// The member leads, and clients are served.
    Leader,
}

/// A Ready whose entries, or those before, are not all on the disk.
#[derive(Debug)]
struct Unpersisted {
    number: u64,
    through: Index,
    messages: Vec<Message>,
}

/// The facts of a member, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub role: Role,
    pub term: u64,
    /// 0 for none that is known.
    pub leader: u64,
    /// Entries.
    pub first: u64,
    pub last: u64,
    pub commit: u64,
    /// The record of the last committed entry.
    pub committed: Index,
    /// Of a leader: for each other member, the last entry that it is known to have, and whether it was heard of lately.
    pub peers: Vec<(u64, u64, bool)>,
}

/// A member of a group.
pub struct Member<M: Machine> {
    raw: RawNode<Entries>,
    ballot: Ballot,
    machine: M,
    rounds: Arc<Rounds>,
    random: Box<dyn FnMut() -> u64 + Send>,
    election_ticks: usize,
    /// Term and role when the election timeout was drawn last.
    drawn: Option<(u64, StateRole)>,
    /// The term in which clients' transactions make records.
    serves: Option<u64>,
    /// Invariant: in the order of their numbers, and `through` never goes back.
    unpersisted: VecDeque<Unpersisted>,
    /// Entries of this leader that Raft was told of, until they come out of it.
    proposed: VecDeque<EntrySpan>,
    /// The records of the message that is being worked on, by the entries' numbers.
    received: BTreeMap<u64, EntryRecords>,
    /// Entries whose commit confirms a round.
    proofs: VecDeque<(u64, u64)>,
    /// The round that a quorum is asked about.
    asked: Option<u64>,
    /// The last committed record that the log was told of.
    committed: Index,
    outgoing: Vec<Outgoing>,
}

fn damaged(what: impl Into<String>) -> Fault {
    Fault::Damaged(what.into())
}

impl<M: Machine> Member<M> {
    /// Begins with what is on the disk: the ballot, the log, and the data, which have what the base has.
    ///
    /// # Errors
    /// These are damaged, or do not belong together.
    pub fn begin(
        options: &Options,
        ballot: Ballot,
        machine: M,
        rounds: Arc<Rounds>,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Result<Member<M>, Fault> {
        let mut entries = survey(&machine)?;
        let applied = entries.whole_at(machine.applied());
        if machine.applied() > machine.log().last() || applied < entries.first() - 1 {
            let (ends, data) = (machine.log().last(), machine.applied());
            return Err(damaged(format!("the log ends with record {ends}, and the data have all through {data}")));
        }
        let Vote { term, vote } = ballot.vote();
        let newest = entries.term_of(entries.last()).unwrap_or_default();
        if term < newest {
            return Err(damaged(format!("the log has entries of term {newest}, and the ballot knows of {term} only")));
        }
        let mut voters = ConfState::default();
        voters.set_voters(options.members.iter().map(|(id, _)| id).collect());
        entries.begin_with(HardState { term, vote, commit: applied, ..HardState::default() }, voters);
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
            rounds,
            random,
            election_ticks: options.election_ticks,
            drawn: None,
            serves: None,
            unpersisted: VecDeque::new(),
            proposed: VecDeque::new(),
            received: BTreeMap::new(),
            proofs: VecDeque::new(),
            asked: None,
            committed: Index(0),
            outgoing: Vec::new(),
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
    pub fn rounds(&self) -> Arc<Rounds> {
        self.rounds.clone()
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

    /// Returns the member's facts.
    pub fn standing(&self) -> Standing {
        let raft = &self.raw.raft;
        let others = raft.prs().iter().filter(|(id, _)| **id != raft.id && raft.state == StateRole::Leader);
        let mut peers: Vec<_> = others.map(|(id, of)| (*id, of.matched, of.recent_active)).collect();
        peers.sort_unstable();
        Standing {
            role: self.role(),
            term: raft.term,
            leader: raft.leader_id,
            first: raft.store().first(),
            last: raft.raft_log.last_index(),
            commit: raft.raft_log.committed,
            committed: self.committed,
            peers,
        }
    }

    /// A tick of the clock.
    ///
    /// # Errors
    /// The member cannot go on; so in all calls that follow.
    pub fn tick(&mut self) -> Result<(), Fault> {
        self.forget_purged();
        self.raw.tick();
        self.work()
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

    /// A message of another member. One that makes no sense is passed over.
    pub fn receive(&mut self, envelope: Envelope) -> Result<(), Fault> {
        let Envelope { message, entries } = envelope;
        let raft = &self.raw.raft;
        let is_known = raft.prs().get(message.from).is_some() && message.from != raft.id;
        if message.to != raft.id || !is_known || !travels(message.get_msg_type()) {
            return Ok(());
        }
        if message.term > raft.term.saturating_add(TERMS_AHEAD_MAX) {
            return Ok(());
        }
        if message.get_msg_type() == MessageType::MsgHeartbeat
            && message.term >= raft.term
            && message.commit > raft.raft_log.last_index()
        {
            let (had, last) = (message.commit, raft.raft_log.last_index());
            return Err(damaged(format!(
                "the leader knows that this member had entries through {had}, and it has {last}: its log was lost, and it \
                 must be replaced"
            )));
        }
        self.received = entries.into_iter().map(|entry| (entry.span.number, entry)).collect();
        // A message that Raft refuses is as if it had been lost.
        drop(self.raw.step(message));
        let done = self.work();
        self.received.clear();
        done
    }

    /// The log has written or synced more; or reads wait for a round.
    pub fn on_progress(&mut self) -> Result<(), Fault> {
        self.work()
    }

    /// A message to this member was lost.
    pub fn on_unreachable(&mut self, id: u64) -> Result<(), Fault> {
        self.raw.report_unreachable(id);
        self.work()
    }

    /// Has another member lead, if this one does. Entries that are made meanwhile wait until that has failed, or are
    /// taken back.
    pub fn transfer(&mut self, to: u64) -> Result<(), Fault> {
        if self.serves.is_some() {
            self.raw.transfer_leader(to);
        }
        self.work()
    }

    fn work(&mut self) -> Result<(), Fault> {
        loop {
            self.propose();
            self.ask_about_reads();
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
        let mut message = Message { from: self.raw.raft.id, ..Message::default() };
        message.set_msg_type(MessageType::MsgPropose);
        message.set_entries(spans.iter().map(|_| Entry::default()).collect());
        self.proposed.extend(spans);
        self.raw.raft.step(message).expect("a leader that hands over to nobody takes proposals");
        assert_eq!(self.raw.raft.raft_log.last_index(), last, "Raft numbers entries as the log did");
        self.proofs.push_back((last, self.rounds.close()));
    }

    /// Asks a quorum whether this member leads, where reads wait for that and no entry on its way proves it.
    fn ask_about_reads(&mut self) {
        if self.serves.is_some() && self.asked.is_none() && self.rounds.is_wanted() {
            let round = self.rounds.close();
            self.asked = Some(round);
            self.raw.read_index(round.to_le_bytes().to_vec());
        }
    }

    /// Tells Raft what is on the disk, and lets messages leave that rest on it.
    fn release_persisted(&mut self) {
        let synced = self.machine.log().synced();
        while let Some(first) = self.unpersisted.pop_front_if(|first| first.through <= synced) {
            self.raw.on_persist_ready(first.number);
            self.send(first.messages);
        }
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

    fn handle(&mut self, mut ready: Ready) -> Result<(), Fault> {
        if let Some(hard) = ready.hs() {
            let vote = Vote { term: hard.term, vote: hard.vote };
            if vote != self.ballot.vote() {
                self.ballot.store(vote)?;
            }
        }
        let entries = ready.take_entries();
        self.take_back(entries.first().map(|entry| entry.index))?;
        let through = self.take_entries(&entries)?;
        self.send(ready.take_messages());
        for state in ready.take_read_states() {
            let round = state.request_ctx.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            self.on_round(round.expect("a round is asked for by its number"));
        }
        let (answers, messages) = ready
            .take_persisted_messages()
            .into_iter()
            .partition(|message| message.get_msg_type() == MessageType::MsgHeartbeatResponse);
        // An answer to a heartbeat rests on the ballot alone.
        self.send(answers);
        let before = self.unpersisted.back().map_or(Index(0), |last| last.through);
        let through = through.unwrap_or(before).max(before);
        self.unpersisted.push_back(Unpersisted { number: ready.number(), through, messages });
        let applied = ready.committed_entries().last().map(|entry| entry.index);
        self.raw.advance_append_async(ready);
        if let Some(applied) = applied {
            self.raw.advance_apply_to(applied);
        }
        Ok(())
    }

    /// Takes back what has turned out not to hold: entries that others come in the place of, from number `from` on, and
    /// all that a former leader has done since what its group agreed on.
    fn take_back(&mut self, from: Option<u64>) -> Result<(), Fault> {
        let served =
            self.serves.is_some_and(|term| self.raw.raft.state != StateRole::Leader || self.raw.raft.term != term);
        let entries = self.raw.raft.store();
        let stays = from.map_or(entries.last(), |from| entries.last().min(from - 1));
        // A leader's newest entries come out of Raft for the first time.
        let stays = if self.serves.is_some() && !served { entries.last() } else { stays };
        if !served && stays == entries.last() {
            return Ok(());
        }
        let keep = entries.end_of(stays).expect("what is committed is never taken back");
        let commit = self.raw.raft.raft_log.committed.min(stays);
        let committed = entries.end_of(commit).expect("what is committed is known");
        // The records that stay have to be there when the log is opened again.
        self.machine.log().sync_through(keep).map_err(|error| Fault::Refused(error.to_string()))?;
        assert!(keep >= self.committed, "what is committed is never taken back: {keep}, {}", self.committed);
        self.machine.rebuild(keep, committed.max(self.committed))?;
        assert_eq!(self.machine.log().last(), keep, "the log ends with what stays");
        if served {
            self.serves = None;
            self.proposed.clear();
            self.proofs.clear();
            self.asked = None;
        }
        self.raw.raft.mut_store().truncate(stays + 1);
        // An acknowledgement of what is gone would be a lie.
        for waiting in self.unpersisted.iter_mut().filter(|waiting| waiting.through > keep) {
            waiting.messages.clear();
            waiting.through = keep;
        }
        // The log that was opened knows nothing of what the group has agreed on.
        self.committed = Index(0);
        Ok(())
    }

    /// Puts entries that come out of Raft into the log, where they are not there already; returns the last record.
    fn take_entries(&mut self, entries: &[Entry]) -> Result<Option<Index>, Fault> {
        let mut through = None;
        for entry in entries {
            let span = match self.proposed.pop_front() {
                Some(span) => {
                    assert_eq!((span.term, span.number), (entry.term, entry.index), "entries come out as they went in");
                    span
                }
                None if self.raw.raft.state == StateRole::Leader && entry.term == self.raw.raft.term => {
                    self.keep_term(entry)?
                }
                None => self.keep_received(entry)?,
            };
            let is_change = entry.get_entry_type() != raft::eraftpb::EntryType::EntryNormal;
            self.raw.raft.mut_store().push(span, is_change);
            through = Some(span.last);
        }
        if !entries.is_empty() {
            self.machine.log().write();
        }
        Ok(through)
    }

    /// Puts the first entry of a new leader into the log.
    fn keep_term(&mut self, entry: &Entry) -> Result<EntrySpan, Fault> {
        assert!(self.serves.is_none(), "a leader that serves makes its entries in the log");
        let body = [entry.term.to_le_bytes(), self.raw.raft.id.to_le_bytes()].concat();
        let index = self.machine.keep_own((entry.term, entry.index), Kind::Term, &body)?;
        Ok(EntrySpan { term: entry.term, number: entry.index, first: index, last: index })
    }

    /// Puts the records of an entry that came from a leader into the log.
    fn keep_received(&mut self, entry: &Entry) -> Result<EntrySpan, Fault> {
        let received = self.received.remove(&entry.index).expect("an entry comes with its records");
        let (span, next) = (received.span, self.machine.log().last().next());
        if (span.term, span.first) != (entry.term, next) {
            return Err(damaged(format!("{span:?} does not follow on record {}", next.0 - 1)));
        }
        let history = self.machine.log().history();
        let records = received.records().map(|record| {
            let EntryRecord { index, kind, time_ms, body, body_crc } =
                record.expect("they were checked when they came");
            let (term, entry) = (span.term, span.number);
            Record { index, history, term, entry, kind, time_ms, body, body_crc, segment: 0, offset: 0 }
        });
        let records: Vec<Record<'_>> = records.collect();
        self.machine.keep(&records)?;
        Ok(span)
    }

    fn send(&mut self, messages: Vec<Message>) {
        for message in messages {
            // A call that a follower forwards would be carried out by a leader that never ran it.
            if !travels(message.get_msg_type()) {
                continue;
            }
            let entries = self.raw.raft.store();
            let spans: Option<Vec<_>> = message.entries.iter().map(|entry| entries.span(entry.index)).collect();
            // Entries that were forgotten meanwhile are asked for again.
            if let Some(spans) = spans {
                self.outgoing.push(Outgoing { message, spans });
            }
        }
    }

    fn on_round(&mut self, round: u64) {
        if self.asked == Some(round) {
            self.asked = None;
        }
        if self.serves.is_some() {
            self.rounds.confirm(round);
        }
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
        while let Some((_, round)) = self.proofs.pop_front_if(|(entry, _)| *entry <= commit) {
            self.rounds.confirm(round);
        }
        if self.serves.is_none() {
            // A record that is not written yet cannot be read.
            let through = committed.min(self.machine.log().written());
            if self.machine.applied() < through {
                self.machine.apply(through)?;
            }
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
            self.machine.lead(raft.term, last + 1);
        }
    }
}

/// Returns the entries of a log. Records from before the group are no entries.
fn survey(machine: &impl Machine) -> Result<Entries, Fault> {
    let log = machine.log();
    let first = log.stats().first;
    let mut reader = log.reader(Index(first.0.saturating_sub(1))).through(Through::Synced);
    let mut entries: Option<Entries> = (first <= Index(1)).then(|| Entries::new(0, 0, Index(0)));
    let mut open: Option<EntrySpan> = None;
    loop {
        let next = reader.next().map_err(|error| damaged(error.to_string()))?;
        let record = match next {
            Next::Record(record) => Some((record.term, record.entry, record.index)),
            Next::UpToDate => None,
            Next::Gap(first) => return Err(damaged(format!("the log begins with record {first} only"))),
        };
        if let (Some(span), Some((term, number, index))) = (&mut open, record)
            && (span.term, span.number) == (term, number)
        {
            span.last = index;
            continue;
        }
        if let Some(span) = open.take() {
            add(&mut entries, span)?;
        }
        match record {
            Some((term, number, index)) => open = Some(EntrySpan { term, number, first: index, last: index }),
            None => return Ok(entries.unwrap_or_else(|| Entries::new(0, 0, Index(0)))),
        }
    }
}

fn add(entries: &mut Option<Entries>, span: EntrySpan) -> Result<(), Fault> {
    match entries {
        Some(entries) if span.number == entries.last() + 1 => entries.push(span, false),
        Some(known) if span.number > 0 => {
            return Err(damaged(format!("entry {} of the log does not follow on entry {}", span.number, known.last())));
        }
        // Records before the first entry that is known as a whole, or before the group.
        none => *none = Some(Entries::new(span.term, span.number, span.last)),
    }
    Ok(())
}
