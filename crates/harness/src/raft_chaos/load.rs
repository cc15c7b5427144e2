//! The load: clients that draw operations on objects which they share, and note what they hear.
//!
//! An object is given up for a new one after some operations, and after fewer whose outcome is unknown: each of those
//! may stand at any later place, so that many of them make a history hard to decide.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::history::{Clock, History};
use super::operation::{FAMILY, Kind, Object, Operation, Outcome, Session, Step};
use crate::random::Random;

/// Operations on one object.
const OPERATIONS_MAX: u64 = 160;
/// Operations of unknown outcome on one object.
const UNKNOWN_MAX: u64 = 6;
/// The longest pause of a client behind an operation.
const PAUSE_MAX: Duration = Duration::from_millis(12);
/// The pause of a client whose operation was refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(25);
/// Members of a sorted set.
const MEMBERS: u64 = 8;

/// The objects of a run, those in use by kind, and the values that nobody has written yet.
#[derive(Debug)]
pub struct Board {
    active: Mutex<BTreeMap<Kind, Active>>,
    next_object: AtomicU64,
    next_value: AtomicI64,
    /// Writes that were done.
    written: AtomicU64,
    pub clock: Clock,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    object: Object,
    operations: u64,
    unknown: u64,
    /// A value that the object held lately.
    held: i64,
}

/// The operations of the clients by outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub done: u64,
    pub unknown: u64,
    pub failed: u64,
    /// Operations, among those that failed, that a server refused because its disk was full.
    pub refused_by_disk: u64,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.done += other.done;
        self.unknown += other.unknown;
        self.failed += other.failed;
        self.refused_by_disk += other.refused_by_disk;
    }

    fn note(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Done(_) | Outcome::Wrong(_) => self.done += 1,
            Outcome::Unknown(_) => self.unknown += 1,
            Outcome::Failed(why) => {
                self.failed += 1;
                self.refused_by_disk += u64::from(why.starts_with("MISCONF"));
            }
        }
    }
}

impl Default for Board {
    fn default() -> Board {
        let (active, clock) = (Mutex::default(), Clock::start());
        let (next_object, next_value) = (AtomicU64::new(1), AtomicI64::new(1));
        Board { active, next_object, next_value, written: AtomicU64::new(0), clock }
    }
}

impl Board {
    /// Returns the object of a kind that is in use, and a value that it held lately.
    fn take(&self, kind: Kind) -> (Object, i64) {
        let mut all = self.active.lock().expect("no client panics");
        let make = || {
            let number = self.next_object.fetch_add(1, Ordering::Relaxed);
            Active { object: Object { kind, number }, operations: 0, unknown: 0, held: 0 }
        };
        let active = all.entry(kind).or_insert_with(make);
        if active.operations >= OPERATIONS_MAX || active.unknown >= UNKNOWN_MAX {
            *active = make();
        }
        active.operations += 1;
        (active.object, active.held)
    }

    fn note(&self, object: Object, outcome: &Outcome) {
        let mut all = self.active.lock().expect("no client panics");
        let Some(active) = all.get_mut(&object.kind).filter(|active| active.object == object) else { return };
        match outcome {
            Outcome::Done(answer) => {
                active.held = answer.first().and_then(|list| list.first()).copied().unwrap_or(active.held);
            }
            Outcome::Unknown(_) => active.unknown += 1,
            _ => {}
        }
    }

    /// Gives up all objects that are in use.
    pub fn clear(&self) {
        self.active.lock().expect("no client panics").clear();
    }

    /// Returns the number of writes that were done.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn value(&self) -> i64 {
        self.next_value.fetch_add(1, Ordering::Relaxed)
    }

    /// Draws an operation on an object that held a value lately.
    fn draw(&self, object: Object, held: i64, random: &mut Random) -> Operation {
        if object.kind != Kind::Family && random.percent(45) {
            return Operation::Read;
        }
        let member = 1 + random.below(MEMBERS) as i64;
        match object.kind {
            Kind::Register if random.percent(30) => Operation::Swap { old: held, new: self.value() },
            Kind::Register => Operation::Write(self.value()),
            Kind::Counter => Operation::Add(1 + random.below(1000) as i64),
            Kind::List => Operation::Append(self.value()),
            Kind::Sorted => match random.below(10) {
                0..=4 => Operation::Score { member, score: random.below(100) as i64 },
                5..=7 => Operation::Raise { member, by: 1 + random.below(100) as i64 },
                _ => Operation::Remove { member },
            },
            Kind::Pair if random.percent(30) => Operation::Exchange,
            Kind::Pair => Operation::Both(self.value(), self.value()),
            Kind::Family => Operation::Transact((0..random.between(1, 4)).map(|_| self.step(random)).collect()),
        }
    }

    fn step(&self, random: &mut Random) -> Step {
        let key = random.below(FAMILY as u64) as usize;
        if random.percent(50) { Step::Read { key } } else { Step::Append { key, value: self.value() } }
    }
}

/// A client of the load.
pub struct Client<'a> {
    pub board: &'a Board,
    pub number: u64,
    pub kinds: &'a [Kind],
    pub random: Random,
    pub session: Box<dyn Session>,
    pub history: History,
    pub counts: Counts,
}

impl Client<'_> {
    /// Runs until told to stop. An error is a reply that no operation can have.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), String> {
        while !stop.load(Ordering::Relaxed) {
            let outcome = self.step()?;
            let pause = Duration::from_micros(self.random.below(PAUSE_MAX.as_micros() as u64));
            sleep(if matches!(outcome, Outcome::Failed(_)) { REFUSED_PAUSE } else { pause });
        }
        Ok(())
    }

    /// Runs so many operations without pauses.
    pub fn run_operations(&mut self, count: u64) -> Result<(), String> {
        (0..count).try_for_each(|_| self.step().map(drop))
    }

    fn step(&mut self) -> Result<Outcome, String> {
        let (object, held) = self.board.take(*self.random.pick(self.kinds));
        let operation = self.board.draw(object, held, &mut self.random);
        let outcome = self.call(object, operation)?;
        self.board.note(object, &outcome);
        Ok(outcome)
    }

    /// Calls one operation, and notes it.
    pub fn call(&mut self, object: Object, operation: Operation) -> Result<Outcome, String> {
        let call_ns = self.board.clock.now_ns();
        let outcome = self.session.call(object, &operation);
        let return_ns = self.board.clock.now_ns();
        self.counts.note(&outcome);
        let is_written = matches!(outcome, Outcome::Done(_)) && !operation.is_read();
        self.board.written.fetch_add(u64::from(is_written), Ordering::Relaxed);
        self.history.note((object, self.number), operation, call_ns, return_ns, &outcome)?;
        Ok(outcome)
    }
}
