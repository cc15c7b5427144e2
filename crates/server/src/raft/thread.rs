//! The thread that is the member: its clock, and the order in which it is told things.

use crate::datadir;
use crate::raft::hand_over::HandOver;
use crate::raft::inbox::Told;
use crate::raft::machine::Data;
use crate::raft::orders::Orders;
use crate::raft::restored::{Question, Waits};
use crate::raft::{Identity, MEMBER, Place, Raft, lock};
use haypile_commands::host::GroupOrder;
use haypile_engine::{GroupFacts, Leader, MemberFacts, MemberSeen, Order};
use haypile_log::{DiskFiles, History, Index};
use haypile_raft::{
    Ballot, Configuration, Fault, LastRecord, Machine, Member, Options, Part, Peer, PeerStanding, Role, Standing,
};
use haypile_store::Store;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The pause before a member begins again that could not go on.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time to reach another server and to hear its answer about restored data.
const ASK_MAX: Duration = Duration::from_secs(2);

/// The most ticks that are made up for at once: a member that was stopped for long is late, and the others are not.
const TICKS_AT_ONCE: u32 = 3;

/// How long the stop of a leader waits for its group to agree on the last records.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// The answer to orders of a server that another one has leave its group.
const LEAVES: &str = "this server is leaving its group";

/// Is the member, to the end of the server.
pub fn run(raft: &Arc<Raft>) {
    let place = raft.place();
    let Place { options, group, .. } = &*place;
    begin_restored(raft, &place);
    while !raft.inbox.is_closing() {
        let (goes_on, again) = (|| !raft.inbox.is_closing(), || raft.inbox.on_progress());
        let ended = Turns::begin(raft, options, *group, &goes_on, &again).and_then(Turns::run);
        raft.serves.store(false, Ordering::Release);
        raft.engine.set_leader(Leader::Unknown);
        let Err(fault) = ended else { return };
        raft.engine.group.set_facts(GroupFacts { fault: Some(fault.to_string()), ..known(&place) });
        match &fault {
            Fault::Refused(why) => tracing::warn!("this member of the group begins again: {why}"),
            Fault::Damaged(why) => tracing::error!("this member takes no part in the group: {why}"),
        }
        // A member that is damaged listens to its end, and says nothing.
        while !listen(raft, PAUSE) && matches!(fault, Fault::Damaged(_)) {}
        if matches!(fault, Fault::Refused(_))
            && let Err(why) = raft.engine.rebuild_group(Index(u64::MAX))
        {
            tracing::error!("the data of this member cannot be opened again: {why}");
            return;
        }
    }
}

/// Has a member that takes no part listen for so long, or to its end; returns whether that has come.
fn listen(raft: &Raft, time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        let told = raft.inbox.take(until);
        if told.fetched.is_some() {
            raft.on_fetch_ended();
        }
        // Orders that are dropped are answered.
        drop(raft.engine.group.take_orders());
        if told.closing || Instant::now() >= until {
            return told.closing;
        }
    }
}

/// Makes restored data those of a member, if that is what this server has: waits until the group's leader has said that
/// they are of the group's past. The ballot is made last: with it the data are a member's.
fn begin_restored(raft: &Arc<Raft>, place: &Place) {
    let Place { options, group, .. } = place;
    let dir = raft.engine.settings.config().dir.clone();
    let mut told = None;
    while !raft.inbox.is_closing() {
        let Some(store) = raft.engine.store_arc() else { return };
        // A log that has more, or begins behind nothing, is a member's, which has lost its ballot, or a new one's.
        let is_restored = datadir::is_restored(&dir) && datadir::complete_through(&dir) == Some(store.log().last());
        if !is_restored || *group != options.members.founding() || *group != store.log().history() {
            return;
        }
        let text = match ask_leader(raft, place, &store) {
            Ok((term, behind)) => {
                let identity = Identity { id: options.id, group: *group, founding: options.members.clone() };
                let kept = identity.keep(&dir).map_err(|error| error.to_string());
                let ballot = datadir::ballot_file(&dir);
                let of = (*group, options.id);
                let begun = kept.and_then(|()| {
                    let ballot = Ballot::begin_restored(&DiskFiles, &ballot, of, term, behind);
                    ballot.map(drop).map_err(|fault| fault.to_string())
                });
                match begun {
                    Ok(()) => {
                        tracing::info!("this member begins with restored data: it votes when a leader has named it");
                        return;
                    }
                    Err(why) => why,
                }
            }
            Err(Waits::Refused(why)) => format!("this server does not begin with its restored data: {why}"),
            Err(Waits::Unanswered(why)) => {
                format!("this server has restored data, and waits for the word of a leader about them: {why}")
            }
        };
        drop(store);
        raft.engine.group.set_facts(GroupFacts { fault: Some(text.clone()), ..known(place) });
        if told.as_ref() != Some(&text) {
            tracing::warn!("{text}");
            told = Some(text);
        }
        listen(raft, PAUSE);
    }
}

