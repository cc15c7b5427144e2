//! The nodes of a system under test: their processes, the network between them, their disks and clocks, and the way
//! back from every disturbance.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::clock::{self, OffsetClock};
use super::network::{Links, Network, Place};
use super::process::Process;
use super::system::{Ability, Member, REPLY_MAX, Start, System};
use crate::damage::copy;
use crate::server::Workplace;
use crate::small_disk::SmallDisk;

/// The longest wait until a node answers, and until a group that nothing disturbs serves on every node.
pub const SERVE_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// The size of a small disk.
const DISK: &str = "size=512m";

/// The surroundings of a group, drawn for each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings {
    /// The data are on small disks, which can be filled.
    pub small_disks: bool,
    /// The clocks can be offset.
    pub clocks: bool,
}

/// The numbers of disturbances.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbances {
    pub starts: u64,
    pub kills: u64,
    pub stops: u64,
    pub cuts: u64,
    pub transfers: u64,
    pub member_changes: u64,
    pub full_disks: u64,
    pub clock_jumps: u64,
    pub restores: u64,
}

impl Disturbances {
    pub fn add(&mut self, other: Disturbances) {
        let Disturbances { starts, kills, stops, cuts, transfers, member_changes, full_disks, clock_jumps, restores } =
            other;
        self.starts += starts;
        self.kills += kills;
        self.stops += stops;
        self.cuts += cuts;
        self.transfers += transfers;
        self.member_changes += member_changes;
        self.full_disks += full_disks;
        self.clock_jumps += clock_jumps;
        self.restores += restores;
    }
}

struct Node {
    member: Member,
    place: Workplace,
    /// Dropped before the place, which it lies in.
    disk: Option<SmallDisk>,
    process: Option<Process>,
    /// The node's next start is one into a group that is there.
    joins: bool,
    is_removed: bool,
    /// The node's disk is full, or was: it may end by itself.
    may_end: bool,
}

/// The nodes of one system.
pub struct Group<'a> {
    pub system: &'a dyn System,
    links: Links,
    surroundings: Surroundings,
    nodes: Vec<Node>,
    /// The library that moves clocks, if it is used.
    clock: Option<OffsetClock>,
    cuts: BTreeSet<(Place, Place)>,
    is_slow: bool,
    pub counts: Disturbances,
}

