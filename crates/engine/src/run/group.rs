//! A server that is a member of a consensus group. Who leads is decided elsewhere; here is what that means for clients
//! and for the data.
//!
//! Only the leader runs commands on keys. A member that does not lead says which one does, as a node of a Redis Cluster
//! says who has a slot. A leader that has lost its office opens its data again, without what its group did not agree
//! on: a client that waited for a reply then is disconnected, as nobody knows what became of its call.

use crate::run::backups::Waiter;
use crate::run::engine::Engine;
use crate::run::script::script_flags;
use crate::sync::{Mutex, MutexGuard, lock};
use haypile_commands::host::{GroupOrder, Reload, Role, UserChange};
use haypile_commands::{Access, Body, Control, Entry, Error, Flag};
use haypile_log::Index;
use haypile_resp::{self as resp, Reply};
use haypile_store::{Counter, Store, slot_of};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The error of calls on data while no leader is known.
pub(crate) const CLUSTERDOWN: &str = "CLUSTERDOWN The cluster is down";

/// The way back of a server whose member was removed from its group.
pub const WAY_BACK: &str = "to bring this server back, start it on an empty directory without 'raft-node-id' and \
                            'raft-peers', and say RAFT.CLUSTER JOIN there";

/// A function that changes what lies on the disk while no data are open. Its inner error says that nothing has changed;
/// the outer one, that nobody knows.
pub type Put<'a> = dyn FnMut() -> Result<Result<(), String>, String> + 'a;

/// The member that leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Leader {
    /// No leader is known.
    #[default]
    Unknown,
    /// The member at this address leads, which is not the one here.
    At(String),
    /// The member here; clients are served.
    Here,
}

/// The facts about a member, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFacts {
    pub node_id: u64,
    /// The name of the group, and the members with which it has begun.
    pub group: String,
    pub founding: String,
    /// The members' word about reads, which is the same on all.
    pub reads: String,
    /// The leader's address, host:port; empty where no leader is known.
    pub leader_address: String,
    pub role: &'static str,
    pub term: u64,
    /// The number of the leader; 0 where none is known.
    pub leader: u64,
    /// The first and the last entry of the member's log, and the last one that the group has committed.
    pub first: u64,
    pub last: u64,
    pub commit: u64,
    /// The last record that is committed.
    pub committed: Index,
    /// All members.
    pub members: Vec<MemberFacts>,
    /// Whether the member has begun with restored data, and no record of a leader has named it since.
    pub waits_to_be_named: bool,
    /// The copies of a leader's data that this member has put in the place of its own.
    pub copies: u64,
    /// The number of times that this member was elected.
    pub elections: u64,
    /// The number of times that this member has opened its data again.
    pub rebuilds: u64,
    /// The reason why the member takes no part, if it does not.
    pub fault: Option<String>,
    /// Whether `fault` is that the member was removed from its group.
    pub is_removed: bool,
}

/// The facts about one member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberFacts {
    pub id: u64,
    /// The address, host:port.
    pub address: String,
    /// `voter`, `learner`, `joining` or `leaving`.
    pub part: &'static str,
    /// The facts that a leader knows of another member.
    pub seen: Option<MemberSeen>,
}

/// A member, as its leader sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberSeen {
    /// The last entry that the member is known to have.
    pub matched: u64,
    /// Whether the leader has heard of the member lately.
    pub is_heard: bool,
    /// Whether the member needs a copy of the data.
    pub needs_copy: bool,
}

/// An order to the group, and the session that waits for it.
pub struct Order {
    pub what: GroupOrder,
    waiter: Option<Waiter>,
    asking: Asking,
}

/// The sessions that wait for a change of users, each with whether it is closed behind the answer.
#[derive(Clone, Default)]
struct Asking(Arc<Mutex<HashMap<u64, bool>>>);

impl Order {
    /// Ends the wait: the order was carried out, or was not for this reason.
    pub fn answer(mut self, outcome: Result<(), String>) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: Result<(), String>) {
        if let Some(mut waiter) = self.waiter.take() {
            if lock(&self.asking.0).remove(&waiter.session()) == Some(true) {
                waiter.close();
            }
            waiter.tell(match outcome {
                Ok(()) => match &self.what {
                    GroupOrder::ChangeUsers { change: UserChange::Remove(names), .. } => {
                        Reply::Integer(names.len() as i64)
                    }
                    _ => Reply::ok(),
                },
                Err(why) => Reply::error(format!("ERR {}", why.replace(['\r', '\n'], " "))),
            });
        }
    }
}