/// Asks the group's leader about the last record of restored data; returns the record's term, and the entry behind
/// which a record has to name this member.
fn ask_leader(raft: &Arc<Raft>, place: &Place, store: &Store) -> Result<(u64, u64), Waits> {
    let Place { options, group, .. } = place;
    let last = LastRecord::of(store.log()).map_err(|fault| Waits::Refused(fault.to_string()))?;
    let told = store.members().and_then(|text| Configuration::parse(std::str::from_utf8(&text).ok()?).ok());
    let known = told.unwrap_or_else(|| Configuration::from(&options.members));
    let founders = options.members.iter().map(|(_, peer)| peer.address.clone());
    let addresses = known.iter().map(|(_, peer, _)| peer.address.clone()).chain(founders);
    let ask = |address: &str, words: &[&[u8]]| raft.ask(address, words, ASK_MAX).map(|(_, reply)| reply);
    let question = Question { word: MEMBER, group: *group, id: options.id, last: &last };
    question.ask(addresses, &ask).map(|behind| (last.term, behind))
}

/// Returns what is known of a member before it takes part.
pub fn known(place: &Place) -> GroupFacts {
    let Place { options, group, reads } = place;
    let founder = |(id, peer): (u64, &Peer)| MemberFacts {
        id,
        address: peer.address.clone(),
        part: Part::Voter.name(),
        seen: None,
    };
    GroupFacts {
        node_id: options.id,
        group: group.to_string(),
        founding: options.members.to_string(),
        reads: reads.clone(),
        members: options.members.iter().map(founder).collect(),
        role: "stopped",
        ..GroupFacts::default()
    }
}

/// A member that goes on.
struct Turns<'a> {
    raft: &'a Arc<Raft>,
    options: &'a Options,
    member: Member<Data<'a>>,
    elections: u64,
    /// The last round of which event loops were told, and the last one of reads beside the leader.
    confirmed: u64,
    reached: u64,
    /// The role, the leader and the number of times that data were opened again, of which the engine was told.
    shown: Option<(Role, Leader, u64)>,
    orders: Orders,
    hand_over: HandOver,
    /// The members to which threads send, and how often others had been heard of then.
    sends_to: Option<(Configuration, u64)>,
}