impl<'a> Group<'a> {
    /// Starts a group of new nodes, and waits until it serves.
    pub fn start(system: &'a dyn System, network: Network, count: usize, wanted: Surroundings) -> Result<Group<'a>> {
        let clocks = wanted.clocks && system.can(Ability::Clock);
        let mut surroundings =
            Surroundings { small_disks: wanted.small_disks && system.can(Ability::FullDisk), clocks };
        let mut nodes = Vec::new();
        for number in 0..count {
            let place = Workplace::new(&format!("raft-chaos-{}-{number}", system.name()), None)?;
            let disk =
                surroundings.small_disks.then(|| SmallDisk::try_mount(&place.data(), DISK)).transpose()?.flatten();
            surroundings.small_disks &= disk.is_some();
            let member = network.member(number)?;
            nodes.push(Node { member, place, disk, process: None, joins: false, is_removed: false, may_end: false });
        }
        let place = &nodes.first().context("a group has nodes")?.place;
        let clock = surroundings.clocks.then(|| OffsetClock::build(&place.file(""))).transpose()?;
        let (cuts, counts) = (BTreeSet::new(), Disturbances::default());
        let members: Vec<Member> = nodes.iter().map(|node| node.member).collect();
        let links = Links::new(network, &members)?;
        let mut group = Group { system, links, surroundings, nodes, clock, cuts, is_slow: false, counts };
        for number in 0..count {
            group.offset_clock(number, 0)?;
            group.start_node(number)?;
        }
        group.wait_serving()?;
        Ok(group)
    }

    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn surroundings(&self) -> Surroundings {
        self.surroundings
    }

    pub fn can_cut(&self) -> bool {
        self.links.can_cut()
    }

    /// Returns all places, those of removed nodes too: a client does not know.
    pub fn members(&self) -> Vec<Member> {
        self.nodes.iter().map(|node| node.member).collect()
    }

    pub fn is_up(&self, number: usize) -> bool {
        self.nodes[number].process.is_some()
    }

    /// Returns the node's directory for data: on a small disk below its root, which a filler needs too.
    fn data(&self, number: usize) -> PathBuf {
        let data = self.nodes[number].place.data();
        if self.nodes[number].disk.is_some() { data.join("node") } else { data }
    }

    /// Starts a process, and does not wait: a node may need others before it answers.
    pub fn start_node(&mut self, number: usize) -> Result<()> {
        ensure!(!self.is_up(number), "node {number} is up");
        let dir = self.data(number);
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let present = self.nodes.iter().filter(|node| !node.is_removed);
        let members: Vec<Member> = present.map(|node| self.links.seen_by(number, node.member)).collect();
        let founders = self.nodes.iter().map(|node| self.links.seen_by(number, node.member));
        let founders: Vec<Member> = founders.collect();
        let node = &mut self.nodes[number];
        let start = Start { node: node.member, members: &members, founders: &founders, dir: &dir, joins: node.joins };
        let words = [self.links.prefix(number), self.system.command(&start)].concat();
        let clock = self.clock.as_ref();
        let variables = clock.map_or(Vec::new(), |clock| clock.variables(&node.place.file("clock")));
        node.process = Some(Process::start(&words, &variables, &node.place.log())?);
        self.counts.starts += 1;
        Ok(())
    }

    /// Fails if a node has ended that was not to; forgets the process of one that was allowed to.
    pub fn check_alive(&mut self, number: usize) -> Result<()> {
        let node = &mut self.nodes[number];
        let Some(process) = &mut node.process else { return Ok(()) };
        let Some(status) = process.ended()? else { return Ok(()) };
        node.process = None;
        let lines = node.place.log_tail();
        ensure!(node.may_end, "node {number} has ended by itself: {status}; its last lines:\n{lines}");
        Ok(())
    }

    pub fn kill(&mut self, number: usize) -> Result<()> {
        self.check_alive(number)?;
        match self.nodes[number].process.take() {
            Some(mut process) => {
                self.counts.kills += 1;
                process.kill()
            }
            None => Ok(()),
        }
    }

    /// Stops a process where it is, or lets it go on.
    pub fn freeze(&mut self, number: usize, frozen: bool) -> Result<()> {
        self.check_alive(number)?;
        match &mut self.nodes[number].process {
            Some(process) if process.is_frozen != frozen => {
                self.counts.stops += u64::from(frozen);
                process.freeze(frozen)
            }
            Some(_) => Ok(()),
            None => Ok(()),
        }
    }

    /// Swallows what goes in one direction.
    pub fn cut(&mut self, from: Place, to: Place) -> Result<()> {
        if from != to && self.cuts.insert((from, to)) {
            self.counts.cuts += 1;
            self.links.set_cut(from, to, true)?;
        }
        Ok(())
    }

    /// Makes each packet or piece wait that nodes send; returns whether this network can do that.
    pub fn slow_down(&mut self, delay: Duration) -> Result<bool> {
        self.is_slow = !delay.is_zero();
        (0..self.count()).try_fold(true, |slow, number| Ok(self.links.slow_down(number, delay)? && slow))
    }

    /// Cuts both directions between the nodes on one side and those on the other.
    pub fn divide(&mut self, one: &[usize], other: &[usize]) -> Result<()> {
        for (&a, &b) in one.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
            self.cut(Place::Node(a), Place::Node(b))?;
            self.cut(Place::Node(b), Place::Node(a))?;
        }
        Ok(())
    }

    pub fn heal(&mut self) -> Result<()> {
        if self.is_slow {
            self.slow_down(Duration::ZERO)?;
        }
        std::mem::take(&mut self.cuts).into_iter().try_for_each(|(from, to)| self.links.set_cut(from, to, false))
    }

    /// Leaves so many bytes free on a node's small disk; all that it has for None.
    pub fn fill_disk(&mut self, number: usize, leave: Option<u64>) -> Result<()> {
        let node = &mut self.nodes[number];
        let disk = node.disk.as_ref().context("the node has a small disk")?;
        node.may_end = true;
        match leave {
            Some(bytes) => {
                self.counts.full_disks += 1;
                disk.leave(bytes).context("filling a disk")
            }
            None => {
                disk.clear();
                Ok(())
            }
        }
    }

    /// Moves a node's wall clock by so many seconds from the true time, if that can be done.
    pub fn offset_clock(&mut self, number: usize, seconds: i64) -> Result<()> {
        self.counts.clock_jumps += u64::from(seconds != 0);
        clock::set(&self.nodes[number].place.file("clock"), seconds)
    }

    /// Returns the node that leads, as the newest term has it among those that answer.
    pub fn leader(&self) -> Option<usize> {
        let up = self.nodes.iter().filter(|node| node.process.as_ref().is_some_and(|process| !process.is_frozen));
        let leading = up.filter_map(|node| Some((self.system.leads(node.member)?, node.member.number)));
        leading.max().map(|(_, number)| number)
    }

    /// Waits for a leader, but not for ever.
    pub fn wait_leader(&mut self, time: Duration) -> Option<usize> {
        let begin = Instant::now();
        loop {
            match self.leader() {
                None if begin.elapsed() < time => sleep(LOOK),
                leader => return leader,
            }
        }
    }

    /// Has a leader hand over. It may refuse: the other one may be behind, or not reachable.
    pub fn transfer(&mut self, from: usize, to: usize) -> Result<()> {
        self.counts.transfers += 1;
        self.system.transfer(self.nodes[from].member, self.nodes[to].member)
    }

