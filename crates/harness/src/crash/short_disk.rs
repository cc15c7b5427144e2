//! The crash test on a disk that is short of room: other files fill it and go again while many connections write and
//! delete, and the server is stopped or killed and started again, wherever that leaves it. Acknowledged writes are
//! there, a block took effect as a whole or not at all, a refused write had no effect, and in the end all room comes
//! back.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Options, goes_on};
use crate::client::{Client, Reply};
use crate::random::Random;
use crate::server::{REPLY_TIMEOUT, Server, Workplace};
use crate::small_disk::SmallDisk;

/// Directives under which a disk of `DISK_BYTES` is short from time to time.
pub const SMALL_STORE: &str = "--maxmemory 64mb --memtable-size 4mb --flush-log-bytes 16mb --disk-free-min 32mb";

const DISK_BYTES: u64 = 400 << 20;

/// Triples of keys that each writer has.
const TRIPLES: u64 = 6;

/// The shortest run in which each of the totals that `Totals::check` names has to be more than none.
const TOTALS_MIN: Duration = Duration::from_secs(10);

/// The longest time until the server gives back the room that FLUSHALL has freed.
const ROOM_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Totals {
    rounds: u64,
    kills: u64,
    starts_refused: u64,
    written: AtomicU64,
    deleted: AtomicU64,
    writes_refused: AtomicU64,
    deletions_refused: AtomicU64,
}

impl Totals {
    /// Fails if a run of `time` has not come to what it is for.
    fn check(&self, time: Duration) -> Result<()> {
        if time >= TOTALS_MIN {
            ensure!(self.kills > 0, "the server was never killed");
            ensure!(self.written.load(Ordering::Relaxed) > 0, "nothing was ever written");
            ensure!(self.writes_refused.load(Ordering::Relaxed) > 0, "no write was refused: was the disk never short?");
        }
        Ok(())
    }
}

/// A writer of triples: three keys that are always written and deleted together.
struct Writer {
    number: u64,
    random: Random,
    /// The acknowledged value of each triple, by its number; 0 for none.
    acknowledged: [u64; TRIPLES as usize],
    /// The triple that the operation in flight writes, and the number of its value.
    in_flight: Option<(usize, u64)>,
    next: u64,
}

/// Returns a value unlike all others, which does not compress.
fn value(number: u64) -> Vec<u8> {
    let mut random = Random::of_part(number, 0);
    let bytes = if random.percent(8) { random.between(1 << 20, 4 << 20) } else { random.between(10_000, 400_000) };
    let mut value = vec![0; bytes as usize];
    random.fill(&mut value);
    value
}

/// Returns whether a reply refuses a command for lack of room.
fn is_refusal(reply: &Reply) -> bool {
    let refused =
        |text: &str| text.starts_with("MISCONF ") || text.starts_with("EXECABORT ") && text.contains("MISCONF ");
    reply.error().is_some_and(|text| refused(&text))
}

impl Writer {
    fn new(seed: u64, number: u64) -> Writer {
        let random = Random::of_part(seed, number);
        Writer { number, random, acknowledged: Default::default(), in_flight: None, next: (number + 1) << 32 }
    }

    fn key(&self, triple: usize, part: char) -> String {
        format!("w{}:{triple}{part}", self.number)
    }

    /// Writes until told to stop, or the server is gone; a reply that cannot be is an error.
    fn run(&mut self, port: u16, stop: &AtomicBool, totals: &Totals) -> Result<()> {
        let Ok(mut client) = Client::connect(port, REPLY_TIMEOUT) else { return Ok(()) };
        while !stop.load(Ordering::Relaxed) {
            let triple = self.random.below(TRIPLES) as usize;
            let number = if self.random.percent(35) { 0 } else { self.next };
            self.next += 1;
            self.in_flight = Some((triple, number));
            let done =
                if number == 0 { self.delete(&mut client, triple) } else { self.write(&mut client, triple, number) };
            let reply = match done {
                Ok(reply) => reply,
                Err(error) if error.kind() == io::ErrorKind::TimedOut || error.kind() == io::ErrorKind::WouldBlock => {
                    bail!("writer {}: no reply within {} s", self.number, REPLY_TIMEOUT.as_secs())
                }
                // The server is gone, with this operation in flight.
                Err(_) => return Ok(()),
            };
            let refused = is_refusal(&reply);
            let count = match (number, refused) {
                (0, false) => &totals.deleted,
                (0, true) => &totals.deletions_refused,
                (_, false) => &totals.written,
                (_, true) => &totals.writes_refused,
            };
            count.fetch_add(1, Ordering::Relaxed);
            if !refused {
                let is_whole = match &reply {
                    Reply::Integer(_) => number == 0,
                    Reply::Array(replies) => replies.len() == 3 && replies.iter().all(|reply| reply.error().is_none()),
                    _ => false,
                };
                ensure!(is_whole, "writer {}: a block that stands in part, or not at all: {reply}", self.number);
                self.acknowledged[triple] = number;
            }
            self.in_flight = None;
        }
        Ok(())
    }

