//! Plays on nodes: processes that are killed and stopped, disks, clocks, members.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::course::Course;
use crate::raft_chaos::network::Place;

pub fn calm(course: &mut Course<'_, '_>) -> Result<()> {
    course.pause(2000, 4000);
    Ok(())
}

pub fn kills(course: &mut Course<'_, '_>) -> Result<()> {
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

pub fn kills_at_start(course: &mut Course<'_, '_>) -> Result<()> {
    let node = course.any();
    for _ in 0..course.random.between(3, 8) {
        course.pause(0, 500);
        course.group.kill(node)?;
        course.start(node)?;
    }
    course.pause(500, 2000);
    Ok(())
}

pub fn all_killed(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(1, 3) {
        course.pause(500, 2000);
        course.group.kill_all()?;
        course.pause(0, 500);
        (0..course.group.count()).try_for_each(|node| course.start(node))?;
    }
    course.pause(1000, 2000);
    Ok(())
}

pub fn stops(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(2, 4) {
        let node = course.any();
        course.group.freeze(node, true)?;
        course.pause(100, 3000);
        course.group.freeze(node, false)?;
        course.pause(100, 1000);
    }
    Ok(())
}

pub fn stutter(course: &mut Course<'_, '_>) -> Result<()> {
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
pub fn busy_disk(course: &mut Course<'_, '_>) -> Result<()> {
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

pub fn full_disk(course: &mut Course<'_, '_>) -> Result<()> {
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

pub fn clocks(course: &mut Course<'_, '_>) -> Result<()> {
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

pub fn quick_kills(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(6, 12) {
        let node = course.any();
        course.pause(50, 600);
        course.group.kill(node)?;
        course.start(node)?;
    }
    course.pause(500, 1500);
    Ok(())
}

pub fn restarts(course: &mut Course<'_, '_>) -> Result<()> {
    course.pause(1000, 2500);
    for node in 0..course.group.count() {
        course.group.kill(node)?;
        course.start(node)?;
        course.pause(300, 1500);
    }
    all_killed(course)
}

/// The time for which a node goes on that is no member any more, in half of the draws.
const LINGER: Duration = Duration::from_secs(3);

pub fn members_change(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(1, 3) {
        let node = if course.random.percent(40) { course.leader() } else { course.any() };
        let after = if course.random.percent(50) { LINGER } else { Duration::ZERO };
        course.group.remove(node, after)?;
        course.pause(300, 1500);
        if course.random.percent(50) {
            add_beside_an_absent_one(course, node)?;
        } else {
            course.group.add(node)?;
        }
        course.pause(1000, 2500);
    }
    Ok(())
}

/// Adds a node while another member is killed, or cut off from the rest. Where the members that are left have no quorum
/// without it, it comes back before.
fn add_beside_an_absent_one(course: &mut Course<'_, '_>, node: usize) -> Result<()> {
    let leader = course.leader();
    let members = course.others(node);
    let absent = *course.random.pick(&members);
    let has_quorum = 2 * (members.len() - 1) > members.len();
    // A leader is killed, not cut off: one without a quorum would leave unknown what became of the request.
    let is_cut = absent != leader && course.group.can_cut() && course.random.percent(50);
    if is_cut {
        for other in course.others(absent) {
            course.group.cut(Place::Node(absent), Place::Node(other))?;
            course.group.cut(Place::Node(other), Place::Node(absent))?;
        }
    } else {
        course.group.kill(absent)?;
    }
    course.pause(300, 1500);
    if has_quorum {
        course.group.add(node)?;
        course.pause(300, 1500);
    }
    course.group.heal()?;
    course.start(absent)?;
    if has_quorum { Ok(()) } else { course.group.add(node) }
}
