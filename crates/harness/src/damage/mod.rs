//! The damage test: files of a data directory are deleted, emptied, cut, flipped, exchanged or mixed up, after a stop,
//! after a kill and while the server runs, and the data then is compared with the acknowledged writes.
//!
//! Allowed results are: all data; a refusal, of the start or of a read, that names the place and says what to do; and,
//! if the process was killed under `durability os`, less than all data if the start says that it has cut off the log's
//! end: no more than the last moments, unless the end was damaged. `load` writes and reads back, `plant` has the kinds
//! of damage, `planted` counts them, `refusal` says what a refusal names.

mod load;
mod plant;
mod planted;
mod refusal;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::client::Client;
use crate::random::Random;
use crate::server::{REPLY_TIMEOUT, Server, Template, Workplace};
use load::Load;
use plant::{Damage, KINDS, Kind, NOTICED, Sources};
use planted::Planted;

pub struct Options {
    pub server: Template,
    pub seed: u64,
    pub time: Duration,
    /// Whether the server runs under `durability fsync`.
    pub fsync: bool,
}

/// The server's words when a start drops the end of the log.
const TOLD: &str = "the end of the log is cut off";

/// The advice in refusals of a start: each refusal has one of these, beside the path.
pub const ADVICE: [&str; 3] = ["restore a backup", "Choose an empty one", "takes an existing directory"];

/// The longest time until a server notices that files which it needs are gone: tables are looked for every 8 seconds.
const NOTICE_MAX: Duration = Duration::from_secs(12);

/// The shortest run in which each kind of damage has to be planted.
const ALL_KINDS_MIN: Duration = Duration::from_secs(600);

/// The number of damages of one state of the directory.
const DAMAGES: usize = 6;

/// The way in which the server ended before the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Stop,
    /// The server is killed while writers write.
    Kill,
    /// The server is killed after an idle while: all acknowledged writes are synced.
    KillIdle,
}

/// The acknowledged writes that a start may lack if it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Nothing,
    /// Records of the last moments before a kill.
    NotSynced,
    Anything,
}

#[derive(Debug, Default)]
struct Totals {
    rounds: u64,
    damages: u64,
    whole: u64,
    refused: u64,
    unreadable: u64,
    cut: u64,
    running: u64,
    noticed: u64,
}

/// Runs until the time is over; returns true if there was no finding.
pub fn run(options: &Options) -> Result<bool> {
    println!("damage: seed {}, {} s", options.seed, options.time.as_secs());
    let mut run = Run::new(options)?;
    let begin = Instant::now();
    let mut result = Ok(());
    while result.is_ok() && begin.elapsed() < options.time {
        result = run.round();
    }
    let Totals { rounds, damages, whole, refused, unreadable, cut, running, noticed } = run.totals;
    println!(
        "damage: seed {}: {rounds} rounds, {damages} damages: {whole} times all was there, {refused} starts refused, \
         {unreadable} times reads were refused, {cut} times the start told of a cut end; {running} while the server ran, \
         {noticed} of them noticed by it",
        options.seed
    );
    println!("damage: planted in stopped servers: {}", run.stopped.text());
    println!("damage: planted while the server ran, to be noticed: {}", run.noticed.text());
    println!("damage: planted while the server ran: {}", run.running.text());
    let result = result.and_then(|()| run.check_planted());
    match result {
        Ok(()) => {
            println!("damage: nothing was lost in silence");
            Ok(true)
        }
        Err(error) => {
            println!("damage: FAILED in round {rounds}: {error:#}");
            Ok(false)
        }
    }
}

struct Run<'a> {
    options: &'a Options,
    random: Random,
    place: Workplace,
    load: Load,
    /// The directory of another server.
    other: Workplace,
    /// The directory as it was at the end of an earlier round.
    older: Option<Workplace>,
    totals: Totals,
    /// The damages of stopped servers.
    stopped: Planted,
    /// The damages of running servers that have to notice, and of others.
    noticed: Planted,
    running: Planted,
}

