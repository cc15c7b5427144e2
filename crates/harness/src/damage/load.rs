//! Writers that each own a ring of keys and write ascending numbers to it, so that the keys show up to which write
//! everything is there, and whether one in between is missing.

use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use anyhow::{Context, Result, bail, ensure};

use super::connect;
use crate::random::Random;
use crate::server::REPLY_TIMEOUT;

const WRITERS: u64 = 6;
/// Keys of a writer; the write with number n goes to key n modulo this.
const KEYS: u64 = 400;
/// The age at which an acknowledged write is synced under `durability os`, which syncs once a second, and whose end is
/// noted by then: a sync may take its time.
const SYNCED_AFTER: Duration = Duration::from_secs(4);
/// The time between two marks of a writer.
const MARK: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct Load {
    writers: Vec<Writer>,
}

#[derive(Clone, Debug)]
struct Writer {
    number: u64,
    seed: u64,
    /// The last write that was acknowledged, and the last one that was sent.
    acknowledged: u64,
    sent: u64,
    /// The last write that had been acknowledged for so long before the end that it was synced.
    synced: u64,
    /// The moments at which writes were acknowledged, some of them in each second.
    marks: Vec<(Instant, u64)>,
    refused: bool,
}

/// The numbers that a server holds.
#[derive(Debug)]
pub struct Found {
    /// For each writer, the numbers of its keys; 0 for a missing key.
    keys: Vec<Vec<u64>>,
    /// The error of a read that was refused.
    pub error: Option<String>,
}

impl Load {
    pub fn new(seed: u64) -> Load {
        let writer =
            |number| Writer { number, seed, acknowledged: 0, sent: 0, synced: 0, marks: Vec::new(), refused: false };
        Load { writers: (0..WRITERS).map(writer).collect() }
    }

    /// Runs all writers for a while, `pipeline` writes at a time, and `meanwhile` beside them. A writer whose write is
    /// refused ends.
    pub fn write(&mut self, port: u16, pipeline: u64, time: Duration, meanwhile: impl FnOnce()) -> Result<()> {
        let until = Instant::now() + time;
        thread::scope(|scope| {
            let threads = self.spawn(scope, port, pipeline, until);
            meanwhile();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a writer does not panic"))
        })
    }

    /// Runs all writers for a while, and then `end`, which ends the server under them: their connections break.
    pub fn write_until_ended(
        &mut self,
        port: u16,
        pipeline: u64,
        time: Duration,
        end: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let until = Instant::now() + time + REPLY_TIMEOUT;
        let ended_at = thread::scope(|scope| {
            let threads = self.spawn(scope, port, pipeline, until);
            thread::sleep(time);
            let is_early = threads.iter().any(|thread| thread.is_finished());
            let ended_at = Instant::now();
            end()?;
            for thread in threads {
                match thread.join().expect("a writer does not panic") {
                    Err(error) if error.is::<io::Error>() && !is_early => {}
                    Err(error) => return Err(error.context("before the server was ended")),
                    Ok(()) => bail!("a writer has outlived its server"),
                }
            }
            Ok(ended_at)
        })?;
        self.writers.iter_mut().for_each(|writer| writer.note_synced(ended_at));
        Ok(())
    }

    fn spawn<'scope>(
        &'scope mut self,
        scope: &'scope Scope<'scope, '_>,
        port: u16,
        pipeline: u64,
        until: Instant,
    ) -> Vec<ScopedJoinHandle<'scope, Result<()>>> {
        self.writers.iter_mut().map(|writer| scope.spawn(move || writer.write(port, pipeline, until))).collect()
    }

    /// Goes on behind the writes that a sound server was found to hold: those in flight at its end may be gone.
    pub fn resume_from(&mut self, found: &Found) {
        for (writer, keys) in self.writers.iter_mut().zip(&found.keys) {
            let last = keys.iter().copied().max().unwrap_or(0);
            (writer.acknowledged, writer.sent) = (last, last);
        }
    }

    /// Returns whether a write was refused.
    pub fn was_refused(&self) -> bool {
        self.writers.iter().any(|writer| writer.refused)
    }

    pub fn read(&self, port: u16) -> Result<Found> {
        let mut client = connect(port)?;
        let mut found = Found { keys: Vec::new(), error: None };
        for writer in &self.writers {
            let mut numbers = Vec::new();
            for key in 0..KEYS {
                let reply = client.command(&format!("GET {}", writer.key(key)))?;
                if let Some(error) = reply.error() {
                    found.error = Some(error);
                    return Ok(found);
                }
                let text = String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned();
                let number = text.split('.').next().unwrap_or_default();
                numbers.push(if reply.is_nil() { 0 } else { number.parse().with_context(|| format!("{text:.40}"))? });
            }
            found.keys.push(numbers);
        }
        Ok(found)
    }

    /// Checks that all acknowledged writes are there, and nothing but writes that were sent.
    pub fn expect_whole(&self, found: &Found) -> Result<()> {
        self.expect_prefix(found)?;
        for (writer, keys) in self.writers.iter().zip(&found.keys) {
            let last = keys.iter().copied().max().unwrap_or(0);
            let (acknowledged, number) = (writer.acknowledged, writer.number);
            ensure!(
                last >= acknowledged,
                "writer {number} had {acknowledged} acknowledged, and {last} is the last one"
            );
        }
        Ok(())
    }

    /// Checks that writes are there which had been acknowledged long before the server's end.
    pub fn expect_synced(&self, found: &Found) -> Result<()> {
        for (writer, keys) in self.writers.iter().zip(&found.keys) {
            let (last, synced, number) = (keys.iter().copied().max().unwrap_or(0), writer.synced, writer.number);
            ensure!(last >= synced, "writer {number} had {synced} acknowledged long ago, and {last} is the last one");
        }
        Ok(())
    }

    /// Checks that each writer's keys show all its writes up to one of them.
    pub fn expect_prefix(&self, found: &Found) -> Result<()> {
        if let Some(error) = &found.error {
            bail!("a read was refused: {error}");
        }
        for (writer, keys) in self.writers.iter().zip(&found.keys) {
            let last = keys.iter().copied().max().unwrap_or(0);
            ensure!(last <= writer.sent, "writer {} has sent {}, and {last} is there", writer.number, writer.sent);
            for (key, number) in (0..).zip(keys) {
                let expected = newest(last, key);
                ensure!(*number == expected, "{} is {number}, not {expected} ({last} is there)", writer.key(key));
            }
        }
        Ok(())
    }
}

