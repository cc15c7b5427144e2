//! The test of linearizability: nodes of a system that is replicated by Raft, or stands alone, clients on all of them,
//! and one scenario of disturbances after the other. What the clients heard is checked after each.
//!
//! `operation` and `history` say what is asked and heard, `load` asks, `system` is what differs between systems and
//! `systems` are those that are known. `group` with `process`, `network` and `clock` runs and disturbs them as
//! `scenario` says, and `check` judges. `lies` breaks a system on purpose, `memory` is one that does as it says.

pub mod check;
pub mod clock;
pub mod group;
pub mod history;
pub mod lies;
pub mod load;
pub mod memory;
pub mod network;
pub mod operation;
pub mod process;
pub mod scenario;
pub mod system;
pub mod systems;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::random::Random;
use crate::server::Workplace;
use check::porcupine::Checker;
use check::{Verdict, check};
use group::{Disturbances, Group, SERVE_MAX, Surroundings};
use history::{End, History};
use lies::{Liar, Lie};
use load::{Board, Client, Counts};
use network::Network;
use operation::{Answer, Kind, Object, Outcome, Session};
use scenario::{HAND_OVERS, SCENARIOS, Scenario};
use system::{Ability, REPLY_MAX, System};

/// Rounds that one group lives through.
const ROUNDS: u64 = 6;
/// The time that the check of one object may take.
const CHECK_MAX: Duration = Duration::from_secs(60);
/// Objects of earlier rounds that are read again after each round.
const READ_AGAIN: usize = 20;
/// Violations that are printed; all can be had from the history.
const PRINTED_MAX: usize = 4;
/// The longest pause before a disturbance and behind it.
const PAUSE_MS: u64 = 1000;
/// The time from which on a run fails in which something that it is for has never happened.
const LONG: Duration = Duration::from_secs(600);

pub struct Options<'a> {
    pub system: &'a dyn System,
    pub network: Network,
    pub nodes: usize,
    pub seed: u64,
    pub time: Duration,
    pub clients: u64,
    /// The only scenario to play.
    pub scenario: Option<&'static Scenario>,
    /// A long run may pass without having played all scenarios that it could.
    pub may_miss: bool,
    /// The way in which all sessions lie.
    pub lie: Option<Lie>,
}

#[derive(Debug, Default)]
struct Totals {
    rounds: BTreeMap<&'static str, u64>,
    groups: u64,
    counts: Counts,
    disturbances: Disturbances,
    objects: usize,
    operations: usize,
    read_again: usize,
    check_seconds: f64,
}

struct Run<'a> {
    options: &'a Options<'a>,
    checker: Checker,
    place: Workplace,
    random: Random,
    board: Board,
    totals: Totals,
    /// The group that runs, if one does.
    group: Option<Group<'a>>,
    /// Objects of this group that nobody changes any more, with what they hold.
    settled: BTreeMap<Object, Answer>,
    round: u64,
}

/// Runs until the time is over, or until something is wrong; prints totals and what was found. Returns true if all was
/// well.
pub fn run(options: &Options<'_>) -> Result<bool> {
    let Options { system, network, nodes, seed, time, clients, lie, .. } = options;
    let name = system.name();
    println!(
        "raft-chaos: seed {seed}, {name}, {nodes} nodes, {clients} clients, {} s, network: {network:?}{}",
        time.as_secs(),
        lie.map_or(String::new(), |lie| format!(", broken on purpose: {lie:?}"))
    );
    let place = Workplace::new("raft-chaos", None)?;
    let mut run = Run {
        options,
        checker: Checker::build(&place.data())?,
        place,
        random: Random::of_part(*seed, u64::MAX),
        board: Board::default(),
        totals: Totals::default(),
        group: None,
        settled: BTreeMap::new(),
        round: 0,
    };
    let begin = Instant::now();
    let mut result = Ok(());
    while result.is_ok() && begin.elapsed() < *time {
        result = run.round();
    }
    run.print_totals();
    let result = result.and_then(|()| run.check_happened());
    match result {
        Ok(()) => {
            println!("raft-chaos: no anomaly");
            Ok(true)
        }
        Err(error) => {
            println!("raft-chaos: FAILED with seed {seed}: {error:#}");
            if let Some(group) = &mut run.group {
                let (places, lines) = group.keep();
                println!("raft-chaos: the nodes' last lines:\n{lines}");
                println!("raft-chaos: everything is left in {places:?} and {}", run.place.keep().display());
            }
            Ok(false)
        }
    }
}

