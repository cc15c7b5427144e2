//! The sweep of workers: GET and SET with one event loop and more, on all cores of the machine, which the clients use
//! too. With fewer cores than workers and clients, requests a second say how the machine is shared; the figure of the
//! server is its CPU time per request, over that with one worker and over that of redis-server.

use anyhow::{Context, Result};

use super::Options;
use crate::bench::compare::{Measured, median};
use crate::bench::disk::driver::{self, Done, Load, Until, Verb};
use crate::bench::disk::keys::Choice;
use crate::bench::process::{cpu_seconds, idle_cpu_seconds};
use crate::server::{Server, Template, Workplace};

const KEYS: u64 = 100_000;
const PIPELINE: u64 = 16;
/// Connections, each with a thread of the client.
const CONNECTIONS: u64 = 32;
const REQUESTS: u64 = 2_000_000;

/// A server with so many event loops, and its figures.
#[derive(Debug)]
pub struct Crew {
    /// The event loops; none for redis-server.
    pub workers: Option<u32>,
    pub get: Vec<Measured>,
    pub set: Vec<Measured>,
}

impl Crew {
    fn name(&self) -> String {
        self.workers.map_or_else(|| "redis-server".to_string(), |workers| workers.to_string())
    }
}

/// Measures redis-server first, then one worker and more, in each round.
pub fn measure(options: &Options) -> Result<Vec<Crew>> {
    let all = std::iter::once(None).chain((1..=options.workers_max).map(Some));
    let mut crews: Vec<Crew> = all.map(|workers| Crew { workers, get: vec![], set: vec![] }).collect();
    for _ in 0..options.rounds {
        for crew in &mut crews {
            let template = match crew.workers {
                None => options.base.clone(),
                Some(workers) => options.server.with(&format!("--workers {workers}"))?,
            };
            let (get, set) = one_server(options, &template).with_context(|| format!("workers: {}", crew.name()))?;
            println!(
                "workers {}: GET {:.2} us {:.0}/s  SET {:.2} us {:.0}/s",
                crew.name(),
                get.cpu_us,
                get.rate,
                set.cpu_us,
                set.rate
            );
            crew.get.push(get);
            crew.set.push(set);
        }
    }
    Ok(crews)
}

fn one_server(options: &Options, template: &Template) -> Result<(Measured, Measured)> {
    let place = Workplace::new("sweep", None)?;
    let (server, _) = Server::start(template, &place)?;
    let port = server.port();
    let load = |verb, choice, requests| {
        let until = Until::Count(requests);
        driver::run(port, &Load { verb, choice, connections: CONNECTIONS, pipeline: PIPELINE, until, seed: 1 })
    };
    load(Verb::Set, Choice::each_once(KEYS), KEYS).context("the fill")?;
    let requests = ((REQUESTS as f64 * options.scale) as u64).max(1000);
    let any = Choice::Uniform { keys: KEYS };
    let before = idle_cpu_seconds(server.pid(), options.idle_max);
    let get = load(Verb::Get, any.clone(), requests)?;
    let between = cpu_seconds(server.pid());
    let set = load(Verb::Set, any, requests)?;
    let after = idle_cpu_seconds(server.pid(), options.idle_max);
    server.stop()?;
    let measured = |done: &Done, cpu_seconds: f64| Measured {
        cpu_us: cpu_seconds / requests as f64 * 1e6,
        rate: done.rate(),
        p50_ms: done.percentile_ms(50.0),
        p99_ms: done.percentile_ms(99.0),
        flushes: 0,
    };
    Ok((measured(&get, between - before), measured(&set, after - between)))
}

/// Returns the CPU time of a crew over that of another, in the median of the rounds.
fn over(crew: &[Measured], other: &[Measured]) -> f64 {
    median(&crew.iter().zip(other).map(|(a, b)| a.cpu_us / b.cpu_us).collect::<Vec<_>>())
}

/// The crews that the others are compared with.
struct Yardsticks<'a> {
    redis: &'a Crew,
    one: &'a Crew,
}

impl Yardsticks<'_> {
    fn of(crews: &[Crew]) -> Option<Yardsticks<'_>> {
        Some(Yardsticks {
            redis: crews.iter().find(|crew| crew.workers.is_none())?,
            one: crews.iter().find(|crew| crew.workers == Some(1))?,
        })
    }
}

pub fn table(crews: &[Crew]) -> String {
    let mut out = String::from(
        "| workers | case | of Redis | of one worker | µs a request | requests a second | p99 ms |\n|---|---|---|---|---|---|---|\n",
    );
    let Some(yardsticks) = Yardsticks::of(crews) else { return out };
    let cases: [(&str, fn(&Crew) -> &[Measured]); 2] = [("GET", |crew| &crew.get), ("SET", |crew| &crew.set)];
    for (case, of) in cases {
        for crew in crews {
            let middle = |field: fn(&Measured) -> f64| median(&of(crew).iter().map(field).collect::<Vec<_>>());
            let shown = |ratio: f64| crew.workers.map_or_else(|| "-".to_string(), |_| format!("**{ratio:.2}**"));
            out += &format!(
                "| {} | {case}, pipeline {PIPELINE} | {} | {} | {:.2} | {:.0} | {:.2} |\n",
                crew.name(),
                shown(over(of(crew), of(yardsticks.redis))),
                shown(over(of(crew), of(yardsticks.one))),
                middle(|m| m.cpu_us),
                middle(|m| m.rate),
                middle(|m| m.p99_ms)
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crew(workers: Option<u32>, get: [f64; 3], set: [f64; 3]) -> Crew {
        let all = |costs: [f64; 3]| costs.map(|cpu_us| Measured { cpu_us, ..Measured::default() }).to_vec();
        Crew { workers, get: all(get), set: all(set) }
    }

    #[test]
    fn ratios_are_medians_over_rounds_against_both() {
        let crews = [
            crew(None, [2.0, 2.0, 2.0], [4.0, 4.0, 4.0]),
            crew(Some(1), [1.0, 2.0, 1.0], [2.0, 2.0, 2.0]),
            crew(Some(2), [1.5, 2.0, 1.5], [3.0, 2.0, 3.0]),
        ];
        let table = table(&crews);
        assert_eq!(table.lines().count(), 2 + 2 * crews.len());
        assert!(table.contains("| 2 | GET, pipeline 16 | **0.75** | **1.50** |"), "{table}");
        assert!(table.contains("| redis-server | SET, pipeline 16 | - | - |"), "{table}");
    }
}
