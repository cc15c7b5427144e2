//! Consumer groups: a producer adds numbered entries to streams, consumers wait for them, acknowledge some and take
//! over others, and the server is killed.
//!
//! Every entry that was acknowledged to the producer is there afterwards. An entry up to the group's last delivered ID
//! is acknowledged or pending: acknowledged if the reply to XACK came, pending unless an XACK was sent. A later entry
//! is neither, and no consumer has received it. No entry is ever delivered as a new one twice. `Account` verifies these
//! rules.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

use super::model::Database;
use super::writer::End;
use crate::client::{Client, Reply};
use crate::random::Random;
use crate::server::REPLY_TIMEOUT;

/// The database of the streams, which no other part uses.
const HOME: Database = 7;
const STREAMS: [&str; 2] = ["stream:a", "stream:b"];
const CONSUMERS: u64 = 3;
/// The most entries that one block adds, and that one read asks for.
const ADDED_MAX: u64 = 4;
const READ_MAX: u64 = 3;
/// A stream with more entries is removed once they were verified.
const ENTRIES_MAX: usize = 20_000;

/// An entry: its stream, and the number that its ID begins with.
type Entry = (usize, u64);

struct Consumer {
    number: u64,
    random: Random,
    /// Entries received as new ones since the last verification.
    new: Vec<Entry>,
    /// Entries received and not acknowledged by this consumer.
    held: Vec<Entry>,
    /// Entries acknowledged with a reply since the last verification.
    acknowledged: Vec<Entry>,
    /// The entries of an XACK without a reply.
    in_flight: Vec<Entry>,
}

struct Producer {
    random: Random,
    next: u64,
    acknowledged: Vec<Entry>,
    /// The entries of a block without a reply.
    in_flight: Vec<Entry>,
}

/// All consumers and the producer; the value outlives the server.
pub struct Groups {
    consumers: Vec<Consumer>,
    producer: Producer,
    /// The state of all entries at the last verification.
    known: Account,
    pub added: u64,
    pub delivered: u64,
    pub acknowledged: u64,
}

/// A thread's work on one connection.
pub struct Task<'a>(Work<'a>);

enum Work<'a> {
    Consume(&'a mut Consumer),
    Produce(&'a mut Producer),
}

impl Groups {
    pub fn new(seed: u64) -> Groups {
        let random = |part: u64| Random::of_part(seed, (1 << 33) + part);
        let consumer = |number: u64| Consumer {
            number,
            random: random(number),
            new: vec![],
            held: vec![],
            acknowledged: vec![],
            in_flight: vec![],
        };
        Groups {
            consumers: (0..CONSUMERS).map(consumer).collect(),
            producer: Producer { random: random(1000), next: 1, acknowledged: vec![], in_flight: vec![] },
            known: Account::default(),
            added: 0,
            delivered: 0,
            acknowledged: 0,
        }
    }

    /// Returns the work of threads while the server lives.
    pub fn tasks(&mut self) -> Vec<Task<'_>> {
        let consumers = self.consumers.iter_mut().map(|consumer| Task(Work::Consume(consumer)));
        consumers.chain([Task(Work::Produce(&mut self.producer))]).collect()
    }

    /// Forgets all entries after a FLUSHALL.
    pub fn forget(&mut self) {
        self.known = Account::default();
        for consumer in &mut self.consumers {
            (consumer.new, consumer.held) = (vec![], vec![]);
            (consumer.acknowledged, consumer.in_flight) = (vec![], vec![]);
        }
        (self.producer.acknowledged, self.producer.in_flight) = (vec![], vec![]);
    }

    /// Verifies every entry and every group in a server without other writers.
    pub fn verify(&mut self, client: &mut Client) -> Result<()> {
        client.command(&format!("SELECT {HOME}"))?;
        let added = take(&mut self.producer.acknowledged);
        self.added += added.len() as u64;
        self.known.added.extend(added);
        let unanswered = take(&mut self.producer.in_flight);
        for consumer in &mut self.consumers {
            self.delivered += consumer.new.len() as u64;
            self.acknowledged += consumer.acknowledged.len() as u64;
            for entry in consumer.new.drain(..) {
                ensure!(self.known.delivered.insert(entry), "{} was delivered twice as a new one", shown(entry));
            }
            self.known.acknowledged.extend(consumer.acknowledged.drain(..));
            self.known.perhaps_acknowledged.extend(consumer.in_flight.drain(..));
        }
        for (stream, name) in STREAMS.iter().enumerate() {
            let found = Found::read(client, name)?;
            self.known.settle(stream, &unanswered, &found).with_context(|| format!("{name} and its group"))?;
            if found.entries.len() > ENTRIES_MAX {
                client.command(&format!("DEL {name}"))?;
                self.known.forget(stream);
                self.consumers.iter_mut().for_each(|consumer| consumer.held.retain(|entry| entry.0 != stream));
            }
        }
        Ok(())
    }
}

