//! Blocked pops: producers push numbered elements while consumers wait for them, and the server is killed.
//!
//! After a kill an element whose push was acknowledged is with a consumer or still in a list, and never twice. Only
//! elements of the pop that a consumer had in flight may be missing: the server may have died before its reply arrived.
//! An element that moves from list to list is never missing. `account` verifies these rules. Now and then producers
//! rest, and `watch` looks for a consumer that was not woken up.

mod account;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};

use account::{Account, Received};
use watch::Watch;

use super::model::Database;
use super::writer::End;
use crate::client::{Client, Reply};
use crate::quoted::quote_short;
use crate::random::Random;
use crate::server::REPLY_TIMEOUT;

/// The database of the elements, which no writer uses.
const HOME: Database = 6;
/// The most elements that one push adds, and one pop takes.
const PUSH_MAX: u64 = 4;
const POP_MAX: u64 = 3;
/// The percentage of pops that wait without an end, where the server ends before its clients.
const ENDLESS_PERCENT: u64 = 33;
/// The time between two looks of a producer that rests.
const REST: Duration = Duration::from_millis(5);

/// A kind of element: the type of its keys, and the commands that pop it. Elements of one kind never meet those of
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// BLPOP, BRPOP, BLMPOP.
    List,
    /// BLMOVE, BRPOPLPUSH, into a list for each consumer.
    Move,
    /// BZPOPMIN, BZPOPMAX, BZMPOP.
    Zset,
}

const KINDS: [Kind; 3] = [Kind::List, Kind::Move, Kind::Zset];
/// The number of consumers: more than producers, so that most of them wait.
const CONSUMERS: u64 = 3;
const PRODUCERS: u64 = 1;

impl Kind {
    /// Returns the two keys that elements are pushed to.
    fn sources(self) -> [&'static str; 2] {
        match self {
            Kind::List => ["list:a", "list:b"],
            Kind::Move => ["move:a", "move:b"],
            Kind::Zset => ["zset:a", "zset:b"],
        }
    }
}

/// One consumer: the elements that it received, and the pop in flight when its connection broke.
struct Consumer {
    kind: Kind,
    number: u64,
    random: Random,
    received: Vec<String>,
    /// The most elements of the pop in flight; 0 if none is.
    in_flight: usize,
}

struct Producer {
    kind: Kind,
    random: Random,
    next: u64,
    acknowledged: Vec<String>,
    in_flight: Vec<String>,
}

/// All consumers and producers; the value outlives the server.
pub struct Pops {
    consumers: Vec<Consumer>,
    producers: Vec<Producer>,
    /// The elements that were in a source or in a consumer's list at the last verification.
    left: BTreeMap<Kind, BTreeSet<String>>,
    pub pushed: u64,
    pub received: u64,
    /// Popped elements whose reply was lost with the connection.
    pub underway: u64,
}

/// A thread's work on one connection.
pub struct Task<'a> {
    work: Work<'a>,
    watch: Arc<Watch>,
    /// Pops may wait without an end.
    is_endless: bool,
}

