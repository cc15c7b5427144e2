//! The crash test: many connections write known sequences, the server is killed at random moments and started again on
//! the same directory, and every acknowledged write, every transaction, every deadline and every count is checked.
//!
//! `model` says what must have survived, `writer` writes (`strings`, `collections`, `transactions` make its
//! operations), `observe` reads everything back, collections by `inspect`. `backups` takes backups meanwhile and opens
//! them, `pops` moves elements through blocked pops, `groups` entries through consumer groups, `counters` raises
//! counters over several connections at once; `short_disk` is a program of its own. A loss ends the run and leaves the
//! data directory where it is.

pub mod model;
mod value;

mod collections;
mod strings;
pub mod transactions;
pub(crate) mod writer;

mod inspect;
pub(crate) mod observe;

mod backups;
mod counters;
mod groups;
mod pops;
pub mod short_disk;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::client::{Client, info_field};
use crate::random::Random;
use crate::server::{REPLY_TIMEOUT, Server, Template, Workplace};
use backups::Backups;
use counters::Counters;
use groups::Groups;
use model::{Database, Seen, State, find_survivor};
use observe::{check_sizes, observe};
use pops::Pops;
use writer::{End, Role, Writer};

pub struct Options {
    pub server: Template,
    pub seed: u64,
    pub time: Duration,
    pub writers: u64,
}

/// Directives of our server under which a second of writing fills several memtables and log segments.
pub const SMALL_STORE: &str =
    "--maxmemory 64mb --memtable-size 2mb --flush-log-bytes 16mb --log-segment-size 1mb --txn-bytes-max 4mb";

/// The time by which a run is longer at most where something has not come that it is for.
const MORE_TIME_MAX: Duration = Duration::from_secs(60);

/// The shortest run that fails if nothing was tested.
const TOTALS_MIN: Duration = Duration::from_secs(60);

/// The shortest round in which blocked pops may be looked at, and how many of these rounds in a hundred.
const LOOK_MIN: Duration = Duration::from_secs(1);
const LOOK_PERCENT: u64 = 30;

/// Databases that several writers share.
const SHARED: u64 = 4;
const FLUSHED: [Database; 2] = [8, 9];
const SWAPPED: [Database; 2] = [10, 11];
/// All databases of writers.
pub(crate) const USED: [Database; 8] = [0, 1, 2, 3, 8, 9, 10, 11];

/// The way in which a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// SIGKILL while writers write.
    Kill,
    /// SIGKILL as soon as writers have begun.
    EarlyKill,
    /// SIGTERM while writers write.
    Stop,
    /// SIGTERM, and SIGKILL before it has stopped.
    KillWhileStopping,
    /// FLUSHALL with nothing else in flight, and SIGKILL around its reply.
    KillInFlushall,
}

#[derive(Debug, Default)]
struct Totals {
    rounds: u64,
    kills: u64,
    kills_at_start: u64,
    clean_stops: u64,
    starts: u64,
    start_seconds: f64,
    start_seconds_max: f64,
    loading_replies: u64,
    survivors_in_flight: u64,
    keys_checked: u64,
    collections_checked: u64,
    flushes: u64,
    checks: u64,
    /// Blocked clients just before the ends of rounds.
    waiting: u64,
    check_seconds: f64,
}

