//! The phases of the disk benchmark, each a function that returns rows of a table: the subject, the figure, the target
//! if the project has set one, and the figure of a control run of redis-server.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::driver::{Done, Load, Until, Verb, run};
use super::keys::{Choice, VALUE_BYTES, Zipf};
use super::watch::{Watched, watch};
use crate::bench::compare::median;
use crate::bench::process::{Steal, idle_cpu_seconds};
use crate::client::{Client, info_field};
use crate::server::{Server, Template, Workplace};

/// A line of the result.
pub struct Figure {
    pub what: String,
    pub value: String,
    pub target: Option<(String, bool)>,
}

impl Figure {
    fn plain(what: impl Into<String>, value: impl Into<String>) -> Figure {
        Figure { what: what.into(), value: value.into(), target: None }
    }
}

/// A server under measurement, and the amount of work.
pub struct Bench<'a> {
    pub server: &'a Server,
    pub dir: &'a Path,
    pub name: &'static str,
    pub keys: u64,
    /// The length of one measurement of reads.
    pub window: Duration,
    pub seed: u64,
    /// The memory budget, for a server that has one.
    pub budget_bytes: Option<u64>,
}

fn at_most(what: impl Into<String>, value: f64, unit: &str, bound: f64) -> Figure {
    let target = Some((format!("at most {bound}{unit}"), value <= bound));
    Figure { what: what.into(), value: format!("{value:.2}{unit}"), target }
}

/// Windows whose median counts.
const WINDOWS: usize = 3;
const COLD_READERS: u64 = 16;
const HOT_KEYS: u64 = 10_000;
const SETTLE_MAX: Duration = Duration::from_secs(600);

fn summary(done: &Done, watched: &Watched) -> String {
    format!(
        "{:.0} a second, {:.2} µs of CPU each, p50 {:.3} ms, p99 {:.3} ms; {:.0} MB resident at most, {:.1} GB on disk at \
         most, {:.1} % stolen",
        done.rate(),
        watched.cpu_seconds / done.operations as f64 * 1e6,
        done.percentile_ms(50.0),
        done.percentile_ms(99.0),
        watched.resident_bytes_max as f64 / 1e6,
        watched.disk_bytes_max as f64 / 1e9,
        watched.steal_percent
    )
}

