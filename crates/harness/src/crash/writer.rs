//! One writer: makes operations on its own keys from its seed, sends them in pipelines, and checks every reply against
//! its model. The writer outlives the server: its state is carried from one run of the server to the next.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::model::{Database, Effect, Entry, Operation, Place, State};
use super::value::Edit;
use crate::client::{Client, Reply};
use crate::clock::now_ms;
use crate::quoted::quote_short;
use crate::random::Random;

/// The most operations in one pipeline.
const PIPELINE_MAX: u64 = 64;
/// The percentage of pipelines that end in a draw.
const DRAW_PERCENT: u64 = 25;

/// The operations of a writer, and how often each comes.
const OPERATIONS: &[(u64, fn(&mut Writer, &mut Plan))] = &[
    (200, Writer::set),
    (350, Writer::collection),
    (70, Writer::transaction),
    (40, Writer::mset),
    (70, Writer::count),
    (60, Writer::append),
    (40, Writer::setrange),
    (50, Writer::deadline),
    (40, Writer::delete),
    (40, Writer::rename),
    (30, Writer::mayfly),
    (20, Writer::collection_mayfly),
    (20, Writer::conditional),
    (10, Writer::discarded),
    (10, Writer::transaction_with_error),
    (40, Writer::read),
    (10, Writer::by_role),
];

/// The operations that a writer may do beside plain writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Shares its database with others.
    Plain,
    /// Has a database of its own, and flushes it.
    Flusher,
    /// Has two databases of its own, and swaps them.
    Swapper(Database),
}

/// The reason why a run of a writer ended.
#[derive(Debug)]
pub enum End {
    /// The writer was told to stop and has read all replies.
    Stopped,
    /// The connection broke; operations are in flight.
    Broken(io::Error),
    /// The server takes no writes any more; it has refused all operations in flight.
    Refused,
    /// A reply was wrong.
    Wrong(String),
}

/// The errors of a server that takes no writes: a replica's, one's that is about to be one.
const REFUSALS: [&[u8]; 5] = [b"READONLY ", b"LOADING ", b"NOREPLICAS ", b"EXECABORT ", b"MASTERDOWN "];

fn is_refusal(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if REFUSALS.iter().any(|refusal| text.starts_with(refusal)))
}

/// A writer's progress in its journal, for other threads.
#[derive(Debug, Default)]
pub struct Progress {
    pub sent: AtomicU64,
    pub acknowledged: AtomicU64,
}

/// The effects of all operations since the journal began, in their order.
struct Journal {
    before: State,
    operations: Vec<Operation>,
    acknowledged: u64,
    progress: Arc<Progress>,
}

pub struct Writer {
    pub prefix: String,
    pub(super) home: Database,
    pub(super) role: Role,
    /// Whether the server knows deadlines of fields.
    pub(super) field_deadlines: bool,
    pub(super) random: Random,
    /// The state after all operations that were sent.
    pub(super) sent: State,
    /// The state after all operations that were acknowledged.
    pub acknowledged: State,
    pub in_flight: VecDeque<Operation>,
    pub operations_sent: u64,
    pub operations_acknowledged: u64,
    journal: Option<Journal>,
    /// The last reply was a refusal.
    is_refused: bool,
}

impl Writer {
    pub fn new(number: u64, home: Database, role: Role, seed: u64) -> Writer {
        Writer {
            prefix: format!("w{number}:"),
            home,
            role,
            field_deadlines: false,
            random: Random::of_part(seed, number),
            sent: State::default(),
            acknowledged: State::default(),
            in_flight: VecDeque::new(),
            operations_sent: 0,
            operations_acknowledged: 0,
            journal: None,
            is_refused: false,
        }
    }

    /// Takes over the state that a restarted server was found to hold.
    pub fn resume_from(&mut self, state: State) {
        self.acknowledged = state;
        self.acknowledged.forget_expired(now_ms());
        self.sent = self.acknowledged.clone();
        self.in_flight.clear();
    }

    /// Remembers all operations from now on; none may be in flight.
    pub fn begin_journal(&mut self) -> Arc<Progress> {
        let progress = Arc::<Progress>::default();
        let (before, progress_of_journal) = (self.acknowledged.clone(), progress.clone());
        self.journal = Some(Journal { before, operations: Vec::new(), acknowledged: 0, progress: progress_of_journal });
        progress
    }

    /// Returns the state after `from` operations of the journal, and the operations from there to `until`.
    pub fn journal_between(&self, from: u64, until: u64) -> (State, &[Operation]) {
        let Some(journal) = &self.journal else { return (State::default(), &[]) };
        let mut state = journal.before.clone();
        let (done, rest) = journal.operations.split_at(from as usize);
        done.iter().flat_map(|operation| &operation.effects).for_each(|effect| state.apply(effect));
        (state, &rest[..(until - from) as usize])
    }

    /// Returns the state when the journal began, and all operations since.
    pub fn journal(&self) -> (State, &[Operation]) {
        let operations = self.journal.as_ref().map_or(0, |journal| journal.operations.len());
        self.journal_between(0, operations as u64)
    }

