//! The test of a server that follows a real redis-server: generated commands on the master, and meanwhile kills, stops
//! and cuts. After each round the replica holds what its master holds, key by key, and it has never loaded all of it
//! anew where the master's backlog reached.
//!
//! `load` writes to the master, with the cases of the differential test; `compare` finds what differs. `back` is the
//! same the other way round.

mod back;
pub mod compare;
pub mod load;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use std::{fmt, io};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::client::{Client, info_field};
use crate::random::{Random, fresh_seed};
use crate::repl::network::{Flow, Relay};
use crate::server::{REPLY_TIMEOUT, Server, Template, Workplace, haypile_binary};

/// Directives of a replica with which a few megabytes of writes reach the base.
const DIRECTIVES: &str = "--enable-debug-command yes --repl-timeout 10 --maxmemory 64mb --memtable-size 2mb \
     --flush-log-bytes 8mb --log-segment-size 1mb --databases 16";

/// Directives of the master: its backlog reaches further than any break here.
const OF_MASTER: &str = "--enable-debug-command yes --repl-backlog-size 256mb --repl-timeout 10 \
     --repl-ping-replica-period 1 --repl-diskless-sync-delay 0 --client-output-buffer-limit \"replica 0 0 0\"";

/// The time within which a replica that nothing disturbs has all of its master's data.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// The loads with which the replica and the one beside it begin.
const LOADS: u64 = 2;

/// Connections that write to the master.
const WRITERS: u64 = 3;

#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The replica's command line with {port} and {dir}; default: the haypile beside this program, or HAYPILE_BIN.
    #[arg(long)]
    pub server: Option<String>,
    /// Directives added to the replica's command line.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub options: String,
    /// The master's command line; default: redis-server.
    #[arg(long)]
    pub master: Option<String>,
    /// Keeps the master's directory after a failure: with an append-only file it has all commands.
    #[arg(long)]
    pub keep_master: bool,
    /// The seed, which is printed; by default one from the clock.
    #[arg(long)]
    pub seed: Option<u64>,
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// A redis-server follows the server, instead of the other way round.
    #[arg(long)]
    pub back: bool,
    /// Disturbances of a round.
    #[arg(long, default_value_t = 4)]
    pub disturbances: u64,
}

/// A disturbance of a replica that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Disturbance {
    /// The replica is killed, and starts again.
    Kill,
    /// The replica stops cleanly, and starts again.
    Stop,
    /// The connection ends, for a moment.
    Cut,
    /// The network swallows what is sent.
    Stall,
    /// The master ends the connection.
    Thrown,
    /// The replica is told to follow nobody, and its master again: it loads all anew.
    Leave,
}

const DISTURBANCES: [Disturbance; 12] = [
    Disturbance::Kill,
    Disturbance::Kill,
    Disturbance::Kill,
    Disturbance::Kill,
    Disturbance::Stop,
    Disturbance::Cut,
    Disturbance::Cut,
    Disturbance::Cut,
    Disturbance::Stall,
    Disturbance::Thrown,
    Disturbance::Thrown,
    Disturbance::Leave,
];

struct Run {
    master: Server,
    master_place: Workplace,
    /// A redis-server that follows the same master: what the stream does not tell it, nobody can know.
    peer: Server,
    _peer_place: Workplace,
    replica: Option<Server>,
    replica_place: Workplace,
    template: Template,
    port: u16,
    relay: Relay,
    random: Random,
    /// Loads of all data that had to be.
    loads: u64,
    /// The replica has loaded all data in this round, and the one beside it has not.
    loaded: bool,
    counts: BTreeMap<Disturbance, u64>,
    keys: u64,
}

/// Runs until the time is over, and prints what was found; returns true if all was well.
pub fn run(options: &Options) -> Result<bool> {
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let time = Duration::from_secs_f64(options.minutes * 60.0);
    println!("psync: seed {seed}, {} s", time.as_secs());
    if options.back {
        return back::run(options, seed, time);
    }
    follow(options, seed, time)
}