/// Runs until the time is over and prints totals and losses; returns true if nothing was lost.
pub fn run(options: &Options) -> Result<bool> {
    println!("crash: seed {}, {} writers, {} s", options.seed, options.writers, options.time.as_secs());
    let mut run = Run::new(options)?;
    let begin = Instant::now();
    let mut result = Ok(());
    while result.is_ok() && goes_on(options.time, begin, || run.check_totals()) {
        result = run.round();
    }
    // Nothing has looked yet at what the last end has left.
    let result = result.and_then(|()| run.verify_end().context("after the last round"));
    let sent: u64 = run.writers.iter().map(|w| w.operations_sent).sum();
    let acknowledged: u64 = run.writers.iter().map(|w| w.operations_acknowledged).sum();
    println!(
        "crash: seed {}: {} rounds, {} kills ({} more while starting), {} clean stops, {} operations sent, {} acknowledged",
        options.seed,
        run.totals.rounds,
        run.totals.kills,
        run.totals.kills_at_start,
        run.totals.clean_stops,
        sent,
        acknowledged
    );
    println!(
        "crash: {} operations in flight survived, {} keys checked ({} collections), {} flushes seen, {} starts in {:.1} s (longest {:.2} s, {} times LOADING)",
        run.totals.survivors_in_flight,
        run.totals.keys_checked,
        run.totals.collections_checked,
        run.totals.flushes,
        run.totals.starts,
        run.totals.start_seconds,
        run.totals.start_seconds_max,
        run.totals.loading_replies
    );
    println!("crash: {} data directories checked in {:.1} s", run.totals.checks, run.totals.check_seconds);
    let Pops { pushed, received, underway, .. } = run.pops;
    println!(
        "crash: {pushed} elements pushed, {received} received by blocking pops, {underway} more on the way when the server \
         died, {} pops were waiting then",
        run.totals.waiting
    );
    let Groups { added, delivered, acknowledged, .. } = run.groups;
    println!(
        "crash: {added} entries added to streams, {delivered} delivered to consumer groups, {acknowledged} acknowledged"
    );
    let Counters { raised, refused, .. } = run.counters;
    println!("crash: {raised} increments of counters, {refused} blocks refused as a whole");
    let Backups { attempts, opened, opened_again, cut_off, copied_over, refused, .. } = run.backups;
    println!(
        "crash: {attempts} backups begun, {opened} opened ({opened_again} once more in a later round, {cut_off} complete when the server died)"
    );
    println!(
        "crash: {copied_over} backups copied over a directory that was not empty, {refused} starts of these refused"
    );
    let result = result.and_then(|()| run.check_totals());
    match result {
        Ok(()) => {
            println!("crash: nothing lost");
            Ok(true)
        }
        Err(error) => {
            println!("crash: FAILED in round {}: {error:#}", run.totals.rounds);
            println!("crash: the server's last lines:\n{}", run.place.log_tail());
            println!("crash: everything is left in {}", run.place.keep().display());
            Ok(false)
        }
    }
}

/// Returns whether there is another round: until the time is over, and for a while longer where the machine is so slow
/// that the run has not come to all that it is for.
fn goes_on(time: Duration, begin: Instant, check_totals: impl Fn() -> Result<()>) -> bool {
    let elapsed = begin.elapsed();
    elapsed < time || elapsed < time + MORE_TIME_MAX && check_totals().is_err()
}

struct Run<'a> {
    options: &'a Options,
    place: Workplace,
    random: Random,
    writers: Vec<Writer>,
    server: Option<Server>,
    totals: Totals,
    backups: Backups,
    pops: Pops,
    groups: Groups,
    counters: Counters,
}

