//! Backups under load: taken while writers write and while the server is killed, then opened.
//!
//! A visible backup must be whole: the state of one moment. For each writer that moment lies between the last write
//! that was acknowledged before the backup was asked for and the last write that was sent before the backup was seen
//! complete; across writers a pair of keys shows it, which are written in turn over two connections. A backup is opened
//! as a copy, so that it can be opened again rounds later, when the server that made it has gone on. Now and then one
//! is copied over a directory that is not empty: that start is refused, or has what the backup had.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::model::{Database, Seen, State, find_survivor};
use super::observe::{check_sizes, observe};
use super::writer::{Progress, Writer};
use super::{USED, by_writer};
use crate::client::{Client, info_field};
use crate::damage::{self, ADVICE, Started, copy};
use crate::random::Random;
use crate::server::{REPLY_TIMEOUT, Server, Template, Workplace};

/// The database of the pair of keys, which no writer uses.
const RULER: Database = 5;

/// The longest wait until the remains of a killed backup are removed.
const TIDY_MAX: Duration = Duration::from_secs(20);

/// The shortest run in which each of what is drawn in a round in three has to come.
const DRAWN_MIN: Duration = Duration::from_secs(300);

/// The number of earlier backups that are remembered, to be opened again.
const REMEMBERED: usize = 8;

/// A SAVE or BGSAVE that was sent.
#[derive(Debug)]
pub struct Attempt {
    /// Operations of each writer that were acknowledged before the attempt.
    acknowledged: Vec<u64>,
    ruler: u64,
    /// The backup's name, and the operations that each writer had sent by then; nothing if the server died first.
    made: Option<(String, Vec<u64>)>,
}

/// The state that one round's threads share.
pub struct Watch {
    progress: Vec<Arc<Progress>>,
    /// The last number that was acknowledged for both keys of the ruler.
    ruler: AtomicU64,
}

#[derive(Debug, Default)]
pub struct Backups {
    /// The names of backups of earlier rounds.
    known: BTreeSet<String>,
    /// The contents of some of them, as found at first.
    remembered: Vec<(String, Vec<State>)>,
    /// The next number of the ruler, of all rounds.
    number: u64,
    pub attempts: u64,
    pub opened: u64,
    pub opened_again: u64,
    pub cut_off: u64,
    /// Backups that were copied over the directory of a server that has ended.
    pub copied_over: u64,
    /// Starts of such directories that were refused.
    pub refused: u64,
}

impl Watch {
    fn sent(&self) -> Vec<u64> {
        self.progress.iter().map(|progress| progress.sent.load(Ordering::Acquire)).collect()
    }

    fn acknowledged(&self) -> Vec<u64> {
        self.progress.iter().map(|progress| progress.acknowledged.load(Ordering::Acquire)).collect()
    }

    /// Asks for one backup after the other until told to stop or until the server dies, with random pauses between
    /// them.
    pub fn take(&self, port: u16, mut random: Random, stop: &AtomicBool) -> Result<Vec<Attempt>> {
        let pause = *random.pick(&[0, 0, 50, 400]);
        let mut attempts = Vec::new();
        let Ok(mut client) = Client::connect(port, REPLY_TIMEOUT) else { return Ok(attempts) };
        while !stop.load(Ordering::Relaxed) {
            let ruler = self.ruler.load(Ordering::Acquire);
            attempts.push(Attempt { acknowledged: self.acknowledged(), ruler, made: None });
            let command = if random.percent(50) { "SAVE" } else { "BGSAVE" };
            let Some(reply) = unless_broken(client.command(command)).context(command)? else { break };
            ensure!(reply.error().is_none(), "{command} was answered by {reply}");
            let Some(name) = wait_made(&mut client)? else { break };
            let attempt = attempts.last_mut().expect("one was pushed");
            attempt.made = Some((name, self.sent()));
            sleep(Duration::from_millis(random.below(pause + 1)));
        }
        Ok(attempts)
    }

    /// Writes ascending numbers to two keys, each over its own connection, to the second key once the first is
    /// acknowledged.
    pub fn rule(&self, port: u16, stop: &AtomicBool) -> Result<()> {
        let connect = || -> std::io::Result<Client> {
            let mut client = Client::connect(port, REPLY_TIMEOUT)?;
            client.command(&format!("SELECT {RULER}"))?;
            Ok(client)
        };
        let (Ok(mut first), Ok(mut second)) = (connect(), connect()) else { return Ok(()) };
        while !stop.load(Ordering::Relaxed) {
            let number = self.ruler.load(Ordering::Relaxed) + 1;
            for (client, key) in [(&mut first, "a"), (&mut second, "b")] {
                match client.command(&format!("SET {key} {number}")) {
                    Ok(reply) => ensure!(reply.is_ok(), "SET {key} {number} was answered by {reply}"),
                    Err(_) => return Ok(()),
                }
            }
            self.ruler.store(number, Ordering::Release);
        }
        Ok(())
    }
}

