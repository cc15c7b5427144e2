//! The load of the disk benchmarks: threads with a connection each, pipelined, every reply checked, latencies and the
//! work of each second counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;

use super::keys::{Choice, key, value};
use crate::client::{Client, Reply};
use crate::random::Random;
use crate::server::REPLY_TIMEOUT;

/// The command that is sent for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Set,
    Get,
    /// A read that the server counts apart from GET: `GETRANGE key 0 -1`.
    GetRange,
}

#[derive(Clone, Copy, Debug)]
pub enum Until {
    Count(u64),
    Time(Duration),
}

#[derive(Clone, Debug)]
pub struct Load {
    pub verb: Verb,
    pub choice: Choice,
    pub connections: u64,
    pub pipeline: u64,
    pub until: Until,
    pub seed: u64,
}

/// The results of a load.
#[derive(Debug)]
pub struct Done {
    pub operations: u64,
    pub seconds: f64,
    /// Microseconds from the sending of a pipeline to its last reply.
    pub latency_us: Histogram<u64>,
    /// Operations completed in each whole second.
    pub each_second: Vec<u64>,
}

impl Done {
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Returns a percentile of the latency in milliseconds.
    pub fn percentile_ms(&self, percentile: f64) -> f64 {
        self.latency_us.value_at_percentile(percentile) as f64 / 1000.0
    }
}

/// Returns a histogram of three digits, up to a minute, which is longer than any reply is waited for.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are constant and valid")
}

/// Runs a load to its end.
pub fn run(port: u16, load: &Load) -> Result<Done> {
    let begin = Instant::now();
    let next = AtomicU64::new(0);
    let results: Vec<Result<Done>> = thread::scope(|scope| {
        let (next, load) = (&next, &load);
        let start = |number| scope.spawn(move || one_connection(port, load, number, next, begin));
        let threads: Vec<_> = (0..load.connections).map(start).collect();
        threads.into_iter().map(|t| t.join().expect("a connection's thread does not panic")).collect()
    });
    let mut all =
        Done { operations: 0, seconds: begin.elapsed().as_secs_f64(), latency_us: histogram(), each_second: vec![] };
    for result in results {
        let done = result?;
        all.operations += done.operations;
        all.latency_us.add(&done.latency_us).context("histograms of the same bounds")?;
        all.each_second.resize(all.each_second.len().max(done.each_second.len()), 0);
        for (sum, count) in all.each_second.iter_mut().zip(&done.each_second) {
            *sum += count;
        }
    }
    all.each_second.truncate(all.seconds as usize);
    Ok(all)
}

fn one_connection(port: u16, load: &Load, number: u64, next: &AtomicU64, begin: Instant) -> Result<Done> {
    let mut client = Client::connect(port, REPLY_TIMEOUT).context("connecting")?;
    let mut random = Random::of_part(load.seed, number);
    let mut done = Done { operations: 0, seconds: 0.0, latency_us: histogram(), each_second: vec![] };
    let mut keys = Vec::new();
    loop {
        let first = next.fetch_add(load.pipeline, Ordering::Relaxed);
        let count = match load.until {
            Until::Count(count) => load.pipeline.min(count.saturating_sub(first)),
            Until::Time(time) if begin.elapsed() < time => load.pipeline,
            Until::Time(_) => 0,
        };
        if count == 0 {
            return Ok(done);
        }
        keys.clear();
        for number in first..first + count {
            let chosen = load.choice.pick(&mut random, number);
            keys.push(chosen);
            match load.verb {
                Verb::Set => client.push(&[b"SET", &key(chosen)[..], &value(chosen)[..]]),
                Verb::Get => client.push(&[b"GET", &key(chosen)[..]]),
                Verb::GetRange => client.push(&[b"GETRANGE", &key(chosen)[..], b"0", b"-1"]),
            }
        }
        let sent = Instant::now();
        client.flush()?;
        for chosen in &keys {
            check(load.verb, *chosen, &client.read()?)?;
        }
        let us = sent.elapsed().as_micros() as u64;
        done.latency_us.saturating_record(us.max(1));
        done.operations += count;
        let second = begin.elapsed().as_secs() as usize;
        if done.each_second.len() <= second {
            done.each_second.resize(second + 1, 0);
        }
        done.each_second[second] += count;
    }
}

/// Fails unless the reply is the right one: a benchmark of wrong answers is worth nothing.
fn check(verb: Verb, number: u64, reply: &Reply) -> Result<()> {
    let right = match (verb, reply) {
        (Verb::Set, reply) => reply.is_ok(),
        (_, Reply::Bulk(bytes)) => bytes[..] == value(number)[..],
        _ => false,
    };
    if !right {
        bail!("{verb:?} of key {number} was answered by {reply}");
    }
    Ok(())
}
