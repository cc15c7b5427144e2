//! The effect of one giant collection on other clients: it is filled, read as a whole while other clients go on, copied
//! by the commands that store, and deleted; memory, the others' p99 and the room on disk are watched meanwhile.

use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::disk::keys::{key, value};
use super::disk::phases::{forget, server_p99_us};
use super::disk::watch::watch;
use super::latency::crowd::{Crowd, Pace};
use super::process::{AwayFrom, Steal, disk_bytes, idle_cpu_seconds, machine};
use super::report;
use crate::client::{Client, encode};
use crate::random::mix;
use crate::server::{Server, Template, Workplace};

/// The directives of our server.
pub const DIRECTIVES: &str = "--maxmemory 256mb --io-pool 8";

pub struct Options {
    pub server: Template,
    /// The names of the types; empty for all.
    pub types: Vec<String>,
    pub elements: u64,
    /// The length of the window in which the others are measured without the giant.
    pub window: Duration,
    /// The directory of the data.
    pub dir: PathBuf,
    pub server_cpu: u32,
    pub write_to: Option<PathBuf>,
}

/// A type, and its commands on the giant.
struct Giant {
    name: &'static str,
    write: &'static str,
    /// The words of element `n`.
    element: fn(u64) -> Vec<Vec<u8>>,
    /// Elements that one command writes.
    in_one: u64,
    /// The command that reads all of the collection.
    read: &'static [&'static str],
    /// Elements of the reply for each element of the collection.
    read_factor: u64,
    /// Lines of each element of the reply, in RESP2.
    lines: u64,
    count: &'static str,
    /// The words of the command that stores a collection as large, if there is one.
    store: Option<&'static [&'static str]>,
}

fn member(number: u64) -> Vec<u8> {
    format!("member:{number:012}").into_bytes()
}

static GIANTS: [Giant; 5] = [
    Giant {
        name: "hash",
        write: "HSET",
        element: |n| vec![member(n), format!("value:{n}").into_bytes()],
        in_one: 200,
        read: &["HGETALL", "giant"],
        read_factor: 2,
        lines: 2,
        count: "HLEN",
        store: None,
    },
    Giant {
        name: "set",
        write: "SADD",
        element: |n| vec![member(n)],
        in_one: 200,
        read: &["SMEMBERS", "giant"],
        read_factor: 1,
        lines: 2,
        count: "SCARD",
        store: Some(&["SUNIONSTORE", "stored", "giant", "other"]),
    },
    Giant {
        name: "list",
        write: "RPUSH",
        element: |n| vec![member(n)],
        in_one: 200,
        read: &["LRANGE", "giant", "0", "-1"],
        read_factor: 1,
        lines: 2,
        count: "LLEN",
        store: None,
    },
    Giant {
        name: "zset",
        write: "ZADD",
        element: |n| vec![(mix(n) % 1_000_000_000).to_string().into_bytes(), member(n)],
        in_one: 200,
        read: &["ZRANGE", "giant", "0", "-1"],
        read_factor: 1,
        lines: 2,
        count: "ZCARD",
        store: Some(&["ZRANGESTORE", "stored", "giant", "0", "-1"]),
    },
    Giant {
        name: "stream",
        write: "XADD",
        element: |n| vec![format!("{}-{}", 1 + n / 10, n % 10).into_bytes(), b"field".to_vec(), member(n)],
        in_one: 1,
        read: &["XRANGE", "giant", "-", "+"],
        read_factor: 1,
        // An entry is an array of its ID and of an array of its fields and values.
        lines: 8,
        count: "XLEN",
        store: None,
    },
];

pub const TYPES: &[&str] = &["hash", "set", "list", "zset", "stream"];

/// Keys of the other clients, and how many requests a second these make: far below what the server can do.
const CROWD_KEYS: u64 = 10_000;
const CROWD_CONNECTIONS: usize = 20;
const CROWD_RATE: f64 = 2000.0;

/// The most that the others' p99 may be while a giant is read, over their p99 without it.
const P99_RATIO_MAX: f64 = 2.0;

/// Bytes of the log that deletes do not free: `flush-log-bytes`, and the segment that is being filled.
const LOG_BYTES: u64 = 320 << 20;

/// The longest time that the commands that store may take.
const STORE_MAX: Duration = Duration::from_secs(3600);

/// The longest time that compactions may go on after the giant was filled, before the others are measured beside them.
const SETTLE_MAX: Duration = Duration::from_secs(300);

/// The most milliseconds of a command that takes constant time.
const CONSTANT_MS_MAX: f64 = 50.0;

