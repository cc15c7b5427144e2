//! The soak test: mixed load for long, with clients that come and go, settings that change, backups and databases that
//! are emptied, while memory, threads and files of the server are watched; `audience.rs` has the clients that see each
//! other. Asserted are: no unexpected error, no lost connection but of clients that were closed, no lost message or
//! increment, no failed backup, no growth without end.

mod audience;

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench::compare::median;
use crate::bench::process::resident_bytes;
use crate::client::{Client, Reply, info_field};
use crate::quoted::quote_short;
use crate::random::Random;
use crate::server::{REPLY_TIMEOUT, Server, Template, Workplace};

pub struct Options {
    pub server: Template,
    pub seed: u64,
    pub time: Duration,
    pub clients: u64,
    /// Settings that one thread changes all the time: `name value`.
    pub settings: Vec<String>,
}

/// Directives of our server: small memtables, so that flushes and compactions go on all the time.
pub const DIRECTIVES: &str = "--maxmemory 128mb --memtable-size 8mb --flush-log-bytes 64mb --log-segment-size 8mb";
/// Settings of our server that may change at any time.
pub const SETTINGS: &str = "memtable-size 4mb;memtable-size 8mb;row-cache-size 0;row-cache-size 16mb;row-cache-size auto;\
block-cache-size 16mb;block-cache-size auto;timeout 0;timeout 100;durability fsync;durability os;flush-log-bytes 32mb";

/// The key space of the load: with values of some hundred bytes about a hundred megabytes.
const KEYS: u64 = 200_000;
const BIG_KEYS: u64 = 50;
const COUNTERS: u64 = 1000;
/// The number of threads that publish and hear.
const AUDIENCE: u64 = 4;
/// The share of memory that the last third of the run may use beyond the second one, beside [`GROWTH_BYTES`].
const GROWTH_SHARE: f64 = 0.10;
const GROWTH_BYTES: f64 = 16e6;
/// The shortest run for which growth is judged: in a shorter one caches are still filling.
const GROWTH_TIME_MIN: Duration = Duration::from_secs(120);

/// Runs the load and prints totals; returns true if nothing was wrong.
pub fn run(options: &Options) -> Result<bool> {
    println!("soak: seed {}, {} clients, {} s", options.seed, options.clients, options.time.as_secs());
    let mut place = Workplace::new("soak", None)?;
    let (mut server, _) = Server::start(&options.server, &place)?;
    let resources = Resources::of(&server)?;
    let load = Load::default();
    let samples = thread::scope(|scope| {
        for number in 0..options.clients {
            let (load, random, port) = (&load, Random::of_part(options.seed, number), server.port());
            scope.spawn(move || load.keep(clients_that_come_and_go(load, random, port)));
        }
        let (load_ref, port) = (&load, server.port());
        scope.spawn(move || load_ref.keep(change_settings(load_ref, &options.settings, port)));
        scope.spawn(move || load_ref.keep(take_backups(load_ref, port)));
        scope.spawn(move || load_ref.keep(empty_databases(load_ref, port)));
        for number in 0..AUDIENCE {
            let random = Random::of_part(options.seed, options.clients + number);
            scope.spawn(move || load_ref.keep(audience::publish_and_hear(load_ref, random, port, number)));
        }
        scope.spawn(move || load_ref.keep(audience::look_at_everything(load_ref, port)));
        let random = Random::of_part(options.seed, options.clients + AUDIENCE);
        scope.spawn(move || load_ref.keep(audience::close_clients(load_ref, random, port)));
        let samples = watch(&server, options.time, &load);
        load.stop.store(true, Ordering::Relaxed);
        samples
    });
    let problem = load.problem.lock().expect("no thread panics with it").take();
    let result = match problem {
        Some(problem) => Err(problem),
        None => check_end(&mut server, &load, &resources, &samples, options.time)
            .and_then(|()| check_counters(&mut server.client()?, &load))
            .and_then(|()| check_totals(&load)),
    };
    let flushes = server.client().and_then(|mut c| Ok(c.info("store")?)).ok().flatten().unwrap_or_default();
    let [_, middle, last] = thirds(&samples).map(|bytes| bytes / 1e6);
    println!(
        "soak: {} commands, {} connections, {} settings changed, {} backups, {} databases emptied, {} flushes",
        load.commands.load(Ordering::Relaxed),
        load.connections.load(Ordering::Relaxed),
        load.settings.load(Ordering::Relaxed),
        load.backups.load(Ordering::Relaxed),
        load.emptied.load(Ordering::Relaxed),
        info_field(&flushes, "flushes_completed").unwrap_or("no")
    );
    println!(
        "soak: {} increments of counters, {} messages heard, {} lines of MONITOR, {} clients closed",
        load.raised.load(Ordering::Relaxed),
        load.messages.load(Ordering::Relaxed),
        load.monitored.load(Ordering::Relaxed),
        load.kills.load(Ordering::Relaxed),
    );
    println!(
        "soak: resident memory: median {middle:.0} MB in the middle third, {last:.0} MB in the last, at most {:.0} MB",
        samples.iter().copied().fold(0.0, f64::max) / 1e6,
    );
    let stopped = result.and_then(|()| server.stop());
    match stopped.and_then(|()| options.server.check(&place.data())) {
        Ok(_) => {
            println!("soak: nothing wrong");
            Ok(true)
        }
        Err(error) => {
            println!("soak: FAILED: {error:#}\nthe server's last lines:\n{}", place.log_tail());
            println!("soak: everything is left in {}", place.keep().display());
            Ok(false)
        }
    }
}

