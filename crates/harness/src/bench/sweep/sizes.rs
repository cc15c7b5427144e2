//! The sweep of sizes: GET and SET at pipeline 16 and 1 over values of 128 bytes to 100 KB. Each server is started once
//! for each size and measured in all four ways; CPU time is counted as in the table, of all threads on one core, for
//! SET until flushes and compactions are over.

use anyhow::{Context, Result};

use super::Options;
use crate::bench::compare::{Measured, Rounds, fill, flushes};
use crate::bench::process::{cpu_seconds, idle_cpu_seconds};
use crate::bench::redis_benchmark::Load;
use crate::client::Client;
use crate::server::{Server, Template, Workplace};

/// Bytes of values.
pub const SIZES: &[u32] = &[128, 512, 1 << 10, 4 << 10, 10 << 10, 32 << 10, 100 << 10];

/// A command at a pipeline.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    load: &'static [&'static str],
    pub pipeline: u32,
    writes: bool,
    /// The cost of a request's way, as the bytes that are moved in that time.
    request_as_bytes: u64,
    /// The least bytes to write, so that flushes come as often as in the long run.
    bytes_min: u64,
}

const fn case(name: &'static str, load: &'static [&'static str], pipeline: u32, writes: bool) -> Case {
    let request_as_bytes = if pipeline == 1 { 5000 } else { 1000 };
    // The length of the log begins three flushes. At pipeline 1 flushes cost next to nothing of a small request, and so
    // many requests would take minutes.
    let bytes_min = if writes && pipeline > 1 { 800_000_000 } else { 0 };
    Case { name, load, pipeline, writes, request_as_bytes, bytes_min }
}

const GET: &[&str] = &["-t", "get"];
const SET: &[&str] = &["-t", "set"];
/// The cases; reads come first, while the data is at rest.
pub static CASES: [Case; 4] =
    [case("GET", GET, 16, false), case("GET", GET, 1, false), case("SET", SET, 16, true), case("SET", SET, 1, true)];

/// Bytes that are moved for one figure, in a second or two.
const BYTES: u64 = 1_500_000_000;
/// Bytes that the log adds to a value.
const LOG_OVERHEAD_BYTES: u64 = 42;
/// The most bytes of values: as many as in the row of the table with 10 KB. Small values are as many as in the other
/// rows.
const DATA_BYTES_MAX: u64 = 100 << 20;
const KEYS_MAX: u64 = 100_000;

impl Case {
    fn requests(&self, value_bytes: u32, scale: f64) -> u64 {
        let value_bytes = u64::from(value_bytes);
        let requests =
            (BYTES / (value_bytes + self.request_as_bytes)).max(self.bytes_min / (value_bytes + LOG_OVERHEAD_BYTES));
        ((requests as f64 * scale) as u64).max(200)
    }
}

fn keys(value_bytes: u32) -> u64 {
    (DATA_BYTES_MAX / u64::from(value_bytes)).min(KEYS_MAX)
}

/// The figures of one size in one case.
#[derive(Debug)]
pub struct Point {
    pub value_bytes: u32,
    pub case: &'static Case,
    pub rounds: Rounds,
}

pub fn measure(options: &Options) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for &value_bytes in &options.sizes {
        let mut rounds: [Rounds; 4] = Default::default();
        for _ in 0..options.rounds {
            let base = one_server(options, &options.base, value_bytes).context("redis-server")?;
            let ours = one_server(options, &options.server.with("--workers 1")?, value_bytes).context("our server")?;
            for (rounds, pair) in rounds.iter_mut().zip(base.into_iter().zip(ours)) {
                rounds.each.push(pair);
            }
        }
        for (case, rounds) in CASES.iter().zip(rounds) {
            let point = Point { value_bytes, case, rounds };
            println!("{}", line(&point));
            points.push(point);
        }
    }
    Ok(points)
}

/// Measures all cases on one server, in the order of [`CASES`].
fn one_server(options: &Options, template: &Template, value_bytes: u32) -> Result<Vec<Measured>> {
    let place = Workplace::new("sweep", None)?;
    let (server, _) = Server::start(&template.pinned_to(options.server_cpu), &place)?;
    let mut client = server.client()?;
    fill(&mut client, keys(value_bytes), value_bytes).context("the fill")?;
    let mut all = Vec::new();
    for case in &CASES {
        let measured = one_case(options, &server, &mut client, value_bytes, case);
        all.push(measured.with_context(|| format!("{} of {value_bytes} bytes", case.name))?);
    }
    drop(client);
    server.stop()?;
    Ok(all)
}

