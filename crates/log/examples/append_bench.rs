//! Measures the cost of an append: 170-byte bodies, a write every 800 appends, as a worker does at pipeline 16 with 50
//! clients.
//!
//! `cargo run --release -p haypile-log --example append_bench -- [DIR] [MILLIONS] [APPENDS_PER_WRITE] [THREADS] [RATE]`
//! prints wall time and the CPU time of all threads (`/proc/self/stat`: user, system) for each append, then how fast
//! the log is replayed after an unclean stop. RATE bounds the appends a second of each thread, so that the disk is not
//! what is measured; 0 is no bound.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haypile_log::{Body, Index, Kind, Log, Options, body_crc};

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "/tmp/haypile-append-bench".into());
    let number = |arg: Option<String>, default: u64| arg.map_or(default, |arg| arg.parse().expect("a number"));
    let millions = number(args.next(), 10);
    let per_write = number(args.next(), 800);
    let threads = number(args.next(), 1);
    let rate = number(args.next(), 400_000);
    std::fs::remove_dir_all(&dir).ok();
    let mut options = Options::new(&dir);
    options.retention.bytes = 0;
    let mut opened = Log::open(options.clone(), Index(0)).expect("an empty directory");
    opened.replay.finish().expect("nothing to replay");
    let log = Arc::new(opened.log);

    let appends = millions * 1_000_000 / threads;
    let (user, system) = cpu_seconds();
    let begun = Instant::now();
    let workers: Vec<_> = (0..threads)
        .map(|worker| {
            let log = log.clone();
            std::thread::spawn(move || work(&log, worker == 0, appends, per_write, rate))
        })
        .collect();
    for worker in workers {
        worker.join().expect("no worker panics");
    }
    let wall = begun.elapsed().as_secs_f64();
    log.sync_through(log.last()).expect("a disk that works");
    let stats = log.stats();
    let (user, system) = (cpu_seconds().0 - user, cpu_seconds().1 - system);
    let each_ns = |seconds: f64| seconds * 1e9 / (appends * threads) as f64;
    println!(
        "{threads} threads, {per_write} appends a write: wall {:.1} ns, user {:.1} ns, system {:.1} ns an append; {stats:?}",
        each_ns(wall),
        each_ns(user),
        each_ns(system),
    );
    replay(log, options);
    std::fs::remove_dir_all(&dir).ok();
}

/// Appends half a gigabyte, stops uncleanly, and reads it again.
fn replay(log: Arc<Log>, options: Options) {
    let applied = log.last();
    let body = [b'v'; 170];
    for number in 0..2_700_000 {
        let reserved = log.reserve_within(body.len(), Duration::from_secs(60)).expect("room");
        log.append(reserved, Kind::Effects, number, &body, body_crc(&body));
        if number % 800 == 799 {
            log.write();
        }
    }
    log.sync_through(log.last()).expect("a disk that works");
    drop(log);
    let begun = Instant::now();
    let mut opened = Log::open(options, applied).expect("a sound log");
    let surveyed = begun.elapsed();
    let total = opened.replay.progress().total_bytes;
    let mut records = 0;
    while let Some(record) = opened.replay.next() {
        record.expect("a sound log");
        records += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "replay: {records} records, {:.0} MB/s, of it {surveyed:?} for finding the end",
        total as f64 / seconds / 1e6
    );
}

fn work(log: &Log, purges: bool, appends: u64, per_write: u64, rate: u64) {
    let begun = Instant::now();
    let mut body = Body::new();
    let value = [b'v'; 128];
    for number in 0..appends {
        body.clear();
        let key = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
        body.put(&[b"prefix-of-a-row-", &key, b"key-of-12-by"], &[&value]);
        let reserved = log.reserve_within(body.len(), Duration::from_secs(60)).expect("room");
        log.append(reserved, Kind::Effects, number, body.bytes(), body_crc(body.bytes()));
        if number % per_write == per_write - 1 {
            log.write();
            if let Some(due_ns) = (number * 1_000_000_000).checked_div(rate) {
                let due = begun + Duration::from_nanos(due_ns);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        }
        if purges && number % 100_000 == 0 {
            log.purge(Index(log.synced().0));
        }
    }
    log.write();
}

/// User and system time of the process in seconds.
fn cpu_seconds() -> (f64, f64) {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("the name ends") + 2..].split(' ').collect();
    let seconds = |position: usize| fields[position].parse::<f64>().expect("ticks") / TICKS_A_SECOND;
    (seconds(11), seconds(12))
}