/// Checks a history that a run has left in a file, or that a person has written; returns true if it is sound.
pub fn recheck(path: &Path) -> Result<bool> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let history = History::parse(&text).map_err(|line| anyhow!(line))?;
    let place = Workplace::new("raft-chaos", None)?;
    let verdict = check(&history, &Checker::build(&place.data())?, CHECK_MAX)?;
    for violation in &verdict.violations {
        println!("raft-chaos: {}: {}", violation.object, violation.text);
    }
    println!("raft-chaos: {} objects, {} operations checked", verdict.objects, verdict.operations);
    Ok(verdict.violations.is_empty())
}

impl<'a> Run<'a> {
    fn print_totals(&mut self) {
        if let Some(group) = &self.group {
            self.totals.disturbances.add(group.counts);
        }
        let Totals { rounds, groups, counts, objects, operations, read_again, check_seconds, disturbances } =
            &self.totals;
        let all: u64 = rounds.values().sum();
        println!("raft-chaos: seed {}: {all} rounds with {groups} groups: {rounds:?}", self.options.seed);
        println!(
            "raft-chaos: {} operations done, {} of unknown outcome, {} failed ({} by full disks); {objects} objects and \
             {operations} operations checked in {check_seconds:.1} s, {read_again} objects read again later",
            counts.done, counts.unknown, counts.failed, counts.refused_by_disk
        );
        println!("raft-chaos: {disturbances:?}");
    }

    /// Fails if the run was long and something that it is for has never happened. The group's numbers are among the
    /// totals already.
    fn check_happened(&self) -> Result<()> {
        let Some(group) = self.group.as_ref().filter(|_| self.options.time >= LONG) else { return Ok(()) };
        let Totals { rounds, counts, disturbances, .. } = &self.totals;
        let is_missing = |scenario: &&Scenario| !rounds.contains_key(scenario.name) && scenario.lacks(group).is_empty();
        let missing: Vec<_> = SCENARIOS.iter().filter(is_missing).map(|scenario| scenario.name).collect();
        ensure!(
            self.options.scenario.is_some() || self.options.may_miss || missing.is_empty(),
            "never played, which --may-miss allows: {missing:?}"
        );
        let was_played = |names: &[&str]| names.iter().any(|name| rounds.contains_key(name));
        let tells = group.system.can(Ability::Facts);
        let hands_over = group.system.can(Ability::Transfer);
        let is_full = counts.refused_by_disk + disturbances.ended > 0;
        let expected: [(&[&str], bool, &str); 4] = [
            (HAND_OVERS, !hands_over || disturbances.transfers > 0, "leadership was never handed over on request"),
            (&["reads-while-members-change"], disturbances.member_changes > 0, "the members have never changed"),
            (&["killed-in-snapshots"], !tells || disturbances.copies > 0, "no node has ever had a copy"),
            (&["full-disk"], !tells || is_full, "no full disk was ever noticed"),
        ];
        for (names, has_happened, what) in expected {
            ensure!(has_happened || !was_played(names), "{what}, though {names:?} were played");
        }
        Ok(())
    }

    /// Plays one scenario with a group, a new one after some rounds, and checks what was heard.
    fn round(&mut self) -> Result<()> {
        if self.round.is_multiple_of(ROUNDS) {
            self.start_group()?;
        }
        self.round += 1;
        let group = self.group.as_mut().context("a group was started")?;
        let scenario = match self.options.scenario {
            Some(scenario) => scenario,
            None => Scenario::draw(group, &self.totals.rounds, &mut self.random),
        };
        ensure!(scenario.suits(group), "{} lacks what {} needs", self.options.system.name(), scenario.name);
        let mut counts = Counts::default();
        let mut history = self.play(scenario, &mut counts).with_context(|| scenario.name.to_string())?;
        self.totals.counts.add(counts);
        self.read_all(&mut history).with_context(|| scenario.name.to_string())?;
        let begin = Instant::now();
        let verdict = check(&history, &self.checker, CHECK_MAX)?;
        let seconds = begin.elapsed().as_secs_f64();
        self.totals.check_seconds += seconds;
        (self.totals.objects, self.totals.operations) =
            (self.totals.objects + verdict.objects, self.totals.operations + verdict.operations);
        *self.totals.rounds.entry(scenario.name).or_default() += 1;
        println!(
            "raft-chaos: round {}, {}: {} done, {} unknown, {} failed; {} objects checked in {seconds:.1} s",
            self.round, scenario.name, counts.done, counts.unknown, counts.failed, verdict.objects
        );
        self.judge(&verdict, &history).with_context(|| scenario.name.to_string())?;
        self.settle(&history);
        self.read_again().with_context(|| format!("after {}", scenario.name))
    }

