//! The scenarios: sequences of disturbances while clients run. Those of the second part of the table are named after
//! failures that Jepsen's analysis of Redis-Raft and its issues have found in a system of this kind.

use std::fs::File;
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::group::{Group, Surroundings};
use super::network::Place;
use super::operation::Kind;
use super::system::Ability;
use crate::random::Random;

/// A prerequisite of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Has(Ability),
    /// Links can be cut.
    Cuts,
    SmallDisks,
    Clocks,
    /// There is one node only, whose data may be put back by a backup.
    Alone,
}

pub struct Scenario {
    pub name: &'static str,
    weight: u64,
    needs: &'static [Need],
    /// The kinds of objects that clients use; none stands for all.
    pub kinds: &'static [Kind],
    play: fn(&mut Course<'_, '_>) -> Result<()>,
}

const LEADS: Need = Need::Has(Ability::Leads);
const GROUP: &[Need] = &[LEADS];
const CUT_GROUP: &[Need] = &[LEADS, Need::Cuts];

/// All scenarios.
#[rustfmt::skip]
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "calm", weight: 2, needs: &[], kinds: &[], play: calm },
    Scenario { name: "kills", weight: 4, needs: &[], kinds: &[], play: kills },
    Scenario { name: "kills-at-start", weight: 3, needs: &[], kinds: &[], play: kills_at_start },
    Scenario { name: "all-killed", weight: 3, needs: &[], kinds: &[], play: all_killed },
    Scenario { name: "stops", weight: 3, needs: &[], kinds: &[], play: stops },
    Scenario { name: "stutter", weight: 2, needs: &[], kinds: &[], play: stutter },
    Scenario { name: "busy-disk", weight: 1, needs: &[], kinds: &[], play: busy_disk },
    Scenario { name: "full-disk", weight: 6, needs: &[Need::SmallDisks], kinds: &[], play: full_disk },
    Scenario { name: "clocks", weight: 6, needs: &[Need::Clocks], kinds: &[], play: clocks },
    Scenario { name: "restart-from-backup", weight: 3, needs: &[Need::Has(Ability::Backup), Need::Alone], kinds: &[], play: kills },
    Scenario { name: "one-way-cuts", weight: 4, needs: CUT_GROUP, kinds: &[], play: one_way_cuts },
    Scenario { name: "lossy-links", weight: 3, needs: CUT_GROUP, kinds: &[], play: lossy_links },
    // What others got wrong.
    Scenario { name: "every-failover-loses-all", weight: 3, needs: GROUP, kinds: &[], play: failovers },
    Scenario { name: "append-repeated-after-redirect", weight: 3, needs: GROUP, kinds: &[Kind::List, Kind::Counter, Kind::Family], play: hand_overs },
    Scenario { name: "stale-reads-after-election", weight: 4, needs: CUT_GROUP, kinds: &[Kind::Register, Kind::Pair, Kind::Counter], play: deposed_leaders },
    Scenario { name: "no-leader-in-a-healthy-group", weight: 2, needs: GROUP, kinds: &[], play: leaders_come_back },
    Scenario { name: "no-leader-for-a-committed-write", weight: 3, needs: CUT_GROUP, kinds: &[], play: half_cut_leaders },
    Scenario { name: "replies-to-the-wrong-client", weight: 3, needs: GROUP, kinds: &[Kind::Pair, Kind::Family], play: hand_overs },
    Scenario { name: "reads-while-members-change", weight: 4, needs: &[LEADS, Need::Has(Ability::Members)], kinds: &[], play: members_change },
    Scenario { name: "killed-in-snapshots", weight: 3, needs: CUT_GROUP, kinds: &[], play: killed_catching_up },
    Scenario { name: "snapshot-and-log-disagree", weight: 3, needs: GROUP, kinds: &[], play: restarts },
    Scenario { name: "split-brain", weight: 5, needs: CUT_GROUP, kinds: &[], play: divisions },
    Scenario { name: "killed-while-a-snapshot-is-written", weight: 2, needs: GROUP, kinds: &[], play: quick_kills },
    Scenario { name: "aborted-reads", weight: 4, needs: CUT_GROUP, kinds: &[], play: cut_and_killed_leaders },
    Scenario { name: "paused-leader", weight: 4, needs: GROUP, kinds: &[], play: paused_leaders },
];