impl Bench<'_> {
    /// Returns a figure with a target; redis-server's figures have none.
    fn at_most(&self, what: impl Into<String>, value: f64, unit: &str, bound: f64) -> Figure {
        let figure = at_most(what, value, unit, bound);
        if self.budget_bytes.is_some() { figure } else { Figure { target: None, ..figure } }
    }

    fn run(&self, load: &Load) -> Result<(Done, Watched)> {
        watch(self.server.pid(), self.dir, || run(self.server.port(), load))
    }

    fn load(&self, verb: Verb, choice: Choice, connections: u64, pipeline: u64, until: Until) -> Load {
        Load { verb, choice, connections, pipeline, until, seed: self.seed }
    }

    /// Writes every key once, in an order that jumps about, and waits until background work is idle.
    pub fn fill(&self) -> Result<Vec<Figure>> {
        let load = self.load(Verb::Set, Choice::each_once(self.keys), 4, 64, Until::Count(self.keys));
        let (done, watched) = self.run(&load)?;
        let begin = Instant::now();
        let (_, settled) = watch(self.server.pid(), self.dir, || {
            idle_cpu_seconds(self.server.pid(), SETTLE_MAX);
            Ok(())
        })?;
        let mut figures = vec![
            Figure::plain(format!("{}: fill of {} keys", self.name, self.keys), summary(&done, &watched)),
            Figure::plain(
                format!("{}: settling after the fill", self.name),
                format!(
                    "{:.0} s, {:.1} s of CPU, {:.1} GB on disk at most",
                    begin.elapsed().as_secs_f64(),
                    settled.cpu_seconds,
                    settled.disk_bytes_max as f64 / 1e9
                ),
            ),
        ];
        figures.extend(self.memory("fill", &watched));
        Ok(figures)
    }

    fn memory(&self, phase: &str, watched: &Watched) -> Option<Figure> {
        let share = watched.resident_bytes_max as f64 / self.budget_bytes? as f64;
        Some(at_most(format!("{}: resident memory over the budget, {phase}", self.name), share, "", 1.1))
    }

    /// Measures random reads of all keys, uniform and by Zipf.
    pub fn reads(&self) -> Result<Vec<Figure>> {
        let choices = [("uniform", Choice::Uniform { keys: self.keys }), ("zipf", Choice::Zipf(Zipf::new(self.keys)))];
        let mut figures = Vec::new();
        for (name, choice) in choices {
            let load = self.load(Verb::Get, choice, COLD_READERS, 1, Until::Time(self.window));
            let (done, watched) = self.run(&load)?;
            let what = format!("{}: GET, {name}, {COLD_READERS} connections", self.name);
            figures.push(Figure::plain(what, summary(&done, &watched)));
            figures.extend(self.memory(name, &watched));
        }
        Ok(figures)
    }

    /// Measures the 99th percentile of hot reads without and with cold readers beside, by the server's own histogram
    /// and as the client sees it, whose threads share their cores. Cold readers use another command, so that a server
    /// that counts by command can tell them apart.
    pub fn hot_beside_cold(&self) -> Result<Vec<Figure>> {
        let port = self.server.port();
        let hot = self.load(Verb::Get, Choice::Uniform { keys: HOT_KEYS }, 1, 1, Until::Time(self.window));
        let cold_choice = Choice::Uniform { keys: self.keys };
        let cold = self.load(Verb::GetRange, cold_choice, COLD_READERS, 1, Until::Time(self.window));
        // Two rounds through all hot keys make them hot.
        run(port, &self.load(Verb::Get, Choice::each_once(HOT_KEYS), 1, 16, Until::Count(2 * HOT_KEYS)))?;
        let mut client = self.server.client()?;
        let (mut alone, mut beside, mut cold_rates) = (P99s::default(), P99s::default(), vec![]);
        let mut hot_rates = (vec![], vec![]);
        let steal = Steal::now();
        for _ in 0..WINDOWS {
            forget(&mut client)?;
            let hot_alone = run(port, &hot)?;
            hot_rates.0.push(hot_alone.rate());
            alone.add(&hot_alone, &mut client)?;
            forget(&mut client)?;
            let (cold_done, hot_done) = thread::scope(|scope| {
                let cold_done = scope.spawn(|| run(port, &cold));
                let hot_done = run(port, &hot);
                (cold_done.join().expect("the load does not panic"), hot_done)
            });
            let hot_done = hot_done?;
            hot_rates.1.push(hot_done.rate());
            beside.add(&hot_done, &mut client)?;
            cold_rates.push(cold_done?.rate());
        }
        let title =
            |by: &str| format!("{}: hot GET p99 by {by}, beside {COLD_READERS} cold readers over alone", self.name);
        let (by_clients, by_server) = (beside.clients() / alone.clients(), beside.server() / alone.server());
        Ok(vec![
            Figure::plain(
                format!("{}: hot GET p99 alone and beside cold readers", self.name),
                format!(
                    "{:.0} and {:.0} µs by the server, {:.0} and {:.0} µs by the client, at {:.0} and {:.0} hot reads and \
                     {:.0} cold reads a second, {:.1} % stolen",
                    alone.server(),
                    beside.server(),
                    alone.clients(),
                    beside.clients(),
                    median(&hot_rates.0),
                    median(&hot_rates.1),
                    median(&cold_rates),
                    steal.percent_since()
                ),
            ),
            self.at_most(title("the server"), by_server, "", 2.0),
            Figure::plain(title("the client"), format!("{by_clients:.2}")),
        ])
    }

    /// Overwrites random keys for a long time, counted second by second, after a warm-up of a tenth of that time.
    pub fn sustained_writes(&self, time: Duration) -> Result<Vec<Figure>> {
        let load = |time| self.load(Verb::Set, Choice::Uniform { keys: self.keys }, 4, 16, Until::Time(time));
        // The server has just been started: neither its filters nor what it learns of keys are in memory yet.
        self.run(&load(time / 10))?;
        let (done, watched) = self.run(&load(time))?;
        let seconds: Vec<f64> = done.each_second.iter().map(|count| *count as f64).collect();
        let (middle, least) = (median(&seconds), seconds.iter().copied().fold(f64::INFINITY, f64::min));
        let slow = seconds.iter().filter(|count| **count < middle / 2.0).count();
        let slowest = seconds.iter().position(|count| *count == least).unwrap_or_default();
        let what = format!("{}: SET, uniform, {} s", self.name, time.as_secs());
        let mut figures = vec![Figure::plain(what, summary(&done, &watched))];
        let share = least / middle;
        figures.push(Figure {
            what: format!("{}: its slowest second over its median one", self.name),
            value: format!("{share:.2}, second {slowest}; {slow} of {} seconds under a half", seconds.len()),
            target: self.budget_bytes.map(|_| ("at least 0.5".to_string(), share >= 0.5)),
        });
        figures.extend(self.memory("writes", &watched));
        Ok(figures)
    }

    /// Measures how long DEL, EXPIRE, RENAME and FLUSHDB take, on small data and on a hundred megabytes.
    pub fn constant_time(&self) -> Result<Vec<Figure>> {
        const BIG_BYTES: usize = 100 << 20;
        let mut client = self.server.client()?;
        let mut figures = Vec::new();
        for (size, bytes) in [("10 bytes", 10), ("100 MB", BIG_BYTES)] {
            let mut times: [Vec<f64>; 3] = Default::default();
            for _ in 0..WINDOWS {
                write_value(&mut client, "o:a", bytes)?;
                // A burst of writes slows down all writes behind it until it is flushed.
                idle_cpu_seconds(self.server.pid(), SETTLE_MAX);
                times[0].push(timed(&mut client, "EXPIRE o:a 100000")?);
                times[1].push(timed(&mut client, "RENAME o:a o:b")?);
                times[2].push(timed(&mut client, "DEL o:b")?);
            }
            for (name, times) in ["EXPIRE", "RENAME", "DEL"].iter().zip(times) {
                figures.push(self.at_most(format!("{}: {name} of {size}", self.name), median(&times), " ms", 1.0));
            }
        }
        for (size, keys) in [("10 keys", 10), ("100 MB in keys", (BIG_BYTES / VALUE_BYTES) as u64)] {
            let mut times = Vec::new();
            for _ in 0..WINDOWS {
                fill_database(&mut client, 15, keys)?;
                times.push(timed(&mut client, "FLUSHDB")?);
            }
            figures.push(self.at_most(format!("{}: FLUSHDB of {size}", self.name), median(&times), " ms", 1.0));
        }
        client.command("SELECT 0")?;
        Ok(figures)
    }
}

