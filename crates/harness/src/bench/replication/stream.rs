//! SET at pipeline 16 on a master without a replica and with one: CPU time of either, and how far the replica is
//! behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use anyhow::{Context, Result};

use super::pair::{Pair, info};
use super::{Options, Row, median};
use crate::bench::process::{cpu_seconds, idle_cpu_seconds};
use crate::bench::redis_benchmark::Load;
use crate::client::info_field;
use crate::server::{Server, Template};

/// The longest wait until a server is idle.
const IDLE_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// Microseconds of CPU time for each SET, and how far the replica was behind.
#[derive(Default)]
struct Cost {
    master: f64,
    replica: f64,
    /// The 99th percentile of the replica's own measure, in milliseconds.
    lag_p99_ms: f64,
}

pub fn run(options: &Options) -> Result<Vec<Row>> {
    let directives = "--workers 1 --maxmemory 512mb";
    let ours = options.server.with(directives)?;
    let (mut alone, mut with, mut of_replica, mut both, mut lags) = (vec![], vec![], vec![], vec![], vec![]);
    let mut found = [vec![], vec![], vec![]];
    for _ in 0..options.rounds {
        let single = measure(options, &ours, false)?;
        let pair = measure(options, &ours, true)?;
        let base = measure(options, &options.base, true)?;
        alone.push(single.master);
        with.push(pair.master / single.master);
        of_replica.push(pair.replica / pair.master);
        both.push((pair.master + pair.replica) / (base.master + base.replica));
        lags.push(pair.lag_p99_ms);
        found[0].push(pair.master);
        found[1].push(pair.replica);
        found[2].push(base.master + base.replica);
    }
    let [master, replica, base] = found.map(median);
    Ok(vec![
        Row {
            name: "SET, pipeline 16: CPU time of a master with a replica, of one without",
            found: format!("{master:.2} µs of {:.2}", median(alone)),
            value: median(with),
            at_most: Some(1.15),
        },
        Row {
            name: "CPU time of the replica, of its master's",
            found: format!("{replica:.2} µs"),
            value: median(of_replica),
            at_most: Some(0.6),
        },
        Row {
            name: "CPU time of both, of redis-server with a replica",
            found: format!("{:.2} µs of {base:.2}", master + replica),
            value: median(both),
            at_most: Some(0.85),
        },
        Row {
            name: "lag of the replica under this load, p99, in milliseconds",
            found: "as INFO of the replica says, every 10 ms".into(),
            value: median(lags),
            at_most: Some(50.0),
        },
    ])
}

fn measure(options: &Options, template: &Template, has_replica: bool) -> Result<Cost> {
    let pair = Pair::start(template, &options.dir, has_replica)?;
    let cpu = |server: &Server| cpu_seconds(server.pid());
    let before = (cpu(&pair.master), pair.replica.as_ref().map_or(0.0, cpu));
    let load = Load {
        port: pair.master.port(),
        requests: options.requests,
        pipeline: 16,
        keys: 100_000,
        value_bytes: 128,
        connections: 50,
        cpu: None,
        arguments: &["-t", "set"],
        cert: None,
    };
    let done = AtomicBool::new(false);
    let mut lags = scope(|threads| -> Result<Vec<f64>> {
        let watch = threads.spawn(|| pair.replica.as_ref().map_or(Ok(Vec::new()), |replica| watch(replica, &done)));
        let ran = load.run();
        done.store(true, Ordering::Relaxed);
        let lags = watch.join().expect("it does not panic");
        ran.and(lags)
    })?;
    if has_replica {
        pair.wait_for_replica()?;
    }
    let idle = |server: &Server| idle_cpu_seconds(server.pid(), IDLE_MAX);
    let after = (idle(&pair.master), pair.replica.as_ref().map_or(0.0, idle));
    let us = 1e6 / options.requests as f64;
    lags.sort_by(f64::total_cmp);
    let lag_p99_ms = lags.get(lags.len() * 99 / 100).map_or(0.0, |lag| lag * 1000.0);
    Ok(Cost { master: (after.0 - before.0) * us, replica: (after.1 - before.1) * us, lag_p99_ms })
}

/// Reads how far a replica is behind, until the load is done; 0 for one that does not say.
fn watch(replica: &Server, done: &AtomicBool) -> Result<Vec<f64>> {
    let mut lags = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let info = info(replica)?;
        if let Some(lag) = info_field(&info, "slave_lag_seconds") {
            lags.push(lag.parse().context("a lag is a number")?);
        }
        sleep(LOOK);
    }
    Ok(lags)
}
