//! One writer: makes operations on its own keys from its seed, sends them in pipelines, and checks every reply against
//! what its model says. It outlives the server: what it knows is carried from one run of the server to the next.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::model::{Database, Effect, Entry, Millis, Operation, Place, State};
use crate::client::{Client, Reply};
use crate::quoted::quote_short;
use crate::random::Random;

/// The largest string that a writer builds by APPEND and SETRANGE: several chunks.
const BIG_BYTES_MAX: usize = 200_000;
/// The most operations in one pipeline.
const PIPELINE_MAX: u64 = 64;
/// The longest that a short-lived key lives.
const MAYFLY_MS_MAX: u64 = 1500;

pub fn now_ms() -> Millis {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// What a writer may do beside plain writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Shares its database with others.
    Plain,
    /// Has a database alone, and flushes it.
    Flusher,
    /// Has two databases alone, and swaps them.
    Swapper(Database),
}

/// Why a run of a writer ended.
#[derive(Debug)]
pub enum End {
    /// It was told to stop and has read all replies.
    Stopped,
    /// The connection broke; operations are in flight.
    Broken(io::Error),
    /// A reply that cannot be.
    Wrong(String),
}

/// How far a writer is in its journal, for those who look from other threads.
#[derive(Debug, Default)]
pub struct Progress {
    pub sent: AtomicU64,
    pub acknowledged: AtomicU64,
}

/// The effects of all operations since it was begun, in their order.
struct Journal {
    before: State,
    operations: Vec<Operation>,
    acknowledged: u64,
    progress: Arc<Progress>,
}

pub struct Writer {
    pub prefix: String,
    home: Database,
    role: Role,
    random: Random,
    /// After all that was sent.
    sent: State,
    /// After all that was acknowledged.
    pub acknowledged: State,
    pub in_flight: VecDeque<Operation>,
    pub operations_sent: u64,
    pub operations_acknowledged: u64,
    journal: Option<Journal>,
}

impl Writer {
    pub fn new(number: u64, home: Database, role: Role, seed: u64) -> Writer {
        Writer {
            prefix: format!("w{number}:"),
            home,
            role,
            random: Random::of_part(seed, number),
            sent: State::default(),
            acknowledged: State::default(),
            in_flight: VecDeque::new(),
            operations_sent: 0,
            operations_acknowledged: 0,
            journal: None,
        }
    }

    /// Takes over what a restarted server was found to hold.
    pub fn resume_from(&mut self, state: State) {
        self.acknowledged = state;
        self.acknowledged.forget_expired(now_ms());
        self.sent = self.acknowledged.clone();
        self.in_flight.clear();
    }

    /// Remembers all operations from now on, of which none is in flight.
    pub fn begin_journal(&mut self) -> Arc<Progress> {
        let progress = Arc::<Progress>::default();
        let (before, progress_of_journal) = (self.acknowledged.clone(), progress.clone());
        self.journal = Some(Journal { before, operations: Vec::new(), acknowledged: 0, progress: progress_of_journal });
        progress
    }

    /// The state after so many operations of the journal, and those from there on until another one.
    pub fn journal_between(&self, from: u64, until: u64) -> (State, &[Operation]) {
        let Some(journal) = &self.journal else { return (State::default(), &[]) };
        let mut state = journal.before.clone();
        let (done, rest) = journal.operations.split_at(from as usize);
        done.iter().flat_map(|operation| &operation.effects).for_each(|effect| state.apply(effect));
        (state, &rest[..(until - from) as usize])
    }