/// The 99th percentiles of several windows, in microseconds, as both sides saw them.
#[derive(Default)]
struct P99s {
    client_us: Vec<f64>,
    server_us: Vec<f64>,
}

impl P99s {
    fn add(&mut self, done: &Done, client: &mut Client) -> Result<()> {
        self.client_us.push(done.percentile_ms(99.0) * 1000.0);
        // Our server has a section `waits`; Redis answers nothing for it.
        let [waits, commands] = ["waits", "latencystats"].map(|section| client.info(section));
        let info = [waits?.unwrap_or_default(), commands?.unwrap_or_default()].concat();
        self.server_us.extend(server_p99_us(&info));
        Ok(())
    }

    fn clients(&self) -> f64 {
        median(&self.client_us)
    }

    fn server(&self) -> f64 {
        median(&self.server_us)
    }
}

/// Returns the 99th percentile of hot reads that a server itself counted: Haypile's of commands that ran inline, from
/// the read of their bytes to the write of their reply; Redis's of GET, without the time before and after the command.
pub fn server_p99_us(info: &str) -> Option<f64> {
    let fields = ["reply_usec_inline", "latency_percentiles_usec_get"];
    let line = fields.iter().find_map(|name| info_field(info, name))?;
    line.split(',').find_map(|part| part.strip_prefix("p99=")?.trim().parse().ok())
}

/// Empties the server's histograms, so that they are of the window that begins.
pub fn forget(client: &mut Client) -> Result<()> {
    let reply = client.command("CONFIG RESETSTAT")?;
    ensure!(reply.is_ok(), "CONFIG RESETSTAT was answered by {reply}");
    Ok(())
}

fn timed(client: &mut Client, words: &str) -> Result<f64> {
    let begin = Instant::now();
    let reply = client.command(words)?;
    ensure!(reply.error().is_none(), "{words} was answered by {reply}");
    Ok(begin.elapsed().as_secs_f64() * 1000.0)
}

