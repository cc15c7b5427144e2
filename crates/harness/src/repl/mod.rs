//! The test of replication: three servers, clients that write to the one that leads, and one disturbance after the
//! other: kills, stops, cuts, promotions, failovers, slow links, full disks, lost directories. After each round all
//! servers hold the same, what was acknowledged is there, and `haypile check` finds nothing in what was killed.
//!
//! `network` is what lies between the servers, `cluster` starts and ends them, `scenario` disturbs. Writers and the
//! model of what must be there are the crash test's.
//!
//! In rounds with `replicas-to-ack 1` nothing acknowledged may be lost, whatever happens. In others, a promotion may
//! lose the end of what the old master acknowledged, but nothing before it: each writer's data are those after some
//! number of its operations. Where the replicas had been waited for, nothing that was acknowledged by then is lost.

pub mod cluster;
pub mod network;
pub mod scenario;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::client::Client;
use crate::crash::model::find_survivor;
use crate::crash::observe::{check_sizes, observe};
use crate::crash::transactions::load_library;
use crate::crash::writer::{End, Progress, Writer};
use crate::crash::{USED, by_writer, make_writers};
use crate::random::Random;
use crate::server::{REPLY_TIMEOUT, Template};
use cluster::{Cluster, NODES};
use scenario::{Course, Scenario};

pub struct Options {
    pub server: Template,
    pub seed: u64,
    pub time: Duration,
    /// Clients that write to the master from the beginning of a round; as many more come behind the disturbance.
    pub writers: u64,
}

/// Directives of servers that notice each other's silence soon, and whose logs are short.
pub const DIRECTIVES: &str = "--enable-debug-command yes --repl-timeout 2 --maxmemory 64mb --memtable-size 2mb \
     --flush-log-bytes 16mb --log-segment-size 1mb --txn-bytes-max 4mb --replicas-to-ack-timeout 0 --disk-free-min 64mb";

/// The shortest run that has to come to all that it is for.
const TOTALS_MIN: Duration = Duration::from_secs(600);

/// The longest wait before a promotion until the replicas have what the master has acknowledged.
const CAUGHT_UP_MAX: Duration = Duration::from_secs(5);

/// The lines of a master's log about a replica that records are not enough for, and about one that was away for longer
/// than the log reaches.
const NEEDS_COPY: &str = "needs a copy: ";
const PURGED: &str = ": see log-retention-size";

#[derive(Debug, Default)]
struct Totals {
    rounds: BTreeMap<Scenario, u64>,
    promotions: u64,
    /// Rounds in which nothing acknowledged might be lost, because replicas had to have it.
    acknowledged_rounds: u64,
    survivors_in_flight: u64,
    keys_checked: u64,
    /// Operations that a master had acknowledged and that are lost, where that may be.
    lost: u64,
    /// Rounds in which the replicas had what was acknowledged before the master ended.
    caught_up: u64,
}

struct Run<'a> {
    options: &'a Options,
    cluster: Cluster,
    random: Random,
    /// The writers: first those who write from the beginning of a round, then those who come later.
    writers: Vec<Writer>,
    master: usize,
    /// For each writer, the operations of this round that survive a promotion: the replicas had them before.
    floors: Vec<u64>,
    totals: Totals,
}

/// Runs until the time is over and prints totals and losses; returns true if all was well.
pub fn run(options: &Options) -> Result<bool> {
    println!("repl: seed {}, {} writers, {} s", options.seed, 2 * options.writers, options.time.as_secs());
    let mut run = Run {
        options,
        cluster: Cluster::start(&options.server)?,
        random: Random::of_part(options.seed, u64::MAX),
        writers: make_writers(2 * options.writers, options.seed),
        master: 0,
        floors: Vec::new(),
        totals: Totals::default(),
    };
    let begin = Instant::now();
    let mut result = run.cluster.settle(0).and_then(|()| load_library(&mut run.cluster.client(0)?));
    while result.is_ok() && begin.elapsed() < options.time {
        result = run.round();
    }
    run.print_totals();
    match result.and_then(|()| run.check_totals()) {
        Ok(()) => {
            println!("repl: all servers agree, and nothing is lost");
            Ok(true)
        }
        Err(error) => {
            println!("repl: FAILED: {error:#}");
            let (places, lines) = run.cluster.keep();
            println!("repl: the servers' last lines:\n{lines}");
            println!("repl: everything is left in {places:?}");
            Ok(false)
        }
    }
}