struct Outcome {
    name: &'static str,
    figures: Vec<(String, String, bool)>,
}

/// Measures and prints; returns true if each target is met.
pub fn run(options: &Options) -> Result<bool> {
    if let Some(unknown) = options.types.iter().find(|name| !TYPES.contains(&name.as_str())) {
        bail!("no type {unknown:?}; there are {}", TYPES.join(", "));
    }
    let steal = Steal::now();
    let mut outcomes = Vec::new();
    for giant in GIANTS.iter().filter(|giant| options.types.is_empty() || options.types.iter().any(|n| n == giant.name))
    {
        let outcome = measure(options, giant).with_context(|| format!("the giant {}", giant.name))?;
        outcomes.push(outcome);
    }
    if let Some(page) = &options.write_to {
        let text = table(&outcomes, options, steal);
        report::write(page, "giants", &report::rounds(1), &text)?;
        println!("written to {}", page.display());
    }
    Ok(outcomes.iter().flat_map(|outcome| &outcome.figures).all(|(_, _, good)| *good))
}

fn measure(options: &Options, giant: &'static Giant) -> Result<Outcome> {
    let place = Workplace::new("giants", Some(&options.dir))?;
    let (server, _) = Server::start(&options.server, &place)?;
    let mut client = Client::connect(server.port(), STORE_MAX).context("connecting")?;
    let data = place.data();
    let mut outcome = Outcome { name: giant.name, figures: Vec::new() };
    let mut note = |what: &str, value: String, good: bool| {
        println!("{:6} {what}: {value}{}", giant.name, if good { "" } else { " MISSED" });
        outcome.figures.push((what.to_string(), value, good));
    };
    for number in 0..CROWD_KEYS {
        client.call(&[b"SET", &key(number)[..], &value(number)])?;
    }

    let begun = Instant::now();
    let ((), watched) = watch(server.pid(), &data, || fill(&mut client, giant, options.elements))?;
    let rate = options.elements as f64 / begun.elapsed().as_secs_f64();
    let resident =
        |watched: super::disk::watch::Watched| format!("{:.0} MB resident", watched.resident_bytes_max as f64 / 1e6);
    note("filled", format!("{rate:.0} elements a second, {}", resident(watched)), true);
    let count = client.call(&[giant.count, "giant"])?.integer();
    ensure!(count == Some(options.elements as i64), "{} says {count:?}", giant.count);

    idle_cpu_seconds(server.pid(), SETTLE_MAX);
    let away = AwayFrom::cpu(options.server_cpu)?;
    let mut crowd = Crowd::connect(server.port(), CROWD_CONNECTIONS, CROWD_KEYS, 1)?;
    let alone = p99(&mut crowd, &mut client, options.window)?;
    let stop = AtomicBool::new(false);
    let port = server.port();
    let ((beside, read), watched) = watch(server.pid(), &data, || {
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (begun, mut elements) = (Instant::now(), 0);
                while elements == 0 || !stop.load(Ordering::Relaxed) {
                    elements += read_all(port, giant, options.elements)?;
                }
                Ok::<f64, anyhow::Error>(elements as f64 / begun.elapsed().as_secs_f64())
            });
            let beside = p99(&mut crowd, &mut client, options.window);
            stop.store(true, Ordering::Relaxed);
            let read = reader.join().expect("the reader does not panic")?;
            Ok((beside?, read))
        })
    })?;
    drop(away);
    note(giant.read[0], format!("{read:.0} elements a second, {}", resident(watched)), true);
    let ratio = beside.server_us / alone.server_us;
    let text = format!(
        "{:.0} µs meanwhile, {:.0} µs before: {ratio:.2}, at most {P99_RATIO_MAX:.2}",
        beside.server_us, alone.server_us
    );
    note("p99 of the others, by the server", text, ratio <= P99_RATIO_MAX);
    let text = format!("{:.2} ms meanwhile, {:.2} ms before", beside.client_ms, alone.client_ms);
    note("p99 of the others, by clients on the reader's core", text, true);

    if let Some(store) = giant.store {
        let begun = Instant::now();
        let (reply, watched) = watch(server.pid(), &data, || Ok(client.call(store)?))?;
        ensure!(reply.integer() == Some(options.elements as i64), "{}: {reply}", store[0]);
        note(store[0], format!("{:.1} s, {}", begun.elapsed().as_secs_f64(), resident(watched)), true);
        client.command("DEL stored")?;
    }
    for words in ["RENAME giant other", "EXPIRE other 1000", "RENAME other giant", "DEL giant"] {
        let begun = Instant::now();
        let reply = client.command(words)?;
        ensure!(reply.error().is_none(), "{words}: {reply}");
        let ms = begun.elapsed().as_secs_f64() * 1000.0;
        note(words, format!("{ms:.2} ms"), ms <= CONSTANT_MS_MAX);
    }
    let before = disk_bytes(&data);
    let goal = before / 4 + LOG_BYTES;
    let (seconds, after) = wait_for_room(&data, goal);
    let text = format!("{:.0} MB, {:.0} MB after {seconds:.0} s", before as f64 / 1e6, after as f64 / 1e6);
    note("disk after DEL", text, after <= goal);
    drop(client);
    server.stop()?;
    Ok(outcome)
}

