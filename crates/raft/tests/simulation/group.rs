//! The members of a case, and the steps that the seed draws.

use crate::Seen;
use crate::clients::{Clients, Reached, Told, transact_on};
use crate::machine::Data;
use crate::network::Network;
use crate::truth::{Path, Truth};
use haypile_log::Index;
use haypile_log::testing::Random;
use haypile_raft::{Ballot, Change, Fault, Loader, Machine, Member, Members, Options, Part, Reads, Role, Rounds};
use haypile_store::StoreOptions;
use haypile_store::testing::model::DATABASES;
use haypile_store::testing::node::{End, MemoryBases, Node, Rest};
use haypile_store::testing::pair::replicated;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Rounds in which all is connected and nothing fails, until nothing more may be missing.
const SETTLE_ROUNDS: u64 = 3000;

/// Rounds in which the longest leases end.
const RELY_ROUNDS: u64 = 200;

/// Ticks of an election timeout, at least.
const ELECTION_TICKS: usize = 10;

/// The time of a tick of a clock that goes right.
const TICK: Duration = Duration::from_micros(100);

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
    /// The members with which the group begins; those that may come have higher numbers.
    founding: u64,
    options: fn(&mut StoreOptions),
    /// The time, in microseconds, for leaders that rely on leases.
    clock: Arc<AtomicU64>,
    /// The directives with which members start, and of a thousand steps, in how many they are others.
    terms: Terms,
    turns: u64,
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
        Group::with(random, (size, founding), rates, (options, terms, turns), (seen, tells))
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
            founding,
            options,
            clock: Arc::default(),
            terms,
            turns,
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
            let (lease, clock) = (TICK * (ticks - 2) as u32, self.clock.clone());
            reads.led = Rounds::with_lease(lease, Box::new(move || clock.load(Ordering::Relaxed)));
        }
        let member =
            Member::begin(&options, ballot, Data::new(node), Arc::new(reads), random).expect("what is left is sound");
        let loaders = self.lives.iter().map(|_| Loader::default()).collect();
        let role = member.role();
        let clients = Clients::default();
        self.lives[at] = Life::Up(Box::new(Up { member, terms, loaders, clients, role, rebuilds: 0, copies: 0 }));
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

    /// Has a member do something, and looks at it.
    fn call(&mut self, at: usize, run: impl FnOnce(&mut Member<Data>) -> Result<(), Fault>) {
        let Life::Up(up) = &mut self.lives[at] else { return };
        run(&mut up.member).expect("nothing is broken");
        self.after(at);
    }

    /// Sends what a member has to say, compares it with the truth, and replies to its clients.
    fn after(&mut self, at: usize) {
        let Life::Up(up) = &mut self.lives[at] else { return };
        for outgoing in up.member.take_outgoing() {
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
            self.truth.expect_whole(&self.paths[at], at as u64 + 1);
        }
        let (data, reads) = (up.member.machine(), up.member.reads());
        let reached = Reached {
            confirmed: data.log().confirmed().0,
            round: reads.led.confirmed(),
            beside: reads.beside.confirmed(),
            applied: data.applied().0,
        };
        let replies = (self.told.writes.len() as u64, self.told.reads, self.told.reads_beside);
        up.clients.reply(reached, &self.paths[at], &self.truth, &mut self.told);
        self.seen.acknowledged.fetch_add(self.told.writes.len() as u64 - replies.0, Ordering::Relaxed);
        self.seen.reads.fetch_add(self.told.reads - replies.1, Ordering::Relaxed);
        self.seen.reads_beside.fetch_add(self.told.reads_beside - replies.2, Ordering::Relaxed);
        self.tell(|| format!("{}: {standing:?}", at + 1));
    }

    fn tick_all(&mut self) {
        self.clock.fetch_add(TICK.as_micros() as u64, Ordering::Relaxed);
        for at in 0..self.lives.len() {
            // Clocks do not go alike: who was stopped is late.
            if self.random.chance(85) {
                self.call(at, Member::tick);
            }
        }
    }

    fn leaders(&self) -> Vec<usize> {
        let leads = |at: &usize| matches!(&self.lives[*at], Life::Up(up) if up.member.role() == Role::Leader);
        (0..self.lives.len()).filter(leads).collect()
    }

    /// Draws one of those that take themselves for leaders.
    fn draw_leader(&mut self) -> Option<usize> {
        let leaders = self.leaders();
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
        let Life::Up(up) = &mut self.lives[at] else { return };
        let seen = up.member.machine().node().store.log().last().0;
        let (round, _) = up.member.reads().led.join();
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
        if up.member.role() != Role::Follower {
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

    /// Has a member fetch the copy that it needs.
    fn fetch(&mut self) {
        let at = self.draw();
        let Life::Up(up) = &self.lives[at] else { return };
        let Some(wanted) = up.member.wanted_copy() else { return };
        let Life::Up(other) = &self.lives[wanted.from as usize - 1] else { return };
        let copy = other.member.machine().node().copy(&MemoryBases);
        self.tell(|| format!("{} fetches {:?} of {}", at + 1, copy.as_ref().map(|copy| copy.end), wanted.from));
        let Life::Up(up) = &mut self.lives[at] else { return };
        up.member.machine_mut().fetched = copy;
    }

    /// Has a member put the copy in place that it has fetched.
    fn install(&mut self) {
        let at = self.draw();
        let Life::Up(up) = &mut self.lives[at] else { return };
        let Some(end) = up.member.machine().fetched.as_ref().map(|copy| copy.end) else { return };
        match up.member.install(end.entry) {
            Ok(_) => self.after(at),
            Err(Fault::Refused(why)) => {
                assert!(why.contains("without this member"), "{why}");
                self.begin_again(at);
            }
            Err(Fault::Damaged(why)) => panic!("{why}"),
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
            if matches!(&self.lives[to], Life::Up(up) if up.terms == terms) {
                if self.random.chance(5) {
                    // The message takes long to come.
                    self.call(to, |member| member.on_bytes_of(envelope.from(), envelope.term()));
                }
                self.call(to, |member| member.receive(envelope));
            }
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

    /// Brings all up and connects them, until they agree; and compares them.
    pub fn settle(&mut self) {
        self.network.heal();
        for at in 0..self.lives.len() {
            self.start_at(at);
            self.restart_for_terms(at);
        }
        for round in 0..SETTLE_ROUNDS {
            self.round(round);
            if self.is_settled() {
                break;
            }
        }
        assert!(self.is_settled(), "all are connected, and somebody does not get on");
        for place in &self.told.writes {
            self.truth.expect_committed(*place, "what was acknowledged is committed");
        }
        let followers: Vec<_> = self.members().into_iter().filter(|at| !self.leaders().contains(at)).collect();
        let node = |at: usize| match &self.lives[at] {
            Life::Up(up) => up.member.machine().node(),
            _ => unreachable!("all are up"),
        };
        let rows: Vec<_> = followers.iter().map(|at| replicated(node(*at))).collect();
        assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "all have the same rows");
    }

    /// A step in which nothing fails.
    fn round(&mut self, round: u64) {
        self.network.now += 1;
        if round.is_multiple_of(4) {
            self.tick_all();
        }
        for at in 0..self.lives.len() {
            if let Life::Up(up) = &self.lives[at] {
                up.member.machine().log().write();
                up.member.machine().node().sync();
            }
            self.call(at, Member::on_progress);
        }
        self.fetch();
        self.install();
        self.deliver();
    }

    /// Goes on until all of so many members vote.
    fn grow(&mut self, voters: u64) {
        self.network.heal();
        for round in 0..SETTLE_ROUNDS {
            self.round(round);
            let Some(at) = self.leaders().first().copied() else { continue };
            let Life::Up(up) = &mut self.lives[at] else { continue };
            let next = up.member.configuration().iter().count() as u64 + 1;
            let votes = up.member.configuration().iter().filter(|(_, _, part)| *part == Part::Voter).count() as u64;
            if votes == voters && self.is_settled() {
                return;
            }
            if next <= voters {
                let change = Change::Add { id: next, address: format!("member-{next}:6379") };
                // A change that is refused is tried again.
                self.call(at, |member| member.change(&change).map(drop));
            }
        }
        panic!("all are connected, and the group does not grow");
    }

    /// Grows from one member, kills all, and starts the first one alone: it must not lead by itself.
    pub fn begin_again_alone(&mut self) {
        self.grow(self.lives.len() as u64);
        (0..self.lives.len()).for_each(|at| self.kill(at));
        self.start_at(0);
        for round in 0..SETTLE_ROUNDS {
            self.round(round);
            let Life::Up(up) = &self.lives[0] else { unreachable!("it is up") };
            assert!(!matches!(up.member.role(), Role::Elected | Role::Leader), "it leads without the others");
        }
        self.settle();
    }

    /// Restarts all but the leader with other directives, so many rounds one after the other, while it has a lease of
    /// the last one: whoever leads then must not serve before the lease has ended.
    pub fn leave_a_leader_with_its_lease(&mut self, terms: Terms, apart: u64) {
        self.grow(3);
        let (leader, mut round) = (self.leaders()[0], 0);
        self.terms = terms;
        for at in (0..3).filter(|at| *at != leader) {
            for number in 0..apart {
                self.write_on(leader, number);
                self.step_on(&mut round);
            }
            // Records that are not agreed on would hold back reads there.
            while !self.has_agreed(leader) {
                self.step_on(&mut round);
            }
            self.restart_for_terms(at);
        }
        for number in 0..RELY_ROUNDS {
            let next = self.leaders().into_iter().find(|at| *at != leader);
            next.into_iter().for_each(|at| self.write_on(at, number));
            (0..3).for_each(|_| self.read());
            self.step_on(&mut round);
        }
        self.settle();
    }

    fn step_on(&mut self, round: &mut u64) {
        self.round(*round);
        *round += 1;
    }

    /// Whether a leader has no records of its own that are not agreed on.
    fn has_agreed(&self, at: usize) -> bool {
        let Life::Up(up) = &self.lives[at] else { unreachable!("it is up") };
        up.member.standing().committed == up.member.machine().log().last()
    }

    /// Returns those that the leader has for members.
    fn members(&self) -> Vec<usize> {
        let leaders = self.leaders();
        let members = leaders.iter().filter_map(|at| match &self.lives[*at] {
            Life::Up(up) => Some(up.member.configuration().iter().map(|(id, ..)| id as usize - 1)),
            _ => None,
        });
        members.flatten().collect()
    }

    /// Whether one member leads, and all have all, applied and committed.
    fn is_settled(&self) -> bool {
        let [leader] = self.leaders()[..] else { return false };
        let of = |at: usize| match &self.lives[at] {
            Life::Up(up) => {
                let data = up.member.machine();
                let standing = up.member.standing();
                Some((standing.term, data.log().last(), data.applied(), standing.committed, up.clients.are_served()))
            }
            _ => None,
        };
        let expected = of(leader);
        let (_, last, applied, committed, _) = expected.expect("a leader is up");
        last == applied && last == committed && self.members().iter().all(|at| of(*at) == expected)
    }
}