/// Returns a result, or nothing where the connection broke; fails where no reply came in time.
fn unless_broken<T>(result: io::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
            Err(error).context("no reply came in time")
        }
        Err(_) => Ok(None),
    }
}

/// Waits for the end of a backup; returns its name, unless the connection breaks.
fn wait_made(client: &mut Client) -> Result<Option<String>> {
    let begin = Instant::now();
    loop {
        let Some(info) = unless_broken(client.info("persistence"))? else { return Ok(None) };
        let info = info.unwrap_or_default();
        let field = |name| info_field(&info, name).unwrap_or_default();
        if field("rdb_bgsave_in_progress") == "0" {
            ensure!(field("rdb_last_bgsave_status") == "ok", "a backup failed: {}", field("backup_last_error"));
            return Ok(Some(field("backup_last_name").to_string()));
        }
        ensure!(begin.elapsed() < REPLY_TIMEOUT, "a backup takes longer than {} s", REPLY_TIMEOUT.as_secs());
        sleep(Duration::from_millis(1));
    }
}

impl Backups {
    /// Begins a round before its writers do, and returns what they share with the thread that takes backups. Returns
    /// nothing if the server makes no backups.
    pub fn begin(&mut self, server: &Server, writers: &mut [Writer]) -> Result<Option<Watch>> {
        let mut client = server.client()?;
        let info = client.info("persistence")?.unwrap_or_default();
        if info_field(&info, "backup_last_name").is_none() {
            return Ok(None);
        }
        self.number += 1;
        let number = self.number;
        client.command(&format!("SELECT {RULER}"))?;
        let reply = client.command(&format!("MSET a {number} b {number}"))?;
        ensure!(reply.is_ok(), "MSET was answered by {reply}");
        let progress = writers.iter_mut().map(Writer::begin_journal).collect();
        Ok(Some(Watch { progress, ruler: AtomicU64::new(number) }))
    }

    /// Opens every new backup of a round, and now and then an old one.
    pub fn check(
        &mut self,
        watch: &Watch,
        attempts: &[Attempt],
        writers: &[Writer],
        (server, place): (&Template, &Workplace),
        random: &mut Random,
    ) -> Result<()> {
        // One more number may be in flight.
        self.number = self.number.max(watch.ruler.load(Ordering::Acquire)) + 1;
        self.attempts += attempts.len() as u64;
        let sent = watch.sent();
        let names = visible(&place.data())?;
        for name in names.iter().filter(|name| !self.known.contains(*name)) {
            let of_name = |attempt: &&Attempt| attempt.made.as_ref().is_some_and(|(made, _)| made == name);
            let attempt = match attempts.iter().find(of_name) {
                Some(attempt) => attempt,
                // The backup was complete when the server died, but not acknowledged.
                None => match attempts.last().filter(|attempt| attempt.made.is_none()) {
                    Some(attempt) => {
                        self.cut_off += 1;
                        attempt
                    }
                    None => bail!("there is a backup {name} that nobody has asked for"),
                },
            };
            let sent = attempt.made.as_ref().map_or(&sent, |(_, sent)| sent);
            let states = open(&place.data().join("backups").join(name), server, writers, |seen, rulers| {
                check_ruler(rulers, attempt.ruler, self.number)?;
                let mut states = Vec::new();
                for (at, (writer, part)) in writers.iter().zip(seen).enumerate() {
                    let (state, in_flight) = writer.journal_between(attempt.acknowledged[at], sent[at]);
                    let found = find_survivor(&state, in_flight, part);
                    states.push(found.map_err(|text| anyhow::anyhow!("writer {} {text}", writer.prefix))?.0);
                }
                Ok(states)
            })
            .with_context(|| format!("in backup {name}"))?;
            self.opened += 1;
            self.remembered.push((name.clone(), states));
        }
        self.remembered.retain(|(name, _)| names.contains(name));
        let surplus = self.remembered.len().saturating_sub(REMEMBERED);
        self.remembered.drain(..surplus);
        self.known = names;
        if random.percent(30)
            && let Some((name, states)) = self.remembered.first()
        {
            open(&place.data().join("backups").join(name), server, writers, |seen, _| {
                expect_states(states, seen, writers)
            })
            .with_context(|| format!("in backup {name}, opened again"))?;
            self.opened_again += 1;
        }
        Ok(())
    }

    /// Fails if a run of `time` has tested nothing.
    pub fn check_totals(&self, time: Duration) -> Result<()> {
        ensure!(self.opened > 0, "no backup was ever opened");
        if time >= DRAWN_MIN {
            ensure!(self.opened_again > 0, "no backup was ever opened again");
            ensure!(self.copied_over > 0, "no backup was ever copied over a directory");
        }
        Ok(())
    }

    /// Copies a backup over the directory of a server that has ended, now and then.
    pub fn check_over(
        &mut self,
        writers: &[Writer],
        (server, place): (&Template, &Workplace),
        random: &mut Random,
    ) -> Result<()> {
        if random.percent(30)
            && let Some((name, states)) = self.remembered.last()
        {
            self.copied_over += 1;
            let refused = open_over(&place.data(), name, states, server, writers);
            self.refused +=
                u64::from(refused.with_context(|| format!("with backup {name} copied over the directory"))?);
        }
        Ok(())
    }
}