/// Runs a server that follows a redis-server; returns true if all was well.
fn follow(options: &Options, seed: u64, time: Duration) -> Result<bool> {
    let template = match &options.server {
        Some(line) => Template::parse(line)?,
        None => Template::haypile(&haypile_binary()?, DIRECTIVES)?,
    };
    let of_master = match &options.master {
        Some(line) => Template::parse(line)?,
        None => Template::redis(OF_MASTER)?,
    };
    let mut run = Run::start(&of_master, template.with(&options.options)?, seed)?;
    let (begin, mut rounds, mut commands) = (Instant::now(), 0, 0);
    let mut result = Ok(());
    while result.is_ok() && begin.elapsed() < time {
        result = run.round(seed, rounds, options.disturbances).map(|sent| commands += sent);
        rounds += 1;
    }
    let kills = run.counts.get(&Disturbance::Kill).copied().unwrap_or(0);
    let shown =
        Compared { rounds: rounds - u64::from(result.is_err()), commands, keys: run.keys, kills }.check(options);
    let counts: Vec<String> = run.counts.iter().map(|(what, count)| format!("{what:?} {count}")).collect();
    println!(
        "psync: {rounds} rounds, {commands} commands, {} keys compared, {} loads; {}; {:.0} s",
        run.keys,
        run.loads,
        counts.join(", "),
        begin.elapsed().as_secs_f64()
    );
    if let Err(why) = result {
        // Generated commands may keep the master busy for longer than anybody waits. Rounds before count all the same.
        if shown.is_ok() && why.downcast_ref::<OfMaster>().is_some() && (is_timeout(&why) || run.ask_master().is_err())
        {
            println!("psync: seed {seed}, round {}: {why:#}, which ends the run", rounds - 1);
            return Ok(true);
        }
        println!("psync: seed {seed}, round {}: {why:#}", rounds - 1);
        println!("{}\nkept: {}", run.replica_place.log_tail(), run.replica_place.keep().display());
        if options.keep_master {
            println!("kept: {}", run.master_place.keep().display());
        }
        return Ok(false);
    }
    shown.inspect_err(|why| println!("psync: seed {seed}: {why:#}")).map_or(Ok(false), |()| Ok(true))
}

/// The work of a run.
#[derive(Debug)]
struct Compared {
    /// Rounds that have come to their end.
    rounds: u64,
    commands: u64,
    keys: u64,
    kills: u64,
}

impl Compared {
    /// Checks that a run has shown something: data that were written, through a kill, and compared.
    fn check(&self, options: &Options) -> Result<()> {
        let is_killed = self.kills > 0 || options.disturbances == 0;
        ensure!(
            self.rounds > 0 && self.commands > 0 && self.keys > 0 && is_killed,
            "a run without a whole round, a command, a key that was compared or a kill shows nothing: {self:?}"
        );
        Ok(())
    }
}

/// Whether nothing came in time.
fn is_timeout(why: &anyhow::Error) -> bool {
    let mut errors = why.chain().filter_map(|error| error.downcast_ref::<io::Error>());
    errors.any(|error| matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock))
}

impl Run {
    fn start(of_master: &Template, template: Template, seed: u64) -> Result<Run> {
        let master_place = Workplace::new("psync-master", None)?;
        let replica_place = Workplace::new("psync", None)?;
        let (master, _) = Server::start(of_master, &master_place).context("starting the master")?;
        let peer_place = Workplace::new("psync-peer", None)?;
        let follows = of_master.with(&format!("--replicaof \"127.0.0.1 {}\"", master.port()))?;
        let (peer, _) = Server::start(&follows, &peer_place).context("starting a replica beside")?;
        let relay = Relay::start()?;
        relay.lead_to(master.port());
        let template = template.with(&format!("--replicaof \"127.0.0.1 {}\"", relay.port()))?;
        let (replica, _) = Server::start(&template, &replica_place).context("starting the replica")?;
        Ok(Run {
            master,
            master_place,
            peer,
            _peer_place: peer_place,
            port: replica.port(),
            replica: Some(replica),
            replica_place,
            template,
            relay,
            random: Random::of_part(seed, u64::MAX),
            loads: LOADS,
            loaded: false,
            counts: BTreeMap::new(),
            keys: 0,
        })
    }