/// Returns the newest write to a key among the first `last` ones; 0 if there is none.
fn newest(last: u64, key: u64) -> u64 {
    let back = (last % KEYS + KEYS - key) % KEYS;
    last.saturating_sub(back)
}

impl Writer {
    fn key(&self, key: u64) -> impl fmt::Display + use<> {
        format!("w{}:{key}", self.number)
    }

    fn write(&mut self, port: u16, pipeline: u64, until: Instant) -> Result<()> {
        let mut client = connect(port)?;
        let mut random = Random::of_part(self.seed ^ self.sent, self.number);
        self.refused = false;
        self.marks = vec![(Instant::now(), self.acknowledged)];
        while Instant::now() < until && !self.refused {
            let first = self.sent + 1;
            for number in first..first + pipeline {
                let padding = ".".repeat(random.between(1, 1200) as usize);
                client.push(&["SET".to_owned(), self.key(number % KEYS).to_string(), format!("{number}{padding}")]);
            }
            client.flush()?;
            self.sent += pipeline;
            for number in first..first + pipeline {
                let reply = client.read()?;
                match reply.error() {
                    None if reply.is_ok() => self.acknowledged = number,
                    // The refused write has no effect, nor has any behind it.
                    Some(error) if error.starts_with("MISCONF") && pipeline == 1 => {
                        (self.refused, self.sent) = (true, number - 1);
                    }
                    _ => bail!("a write was answered by {reply}"),
                }
            }
            if self.marks.last().is_none_or(|(then, _)| then.elapsed() >= MARK) {
                self.marks.push((Instant::now(), self.acknowledged));
            }
        }
        Ok(())
    }

    /// Remembers what had been acknowledged for so long before the server's end that it was synced.
    fn note_synced(&mut self, ended_at: Instant) {
        let is_old = |(then, _): &&(Instant, u64)| ended_at.saturating_duration_since(*then) >= SYNCED_AFTER;
        let synced = self.marks.iter().rev().find(is_old).map_or(0, |(_, number)| *number);
        self.synced = self.synced.max(synced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_of_keys_tells_what_is_there() {
        assert_eq!([newest(0, 0), newest(0, 5), newest(5, 5), newest(5, 6)], [0, 0, 5, 0]);
        assert_eq!([newest(KEYS, 0), newest(KEYS, 1), newest(KEYS + 3, 0), newest(KEYS + 3, 4)], [KEYS, 1, KEYS, 4]);
    }

    #[test]
    fn what_was_acknowledged_long_before_the_end_is_synced() {
        let mut load = Load::new(1);
        let (begin, writer) = (Instant::now(), &mut load.writers[0]);
        writer.marks = (0..5).map(|seconds| (begin + Duration::from_secs(seconds), 10 * seconds)).collect();
        (writer.acknowledged, writer.sent) = (40, 50);
        writer.note_synced(begin + Duration::from_secs(2) + SYNCED_AFTER);
        assert_eq!(writer.synced, 20);
        let found = |last: u64| {
            let mut keys = vec![vec![0; KEYS as usize]; WRITERS as usize];
            (1..=last).for_each(|number| keys[0][number as usize] = number);
            Found { keys, error: None }
        };
        assert!(load.expect_synced(&found(20)).is_ok() && load.expect_prefix(&found(20)).is_ok());
        assert!(load.expect_synced(&found(19)).is_err());
        load.resume_from(&found(45));
        assert_eq!((load.writers[0].acknowledged, load.writers[0].sent), (45, 45));
    }
}