/// Fails unless writers find these states.
fn expect_states(states: &[State], seen: &[Seen], writers: &[Writer]) -> Result<()> {
    for ((state, part), writer) in states.iter().zip(seen).zip(writers) {
        let found = find_survivor(state, &[], part);
        found.map_err(|text| anyhow::anyhow!("writer {} {text}", writer.prefix))?;
    }
    Ok(())
}

/// Starts a server on a copy of the directory with a backup copied over what is there, as if it were empty. Either the
/// start is refused, with the directory's path and advice, or the server has what the backup had; returns whether it
/// was refused.
fn open_over(data: &Path, name: &str, states: &[State], server: &Template, writers: &[Writer]) -> Result<bool> {
    let mut place = Workplace::new("crash-over", None)?;
    let looked = (|| {
        copy(data, &place.data())?;
        copy(&data.join("backups").join(name), &place.data())?;
        let server = match damage::start(server, &place)? {
            Started::Running(server) => server,
            Started::Refused(said) => {
                let dir = place.data().display().to_string();
                ensure!(said.contains(&dir), "the refusal does not name {dir}:\n{said}");
                ensure!(ADVICE.iter().any(|advice| said.contains(advice)), "the refusal has no advice:\n{said}");
                return Ok(true);
            }
        };
        let seen = observe(&mut server.client()?, &USED)?;
        expect_states(states, &by_writer(seen, writers)?, writers)?;
        server.stop()?;
        Ok(false)
    })();
    if looked.is_err() {
        println!("crash: the directory with the backup over it is left in {}", place.keep().display());
    }
    looked
}

fn check_ruler(rulers: [u64; 2], acknowledged: u64, sent: u64) -> Result<()> {
    let [first, second] = rulers;
    ensure!(
        (first == second || first == second + 1) && second >= acknowledged && first <= sent,
        "the keys that are written in turn are {first} and {second}; {acknowledged} was acknowledged before, {sent} is not sent yet"
    );
    Ok(())
}

/// Returns the names of the backups that a user sees.
fn visible(data: &Path) -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(data.join("backups")).into_iter().flatten();
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    Ok(names
        .collect::<std::io::Result<BTreeSet<String>>>()?
        .into_iter()
        .filter(|name| !name.starts_with('.'))
        .collect())
}

/// Waits until nothing is left of backups that were killed.
pub fn check_tidy(data: &Path) -> Result<()> {
    let begin = Instant::now();
    loop {
        let entries = fs::read_dir(data.join("backups")).into_iter().flatten().flatten();
        let hidden: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("/.")).collect();
        if hidden.is_empty() {
            return Ok(());
        }
        ensure!(begin.elapsed() < TIDY_MAX, "this is still there after the start: {hidden:?}");
        sleep(Duration::from_millis(5));
    }
}

/// Starts a server on a copy of a backup, and passes what each writer, and the ruler, find there to `look`.
fn open<T>(
    backup: &Path,
    server: &Template,
    writers: &[Writer],
    look: impl FnOnce(&[Seen], [u64; 2]) -> Result<T>,
) -> Result<T> {
    server.check(backup)?;
    let mut place = Workplace::new("crash-backup", None)?;
    let looked = (|| {
        copy(backup, &place.data())?;
        let (server, _) = Server::start(server, &place)?;
        let mut client = server.client()?;
        let seen = observe(&mut client, &USED)?;
        client.command(&format!("SELECT {RULER}"))?;
        let mut ruler = |key: &str| -> Result<u64> {
            let reply = client.command(&format!("GET {key}"))?;
            let text = String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned();
            text.parse().with_context(|| format!("{key} is {text:?}"))
        };
        let rulers = [ruler("a")?, ruler("b")?];
        check_sizes(&mut client, &USED, true)?;
        let looked = look(&by_writer(seen, writers)?, rulers)?;
        server.stop()?;
        Ok(looked)
    })();
    if looked.is_err() {
        println!("crash: the opened backup is left in {}", place.keep().display());
        println!("crash: its server's last lines:\n{}", place.log_tail());
    }
    looked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_does_not_come_is_no_broken_connection() {
        let error = |kind: ErrorKind| unless_broken::<()>(Err(kind.into()));
        assert!(error(ErrorKind::UnexpectedEof).is_ok_and(|value| value.is_none()));
        assert!(error(ErrorKind::WouldBlock).is_err() && error(ErrorKind::TimedOut).is_err());
    }

    #[test]
    fn a_run_without_backups_fails() {
        let check = |opened, opened_again, copied_over, seconds| {
            let backups = Backups { opened, opened_again, copied_over, ..Backups::default() };
            backups.check_totals(Duration::from_secs(seconds)).is_ok()
        };
        assert!(check(1, 0, 0, 60) && check(1, 1, 1, 300));
        assert!(!check(0, 0, 0, 60) && !check(1, 0, 1, 300) && !check(1, 1, 0, 300));
    }
}
