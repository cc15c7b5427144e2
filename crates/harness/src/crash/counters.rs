//! Counters that many connections raise at once, by WATCH, GET, SET and by INCR, in blocks: an update that is lost
//! shows as a counter below its acknowledged EXECs. Other blocks have a command that changes too much: both of their
//! counters are raised, or none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::model::Database;
use super::writer::End;
use crate::client::{Client, Reply};
use crate::random::Random;
use crate::server::REPLY_TIMEOUT;

/// The database of the counters, which no writer uses.
const HOME: Database = 7;
/// The number of counters: few, so that connections meet at them.
const COUNTERS: usize = 3;
/// The counters of a refused block: one before the command that changes too much, and one behind it.
const PAIR: [&str; 2] = ["pair:before", "pair:behind"];
const WATCHERS: usize = 4;
const INCREMENTERS: usize = 2;
/// Values of the command that changes too much: together more than `txn-bytes-max` of the small store.
const LARGE_VALUES: usize = 330;
const LARGE_VALUE_BYTES: usize = 16_000;
/// The pause between two refused blocks, of five megabytes each, which leaves room for other writes.
const REFUSED_INTERVAL: Duration = Duration::from_millis(100);

/// The shortest run in which each of the totals has to be more than none.
const TOTALS_MIN: Duration = Duration::from_secs(10);

/// The way in which a connection raises a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// WATCH, GET, MULTI, SET, EXEC, until no other write came between.
    Watch,
    /// MULTI, INCR, EXEC, now and then beside a value that takes long to write.
    Increment,
    /// MULTI, INCR, a command that is refused, INCR, EXEC.
    Refused,
}

/// One connection, and its acknowledged changes; the value outlives the server.
struct Connection {
    way: Way,
    random: Random,
    /// Acknowledged changes by counter. The pair of refused blocks counts as one.
    acknowledged: [u64; COUNTERS],
    /// The counter of the EXEC without a reply.
    in_flight: Option<usize>,
}

/// All connections and counters.
pub struct Counters {
    random: Random,
    connections: Vec<Connection>,
    /// The values of the counters at the last verification.
    found: [u64; COUNTERS],
    pair_found: u64,
    pub raised: u64,
    pub refused: u64,
}

/// A thread's work on one connection.
pub struct Task<'a>(&'a mut Connection);

impl Counters {
    pub fn new(seed: u64) -> Counters {
        let ways = [(Way::Watch, WATCHERS), (Way::Increment, INCREMENTERS), (Way::Refused, 1)];
        let ways = ways.into_iter().flat_map(|(way, count)| (0..count).map(move |_| way));
        let connections = ways.enumerate().map(|(part, way)| Connection {
            way,
            random: Random::of_part(seed, (1 << 34) + part as u64),
            acknowledged: [0; COUNTERS],
            in_flight: None,
        });
        let random = Random::of_part(seed, (1 << 34) - 1);
        Counters {
            random,
            connections: connections.collect(),
            found: [0; COUNTERS],
            pair_found: 0,
            raised: 0,
            refused: 0,
        }
    }

    /// Returns the work of threads while the server lives. In half of the rounds a single connection watches: then
    /// there are moments without any watch, and a commit that asks too early takes the next WATCH for none.
    pub fn tasks(&mut self) -> Vec<Task<'_>> {
        let idle = if self.random.percent(50) { WATCHERS - 1 } else { 0 };
        self.connections.iter_mut().skip(idle).map(Task).collect()
    }

    /// Forgets all counters after a FLUSHALL.
    pub fn forget(&mut self) {
        (self.found, self.pair_found) = ([0; COUNTERS], 0);
        for connection in &mut self.connections {
            (connection.acknowledged, connection.in_flight) = ([0; COUNTERS], None);
        }
    }

    /// Compares the counters of a server without other writers with the acknowledged changes.
    pub fn verify(&mut self, client: &mut Client) -> Result<()> {
        client.command(&format!("SELECT {HOME}"))?;
        for number in 0..COUNTERS {
            let least = self.found[number] + self.take_acknowledged(number, |way| way != Way::Refused);
            let most = least + self.take_in_flight(number, |way| way != Way::Refused);
            let value = read(client, &name(number))?;
            ensure!(
                value >= least,
                "{} is {value} after {least} acknowledged increments: an update is lost",
                name(number)
            );
            ensure!(value <= most, "{} is {value}, and only {most} increments were ever sent", name(number));
            self.raised += value - self.found[number];
            self.found[number] = value;
        }
        let least = self.pair_found + self.take_acknowledged(0, |way| way == Way::Refused);
        let most = least + self.take_in_flight(0, |way| way == Way::Refused);
        let [before, behind] = [read(client, PAIR[0])?, read(client, PAIR[1])?];
        ensure!(before == behind, "a block stands in half: {} is {before}, {} is {behind}", PAIR[0], PAIR[1]);
        ensure!((least..=most).contains(&before), "{} is {before}, and {least} to {most} blocks can stand", PAIR[0]);
        self.pair_found = before;
        Ok(())
    }

    fn take_acknowledged(&mut self, number: usize, is: impl Fn(Way) -> bool) -> u64 {
        let connections = self.connections.iter_mut().filter(|connection| is(connection.way));
        connections.map(|connection| std::mem::take(&mut connection.acknowledged[number])).sum()
    }

    fn take_in_flight(&mut self, number: usize, is: impl Fn(Way) -> bool) -> u64 {
        let connections = self.connections.iter_mut().filter(|connection| is(connection.way));
        let taken = connections.filter_map(|connection| connection.in_flight.take_if(|at| *at == number));
        taken.count() as u64
    }

    /// Fails if a run of `time` has raised nothing, or has had no block refused by a server of ours.
    pub fn check_totals(&self, time: Duration, is_ours: bool) -> Result<()> {
        if time >= TOTALS_MIN {
            ensure!(self.raised > 0, "no counter was ever raised: nothing was tested");
            ensure!(
                self.refused > 0 || !is_ours,
                "no block that changes too much was refused: is `txn-bytes-max` small?"
            );
        }
        Ok(())
    }

    /// Adds to the number of refused blocks, for the totals.
    pub fn note_refused(&mut self, count: u64) {
        self.refused += count;
    }
}

