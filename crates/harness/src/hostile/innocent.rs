//! The innocent client: GET and PING, a thousand a second in all, over a few connections in turn, so that every event
//! loop has some of them. A wait is counted from the moment when a request was due, so that a request that is late
//! because the one before it was not answered has waited, too.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use super::withheld::{Gap, Withheld};
use super::{Site, right};
use crate::client::Client;

/// The time between two requests.
const EVERY: Duration = Duration::from_millis(1);
/// The number of connections: more than a server has workers on usual machines, so that each has one.
const CONNECTIONS: usize = 16;
const KEYS: usize = 1000;

/// The times that requests have waited for their replies.
pub(super) struct Waits {
    us: Histogram<u64>,
}

impl Waits {
    /// Counts waits without what the machine withheld meanwhile.
    pub fn count(waits: &[Gap], withheld: &Withheld) -> Result<Waits> {
        let mut us = Histogram::new(3).context("a histogram of three digits")?;
        for Gap { from, to } in waits {
            let wait = (*to - *from).saturating_sub(withheld.between(*from, *to));
            us.record(wait.as_micros() as u64).context("a wait of any length")?;
        }
        Ok(Waits { us })
    }

    /// Returns how many requests were answered.
    pub fn samples(&self) -> u64 {
        self.us.len()
    }

    pub fn p50(&self) -> Duration {
        Duration::from_micros(self.us.value_at_quantile(0.5))
    }

    pub fn p99(&self) -> Duration {
        Duration::from_micros(self.us.value_at_quantile(0.99))
    }

    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.us.max())
    }
}

pub(super) fn prepare(site: &Site) -> Result<()> {
    site.fill(KEYS, |number| vec!["SET".into(), key(number), "x".repeat(100)])
}

/// Sends requests until the attack has ended; returns when each was due and when its reply was there.
pub(super) fn ask(site: &Site) -> Result<Vec<Gap>> {
    let mut waits = Vec::new();
    let mut clients = (0..CONNECTIONS).map(|_| site.client()).collect::<Result<Vec<Client>>>()?;
    let mut due = Instant::now();
    for number in 0.. {
        let client = &mut clients[number % CONNECTIONS];
        let reply = match number / CONNECTIONS % 2 {
            0 => client.call(&["PING"]),
            _ => client.call(&["GET", &key(number % KEYS)]),
        };
        let reply = right(reply.context("the innocent client")?)?;
        ensure!(!reply.is_nil(), "a key of the innocent client is gone");
        waits.push(Gap { from: due, to: Instant::now() });
        if site.attacked.load(Ordering::Relaxed) {
            break;
        }
        due += EVERY;
        match due.checked_duration_since(Instant::now()) {
            Some(early) => sleep(early),
            // Requests that were due meanwhile are skipped: one of them has waited.
            None => due = Instant::now(),
        }
    }
    Ok(waits)
}

fn key(number: usize) -> String {
    format!("innocent:{number}")
}