    fn start_group(&mut self) -> Result<()> {
        if let Some(group) = self.group.take() {
            self.totals.disturbances.add(group.counts);
        }
        self.settled.clear();
        // From the second group on, surroundings come that a scenario still waits for.
        let is_due = |scenario: &&Scenario| match self.options.scenario {
            Some(only) => only.name == scenario.name,
            None => self.totals.groups > 0 && !self.totals.rounds.contains_key(scenario.name),
        };
        let due: Vec<Surroundings> = SCENARIOS.iter().filter(is_due).map(Scenario::surroundings).collect();
        let surroundings = Surroundings {
            small_disks: self.random.percent(35) || due.iter().any(|wanted| wanted.small_disks),
            clocks: self.random.percent(35) || due.iter().any(|wanted| wanted.clocks),
            fills_disks: self.random.percent(50),
        };
        let Options { system, network, nodes, .. } = *self.options;
        self.group = Some(Group::start(system, network, nodes, surroundings)?);
        self.totals.groups += 1;
        if self.totals.groups == 1 {
            self.print_lacking();
        }
        Ok(())
    }

    /// Prints which scenarios cannot be drawn, and why.
    fn print_lacking(&self) {
        let Some(group) = &self.group else { return };
        for scenario in SCENARIOS {
            let lacking = scenario.lacks(group);
            if !lacking.is_empty() {
                println!("raft-chaos: {} cannot be drawn: it needs {lacking:?}", scenario.name);
            }
        }
    }

    /// Lets clients run while the scenario is played, and until the group is whole again; returns what they heard.
    fn play(&mut self, scenario: &Scenario, counts: &mut Counts) -> Result<History> {
        let group = self.group.as_mut().context("a group was started")?;
        let kinds: Vec<Kind> = match scenario.kinds {
            [] => group.system.kinds().to_vec(),
            kinds => kinds.iter().copied().filter(|kind| group.system.kinds().contains(kind)).collect(),
        };
        self.board.clear();
        let (board, random, stop) = (&self.board, &mut self.random, &AtomicBool::new(false));
        let (options, round) = (self.options, self.round);
        let mut clients: Vec<Client<'_>> =
            (0..options.clients).map(|number| client(options, board, &kinds, round, number, group)).collect();
        let (played, ends) = thread::scope(|threads| {
            let running: Vec<_> = clients.iter_mut().map(|client| threads.spawn(|| client.run(stop))).collect();
            let mut play = || -> Result<()> {
                sleep(Duration::from_millis(random.below(PAUSE_MS)));
                scenario.play(group, random)?;
                group.recover()?;
                wait_written(board, options.clients)?;
                sleep(Duration::from_millis(random.below(PAUSE_MS)));
                Ok(())
            };
            let played = play();
            stop.store(true, Ordering::Relaxed);
            let ends: Vec<_> = running.into_iter().map(|t| t.join().expect("a client does not panic")).collect();
            (played, ends)
        });
        ends.into_iter().collect::<Result<Vec<()>, String>>().map_err(|text| anyhow!("a wrong reply: {text}"))?;
        played?;
        group.compare()?;
        let mut history = History::default();
        for client in clients {
            counts.add(client.counts);
            history.append(client.history);
        }
        if scenario.restores() {
            (0..group.count()).try_for_each(|node| group.restart_from_backup(node))?;
            group.recover()?;
        }
        Ok(history)
    }

