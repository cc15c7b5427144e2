//! A full resync beside a copy of the same files, what others wait for meanwhile, and the promotion of the replica.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use super::pair::Pair;
use super::{Options, Row, median};
use crate::bench::process::{disk_bytes, idle_cpu_seconds};
use crate::client::Client;
use crate::random::Random;
use crate::server::{REPLY_TIMEOUT, Server, Workplace};

const VALUE_BYTES: usize = 1000;
/// Values in one pipeline of the fill.
const PIPELINE: u64 = 100;
/// The longest wait until the master is idle.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// The pause of the client that others' waits are measured with.
const PAUSE: Duration = Duration::from_micros(500);

pub fn run(options: &Options) -> Result<Vec<Row>> {
    let template = options.server.with("--maxmemory 1gb")?;
    let mut pair = Pair::start(&template, &options.dir, false)?;
    fill(&pair.master, options.sync_keys)?;
    let data = pair.places[0].data();
    let bytes = disk_bytes(&data);
    let copied = copy_files(&data, &options.dir)?;
    // The fill's compactions have ended, and what the client reads is in memory, as it is later on.
    idle_cpu_seconds(pair.master.pid(), IDLE_MAX);
    let wait = |_: &Pair| {
        sleep(Duration::from_secs_f64(copied.as_secs_f64().clamp(5.0, 30.0)));
        Ok(())
    };
    others(&pair, options.sync_keys, wait)?;
    let quiet = others(&pair, options.sync_keys, wait)?;
    let mut took = Duration::ZERO;
    let begin = Instant::now();
    let busy = others(&pair, options.sync_keys, |of_pair| {
        let second = of_pair.start_beside(&template, &options.dir)?;
        took = begin.elapsed();
        drop(second);
        Ok(())
    })?;
    pair.begin_replica(&template, &options.dir)?;
    pair.wait_for_replica()?;
    let promotions = (0..options.rounds.max(5)).map(|_| promote(&pair)).collect::<Result<Vec<_>>>()?;
    let gb = bytes as f64 / 1e9;
    let p99 = |seen: &Histogram<u64>| seen.value_at_quantile(0.99) as f64 / 1000.0;
    Ok(vec![
        Row {
            name: "a full resync on the loopback, of the time of `cp` and fdatasync",
            found: format!("{:.1} s of {:.1}, {gb:.1} GB", took.as_secs_f64(), copied.as_secs_f64()),
            value: took.as_secs_f64() / copied.as_secs_f64(),
            at_most: Some(1.5),
        },
        Row {
            name: "p99 of another client on the master meanwhile, of before",
            found: format!("{:.2} ms of {:.2}", p99(&busy), p99(&quiet)),
            value: p99(&busy) / p99(&quiet),
            at_most: Some(2.0),
        },
        Row {
            name: "REPLICAOF NO ONE to the first write, in milliseconds",
            found: format!("{} promotions", promotions.len()),
            value: median(promotions),
            at_most: Some(100.0),
        },
    ])
}

/// Writes values that do not compress.
fn fill(server: &Server, keys: u64) -> Result<()> {
    let mut client = server.client()?;
    let (mut random, mut value) = (Random::new(1), vec![0; VALUE_BYTES]);
    for first in (0..keys).step_by(PIPELINE as usize) {
        let count = PIPELINE.min(keys - first);
        for number in first..first + count {
            random.fill(&mut value);
            client.push(&[&b"SET"[..], key(number).as_bytes(), &value]);
        }
        client.flush()?;
        for _ in 0..count {
            let reply = client.read()?;
            ensure!(reply.is_ok(), "SET was answered by {reply}");
        }
    }
    let reply = client.command("BGSAVE")?;
    ensure!(reply.error().is_none(), "BGSAVE was answered by {reply}");
    Ok(())
}

fn key(number: u64) -> String {
    format!("key:{number}")
}

/// Copies the files of the base, as `cp` does, and syncs each; returns how long that took.
fn copy_files(data: &Path, dir: &Path) -> Result<Duration> {
    let place = Workplace::new("bench-copy", Some(dir))?;
    let begin = Instant::now();
    copy_below(data, &place.data()).context("copying the files")?;
    Ok(begin.elapsed())
}

fn copy_below(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy_below(&entry.path(), &target)?;
            continue;
        }
        // Files go while the server runs.
        let Ok(mut source) = File::open(entry.path()) else { continue };
        let mut copy = File::create(&target)?;
        io::copy(&mut source, &mut copy)?;
        copy.sync_data()?;
    }
    Ok(())
}

/// Measures a client of the master, which reads and writes now and then, while something else happens.
fn others(pair: &Pair, keys: u64, happens: impl FnOnce(&Pair) -> Result<()>) -> Result<Histogram<u64>> {
    let (port, done) = (pair.master.port(), AtomicBool::new(false));
    scope(|threads| {
        let asks = threads.spawn(|| ask(port, keys, &done));
        let happened = happens(pair);
        done.store(true, Ordering::Relaxed);
        let seen = asks.join().expect("it does not panic");
        happened.and(seen)
    })
}

fn ask(port: u16, keys: u64, done: &AtomicBool) -> Result<Histogram<u64>> {
    let mut client = Client::connect(port, REPLY_TIMEOUT)?;
    let mut seen = Histogram::new_with_bounds(1, 60_000_000, 3)?;
    let mut random = Random::new(2);
    while !done.load(Ordering::Relaxed) {
        let name = key(random.below(keys.min(10_000)));
        let sent = Instant::now();
        let reply = if random.percent(20) {
            client.call(&["SET", "another", "value"])?
        } else {
            client.call(&["GET", &name])?
        };
        ensure!(reply.error().is_none(), "it was answered by {reply}");
        seen.record(sent.elapsed().as_micros() as u64)?;
        sleep(PAUSE);
    }
    Ok(seen)
}

/// Promotes the replica, and makes it one again; returns the milliseconds until it took a write.
fn promote(pair: &Pair) -> Result<f64> {
    let replica = pair.replica.as_ref().context("there is a replica")?;
    let mut client = replica.client()?;
    let begin = Instant::now();
    client.command("REPLICAOF NO ONE")?;
    while client.command("SET promoted yes")?.error().is_some() {
        ensure!(begin.elapsed() < REPLY_TIMEOUT, "it takes no writes");
    }
    let took = begin.elapsed().as_secs_f64() * 1000.0;
    client.command(&format!("REPLICAOF 127.0.0.1 {}", pair.master.port()))?;
    pair.wait_for_replica()?;
    Ok(took)
}