impl Run<'_> {
    fn print_totals(&self) {
        let Totals { rounds, promotions, acknowledged_rounds, survivors_in_flight, keys_checked, lost, caught_up } =
            &self.totals;
        let all: u64 = rounds.values().sum();
        let sent: u64 = self.writers.iter().map(|writer| writer.operations_sent).sum();
        let acknowledged: u64 = self.writers.iter().map(|writer| writer.operations_acknowledged).sum();
        println!("repl: seed {}: {all} rounds, {promotions} promotions: {rounds:?}", self.options.seed);
        println!(
            "repl: {sent} operations sent, {acknowledged} acknowledged, {survivors_in_flight} in flight survived, \
             {keys_checked} keys checked"
        );
        println!(
            "repl: {acknowledged_rounds} rounds with replicas-to-ack 1; in the others promotions lost {lost} \
             acknowledged operations, and none in {caught_up} where the replicas had been waited for"
        );
        println!(
            "repl: {} starts, {} directories checked, {} copies fetched, {} cut short by a kill, {} tails given up, \
             {} failovers",
            self.cluster.starts,
            self.cluster.checks,
            self.cluster.count_lines(|line| line.contains("the copy is in place")),
            self.cluster.copies_cut,
            self.cluster.tails(),
            self.cluster.failovers
        );
    }

    /// Fails if the run was long and never came to what it is for.
    fn check_totals(&self) -> Result<()> {
        if self.options.time >= TOTALS_MIN {
            ensure!(self.totals.promotions > 0, "nobody was ever promoted");
            ensure!(self.cluster.failovers > 0, "FAILOVER never made a replica lead");
            ensure!(self.cluster.copies_cut > 0, "nobody was ever killed in the middle of a copy");
        }
        Ok(())
    }

    fn round(&mut self) -> Result<()> {
        let scenario = Scenario::draw(&mut self.random);
        let asks = self.random.percent(70);
        let described = format!("{scenario:?} with node {} as master, replicas-to-ack {}", self.master, u8::from(asks));
        self.totals.acknowledged_rounds += u64::from(asks);
        self.cluster.configure("replicas-to-ack", if asks { "1" } else { "0" })?;
        let (tails, copies, lost) = (self.cluster.tails(), self.needless_copies(), self.totals.lost);
        self.arrange()?;
        let leader = self.write_through(scenario, asks).context(described.clone())?;
        let round = self.totals.rounds.entry(scenario).or_default();
        *round += 1;
        self.totals.promotions += u64::from(leader != self.master);
        self.master = leader;
        self.cluster.settle(leader).context(described.clone())?;
        self.verify(asks || scenario.keeps_all()).context(described.clone())?;
        let (lost, copies) = (self.totals.lost - lost, self.needless_copies() - copies);
        ensure!(
            lost == 0 || self.cluster.tails() > tails,
            "{described}: {lost} acknowledged operations are lost, and no tail has them"
        );
        ensure!(
            copies == 0 || !scenario.needs_no_copy(),
            "{described}: {copies} copies were fetched, and records were enough"
        );
        Ok(())
    }

    /// Returns how many copies were fetched for another reason than records that the log has no more.
    fn needless_copies(&self) -> usize {
        self.cluster.count_lines(|line| line.contains(NEEDS_COPY) && !line.contains(PURGED))
    }

    /// Draws who follows whom, and how fast the network is.
    fn arrange(&mut self) -> Result<()> {
        let replicas: Vec<usize> = (0..NODES).filter(|number| *number != self.master).collect();
        let (first, second) = if self.random.percent(50) { (0, 1) } else { (1, 0) };
        self.cluster.follow(replicas[first], Some(self.master))?;
        let above = if self.random.percent(25) { replicas[first] } else { self.master };
        self.cluster.follow(replicas[second], Some(above))?;
        if self.random.percent(20) {
            self.cluster.slow_down(Duration::from_millis(self.random.between(1, 20)));
        }
        Ok(())
    }

    /// Lets writers write, disturbs, lets others write to the node that leads then, and brings all back.
    fn write_through(&mut self, scenario: Scenario, asks: bool) -> Result<usize> {
        let Run { cluster, random, writers, master, options, floors, totals, .. } = self;
        let progress: Vec<Arc<Progress>> = writers.iter_mut().map(Writer::begin_journal).collect();
        *floors = vec![0; writers.len()];
        let waits = !asks && !scenario.keeps_all() && random.percent(50);
        let (early, late) = writers.split_at_mut(options.writers as usize);
        let mut late = Some(late);
        let stop = &AtomicBool::new(false);
        let (leader, ends) = thread::scope(|threads| {
            let connect = |port| Client::connect(port, REPLY_TIMEOUT);
            let port = cluster.port(*master)?;
            let mut running: Vec<_> =
                early.iter_mut().map(|writer| threads.spawn(move || writer.run(connect(port), stop))).collect();
            let mut play = || -> Result<usize> {
                sleep(Duration::from_millis(random.between(20, 1500)));
                if waits {
                    let told = acknowledged(&progress);
                    if catch_up(cluster, *master)? {
                        (*floors, totals.caught_up) = (told, totals.caught_up + 1);
                    }
                }
                let leader =
                    Course { cluster: &mut *cluster, random: &mut *random, master: *master }.disturb(scenario)?;
                let port = cluster.port(leader)?;
                let late = late.take().into_iter().flatten();
                running.extend(late.map(|writer| threads.spawn(move || writer.run(connect(port), stop))));
                sleep(Duration::from_millis(random.between(20, 1000)));
                reunite(cluster, random, leader)?;
                Ok(leader)
            };
            let played = play();
            stop.store(true, Ordering::Relaxed);
            if played.is_err() {
                // Clients of a server that is stopped would wait.
                (0..NODES).for_each(|number| _ = cluster.freeze(number, false));
                cluster.heal();
            }
            let ends: Vec<End> = running.into_iter().map(|t| t.join().expect("it does not panic")).collect();
            played.map(|leader| (leader, ends))
        })?;
        for (number, (writer, end)) in self.writers.iter().zip(&ends).enumerate() {
            let is_served = number >= self.options.writers as usize || scenario.serves_all();
            check_end(end, is_served).with_context(|| writer.prefix.clone())?;
        }
        let is_acknowledged = acknowledged(&progress).iter().any(|count| *count > 0);
        ensure!(is_acknowledged || asks && scenario != Scenario::Calm, "no operation was acknowledged");
        Ok(leader)
    }

    /// Reads everything from the master and finds, for each writer, the state that survived.
    fn verify(&mut self, keeps_all: bool) -> Result<()> {
        let mut client = self.cluster.client(self.master)?;
        let seen = observe(&mut client, &USED)?;
        self.totals.keys_checked += seen.keys.len() as u64;
        let parts = by_writer(seen, &self.writers)?;
        let early = self.options.writers as usize;
        for (number, (writer, part)) in self.writers.iter_mut().zip(parts).enumerate() {
            let (acknowledged, unknown) = (writer.acknowledged.clone(), writer.in_flight.make_contiguous().to_vec());
            let survived = find_survivor(&acknowledged, &unknown, &part);
            let state = match survived {
                Ok((state, survived)) => {
                    self.totals.survivors_in_flight += survived as u64;
                    state
                }
                Err(_) if !keeps_all && number < early => {
                    let all = writer.journal().1.len() as u64;
                    let (before, operations) = writer.journal_between(self.floors[number], all);
                    let found = find_survivor(&before, operations, &part);
                    let (state, survived) = match found {
                        Ok(found) => found,
                        Err(text) => bail!("writer {} {text}", writer.prefix),
                    };
                    self.totals.lost += operations.len().saturating_sub(unknown.len() + survived) as u64;
                    state
                }
                Err(text) => bail!("writer {} {text}", writer.prefix),
            };
            writer.resume_from(state);
        }
        check_sizes(&mut client, &USED, true)
    }
}