fn name(number: usize) -> String {
    format!("counter:{number}")
}

fn read(client: &mut Client, key: &str) -> Result<u64> {
    let reply = client.command(&format!("GET {key}"))?;
    if reply.is_nil() {
        return Ok(0);
    }
    number(&reply).with_context(|| format!("GET {key} was answered by {reply}"))
}

fn number(reply: &Reply) -> Option<u64> {
    std::str::from_utf8(reply.bytes()?).ok()?.parse().ok()
}

impl Task<'_> {
    /// Runs until told to stop or until the connection breaks; returns how many blocks were refused.
    pub fn run(self, port: u16, stop: &AtomicBool) -> (End, u64) {
        let mut refused = 0;
        let connect = || -> std::io::Result<Client> {
            let mut client = Client::connect(port, REPLY_TIMEOUT)?;
            client.command(&format!("SELECT {HOME}"))?;
            Ok(client)
        };
        let mut client = match connect() {
            Ok(client) => client,
            Err(error) => return (End::Broken(error), refused),
        };
        while !stop.load(Ordering::Relaxed) {
            let step = match self.0.way {
                Way::Watch => self.0.watch(&mut client),
                Way::Increment => self.0.increment(&mut client),
                Way::Refused => self.0.be_refused(&mut client, &mut refused),
            };
            match step {
                Ok(Ok(())) => {}
                Ok(Err(text)) => return (End::Wrong(text), refused),
                Err(error) => return (End::Broken(error), refused),
            }
        }
        (End::Stopped, refused)
    }
}

type Step = std::io::Result<Result<(), String>>;

impl Connection {
    fn watch(&mut self, client: &mut Client) -> Step {
        let at = self.random.below(COUNTERS as u64) as usize;
        let key = name(at);
        client.push(&["WATCH", &key]);
        client.push(&["GET", &key]);
        client.flush()?;
        client.read()?;
        let found = client.read()?;
        let value = number(&found).unwrap_or(0) + 1;
        self.execute(client, at, &[vec!["SET".into(), key, value.to_string()]])
    }

    fn increment(&mut self, client: &mut Client) -> Step {
        let at = self.random.below(COUNTERS as u64) as usize;
        let mut block = vec![vec!["INCR".to_string(), name(at)]];
        if self.random.percent(10) {
            block.push(vec!["SET".into(), "filler".into(), "x".repeat(self.random.below(200_000) as usize)]);
        }
        self.execute(client, at, &block)
    }

    /// Runs a block, and counts it if it took effect.
    fn execute(&mut self, client: &mut Client, at: usize, block: &[Vec<String>]) -> Step {
        let reply = self.send(client, at, block)?;
        match &reply {
            Reply::Array(_) => self.acknowledged[at] += 1,
            Reply::NullArray | Reply::Null => {}
            _ => return Ok(Err(format!("EXEC was answered by {reply}"))),
        }
        Ok(Ok(()))
    }

    fn be_refused(&mut self, client: &mut Client, refused: &mut u64) -> Step {
        let value = "x".repeat(LARGE_VALUE_BYTES);
        let mut large = vec!["MSET".to_string()];
        (0..LARGE_VALUES).for_each(|at| large.extend([format!("large:{at}"), value.clone()]));
        let raise = |key: &str| vec!["INCR".to_string(), key.to_string()];
        let reply = self.send(client, 0, &[raise(PAIR[0]), large, raise(PAIR[1])])?;
        match (&reply, reply.error()) {
            // A server without such a bound accepts the block.
            (Reply::Array(replies), _) if replies.iter().all(|reply| reply.error().is_none()) => {
                self.acknowledged[0] += 1
            }
            (_, Some(error)) if error.starts_with("EXECABORT") => *refused += 1,
            _ => return Ok(Err(format!("EXEC of a block that changes too much was answered by {reply}"))),
        }
        sleep(REFUSED_INTERVAL);
        Ok(Ok(()))
    }

    /// Sends a block and returns the reply to EXEC.
    fn send(&mut self, client: &mut Client, at: usize, block: &[Vec<String>]) -> std::io::Result<Reply> {
        client.push(&["MULTI"]);
        block.iter().for_each(|command| client.push(command));
        client.push(&["EXEC"]);
        self.in_flight = Some(at);
        client.flush()?;
        for _ in 0..=block.len() {
            client.read()?;
        }
        let reply = client.read()?;
        self.in_flight = None;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_tested_nothing_fails_unless_it_was_short() {
        let check = |raised, refused, seconds, is_ours| {
            let counters = Counters { raised, refused, ..Counters::new(1) };
            counters.check_totals(Duration::from_secs(seconds), is_ours).is_ok()
        };
        assert!(check(1, 1, 10, true));
        assert!(check(1, 0, 10, false), "redis-server has no such bound");
        assert!(check(0, 0, 9, true));
        assert!(!check(0, 1, 10, true));
        assert!(!check(1, 0, 10, true));
    }
}