impl<'a> Run<'a> {
    fn new(options: &'a Options) -> Result<Run<'a>> {
        ensure!(options.writers >= 4, "at least 4 writers, for each role one");
        Ok(Run {
            options,
            place: Workplace::new("crash", None)?,
            random: Random::of_part(options.seed, u64::MAX),
            writers: make_writers(options.writers, options.seed),
            server: None,
            totals: Totals::default(),
            backups: Backups::default(),
            pops: Pops::new(options.seed),
            groups: Groups::new(options.seed),
            counters: Counters::new(options.seed),
        })
    }

    /// Runs one round: start, verify, write, kill.
    fn round(&mut self) -> Result<()> {
        self.totals.rounds += 1;
        self.kill_while_starting()?;
        self.start()?;
        let ending = match self.random.below(100) {
            0..=59 => Ending::Kill,
            60..=69 => Ending::EarlyKill,
            70..=79 => Ending::Stop,
            80..=89 => Ending::KillWhileStopping,
            _ => Ending::KillInFlushall,
        };
        self.write_until(ending).with_context(|| format!("in a round that was to end by {ending:?}"))?;
        self.check_directory().with_context(|| format!("after a round that ended by {ending:?}"))
    }

    /// Starts the server and verifies what it holds.
    fn start(&mut self) -> Result<()> {
        let (server, start) = Server::start(&self.options.server, &self.place)?;
        self.totals.starts += 1;
        self.totals.start_seconds += start.seconds;
        self.totals.start_seconds_max = self.totals.start_seconds_max.max(start.seconds);
        self.totals.loading_replies += start.loading_replies;
        if self.totals.starts == 1 {
            transactions::load_library(&mut server.client()?)?;
        }
        self.server = Some(server);
        self.verify().context("after the start")?;
        backups::check_tidy(&self.place.data())
    }

    /// Starts the server once more, verifies what it holds, and stops it.
    fn verify_end(&mut self) -> Result<()> {
        self.start()?;
        self.server.take().context("it was started above")?.stop()?;
        self.check_directory()
    }

    /// Fails if the run was long and has not come to what it is for.
    fn check_totals(&self) -> Result<()> {
        // Directories of our server only are checked.
        let (time, is_ours) = (self.options.time, self.totals.checks > 0);
        self.counters.check_totals(time, is_ours)?;
        if time >= TOTALS_MIN && is_ours {
            ensure!(self.totals.flushes > 0, "no flush was ever seen");
            ensure!(self.pops.received > 0, "no blocking pop has ever received anything");
            ensure!(self.groups.delivered > 0, "no entry was ever delivered to a consumer group");
            self.backups.check_totals(time)?;
        }
        Ok(())
    }

    /// Kills one or more starts before they are ready, now and then: in recovery, in replay.
    fn kill_while_starting(&mut self) -> Result<()> {
        while self.totals.rounds > 1 && self.random.percent(30) {
            let mut server = Server::spawn(&self.options.server, &self.place)?;
            let bound = *self.random.pick(&[10, 50, 300]);
            sleep(Duration::from_millis(self.random.below(bound)));
            if let Some(status) = server.ended()? {
                bail!("the server ended while it started: {status}");
            }
            server.kill()?;
            self.totals.kills_at_start += 1;
            self.check_directory().context("after a kill in a start")?;
        }
        Ok(())
    }

    /// Has our server's `check` verify the directory, if the server is ours.
    fn check_directory(&mut self) -> Result<()> {
        let begin = Instant::now();
        self.totals.checks += u64::from(self.options.server.check(&self.place.data())?);
        self.totals.check_seconds += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// Lets all writers write, and ends the server in the given way. Operations in flight stay with their writers.
    fn write_until(&mut self, ending: Ending) -> Result<()> {
        let mut server = self.server.take().context("a round begins with a server")?;
        let port = server.port();
        let time = match ending {
            Ending::EarlyKill => Duration::from_millis(self.random.below(50)),
            _ => Duration::from_millis(self.random.between(200, 3000)),
        };
        let stop = AtomicBool::new(false);
        let watch = self.backups.begin(&server, &mut self.writers)?;
        let backup_random = Random::of_part(self.options.seed ^ self.totals.rounds, u64::MAX - 1);
        let (tasks, watch_of_pops) = self.pops.tasks(ending != Ending::KillInFlushall);
        let looks = time >= LOOK_MIN && self.random.percent(LOOK_PERCENT);
        let group_tasks = self.groups.tasks();
        let counter_tasks = self.counters.tasks();
        let (ends, pop_ends, group_ends, counter_ends, attempts) = thread::scope(|scope| {
            let stop = &stop;
            let ruler = watch.as_ref().map(|watch| scope.spawn(move || watch.rule(port, stop)));
            let backups = watch.as_ref().map(|watch| scope.spawn(move || watch.take(port, backup_random, stop)));
            let connect = move || Client::connect(port, REPLY_TIMEOUT);
            let threads: Vec<_> =
                self.writers.iter_mut().map(|writer| scope.spawn(move || writer.run(connect(), stop))).collect();
            let pops: Vec<_> = tasks.into_iter().map(|task| scope.spawn(move || task.run(port, stop))).collect();
            let groups: Vec<_> =
                group_tasks.into_iter().map(|task| scope.spawn(move || task.run(port, stop))).collect();
            let counters: Vec<_> =
                counter_tasks.into_iter().map(|task| scope.spawn(move || task.run(port, stop))).collect();
            let finished = || {
                threads.iter().chain(&pops).chain(&groups).any(|thread| thread.is_finished())
                    || counters.iter().any(|thread| thread.is_finished())
            };
            // The seed decides the moment of the kill; nothing is waited for.
            let begin = Instant::now();
            while begin.elapsed() < time && !finished() {
                sleep((time - begin.elapsed().min(time)).min(Duration::from_millis(20)));
            }
            let looked = if looks { watch_of_pops.look(port).context("blocked pops") } else { Ok(()) };
            let early = finished();
            self.totals.flushes += field(port, "store", "flushes_completed");
            self.totals.waiting += field(port, "clients", "blocked_clients");
            let ended = match looked {
                // The thread that has ended says more.
                _ if early => Ok(()),
                Ok(()) => end_server(&mut server, ending, stop, &mut self.random),
                Err(why) => server.kill().and(Err(why)),
            };
            stop.store(true, Ordering::Relaxed);
            let join = |threads: Vec<thread::ScopedJoinHandle<'_, End>>| -> Vec<End> {
                let ends =
                    threads.into_iter().map(|t| t.join().expect("a thread that writes does not panic")).collect();
                if early { mark_early(ends) } else { ends }
            };
            let (ends, pop_ends, group_ends) = (join(threads), join(pops), join(groups));
            let counter_ends = counters.into_iter().map(|t| t.join().expect("a thread that counts does not panic"));
            let (counter_ends, refused): (Vec<End>, Vec<u64>) = counter_ends.unzip();
            let counter_ends = (if early { mark_early(counter_ends) } else { counter_ends }, refused.iter().sum());
            if let Some(ruler) = ruler {
                ruler.join().expect("it does not panic")?;
            }
            let attempts = match backups {
                Some(backups) => backups.join().expect("it does not panic")?,
                None => Vec::new(),
            };
            ended.map(|()| (ends, pop_ends, group_ends, counter_ends, attempts))
        })?;
        let (counter_ends, refused) = counter_ends;
        self.counters.note_refused(refused);
        let of_writers = self.writers.iter().map(|writer| writer.prefix.as_str()).zip(&ends);
        let of_pops = pop_ends.iter().map(|end| ("blocked pops:", end));
        let of_groups = group_ends.iter().map(|end| ("consumer groups:", end));
        let of_counters = counter_ends.iter().map(|end| ("counters:", end));
        check_ends(of_writers.chain(of_pops).chain(of_groups).chain(of_counters), ending)?;
        if ending == Ending::Stop {
            expect_stopped(&mut server)?;
        }
        if let Some(watch) = &watch {
            self.check_backups(watch, &attempts, ending)?;
        }
        self.count_end(server, ending)
    }

    /// Counts the end of a server; one that was killed in a FLUSHALL is looked at.
    fn count_end(&mut self, server: Server, ending: Ending) -> Result<()> {
        match ending {
            Ending::Stop => self.totals.clean_stops += 1,
            Ending::KillInFlushall => return self.kill_in_flushall(server),
            _ => self.totals.kills += 1,
        }
        Ok(())
    }

    /// Opens the backups of a round, and copies one over the directory if its server has ended.
    fn check_backups(&mut self, watch: &backups::Watch, attempts: &[backups::Attempt], ending: Ending) -> Result<()> {
        let of_server = (&self.options.server, &self.place);
        self.backups.check(watch, attempts, &self.writers, of_server, &mut self.random)?;
        match ending {
            Ending::KillInFlushall => Ok(()),
            _ => self.backups.check_over(&self.writers, of_server, &mut self.random),
        }
    }

    /// Sends FLUSHALL and kills the server, and expects all data or none.
    fn kill_in_flushall(&mut self, mut server: Server) -> Result<()> {
        let mut client = server.client()?;
        client.push(&["FLUSHALL"]);
        client.flush()?;
        sleep(Duration::from_micros(self.random.below(4000)));
        server.kill()?;
        self.totals.kills += 1;
        self.check_directory().context("after a kill in FLUSHALL")?;
        let acknowledged = client.read().is_ok_and(|reply| reply.is_ok());
        let (server, _) = Server::start(&self.options.server, &self.place)?;
        let seen = observe(&mut server.client()?, &USED)?;
        let flushed = seen.keys.is_empty();
        ensure!(flushed || !acknowledged, "FLUSHALL was acknowledged, and {} keys are there", seen.keys.len());
        if flushed {
            self.writers.iter_mut().for_each(|writer| writer.resume_from(State::default()));
            self.pops.forget();
            self.groups.forget();
            self.counters.forget();
        }
        self.server = Some(server);
        self.verify().context("after a kill in FLUSHALL")?;
        let mut server = self.server.take().context("it was put there above")?;
        server.kill()?;
        Ok(())
    }

    /// Reads everything and finds, for each writer, the state that survived.
    fn verify(&mut self) -> Result<()> {
        let server = self.server.as_ref().context("verification needs a server")?;
        let mut client = server.client()?;
        let seen = observe(&mut client, &USED)?;
        self.totals.keys_checked += seen.keys.len() as u64;
        self.totals.collections_checked +=
            seen.keys.values().filter(|entry| entry.value.text().is_none()).count() as u64;
        let parts = by_writer(seen, &self.writers)?;
        for (writer, part) in self.writers.iter_mut().zip(parts) {
            let in_flight = writer.in_flight.make_contiguous();
            match find_survivor(&writer.acknowledged, in_flight, &part) {
                Ok((state, survived)) => {
                    self.totals.survivors_in_flight += survived as u64;
                    writer.resume_from(state);
                }
                Err(text) => bail!("writer {} {text}", writer.prefix),
            }
        }
        check_sizes(&mut client, &USED, true)?;
        self.pops.verify(&mut client).context("blocked pops")?;
        self.groups.verify(&mut client).context("consumer groups")?;
        self.counters.verify(&mut client).context("counters")
    }
}

/// Makes writers: two that flush their databases, one that swaps its own, and plain ones.
pub(crate) fn make_writers(count: u64, seed: u64) -> Vec<Writer> {
    let make = |number: u64| {
        let (home, role) = match number {
            0 | 1 => (FLUSHED[number as usize], Role::Flusher),
            2 => (SWAPPED[0], Role::Swapper(SWAPPED[1])),
            _ => ((number % SHARED) as Database, Role::Plain),
        };
        Writer::new(number, home, role, seed)
    };
    (0..count).map(make).collect()
}

/// Divides the keys that were seen by writer; every key belongs to one.
pub(crate) fn by_writer(seen: Seen, writers: &[Writer]) -> Result<Vec<Seen>> {
    let (from, until) = (seen.from, seen.until);
    let mut parts: BTreeMap<String, Seen> = BTreeMap::new();
    for (place, entry) in seen.keys {
        let end = place.1.iter().position(|b| *b == b':').map_or(0, |p| p + 1);
        let prefix = String::from_utf8_lossy(&place.1[..end]).into_owned();
        let part = parts.entry(prefix).or_insert_with(|| Seen { from, until, ..Seen::default() });
        part.keys.insert(place, entry);
    }
    let nothing = || Seen { from, until, ..Seen::default() };
    let all = writers.iter().map(|writer| parts.remove(&writer.prefix).unwrap_or_else(nothing)).collect();
    ensure!(parts.is_empty(), "keys that nobody wrote: {:?}", parts.keys());
    Ok(all)
}

/// Waits for a server that was asked to stop.
fn expect_stopped(server: &mut Server) -> Result<()> {
    let status = server.wait_ended()?;
    ensure!(status.success(), "the server stopped with {status} after SIGTERM");
    Ok(())
}

/// Ends the server, or for a FLUSHALL lets the writers finish.
fn end_server(server: &mut Server, ending: Ending, stop: &AtomicBool, random: &mut Random) -> Result<()> {
    match ending {
        Ending::Kill | Ending::EarlyKill => server.kill().map(drop),
        Ending::Stop => server.terminate(),
        Ending::KillWhileStopping => {
            server.terminate()?;
            sleep(Duration::from_millis(random.below(40)));
            server.kill().map(drop)
        }
        Ending::KillInFlushall => {
            stop.store(true, Ordering::Relaxed);
            Ok(())
        }
    }
}

/// Fails with what a thread has found wrong, and with a connection that broke before the server was to end.
fn check_ends<'e>(ends: impl Iterator<Item = (&'e str, &'e End)>, ending: Ending) -> Result<()> {
    for (name, end) in ends {
        match end {
            End::Wrong(text) => bail!("{name} {text}"),
            End::Refused => bail!("{name} its writes are refused"),
            End::Broken(error) if ending == Ending::KillInFlushall => bail!("{name} its connection broke: {error}"),
            _ => {}
        }
    }
    Ok(())
}

/// Turns a connection that broke before the server was ended into a failure.
fn mark_early(ends: Vec<End>) -> Vec<End> {
    let mark = |end| match end {
        End::Broken(error) => End::Wrong(format!("lost its connection before the server was ended: {error}")),
        other => other,
    };
    ends.into_iter().map(mark).collect()
}

/// Returns a number from INFO; 0 if the server does not report it.
fn field(port: u16, section: &str, name: &str) -> u64 {
    let client = Client::connect(port, REPLY_TIMEOUT);
    let info = client.and_then(|mut client| client.info(section));
    let info = info.ok().flatten().unwrap_or_default();
    info_field(&info, name).and_then(|count| count.parse().ok()).unwrap_or(0)
}