    /// Takes a node out of the group, ends it and removes its data.
    pub fn remove(&mut self, number: usize) -> Result<()> {
        self.counts.member_changes += 1;
        let removed = self.ask_others(number, |system, asked, node| system.remove(asked, node));
        self.kill(number)?;
        removed?;
        let dir = self.data(number);
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        self.nodes[number].is_removed = true;
        Ok(())
    }

    /// Takes a removed node into the group again, with an empty directory.
    pub fn add(&mut self, number: usize) -> Result<()> {
        self.counts.member_changes += 1;
        self.ask_others(number, |system, asked, node| system.add(asked, node))?;
        let node = &mut self.nodes[number];
        (node.is_removed, node.joins) = (false, true);
        self.start_node(number)
    }

    /// Asks one node after the other about a further one, until one does it.
    fn ask_others(&self, number: usize, ask: impl Fn(&dyn System, Member, Member) -> Result<()>) -> Result<()> {
        let begin = Instant::now();
        loop {
            let mut refused = None;
            for other in self.nodes.iter().filter(|node| node.member.number != number && node.process.is_some()) {
                match ask(self.system, other.member, self.nodes[number].member) {
                    Ok(()) => return Ok(()),
                    Err(error) => refused = Some(error),
                }
            }
            if begin.elapsed() > SERVE_MAX {
                return Err(refused.context("no other node runs")?.context("changing the members"));
            }
            sleep(LOOK);
        }
    }

    /// Makes a backup of a node, ends it, and starts it with the backup instead of its data.
    pub fn restart_from_backup(&mut self, number: usize) -> Result<()> {
        self.counts.restores += 1;
        let dir = self.data(number);
        let backup = self.system.back_up(self.nodes[number].member, &dir)?;
        let aside = self.nodes[number].place.file("backup");
        self.kill(number)?;
        fs::create_dir_all(&aside).context("a place for the backup")?;
        copy(&backup, &aside)?;
        fs::remove_dir_all(&dir).context("removing the data")?;
        fs::create_dir_all(&dir).context("making the directory of the data again")?;
        copy(&aside, &dir)?;
        fs::remove_dir_all(&aside).context("removing the copy of the backup")?;
        self.start_node(number)
    }

    /// Returns the path of a file on the disk of the nodes' data, unless that is a small one.
    pub fn spare_file(&self) -> PathBuf {
        self.nodes[0].place.file("spare")
    }

    /// Ends all disturbances: every node is a member and runs, nothing is cut, slow or full.
    pub fn recover(&mut self) -> Result<()> {
        self.heal()?;
        for number in 0..self.count() {
            self.freeze(number, false)?;
            self.offset_clock(number, 0)?;
            if self.nodes[number].may_end {
                self.fill_disk(number, None)?;
            }
            self.check_alive(number)?;
        }
        for number in 0..self.count() {
            if self.nodes[number].is_removed {
                self.add(number)?;
            } else if !self.is_up(number) {
                self.start_node(number).with_context(|| format!("node {number} does not start again"))?;
            }
        }
        self.wait_serving()?;
        self.nodes.iter_mut().for_each(|node| node.may_end = false);
        Ok(())
    }

    /// Waits until every node serves reads by new sessions. A group that nothing disturbs has to.
    fn wait_serving(&mut self) -> Result<()> {
        use super::operation::{Kind, Object, Operation, Outcome};
        let object = Object { kind: Kind::Register, number: 0 };
        for number in 0..self.count() {
            let begin = Instant::now();
            loop {
                let mut session = self.system.session(&[self.nodes[number].member], 0, REPLY_MAX);
                let written = session.call(object, &Operation::Write(1));
                match session.call(object, &Operation::Read) {
                    Outcome::Done(_) => break,
                    Outcome::Wrong(text) => bail!("node {number} answers a read by {text}"),
                    outcome if begin.elapsed() > SERVE_MAX => {
                        let seconds = SERVE_MAX.as_secs();
                        bail!(
                            "node {number} does not serve within {seconds} s: a write {written:?}, a read {outcome:?}"
                        )
                    }
                    _ => sleep(LOOK),
                }
                for number in 0..self.count() {
                    self.check_alive(number)?;
                    ensure!(self.is_up(number), "node {number} has ended with room on its disk");
                }
            }
        }
        Ok(())
    }

    /// Leaves all directories, and returns their paths and the nodes' last lines.
    pub fn keep(&mut self) -> (Vec<PathBuf>, String) {
        let lines: Vec<String> = (self.nodes.iter().enumerate())
            .map(|(number, node)| format!("node {number}:\n{}", node.place.log_tail()))
            .collect();
        (self.nodes.iter_mut().map(|node| node.place.keep().to_path_buf()).collect(), lines.join("\n"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The process writes to the disk, which lies in the place.
        self.process = None;
        self.disk = None;
    }
}