impl Drop for Order {
    /// An order that nobody answers may have been carried out, or may be.
    fn drop(&mut self) {
        self.tell(Err("this member leads no more, and what became of the order is unknown".into()));
    }
}

/// The member that the server is, as the engine needs it.
pub trait Member: Send + Sync {
    /// Tells the member that there are orders.
    fn on_orders(&self);

    /// A read is to be made beside the leader: returns the round that it waits for.
    fn join_beside(&self) -> u64;

    /// Returns the last round whose reads may be made.
    fn reached_beside(&self) -> u64;
}

/// See the file's head.
#[derive(Default)]
pub struct Group {
    orders: Mutex<Vec<Order>>,
    member: OnceLock<Box<dyn Member>>,
    leader: Mutex<Leader>,
    facts: Mutex<Option<GroupFacts>>,
    /// The number of the last leader that was known; 0 before there was one.
    last_leader: AtomicU64,
    is_member: AtomicBool,
    /// The member wants its data opened again: whatever keeps them open for long ends.
    wants_data: AtomicBool,
    /// Clients whose connections go on to the leader.
    proxied: AtomicU64,
    asking: Asking,
}

/// A client whose connection goes on to the leader; it counts until this is dropped.
pub struct Proxied<'a>(&'a Group);

impl Drop for Proxied<'_> {
    fn drop(&mut self) {
        self.0.proxied.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Group {
    fn leader(&self) -> MutexGuard<'_, Leader> {
        lock(&self.leader)
    }

    /// Returns the member that leads, as far as this server knows.
    pub fn leader_now(&self) -> Leader {
        self.leader().clone()
    }

    /// Counts a client whose connection goes on to the leader.
    pub fn count_proxied(&self) -> Proxied<'_> {
        self.proxied.fetch_add(1, Ordering::Relaxed);
        Proxied(self)
    }

    /// Returns the number of clients whose connections go on to the leader.
    pub(crate) fn proxied_clients(&self) -> u64 {
        self.proxied.load(Ordering::Relaxed)
    }

    /// Returns whether the server is in a group: from its start to its end.
    pub fn is_member(&self) -> bool {
        self.is_member.load(Ordering::Relaxed)
    }

    /// Has `member` be told of orders and of reads; once, before clients are served.
    pub fn set_member(&self, member: Box<dyn Member>) {
        let is_first = self.member.set(member).is_ok();
        assert!(is_first, "a member begins once");
    }

    pub(crate) fn join_beside(&self) -> u64 {
        self.member.get().map_or(u64::MAX, |member| member.join_beside())
    }

    pub(crate) fn reached_beside(&self) -> u64 {
        self.member.get().map_or(0, |member| member.reached_beside())
    }

    pub(crate) fn give_order(&self, what: GroupOrder, waiter: Waiter) {
        if matches!(what, GroupOrder::ChangeUsers { .. }) {
            lock(&self.asking.0).insert(waiter.session(), false);
        }
        let order = Order { what, waiter: Some(waiter), asking: self.asking.clone() };
        // Where nobody looks at orders, this one is answered as it is dropped.
        let Some(member) = self.member.get() else { return drop(order) };
        lock(&self.orders).push(order);
        member.on_orders();
    }

    /// Has a session whose user has gone be closed behind the answer that it waits for; false if it does not wait for
    /// a change of users.
    pub(crate) fn close_behind_answer(&self, session: u64) -> bool {
        lock(&self.asking.0).get_mut(&session).map(|closes| *closes = true).is_some()
    }

    /// Returns the orders that were given since the last call.
    pub fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut lock(&self.orders))
    }

    /// Returns whether the member waits for its data to be opened again.
    pub fn wants_data(&self) -> bool {
        self.wants_data.load(Ordering::Relaxed)
    }

    pub(crate) fn set_wants_data(&self, wants: bool) {
        self.wants_data.store(wants, Ordering::Relaxed);
    }

    /// Returns how many members beside this one have what the group has agreed on, at least; None of a server that is
    /// in no group.
    pub(crate) fn others_of_majority(&self) -> Option<usize> {
        if !self.is_member() {
            return None;
        }
        let facts = self.facts().unwrap_or_default();
        Some(facts.members.iter().filter(|member| member.part == "voter").count() / 2)
    }

    /// Notes the facts of a member.
    pub fn set_facts(&self, facts: GroupFacts) {
        if facts.leader != 0 {
            self.last_leader.store(facts.leader, Ordering::Relaxed);
        }
        *lock(&self.facts) = Some(facts);
    }

    /// Returns the members as nodes of a cluster.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        let last_leader = self.last_leader.load(Ordering::Relaxed);
        self.facts().map_or_else(Vec::new, |facts| facts.nodes(last_leader))
    }

    /// Returns the facts of a member; None of a server that is in no group.
    pub fn facts(&self) -> Option<GroupFacts> {
        lock(&self.facts).clone()
    }
}

