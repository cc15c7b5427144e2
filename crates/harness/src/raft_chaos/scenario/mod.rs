//! The scenarios: sequences of disturbances while clients run. Those of the second part of the table are named after
//! failures that Jepsen's analysis of Redis-Raft and its issues have found in a system of this kind.

mod course;
mod leaders;
mod links;
mod nodes;

use std::collections::BTreeMap;

use anyhow::Result;

use super::group::{Group, Surroundings};
use super::operation::Kind;
use super::system::Ability;
use crate::random::Random;
use crate::small_disk;
use course::Course;
use leaders::{cut_and_killed_leaders, failovers, hand_overs, leaders_come_back, paused_leaders};
use links::{deposed_leaders, divisions, half_cut_leaders, killed_catching_up, lossy_links, one_way_cuts, slow_links};
use nodes::{
    all_killed, busy_disk, calm, clocks, full_disk, kills, kills_at_start, members_change, quick_kills, restarts,
    stops, stutter,
};

/// A prerequisite of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Has(Ability),
    /// Links can be cut.
    Cuts,
    SmallDisks,
    Clocks,
    /// The system has one node only, whose data may be put back by a backup.
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

const ALL: &[Kind] = &[];
const LISTS: &[Kind] = &[Kind::List, Kind::Counter, Kind::Family];
const BLOCKS: &[Kind] = &[Kind::Pair, Kind::Family];
const READ: &[Kind] = &[Kind::Register, Kind::Pair, Kind::Counter];

const fn scenario(
    name: &'static str,
    weight: u64,
    needs: &'static [Need],
    kinds: &'static [Kind],
    play: fn(&mut Course<'_, '_>) -> Result<()>,
) -> Scenario {
    Scenario { name, weight, needs, kinds, play }
}

/// All scenarios.
pub const SCENARIOS: &[Scenario] = &[
    scenario("calm", 2, &[], ALL, calm),
    scenario("kills", 4, &[], ALL, kills),
    scenario("kills-at-start", 3, &[], ALL, kills_at_start),
    scenario("all-killed", 3, &[], ALL, all_killed),
    scenario("stops", 3, &[], ALL, stops),
    scenario("stutter", 2, &[], ALL, stutter),
    scenario("busy-disk", 1, &[], ALL, busy_disk),
    scenario("full-disk", 6, &[Need::SmallDisks], ALL, full_disk),
    scenario("clocks", 6, &[Need::Clocks], ALL, clocks),
    scenario("restart-from-backup", 3, &[Need::Has(Ability::Backup), Need::Alone], ALL, kills),
    scenario("one-way-cuts", 4, CUT_GROUP, ALL, one_way_cuts),
    scenario("slow-links", 3, CUT_GROUP, ALL, slow_links),
    scenario("lossy-links", 3, CUT_GROUP, ALL, lossy_links),
    // Failures that others have had.
    scenario("every-failover-loses-all", 3, GROUP, ALL, failovers),
    scenario("append-repeated-after-redirect", 3, GROUP, LISTS, hand_overs),
    scenario("stale-reads-after-election", 4, CUT_GROUP, READ, deposed_leaders),
    scenario("no-leader-in-a-healthy-group", 2, GROUP, ALL, leaders_come_back),
    scenario("no-leader-for-a-committed-write", 3, CUT_GROUP, ALL, half_cut_leaders),
    scenario("replies-to-the-wrong-client", 3, GROUP, BLOCKS, hand_overs),
    scenario("reads-while-members-change", 4, &[LEADS, Need::Has(Ability::Members)], ALL, members_change),
    scenario("killed-in-snapshots", 3, CUT_GROUP, ALL, killed_catching_up),
    scenario("snapshot-and-log-disagree", 3, GROUP, ALL, restarts),
    scenario("split-brain", 5, CUT_GROUP, ALL, divisions),
    scenario("killed-while-a-snapshot-is-written", 2, GROUP, ALL, quick_kills),
    scenario("aborted-reads", 4, CUT_GROUP, ALL, cut_and_killed_leaders),
    scenario("paused-leader", 4, GROUP, ALL, paused_leaders),
];

/// The scenarios that ask leaders to hand over in every round.
pub const HAND_OVERS: &[&str] = &["append-repeated-after-redirect", "replies-to-the-wrong-client"];

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

    /// Returns what the scenario needs and no group can have that is like this one in all but its surroundings.
    pub fn lacks(&self, group: &Group<'_>) -> Vec<Need> {
        let system = group.system;
        let has = |need: &Need| match need {
            Need::Has(ability) => system.can(*ability),
            Need::Cuts => group.can_cut(),
            Need::SmallDisks => system.can(Ability::FullDisk) && !small_disk::may_be_missing(),
            Need::Clocks => system.can(Ability::Clock),
            Need::Alone => group.count() == 1,
        };
        self.needs.iter().copied().filter(|need| !has(need)).collect()
    }

    /// Draws one of the scenarios that suit a group, by their weights; one that was not played yet, if there is one.
    pub fn draw(group: &Group<'_>, played: &BTreeMap<&str, u64>, random: &mut Random) -> &'static Scenario {
        let is_new = |scenario: &Scenario| scenario.suits(group) && !played.contains_key(scenario.name);
        let only_new = SCENARIOS.iter().any(is_new);
        let suiting = || SCENARIOS.iter().filter(|scenario| scenario.suits(group) && (!only_new || is_new(scenario)));
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
        Surroundings { small_disks: needs(Need::SmallDisks), clocks: needs(Need::Clocks), fills_disks: false }
    }

    /// Returns whether the group is put back by a backup when the clients have ended.
    pub fn restores(&self) -> bool {
        self.needs.contains(&Need::Has(Ability::Backup))
    }
}
