//! Writers that each own a ring of keys and write ascending numbers to it, so that the keys show up to which write
//! everything is there, and whether one in between is missing.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::connect;
use crate::random::Random;

const WRITERS: u64 = 6;
/// Keys of a writer; the write with number n goes to key n modulo this.
const KEYS: u64 = 400;

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
        let writer = |number| Writer { number, seed, acknowledged: 0, sent: 0, refused: false };
        Load { writers: (0..WRITERS).map(writer).collect() }
    }

    /// Runs all writers for a while, `pipeline` writes at a time, and `meanwhile` beside them. A writer whose write is
    /// refused ends.
    pub fn write(&mut self, port: u16, pipeline: u64, time: Duration, meanwhile: impl FnOnce()) -> Result<()> {
        let until = Instant::now() + time;
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .writers
                .iter_mut()
                .map(|writer| scope.spawn(move || writer.write(port, pipeline, until)))
                .collect();
            meanwhile();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a writer does not panic"))
        })
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
        // Writes in flight at the last end may be there or not: the numbers go on behind them.
        self.acknowledged = self.sent;
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
        }
        Ok(())
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
}