    /// Writes and disturbs, and compares; returns the number of commands that were sent.
    fn round(&mut self, seed: u64, round: u64, disturbances: u64) -> Result<u64> {
        self.settle_link()?;
        let (ends, master) = (AtomicBool::new(false), self.master.port());
        let sent = thread::scope(|threads| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let ends = &ends;
                    threads.spawn(move || load::write(master, seed, round * WRITERS + writer, &load::UNTOLD, ends))
                })
                .collect();
            let disturbed = (0..disturbances).try_for_each(|at| {
                sleep(Duration::from_millis(self.random.between(50, 1500)));
                // A round has a kill in any case.
                let what = if at == 0 { Disturbance::Kill } else { *self.random.pick(&DISTURBANCES) };
                self.disturb(what)
            });
            ends.store(true, Ordering::Release);
            let sent: Result<Vec<u64>> =
                writers.into_iter().map(|writer| writer.join().expect("a writer does not panic")).collect();
            disturbed.and(sent)
        })?;
        self.settle()?;
        self.verify()?;
        if self.loaded {
            self.load_both()?;
        }
        Ok(sent.into_iter().sum())
    }

    fn disturb(&mut self, what: Disturbance) -> Result<()> {
        *self.counts.entry(what).or_default() += 1;
        match what {
            Disturbance::Kill | Disturbance::Stop => self.restart(what == Disturbance::Kill)?,
            Disturbance::Cut | Disturbance::Stall => {
                self.relay.set(if what == Disturbance::Cut { Flow::Cut } else { Flow::Stalled });
                let ms = if what == Disturbance::Cut { 400 } else { 4000 };
                sleep(Duration::from_millis(self.random.below(ms)));
                self.relay.set(Flow::Open);
            }
            Disturbance::Thrown => {
                of_master(self.master_client()?.call(&["CLIENT", "KILL", "TYPE", "replica"]))?;
            }
            Disturbance::Leave => {
                self.settle_link()?;
                let flushes = self.flushes()?;
                leave(&mut self.replica_client()?, self.relay.port())?;
                self.loaded = true;
                // A load that is disturbed begins anew.
                self.settle_link()?;
                // So does one that the master ends: a FLUSHALL kills the process that sends the data.
                self.loads += 1 + self.flushes()? - flushes;
            }
        }
        Ok(())
    }

    /// Has the replica and the one beside it load all data at one moment, while nobody writes: from there on both know
    /// the same of what the stream does not tell.
    fn load_both(&mut self) -> Result<()> {
        leave(&mut self.replica_client()?, self.relay.port())?;
        leave(&mut self.peer.client()?, self.master.port())?;
        (self.loads, self.loaded) = (self.loads + LOADS, false);
        self.settle_link()?;
        self.settle()?;
        self.verify()
    }

    fn restart(&mut self, kills: bool) -> Result<()> {
        let mut replica = self.replica.take().context("a replica runs")?;
        if kills {
            replica.kill()?;
            self.template.check(&self.replica_place.data())?;
        } else {
            replica.terminate()?;
            let status = replica.wait_ended()?;
            ensure!(status.success(), "the replica has not stopped cleanly: {status}");
        }
        self.replica = Some(Server::start_at(&self.template, &self.replica_place, self.port)?.0);
        Ok(())
    }

    /// Waits until the replica and the one beside it have loaded their master's data.
    fn settle_link(&self) -> Result<()> {
        let (mut client, mut peer, begin) = (self.replica_client()?, self.peer.client()?, Instant::now());
        loop {
            let info = client.info("replication")?.context("INFO is there")?;
            let of_peer = peer.info("replication")?.unwrap_or_default();
            if [&info, &of_peer].iter().all(|info| info_field(info, "master_link_status") == Some("up")) {
                return Ok(());
            }
            if begin.elapsed() > SETTLE_MAX {
                self.ask_master()?;
                let error = info_field(&info, "master_link_error").unwrap_or_default();
                bail!("the replica does not get to its master: {error}");
            }
            sleep(LOOK);
        }
    }

    /// Waits until the replica has all that its master has.
    fn settle(&self) -> Result<()> {
        let (mut master, mut peer, begin) = (self.master_client()?, self.peer.client()?, Instant::now());
        loop {
            let offset = |client: &mut Client, name: &str| -> io::Result<Option<u64>> {
                let info = client.info("replication")?.unwrap_or_default();
                Ok(info_field(&info, name).and_then(|offset| offset.parse().ok()))
            };
            let Some(all) = of_master(offset(&mut master, "master_repl_offset"))? else {
                // A master that is busy with a script says so instead.
                ensure!(begin.elapsed() < SETTLE_MAX, "the master does not say how far it is");
                sleep(LOOK);
                continue;
            };
            let mut replica = self.replica_client()?;
            let has = offset(&mut replica, "slave_repl_offset")?;
            let peer_has = offset(&mut peer, "slave_repl_offset")?;
            let link = replica.info("replication")?.unwrap_or_default();
            let link_of_peer = peer.info("replication")?.unwrap_or_default();
            let is_up = [&link, &link_of_peer].iter().all(|link| info_field(link, "master_link_status") == Some("up"));
            if has >= Some(all) && peer_has >= Some(all) && is_up {
                return Ok(());
            }
            if begin.elapsed() > SETTLE_MAX {
                let error = info_field(&link, "master_link_error").unwrap_or_default();
                bail!("the replica does not get to byte {all} of its master, but to {has:?}: {error}");
            }
            sleep(LOOK);
        }
    }

    /// Compares all keys, and how often all data were loaded.
    fn verify(&mut self) -> Result<()> {
        let (mut master, mut replica) = (self.master_client()?, self.replica_client()?);
        self.keys +=
            compare::compare(&mut master, Some(&mut self.peer.client()?), &mut replica, self.loaded, SETTLE_MAX)?;
        let info = of_master(master.info("stats"))?.context("INFO is there")?;
        let loads = info_field(&info, "sync_full").and_then(|count| count.parse::<u64>().ok());
        ensure!(
            loads.is_some_and(|loads| loads <= self.loads),
            "all data were loaded {loads:?} times, and there were reasons for {}",
            self.loads
        );
        Ok(())
    }

    /// Returns how often FLUSHALL has run on the master.
    fn flushes(&self) -> Result<u64> {
        let (mut master, begin) = (self.master_client()?, Instant::now());
        loop {
            // A master that is busy with a script says so instead.
            if let Some(info) = of_master(master.info("commandstats"))? {
                let calls = info_field(&info, "cmdstat_flushall").and_then(|about| about.strip_prefix("calls="));
                let calls = calls.and_then(|about| about.split(',').next()?.parse().ok());
                return Ok(calls.unwrap_or(0));
            }
            ensure!(begin.elapsed() < SETTLE_MAX, "the master does not say what it has run");
            sleep(LOOK);
        }
    }

    /// Asks whether the master answers, whatever it says.
    fn ask_master(&self) -> Result<()> {
        of_master(self.master_client()?.call(&["PING"])).map(drop)
    }

    fn master_client(&self) -> Result<Client> {
        of_master(Client::connect(self.master.port(), REPLY_TIMEOUT))
    }

    fn replica_client(&self) -> Result<Client> {
        Ok(Client::connect(self.port, REPLY_TIMEOUT)?)
    }
}