    /// Writes until told to stop or until the connection breaks.
    pub fn run(&mut self, client: io::Result<Client>, stop: &AtomicBool) -> End {
        let mut client = match client {
            Ok(client) => client,
            Err(error) => return End::Broken(error),
        };
        match client.command(&format!("SELECT {}", self.home)) {
            Ok(reply) if reply.is_ok() => {}
            Ok(reply) => return End::Wrong(format!("SELECT was answered by {reply}")),
            Err(error) => return End::Broken(error),
        }
        while !stop.load(Ordering::Relaxed) {
            let count = self.random.between(1, PIPELINE_MAX);
            for _ in 0..count {
                let operation = self.next_operation();
                for command in &operation.commands {
                    client.push(command);
                }
                if let Some(journal) = &mut self.journal {
                    journal.operations.push(Operation { effects: operation.effects.clone(), ..empty() });
                    journal.progress.sent.store(journal.operations.len() as u64, Ordering::Release);
                }
                self.in_flight.push_back(operation);
                self.operations_sent += 1;
            }
            if let Err(error) = client.flush() {
                return End::Broken(error);
            }
            match self.read_replies(&mut client) {
                Ok(None) => {}
                Ok(Some(text)) => return End::Wrong(text),
                Err(error) => return End::Broken(error),
            }
        }
        End::Stopped
    }