    /// Writes until told to stop or until the connection breaks.
    pub fn run(&mut self, client: io::Result<Client>, stop: &AtomicBool) -> End {
        let mut client = match client {
            Ok(client) => client,
            Err(error) => return End::Broken(error),
        };
        match client.call(&["COMMAND", "INFO", "HPEXPIREAT"]) {
            Ok(reply) => self.field_deadlines = reply.elements().is_some_and(|known| known.iter().any(|c| !c.is_nil())),
            Err(error) => return End::Broken(error),
        }
        match client.command(&format!("SELECT {}", self.home)) {
            Ok(reply) if reply.is_ok() => {}
            Ok(reply) => return End::Wrong(format!("SELECT was answered by {reply}")),
            Err(error) => return End::Broken(error),
        }
        while !stop.load(Ordering::Relaxed) {
            let count = self.random.between(1, PIPELINE_MAX);
            for _ in 0..count {
                let operation = self.next_operation();
                self.send(&mut client, operation);
            }
            if self.random.percent(DRAW_PERCENT)
                && let Some(draw) = self.draw()
            {
                self.send(&mut client, draw);
            }
            if let Err(error) = client.flush() {
                return End::Broken(error);
            }
            match self.read_replies(&mut client) {
                Ok(None) => {}
                Ok(Some(_)) if self.is_refused => return End::Refused,
                Ok(Some(text)) => return End::Wrong(text),
                Err(error) => return End::Broken(error),
            }
        }
        End::Stopped
    }

    /// Gives an operation to the connection, and remembers it as in flight.
    fn send(&mut self, client: &mut Client, operation: Operation) {
        operation.commands.iter().for_each(|command| client.push(command));
        if let Some(journal) = &mut self.journal {
            journal.operations.push(Operation { effects: operation.effects.clone(), ..empty() });
            journal.progress.sent.store(journal.operations.len() as u64, Ordering::Release);
        }
        self.in_flight.push_back(operation);
        self.operations_sent += 1;
    }

    /// Replaces a draw by the edits that its reply names; returns a text if the reply cannot be right.
    fn on_drawn(&mut self, place: &Place, count: usize, reply: &Reply) -> Result<(), String> {
        let set = self.acknowledged.set(place);
        let drawn: BTreeSet<&[u8]> = match reply.elements() {
            Some(members) => members.iter().filter_map(Reply::bytes).collect(),
            None => reply.bytes().into_iter().collect(),
        };
        let right = drawn.len() == count && drawn.iter().all(|member| set.contains(*member));
        if !right {
            return Err(format!("a draw of {count} out of a set of {} was answered by {reply}", set.len()));
        }
        let effects: Vec<_> = drawn.iter().map(|m| Effect::Edit(place.clone(), Edit::Drop(m.to_vec()))).collect();
        effects.iter().for_each(|effect| self.sent.apply(effect));
        if let Some(sent) = self.journal.as_mut().and_then(|journal| journal.operations.last_mut()) {
            sent.effects = effects.clone();
        }
        if let Some(operation) = self.in_flight.front_mut() {
            operation.effects = effects;
        }
        Ok(())
    }

    /// Reads the replies to all operations in flight; returns a text if one is wrong.
    fn read_replies(&mut self, client: &mut Client) -> io::Result<Option<String>> {
        while let Some(operation) = self.in_flight.front() {
            if let [Effect::Draw(place, count)] = &operation.effects[..] {
                let (place, count, reply) = (place.clone(), *count, client.read()?);
                self.is_refused = is_refusal(&reply);
                if let Err(text) = self.on_drawn(&place, count, &reply) {
                    return Ok(Some(text));
                }
            }
            let operation = self.in_flight.front().expect("it is still there");
            for (command, expected) in operation.commands.iter().zip(&operation.replies) {
                let reply = client.read()?;
                if reply != *expected {
                    self.is_refused = is_refusal(&reply);
                    let command = quote_short(command);
                    return Ok(Some(format!("{command} was answered by {reply} instead of {expected}")));
                }
            }
            let operation = self.in_flight.pop_front().expect("the loop found one");
            for effect in &operation.effects {
                self.acknowledged.apply(effect);
            }
            self.operations_acknowledged += 1;
            if let Some(journal) = &mut self.journal {
                journal.acknowledged += 1;
                journal.progress.acknowledged.store(journal.acknowledged, Ordering::Release);
            }
        }
        Ok(None)
    }

    fn next_operation(&mut self) -> Operation {
        let mut plan = Plan { operation: empty(), database: self.home };
        let mut at = self.random.below(OPERATIONS.iter().map(|(weight, _)| weight).sum());
        for (weight, make) in OPERATIONS {
            if at < *weight {
                make(self, &mut plan);
                break;
            }
            at -= weight;
        }
        plan.operation
    }

    pub(super) fn key(&mut self, class: &str, count: u64) -> Vec<u8> {
        format!("{}{class}{}", self.prefix, self.random.below(count)).into_bytes()
    }

    pub(super) fn plain_key(&mut self) -> Vec<u8> {
        self.key("p", 1500)
    }

    /// Returns a value that occurs nowhere else: it begins with the number of its operation. About half of it
    /// compresses.
    pub(super) fn value(&mut self) -> Vec<u8> {
        let mut value = format!("{}:", self.operations_sent).into_bytes();
        let filler = match self.random.below(40) {
            0 => self.random.between(2000, 30_000),
            _ => self.random.below(250),
        };
        let start = value.len();
        value.resize(start + filler as usize, b'.');
        let random_end = start + filler as usize / 2;
        self.random.fill(&mut value[start..random_end]);
        value
    }

    pub(super) fn get(&self, place: &Place) -> Option<Entry> {
        self.sent.keys.get(place).cloned()
    }

    /// Adds a command, its reply and its effects, and takes the effects into the sent state.
    pub(super) fn push(&mut self, plan: &mut Plan, command: Vec<Vec<u8>>, reply: Reply, effects: Vec<Effect>) {
        for effect in &effects {
            self.sent.apply(effect);
        }
        plan.operation.commands.push(command);
        plan.operation.replies.push(reply);
        plan.operation.effects.extend(effects);
    }
}

/// An operation being made, and the database that its next command goes to.
pub(super) struct Plan {
    pub operation: Operation,
    pub database: Database,
}

pub(super) fn empty() -> Operation {
    Operation { commands: vec![], replies: vec![], effects: vec![] }
}