impl<'a> Turns<'a> {
    fn begin(
        raft: &'a Arc<Raft>,
        options: &'a Options,
        group: History,
        goes_on: &'a dyn Fn() -> bool,
        again: &'a dyn Fn(),
    ) -> Result<Turns<'a>, Fault> {
        let data = Data::of(&raft.engine, &raft.serves, goes_on, again)?;
        let dir = raft.engine.settings.config().dir.clone();
        let (history, begins) = (data.log().history(), data.log().last() == Index(0));
        // A group that has begun with empty members has a history of its own.
        if group == options.members.founding() && group != history {
            let what = format!("the data are of history {history}, and the group that 'raft-peers' names has {group}");
            return Err(Fault::Damaged(what));
        }
        let ballot = Ballot::open(&DiskFiles, &datadir::ballot_file(&dir), group, options.id, begins)?;
        let member = Member::begin(options, ballot, data, raft.reads.clone(), Box::new(random))?;
        let Standing { term, first, last, commit, .. } = member.standing();
        let (id, count) = (options.id, member.configuration().iter().count());
        tracing::info!("member {id} of a group of {count}: term {term}, entries {first} to {last}, {commit} committed");
        if let Some(leased) = member.withholds() {
            tracing::info!(
                "this member votes for nobody for {leased:?}: so long may a leader rely on what it has heard of it"
            );
        }
        let mut turns = Turns {
            raft,
            options,
            member,
            elections: 0,
            confirmed: 0,
            reached: 0,
            shown: None,
            orders: Orders::default(),
            hand_over: HandOver::default(),
            sends_to: None,
        };
        turns.look_at_peers();
        Ok(turns)
    }

    fn run(mut self) -> Result<(), Fault> {
        let mut next_tick = Instant::now() + self.raft.tick;
        loop {
            let told = self.raft.inbox.take(next_tick);
            if told.closing {
                return self.stop();
            }
            let (now, mut ticks) = (Instant::now(), 0);
            while now >= next_tick && ticks < TICKS_AT_ONCE {
                (next_tick, ticks) = (next_tick + self.raft.tick, ticks + 1);
                self.member.tick()?;
            }
            next_tick = next_tick.max(now);
            self.hear(told)?;
            self.release_reads();
            self.raft.engine.look_at_group_users(self.member.committed());
            self.take_orders()?;
            self.look_at_peers();
            self.look_for_copy();
            if ticks > 0 {
                self.hand_over.look(&mut self.member, self.raft.tick * self.options.election_ticks as u32)?;
                self.send();
            }
            self.show(ticks > 0);
        }
    }

    fn hear(&mut self, told: Told) -> Result<(), Fault> {
        for envelope in told.messages {
            self.member.receive(envelope)?;
            self.send();
        }
        for id in told.lost {
            self.member.on_unreachable(id)?;
        }
        for (id, term) in told.sending {
            self.member.on_bytes_of(id, term)?;
        }
        if told.progress {
            self.member.on_progress()?;
        }
        if let Some(Some(entry)) = told.fetched {
            // Nothing is fetched before this is done.
            let is_installed = self.member.install(entry)?;
            tracing::info!(
                "a copy through entry {} {}",
                entry.1,
                if is_installed { "is in place" } else { "is of no use" }
            );
        }
        if told.fetched.is_some() {
            self.raft.on_fetch_ended();
        }
        self.send();
        Ok(())
    }

    /// Has replies leave that wait for a round which is proved by now.
    fn release_reads(&mut self) {
        let reached = self.raft.reads.beside.confirmed();
        if std::mem::replace(&mut self.reached, reached) < reached {
            self.raft.engine.wake_held();
        }
        let confirmed = self.raft.reads.led.confirmed();
        if std::mem::replace(&mut self.confirmed, confirmed) < confirmed {
            self.raft.mailboxes.iter().for_each(|mailbox| mailbox.on_durable());
        }
    }

    fn send(&mut self) {
        let outgoing = self.member.take_outgoing();
        if outgoing.is_empty() {
            return;
        }
        let peers = lock(&self.raft.peers);
        for message in outgoing {
            let to = message.to();
            let is_sent = peers.get(&to).is_some_and(|peer| peer.send(message));
            if !is_sent {
                self.raft.inbox.on_lost(to);
            }
        }
    }

    /// Begins the orders that were given, and answers those that are carried out.
    fn take_orders(&mut self) -> Result<(), Fault> {
        for order in self.raft.engine.group.take_orders() {
            if order.what == GroupOrder::Reset {
                self.take_leave(order);
                continue;
            }
            let changes_members = matches!(order.what, GroupOrder::AddMember { .. } | GroupOrder::RemoveMember { .. });
            if changes_members && self.raft.is_leaving.load(Ordering::Acquire) {
                order.answer(Err(LEAVES.into()));
                continue;
            }
            self.orders.begin(order, &mut self.member)?;
            self.send();
        }
        self.orders.look(&self.member);
        Ok(())
    }

    /// Has the server be in no group any more, if this member is the only one: it stays that until it has left.
    fn take_leave(&self, order: Order) {
        let members = self.member.configuration();
        let is_alone = members.iter().all(|(id, _, part)| id == self.options.id && part == Part::Voter);
        let is_alone = is_alone && !self.member.is_changing();
        if self.member.role() != Role::Leader || !is_alone {
            return order.answer(Err("the group has other members: remove them first".into()));
        }
        if self.raft.engine.settings.config().raft.is_member() {
            let why =
                "the configuration names the group: start the server without 'raft-node-id' and 'raft-peers' first";
            return order.answer(Err(why.into()));
        }
        if self.raft.is_leaving.swap(true, Ordering::AcqRel) {
            return order.answer(Err(LEAVES.into()));
        }
        self.raft.leave(order);
    }

    /// Has threads send to the members that there are now.
    fn look_at_peers(&mut self) {
        let heard = self.raft.heard.load(Ordering::Relaxed);
        let now = self.member.configuration();
        if self.sends_to.as_ref().is_none_or(|(known, before)| known != now || *before != heard) {
            self.raft.set_peers(now);
            self.sends_to = Some((now.clone(), heard));
        }
    }

    /// Has the copy fetched that the member needs.
    fn look_for_copy(&self) {
        let Some(wanted) = self.member.wanted_copy() else { return };
        let known = self.member.configuration().get(wanted.from).map(|(peer, _)| peer.address.clone());
        if let Some(address) = known.or_else(|| lock(&self.raft.heard_of).get(&wanted.from).cloned()) {
            self.raft.fetch(address);
        }
    }

    /// Tells the engine what the member is, where that has changed; and now and then all that there is to know.
    fn show(&mut self, is_tick: bool) {
        // While data are opened again nobody is told to lead: that has to be told anew, too.
        let (role, id) = (self.member.role(), self.member.leader());
        let leader = match self.member.configuration().get(id) {
            _ if role == Role::Leader => Leader::Here,
            Some((peer, _)) if id != self.options.id => Leader::At(peer.address.clone()),
            _ => Leader::Unknown,
        };
        let now = (role, leader.clone(), self.member.machine().rebuilds);
        if self.shown.as_ref() != Some(&now) {
            let was_leader = self.shown.replace(now).is_some_and(|(before, ..)| before == Role::Leader);
            if role == Role::Leader && !was_leader {
                self.elections += 1;
            }
            let (term, part) = (self.member.standing().term, name(role));
            match &leader {
                Leader::At(address) => tracing::info!("term {term}: {part}, member {id} at {address} leads"),
                Leader::Here => tracing::info!("term {term}: {part}"),
                Leader::Unknown => tracing::info!("term {term}: {part}, no leader is known"),
            }
            self.raft.serves.store(role == Role::Leader, Ordering::Release);
            self.raft.engine.set_leader(leader);
            self.raft.leaders.send_replace(());
        } else if !is_tick {
            return;
        }
        self.raft.engine.group.set_facts(self.facts(&self.member.standing()));
    }

    fn facts(&self, standing: &Standing) -> GroupFacts {
        let seen = |id: u64| standing.peers.iter().find(|peer| peer.id == id);
        let seen = |id: u64| {
            seen(id).map(|&PeerStanding { matched, is_heard, needs_copy, .. }| MemberSeen {
                matched,
                is_heard,
                needs_copy,
            })
        };
        let of_member = |(id, peer, part): (u64, &Peer, Part)| MemberFacts {
            id,
            address: peer.address.clone(),
            part: part.name(),
            seen: seen(id),
        };
        let is_there = self.member.configuration().get(self.options.id).is_some();
        let removed = lock(&self.raft.removed).clone().filter(|_| standing.leader == 0 || !is_there);
        GroupFacts {
            leader_address: self
                .member
                .configuration()
                .get(standing.leader)
                .map_or_else(String::new, |(peer, _)| peer.address.clone()),
            role: name(standing.role),
            term: standing.term,
            leader: standing.leader,
            first: standing.first,
            last: standing.last,
            commit: standing.commit,
            committed: standing.committed,
            members: self.member.configuration().iter().map(of_member).collect(),
            waits_to_be_named: standing.is_unnamed,
            copies: standing.copies,
            elections: self.elections,
            rebuilds: self.member.machine().rebuilds,
            is_removed: removed.is_some(),
            fault: removed,
            ..known(&self.raft.place())
        }
    }

    /// Waits until the group has agreed on what this leader has made, so that the stop can bring it into the base.
    fn stop(mut self) -> Result<(), Fault> {
        let until = Instant::now() + STOP_WAIT;
        let is_open = |turns: &Turns<'_>| {
            let log = turns.member.machine().log();
            turns.member.role() == Role::Leader && log.confirmed() < log.last()
        };
        while is_open(&self) && Instant::now() < until {
            self.member.machine().log().write();
            let told = self.raft.inbox.take(Instant::now() + self.raft.tick);
            self.hear(told)?;
            self.member.on_progress()?;
            self.send();
        }
        Ok(())
    }
}

/// Returns a role's name, as INFO has it.
fn name(role: Role) -> &'static str {
    match role {
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Elected => "elected",
        Role::Leader => "leader",
    }
}

/// Returns a random number.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
