//! The nodes of a system under test: their processes, the network between them, their disks and clocks, and the way
//! back from every disturbance.

mod whole;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::clock::{self, OffsetClock};
use super::network::{Links, Network, Place};
use super::process::Process;
use super::system::{Ability, Member, Start, System};
use crate::damage::copy;
use crate::server::Workplace;
use crate::small_disk::SmallDisk;

/// The longest wait until a node answers, and until a group that nothing disturbs serves on every node.
pub const SERVE_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// The longest wait until leadership has moved that was asked for.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);
/// Bytes of a value that has a member fall behind, the most of them, and the longest time for them.
const PUMPED_BYTES: usize = 64 << 10;
const PUMPED_MAX: usize = 1000;
const PUMP_MAX: Duration = Duration::from_secs(20);
/// The size of a small disk.
const DISK: &str = "size=512m";

/// The surroundings of a group, drawn for each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings {
    /// The data are on small disks, which can be filled.
    pub small_disks: bool,
    /// The clocks can be offset.
    pub clocks: bool,
    /// Nodes keep no room free on small disks, which so fill to the last byte.
    pub fills_disks: bool,
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
    /// Nodes that have ended since their disks were full.
    pub ended: u64,
    pub clock_jumps: u64,
    pub restores: u64,
    /// Copies that nodes have put in the place of their data.
    pub copies: u64,
    /// Directories of killed nodes that were found to be sound.
    pub checks: u64,
    /// Comparisons of the data of all nodes.
    pub compared: u64,
}

impl Disturbances {
    pub fn add(&mut self, other: Disturbances) {
        let Disturbances { starts, kills, stops, cuts, transfers, member_changes, .. } = other;
        let Disturbances { full_disks, ended, clock_jumps, restores, copies, checks, compared, .. } = other;
        self.starts += starts;
        self.kills += kills;
        self.stops += stops;
        self.cuts += cuts;
        self.transfers += transfers;
        self.member_changes += member_changes;
        self.full_disks += full_disks;
        self.ended += ended;
        self.clock_jumps += clock_jumps;
        self.restores += restores;
        self.copies += copies;
        self.checks += checks;
        self.compared += compared;
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
    /// The node has served with these data, which so are whole.
    has_served: bool,
    /// The copies that were counted since the node was started.
    copies: u64,
}

impl Node {
    fn new(member: Member, place: Workplace, disk: Option<SmallDisk>) -> Node {
        let (joins, is_removed, may_end, has_served) = (false, false, false, false);
        Node { member, place, disk, process: None, joins, is_removed, may_end, has_served, copies: 0 }
    }
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
        let small_disks = wanted.small_disks && system.can(Ability::FullDisk);
        let mut surroundings = Surroundings { small_disks, clocks, ..wanted };
        let mut nodes = Vec::new();
        for number in 0..count {
            let place = Workplace::new(&format!("raft-chaos-{}-{number}", system.name()), None)?;
            let disk =
                surroundings.small_disks.then(|| SmallDisk::try_mount(&place.data(), DISK)).transpose()?.flatten();
            surroundings.small_disks &= disk.is_some();
            let member = network.member(number)?;
            nodes.push(Node::new(member, place, disk));
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
        let fills_disk = self.surroundings.fills_disks && node.disk.is_some();
        let start = Start {
            node: node.member,
            members: &members,
            founders: &founders,
            dir: &dir,
            joins: node.joins,
            fills_disk,
        };
        node.copies = 0;
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
        self.counts.ended += u64::from(node.may_end);
        ensure!(node.may_end, "node {number} has ended by itself: {status}; its last lines:\n{lines}");
        Ok(())
    }

    /// Kills a node, and checks its data.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        self.kill_unchecked(number)?;
        self.check_data(number)
    }

    /// Kills all nodes before the data of any are checked.
    pub fn kill_all(&mut self) -> Result<()> {
        (0..self.count()).try_for_each(|number| self.kill_unchecked(number))?;
        (0..self.count()).try_for_each(|number| self.check_data(number))
    }

    fn kill_unchecked(&mut self, number: usize) -> Result<()> {
        self.check_alive(number)?;
        match self.nodes[number].process.take() {
            Some(mut process) => {
                self.counts.kills += 1;
                process.kill()
            }
            None => Ok(()),
        }
    }

    /// Checks the data of a node that is down, if it has served with them and the next start has no copy to put in
    /// their place.
    fn check_data(&mut self, number: usize) -> Result<()> {
        let dir = self.data(number);
        if self.nodes[number].has_served && !dir.join("incoming/COMPLETE").exists() {
            let checked = self.system.check(&dir).with_context(|| format!("node {number} after a kill"))?;
            self.counts.checks += u64::from(checked);
        }
        Ok(())
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
        self.leading().map(|(_, number)| number)
    }

    /// Returns the newest term in which a node leads that answers, and the node.
    fn leading(&self) -> Option<(u64, usize)> {
        let up = self.nodes.iter().filter(|node| node.process.as_ref().is_some_and(|process| !process.is_frozen));
        let leading = up.filter_map(|node| Some((self.system.leads(node.member)?, node.member.number)));
        leading.max()
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

    /// Has a leader hand over, and waits until leadership has moved. It may refuse: the other one may be behind, or not
    /// reachable.
    pub fn transfer(&mut self, from: usize, to: usize) -> Result<()> {
        let before = self.leading();
        self.system.transfer(self.nodes[from].member, self.nodes[to].member)?;
        let begin = Instant::now();
        while begin.elapsed() < HAND_OVER_MAX {
            if self.leading().is_some_and(|now| Some(now) != before) {
                self.counts.transfers += 1;
                return Ok(());
            }
            sleep(LOOK);
        }
        bail!("node {from} still leads {} s after it was asked to hand over", HAND_OVER_MAX.as_secs())
    }

    /// Writes until no log that a leader has reaches back to what a node has that is cut off: it needs a copy then.
    /// Returns whether it came to that.
    pub fn outrun(&mut self, number: usize) -> Result<bool> {
        let Some(last) = self.system.facts(self.nodes[number].member).map(|facts| facts.last) else { return Ok(false) };
        let begin = Instant::now();
        for _ in 0..PUMPED_MAX {
            let Some(leader) = self.wait_leader(PUMP_MAX).filter(|_| begin.elapsed() < PUMP_MAX) else { break };
            let member = self.nodes[leader].member;
            if leader != number && self.system.facts(member).is_some_and(|facts| facts.first > last + 1) {
                return Ok(true);
            }
            // Another node may lead meanwhile, or the disk be busy: that is tried again.
            if self.system.pump(member, PUMPED_BYTES).is_err() {
                sleep(LOOK);
            }
        }
        Ok(false)
    }

    /// Takes a node out of the group, ends it after some time and removes its data.
    pub fn remove(&mut self, number: usize, after: Duration) -> Result<()> {
        let removed = self.ask_others(number, |system, asked, node| system.remove(asked, node));
        if removed.is_ok() {
            self.counts.member_changes += 1;
            sleep(after);
        }
        self.kill(number)?;
        removed?;
        self.nodes[number].has_served = false;
        let dir = self.data(number);
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        self.nodes[number].is_removed = true;
        Ok(())
    }

    /// Takes a removed node into the group again, with an empty directory.
    pub fn add(&mut self, number: usize) -> Result<()> {
        self.ask_others(number, |system, asked, node| system.add(asked, node))?;
        self.counts.member_changes += 1;
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