    /// Reads the replies to all that is in flight; a text if one is wrong.
    fn read_replies(&mut self, client: &mut Client) -> io::Result<Option<String>> {
        while let Some(operation) = self.in_flight.front() {
            for (command, expected) in operation.commands.iter().zip(&operation.replies) {
                let reply = client.read()?;
                if reply != *expected {
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
        match self.random.below(1000) {
            0..=359 => self.set(&mut plan),
            360..=429 => self.transaction(&mut plan),
            430..=479 => self.mset(&mut plan),
            480..=569 => self.count(&mut plan),
            570..=639 => self.append(&mut plan),
            640..=679 => self.setrange(&mut plan),
            680..=739 => self.deadline(&mut plan),
            740..=799 => self.delete(&mut plan),
            800..=849 => self.rename(&mut plan),
            850..=879 => self.mayfly(&mut plan),
            880..=909 => self.conditional(&mut plan),
            910..=919 => self.discarded(&mut plan),
            920..=929 => self.transaction_with_error(&mut plan),
            930..=989 => self.read(&mut plan),
            _ => self.by_role(&mut plan),
        }
        plan.operation
    }

    fn key(&mut self, class: &str, count: u64) -> Vec<u8> {
        format!("{}{class}{}", self.prefix, self.random.below(count)).into_bytes()
    }

    fn plain_key(&mut self) -> Vec<u8> {
        self.key("p", 1500)
    }

    /// A value that occurs nowhere else: it begins with the number of its operation. About half of it compresses.
    fn value(&mut self) -> Vec<u8> {
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

    fn get(&self, place: &Place) -> Option<Entry> {
        self.sent.keys.get(place).cloned()
    }

    /// Adds a command, its reply and its effects, and takes the effects into the sent state.
    fn push(&mut self, plan: &mut Plan, command: Vec<Vec<u8>>, reply: Reply, effects: Vec<Effect>) {
        for effect in &effects {
            self.sent.apply(effect);
        }
        plan.operation.commands.push(command);
        plan.operation.replies.push(reply);
        plan.operation.effects.extend(effects);
    }

    fn set_to(&mut self, plan: &mut Plan, key: Vec<u8>, value: Vec<u8>) {
        let effect = Effect::Put((plan.database, key.clone()), Entry::new(value.clone()));
        self.push(plan, vec![b"SET".to_vec(), key, value], Reply::ok(), vec![effect]);
    }

    fn set(&mut self, plan: &mut Plan) {
        let (key, value) = (self.plain_key(), self.value());
        self.set_to(plan, key, value);
    }

    fn mset(&mut self, plan: &mut Plan) {
        let mut command = vec![b"MSET".to_vec()];
        let mut effects = Vec::new();
        for _ in 0..self.random.between(2, 8) {
            let (key, value) = (self.plain_key(), self.value());
            effects.push(Effect::Put((plan.database, key.clone()), Entry::new(value.clone())));
            command.extend([key, value]);
        }
        self.push(plan, command, Reply::ok(), effects);
    }

    fn count(&mut self, plan: &mut Plan) {
        let key = self.key("n", 30);
        let by = self.random.between(1, 9) as i64;
        let place = (plan.database, key.clone());
        let before = self.get(&place);
        let number: i64 = before.as_ref().map_or(0, |e| String::from_utf8_lossy(&e.value).parse().unwrap_or(0));
        let after = number + by;
        let entry = Entry { value: after.to_string().into_bytes().into(), deadline: before.and_then(|e| e.deadline) };
        let command = if by == 1 {
            vec![b"INCR".to_vec(), key]
        } else {
            vec![b"INCRBY".to_vec(), key, by.to_string().into_bytes()]
        };
        self.push(plan, command, Reply::Integer(after), vec![Effect::Put(place, entry)]);
    }

    fn append(&mut self, plan: &mut Plan) {
        let key = self.key("big", 4);
        let place = (plan.database, key.clone());
        let before = self.get(&place);
        let old = before.as_ref().map_or(&[][..], |e| &e.value);
        if old.len() > BIG_BYTES_MAX {
            let command = vec![b"DEL".to_vec(), key];
            return self.push(plan, command, Reply::Integer(1), vec![Effect::Remove(place)]);
        }
        let mut piece = self.value();
        if self.random.percent(10) {
            piece.resize(20_000, b'+');
        }
        let entry = Entry { value: [old, &piece].concat().into(), deadline: before.as_ref().and_then(|e| e.deadline) };
        let reply = Reply::Integer(entry.value.len() as i64);
        self.push(plan, vec![b"APPEND".to_vec(), key, piece], reply, vec![Effect::Put(place, entry)]);
    }

    fn setrange(&mut self, plan: &mut Plan) {
        let key = self.key("big", 4);
        let place = (plan.database, key.clone());
        let before = self.get(&place);
        let mut value = before.as_ref().map_or_else(Vec::new, |e| e.value.to_vec());
        let offset = self.random.below(BIG_BYTES_MAX as u64) as usize;
        let piece = self.value();
        value.resize(value.len().max(offset + piece.len()), 0);
        value[offset..offset + piece.len()].copy_from_slice(&piece);
        let entry = Entry { value: value.into(), deadline: before.and_then(|e| e.deadline) };
        let reply = Reply::Integer(entry.value.len() as i64);
        let command = vec![b"SETRANGE".to_vec(), key, offset.to_string().into_bytes(), piece];
        self.push(plan, command, reply, vec![Effect::Put(place, entry)]);
    }

    /// Deadlines that no run reaches: set, moved, taken away.
    fn deadline(&mut self, plan: &mut Plan) {
        let key = self.key("d", 60);
        let place = (plan.database, key.clone());
        let deadline = 4_102_444_800_000 + self.random.below(1_000_000);
        let text = deadline.to_string().into_bytes();
        let before = self.get(&place);
        match (self.random.below(4), before) {
            (0, Some(entry)) => {
                let effect = Effect::Put(place, Entry { deadline: Some(deadline), ..entry });
                self.push(plan, vec![b"PEXPIREAT".to_vec(), key, text], Reply::Integer(1), vec![effect]);
            }
            (1, Some(entry)) => {
                let had = i64::from(entry.deadline.is_some());
                let effect = Effect::Put(place, Entry { deadline: None, ..entry });
                self.push(plan, vec![b"PERSIST".to_vec(), key], Reply::Integer(had), vec![effect]);
            }
            (2, Some(entry)) => {
                let reply = Reply::Bulk(entry.value.to_vec());
                let effect = Effect::Put(place, Entry { deadline: Some(deadline), ..entry });
                self.push(plan, vec![b"GETEX".to_vec(), key, b"PXAT".to_vec(), text], reply, vec![effect]);
            }
            _ => {
                let value = self.value();
                let entry = Entry { value: Arc::from(&value[..]), deadline: Some(deadline) };
                let command = vec![b"SET".to_vec(), key, value, b"PXAT".to_vec(), text];
                self.push(plan, command, Reply::ok(), vec![Effect::Put(place, entry)]);
            }
        }
    }

    fn delete(&mut self, plan: &mut Plan) {
        let name = *self.random.pick(&["DEL", "DEL", "UNLINK", "GETDEL"]);
        let mut command = vec![name.as_bytes().to_vec()];
        let mut effects = Vec::new();
        let mut removed = 0;
        let mut value = Reply::NullBulk;
        let keys = if name == "GETDEL" { 1 } else { self.random.between(1, 5) };
        for _ in 0..keys {
            let key = if self.random.percent(90) { self.plain_key() } else { self.key("big", 4) };
            let place = (plan.database, key.clone());
            if !command.contains(&key)
                && let Some(entry) = self.get(&place)
            {
                removed += 1;
                value = Reply::Bulk(entry.value.to_vec());
            }
            effects.push(Effect::Remove(place));
            command.push(key);
        }
        let reply = if name == "GETDEL" { value } else { Reply::Integer(removed) };
        self.push(plan, command, reply, effects);
    }

    fn rename(&mut self, plan: &mut Plan) {
        let class = if self.random.percent(80) { ("p", 1500) } else { ("big", 4) };
        let (from, to) = (self.key(class.0, class.1), self.key(class.0, class.1));
        let (from_place, to_place) = ((plan.database, from.clone()), (plan.database, to.clone()));
        let only_if_new = self.random.percent(30);
        let Some(entry) = self.get(&from_place) else {
            let reply = Reply::Error(b"ERR no such key".to_vec());
            return self.push(plan, vec![b"RENAME".to_vec(), from, to], reply, vec![]);
        };
        if only_if_new && self.get(&to_place).is_some() {
            return self.push(plan, vec![b"RENAMENX".to_vec(), from, to], Reply::Integer(0), vec![]);
        }
        let effects = vec![Effect::Remove(from_place), Effect::Put(to_place, entry)];
        let (name, reply) = if only_if_new { ("RENAMENX", Reply::Integer(1)) } else { ("RENAME", Reply::ok()) };
        self.push(plan, vec![name.as_bytes().to_vec(), from, to], reply, effects);
    }

    /// A key that soon expires. Nothing else ever touches it, because what it would find depends on the time.
    fn mayfly(&mut self, plan: &mut Plan) {
        let (key, value) = (self.key("m", 200), self.value());
        let deadline = now_ms() + self.random.between(30, MAYFLY_MS_MAX);
        let entry = Entry { value: Arc::from(&value[..]), deadline: Some(deadline) };
        let effect = Effect::Put((plan.database, key.clone()), entry);
        let command = vec![b"SET".to_vec(), key, value, b"PXAT".to_vec(), deadline.to_string().into_bytes()];
        self.push(plan, command, Reply::ok(), vec![effect]);
    }

    fn conditional(&mut self, plan: &mut Plan) {
        let (key, value) = (self.plain_key(), self.value());
        let place = (plan.database, key.clone());
        let before = self.get(&place);
        let put = Effect::Put(place, Entry::new(value.clone()));
        if self.random.percent(50) {
            let absent = before.is_none();
            let effects = if absent { vec![put] } else { vec![] };
            self.push(plan, vec![b"SETNX".to_vec(), key, value], Reply::Integer(i64::from(absent)), effects);
        } else {
            let reply = before.map_or(Reply::NullBulk, |e| Reply::Bulk(e.value.to_vec()));
            self.push(plan, vec![b"GETSET".to_vec(), key, value], reply, vec![put]);
        }
    }

    /// Several keys that always have the same value, and a counter, changed together.
    fn transaction(&mut self, plan: &mut Plan) {
        let mut inner = Plan { operation: empty(), database: plan.database };
        let group = self.random.below(20);
        let value = self.value();
        for member in 0..self.random.between(2, 6) {
            let key = format!("{}g{group}:{member}", self.prefix).into_bytes();
            self.set_to(&mut inner, key, value.clone());
        }
        self.count(&mut inner);
        if self.random.percent(30) {
            self.append(&mut inner);
            self.delete(&mut inner);
        }
        self.wrap(plan, inner);
    }

    /// A transaction of which one command fails when it runs; the others stand.
    fn transaction_with_error(&mut self, plan: &mut Plan) {
        let mut inner = Plan { operation: empty(), database: plan.database };
        let key = self.key("text", 5);
        self.set_to(&mut inner, key.clone(), b"text".to_vec());
        let reply = Reply::Error(b"ERR value is not an integer or out of range".to_vec());
        self.push(&mut inner, vec![b"INCR".to_vec(), key], reply, vec![]);
        self.set(&mut inner);
        self.wrap(plan, inner);
    }

    fn wrap(&mut self, plan: &mut Plan, inner: Plan) {
        let Operation { commands, replies, effects } = inner.operation;
        self.push(plan, vec![b"MULTI".to_vec()], Reply::ok(), vec![]);
        for command in commands {
            self.push(plan, command, Reply::Simple(b"QUEUED".to_vec()), vec![]);
        }
        self.push(plan, vec![b"EXEC".to_vec()], Reply::Array(replies), vec![]);
        // They were taken into the sent state when they were made.
        plan.operation.effects.extend(effects);
    }

    fn discarded(&mut self, plan: &mut Plan) {
        let (key, value) = (self.plain_key(), self.value());
        self.push(plan, vec![b"MULTI".to_vec()], Reply::ok(), vec![]);
        let queued = Reply::Simple(b"QUEUED".to_vec());
        self.push(plan, vec![b"SET".to_vec(), key, value], queued, vec![]);
        self.push(plan, vec![b"DISCARD".to_vec()], Reply::ok(), vec![]);
    }

    fn read(&mut self, plan: &mut Plan) {
        let key = match self.random.below(4) {
            0 => self.key("big", 4),
            1 => self.key("d", 60),
            _ => self.plain_key(),
        };
        let entry = self.get(&(plan.database, key.clone()));
        if self.random.percent(20) {
            let length = entry.map_or(0, |e| e.value.len() as i64);
            return self.push(plan, vec![b"STRLEN".to_vec(), key], Reply::Integer(length), vec![]);
        }
        let reply = entry.map_or(Reply::NullBulk, |e| Reply::Bulk(e.value.to_vec()));
        self.push(plan, vec![b"GET".to_vec(), key], reply, vec![]);
    }

    fn by_role(&mut self, plan: &mut Plan) {
        match self.role {
            Role::Plain => self.set(plan),
            Role::Flusher => {
                let database = plan.database;
                self.push(plan, vec![b"FLUSHDB".to_vec()], Reply::ok(), vec![Effect::Clear(database)]);
            }
            Role::Swapper(other) if self.random.percent(50) => {
                let (a, b) = (self.home, other);
                let words = [a, b].map(|d| d.to_string().into_bytes());
                let [first, second] = words;
                self.push(plan, vec![b"SWAPDB".to_vec(), first, second], Reply::ok(), vec![Effect::Swap(a, b)]);
            }
            Role::Swapper(other) => self.across_databases(plan, other),
        }
    }

    /// A transaction that writes to two databases.
    fn across_databases(&mut self, plan: &mut Plan, other: Database) {
        let select = |database: Database| vec![b"SELECT".to_vec(), database.to_string().into_bytes()];
        let mut inner = Plan { operation: empty(), database: plan.database };
        self.set(&mut inner);
        self.push(&mut inner, select(other), Reply::ok(), vec![]);
        inner.database = other;
        self.set(&mut inner);
        self.count(&mut inner);
        self.push(&mut inner, select(self.home), Reply::ok(), vec![]);
        self.wrap(plan, inner);
    }
}

/// An operation being made, and the database that its next command goes to.
struct Plan {
    operation: Operation,
    database: Database,
}

fn empty() -> Operation {
    Operation { commands: vec![], replies: vec![], effects: vec![] }
}