/// The known state of all entries.
#[derive(Default)]
struct Account {
    added: BTreeSet<Entry>,
    /// Entries that a consumer received as new ones.
    delivered: BTreeSet<Entry>,
    acknowledged: BTreeSet<Entry>,
    perhaps_acknowledged: BTreeSet<Entry>,
}

/// A stream and its group, as a server reports them.
#[derive(Default)]
struct Found {
    entries: BTreeSet<u64>,
    last_delivered: u64,
    /// The names of consumers by entry.
    pending: BTreeMap<u64, String>,
    /// The number of pending entries, as the server counts them.
    pending_count: i64,
    pending_of_consumers: i64,
    lag: Option<i64>,
}

fn shown((stream, number): Entry) -> String {
    format!("entry {number} of {}", STREAMS[stream])
}

impl Account {
    fn settle(&mut self, stream: usize, unanswered: &[Entry], found: &Found) -> Result<()> {
        let unanswered: Vec<Entry> = unanswered.iter().copied().filter(|entry| entry.0 == stream).collect();
        // A block without a reply has happened if one of its entries is there.
        if unanswered.iter().any(|entry| found.entries.contains(&entry.1)) {
            self.added.extend(unanswered);
        }
        let of_stream = |entries: &BTreeSet<Entry>| -> BTreeSet<u64> {
            entries.range((stream, 0)..(stream + 1, 0)).map(|entry| entry.1).collect()
        };
        let added = of_stream(&self.added);
        let lost: Vec<_> = added.difference(&found.entries).collect();
        ensure!(lost.is_empty(), "entries that were added are lost: {lost:?}");
        let ghosts: Vec<_> = found.entries.difference(&added).collect();
        ensure!(ghosts.is_empty(), "there are entries that nobody added: {ghosts:?}");
        for number in &added {
            let (entry, is_pending) = ((stream, *number), found.pending.contains_key(number));
            let name = shown(entry);
            let (is_done, may_be_done) =
                (self.acknowledged.contains(&entry), self.perhaps_acknowledged.contains(&entry));
            if *number > found.last_delivered {
                ensure!(!self.delivered.contains(&entry), "{name} was delivered, and is behind the last delivered id");
                ensure!(!is_pending, "{name} is pending, and is behind the last delivered id");
            } else {
                ensure!(is_pending || is_done || may_be_done, "{name} is neither pending nor acknowledged");
            }
            ensure!(!(is_pending && is_done), "{name} was acknowledged, and is pending");
        }
        if let Some((ghost, _)) = found.pending.iter().find(|(number, _)| !added.contains(*number)) {
            anyhow::bail!("{} is pending, and nobody added it", shown((stream, *ghost)));
        }
        let count = found.pending.len() as i64;
        ensure!(
            (found.pending_count, found.pending_of_consumers) == (count, count),
            "{count} entries are pending, the group counts {}, its consumers {}",
            found.pending_count,
            found.pending_of_consumers
        );
        let behind = found.entries.range(found.last_delivered + 1..).count() as i64;
        ensure!(
            found.lag.is_none_or(|lag| lag == behind),
            "the lag is {:?}, and {behind} entries are behind",
            found.lag
        );
        Ok(())
    }

    /// Forgets a stream that was removed.
    fn forget(&mut self, stream: usize) {
        for entries in [&mut self.added, &mut self.delivered, &mut self.acknowledged, &mut self.perhaps_acknowledged] {
            entries.retain(|entry| entry.0 != stream);
        }
    }
}

