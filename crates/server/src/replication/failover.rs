//! FAILOVER's steps, on a thread of its own: a replica has all, nothing is written any more, the replica is told to
//! lead and says that it does; then this server follows it.
//!
//! Invariant: between the moment when the replica is told and the moment when it is known whether it leads, this server
//! takes no write, unless somebody says FAILOVER ABORT. If the connection breaks in between, the replica is asked, for
//! as long as it takes. An abort ends that at once, as in Redis: the replica may lead by then, and the writes that this
//! server takes behind it are a tail that is given up when it follows.

use crate::replication::connect::reach;
use crate::replication::state::{Answer, HandOver, Replication};
use haypile_commands::host::Failover;
use haypile_engine::{Downstream, DownstreamState, Engine, Master};
use haypile_log::Index;
use haypile_resp::Reply;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The time between looks at what replicas have.
const LOOK: Duration = Duration::from_millis(2);

/// How long a replica that had all may take to have the last records, behind which nothing is written any more.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The pause before a replica is asked again whether it leads.
const ASK_PAUSE: Duration = Duration::from_millis(100);

/// Hands over, and ends the failover.
pub fn run(replication: &Replication, wanted: &Failover) {
    let engine = &*replication.engine;
    match hand_over(replication, wanted) {
        Ok(master) => {
            tracing::info!("FAILOVER: {}:{} leads now", master.host, master.port);
            engine.set_master(Some(master));
        }
        Err(why) => tracing::warn!("FAILOVER is given up: {why}"),
    }
    replication.state().hand_over = None;
    replication.forced.store(0, Ordering::Release);
    engine.end_failover();
}

/// Returns the new master.
///
/// # Errors
/// A text for people: nothing has changed.
fn hand_over(replication: &Replication, wanted: &Failover) -> Result<Master, String> {
    let engine = &*replication.engine;
    let (number, replica, through) = wait_for_sync(replication, wanted)?;
    engine.hand_over_now();
    replication.state().hand_over = Some(HandOver { number, through, is_told: false, answer: None });
    replication.forced.store(if through.is_none() { number } else { 0 }, Ordering::Release);
    // The thread that sends to the replica looks.
    replication.progress.note();
    if find(engine, |other, _| other == number).is_none() {
        // The connection ended before anybody could note that.
        replication.note_answer(number, Answer::Gone);
    }
    let master = Master { host: replica.host, port: replica.port };
    loop {
        goes_on(replication)?;
        let mut state = replication.state();
        let hand_over = state.hand_over.as_mut().expect("only this thread ends it");
        match hand_over.answer.take() {
            Some(Answer::Promoted) => return Ok(master),
            Some(Answer::Refused(why)) => return Err(why),
            Some(Answer::Gone) if hand_over.is_told => break,
            Some(Answer::Gone) => return Err("the connection to the replica has ended".into()),
            None => drop(replication.wait_on(state, LOOK)),
        }
    }
    tracing::warn!("FAILOVER: the connection to {}:{} has ended: does it lead?", master.host, master.port);
    loop {
        goes_on(replication)?;
        match leads(replication, &master) {
            Ok(Some(true)) => return Ok(master),
            Ok(Some(false)) => return Err("the replica does not lead".into()),
            // The replica may still read what it was told.
            Ok(None) => {}
            Err(error) => tracing::debug!("FAILOVER: {}:{}: {error}", master.host, master.port),
        }
        drop(replication.wait_on(replication.state(), ASK_PAUSE));
    }
}

/// Waits until a replica that is wanted has all, and nothing is written any more. Returns the number of its connection,
/// and the last record; None if the replica may take over without it.
fn wait_for_sync(replication: &Replication, wanted: &Failover) -> Result<(u64, Downstream, Option<Index>), String> {
    let engine = &*replication.engine;
    let since = Instant::now();
    loop {
        goes_on(replication)?;
        let last = engine.store().ok_or("the data are not loaded")?.log().last();
        if let Some((number, replica)) = find(engine, |_, replica| replica.is_target(wanted) && replica.applied >= last)
        {
            let last = engine.stop_writes()?;
            let stopped = Instant::now();
            while stopped.elapsed() < LAST_WAIT {
                goes_on(replication)?;
                if find(engine, |other, replica| other == number && replica.applied >= last).is_some() {
                    return Ok((number, replica, Some(last)));
                }
                replication.progress.wait(replication.progress.count(), LOOK);
            }
            engine.take_writes();
        }
        if wanted.timeout.is_some_and(|timeout| since.elapsed() >= timeout) {
            let target = find(engine, |_, replica| replica.is_target(wanted));
            return match target.filter(|_| wanted.forces) {
                Some((number, replica)) => {
                    engine.stop_writes()?;
                    Ok((number, replica, None))
                }
                None => Err("no replica had all before the timeout".into()),
            };
        }
        replication.progress.wait(replication.progress.count(), LOOK);
    }
}

/// Returns a replica that gets records and that is the right one.
fn find(engine: &Engine, is_right: impl Fn(u64, &Downstream) -> bool) -> Option<(u64, Downstream)> {
    let replicas = engine.replication.numbered_downstream().into_iter();
    let mut online = replicas.filter(|(_, replica)| replica.state == DownstreamState::Online && !replica.is_redis);
    online.find(|(number, replica)| is_right(*number, replica))
}

fn goes_on(replication: &Replication) -> Result<(), String> {
    if replication.engine_is_closing() {
        Err("the server stops".into())
    } else if replication.engine.failover_is_aborted() {
        Err("it was aborted".into())
    } else {
        Ok(())
    }
}

/// Asks a replica whether it leads; None while it has not noticed the end of the connection by which it was told.
fn leads(replication: &Replication, replica: &Master) -> std::io::Result<Option<bool>> {
    let mut remote = reach(replication, replica, || goes_on(replication).is_ok())?;
    let role = remote.call(&[b"ROLE"])?;
    let Reply::Array(words) = &role else {
        return Err(std::io::Error::other(format!("ROLE is answered by {role:?}")));
    };
    let word = |at: usize| match words.get(at) {
        Some(Reply::Bulk(word)) => &word[..],
        _ => b"",
    };
    let is_back = || {
        let is_replica = |_, other: &Downstream| other.host == replica.host && other.port == replica.port;
        find(&replication.engine, is_replica).is_some()
    };
    Ok(match (word(0), word(3)) {
        (b"master", _) => Some(true),
        (_, b"connected") if !is_back() => None,
        _ => Some(false),
    })
}