impl Scenario {
    pub fn named(name: &str) -> Option<&'static Scenario> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }

    /// Whether a group has what the scenario needs.
    pub fn suits(&self, group: &Group<'_>) -> bool {
        self.needs.iter().all(|need| match need {
            Need::Has(ability) => group.system.can(*ability),
            Need::Cuts => group.can_cut(),
            Need::SmallDisks => group.surroundings().small_disks,
            Need::Clocks => group.surroundings().clocks,
            Need::Alone => group.count() == 1,
        })
    }

    /// Draws one of the scenarios that suit a group, by their weights.
    pub fn draw(group: &Group<'_>, random: &mut Random) -> &'static Scenario {
        let suiting = || SCENARIOS.iter().filter(|scenario| scenario.suits(group));
        let mut at = random.below(suiting().map(|scenario| scenario.weight).sum());
        for scenario in suiting() {
            match at.checked_sub(scenario.weight) {
                Some(rest) => at = rest,
                None => return scenario,
            }
        }
        unreachable!("the number is below the sum of the weights")
    }

    /// Disturbs a group; much of it may be down or cut off in the end.
    pub fn play(&self, group: &mut Group<'_>, random: &mut Random) -> Result<()> {
        (self.play)(&mut Course { group, random })
    }

    /// Returns the surroundings without which the scenario cannot be played.
    pub fn surroundings(&self) -> Surroundings {
        let needs = |need| self.needs.contains(&need);
        Surroundings { small_disks: needs(Need::SmallDisks), clocks: needs(Need::Clocks) }
    }

    /// Returns whether the group is put back by a backup when the clients have ended.
    pub fn restores(&self) -> bool {
        self.needs.contains(&Need::Has(Ability::Backup))
    }
}

/// The course of a scenario.
pub struct Course<'g, 's> {
    group: &'g mut Group<'s>,
    random: &'g mut Random,
}

impl Course<'_, '_> {
    fn pause(&mut self, from_ms: u64, to_ms: u64) {
        sleep(Duration::from_millis(self.random.between(from_ms, to_ms)));
    }

    fn any(&mut self) -> usize {
        self.random.below(self.group.count() as u64) as usize
    }

    /// Returns the leader, or any node if none is known.
    fn leader(&mut self) -> usize {
        self.group.wait_leader(Duration::from_secs(5)).unwrap_or_else(|| self.any())
    }

    /// Returns all nodes but one.
    fn others(&self, number: usize) -> Vec<usize> {
        (0..self.group.count()).filter(|other| *other != number).collect()
    }

    /// Starts a node, unless it runs.
    fn start(&mut self, number: usize) -> Result<()> {
        if self.group.is_up(number) { Ok(()) } else { self.group.start_node(number) }
    }