    /// Reads all objects of a history, and adds the reads to it.
    fn read_all(&mut self, history: &mut History) -> Result<()> {
        let objects: BTreeSet<Object> = history.entries.iter().map(|entry| entry.object).collect();
        let group = self.group.as_ref().context("a group was started")?;
        let mut reader = client(self.options, &self.board, &[], self.round, self.options.clients, group);
        for object in objects {
            read(&mut reader, object)?;
        }
        history.append(reader.history);
        Ok(())
    }

    /// Remembers the objects whose last read tells what they hold for good: no operation may still take effect.
    fn settle(&mut self, history: &History) {
        for (object, entries) in history.by_object() {
            if entries.iter().any(|entry| entry.end == End::Unknown) {
                continue;
            }
            let last = entries.last().filter(|entry| entry.operation == object.read());
            if let Some(End::Done { answer, .. }) = last.map(|entry| &entry.end) {
                self.settled.insert(object, answer.clone());
            }
        }
    }

    /// Reads some of the objects that nobody changes any more.
    fn read_again(&mut self) -> Result<()> {
        let group = self.group.as_ref().context("a group was started")?;
        let mut reader = client(self.options, &self.board, &[], self.round, self.options.clients + 1, group);
        let all: Vec<&Object> = self.settled.keys().collect();
        for _ in 0..READ_AGAIN.min(all.len()) {
            let object = **self.random.pick(&all);
            let (held, answer) = (&self.settled[&object], read(&mut reader, object)?);
            ensure!(*held == answer, "{object} held {held:?} when its last operation had ended, and holds {answer:?}");
            self.totals.read_again += 1;
        }
        Ok(())
    }

    /// Fails if something was found; prints it, and leaves the history in a file.
    fn judge(&mut self, verdict: &Verdict, history: &History) -> Result<()> {
        let Some(first) = verdict.violations.first() else { return Ok(()) };
        for violation in verdict.violations.iter().take(PRINTED_MAX) {
            println!("raft-chaos: seed {}: {}: {}", self.options.seed, violation.object, violation.text);
        }
        let lines: Vec<String> =
            history.by_object().iter().flat_map(|(_, entries)| entries.iter().map(|entry| entry.to_string())).collect();
        let file = self.place.file("history");
        fs::write(&file, lines.join("\n")).with_context(|| format!("writing {}", file.display()))?;
        bail!(
            "{} violations, the first of {}; the history is in {}",
            verdict.violations.len(),
            first.object,
            file.display()
        )
    }
}

/// Makes a client whose first node is its number's.
fn client<'b>(
    options: &Options<'_>,
    board: &'b Board,
    kinds: &'b [Kind],
    round: u64,
    number: u64,
    group: &Group<'_>,
) -> Client<'b> {
    let mut random = Random::of_part(options.seed, round * 1000 + number);
    let session = options.system.session(&group.members(), number as usize % group.count(), REPLY_MAX);
    let session: Box<dyn Session> = match options.lie {
        Some(lie) => Box::new(Liar::new(session, lie, Random::new(random.next()))),
        None => session,
    };
    Client { board, number, kinds, random, session, history: History::default(), counts: Counts::default() }
}

/// Waits until the clients of a group that nothing disturbs have written: more writes than there are clients, so that
/// one of them at least has begun since.
fn wait_written(board: &Board, clients: u64) -> Result<()> {
    let (begin, before) = (Instant::now(), board.written());
    while board.written() <= before + clients {
        let (written, seconds) = (board.written() - before, SERVE_MAX.as_secs());
        ensure!(begin.elapsed() < SERVE_MAX, "{clients} clients wrote {written} times in {seconds} s of calm");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Reads an object of a group that nothing disturbs, however often that takes.
fn read(reader: &mut Client<'_>, object: Object) -> Result<Answer> {
    let begin = Instant::now();
    loop {
        let outcome = reader.call(object, object.read()).map_err(|text| anyhow!("a wrong reply: {text}"))?;
        match outcome {
            Outcome::Done(answer) => return Ok(answer),
            outcome => ensure!(begin.elapsed() < SERVE_MAX, "{object} cannot be read: {outcome:?}"),
        }
        sleep(Duration::from_millis(20));
    }
}
