//! The members of a case, and the steps that the seed draws.

mod calm;
mod copies;

use crate::Seen;
use crate::clients::{Clients, Reached, Told, read_on, transact_on};
use crate::clock::OwnClock;
use crate::machine::Data;
use crate::network::Network;
use crate::truth::{Path, Truth};
use copies::Restoring;
use haypile_log::Index;
use haypile_log::testing::Random;
use haypile_raft::{Ballot, Change, Envelope, Fault, Loader, Machine, Member, Members, Options, Reads, Role, Rounds};
use haypile_store::StoreOptions;
use haypile_store::testing::model::DATABASES;
use haypile_store::testing::node::{End, MemoryBases, Node, Rest};
use std::collections::VecDeque;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Ticks of an election timeout, at least.
const ELECTION_TICKS: usize = 10;

/// The time of a tick of a clock that goes right.
pub const TICK: Duration = Duration::from_micros(100);

/// The longest stall of a member, in ticks: longer than any election timeout.
const STALL_TICKS: u64 = 60;

/// Ticks of the election timeout of members that rely on leases, by the value of their directives.
const LEASED_TICKS: [usize; 2] = [ELECTION_TICKS, 4 * ELECTION_TICKS];

/// How members prove reads, and their times: those that differ there take no messages of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    Index,
    /// Leases, with the number of ticks of an election timeout.
    Lease(usize),
}

impl Terms {
    fn draw(random: &mut Random) -> Terms {
        match random.below(3) {
            0 => Terms::Index,
            value => Terms::Lease(LEASED_TICKS[value as usize - 1]),
        }
    }

    fn election_ticks(self) -> usize {
        match self {
            Terms::Index => ELECTION_TICKS,
            Terms::Lease(ticks) => ticks,
        }
    }
}

/// Sets the options of a member whose log keeps nothing longer than it has to.
fn member_that_purges(options: &mut StoreOptions) {
    member(options);
    options.log.segment_bytes = 8 << 10;
    options.log.retention.bytes = 0;
}

/// Sets the options of a member.
fn member(options: &mut StoreOptions) {
    options.databases = DATABASES + 1;
    options.memtable_bytes = 64 << 10;
    options.in_group = true;
    options.log.follows = true;
    options.log.founding = Some(members(1).founding());
    options.log.segment_bytes = 64 << 10;
    // The seed alone says what is synced.
    options.log.sync_interval_ms = 3_600_000;
    options.log.retention.bytes = 1 << 30;
}

fn members(count: u64) -> Members {
    let all: Vec<_> = (1..=count).map(|id| format!("{id}@member-{id}:6379")).collect();
    Members::parse(&all.join(",")).expect("these are members")
}

/// A process, or the disks of one that has ended.
enum Life {
    Up(Box<Up>),
    Down(Rest),
    /// In between.
    Gone,
}

struct Up {
    member: Member<Data>,
    terms: Terms,
    loaders: Vec<Loader>,
    clients: Clients,
    role: Role,
    rebuilds: u64,
    copies: u64,
    /// Messages that have come while the member was stalled.
    unheard: VecDeque<(Terms, Envelope)>,
}

pub struct Group<'s> {
    random: Random,
    seen: &'s Seen,
    lives: Vec<Life>,
    paths: Vec<Path>,
    network: Network,
    truth: Truth,
    told: Told,
    /// Of a thousand steps, so many end a process, cut the network, or change the members.
    ends: u64,
    cuts: u64,
    changes: u64,
    /// Of a thousand ticks of a member, so many begin a stall.
    stalls: u64,
    /// The members with which the group begins; those that may come have higher numbers.
    founding: u64,
    options: fn(&mut StoreOptions),
    clocks: Vec<OwnClock>,
    /// The directives with which members start, and of a thousand steps, in how many they are others.
    terms: Terms,
    turns: u64,
    restoring: Restoring,
    tells: bool,
}

fn count(of: &AtomicU64) {
    of.fetch_add(1, Ordering::Relaxed);
}

