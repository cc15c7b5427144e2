//! A redis-server and a server of ours that follow the same redis-server: CPU time to load its data, and to follow what
//! it does.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::pair::Pair;
use super::{Options, Row, median};
use crate::bench::process::{cpu_seconds, idle_cpu_seconds};
use crate::bench::redis_benchmark::Load;
use crate::server::Server;

/// The longest wait until a server is idle.
const IDLE_MAX: Duration = Duration::from_secs(120);

/// The bytes of a value that is loaded.
const VALUE_BYTES: u32 = 128;

/// Directives of the master, which keeps what is written while replicas load. Without a file of commands all of Redis
/// is cheaper.
const OF_MASTER: &str = "--appendonly no --enable-debug-command yes --repl-diskless-sync-delay 0 --repl-backlog-size 512mb \
     --client-output-buffer-limit \"replica 0 0 0\"";

/// The loads that are followed: redis-benchmark's test, and the most that ours may cost of Redis.
const LOADS: [(&str, &str, Option<f64>); 5] = [
    ("following a Redis: SET of 128 bytes, of a redis-server that follows it", "set", Some(1.2)),
    ("following a Redis: INCR", "incr", Some(1.2)),
    ("following a Redis: HSET", "hset", Some(1.2)),
    ("following a Redis: SADD", "sadd", Some(1.2)),
    ("following a Redis: ZADD", "zadd", Some(1.2)),
];

pub fn run(options: &Options) -> Result<Vec<Row>> {
    let mut ratios: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); LOADS.len() + 1];
    for _ in 0..options.rounds {
        for ((all, ours), (base, us)) in ratios.iter_mut().zip(round(options)?) {
            all.push(us / base);
            ours.push(us);
        }
    }
    let names =
        std::iter::once(("loading a Redis's data, with its flush, of a redis-server that loads them", "", Some(2.0)));
    let rows = names.chain(LOADS).zip(ratios);
    Ok(rows
        .map(|((name, _, at_most), (ratio, ours))| {
            let found = format!("{:.2} µs for each key or command", median(ours));
            Row { name, found, value: median(ratio), at_most }
        })
        .collect())
}

/// Returns the microseconds of redis-server and ours, for a key that is loaded, and for a command of each load.
fn round(options: &Options) -> Result<Vec<(f64, f64)>> {
    let master = Pair::start(&options.base.with(OF_MASTER)?, &options.dir, false)?;
    let keys = options.requests;
    let mut client = master.master.client()?;
    let populate = ["DEBUG", "POPULATE", &keys.to_string(), "loaded", &VALUE_BYTES.to_string()].map(str::to_owned);
    ensure!(client.call(&populate)?.is_ok(), "the master has no data");
    let base = options.base.with("--appendonly no")?;
    let (redis, _place) = master.start_beside(&base, &options.dir)?;
    let of_redis = idle(&redis) * 1e6 / keys as f64;
    let ours = options.server.with("--workers 1 --maxmemory 1gb")?;
    let (ours, _other_place) = master.start_beside(&ours, &options.dir)?;
    let mut found = vec![(of_redis, idle(&ours) * 1e6 / keys as f64)];
    for (_, test, _) in LOADS {
        let before = [&redis, &ours].map(|server| cpu_seconds(server.pid()));
        let load = Load {
            port: master.master.port(),
            requests: options.requests,
            pipeline: 16,
            keys: 100_000,
            value_bytes: VALUE_BYTES,
            connections: 50,
            cpu: None,
            arguments: &["-t", test],
            cert: None,
        };
        load.run().with_context(|| format!("the load of {test}"))?;
        for replica in [&redis, &ours] {
            master.wait_for(replica)?;
        }
        let us = |server: &Server, before: f64| (idle(server) - before) * 1e6 / options.requests as f64;
        found.push((us(&redis, before[0]), us(&ours, before[1])));
    }
    Ok(found)
}

fn idle(server: &Server) -> f64 {
    idle_cpu_seconds(server.pid(), IDLE_MAX)
}
