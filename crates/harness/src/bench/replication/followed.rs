//! A server of ours with and without a redis-server that follows it, and a redis-server likewise: CPU time for a write.

use std::time::Duration;

use anyhow::{Context, Result};

use super::pair::Pair;
use super::{Options, Row, median};
use crate::bench::process::{cpu_seconds, idle_cpu_seconds};
use crate::bench::redis_benchmark::Load;
use crate::client::info_field;
use crate::server::{Server, Template};

/// The longest wait until a server is idle, and until a replica has all.
const IDLE_MAX: Duration = Duration::from_secs(120);

/// The loads, and the most that one which is followed may cost of one which is not.
const LOADS: [(&str, &str, f64); 4] = [
    ("a Redis follows: SET of 128 bytes, of the same server without", "set", 1.3),
    ("a Redis follows: INCR", "incr", 1.3),
    ("a Redis follows: HSET", "hset", 1.3),
    ("a Redis follows: ZADD", "zadd", 1.3),
];

pub fn run(options: &Options) -> Result<Vec<Row>> {
    let mut ratios: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); LOADS.len()];
    for _ in 0..options.rounds {
        let ours = round(&options.server.with("--workers 1 --maxmemory 1gb")?, options)?;
        let theirs = round(&options.base.with("--appendonly no --repl-diskless-sync-delay 0")?, options)?;
        for ((of_ours, of_redis), (ours, theirs)) in ratios.iter_mut().zip(ours.into_iter().zip(theirs)) {
            of_ours.push(ours);
            of_redis.push(theirs);
        }
    }
    let rows = LOADS.iter().zip(ratios).map(|((name, _, at_most), (ours, theirs))| {
        let found = format!("a redis-server in the same run: {:.2}", median(theirs));
        Row { name, found, value: median(ours), at_most: Some(*at_most) }
    });
    Ok(rows.collect())
}

/// Returns what each load costs a server that is followed, of one that is not: both take each load by turns.
fn round(template: &Template, options: &Options) -> Result<Vec<f64>> {
    let (alone, followed) = (Pair::start(template, &options.dir, false)?, Pair::start(template, &options.dir, false)?);
    let follows = options.base.with("--appendonly no")?;
    let (replica, _place) = followed.start_follower(&follows, &options.dir)?;
    let mut found = Vec::new();
    for (_, test, _) in LOADS {
        let mut spent = [0.0; 2];
        // Once to warm up, and then by turns.
        for turn in 0..3 {
            for (server, spent) in [&alone.master, &followed.master].into_iter().zip(&mut spent) {
                let before = cpu_seconds(server.pid());
                load(server.port(), test, options.requests).with_context(|| format!("the load of {test}"))?;
                wait_for_all(&followed.master, &replica)?;
                let cpu = idle_cpu_seconds(server.pid(), IDLE_MAX) - before;
                *spent += if turn == 0 { 0.0 } else { cpu };
            }
        }
        found.push(spent[1] / spent[0]);
    }
    Ok(found)
}

fn load(port: u16, test: &str, requests: u64) -> Result<()> {
    let (pipeline, keys, connections) = (16, 100_000, 50);
    let arguments = &["-t", test];
    let load = Load { port, requests, pipeline, keys, value_bytes: 128, connections, cpu: None, arguments, cert: None };
    load.run().map(drop)
}

/// Waits until a replica has acknowledged all.
fn wait_for_all(master: &Server, replica: &Server) -> Result<()> {
    let mut client = master.client()?;
    let (mut of_replica, begin) = (replica.client()?, std::time::Instant::now());
    loop {
        let behind = client.call(&["WAIT", "1", "1000"])?.integer() != Some(1);
        let info = of_replica.info("replication")?.unwrap_or_default();
        if !behind && info_field(&info, "master_link_status") == Some("up") {
            return Ok(());
        }
        anyhow::ensure!(begin.elapsed() < IDLE_MAX, "the replica does not get to the end");
    }
}