/// Writes the giant, some thousand elements at a time.
fn fill(client: &mut Client, giant: &Giant, elements: u64) -> Result<()> {
    /// Elements whose replies may be in flight.
    const AHEAD: u64 = 6400;
    let mut under_way = 0;
    let mut from = 0;
    while from < elements || under_way > 0 {
        if from < elements && under_way < AHEAD / giant.in_one {
            let until = (from + giant.in_one).min(elements);
            let mut words = vec![giant.write.as_bytes().to_vec(), b"giant".to_vec()];
            words.extend((from..until).flat_map(giant.element));
            client.push(&words);
            (from, under_way) = (until, under_way + 1);
            continue;
        }
        client.flush()?;
        for _ in 0..under_way {
            let reply = client.read()?;
            ensure!(reply.error().is_none(), "{} was answered by {reply}", giant.write);
        }
        under_way = 0;
    }
    Ok(())
}

/// The 99th percentile of the others' requests, as both sides saw it.
struct P99 {
    server_us: f64,
    client_ms: f64,
}

fn p99(crowd: &mut Crowd, client: &mut Client, window: Duration) -> Result<P99> {
    forget(client)?;
    let seen = crowd.measure(Pace::Rate(CROWD_RATE), window)?;
    let info = client.info("waits")?.unwrap_or_default();
    let server_us = server_p99_us(&info).context("INFO waits tells the latency")?;
    Ok(P99 { server_us, client_ms: seen.latency_ns.value_at_quantile(0.99) as f64 / 1e6 })
}

/// Reads the giant as a whole, and returns how many elements the reply has.
fn read_all(port: u16, giant: &Giant, elements: u64) -> Result<u64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("connecting")?;
    let mut request = Vec::new();
    encode(giant.read, &mut request);
    std::io::Write::write_all(&mut stream, &request)?;
    let expected = elements * giant.read_factor;
    // No element has a line end in it: a bulk string is two lines, its length and itself.
    let lines_expected = 1 + giant.lines * expected;
    let (mut buffer, mut lines, mut header) = (vec![0; 256 << 10], 0, Vec::new());
    while lines < lines_expected {
        let read = stream.read(&mut buffer).context("reading the giant")?;
        ensure!(read > 0, "the server closed after {lines} lines");
        if lines == 0 {
            header.extend_from_slice(&buffer[..read]);
            ensure!(header[0] == b'*', "{}", header[..header.len().min(80)].escape_ascii());
        }
        lines += buffer[..read].iter().filter(|&&byte| byte == b'\n').count() as u64;
    }
    let said = header.split(|&byte| byte == b'\r').next().unwrap_or_default();
    ensure!(said == format!("*{expected}").as_bytes(), "the length was said to be {}", said.escape_ascii());
    ensure!(lines == lines_expected, "{lines} lines");
    Ok(expected)
}

/// Waits, a bounded time, until the directory takes no more than `goal` bytes; returns the seconds, and its bytes then.
fn wait_for_room(dir: &Path, goal: u64) -> (f64, u64) {
    const WAIT_MAX: Duration = Duration::from_secs(180);
    let begun = Instant::now();
    loop {
        let bytes = disk_bytes(dir);
        if bytes <= goal || begun.elapsed() > WAIT_MAX {
            return (begun.elapsed().as_secs_f64(), bytes);
        }
        thread::sleep(Duration::from_millis(500));
    }
}

fn table(outcomes: &[Outcome], options: &Options, steal: Steal) -> String {
    let mut out = String::from("| type | what | figure |\n|---|---|---|\n");
    for outcome in outcomes {
        for (what, value, good) in &outcome.figures {
            let missed = if *good { "" } else { " (missed)" };
            out += &format!("| {} | {what} | {value}{missed} |\n", outcome.name);
        }
    }
    out + &format!(
        "\n{} elements; our server with `{DIRECTIVES}` on {}; {:.1} % of the time was stolen.\n",
        options.elements,
        machine(),
        steal.percent_since()
    )
}
