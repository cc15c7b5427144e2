//! Plays on the links between nodes.

use std::time::Duration;

use anyhow::Result;

use super::course::Course;
use crate::raft_chaos::network::Place;
use crate::raft_chaos::system::Ability;

pub fn one_way_cuts(course: &mut Course<'_, '_>) -> Result<()> {
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

/// Makes links slow; where the kernel cannot do that, it loses packets, which then come late.
pub fn slow_links(course: &mut Course<'_, '_>) -> Result<()> {
    let delay = Duration::from_millis(course.random.between(5, 150));
    if !course.group.slow_down(delay)? {
        return lossy_links(course);
    }
    course.pause(1000, 2500);
    course.depose()?;
    course.pause(1500, 3000);
    course.group.heal()
}

pub fn lossy_links(course: &mut Course<'_, '_>) -> Result<()> {
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

/// Divides the group: the leader in the minority, alone or not; or with one node in the middle that both sides see.
pub fn divisions(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(2, 3) {
        let leader = course.leader();
        let others = course.others(leader);
        let company = course.random.below((course.group.count() as u64 - 1) / 2) as usize;
        let (minority, rest) = others.split_at(company);
        let minority = [&[leader], minority].concat();
        let rest = if rest.len() > 1 && course.random.percent(25) { &rest[1..] } else { rest };
        course.group.divide(&minority, rest)?;
        course.pause(1500, 4000);
        course.group.heal()?;
        course.pause(300, 1500);
    }
    Ok(())
}

/// Leaves leaders with one direction only: what they send is heard, or what they are sent.
pub fn half_cut_leaders(course: &mut Course<'_, '_>) -> Result<()> {
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

/// Cuts leaders off from the other nodes, but not from the clients that read from them.
pub fn deposed_leaders(course: &mut Course<'_, '_>) -> Result<()> {
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

/// Lets a node fall behind until the logs of the others do not reach back to it, and kills it while it catches up.
pub fn killed_catching_up(course: &mut Course<'_, '_>) -> Result<()> {
    let leader = course.leader();
    let node = *course.random.pick(&course.others(leader));
    for _ in 0..2 {
        let others = course.others(node);
        course.group.divide(&[node], &others)?;
        course.pause(1000, 3000);
        if course.group.system.can(Ability::Facts) && !course.group.outrun(node)? {
            println!("raft-chaos: the logs still reach back to what node {node} has");
        }
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
