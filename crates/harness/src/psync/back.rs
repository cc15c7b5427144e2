//! A redis-server that follows the server under test, which is killed and stopped meanwhile: after each round the two
//! hold the same, and the redis-server has never been sent all data where the log reached.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Compared, DIRECTIVES, LOOK, OF_MASTER, Options, SETTLE_MAX, WRITERS, compare, load};
use crate::client::{Client, info_field};
use crate::random::Random;
use crate::repl::network::{Flow, Relay};
use crate::server::{REPLY_TIMEOUT, Server, Template, Workplace, haypile_binary};

/// A disturbance of a server that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Disturbance {
    /// The server is killed, and starts again.
    Kill,
    /// The server stops cleanly, and starts again.
    Stop,
    /// The connection ends, for a moment.
    Cut,
    /// The network swallows what is sent.
    Stall,
    /// The server ends the connection.
    Thrown,
    /// The redis-server is told to follow nobody, and then the server again: it gets all data.
    Leave,
}

const DISTURBANCES: [Disturbance; 10] = [
    Disturbance::Kill,
    Disturbance::Kill,
    Disturbance::Kill,
    Disturbance::Stop,
    Disturbance::Cut,
    Disturbance::Cut,
    Disturbance::Stall,
    Disturbance::Thrown,
    Disturbance::Thrown,
    Disturbance::Leave,
];

/// The words in the server's log about a transfer of all data.
const SENT_ALL: &str = "a Redis, gets all data";

struct Run {
    master: Option<Server>,
    place: Workplace,
    template: Template,
    port: u16,
    relay: Relay,
    replica: Server,
    replica_place: Workplace,
    random: Random,
    /// Transfers of all data that there were reasons for.
    loads: usize,
    counts: BTreeMap<Disturbance, u64>,
    keys: u64,
}

/// Runs until the time is over, and prints what was found; returns true if all was well.
pub fn run(options: &Options, seed: u64, time: Duration) -> Result<bool> {
    let template = match &options.server {
        Some(line) => Template::parse(line)?,
        None => Template::haypile(&haypile_binary()?, DIRECTIVES)?,
    };
    let of_replica = match &options.master {
        Some(line) => Template::parse(line)?,
        None => Template::redis(OF_MASTER)?,
    };
    let mut run = Run::start(template.with(&options.options)?, &of_replica, seed)?;
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
        "psync --back: {rounds} rounds, {commands} commands, {} keys compared, {} loads; {}; {:.0} s",
        run.keys,
        run.loads,
        counts.join(", "),
        begin.elapsed().as_secs_f64()
    );
    if let Err(why) = result {
        println!("psync --back: seed {seed}, round {}: {why:#}", rounds - 1);
        println!("{}\nkept: {}", run.place.log_tail(), run.place.keep().display());
        println!("kept: {}", run.replica_place.keep().display());
        return Ok(false);
    }
    shown.inspect_err(|why| println!("psync --back: seed {seed}: {why:#}")).map_or(Ok(false), |()| Ok(true))
}

impl Run {
    fn start(template: Template, of_replica: &Template, seed: u64) -> Result<Run> {
        let (place, replica_place) = (Workplace::new("psync-back", None)?, Workplace::new("psync-redis", None)?);
        let (master, _) = Server::start(&template, &place).context("starting the server")?;
        let relay = Relay::start()?;
        relay.lead_to(master.port());
        let follows = of_replica.with(&format!("--replicaof \"127.0.0.1 {}\"", relay.port()))?;
        let (replica, _) = Server::start(&follows, &replica_place).context("starting the redis-server")?;
        Ok(Run {
            port: master.port(),
            master: Some(master),
            place,
            template,
            relay,
            replica,
            replica_place,
            random: Random::of_part(seed, u64::MAX),
            loads: 1,
            counts: BTreeMap::new(),
            keys: 0,
        })
    }

    /// Writes and disturbs, and compares; returns the number of commands that were sent.
    fn round(&mut self, seed: u64, round: u64, disturbances: u64) -> Result<u64> {
        self.settle_link()?;
        let (ends, master) = (AtomicBool::new(false), self.port);
        let sent = thread::scope(|threads| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (ends, part) = (&ends, round * WRITERS + writer);
                    threads.spawn(move || load::write(master, seed, part, &[], ends))
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
        let (mut master, mut replica) = (self.master_client()?, self.replica.client()?);
        self.keys += compare::compare(&mut master, None, &mut replica, false, SETTLE_MAX)?;
        let sent_all = self.place.log_text().matches(SENT_ALL).count();
        ensure!(
            (1..=self.loads).contains(&sent_all),
            "the server's log tells of all data {sent_all} times, and there were reasons for {} and for one at least",
            self.loads
        );
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
            Disturbance::Thrown => drop(self.master_client()?.call(&["CLIENT", "KILL", "TYPE", "replica"])?),
            Disturbance::Leave => {
                self.settle_link()?;
                let (mut client, port) = (self.replica.client()?, self.relay.port().to_string());
                ensure!(client.call(&["REPLICAOF", "NO", "ONE"])?.is_ok(), "it does not leave its master");
                ensure!(client.call(&["SET", "own", "of its own"])?.is_ok(), "it takes no writes of its own");
                ensure!(client.call(&["REPLICAOF", "127.0.0.1", &port])?.is_ok(), "it does not follow again");
                self.loads += 1;
                // A transfer that is disturbed begins anew.
                self.settle_link()?;
            }
        }
        Ok(())
    }

    fn restart(&mut self, kills: bool) -> Result<()> {
        let mut master = self.master.take().context("the server runs")?;
        if kills {
            master.kill()?;
            self.template.check(&self.place.data())?;
        } else {
            master.terminate()?;
            let status = master.wait_ended()?;
            ensure!(status.success(), "the server has not stopped cleanly: {status}");
        }
        self.master = Some(Server::start_at(&self.template, &self.place, self.port)?.0);
        Ok(())
    }

    /// Waits until the redis-server follows.
    fn settle_link(&self) -> Result<()> {
        let (mut client, begin) = (self.replica.client()?, Instant::now());
        loop {
            let info = client.info("replication")?.context("INFO is there")?;
            let is = |name: &str, value: &str| info_field(&info, name) == Some(value);
            if is("master_link_status", "up") && is("master_sync_in_progress", "0") {
                return Ok(());
            }
            ensure!(begin.elapsed() < SETTLE_MAX, "the redis-server does not get to its master:\n{info}");
            sleep(LOOK);
        }
    }

    /// Waits until the redis-server has acknowledged all that the server has.
    fn settle(&self) -> Result<()> {
        let (mut master, begin) = (self.master_client()?, Instant::now());
        loop {
            let info = master.info("replication")?.context("INFO is there")?;
            let replica = info_field(&info, "slave0").unwrap_or_default().to_owned();
            if replica.contains("state=online") && replica.contains("lag_records=0") {
                return Ok(());
            }
            if begin.elapsed() > SETTLE_MAX {
                bail!("the redis-server does not get to the end: {replica}");
            }
            sleep(LOOK);
        }
    }

    fn master_client(&self) -> Result<Client> {
        Ok(Client::connect(self.port, REPLY_TIMEOUT)?)
    }
}