/// Returns how many operations of each writer have been acknowledged in this round.
fn acknowledged(progress: &[Arc<Progress>]) -> Vec<u64> {
    progress.iter().map(|progress| progress.acknowledged.load(Ordering::Acquire)).collect()
}

/// Waits until both replicas have what the master has now; returns false if that takes too long.
fn catch_up(cluster: &Cluster, master: usize) -> Result<bool> {
    let (due, begin) = (cluster.facts(master)?.last, Instant::now());
    loop {
        let all = (0..NODES).map(|number| cluster.facts(number)).collect::<Result<Vec<_>>>()?;
        if all.iter().all(|facts| facts.last >= due) {
            return Ok(true);
        }
        if begin.elapsed() > CAUGHT_UP_MAX {
            return Ok(false);
        }
        sleep(Duration::from_millis(5));
    }
}

/// Fails if a writer has read something wrong or was left without a reply, or if one `is_served` has lost its
/// connection or was refused.
fn check_end(end: &End, is_served: bool) -> Result<()> {
    match end {
        End::Stopped => {}
        End::Wrong(text) => bail!("{text}"),
        End::Broken(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
            bail!("has no reply after {} s", REPLY_TIMEOUT.as_secs())
        }
        End::Broken(error) => ensure!(!is_served, "lost the connection to a server that leads: {error}"),
        End::Refused => ensure!(!is_served, "is refused by a server that leads"),
    }
    Ok(())
}

/// Ends all disturbances: every node is there and follows the leader. One that was a master may come up as one first.
fn reunite(cluster: &mut Cluster, random: &mut Random, leader: usize) -> Result<()> {
    for number in (0..NODES).filter(|number| *number != leader) {
        if cluster.nodes[number].is_frozen {
            cluster.freeze(number, false)?;
            // As long as nobody tells it, it is a master.
            sleep(Duration::from_millis(random.below(300)));
        }
        if !cluster.is_up(number) {
            cluster.start_node(number, random.percent(50))?;
            sleep(Duration::from_millis(random.below(300)));
        }
        if random.percent(50) {
            cluster.heal();
        }
        cluster.follow(number, Some(leader))?;
    }
    cluster.heal();
    Ok(())
}