    /// Moves leadership somehow: by request if the system has that, else by a stop that is long enough.
    fn depose(&mut self) -> Result<()> {
        let leader = self.leader();
        if self.group.system.can(Ability::Transfer) && self.random.percent(70) {
            let to = *self.random.pick(&self.others(leader));
            // The group may be in the middle of an election.
            let _ = self.group.transfer(leader, to);
            return Ok(());
        }
        self.group.freeze(leader, true)?;
        self.pause(800, 1500);
        self.group.freeze(leader, false)
    }
}

fn calm(course: &mut Course<'_, '_>) -> Result<()> {
    course.pause(2000, 4000);
    Ok(())
}

fn kills(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(2, 5) {
        let node = course.any();
        course.pause(200, 1500);
        course.group.kill(node)?;
        course.pause(0, 1500);
        course.start(node)?;
    }
    course.pause(500, 1500);
    Ok(())
}

fn kills_at_start(course: &mut Course<'_, '_>) -> Result<()> {
    let node = course.any();
    for _ in 0..course.random.between(3, 8) {
        course.pause(0, 500);
        course.group.kill(node)?;
        course.start(node)?;
    }
    course.pause(500, 2000);
    Ok(())
}

fn all_killed(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(1, 3) {
        course.pause(500, 2000);
        (0..course.group.count()).try_for_each(|node| course.group.kill(node))?;
        course.pause(0, 500);
        (0..course.group.count()).try_for_each(|node| course.start(node))?;
    }
    course.pause(1000, 2000);
    Ok(())
}

fn stops(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(2, 4) {
        let node = course.any();
        course.group.freeze(node, true)?;
        course.pause(100, 3000);
        course.group.freeze(node, false)?;
        course.pause(100, 1000);
    }
    Ok(())
}

fn stutter(course: &mut Course<'_, '_>) -> Result<()> {
    let node = course.leader();
    for _ in 0..course.random.between(10, 30) {
        course.group.freeze(node, true)?;
        course.pause(30, 400);
        course.group.freeze(node, false)?;
        course.pause(10, 100);
    }
    Ok(())
}

/// Writes and syncs on the disk that the nodes use, as another program would.
fn busy_disk(course: &mut Course<'_, '_>) -> Result<()> {
    const PIECE_BYTES: usize = 4 << 20;
    const PIECES: u32 = 16;
    let (begin, time) = (Instant::now(), Duration::from_millis(course.random.between(3000, 6000)));
    let path = course.group.spare_file();
    while begin.elapsed() < time {
        let mut file = File::create(&path).context("a file that keeps the disk busy")?;
        for _ in 0..PIECES {
            file.write_all(&vec![7; PIECE_BYTES])?;
            file.sync_data()?;
        }
    }
    std::fs::remove_file(&path).context("removing it")
}

fn full_disk(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(1, 3) {
        let node = if course.random.percent(60) { course.leader() } else { course.any() };
        let leave = *course.random.pick(&[0, 1 << 16, 1 << 20, 8 << 20]);
        course.group.fill_disk(node, Some(leave))?;
        course.pause(1000, 3500);
        course.group.fill_disk(node, None)?;
        course.group.check_alive(node)?;
        course.start(node)?;
        course.pause(500, 1500);
    }
    Ok(())
}

fn clocks(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(4, 8) {
        let node = course.any();
        let seconds = *course.random.pick(&[-86_400, -3600, -5, -1, 1, 5, 3600, 86_400]);
        course.group.offset_clock(node, seconds)?;
        course.pause(300, 1000);
        if course.random.percent(20) {
            course.group.kill(node)?;
            course.start(node)?;
        }
    }
    Ok(())
}

fn one_way_cuts(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(2, 4) {
        for _ in 0..course.random.between(1, 3) {
            let from = Place::Node(course.any());
            let to = if course.random.percent(25) { Place::Clients } else { Place::Node(course.any()) };
            let (from, to) = if course.random.percent(50) { (from, to) } else { (to, from) };
            course.group.cut(from, to)?;
        }
        course.pause(800, 3000);
        course.group.heal()?;
        course.pause(200, 1000);
    }
    Ok(())
}

fn lossy_links(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(20, 40) {
        for _ in 0..2 {
            let (from, to) = (Place::Node(course.any()), Place::Node(course.any()));
            course.group.cut(from, to)?;
        }
        course.pause(20, 200);
        course.group.heal()?;
        course.pause(10, 100);
    }
    Ok(())
}

fn failovers(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(2, 4) {
        course.pause(300, 1000);
        let leader = course.leader();
        course.group.kill(leader)?;
        course.leader();
        course.pause(200, 1000);
        course.start(leader)?;
    }
    Ok(())
}

fn hand_overs(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(4, 8) {
        course.depose()?;
        course.pause(200, 1200);
    }
    Ok(())
}

/// Cuts leaders off from the other nodes, but not from the clients that read from them.
fn deposed_leaders(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(2, 4) {
        let leader = course.leader();
        let others = course.others(leader);
        course.group.divide(&[leader], &others)?;
        course.pause(500, 3000);
        course.group.heal()?;
        course.pause(200, 1500);
    }
    Ok(())
}

/// Ends leadership in all ways; each time a group that is whole again has to serve.
fn leaders_come_back(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(2, 3) {
        let leader = course.leader();
        if course.random.percent(50) {
            course.group.kill(leader)?;
        } else {
            course.group.freeze(leader, true)?;
        }
        course.pause(300, 2500);
        course.group.recover()?;
    }
    Ok(())
}

/// Leaves leaders with one direction only: what they send is heard, or what they are sent.
fn half_cut_leaders(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(2, 4) {
        let leader = course.leader();
        let hears = course.random.percent(50);
        for other in course.others(leader) {
            let (from, to) = if hears { (leader, other) } else { (other, leader) };
            course.group.cut(Place::Node(from), Place::Node(to))?;
        }
        course.pause(500, 3000);
        course.group.heal()?;
        course.pause(300, 1000);
    }
    Ok(())
}

fn members_change(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(1, 3) {
        let node = if course.random.percent(40) { course.leader() } else { course.any() };
        course.group.remove(node)?;
        course.pause(300, 1500);
        course.group.add(node)?;
        course.pause(1000, 2500);
    }
    Ok(())
}

/// Lets a node fall behind, and kills it while it catches up.
fn killed_catching_up(course: &mut Course<'_, '_>) -> Result<()> {
    let leader = course.leader();
    let node = *course.random.pick(&course.others(leader));
    for _ in 0..2 {
        let others = course.others(node);
        course.group.divide(&[node], &others)?;
        course.pause(2000, 5000);
        course.group.heal()?;
        for _ in 0..course.random.between(1, 3) {
            course.pause(20, 600);
            course.group.kill(node)?;
            course.pause(0, 300);
            course.start(node)?;
        }
        course.pause(500, 1500);
    }
    Ok(())
}

fn restarts(course: &mut Course<'_, '_>) -> Result<()> {
    course.pause(1000, 2500);
    for node in 0..course.group.count() {
        course.group.kill(node)?;
        course.start(node)?;
        course.pause(300, 1500);
    }
    all_killed(course)
}

/// Divides the group: the leader in the minority, alone or not; or with one node in the middle that both sides see.
fn divisions(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(2, 3) {
        let leader = course.leader();
        let others = course.others(leader);
        let (minority, rest) = others.split_at((course.group.count() - 1) / 2 - usize::from(course.random.percent(50)));
        let minority = [&[leader], minority].concat();
        let rest = if course.random.percent(25) { &rest[1..] } else { rest };
        course.group.divide(&minority, rest)?;
        course.pause(1500, 4000);
        course.group.heal()?;
        course.pause(300, 1500);
    }
    Ok(())
}

fn quick_kills(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(6, 12) {
        let node = course.any();
        course.pause(50, 600);
        course.group.kill(node)?;
        course.start(node)?;
    }
    course.pause(500, 1500);
    Ok(())
}

/// Cuts leaders off with writes in flight, and kills them or lets them come back.
fn cut_and_killed_leaders(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(2, 4) {
        let leader = course.leader();
        let others = course.others(leader);
        course.group.divide(&[leader], &others)?;
        course.pause(100, 2500);
        if course.random.percent(50) {
            course.group.kill(leader)?;
        }
        course.group.heal()?;
        course.start(leader)?;
        course.pause(300, 1500);
    }
    Ok(())
}

fn paused_leaders(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(1, 3) {
        let leader = course.leader();
        course.group.freeze(leader, true)?;
        course.pause(1000, 5000);
        course.group.freeze(leader, false)?;
        course.pause(300, 1500);
    }
    Ok(())
}