/// Marks an error of a connection to the redis-server that is followed.
#[derive(Debug)]
struct OfMaster;

impl fmt::Display for OfMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the master itself does not answer any more")
    }
}

/// Marks the error of a call to the master.
fn of_master<T>(result: io::Result<T>) -> Result<T> {
    result.context(OfMaster)
}

/// Has a replica go a way of its own, and then follow its master again, for which it loads all data.
fn leave(client: &mut Client, port_of_master: u16) -> Result<()> {
    ensure!(client.call(&["REPLICAOF", "NO", "ONE"])?.is_ok(), "it does not leave its master");
    let begin = Instant::now();
    while !client.call(&["SET", "own", "of its own"])?.is_ok() {
        ensure!(begin.elapsed() < SETTLE_MAX, "it takes no writes after REPLICAOF NO ONE");
        sleep(LOOK);
    }
    let port = port_of_master.to_string();
    ensure!(client.call(&["REPLICAOF", "127.0.0.1", &port])?.is_ok(), "it does not follow again");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_has_compared_nothing_shows_nothing() {
        let options = |disturbances| Options {
            server: None,
            options: String::new(),
            master: None,
            keep_master: false,
            seed: None,
            minutes: 0.0,
            back: false,
            disturbances,
        };
        let is_enough = |[rounds, commands, keys, kills]: [u64; 4], disturbances| {
            Compared { rounds, commands, keys, kills }.check(&options(disturbances)).is_ok()
        };
        assert!(is_enough([1, 1, 1, 1], 4));
        for nothing in [[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]] {
            assert!(!is_enough(nothing, 4), "{nothing:?}");
        }
        assert!(is_enough([1, 1, 1, 0], 0), "nothing was to be disturbed");
    }

    #[test]
    fn only_an_error_of_a_connection_to_the_master_is_of_the_master() {
        let broken = || io::Error::from(io::ErrorKind::TimedOut);
        let is_of_master = |result: Result<()>| result.is_err_and(|why| why.downcast_ref::<OfMaster>().is_some());
        assert!(is_of_master(of_master(Err(broken())).context("in a round")));
        assert!(!is_of_master(Err(broken().into())));
        assert!(!is_of_master(Err(anyhow::anyhow!("master and replica differ"))));
    }
}