/// A member of a group, as a node of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub id: u64,
    pub address: String,
    pub is_self: bool,
    /// Whether the node leads or, while no leader is known, led last: as in Redis, a master that has failed has its
    /// slots until another one takes its place, so that clients know whom to ask.
    pub is_leader: bool,
    /// Whether the node was heard of lately, as far as this member can know: a leader hears of all, others of their
    /// leader.
    pub is_linked: bool,
    /// The last entry that the node is known to have.
    pub last: u64,
}

impl GroupFacts {
    /// Returns all members, by their numbers.
    fn nodes(&self, last_leader: u64) -> Vec<Node> {
        let leader = if self.leader == 0 { last_leader } else { self.leader };
        let node = |member: &MemberFacts| {
            let MemberFacts { id, address, seen, .. } = member;
            let (is_self, is_leader) = (*id == self.node_id, *id == leader);
            let is_missed = is_leader && self.leader == 0;
            let known = if is_leader { self.commit } else { 0 };
            Node {
                id: *id,
                address: address.clone(),
                is_self,
                is_leader,
                is_linked: is_self || !is_missed && seen.is_none_or(|seen| seen.is_heard),
                last: if is_self { self.last } else { seen.map_or(known, |seen| seen.matched) },
            }
        };
        let mut nodes: Vec<Node> = self.members.iter().map(node).collect();
        if !nodes.iter().any(|node| node.is_self) {
            // A server that is no member yet waits until the group takes it in.
            nodes.push(Node { id: self.node_id, is_self: true, ..Node::default() });
        }
        nodes.sort_unstable_by_key(|node| node.id);
        nodes
    }
}

/// The member of a group that runs a call. Of a block, the greatest of its calls' is the block's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Runner {
    /// Any member runs the call, which rests on no data.
    Any,
    /// The member here, which does not lead: the call reads, and its client is content with the data here.
    Beside,
    /// The member here, as the leader: the reply has to wait for a proof of that.
    Leader,
    /// The call runs on a member that is not the one here; the error names that member.
    Other(String),
}

/// Returns whether a call rests on data, or is about keys. The calls of a block are looked at one by one.
fn is_about_data(entry: &Entry) -> bool {
    match entry.command.body {
        Body::Txn(_) | Body::Wait(_) | Body::Migrate(_) | Body::Script(_) | Body::Engine(Control::Watch) => true,
        Body::Host(_) | Body::Act(_) => entry.command.rests_on_rows,
        Body::Engine(_) | Body::Container => false,
    }
}

/// Returns the host and the port of an address; a host in brackets without them.
pub(crate) fn host_and_port(address: &str) -> (&str, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    (bare.unwrap_or(host), port.parse().unwrap_or(0))
}

impl Engine {
    /// Notes who leads the group that this server is in: from its start on, before clients are served.
    pub fn set_leader(&self, leader: Leader) {
        self.group.is_member.store(true, Ordering::Relaxed);
        let mut now = self.group.leader();
        self.checks.set_redirected(leader != Leader::Here);
        if *now != leader {
            *now = leader;
            drop(now);
            // Calls that wait for the leader that was are somebody else's to run.
            self.wake_held();
        }
    }