/// The state that the threads share.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    problem: Mutex<Option<anyhow::Error>>,
    commands: AtomicU64,
    /// The numbers of increments of counters that were acknowledged, and that were sent.
    raised: AtomicU64,
    raised_most: AtomicU64,
    connections: AtomicU64,
    settings: AtomicU64,
    backups: AtomicU64,
    emptied: AtomicU64,
    messages: AtomicU64,
    /// The number of lines that MONITOR has shown.
    monitored: AtomicU64,
    /// The numbers of clients closed by CLIENT KILL, and of connections that turned out to be closed.
    kills: AtomicU64,
    losses: AtomicU64,
}

impl Load {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Keeps the first problem, and stops all threads.
    fn keep(&self, result: Result<()>) {
        if let Err(error) = result {
            self.problem.lock().expect("no thread panics with it").get_or_insert(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs clients one after the other, each for a few hundred pipelines; some leave without a word, in the middle of a
/// reply.
fn clients_that_come_and_go(load: &Load, mut random: Random, port: u16) -> Result<()> {
    while !load.stopped() {
        let (mut client, is_prey) = audience::connect(load, &mut random, port)?;
        let worked = work(load, &mut random, &mut client);
        audience::end(load, is_prey, worked)?;
    }
    Ok(())
}

fn work(load: &Load, random: &mut Random, client: &mut Client) -> Result<()> {
    let pipelines = random.between(1, 500);
    for _ in 0..pipelines {
        let commands = if random.percent(5) {
            transaction(random)
        } else {
            (0..random.between(1, 32)).map(|_| command(random)).collect()
        };
        for command in &commands {
            client.push(command);
        }
        let increments = commands.iter().filter(|command| command[0] == b"INCR").count() as u64;
        load.raised_most.fetch_add(increments, Ordering::Relaxed);
        client.flush()?;
        for command in &commands {
            let reply = client.read().with_context(|| quote_short(command))?;
            ensure!(expected(command, &reply), "{} was answered by {reply}", quote_short(command));
            load.raised.fetch_add(increments_of(command, &reply), Ordering::Relaxed);
        }
        load.commands.fetch_add(commands.len() as u64, Ordering::Relaxed);
        if load.stopped() {
            return Ok(());
        }
    }
    if random.percent(30) {
        client.push(&["GET", "big:0"]);
        client.push(&["SCAN", "0", "COUNT", "1000"]);
        client.flush()?;
    }
    Ok(())
}

/// Returns how many increments of counters a reply acknowledges: an INCR's own, or that of a block.
fn increments_of(command: &[Vec<u8>], reply: &Reply) -> u64 {
    match (&command[0][..], reply) {
        (b"INCR", Reply::Integer(_)) | (b"EXEC", Reply::Array(_)) => 1,
        _ => 0,
    }
}

/// Fails unless the counters add up to what was acknowledged, and what may have had no reply.
fn check_counters(client: &mut Client, load: &Load) -> Result<()> {
    let mut sum = 0;
    for number in 0..COUNTERS {
        let reply = client.command(&format!("GET counter:{number}"))?;
        let text = String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned();
        let is_missing = reply.is_nil();
        sum += if is_missing { 0 } else { text.parse().with_context(|| format!("counter:{number} is {reply}"))? };
    }
    let (least, most) = (load.raised.load(Ordering::Relaxed), load.raised_most.load(Ordering::Relaxed));
    ensure!((least..=most).contains(&sum), "the counters add up to {sum} after {least} to {most} increments");
    Ok(())
}

/// Fails if one of the parts has done nothing.
fn check_totals(load: &Load) -> Result<()> {
    let parts = [
        ("no counter was ever raised", &load.raised),
        ("no message was ever heard", &load.messages),
        ("no client was ever closed", &load.kills),
        ("no backup was ever taken", &load.backups),
    ];
    for (what, count) in parts {
        ensure!(count.load(Ordering::Relaxed) > 0, "{what}");
    }
    Ok(())
}

/// Returns whether a reply is no error, or one that the command itself asks for.
fn expected(command: &[Vec<u8>], reply: &Reply) -> bool {
    match reply.error() {
        None => true,
        Some(text) => command[0] == b"RENAME" && text == "ERR no such key",
    }
}

fn command(random: &mut Random) -> Vec<Vec<u8>> {
    let number = random.below(KEYS);
    let key = format!("key:{number}").into_bytes();
    let big = format!("big:{}", random.below(BIG_KEYS)).into_bytes();
    let word = |word: &str| word.as_bytes().to_vec();
    let length = if random.percent(3) { random.below(20_000) } else { random.below(600) } as usize;
    let mut value = vec![b'v'; length];
    random.fill(&mut value[..length / 2]);
    match random.below(100) {
        0..=29 => vec![word("GET"), key],
        30..=54 => vec![word("SET"), key, value],
        55..=59 => vec![word("SET"), key, value, word("PX"), random.between(1, 5000).to_string().into_bytes()],
        60..=64 => vec![word("INCR"), format!("counter:{}", number % COUNTERS).into_bytes()],
        65..=69 => vec![word("DEL"), key],
        70..=72 => vec![word("EXPIRE"), key, b"3".to_vec()],
        73..=75 => vec![word("MGET"), key, big, b"key:1".to_vec(), b"key:2".to_vec()],
        76..=78 => vec![word("MSET"), key, value.clone(), b"key:1".to_vec(), value],
        79..=83 => vec![word("SETRANGE"), big, random.below(2_000_000).to_string().into_bytes(), value],
        84..=86 => vec![word("GETRANGE"), big, random.below(2_000_000).to_string().into_bytes(), b"2000000".to_vec()],
        87 => vec![word("DEL"), big],
        88..=90 => vec![word("RENAME"), key, format!("key:{}", random.below(KEYS)).into_bytes()],
        91..=92 => vec![word("SCAN"), number.to_string().into_bytes(), word("COUNT"), b"50".to_vec()],
        93 => vec![word("DBSIZE")],
        94 => vec![word("RANDOMKEY")],
        95 => vec![word("INFO")],
        96..=97 => vec![word("TTL"), key],
        _ => vec![word("EXISTS"), key],
    }
}

/// Returns two commands as one, on a watched key that other clients may change meanwhile.
fn transaction(random: &mut Random) -> Vec<Vec<Vec<u8>>> {
    let words = |line: String| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let (counter, key) = (random.below(COUNTERS), random.below(KEYS));
    let lines = [
        format!("WATCH counter:{counter}"),
        "MULTI".into(),
        format!("INCR counter:{counter}"),
        format!("SET key:{key} {counter} EX 60"),
        "EXEC".into(),
    ];
    lines.map(words).into()
}

/// Takes a backup every few seconds, and waits for each.
fn take_backups(load: &Load, port: u16) -> Result<()> {
    let mut client = Client::connect(port, REPLY_TIMEOUT).context("connecting to take backups")?;
    while !load.stopped() {
        let reply = client.command("BGSAVE")?;
        ensure!(reply.error().is_none(), "BGSAVE was answered by {reply}");
        let begin = Instant::now();
        loop {
            let info = client.info("persistence")?.unwrap_or_default();
            if info_field(&info, "rdb_bgsave_in_progress") == Some("0") {
                let status = info_field(&info, "rdb_last_bgsave_status");
                ensure!(
                    status == Some("ok"),
                    "a backup failed: {}",
                    info_field(&info, "backup_last_error").unwrap_or("?")
                );
                break;
            }
            ensure!(begin.elapsed() < REPLY_TIMEOUT, "a backup takes more than {} s", REPLY_TIMEOUT.as_secs());
            sleep(Duration::from_millis(20));
        }
        load.backups.fetch_add(1, Ordering::Relaxed);
        pause(load, Duration::from_secs(2));
    }
    Ok(())
}

/// Fills a database that no other thread uses, and empties it, by its own name or by the one that it was given by
/// SWAPDB.
fn empty_databases(load: &Load, port: u16) -> Result<()> {
    let mut client = Client::connect(port, REPLY_TIMEOUT).context("connecting to empty databases")?;
    for round in 0.. {
        if load.stopped() {
            break;
        }
        let mut script: Vec<String> = vec!["SELECT 1".into()];
        script.extend((0..2000).map(|number| format!("SET filling:{number} {:0200}", number * round)));
        script.extend(if round % 2 == 0 { vec![] } else { vec!["SWAPDB 1 2".into(), "SELECT 2".into()] });
        script.extend(["FLUSHDB".into(), "DBSIZE".into()]);
        for line in &script {
            let words: Vec<&str> = line.split(' ').collect();
            client.push(&words);
        }
        client.flush()?;
        let mut last = Reply::ok();
        for line in &script {
            last = client.read().with_context(|| line.clone())?;
            ensure!(last.error().is_none(), "{line} was answered by {last}");
        }
        ensure!(last == Reply::Integer(0), "a database that was emptied has {last} keys");
        load.emptied.fetch_add(1, Ordering::Relaxed);
        pause(load, Duration::from_millis(500));
    }
    Ok(())
}

/// Waits, but not longer than the test goes on.
fn pause(load: &Load, time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time && !load.stopped() {
        sleep(Duration::from_millis(50));
    }
}

fn change_settings(load: &Load, settings: &[String], port: u16) -> Result<()> {
    let mut client = Client::connect(port, REPLY_TIMEOUT).context("connecting to change settings")?;
    for setting in settings.iter().cycle() {
        if load.stopped() {
            return Ok(());
        }
        let reply = client.command(&format!("CONFIG SET {setting}"))?;
        ensure!(reply.is_ok(), "CONFIG SET {setting} was answered by {reply}");
        load.settings.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(300));
    }
    Ok(())
}

/// Samples the resident memory twice a second until the time is over or a thread has stopped the run.
fn watch(server: &Server, time: Duration, load: &Load) -> Vec<f64> {
    let begin = Instant::now();
    let mut samples = Vec::new();
    while begin.elapsed() < time && !load.stopped() {
        sleep(Duration::from_millis(500));
        samples.push(resident_bytes(server.pid()) as f64);
    }
    samples
}

/// The resources of the process that must be back to their old number once all clients are gone.
struct Resources {
    files: usize,
    threads: usize,
}

impl Resources {
    fn of(server: &Server) -> Result<Resources> {
        let count = |kind: &str| -> Result<usize> {
            let path = format!("/proc/{}/{kind}", server.pid());
            Ok(fs::read_dir(&path).with_context(|| path.clone())?.count())
        };
        Ok(Resources { files: count("fd")?, threads: count("task")? })
    }
}

/// Checks the server after the run, with time until connections are closed, which happens when the server notices that
/// their client is gone, and a fixed allowance for background threads and open data files.
fn check_end(server: &mut Server, load: &Load, before: &Resources, samples: &[f64], time: Duration) -> Result<()> {
    const FILES_MORE: usize = 300;
    const THREADS_MORE: usize = 64;
    if let Some(status) = server.ended()? {
        bail!("the server ended: {status}");
    }
    let (losses, kills) = (load.losses.load(Ordering::Relaxed), load.kills.load(Ordering::Relaxed));
    ensure!(losses <= kills, "{losses} connections were lost, {kills} closed on purpose");
    let begin = Instant::now();
    loop {
        let now = Resources::of(server)?;
        if now.files <= before.files + FILES_MORE && now.threads <= before.threads + THREADS_MORE {
            break;
        }
        let (files, threads) = (now.files, now.threads);
        ensure!(begin.elapsed() < Duration::from_secs(10), "{files} open files and {threads} threads with no client");
        sleep(Duration::from_millis(100));
    }
    if time >= GROWTH_TIME_MIN && samples.len() >= 9 {
        let [_, middle, end] = thirds(samples);
        let bound = middle * (1.0 + GROWTH_SHARE) + GROWTH_BYTES;
        ensure!(end <= bound, "memory grew from {:.0} MB to {:.0} MB", middle / 1e6, end / 1e6);
    }
    Ok(())
}

/// Returns the medians of the samples of each third of the run.
fn thirds(samples: &[f64]) -> [f64; 3] {
    let third = samples.len() / 3;
    if third == 0 {
        return [0.0; 3];
    }
    [&samples[..third], &samples[third..2 * third], &samples[2 * third..]].map(median)
}