fn one_case(
    options: &Options,
    server: &Server,
    client: &mut Client,
    value_bytes: u32,
    case: &Case,
) -> Result<Measured> {
    let requests = case.requests(value_bytes, options.scale);
    let load = Load {
        port: server.port(),
        requests,
        pipeline: case.pipeline,
        keys: keys(value_bytes),
        value_bytes,
        connections: 50,

        cpu: Some(options.client_cpu),
        arguments: case.load,
        cert: None,
    };
    // All earlier writes are flushed and compacted before the measurement begins, and the data of a read has been read
    // once.
    idle_cpu_seconds(server.pid(), options.idle_max);
    if !case.writes {
        Load { requests: requests / 4, ..load }.run()?;
    }
    let (cpu_before, flushes_before) = (cpu_seconds(server.pid()), flushes(client)?);
    let mut measured = load.run()?;
    let cpu_after =
        if case.writes { idle_cpu_seconds(server.pid(), options.idle_max) } else { cpu_seconds(server.pid()) };
    measured.cpu_us = (cpu_after - cpu_before) / requests as f64 * 1e6;
    measured.flushes = flushes(client)? - flushes_before;
    Ok(measured)
}

/// Returns a size in bytes or KB.
pub fn size_name(bytes: u32) -> String {
    if bytes < 1024 { format!("{bytes} B") } else { format!("{} KB", bytes / 1024) }
}

fn line(point: &Point) -> String {
    let rounds = &point.rounds;
    let (low, high) = rounds.spread();
    format!(
        "{:>6}, {} at pipeline {:2}: ratio {:.2} ({low:.2}..{high:.2})  ours {:.2} us {:.0}/s  base {:.2} us {:.0}/s  flushes {}",
        size_name(point.value_bytes),
        point.case.name,
        point.case.pipeline,
        rounds.ratio(),
        rounds.ours(|m| m.cpu_us),
        rounds.ours(|m| m.rate),
        rounds.base(|m| m.cpu_us),
        rounds.base(|m| m.rate),
        rounds.flushes_min()
    )
}

pub fn table(points: &[Point]) -> String {
    let mut out = String::from(
        "| value | case | of Redis | spread | µs a request, ours | Redis | requests a second, ours | Redis | p99 ms, ours | Redis | flushes |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for point in points {
        let (rounds, (low, high)) = (&point.rounds, point.rounds.spread());
        out += &format!(
            "| {} | {}, pipeline {} | **{:.2}** | {low:.2} to {high:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.2} | {:.2} | {} |\n",
            size_name(point.value_bytes),
            point.case.name,
            point.case.pipeline,
            rounds.ratio(),
            rounds.ours(|m| m.cpu_us),
            rounds.base(|m| m.cpu_us),
            rounds.ours(|m| m.rate),
            rounds.base(|m| m.rate),
            rounds.ours(|m| m.p99_ms),
            rounds.base(|m| m.p99_ms),
            if point.case.writes { rounds.flushes_min().to_string() } else { "-".to_string() }
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_many_and_large_ones_fit_the_data() {
        assert_eq!(keys(128), KEYS_MAX);
        assert_eq!(keys(10 << 10), 10_240);
        for (size, next) in SIZES.iter().zip(&SIZES[1..]) {
            assert!(size < next && keys(*size) >= keys(*next));
            assert!(keys(*next) * u64::from(*next) <= DATA_BYTES_MAX);
        }
    }

    #[test]
    fn writes_of_a_pipeline_are_long_enough_for_three_flushes_of_the_log() {
        const FLUSH_LOG_BYTES: u64 = 256 << 20;
        for case in CASES.iter().filter(|case| case.writes && case.pipeline > 1) {
            for size in SIZES {
                let bytes = case.requests(*size, 1.0) * (u64::from(*size) + LOG_OVERHEAD_BYTES);
                assert!(bytes > 29 * FLUSH_LOG_BYTES / 10, "{size}: {bytes}");
            }
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_size_and_case() {
        let measured = |cpu_us| Measured { cpu_us, rate: 1.0, ..Measured::default() };
        let mut points = Vec::new();
        for &value_bytes in SIZES {
            for (number, case) in CASES.iter().enumerate() {
                let each = vec![(measured(2.0), measured(1.0 + number as f64))];
                points.push(Point { value_bytes, case, rounds: Rounds { each } });
            }
        }
        let table = table(&points);
        assert_eq!(table.lines().count(), 2 + points.len());
        assert!(table.contains("| 128 B | GET, pipeline 16 | **0.50** |"), "{table}");
        assert!(table.contains("| 100 KB | SET, pipeline 1 | **2.00** |"), "{table}");
    }
}