    /// Returns the role of a member as that of a node of a Redis Cluster; None of a server that is in no group. Offsets
    /// are entries.
    pub(crate) fn role_in_group(&self) -> Option<Role> {
        if !self.group.is_member() {
            return None;
        }
        let facts = self.group.facts().unwrap_or_default();
        let nodes = self.group.nodes();
        let place = |node: &Node| {
            let (host, port) = host_and_port(&node.address);
            (host.to_owned(), port)
        };
        Some(match nodes.iter().find(|node| node.is_leader && !node.is_self) {
            Some(leader) => {
                let (host, port) = place(leader);
                let state = if facts.leader == 0 { "connect" } else { "connected" };
                Role::Replica { host, port, state, offset: facts.last }
            }
            None => {
                let others = nodes.iter().filter(|node| !node.is_self && node.is_linked);
                let of_node = |node: &Node| {
                    let (host, port) = place(node);
                    (host, port, node.last)
                };
                Role::Master { offset: facts.last, replicas: others.map(of_node).collect() }
            }
        })
    }

    /// Returns an order that this server can give.
    ///
    /// # Errors
    /// The server does not lead a group; or it is in one, or a replica, and is to become a member.
    pub(crate) fn expect_order(&self, order: GroupOrder) -> Result<GroupOrder, Error> {
        let begins = matches!(order, GroupOrder::Begin { .. } | GroupOrder::Join { .. });
        match (begins, self.group.is_member()) {
            (true, true) if self.group.facts().is_some_and(|facts| facts.is_removed) => {
                return Err(Error::text(format!("ERR this server was removed from its Raft group: {WAY_BACK}")));
            }
            (true, true) => return Err(Error::text("ERR this server is in a Raft group already")),
            (true, false) if self.is_replica() => {
                return Err(Error::text("ERR this server is a replica: REPLICAOF NO ONE first"));
            }
            (true, false) => return Ok(order),
            (false, false) => return Err(Error::text("ERR this server is in no Raft group")),
            (false, true) => {}
        }
        match &*self.group.leader() {
            Leader::Here => Ok(order),
            Leader::Unknown => Err(Error::text(CLUSTERDOWN)),
            // A client that follows redirections would end another server's group.
            Leader::At(address) if order == GroupOrder::Reset => {
                Err(Error::text(format!("ERR this server is not the leader of its Raft group, which is at {address}")))
            }
            Leader::At(address) => {
                let (host, port) = host_and_port(address);
                Err(Error::text(format!("MOVED 0 {host}:{port}")))
            }
        }
    }

    /// Returns who runs a call, which is not EXEC. `leads` says that this member does, as the checks' bit has it;
    /// `reads_here` that its client has said READONLY.
    #[inline]
    pub(crate) fn runner(&self, entry: &Entry, args: resp::Args<'_>, leads: bool, reads_here: bool) -> Runner {
        match is_about_data(entry) || entry.command.changes_users && self.has_group_users() {
            false => Runner::Any,
            true if leads => Runner::Leader,
            true => self.runner_beside_leader(entry, args, reads_here),
        }
    }

    #[cold]
    fn runner_beside_leader(&self, entry: &Entry, args: resp::Args<'_>, reads_here: bool) -> Runner {
        let args = haypile_commands::Args::from(args);
        match &*self.group.leader() {
            Leader::Here => Runner::Leader,
            Leader::At(_) if reads_here && self.only_reads(entry, args) => Runner::Beside,
            Leader::Unknown if self.settings.config().raft.reads_when_down() => match self.only_reads(entry, args) {
                true if reads_here => Runner::Beside,
                true => Runner::Other(CLUSTERDOWN.to_owned()),
                false => Runner::Other("CLUSTERDOWN The cluster is down and only accepts read commands".to_owned()),
            },
            Leader::Unknown => Runner::Other(CLUSTERDOWN.to_owned()),
            Leader::At(address) => {
                let slot = entry.command.keys(args).next().map_or(0, |(at, _)| slot_of(args.get(at)).0);
                let (host, port) = host_and_port(address);
                Runner::Other(format!("MOVED {slot} {host}:{port}"))
            }
        }
    }

    /// Returns whether a call cannot write, as Redis has it: a script without flags may run until it tries to.
    fn only_reads(&self, entry: &Entry, args: haypile_commands::Args<'_>) -> bool {
        match entry.command.body {
            Body::Script(by) if entry.command.access != Access::Read => {
                script_flags(self, by, args).is_none_or(|flags| flags.no_writes)
            }
            _ => !entry.flags.has(Flag::Write) && !entry.command.changes_users,
        }
    }