impl<'s> Group<'s> {
    pub fn new(seed: u64, seen: &'s Seen, tells: bool) -> Group<'s> {
        let mut random = Random(seed);
        let size = if random.chance(70) { 3 } else { 5 };
        let changes = if random.chance(50) { random.below(40) } else { 0 };
        let founding = if changes > 0 { 1 + random.below(size as u64) } else { size as u64 };
        let options = if random.chance(50) { member_that_purges } else { member };
        let rates = (random.below(8), random.below(12), changes);
        let (terms, turns) = match random.below(10) {
            0..7 => (Terms::Index, 0),
            7..9 => (Terms::Lease(ELECTION_TICKS), 0),
            _ => (Terms::draw(&mut random), 10 + random.below(20)),
        };
        let stalls = if random.chance(50) { random.below(30) } else { 0 };
        let restores = if changes > 0 { random.below(60) } else { 0 };
        let mut group = Group::with(random, (size, founding), rates, (options, terms, turns), (seen, tells));
        (group.stalls, group.restoring.rate) = (stalls, restores);
        group
    }

    /// Begins a case in which nothing happens by itself, with members that flush nothing.
    pub fn quiet(size: usize, founding: u64, seen: &'s Seen) -> Group<'s> {
        Group::with(Random(1), (size, founding), (0, 0, 0), (member, Terms::Index, 0), (seen, false))
    }

    /// Begins such a case of three members that rely on the longest leases.
    pub fn quiet_with_leases(seed: u64, seen: &'s Seen) -> Group<'s> {
        let terms = Terms::Lease(LEASED_TICKS[1]);
        Group::with(Random(seed), (3, 3), (0, 0, 0), (member, terms, 0), (seen, false))
    }

    fn with(
        mut random: Random,
        (size, founding): (usize, u64),
        (ends, cuts, changes): (u64, u64, u64),
        (options, terms, turns): (fn(&mut StoreOptions), Terms, u64),
        (seen, tells): (&'s Seen, bool),
    ) -> Group<'s> {
        let network = Network::new(size, &mut random);
        let lives = (0..size).map(|_| Life::Gone).collect();
        let paths = (0..size).map(|_| Path::default()).collect();
        let (truth, told) = (Truth::default(), Told::default());
        let clocks = (0..size).map(|_| OwnClock::new(&mut random)).collect();
        let mut group = Group {
            random,
            seen,
            lives,
            paths,
            network,
            truth,
            told,
            ends,
            cuts,
            changes,
            stalls: 0,
            founding,
            options,
            clocks,
            terms,
            turns,
            restoring: Restoring::new(size),
            tells,
        };
        for at in 0..size {
            group.begin(at, Node::new(&MemoryBases, options), true);
        }
        group
    }

    /// Starts a member over an open store.
    fn begin(&mut self, at: usize, node: Node, is_new: bool) {
        let id = at as u64 + 1;
        let all = members(self.founding);
        let ballot = Ballot::open(&*node.files(), FilePath::new("/ballot"), node.store.history(), id, is_new);
        let (terms, election_ticks) = (self.terms, self.terms.election_ticks());
        let options = Options { id, members: all, election_ticks, heartbeat_ticks: 2, tick: TICK };
        let mut random = Random(self.random.number());
        let random = Box::new(move || random.number());
        let ballot = ballot.expect("the disk keeps what was synced");
        let mut reads = Reads::default();
        if let Terms::Lease(ticks) = terms {
            // As the server has it: an eighth is for clocks that do not go alike.
            let lease = (TICK * (ticks - 1) as u32).mul_f64(7.0 / 8.0);
            reads.led = Rounds::with_lease(lease, self.clocks[at].reader());
        }
        self.clocks[at].begin();
        let member =
            Member::begin(&options, ballot, Data::new(node), Arc::new(reads), random).expect("what is left is sound");
        let loaders = self.lives.iter().map(|_| Loader::default()).collect();
        let role = member.role();
        let (clients, unheard) = (Clients::default(), VecDeque::new());
        let up = Up { member, terms, loaders, clients, role, rebuilds: 0, copies: 0, unheard };
        self.lives[at] = Life::Up(Box::new(up));
        self.paths[at] = Path::default();
        self.after(at);
    }

    fn draw(&mut self) -> usize {
        self.random.below(self.lives.len() as u64) as usize
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            println!("{:5} {}", self.network.now, what());
        }
    }

    pub fn step(&mut self) {
        self.network.now += 1;
        if self.random.below(1000) < self.ends {
            self.end();
        }
        if self.random.below(1000) < self.cuts {
            self.network.cut(&mut self.random);
        }
        if self.random.below(1000) < self.changes {
            self.change();
        }
        if self.random.below(1000) < self.turns {
            self.turn();
        }
        if self.random.below(1000) < self.restoring.rate {
            self.archive_or_restore();
        }
        match self.random.below(100) {
            0..6 => self.tick_all(),
            6..20 => self.write(),
            20..30 => self.read(),
            30..32 => self.read_beside(),
            32..54 => self.hand_to_disk(),
            54..76 => self.sync(),
            76..80 => self.start(),
            80..82 | 90..93 => self.flush(),
            82 => self.transfer(),
            83 => self.network.mend(),
            84..87 => self.fetch(),
            87..90 => self.install(),
            _ => {}
        }
        self.deliver();
    }

    /// Has a member do something, and looks at it, unless it is stalled.
    fn call(&mut self, at: usize, run: impl FnOnce(&mut Member<Data>) -> Result<(), Fault>) {
        if self.clocks[at].is_stalled() {
            return;
        }
        let Life::Up(up) = &mut self.lives[at] else { return };
        run(&mut up.member).expect("nothing is broken");
        self.after(at);
    }

    /// Sends what a member has to say, compares it with the truth, and replies to its clients.
    fn after(&mut self, at: usize) {
        let Life::Up(up) = &mut self.lives[at] else { return };
        for outgoing in up.member.take_outgoing() {
            if outgoing.is_vote() {
                self.restoring.expect_named(at, &up.member);
            }
            let to = outgoing.to() as usize - 1;
            // A message that cannot be loaded is lost.
            let mut loaded = Vec::new();
            let mut keep = |envelope| {
                loaded.push(envelope);
                Ok(())
            };
            drop(up.loaders[to].load(up.member.machine().log(), outgoing, &mut keep));
            loaded.iter().for_each(|envelope| self.network.send(envelope, up.terms, &mut self.random));
        }
        let data = up.member.machine_mut();
        if let Some(keep) = data.rebuilt.take() {
            self.paths[at].cut(keep);
        }
        if data.rebuilds != up.rebuilds {
            up.rebuilds = data.rebuilds;
            count(&self.seen.rebuilds);
            // Who waited for this leader is never told.
            up.clients.end();
        }
        let copies = up.member.standing().copies;
        self.seen.copies.fetch_add(copies - std::mem::replace(&mut up.copies, copies), Ordering::Relaxed);
        let sample = 1 + self.random.below(5) as usize;
        self.truth.audit(at as u64 + 1, &up.member, &mut self.paths[at], sample);
        let standing = up.member.standing();
        let before = std::mem::replace(&mut up.role, standing.role);
        if standing.role == Role::Leader && before != Role::Leader {
            count(&self.seen.elections);
            up.clients.forget_asked();
            self.truth.expect_whole(&self.paths[at], standing.term, at as u64 + 1);
        }
        let (data, reads) = (up.member.machine(), up.member.reads());
        let reached = Reached {
            confirmed: data.log().confirmed().0,
            round: reads.led.confirmed(),
            beside: reads.beside.confirmed(),
            applied: data.applied().0,
            term: standing.term,
        };
        let replies = (self.told.writes.len() as u64, self.told.reads, self.told.reads_beside);
        up.clients.reply(data.node(), reached, (&self.paths[at], &self.truth), &mut self.told);
        self.seen.acknowledged.fetch_add(self.told.writes.len() as u64 - replies.0, Ordering::Relaxed);
        self.seen.reads.fetch_add(self.told.reads - replies.1, Ordering::Relaxed);
        self.seen.reads_beside.fetch_add(self.told.reads_beside - replies.2, Ordering::Relaxed);
        self.tell(|| format!("{}: {standing:?}", at + 1));
    }

    fn tick_all(&mut self) {
        self.clocks.iter_mut().for_each(OwnClock::go_on);
        for at in 0..self.lives.len() {
            if !self.clocks[at].is_stalled() && self.random.below(1000) < self.stalls {
                let ticks = 2 + self.random.below(STALL_TICKS);
                self.clocks[at].stall(ticks);
                count(&self.seen.stalls);
                self.tell(|| format!("{} is stalled for {ticks} ticks", at + 1));
            }
            // A member that is not stalled may be late all the same.
            if self.random.chance(85) {
                self.take_turn(at);
            }
        }
    }

    /// A turn of a member's thread: the ticks that are due, and then what has come while it was stalled.
    fn take_turn(&mut self, at: usize) {
        if self.clocks[at].is_stalled() || !matches!(self.lives[at], Life::Up(_)) {
            return;
        }
        (0..self.clocks[at].take_ticks()).for_each(|_| self.call(at, Member::tick));
        while let Life::Up(up) = &mut self.lives[at]
            && let Some((terms, envelope)) = up.unheard.pop_front()
        {
            self.hear(at, terms, envelope);
        }
    }

    /// Has a member take a message, if its sender has the same times.
    fn hear(&mut self, at: usize, terms: Terms, envelope: Envelope) {
        if !matches!(&self.lives[at], Life::Up(up) if up.terms == terms) {
            return;
        }
        if self.random.chance(5) {
            // The message takes long to come.
            self.call(at, |member| member.on_bytes_of(envelope.from(), envelope.term()));
        }
        self.call(at, |member| member.receive(envelope));
    }

    fn leaders(&self) -> Vec<usize> {
        let leads = |at: &usize| matches!(&self.lives[*at], Life::Up(up) if up.member.role() == Role::Leader);
        (0..self.lives.len()).filter(leads).collect()
    }

    /// Draws one of those that take themselves for leaders, and are not stalled.
    fn draw_leader(&mut self) -> Option<usize> {
        let leaders: Vec<_> = self.leaders().into_iter().filter(|at| !self.clocks[*at].is_stalled()).collect();
        let at = self.random.below(leaders.len().max(1) as u64) as usize;
        leaders.get(at).copied()
    }

    fn write(&mut self) {
        let seed = self.random.number();
        if let Some(at) = self.draw_leader() {
            self.write_on(at, seed);
        }
    }

    fn write_on(&mut self, at: usize, seed: u64) {
        let Life::Up(up) = &mut self.lives[at] else { return };
        let node = up.member.machine().node();
        let (term, last) = (up.member.standing().term, node.store.log().last().0);
        let before = self.truth.content(&self.paths[at], last, term);
        let Some((index, after)) = transact_on(node, &before, seed) else { return };
        self.truth.note((index, term), after);
        up.clients.wrote((index, term), &self.told);
        count(&self.seen.writes);
        self.tell(|| format!("{} writes {index} in term {term}", at + 1));
    }

    fn read(&mut self) {
        let Some(at) = self.draw_leader() else { return };
        let seed = self.random.number();
        let Life::Up(up) = &mut self.lives[at] else { return };
        let node = up.member.machine().node();
        let (term, seen) = (up.member.standing().term, node.store.log().last().0);
        read_on(node, &self.truth.content(&self.paths[at], seen, term), seed);
        let reads = up.member.reads();
        let (round, _) = reads.led.join();
        if round <= reads.led.confirmed() {
            count(&self.seen.lease_reads);
        }
        up.clients.read(seen, round, &self.told);
        self.tell(|| format!("{} reads at {seen}, round {round}", at + 1));
        if self.random.chance(60) {
            self.call(at, Member::on_progress);
        }
    }

    /// Has a client read on a member that does not lead, as soon as that may.
    fn read_beside(&mut self) {
        let at = self.draw();
        let Life::Up(up) = &mut self.lives[at] else { return };
        if up.member.role() != Role::Follower || self.clocks[at].is_stalled() {
            return;
        }
        let (round, _) = up.member.reads().beside.join();
        up.clients.asked(round, &self.told);
        self.tell(|| format!("{} waits to read, round {round}", at + 1));
        self.call(at, Member::on_progress);
    }

    /// The end of an event loop's tick: the log is handed to the operating system.
    fn hand_to_disk(&mut self) {
        let at = self.draw();
        let Life::Up(up) = &mut self.lives[at] else { return };
        up.member.machine().log().write();
        self.call(at, Member::on_progress);
    }

    fn sync(&mut self) {
        let at = self.draw();
        let Life::Up(up) = &mut self.lives[at] else { return };
        up.member.machine().node().sync();
        self.call(at, Member::on_progress);
    }

    /// Has a member's base take what is committed.
    fn flush(&mut self) {
        let at = self.draw();
        let Life::Up(up) = &mut self.lives[at] else { return };
        let store = &up.member.machine().node().store;
        // A flush of a leader waits for its group, which does not go on here meanwhile.
        if up.member.role() != Role::Leader {
            store.flush_now().expect("nothing is broken");
            count(&self.seen.flushes);
        }
    }

    fn transfer(&mut self) {
        let to = self.draw();
        let Some(at) = self.draw_leader().filter(|at| *at != to) else { return };
        count(&self.seen.transfers);
        self.call(at, |member| member.transfer(to as u64 + 1));
    }

    /// Has a leader change the members.
    fn change(&mut self) {
        let id = 1 + self.draw() as u64;
        let adds = self.random.chance(60);
        let Some(at) = self.draw_leader() else { return };
        let change =
            if adds { Change::Add { id, address: format!("member-{id}:6379") } } else { Change::Remove { id } };
        let mut made = false;
        self.call(at, |member| {
            made = member.change(&change)?.is_ok();
            Ok(())
        });
        if made {
            count(&self.seen.changes);
            self.tell(|| format!("{} makes {change:?}", at + 1));
        }
    }

    /// Begins a member again that cannot go on with what it has in memory.
    fn begin_again(&mut self, at: usize) {
        let Life::Up(up) = std::mem::replace(&mut self.lives[at], Life::Gone) else { return };
        self.tell(|| format!("{} begins again", at + 1));
        let node = up.member.into_machine().into_node().rebuild(Index(u64::MAX));
        self.begin(at, node, false);
    }

    fn deliver(&mut self) {
        while let Some((to, terms, envelope)) = self.network.deliver() {
            if self.clocks[to].is_stalled() {
                if let Life::Up(up) = &mut self.lives[to] {
                    up.unheard.push_back((terms, envelope));
                }
                continue;
            }
            self.take_turn(to);
            self.hear(to, terms, envelope);
        }
    }

    /// Has the operator turn to other directives, or start a member with those of now.
    fn turn(&mut self) {
        if self.random.chance(25) {
            self.terms = Terms::draw(&mut self.random);
            self.tell(|| format!("members that start have {:?} from now on", self.terms));
        }
        let at = self.draw();
        self.restart_for_terms(at);
    }

    /// Kills and starts a member that has other directives than it would start with.
    fn restart_for_terms(&mut self, at: usize) {
        if matches!(&self.lives[at], Life::Up(up) if up.terms != self.terms) {
            self.kill(at);
            self.start_at(at);
        }
    }

    fn kill(&mut self, at: usize) {
        let Life::Up(up) = std::mem::replace(&mut self.lives[at], Life::Gone) else { unreachable!("it is up") };
        self.tell(|| format!("{} is killed", at + 1));
        self.lives[at] = Life::Down(up.member.into_machine().into_node().end(End::Kill));
    }

    /// Ends a process.
    fn end(&mut self) {
        let (at, seed) = (self.draw(), self.random.number());
        let how = match self.random.below(4) {
            0 => End::Stop,
            1 => End::Kill,
            _ => End::LosePower(seed),
        };
        // A clean stop brings the memtable into the base, for which a leader waits for its group.
        let leads = self.leaders().contains(&at);
        let how = if leads && matches!(how, End::Stop) { End::Kill } else { how };
        if !matches!(self.lives[at], Life::Up(_)) {
            return;
        }
        let Life::Up(up) = std::mem::replace(&mut self.lives[at], Life::Gone) else { return };
        self.tell(|| format!("{} ends: {how:?}", at + 1));
        count(&self.seen.ends);
        if matches!(how, End::LosePower(_)) {
            count(&self.seen.power_losses);
        }
        self.lives[at] = Life::Down(up.member.into_machine().into_node().end(how));
    }

    fn start(&mut self) {
        let at = self.draw();
        self.start_at(at);
    }

    fn start_at(&mut self, at: usize) {
        if !matches!(self.lives[at], Life::Down(_)) {
            return;
        }
        let Life::Down(rest) = std::mem::replace(&mut self.lives[at], Life::Gone) else { return };
        self.tell(|| format!("{} starts", at + 1));
        self.begin(at, rest.start(self.options), false);
    }
}
