//! Plays on whichever node leads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::course::Course;
use crate::raft_chaos::operation::{Kind, Object, Operation, Session};

/// The longest wait of a patient client.
const PATIENCE_MAX: Duration = Duration::from_secs(60);
/// The longest time until a patient client hears from a node that goes on.
const HEARD_MAX: Duration = Duration::from_secs(20);

pub fn failovers(course: &mut Course<'_, '_>) -> Result<()> {
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

pub fn hand_overs(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(4, 8) {
        course.depose()?;
        course.pause(200, 1200);
    }
    Ok(())
}

/// Ends leadership in all ways; each time a group that is whole again has to serve.
pub fn leaders_come_back(course: &mut Course<'_, '_>) -> Result<()> {
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

/// Cuts leaders off with writes in flight, and kills them or lets them come back.
pub fn cut_and_killed_leaders(course: &mut Course<'_, '_>) -> Result<()> {
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

/// Stops leaders. A client that waits for one must hear something once it goes on, if only that the connection ends.
pub fn paused_leaders(course: &mut Course<'_, '_>) -> Result<()> {
    for _ in 0..course.random.between(1, 3) {
        let leader = course.leader();
        let session = course.group.system.session(&course.group.members()[leader..=leader], 0, PATIENCE_MAX);
        let (heard, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|threads| {
            threads.spawn(|| wait_for_replies(session, &heard, &stop));
            let paused = pause_leader(course, leader, &heard);
            stop.store(true, Ordering::Relaxed);
            paused
        })?;
        course.pause(300, 1500);
    }
    Ok(())
}

/// Reads from one node until told to stop, and counts what was heard.
fn wait_for_replies(mut session: Box<dyn Session>, heard: &AtomicU64, stop: &AtomicBool) {
    let object = Object { kind: Kind::Register, number: 0 };
    while !stop.load(Ordering::Relaxed) {
        // Any outcome will do.
        let _ = session.call(object, &Operation::Read);
        heard.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(1));
    }
}

fn pause_leader(course: &mut Course<'_, '_>, leader: usize, heard: &AtomicU64) -> Result<()> {
    course.pause(20, 200);
    course.group.freeze(leader, true)?;
    course.pause(1000, 5000);
    let before = heard.load(Ordering::Relaxed);
    course.group.freeze(leader, false)?;
    let begin = Instant::now();
    while heard.load(Ordering::Relaxed) == before {
        let seconds = begin.elapsed().as_secs();
        ensure!(begin.elapsed() < HEARD_MAX, "a client hears nothing {seconds} s after a paused leader went on");
        sleep(Duration::from_millis(10));
    }
    Ok(())
}