    fn delete(&self, client: &mut Client, triple: usize) -> io::Result<Reply> {
        let [a, b, c] = ['a', 'b', 'c'].map(|part| self.key(triple, part));
        client.call(&["DEL", &a, &b, &c])
    }

    fn write(&self, client: &mut Client, triple: usize, number: u64) -> io::Result<Reply> {
        let [a, b, c] = ['a', 'b', 'c'].map(|part| self.key(triple, part).into_bytes());
        let value = value(number);
        client.push(&["MULTI"]);
        client.push(&[&b"SET"[..], &a, &value]);
        client.push(&[&b"COPY"[..], &a, &c, b"REPLACE"]);
        client.push(&[&b"SET"[..], &b, &value]);
        client.push(&["EXEC"]);
        client.flush()?;
        for _ in 0..4 {
            client.read()?;
        }
        client.read()
    }

    /// Checks that each triple holds its acknowledged value, or the one in flight.
    fn verify(&mut self, client: &mut Client) -> Result<()> {
        for triple in 0..TRIPLES as usize {
            let under_way = self.in_flight.filter(|(at, _)| *at == triple).map(|(_, number)| number);
            let candidates = [Some(self.acknowledged[triple]), under_way];
            let mut found = Vec::new();
            for part in ['a', 'b', 'c'] {
                found.push(client.call(&["GET", &self.key(triple, part)])?.bytes().map(<[u8]>::to_vec));
            }
            let expected = |number: u64| (number > 0).then(|| value(number));
            let survivor =
                candidates.into_iter().flatten().find(|number| found.iter().all(|f| *f == expected(*number)));
            match survivor {
                Some(number) => self.acknowledged[triple] = number,
                None => {
                    let lengths: Vec<_> = found.iter().map(|value| value.as_ref().map(Vec::len)).collect();
                    let expected: Vec<_> =
                        candidates.into_iter().flatten().map(|n| expected(n).map(|v| v.len())).collect();
                    bail!(
                        "triple {}: lengths {lengths:?}, expected three times one of {expected:?}",
                        self.key(triple, '?')
                    );
                }
            }
        }
        self.in_flight = None;
        Ok(())
    }
}

/// Takes the disk's room and gives it back, until told to stop.
fn crowd(disk: &SmallDisk, mut random: Random, stop: &AtomicBool) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        match random.below(100) {
            0..=34 => disk.leave(random.below(60 << 20)).context("filling the disk")?,
            35..=44 => disk.leave(0).context("filling the disk")?,
            _ => disk.clear(),
        }
        sleep(Duration::from_millis(random.below(400)));
    }
    Ok(())
}

/// Runs until the time is over and prints totals and losses; returns true if nothing was lost and all room came back,
/// or if there is no small disk and nobody wants one.
pub fn run(options: &Options) -> Result<bool> {
    println!("crash on a short disk: seed {}, {} writers, {} s", options.seed, options.writers, options.time.as_secs());
    let mut place = Workplace::new("short-disk", None)?;
    let Some(disk) = SmallDisk::try_mount(&place.data(), &format!("size={DISK_BYTES}"))? else { return Ok(true) };
    let mut totals = Totals::default();
    let mut writers: Vec<Writer> = (0..options.writers).map(|number| Writer::new(options.seed, number)).collect();
    let mut random = Random::of_part(options.seed, u64::MAX);
    let begin = Instant::now();
    let mut result = Ok(());
    while result.is_ok() && goes_on(options.time, begin, || totals.check(options.time)) {
        totals.rounds += 1;
        result = round(options, &place, &disk, &mut writers, &mut random, &mut totals);
    }
    let result =
        result.and_then(|()| room_comes_back(options, &place, &disk)).and_then(|()| totals.check(options.time));
    println!("crash on a short disk: seed {}: {totals:?}", options.seed);
    match result {
        Ok(()) => {
            println!("crash on a short disk: nothing lost");
            Ok(true)
        }
        Err(error) => {
            println!("crash on a short disk: FAILED in round {}: {error:#}", totals.rounds);
            println!("crash on a short disk: the server's last lines:\n{}", place.log_tail());
            // The disk goes with this process; the server's log stays.
            println!("crash on a short disk: its log is left in {}", place.keep().display());
            Ok(false)
        }
    }
}