impl Found {
    fn read(client: &mut Client, name: &str) -> Result<Found> {
        let mut found = Found::default();
        let reply = client.command(&format!("XRANGE {name} - +"))?;
        for entry in reply.elements().with_context(|| format!("XRANGE was answered by {reply}"))? {
            found.entries.extend(entry.elements().and_then(|parts| number(parts.first()?)));
        }
        let groups = client.command(&format!("XINFO GROUPS {name}"))?;
        // No connection had created the group yet.
        let Some([group]) = groups.elements() else { return Ok(found) };
        let field = |of: &Reply, name: &[u8]| {
            let fields = of.elements().unwrap_or_default().chunks_exact(2);
            fields.filter(|pair| pair[0].bytes() == Some(name)).map(|pair| pair[1].clone()).next()
        };
        let integer = |of: &Reply, name: &[u8]| field(of, name).and_then(|value| value.integer());
        found.last_delivered = field(group, b"last-delivered-id").and_then(|id| number(&id)).context("a last id")?;
        found.pending_count = integer(group, b"pending").context("a number of pending entries")?;
        found.lag = integer(group, b"lag");
        let consumers = client.command(&format!("XINFO CONSUMERS {name} g"))?;
        let counts = consumers.elements().unwrap_or_default().iter().filter_map(|one| integer(one, b"pending"));
        found.pending_of_consumers = counts.sum();
        let pending = client.command(&format!("XPENDING {name} g - + {}", i32::MAX))?;
        for one in pending.elements().with_context(|| format!("XPENDING was answered by {pending}"))? {
            let [id, consumer, ..] = one.elements().unwrap_or_default() else { continue };
            let consumer = String::from_utf8_lossy(consumer.bytes().unwrap_or_default()).into_owned();
            found.pending.insert(number(id).context("an id")?, consumer);
        }
        Ok(found)
    }
}

/// Returns the number that an ID begins with.
fn number(id: &Reply) -> Option<u64> {
    std::str::from_utf8(id.bytes()?).ok()?.split('-').next()?.parse().ok()
}

/// A reply, or a text if it cannot be right.
type Step = io::Result<Result<(), String>>;