impl<'a> Run<'a> {
    fn new(options: &'a Options) -> Result<Run<'a>> {
        let other = Workplace::new("damage-other", None)?;
        let (server, _) = Server::start(&options.server, &other)?;
        let mut load = Load::new(options.seed ^ 1);
        load.write(server.port(), 1, Duration::from_millis(700), || ())?;
        server.stop()?;
        Ok(Run {
            options,
            random: Random::of_part(options.seed, 0),
            place: Workplace::new("damage", None)?,
            load: Load::new(options.seed),
            other,
            older: None,
            totals: Totals::default(),
            stopped: Planted::new(KINDS.iter().copied()),
            noticed: Planted::new(NOTICED.iter().copied()),
            // A backup over a running server's directory is a sound directory of an earlier time, until it stops.
            running: Planted::new(KINDS.iter().copied().filter(|kind| *kind != Kind::BackupOver)),
        })
    }

    /// Runs one round: start, verify, write, end; then one damage after the other, each on a copy.
    fn round(&mut self) -> Result<()> {
        self.totals.rounds += 1;
        let (server, _) = Server::start(&self.options.server, &self.place)?;
        let found = self.load.read(server.port())?;
        self.load.expect_whole(&found).context("without any damage")?;
        self.load.resume_from(&found);
        let time = Duration::from_millis(*self.random.pick(&[30, 200, 800, 1500, 2500, 6000]));
        let ending = *self.random.pick(&[Ending::Stop, Ending::Kill, Ending::Kill, Ending::KillIdle]);
        let (port, saves) = (server.port(), self.random.percent(30));
        let end = || end(server, ending, saves);
        match ending {
            Ending::Kill => self.load.write_until_ended(port, 8, time, end)?,
            Ending::Stop | Ending::KillIdle => {
                self.load.write(port, 8, time, || ())?;
                end()?;
            }
        }
        for _ in 0..DAMAGES {
            self.damage(ending).with_context(|| format!("after a round that ended by {ending:?}"))?;
        }
        self.damage_running()?;
        if self.random.percent(40) || self.older.is_none() {
            let older = Workplace::new("damage-older", None)?;
            copy(&self.place.data(), &older.data())?;
            self.older = Some(older);
        }
        Ok(())
    }

    /// Fails if the run was long and a kind of damage never found what it is for.
    fn check_planted(&self) -> Result<()> {
        if self.options.time >= ALL_KINDS_MIN {
            let [stopped, noticed] = [self.stopped.missing(), self.noticed.missing()];
            ensure!(stopped.is_empty(), "never planted in a stopped server: {stopped:?}");
            ensure!(noticed.is_empty(), "never planted while the server ran, to be noticed: {noticed:?}");
        }
        Ok(())
    }

    fn damage(&mut self, ending: Ending) -> Result<()> {
        let kind = self.stopped.draw(&mut self.random);
        let mut place = Workplace::new("damage-planted", None)?;
        copy(&self.place.data(), &place.data())?;
        let sources = Sources { other: self.other.data(), older: self.older.as_ref().map(Workplace::data) };
        let end_of_log = plant::end_of_log(&place.data())?;
        let what = plant::plant(kind, &place.data(), &sources, &mut self.random)?;
        let is_end_damaged = plant::end_of_log(&place.data())? != end_of_log;
        self.stopped.note(kind, what.is_some());
        let Some(what) = what else { return Ok(()) };
        self.totals.damages += 1;
        let sound = self.options.server.check(&place.data()).is_ok();
        let may_be_cut = match ending {
            Ending::Kill if self.options.fsync => Cut::Nothing,
            Ending::Kill if is_end_damaged => Cut::Anything,
            Ending::Kill => Cut::NotSynced,
            Ending::Stop | Ending::KillIdle => Cut::Nothing,
        };
        let judged = self.judge(&place, &what, may_be_cut).and_then(|is_whole| {
            // A directory that `check` finds sound starts, with all data or with the end cut off that the check tells
            // of.
            ensure!(is_whole || !sound || may_be_cut != Cut::Nothing, "'haypile check' finds it sound");
            Ok(())
        });
        judged.with_context(|| kept(&mut place, &what.text))
    }

    /// Starts on a damaged directory; an error is a finding. Returns true if all data is there.
    fn judge(&mut self, place: &Workplace, damage: &Damage, may_be_cut: Cut) -> Result<bool> {
        let found = match start(&self.options.server, place)? {
            Started::Refused(said) => {
                self.totals.refused += 1;
                refusal::check(&said, &place.data(), damage)?;
                return Ok(false);
            }
            Started::Running(server) => self.load.read(server.port())?,
        };
        if let Some(error) = &found.error {
            self.totals.unreadable += 1;
            ensure!(error.contains("damaged"), "a read failed without saying why: {error}");
            return Ok(false);
        }
        let Err(lost) = self.load.expect_whole(&found) else {
            self.totals.whole += 1;
            return Ok(true);
        };
        self.load.expect_prefix(&found)?;
        let said = fs::read_to_string(place.log()).unwrap_or_default();
        if may_be_cut == Cut::Nothing || !said.contains(TOLD) {
            return Err(lost.context("nothing was said of it"));
        }
        if may_be_cut == Cut::NotSynced {
            self.load.expect_synced(&found).context("the end of the log was not damaged")?;
        }
        self.totals.cut += 1;
        Ok(false)
    }

    /// Damages files of a running server, at any moment.
    fn damage_running(&mut self) -> Result<()> {
        let has_to_notice = self.random.percent(50);
        let kinds = if has_to_notice { &self.noticed } else { &self.running };
        let kind = kinds.draw(&mut self.random);
        let delay = Duration::from_millis(self.random.below(1500));
        let mut place = Workplace::new("damage-running", None)?;
        copy(&self.place.data(), &place.data())?;
        let mut load = self.load.clone();
        let stops = self.random.percent(50);
        let result = (|| {
            let (mut server, _) = Server::start(&self.options.server, &place)?;
            load.resume_from(&load.read(server.port())?);
            let mut what = None;
            let mut random = self.random.clone();
            let data = place.data();
            let sources = Sources { other: self.other.data(), older: self.older.as_ref().map(Workplace::data) };
            load.write(server.port(), 1, delay + NOTICE_MAX, || {
                sleep(delay);
                what = Some(plant::plant(kind, &data, &sources, &mut random));
            })?;
            let what = what.expect("it was done meanwhile")?;
            let kinds = if has_to_notice { &mut self.noticed } else { &mut self.running };
            kinds.note(kind, what.is_some());
            let Some(what) = what else { return Ok(()) };
            self.totals.running += 1;
            let was_refused = load.was_refused();
            self.totals.noticed += u64::from(was_refused);
            let noticed = was_refused || !has_to_notice;
            let clean = if stops {
                server.terminate()?;
                server.wait_ended()?.success() && has_to_notice
            } else {
                server.kill()?;
                false
            };
            self.judge_again(&place, &load, &what, noticed, clean).with_context(|| what)
        })();
        self.random.next();
        result.with_context(|| kept(&mut place, &format!("{kind:?} while the server ran")))
    }

    /// Judges the start after files went while the server ran.
    fn judge_again(
        &mut self,
        place: &Workplace,
        load: &Load,
        damage: &Damage,
        noticed: bool,
        clean: bool,
    ) -> Result<()> {
        let said_before = place.log_text().len();
        let lost = match start(&self.options.server, place)? {
            Started::Refused(said) => {
                refusal::check(&said, &place.data(), damage)?;
                "the start is refused".to_owned()
            }
            Started::Running(server) => {
                let found = load.read(server.port())?;
                match &found.error {
                    Some(error) => {
                        ensure!(error.contains("damaged"), "a read failed without saying why: {error}");
                        "reads are refused".to_owned()
                    }
                    None if load.expect_whole(&found).is_ok() => return Ok(()),
                    None => {
                        load.expect_prefix(&found)?;
                        let said = place.log_text();
                        ensure!(!self.options.fsync, "acknowledged writes are gone that were synced");
                        ensure!(said[said_before..].contains(TOLD), "writes are gone, and nothing was said of it");
                        "writes are gone".to_owned()
                    }
                }
            }
        };
        ensure!(!clean, "the server said that it stopped cleanly, and {lost}");
        ensure!(noticed, "no write was refused within {NOTICE_MAX:?}, and {lost}");
        Ok(())
    }
}

fn kept(place: &mut Workplace, what: &str) -> String {
    let tail = place.log_tail();
    format!("{what}; left in {}; the server's last lines:\n{tail}\n", place.keep().display())
}

/// The way in which a start ended.
pub enum Started {
    Running(Server),
    /// The start was refused, with this output.
    Refused(String),
}

/// Starts a server that may refuse its directory; fails if it ends in any other way.
pub fn start(template: &Template, place: &Workplace) -> Result<Started> {
    let before = fs::read(place.log()).map_or(0, |said| said.len());
    let mut server = Server::spawn(template, place)?;
    match server.wait_ready() {
        Ok(_) => Ok(Started::Running(server)),
        Err(error) => match server.ended()? {
            Some(status) if status.code() == Some(1) => {
                let said = fs::read(place.log())?;
                Ok(Started::Refused(String::from_utf8_lossy(&said[before..]).into_owned()))
            }
            _ => Err(error).context("the start neither succeeds nor is refused"),
        },
    }
}

/// Ends a server, with a backup right before if it `saves`.
fn end(mut server: Server, ending: Ending, saves: bool) -> Result<()> {
    if saves {
        let reply = server.client()?.command("SAVE")?;
        ensure!(reply.is_ok(), "SAVE was answered by {reply}");
    }
    match ending {
        Ending::Stop => return server.stop(),
        Ending::Kill => {}
        Ending::KillIdle => {
            // WAITAOF waits for the writes of its own connection, and so for all before.
            let mut client = server.client()?;
            client.command("SET idle 1")?;
            let reply = client.command("WAITAOF 1 0 10000")?;
            ensure!(reply.error().is_none(), "WAITAOF was answered by {reply}");
            sleep(Duration::from_millis(100));
        }
    }
    server.kill().map(drop)
}

/// Copies a directory with its holes; the target may have some of the files under other names.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let status =
        std::process::Command::new("cp").args(["-a", "--remove-destination"]).arg(from.join(".")).arg(to).status()?;
    ensure!(status.success(), "cp -a {} {}: {status}", from.display(), to.display());
    Ok(())
}

/// Returns the files of a directory with this ending, in order.
fn files(dir: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_file() && path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn connect(port: u16) -> Result<Client> {
    Client::connect(port, REPLY_TIMEOUT).with_context(|| format!("connecting to port {port}"))
}