/// Writes a string of so many bytes, in pieces of at most a megabyte.
fn write_value(client: &mut Client, key: &str, bytes: usize) -> Result<()> {
    let piece = vec![b'b'; bytes.min(1 << 20)];
    client.call(&["DEL", key])?;
    for offset in (0..bytes).step_by(piece.len()) {
        let reply = client.call(&[b"SETRANGE", key.as_bytes(), offset.to_string().as_bytes(), &piece])?;
        ensure!(reply.integer().is_some(), "SETRANGE was answered by {reply}");
    }
    Ok(())
}

fn fill_database(client: &mut Client, database: u32, keys: u64) -> Result<()> {
    const PIPELINE: u64 = 500;
    client.command(&format!("SELECT {database}"))?;
    for first in (0..keys).step_by(PIPELINE as usize) {
        let batch = first..(first + PIPELINE).min(keys);
        for number in batch.clone() {
            client.push(&[b"SET", &super::keys::key(number)[..], &super::keys::value(number)[..]]);
        }
        client.flush()?;
        for _ in batch {
            let reply = client.read()?;
            ensure!(reply.is_ok(), "SET was answered by {reply}");
        }
    }
    Ok(())
}

/// Measures how long a start takes after a clean stop, and how fast the log is replayed after a kill.
pub fn starts(template: &Template, keys: u64, dir: &Path, seed: u64) -> Result<Vec<Figure>> {
    // With so much memory nothing is flushed before the kill.
    let roomy = template.with("--maxmemory 3gb --memtable-size 1gb --flush-log-bytes 2gb")?;
    let place = Workplace::new("bench-start", Some(dir))?;
    let (server, _) = Server::start(&roomy, &place)?;
    let load =
        |until| Load { verb: Verb::Set, choice: Choice::each_once(keys), connections: 4, pipeline: 64, until, seed };
    run(server.port(), &load(Until::Count(keys)))?;
    server.stop()?;
    let (mut server, clean) = Server::start(&roomy, &place)?;
    run(server.port(), &load(Until::Count(keys)))?;
    let info = server.client()?.info("log")?.unwrap_or_default();
    let bytes = info_field(&info, "log_since_applied_bytes").and_then(|count| count.parse::<u64>().ok());
    let megabytes = bytes.context("INFO says how much of the log is not in the base")? as f64 / 1e6;
    server.kill()?;
    let (server, replay) = Server::start(&roomy, &place)?;
    server.stop()?;
    let rate = megabytes / replay.seconds;
    Ok(vec![
        at_most("start after a clean stop", clean.seconds, " s", 1.0),
        Figure {
            what: format!("start after a kill, with {megabytes:.0} MB of log to replay"),
            value: format!("{:.2} s, {rate:.0} MB a second, {} times LOADING", replay.seconds, replay.loading_replies),
            target: Some(("at least 200 MB a second".to_string(), rate >= 200.0)),
        },
    ])
}

/// Measures CPU time per operation with two workers over that with one, both on all cores, the median of alternating
/// rounds.
pub fn workers(template: &Template, rounds: u32, operations: u64, seed: u64) -> Result<Vec<Figure>> {
    const KEYS: u64 = 100_000;
    let mut figures = Vec::new();
    for (name, verb) in [("SET", Verb::Set), ("GET", Verb::Get)] {
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let mut cost = [0.0; 2];
            for (workers, cost) in (1..).zip(&mut cost) {
                let place = Workplace::new("workers", None)?;
                let template = template.with(&format!("--workers {workers}"))?;
                let (server, _) = Server::start(&template, &place)?;
                let port = server.port();
                let once = Choice::each_once(KEYS);
                run(
                    port,
                    &Load {
                        verb: Verb::Set,
                        choice: once,
                        connections: 4,
                        pipeline: 64,
                        until: Until::Count(KEYS),
                        seed,
                    },
                )?;
                let before = idle_cpu_seconds(server.pid(), SETTLE_MAX);
                let choice = Choice::Uniform { keys: KEYS };
                run(
                    port,
                    &Load { verb, choice, connections: 32, pipeline: 16, until: Until::Count(operations), seed },
                )?;
                *cost = (idle_cpu_seconds(server.pid(), SETTLE_MAX) - before) / operations as f64;
                server.stop().context("after a round of workers")?;
            }
            ratios.push(cost[1] / cost[0]);
        }
        let what = format!("{name}, pipeline 16: CPU of two workers over one");
        figures.push(at_most(what, median(&ratios), "", 1.15));
    }
    Ok(figures)
}