impl Task<'_> {
    /// Runs until told to stop or until the connection breaks.
    pub fn run(self, port: u16, stop: &AtomicBool) -> End {
        let connect = || -> io::Result<Client> {
            let mut client = Client::connect(port, REPLY_TIMEOUT)?;
            client.command(&format!("SELECT {HOME}"))?;
            for name in STREAMS {
                // The first of all connections creates the group.
                client.command(&format!("XGROUP CREATE {name} g 0 MKSTREAM"))?;
            }
            Ok(client)
        };
        let mut client = match connect() {
            Ok(client) => client,
            Err(error) => return End::Broken(error),
        };
        let mut work = self.0;
        while !stop.load(Ordering::Relaxed) {
            let step = match &mut work {
                Work::Consume(consumer) => consumer.step(&mut client),
                Work::Produce(producer) => producer.add(&mut client),
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

impl Consumer {
    fn step(&mut self, client: &mut Client) -> Step {
        match self.random.below(10) {
            0..=4 => self.read(client),
            5..=8 => self.acknowledge(client),
            _ => self.take_over(client),
        }
    }

    /// Waits for new entries of both streams for a short time.
    fn read(&mut self, client: &mut Client) -> Step {
        let (wait, count) = (*self.random.pick(&["5", "50", "300"]), self.random.between(1, READ_MAX));
        let [a, b] = STREAMS;
        let command = format!("XREADGROUP GROUP g c{} COUNT {count} BLOCK {wait} STREAMS {a} {b} > >", self.number);
        let reply = client.command(&command)?;
        if reply.is_nil() {
            return Ok(Ok(()));
        }
        let Some(streams) = reply.elements() else { return Ok(Err(format!("{command} was answered by {reply}"))) };
        for of_stream in streams {
            let Some([name, Reply::Array(entries)]) = of_stream.elements() else {
                return Ok(Err(format!("{command} was answered by {reply}")));
            };
            let stream = usize::from(name.bytes() == Some(b.as_bytes()));
            for entry in entries {
                let Some(number) = entry.elements().and_then(|parts| number(parts.first()?)) else {
                    return Ok(Err(format!("{command} was answered by {reply}")));
                };
                self.new.push((stream, number));
                self.held.push((stream, number));
            }
        }
        Ok(Ok(()))
    }

    /// Acknowledges some entries that this consumer has received; others may have acknowledged them meanwhile.
    fn acknowledge(&mut self, client: &mut Client) -> Step {
        let Some(stream) = self.held.last().map(|entry| entry.0) else { return self.read(client) };
        let most = self.random.between(1, 5) as usize;
        let at = self.held.iter().rposition(|entry| entry.0 != stream).map_or(0, |at| at + 1);
        let entries = self.held.split_off(at.max(self.held.len().saturating_sub(most)));
        let mut command = format!("XACK {} g", STREAMS[stream]);
        entries.iter().for_each(|entry| command += &format!(" {}-1", entry.1));
        self.in_flight = entries;
        let reply = client.command(&command)?;
        let count = self.in_flight.len() as i64;
        self.acknowledged.append(&mut self.in_flight);
        let right = reply.integer().is_some_and(|acknowledged| (0..=count).contains(&acknowledged));
        Ok(if right { Ok(()) } else { Err(format!("{command} was answered by {reply}")) })
    }

    /// Takes over pending entries, of whatever consumer.
    fn take_over(&mut self, client: &mut Client) -> Step {
        let stream = self.random.below(2) as usize;
        let command = format!("XAUTOCLAIM {} g c{} 0 0 COUNT 2 JUSTID", STREAMS[stream], self.number);
        let reply = client.command(&command)?;
        let Some([_, Reply::Array(ids), Reply::Array(gone)]) = reply.elements() else {
            return Ok(Err(format!("{command} was answered by {reply}")));
        };
        if !gone.is_empty() {
            return Ok(Err(format!("{command} says that entries are gone: {reply}")));
        }
        self.held.extend(ids.iter().filter_map(|id| Some((stream, number(id)?))));
        Ok(Ok(()))
    }
}

impl Producer {
    /// Adds one entry, or a block of several to both streams.
    fn add(&mut self, client: &mut Client) -> Step {
        let count = if self.random.percent(80) { 1 } else { self.random.between(2, ADDED_MAX) };
        let first_stream = self.random.below(2) as usize;
        let entries: Vec<Entry> = (0..count).map(|at| ((first_stream + at as usize) % 2, self.next + at)).collect();
        self.next += count;
        self.in_flight = entries.clone();
        if count > 1 {
            client.push(&["MULTI"]);
        }
        for (stream, number) in &entries {
            client.push(&["XADD", STREAMS[*stream], &format!("{number}-1"), "number", &number.to_string()]);
        }
        if count > 1 {
            client.push(&["EXEC"]);
        }
        client.flush()?;
        let mut last = Reply::Null;
        for _ in 0..if count > 1 { count + 2 } else { 1 } {
            last = client.read()?;
        }
        let right = match last.elements() {
            Some(replies) => replies.iter().all(|reply| number(reply).is_some()),
            None => number(&last).is_some(),
        };
        if !right {
            return Ok(Err(format!("XADD was answered by {last}")));
        }
        self.acknowledged.append(&mut self.in_flight);
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> BTreeSet<u64> {
        text.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    }

    fn entries(text: &str) -> BTreeSet<Entry> {
        numbers(text).into_iter().map(|number| (0, number)).collect()
    }

    /// Settles an account in which 1 to 5 were added, 1 to 3 delivered, 1 acknowledged, 2 perhaps; 6 and 7 are a block
    /// without a reply.
    fn settles(there: &str, last_delivered: u64, pending: &str) -> bool {
        let mut account = Account {
            added: entries("1 2 3 4 5"),
            delivered: entries("1 2 3"),
            acknowledged: entries("1"),
            perhaps_acknowledged: entries("2"),
        };
        let pending: BTreeMap<u64, String> = numbers(pending).into_iter().map(|n| (n, "c".to_string())).collect();
        let entries = numbers(there);
        let count = pending.len() as i64;
        let lag = Some(entries.range(last_delivered + 1..).count() as i64);
        let found = Found { entries, last_delivered, pending, pending_count: count, pending_of_consumers: count, lag };
        account.settle(0, &[(0, 6), (0, 7)], &found).is_ok()
    }

    #[test]
    fn what_was_delivered_is_pending_or_acknowledged() {
        assert!(settles("1 2 3 4 5", 3, "2 3"));
        assert!(settles("1 2 3 4 5", 3, "3"), "an XACK without a reply may have happened");
        assert!(settles("1 2 3 4 5 6 7", 4, "2 3 4"), "and a delivery, and a block");
        assert!(!settles("1 2 3 4 5 6", 3, "2 3"), "half a block");
        assert!(!settles("1 2 3 4", 3, "2 3"), "an entry is lost");
        assert!(!settles("1 2 3 4 5 9", 3, "2 3"), "a ghost");
        assert!(!settles("1 2 3 4 5", 3, "2"), "a delivery is forgotten");
        assert!(!settles("1 2 3 4 5", 2, "2"), "so is where the group was");
        assert!(!settles("1 2 3 4 5", 3, "1 2 3"), "so is an XACK");
        assert!(!settles("1 2 3 4 5", 3, "2 3 4"), "pending before it was delivered");
        assert!(!settles("1 2 3 4 5", 4, "2 3"), "delivered to nobody");
    }
}
