//! Measures the rows: our server and redis-server one after the other in alternating rounds, each pinned to one core of
//! its own, the client to another; CPU time is counted until background work has been idle.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::process::{Steal, idle_cpu_seconds};
use super::redis_benchmark::Load;
use super::rows::{Before, FLUSHES_MIN, Row};
use super::tls::Secured;
use crate::client::{Client, info_field};
use crate::server::{Server, Template, Workplace};

/// The way in which rows are measured.
pub struct Plan {
    pub base: Template,
    pub server: Template,
    pub rounds: u32,
    /// The factor on requests: below 1 for a smoke run.
    pub scale: f64,
    /// Whether write rows are made long enough for their flushes.
    pub flushes: bool,
    /// The longest time that background work may take to become idle.
    pub idle_max: Duration,
    pub server_cpu: u32,
    pub client_cpu: u32,
}

/// One server's figures in one round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// CPU microseconds per request.
    pub cpu_us: f64,
    /// Requests a second.
    pub rate: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Flushes completed during the measurement.
    pub flushes: u64,
}

/// The rounds of one case, each the base's figures and ours.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    pub each: Vec<(Measured, Measured)>,
}

impl Rounds {
    fn ratios(&self) -> Vec<f64> {
        let mut ratios: Vec<f64> = self.each.iter().map(|(base, ours)| ours.cpu_us / base.cpu_us).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    /// Returns the median of the rounds' ratios of CPU time: the figure that targets are for.
    pub fn ratio(&self) -> f64 {
        median(&self.ratios())
    }

    /// Returns the least and the greatest ratio.
    pub fn spread(&self) -> (f64, f64) {
        let ratios = self.ratios();
        (ratios.first().copied().unwrap_or(f64::NAN), ratios.last().copied().unwrap_or(f64::NAN))
    }

    pub fn base(&self, field: fn(&Measured) -> f64) -> f64 {
        median(&self.each.iter().map(|(base, _)| field(base)).collect::<Vec<_>>())
    }

    pub fn ours(&self, field: fn(&Measured) -> f64) -> f64 {
        median(&self.each.iter().map(|(_, ours)| field(ours)).collect::<Vec<_>>())
    }

    pub fn flushes_min(&self) -> u64 {
        self.each.iter().map(|(_, ours)| ours.flushes).min().unwrap_or(0)
    }
}

/// The result of a row.
pub struct Outcome {
    pub row: &'static Row,
    pub requests: u64,
    pub rounds: Rounds,
    /// Percent of the machine's time that was stolen during the measurement.
    pub steal: f64,
}

/// Returns the middle value; of an even number the mean of the two; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => f64::NAN,
        (n, middle) if n % 2 == 1 => values[middle],
        (_, middle) => (values[middle - 1] + values[middle]) / 2.0,
    }
}

impl Plan {
    pub fn measure(&self, row: &'static Row) -> Result<Outcome> {
        let steal = Steal::now();
        let mut requests = ((row.requests as f64 * self.scale) as u64).max(1000);
        if row.writes && self.flushes {
            requests = self.requests_for_flushes(row, requests)?;
        }
        let mut rounds = Rounds::default();
        for _ in 0..self.rounds {
            let base = self.one(row, &self.base, requests, true).context("redis-server")?;
            let ours = self.one(row, &self.server, requests, false).context("our server")?;
            rounds.each.push((base, ours));
        }
        Ok(Outcome { row, requests, rounds, steal: steal.percent_since() })
    }

    /// Returns a number of requests in which enough flushes complete.
    fn requests_for_flushes(&self, row: &'static Row, first: u64) -> Result<u64> {
        /// A bound: the rounds of that many requests take a few minutes.
        const REQUESTS_MAX: u64 = 60_000_000;
        let mut requests = first;
        loop {
            let flushes = self.one(row, &self.server, requests, false).context("our server")?.flushes;
            if flushes >= FLUSHES_MIN {
                // Where a flush begins varies, so that a just sufficient number gets a reserve.
                return Ok(if flushes == FLUSHES_MIN { requests + requests / 4 } else { requests });
            }
            ensure!(requests < REQUESTS_MAX, "{}: {flushes} flushes in {requests} requests", row.id);
            let factor = if flushes == 0 { 4.0 } else { (FLUSHES_MIN as f64 + 0.7) / flushes as f64 };
            requests = ((requests as f64 * factor) as u64).min(REQUESTS_MAX);
        }
    }

