//! Hostile clients beside an innocent one: each attack runs for some seconds on a small server of its own, while
//! another client sends small requests a thousand times a second. Asserted is that the innocent client hardly waits,
//! and that the server stays within its memory. The same attack on redis-server, in the same run, and a run without an
//! attack tell what of a wait is the machine's.
//!
//! An attack is a row of [`ATTACKS`]: a function that prepares data and one that attacks until its time is over. The
//! other files of this folder have the attacks by subject; `innocent` measures.

mod channels;
mod collections;
mod innocent;
mod keys;
mod memory;
mod ports;
mod row;
mod scripts;
mod sessions;
mod sorting;
mod withheld;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bench::process::resident_bytes;
use crate::client::{Client, Reply};
use crate::port::free_port;
use crate::server::{REPLY_TIMEOUT, Server, Template, Workplace};
use innocent::Waits;
pub use memory::expanding;
use row::{Comparison, Row};
use withheld::Watch;

/// Directives of a small server.
pub const DIRECTIVES: &str = "--maxmemory 128mb --workers 2";
/// The most resident memory of a server with `DIRECTIVES`: `maxmemory` and a quarter of it, half of it for clients as
/// `maxmemory-clients` has it by default, and 96 MB for the program, its threads and the spare memory of its allocator.
pub const RESIDENT_BYTES_MAX: u64 = 320 << 20;

/// The least requests of the innocent client in a second, of the thousand that it sends where it hardly waits.
const SAMPLES_MIN_PER_S: f64 = 100.0;

/// The interval between two samples of the resident memory.
const SAMPLE: Duration = Duration::from_millis(20);

/// The figures of an attack that make it fail.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// The innocent client's waits.
    pub waits: bool,
    /// The most resident memory of the server; `None` where it is not judged.
    pub resident_bytes_max: Option<u64>,
}

pub struct Options {
    pub server: Template,
    pub judged: Judged,
    /// The redis-server that is attacked in turn with it.
    pub base: Option<Template>,
    /// The duration of each attack.
    pub time: Duration,
    /// The names of attacks; empty for all.
    pub attacks: Vec<String>,
    /// The factor on the usual size, below 1 for a short run that shows that everything works.
    pub scale: f64,
}

/// One attack.
struct Attack {
    name: &'static str,
    /// Prepares the data that the attack needs; not measured.
    prepare: fn(&Site) -> Result<()>,
    /// Attacks until `Site::is_over`.
    attack: fn(&Site) -> Result<()>,
}

/// All attacks, in the order of the table that is printed.
const ATTACKS: &[&[Attack]] = &[
    &[Attack { name: "none", prepare: nothing, attack: wait }],
    sorting::ATTACKS,
    keys::ATTACKS,
    collections::ATTACKS,
    channels::ATTACKS,
    sessions::ATTACKS,
    ports::ATTACKS,
    memory::ATTACKS,
    scripts::ATTACKS,
];

/// Attacks that redis-server is not measured beside: it has no port for metrics, and its only thread waits for the
/// target of a MIGRATE, and for the end of a script.
const NOT_ON_BASE: &[&str] = &[ports::METRICS, sessions::MIGRATE, scripts::ENDLESS];

/// Runs the attacks and prints their table; returns true if the innocent client was served well beside each.
pub fn run(options: &Options) -> Result<bool> {
    let known: Vec<&Attack> = ATTACKS.iter().copied().flatten().collect();
    for name in &options.attacks {
        let names = || known.iter().map(|attack| attack.name).collect::<Vec<_>>().join(", ");
        ensure!(known.iter().any(|attack| attack.name == name), "no attack {name}; there are {}", names());
    }
    println!("hostile: {} s for each attack", options.time.as_secs_f64());
    let chosen = known
        .into_iter()
        .filter(|attack| options.attacks.is_empty() || options.attacks.iter().any(|name| name == attack.name));
    row::print_head();
    let mut comparison = Comparison::default();
    let mut all_ok = true;
    for attack in chosen {
        let row =
            play(attack, options, &options.server, true).with_context(|| format!("the attack {}", attack.name))?;
        let base = options.base.as_ref().filter(|_| !NOT_ON_BASE.contains(&attack.name));
        // An attack may be too much for redis-server, which is then no measure.
        let base = base.and_then(|server| {
            let row = play(attack, options, server, false);
            row.inspect_err(|error| println!("{} on redis-server: {error:#}", attack.name)).ok()
        });
        all_ok &= row.is_ok(options.judged);
        comparison.print(attack.name, row, base, options.judged);
    }
    println!(
        "hostile: {}",
        if all_ok {
            "nothing wrong"
        } else {
            "FAILED: somebody innocent had to wait, memory was not bounded, or an attack did nothing"
        }
    );
    Ok(all_ok)
}

