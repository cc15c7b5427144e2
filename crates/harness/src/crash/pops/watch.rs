//! The look at blocked pops while nobody pushes: a consumer that goes on waiting for a key which is not empty has
//! missed its wake-up, which the next push would hide.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::{CONSUMERS, HOME, KINDS, Kind, PRODUCERS};
use crate::client::Client;
use crate::server::REPLY_TIMEOUT;

/// The longest time in which a consumer waits for a key that is not empty.
const WAKE_MAX: Duration = Duration::from_secs(10);
/// The bits of a consumer's two sources.
const SOURCES: u64 = 0b11;
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// The state that consumers and producers share with the look.
#[derive(Default)]
pub struct Watch {
    /// Producers have to rest.
    pub rests: AtomicBool,
    /// The number of producers that rest.
    pub resting: AtomicU64,
    /// For each consumer, the number of its pop and, in the lowest bits, the sources that it waits for: none while it
    /// does not wait.
    waits: [AtomicU64; KINDS.len() * CONSUMERS as usize],
}

/// One pop of a consumer that waits for a source, by the consumer's number in `Watch::waits` and its word there.
type Wait = (usize, u64);

impl Watch {
    fn slot(kind: Kind, number: u64) -> usize {
        kind as usize * CONSUMERS as usize + number as usize
    }

    fn of(&self, kind: Kind, number: u64) -> &AtomicU64 {
        &self.waits[Watch::slot(kind, number)]
    }

    /// Notes the sources that a consumer waits for from now on.
    pub(super) fn begin(&self, kind: Kind, number: u64, sources: &[&str]) {
        let [a, b] = kind.sources().map(|source| u64::from(sources.contains(&source)));
        let of_pop = (self.of(kind, number).load(Ordering::Relaxed) | SOURCES) + 1;
        self.of(kind, number).store(of_pop | a | b << 1, Ordering::Release);
    }

    pub(super) fn end(&self, kind: Kind, number: u64) {
        self.of(kind, number).fetch_and(!SOURCES, Ordering::AcqRel);
    }

    /// Lets producers rest, and fails if a consumer then goes on waiting for what is there. Producers go on afterwards.
    pub fn look(&self, port: u16) -> Result<()> {
        self.rests.store(true, Ordering::Release);
        let looked = self.look_in_rest(port);
        self.rests.store(false, Ordering::Release);
        looked
    }

    fn look_in_rest(&self, port: u16) -> Result<()> {
        let mut client = Client::connect(port, REPLY_TIMEOUT)?;
        client.command(&format!("SELECT {HOME}"))?;
        let begin = Instant::now();
        while self.resting.load(Ordering::Acquire) < KINDS.len() as u64 * PRODUCERS {
            ensure!(begin.elapsed() < REPLY_TIMEOUT, "a push takes more than {} s", REPLY_TIMEOUT.as_secs());
            sleep(LOOK);
        }
        // A pop that is on its way to the server waits for what is there, too, but not for long.
        let mut since: BTreeMap<Wait, Instant> = BTreeMap::new();
        loop {
            let found = self.find_waits(&mut client)?;
            since.retain(|wait, _| found.contains_key(wait));
            if found.is_empty() {
                return Ok(());
            }
            for (wait, text) in found {
                let begin = *since.entry(wait).or_insert_with(Instant::now);
                if begin.elapsed() > WAKE_MAX {
                    bail!("{text}, and nobody pushes");
                }
            }
            sleep(LOOK);
        }
    }

    /// Returns the pops that wait for a source which is not empty, each with a text about it.
    fn find_waits(&self, client: &mut Client) -> Result<BTreeMap<Wait, String>> {
        let mut found = BTreeMap::new();
        for kind in KINDS {
            let count = if kind == Kind::Zset { "ZCARD" } else { "LLEN" };
            for (bit, source) in (0..).zip(kind.sources()) {
                let reply = client.command(&format!("{count} {source}"))?;
                ensure!(reply.integer().is_some(), "{count} {source} was answered by {reply}");
                for number in (0..CONSUMERS).filter(|_| reply.integer() != Some(0)) {
                    let word = self.of(kind, number).load(Ordering::Acquire);
                    if word & 1 << bit != 0 {
                        let text = format!("consumer {number} waits for {source}, which has {reply} elements");
                        found.insert((Watch::slot(kind, number), word), text);
                    }
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_is_noted_with_the_sources_that_it_waits_for() {
        let watch = Watch::default();
        let word = || watch.of(Kind::Zset, 2).load(Ordering::Relaxed);
        watch.begin(Kind::Zset, 2, &["zset:b"]);
        assert_eq!((word(), watch.of(Kind::Zset, 1).load(Ordering::Relaxed)), (0b110, 0));
        watch.end(Kind::Zset, 2);
        assert_eq!(word() & SOURCES, 0);
        watch.begin(Kind::Zset, 2, &["zset:b", "zset:a"]);
        assert_eq!(word(), 0b1011, "another pop has another number");
    }
}