    /// Measures one server in one round, in a directory of its own.
    fn one(&self, row: &Row, template: &Template, requests: u64, is_base: bool) -> Result<Measured> {
        let place = Workplace::new("bench", None)?;
        let template = if is_base { template.clone() } else { template.with(row.directives)? };
        let secured = row.tls.then(|| Secured::new(&place)).transpose()?;
        let template = template.with(&secured.as_ref().map(Secured::directives).unwrap_or_default())?;
        let (server, _) = Server::start(&template.pinned_to(self.server_cpu), &place)?;
        let mut client = server.client()?;
        if row.before != Before::Nothing {
            fill(&mut client, row.keys, row.value_bytes)?;
        }
        if !row.first.is_empty() {
            let reply = client.call(row.first)?;
            ensure!(reply.error().is_none(), "{:?}: {reply}", row.first);
        }
        if row.before == Before::FilledAndFlushed && !is_base {
            push_out_of_memtable(&mut client)?;
            self.load(row, server.port(), secured.as_ref(), requests / 4)?;
        }
        let before = idle_cpu_seconds(server.pid(), self.idle_max);
        let flushes_before = flushes(&mut client)?;
        let mut measured = self.load(row, server.port(), secured.as_ref(), requests)?;
        let after = idle_cpu_seconds(server.pid(), self.idle_max);
        measured.cpu_us = (after - before) / requests as f64 * 1e6;
        measured.flushes = flushes(&mut client)? - flushes_before;
        drop(client);
        server.stop()?;
        Ok(measured)
    }

    fn load(&self, row: &Row, port: u16, secured: Option<&Secured>, requests: u64) -> Result<Measured> {
        let Row { pipeline, keys, value_bytes, load: arguments, .. } = *row;
        let (cpu, cert) = (Some(self.client_cpu), secured.map(|secured| secured.cert.as_path()));
        let port = secured.map_or(port, |secured| secured.port);
        Load { port, requests, pipeline, keys, value_bytes, connections: 50, cpu, arguments, cert }.run()
    }
}

/// Commands in one pipeline of a fill.
const FILL_PIPELINE: u64 = 500;

/// Writes every key that redis-benchmark will ask for.
pub(super) fn fill(client: &mut Client, keys: u64, value_bytes: u32) -> Result<()> {
    let value = vec![b'x'; value_bytes as usize];
    write_all(client, (0..keys).map(|number| format!("key:{number:012}")), &value)
}

/// Writes other keys until two memtables have been flushed: then neither generation holds what was written before.
fn push_out_of_memtable(client: &mut Client) -> Result<()> {
    const KEYS_MAX: u64 = 50_000_000;
    const BATCH: u64 = 20_000;
    let goal = flushes(client)? + 2;
    let value = [b'x'; 128];
    for batch in 0..KEYS_MAX / BATCH {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        write_all(client, numbers.map(|number| format!("filler:{number:012}")), &value)?;
        if flushes(client)? >= goal {
            return Ok(());
        }
    }
    bail!("two flushes did not complete within {KEYS_MAX} keys written");
}

fn write_all(client: &mut Client, keys: impl Iterator<Item = String>, value: &[u8]) -> Result<()> {
    let mut keys = keys.peekable();
    while keys.peek().is_some() {
        let mut sent = 0;
        for key in keys.by_ref().take(FILL_PIPELINE as usize) {
            client.push(&[b"SET", key.as_bytes(), value]);
            sent += 1;
        }
        client.flush()?;
        for _ in 0..sent {
            let reply = client.read()?;
            ensure!(reply.is_ok(), "SET was answered by {reply}");
        }
    }
    Ok(())
}

/// Returns the flushes completed since the server's start; 0 for a server that has none.
pub(super) fn flushes(client: &mut Client) -> Result<u64> {
    let info = client.info("store")?.unwrap_or_default();
    Ok(info_field(&info, "flushes_completed").and_then(|count| count.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