    /// Has clients' transactions make records: entries of `term` from `first` on. All records have been applied.
    pub fn lead_group(&self, term: u64, first: u64) -> Result<(), String> {
        let _data = lock(&self.replication.data);
        let _exclusion = self.hold_exclusion();
        let store = self.store().ok_or("the data are not loaded")?;
        store.lead_group(term, first);
        Ok(())
    }

    /// Opens the data of a member again, without its log's records behind `keep` and what it has not written. Blocks
    /// for as long as it takes: nobody is served meanwhile.
    ///
    /// # Errors
    /// A text for people. The server is told to stop.
    pub fn rebuild_group(&self, keep: Index) -> Result<(), String> {
        let _data = lock(&self.replication.data);
        self.open_group_again(keep, &mut || Ok(()))
    }

    /// Says in the data, which are in no group yet, who the members of the one are that begins with them.
    ///
    /// # Errors
    /// A text for people: nothing has happened.
    pub fn found_group(&self, members: &[u8]) -> Result<(), String> {
        let store = self.store().ok_or("the data are not loaded")?;
        self.forget_group_users(&store)?;
        store.found_group(members)
    }

    /// Looks whether nothing holds up the server's leave from its group, and brings most of the data into the base.
    ///
    /// # Errors
    /// A text for people.
    pub fn expect_to_leave_group(&self) -> Result<(), String> {
        let no_backup = Mutex::try_lock(&self.replication.backup).is_ok();
        if !no_backup {
            return Err("a backup or a copy is being made: try again when it is done".into());
        }
        let store = self.store_arc().ok_or("the data are not loaded")?;
        if store.views() > 0 {
            return Err("long replies are still being read: try again".into());
        }
        store.flush_now()
    }

    /// Has the server be in no group any more, whose only member it was, by `between`, while the data are closed; they
    /// are opened again as those of a server alone. The member has ended. Blocks for as long as it takes.
    ///
    /// # Errors
    /// A text for people. The data are open as they were, or the server is told to stop.
    pub fn leave_group(&self, between: &mut Put<'_>) -> Result<(), String> {
        let _data = lock(&self.replication.data);
        let store = self.store_arc().ok_or("the data are not loaded")?;
        // Records on the disk of the only member are agreed on: no member says so any more.
        store.log().leave_group();
        let mut done = Ok(());
        let opened = self.open_again(Reload::Base, false, &mut || {
            done = between()?;
            if done.is_ok() {
                *lock(&self.group.facts) = None;
                *self.group.leader() = Leader::Unknown;
                self.group.last_leader.store(0, Ordering::Relaxed);
                self.group.is_member.store(false, Ordering::Relaxed);
                self.checks.leave_group();
            }
            Ok(())
        });
        if opened.is_err() {
            store.log().join_group();
        }
        opened.and(done)
    }

    /// Returns whether any database has keys.
    pub fn has_keys(&self) -> bool {
        let has_keys = |store: &Store| {
            store.counted_databases().into_iter().any(|database| store.counter(database, Counter::Keys) > 0)
        };
        self.store().is_some_and(|store| has_keys(&store))
    }

    /// Opens the data again as a member's, with `between` in between, which makes the server one. Blocks for as long as
    /// it takes.
    ///
    /// # Errors
    /// A text for people. The data are open as they were, or the server is told to stop.
    pub fn become_member(&self, between: &mut Put<'_>) -> Result<(), String> {
        let _data = lock(&self.replication.data);
        let mut done = Ok(());
        self.open_again(Reload::Base, false, &mut || {
            // A failure without a change is told behind the opening of what is there.
            done = between()?;
            self.watches.on_replaced();
            Ok(())
        })?;
        done
    }

    /// Puts other data in the place of a member's, by `put`, while they are closed, and opens them. Blocks for as long
    /// as it takes: nobody is served meanwhile.
    ///
    /// # Errors
    /// A text for people. The data that are there are open, or the server is told to stop.
    pub fn exchange_group(&self, put: &mut Put<'_>) -> Result<(), String> {
        let _data = lock(&self.replication.data);
        let mut done = Ok(());
        self.open_group_again(Index(u64::MAX), &mut || {
            // A failure without a change is told behind the opening of what is there.
            done = put()?;
            Ok(())
        })?;
        done
    }
}