enum Work<'a> {
    Consume(&'a mut Consumer),
    Produce(&'a mut Producer),
}

impl Pops {
    pub fn new(seed: u64) -> Pops {
        let random = |part: u64| Random::of_part(seed, (1 << 32) + part);
        let of_kind = |count: u64| KINDS.into_iter().flat_map(move |kind| (0..count).map(move |number| (kind, number)));
        let consumers = of_kind(CONSUMERS).enumerate().map(|(part, (kind, number))| {
            let random = random(part as u64);
            Consumer { kind, number, random, received: vec![], in_flight: 0 }
        });
        let producers = of_kind(PRODUCERS).enumerate().map(|(part, (kind, _))| {
            let random = random(1000 + part as u64);
            Producer { kind, random, next: 0, acknowledged: vec![], in_flight: vec![] }
        });
        Pops {
            consumers: consumers.collect(),
            producers: producers.collect(),
            left: BTreeMap::new(),
            pushed: 0,
            received: 0,
            underway: 0,
        }
    }

    /// Returns the work of threads while the server lives, and what finds consumers that were not woken up. Pops may
    /// wait without an end if the server ends before the threads are told to stop.
    pub fn tasks(&mut self, is_endless: bool) -> (Vec<Task<'_>>, Arc<Watch>) {
        let watch = Arc::<Watch>::default();
        let task = |work| Task { work, watch: watch.clone(), is_endless };
        let consumers = self.consumers.iter_mut().map(Work::Consume);
        let tasks = consumers.chain(self.producers.iter_mut().map(Work::Produce)).map(task).collect();
        (tasks, watch)
    }

    /// Forgets all elements after a FLUSHALL.
    pub fn forget(&mut self) {
        self.left.clear();
        self.consumers.iter_mut().for_each(|consumer| (consumer.received, consumer.in_flight) = (vec![], 0));
        self.producers.iter_mut().for_each(|producer| (producer.acknowledged, producer.in_flight) = (vec![], vec![]));
    }

    /// Looks for every element in a server without other writers, and empties the consumers' own lists.
    pub fn verify(&mut self, client: &mut Client) -> Result<()> {
        client.command(&format!("SELECT {HOME}"))?;
        for kind in KINDS {
            self.verify_kind(kind, client)?;
        }
        Ok(())
    }

    fn verify_kind(&mut self, kind: Kind, client: &mut Client) -> Result<()> {
        let mut account = Account { known: self.left.remove(&kind).unwrap_or_default(), ..Account::default() };
        account.moves = kind == Kind::Move;
        for source in kind.sources() {
            account.sources.push(read(client, kind, source)?);
        }
        for producer in self.producers.iter_mut().filter(|producer| producer.kind == kind) {
            self.pushed += producer.acknowledged.len() as u64;
            account.known.extend(producer.acknowledged.drain(..));
            account.unanswered.push(take(&mut producer.in_flight));
        }
        for consumer in self.consumers.iter_mut().filter(|consumer| consumer.kind == kind) {
            let (elements, in_flight) = (take(&mut consumer.received), take(&mut consumer.in_flight));
            let mut received = Received { elements, in_flight, ..Received::default() };
            if account.moves {
                let own = target(consumer.number);
                received.own = read(client, kind, &own)?;
                client.command(&format!("DEL {own}"))?;
            }
            account.consumers.push(received);
        }
        let settled = account.settle()?;
        self.received += settled.received as u64;
        self.underway += settled.underway as u64;
        self.left.insert(kind, settled.left);
        Ok(())
    }
}

fn read(client: &mut Client, kind: Kind, key: &str) -> Result<Vec<String>> {
    let command = if kind == Kind::Zset { "ZRANGE" } else { "LRANGE" };
    let reply = client.command(&format!("{command} {key} 0 -1"))?;
    let Some(elements) = reply.elements() else { bail!("{command} {key} was answered by {reply}") };
    Ok(elements.iter().filter_map(text).collect())
}

fn text(reply: &Reply) -> Option<String> {
    reply.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn target(number: u64) -> String {
    format!("move:to:{number}")
}

impl Task<'_> {
    /// Runs until told to stop or until the connection breaks.
    pub fn run(self, port: u16, stop: &AtomicBool) -> End {
        let connect = || -> std::io::Result<Client> {
            let mut client = Client::connect(port, REPLY_TIMEOUT)?;
            client.command(&format!("SELECT {HOME}"))?;
            Ok(client)
        };
        let mut client = match connect() {
            Ok(client) => client,
            Err(error) => return End::Broken(error),
        };
        let Task { mut work, watch, is_endless } = self;
        while !stop.load(Ordering::Relaxed) {
            let step = match &mut work {
                Work::Consume(consumer) => consumer.pop(&mut client, &watch, is_endless),
                Work::Produce(producer) => {
                    rest(&watch, stop);
                    producer.push(&mut client)
                }
            };
            match step {
                Ok(Ok(())) => {}
                Ok(Err(text)) => return End::Wrong(text),
                Err(error) => return End::Broken(error),
            }
        }
        End::Stopped
    }
}

/// Lets a producer rest as long as it is to.
fn rest(watch: &Watch, stop: &AtomicBool) {
    if watch.rests.load(Ordering::Acquire) {
        watch.resting.fetch_add(1, Ordering::AcqRel);
        while watch.rests.load(Ordering::Acquire) && !stop.load(Ordering::Relaxed) {
            sleep(REST);
        }
        watch.resting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Consumer {
    /// Runs one blocking pop and keeps its elements. Timeouts are short, so that waits end once all pushes have, but in
    /// some of the pops where waits may be endless.
    fn pop(&mut self, client: &mut Client, watch: &Watch, is_endless: bool) -> std::io::Result<Result<(), String>> {
        let random = &mut self.random;
        let [mut a, mut b] = self.kind.sources();
        if random.percent(50) {
            (a, b) = (b, a);
        }
        let is_endless = is_endless && random.percent(ENDLESS_PERCENT);
        let wait = if is_endless { "0" } else { random.pick(&["0.005", "0.05", "0.3"]) };
        let count = random.between(1, POP_MAX);
        let (command, most) = match (self.kind, random.below(3)) {
            (Kind::List, 0) => (format!("BLPOP {a} {b} {wait}"), 1),
            (Kind::List, 1) => (format!("BRPOP {a} {b} {wait}"), 1),
            (Kind::List, _) => (format!("BLMPOP {wait} 2 {a} {b} RIGHT COUNT {count}"), count),
            (Kind::Move, 0) => (format!("BRPOPLPUSH {a} {} {wait}", target(self.number)), 1),
            (Kind::Move, _) => (format!("BLMOVE {a} {} LEFT RIGHT {wait}", target(self.number)), 1),
            (Kind::Zset, 0) => (format!("BZPOPMIN {a} {b} {wait}"), 1),
            (Kind::Zset, 1) => (format!("BZPOPMAX {a} {b} {wait}"), 1),
            (Kind::Zset, _) => (format!("BZMPOP {wait} 2 {a} {b} MIN COUNT {count}"), count),
        };
        self.in_flight = most as usize;
        // A move waits for one source.
        let sources = if self.kind == Kind::Move { &[a][..] } else { &[a, b] };
        watch.begin(self.kind, self.number, sources);
        let reply = client.command(&command);
        watch.end(self.kind, self.number);
        let reply = reply?;
        self.in_flight = 0;
        let before = self.received.len();
        match (&reply, reply.elements()) {
            (Reply::NullArray | Reply::NullBulk, _) => return Ok(Ok(())),
            (Reply::Bulk(_), _) if self.kind == Kind::Move => self.received.extend(text(&reply)),
            // BLPOP brings key and element; BZPOPMIN key, member and score; BLMPOP and BZMPOP the key and all popped
            // elements.
            (_, Some([_, Reply::Array(popped)])) => {
                self.received.extend(popped.iter().filter_map(|one| text(one.elements().map_or(one, |pair| &pair[0]))))
            }
            (_, Some([_, element, ..])) => self.received.extend(text(element)),
            _ => {}
        }
        let wrong = !(1..=most as usize).contains(&(self.received.len() - before));
        Ok(if wrong { Err(format!("{command} was answered by {reply}")) } else { Ok(()) })
    }
}

impl Producer {
    /// Pushes new elements in one command, or several in a block of two.
    fn push(&mut self, client: &mut Client) -> std::io::Result<Result<(), String>> {
        // The count is mostly one, for which a consumer waits.
        let count = if self.random.percent(85) { 1 } else { self.random.between(2, PUSH_MAX) };
        let elements: Vec<String> =
            (self.next..self.next + count).map(|number| format!("{:?}:{number}", self.kind)).collect();
        self.next += count;
        let [a, b] = self.kind.sources();
        let (first, second) = if self.random.percent(50) { (a, b) } else { (b, a) };
        let block = count > 1 && self.random.percent(30);
        let middle = if block { count as usize / 2 } else { count as usize };
        let mut commands = vec![self.add(first, &elements[..middle])];
        if block {
            commands.push(self.add(second, &elements[middle..]));
            commands.insert(0, vec!["MULTI".to_string()]);
            commands.push(vec!["EXEC".to_string()]);
        }
        self.in_flight = elements;
        commands.iter().for_each(|command| client.push(command));
        client.flush()?;
        let mut last = Reply::Null;
        for _ in &commands {
            last = client.read()?;
        }
        let right = match last.elements() {
            Some(replies) => replies.iter().all(|reply| reply.integer().is_some()),
            None => last.integer().is_some(),
        };
        if !right {
            let words: Vec<Vec<u8>> = commands.concat().into_iter().map(String::into_bytes).collect();
            return Ok(Err(format!("{} was answered by {last}", quote_short(&words))));
        }
        self.acknowledged.append(&mut self.in_flight);
        Ok(Ok(()))
    }

    fn add(&mut self, key: &str, elements: &[String]) -> Vec<String> {
        let left = self.random.percent(50);
        let name = match self.kind {
            Kind::Zset => "ZADD",
            _ if left => "LPUSH",
            _ => "RPUSH",
        };
        let mut command = vec![name.to_string(), key.to_string()];
        for element in elements {
            if self.kind == Kind::Zset {
                command.push(self.random.below(10).to_string());
            }
            command.push(element.clone());
        }
        command
    }
}