/// Room with which a server starts: two memtables of its budget.
const START_BYTES: u64 = 16 << 20;

/// Starts the server, on the disk as it is if possible.
fn start(options: &Options, place: &Workplace, disk: &SmallDisk, totals: &mut Totals) -> Result<Server> {
    if let Ok((server, _)) = Server::start(&options.server, place) {
        return Ok(server);
    }
    // Without room for the base's own files, or for a flush of what the log has and the memory has not, the server says
    // so and ends. It starts once there is room.
    ensure!(disk.free_bytes() < START_BYTES, "the server does not start with {} bytes free", disk.free_bytes());
    ensure!(place.log_tail().contains("full") || place.log_tail().contains("No space"), "it does not say why");
    totals.starts_refused += 1;
    disk.clear();
    Ok(Server::start(&options.server, place)?.0)
}

/// Runs one round: start, verify, write while another thread takes the room, end.
fn round(
    options: &Options,
    place: &Workplace,
    disk: &SmallDisk,
    writers: &mut [Writer],
    random: &mut Random,
    totals: &mut Totals,
) -> Result<()> {
    let mut server = start(options, place, disk, totals)?;
    let mut client = server.client()?;
    let keys = client.command("DBSIZE")?.integer().context("DBSIZE")?;
    writers.iter_mut().try_for_each(|writer| writer.verify(&mut client)).context("after the start")?;
    let there = writers.iter().flat_map(|writer| writer.acknowledged).filter(|number| *number > 0).count();
    ensure!(keys == 3 * there as i64, "DBSIZE is {keys}, and there are {there} triples");
    let (port, stop) = (server.port(), AtomicBool::new(false));
    let crowding = Random::new(random.next());
    let time = Duration::from_millis(random.between(300, 3000));
    // A short run has few rounds, and one kill at least.
    let kills = random.percent(70) || totals.rounds == 1;
    let keeps_full = random.percent(50);
    thread::scope(|scope| -> Result<()> {
        let (stop, totals) = (&stop, &*totals);
        let crowd = scope.spawn(move || crowd(disk, crowding, stop));
        let writing: Vec<_> =
            writers.iter_mut().map(|writer| scope.spawn(move || writer.run(port, stop, totals))).collect();
        sleep(time);
        let ended = if kills { server.kill().map(drop) } else { server.terminate() };
        stop.store(true, Ordering::Relaxed);
        crowd.join().expect("it does not panic")?;
        writing.into_iter().try_for_each(|writer| writer.join().expect("it does not panic"))?;
        ended
    })?;
    totals.kills += u64::from(kills);
    if !kills {
        let status = server.wait_ended()?;
        ensure!(status.success(), "the server stopped with {status} after SIGTERM");
    }
    if !keeps_full {
        disk.clear();
    }
    options.server.check(&disk.0).map(drop)
}

fn room_comes_back(options: &Options, place: &Workplace, disk: &SmallDisk) -> Result<()> {
    disk.clear();
    let (server, _) = Server::start(&options.server, place)?;
    let reply = server.client()?.command("FLUSHALL")?;
    ensure!(reply.is_ok(), "FLUSHALL: {reply}");
    let begin = Instant::now();
    // Room remains taken by a log of two segments, the reserve, and the base's own files.
    while disk.free_bytes() < DISK_BYTES / 2 {
        ensure!(
            begin.elapsed() < ROOM_MAX,
            "{} bytes are free of {DISK_BYTES}, and nothing is stored",
            disk.free_bytes()
        );
        sleep(Duration::from_millis(20));
    }
    server.stop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_tested_nothing_fails_unless_it_was_short() {
        let check = |kills, written: u64, refused: u64, seconds| {
            let totals = Totals { kills, written: written.into(), writes_refused: refused.into(), ..Totals::default() };
            totals.check(Duration::from_secs(seconds)).is_ok()
        };
        assert!(check(1, 1, 1, 10));
        assert!(check(0, 0, 0, 9));
        assert!(!check(0, 1, 1, 10) && !check(1, 0, 1, 10) && !check(1, 1, 0, 10));
    }
}