/// Runs one attack on one server, started for it. `explains` has the server's last lines shown, and its files kept,
/// where the attack cannot go on.
fn play(attack: &Attack, options: &Options, server: &Template, explains: bool) -> Result<Row> {
    let mut place = Workplace::new("hostile", None)?;
    let mut site = Site::new(options);
    let template = match attack.name {
        ports::METRICS => {
            site.metrics_port = free_port()?;
            server.with(&format!("--metrics-port {}", site.metrics_port))?
        }
        _ => server.clone(),
    };
    let (mut server, _) = Server::start(&template, &place)?;
    site.port = server.port();
    let site = site;
    innocent::prepare(&site)?;
    (attack.prepare)(&site).context("preparing it")?;
    site.begin();
    let (waits, withheld, resident) = thread::scope(|scope| {
        let watch = Watch::begin(scope, &site.attacked);
        let innocent = scope.spawn(|| innocent::ask(&site));
        let attacker = scope.spawn(|| (attack.attack)(&site));
        let mut resident = 0;
        while !attacker.is_finished() {
            resident = resident.max(resident_bytes(server.pid()));
            sleep(SAMPLE);
        }
        site.attacked.store(true, Ordering::Relaxed);
        let attacked = attacker.join().expect("an attack does not panic");
        let waits = innocent.join().expect("the innocent client does not panic");
        let withheld = watch.end();
        attacked.context("attacking").and(waits).map(|waits| (waits, withheld, resident))
    })
    .inspect_err(|_| {
        if !explains {
            return;
        }
        let ended =
            server.ended().ok().flatten().map_or(String::new(), |status| format!("the server ended: {status}\n"));
        eprintln!("{ended}its last lines:\n{}\nin {}", place.log_tail(), place.keep().display());
    })?;
    // The server is killed, not stopped: other tests prove clean stops.
    server.kill()?;
    let waits = Waits::count(&waits, &withheld)?;
    let rounds = site.rounds.load(Ordering::Relaxed);
    let is_measured = is_measured(options, rounds, waits.samples());
    Ok(Row { rounds, is_measured, waits, withheld: withheld.total(), resident_bytes: resident })
}

/// Whether an attack of full size did anything, and the innocent client beside it.
fn is_measured(options: &Options, rounds: u64, samples: u64) -> bool {
    let least = (options.time.as_secs_f64() * SAMPLES_MIN_PER_S) as u64;
    options.scale < 1.0 || rounds > 0 && samples >= least
}

/// The server that an attack is for, and the state of the attack.
struct Site {
    port: u16,
    /// The port for metrics, which one attack needs.
    metrics_port: u16,
    time: Duration,
    scale: f64,
    begun: std::sync::OnceLock<Instant>,
    /// The number of attacks that have come to their end.
    rounds: AtomicU64,
    /// Whether the attackers have ended.
    attacked: AtomicBool,
}

impl Site {
    fn new(options: &Options) -> Site {
        Site {
            port: 0,
            metrics_port: 0,
            time: options.time,
            scale: options.scale,
            begun: Default::default(),
            rounds: AtomicU64::new(0),
            attacked: AtomicBool::new(false),
        }
    }

    fn begin(&self) {
        self.begun.get_or_init(Instant::now);
    }

    /// Returns whether the attack has lasted long enough.
    fn is_over(&self) -> bool {
        self.begun.get().is_some_and(|begun| begun.elapsed() >= self.time)
    }

    /// Returns `usual`, or less in a short run.
    fn count(&self, usual: usize) -> usize {
        ((usual as f64 * self.scale) as usize).max(1)
    }

    fn client(&self) -> Result<Client> {
        Client::connect(self.port, REPLY_TIMEOUT).context("connecting")
    }

    /// Counts one more attack; returns whether another one is wanted.
    fn again(&self) -> bool {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        !self.is_over()
    }

    /// Sends one command repeatedly.
    fn repeat(&self, words: &[impl AsRef<[u8]>]) -> Result<()> {
        let mut client = self.client()?;
        loop {
            right(client.call(words)?)?;
            if !self.again() {
                return Ok(());
            }
        }
    }

    /// Sends `count` commands in pipelines, and reads their replies.
    fn fill(&self, count: usize, command: impl Fn(usize) -> Vec<String>) -> Result<()> {
        self.fill_with(&mut self.client()?, count, command)
    }

    fn fill_with(&self, client: &mut Client, count: usize, command: impl Fn(usize) -> Vec<String>) -> Result<()> {
        const TOGETHER: usize = 1000;
        for first in (0..count).step_by(TOGETHER) {
            let last = count.min(first + TOGETHER);
            (first..last).for_each(|number| client.push(&command(number)));
            client.flush()?;
            for _ in first..last {
                right(client.read()?)?;
            }
        }
        Ok(())
    }
}

/// Returns a reply, unless it is an error.
fn right(reply: Reply) -> Result<Reply> {
    match reply.error() {
        Some(error) => anyhow::bail!("answered by {error}"),
        None => Ok(reply),
    }
}

fn nothing(_: &Site) -> Result<()> {
    Ok(())
}

/// Waits: without an attack, the machine alone delays the innocent client.
fn wait(site: &Site) -> Result<()> {
    sleep(site.time);
    site.again();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_that_did_nothing_fails_unless_it_is_small() {
        let is_measured = |scale, rounds, samples| {
            let server = Template::redis("").expect("the template has its marks");
            let judged = Judged { waits: true, resident_bytes_max: None };
            let time = Duration::from_secs(5);
            is_measured(&Options { server, judged, base: None, time, attacks: Vec::new(), scale }, rounds, samples)
        };
        assert!(is_measured(1.0, 1, 500) && is_measured(0.1, 0, 1));
        assert!(!is_measured(1.0, 0, 5000) && !is_measured(1.0, 1, 499));
    }
}
