//! Publish and subscribe: who is subscribed to what, and the way of a message to its subscribers.
//!
//! The registry, which all event loops share, knows for each channel how many subscribers each event loop has. A message
//! goes to the event loops that have some, encoded once, and each of them hands it to its own sessions (`Subscribers`). The
//! registry is locked for a lookup; patterns are matched outside of the lock (`patterns`), on the I/O pool where that takes long.

use crate::engine::Engine;
use crate::inbox::Notice;
use crate::patterns::Patterns;
use crate::session::Session;
use foldhash::fast::RandomState;
use haypile_commands::host::Channels;
use haypile_log::Index;
use haypile_resp::Protocol;
use haypile_resp::write;
use haypile_store::{KeyEvent, Txn};
use haypile_types::event;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

/// The name of a channel, or a pattern.
pub(crate) type Name = Arc<[u8]>;

/// What one session is subscribed to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscriptions {
    plain: BTreeSet<Name>,
    patterns: BTreeSet<Name>,
    shard: BTreeSet<Name>,
}

impl Subscriptions {
    pub fn of(&self, kind: Channels) -> &BTreeSet<Name> {
        match kind {
            Channels::Plain => &self.plain,
            Channels::Pattern => &self.patterns,
            Channels::Shard => &self.shard,
        }
    }

    pub fn of_mut(&mut self, kind: Channels) -> &mut BTreeSet<Name> {
        match kind {
            Channels::Plain => &mut self.plain,
            Channels::Pattern => &mut self.patterns,
            Channels::Shard => &mut self.shard,
        }
    }

    /// As the replies of SUBSCRIBE count: shard channels by themselves, the others together.
    pub fn count(&self, kind: Channels) -> usize {
        match kind {
            Channels::Shard => self.shard.len(),
            Channels::Plain | Channels::Pattern => self.plain.len() + self.patterns.len(),
        }
    }

    pub fn counts(&self) -> [usize; 3] {
        [self.plain.len(), self.patterns.len(), self.shard.len()]
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.patterns.is_empty() && self.shard.is_empty()
    }

    /// Everything, with its kind.
    pub fn iter(&self) -> impl Iterator<Item = (Channels, &Name)> {
        [Channels::Plain, Channels::Pattern, Channels::Shard]
            .into_iter()
            .flat_map(|kind| self.of(kind).iter().map(move |name| (kind, name)))
    }
}

/// A published message on its way to one or several event loops.
pub(crate) struct Message {
    kind: Channels,
    channel: Name,
    /// As subscribers of the channel get it, in RESP2.
    encoded: Vec<u8>,
    /// The patterns that the channel matches, each with what its subscribers get.
    patterns: Vec<(Name, Vec<u8>)>,
    /// The record that the message tells of; it must not leave before that is durable.
    pub gate: Index,
}

impl Message {
    fn new(kind: Channels, channel: Name, payload: &[u8], patterns: Vec<Name>, gate: Index) -> Self {
        let word = if kind == Channels::Shard { "smessage" } else { "message" };
        let encoded = encode(&[word.as_bytes(), &channel, payload]);
        let patterns = patterns.into_iter().map(|pattern| {
            let encoded = encode(&[b"pmessage", &pattern, &channel, payload]);
            (pattern, encoded)
        });
        let patterns = patterns.collect();
        Message { kind, channel, encoded, patterns, gate }
    }

    pub fn bytes(&self) -> usize {
        std::mem::size_of::<Message>()
            + self.encoded.len()
            + self.patterns.iter().map(|(_, encoded)| encoded.len()).sum::<usize>()
    }
}

/// A push of bulk strings in RESP2. In RESP3 only the first byte is another.
fn encode(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(parts.iter().map(|part| part.len() + 16).sum());
    write::push_len(Protocol::Resp2, &mut out, parts.len());
    parts.iter().for_each(|part| write::bulk(&mut out, part));
    out
}

/// Who gets a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audience {
    /// How many times it is delivered.
    pub count: usize,
    /// The event loops of those who get it, each once.
    workers: SmallVec<[u16; 8]>,
    /// The patterns that match its channel.
    patterns: Vec<Name>,
}

impl Audience {
    fn add(&mut self, counts: &Counts) {
        for &(worker, count) in counts {
            self.count += count as usize;
            self.add_worker(worker);
        }
    }

    fn add_worker(&mut self, worker: u16) {
        if !self.workers.contains(&worker) {
            self.workers.push(worker);
        }
    }

    /// Adds a subscription of a client of `worker` that the registry does not know yet.
    pub fn add_new(&mut self, kind: Channels, name: &Name, worker: usize) {
        self.count += 1;
        self.add_worker(worker as u16);
        if kind == Channels::Pattern && !self.patterns.contains(name) {
            self.patterns.push(name.clone());
        }
    }
}

/// Steps of the matcher that an event loop spends on one message, about a tenth of a millisecond.
pub(crate) const STEPS_AT_ONCE: u64 = 20_000;

/// Subscribers of a channel or pattern, by event loop.
type Counts = SmallVec<[(u16, u32); 4]>;

pub(crate) type ByName<T> = HashMap<Name, T, RandomState>;

/// All subscriptions of all sessions.
#[derive(Default)]
pub(crate) struct PubSub {
    registry: RwLock<Registry>,
}

#[derive(Default)]
struct Registry {
    plain: ByName<Counts>,
    shard: ByName<Counts>,
    patterns: ByName<Counts>,
    /// The names of `patterns`.
    by_place: Patterns,
}

impl Registry {
    fn of(&self, kind: Channels) -> &ByName<Counts> {
        match kind {
            Channels::Plain => &self.plain,
            Channels::Pattern => &self.patterns,
            Channels::Shard => &self.shard,
        }
    }

    fn of_mut(&mut self, kind: Channels) -> &mut ByName<Counts> {
        match kind {
            Channels::Plain => &mut self.plain,
            Channels::Pattern => &mut self.patterns,
            Channels::Shard => &mut self.shard,
        }
    }
}

impl PubSub {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Registry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe(&self, kind: Channels, name: &Name, worker: usize) {
        let mut registry = self.write();
        let counts = registry.of_mut(kind).entry(name.clone()).or_default();
        match counts.iter_mut().find(|(of, _)| *of == worker as u16) {
            Some((_, count)) => *count += 1,
            None => counts.push((worker as u16, 1)),
        }
        if kind == Channels::Pattern && counts.len() == 1 && counts[0].1 == 1 {
            registry.by_place.add(name);
        }
    }

    fn unsubscribe(&self, kind: Channels, name: &Name, worker: usize) {
        let mut registry = self.write();
        let Some(counts) = registry.of_mut(kind).get_mut(name) else { return };
        counts.iter_mut().filter(|(of, _)| *of == worker as u16).for_each(|(_, count)| *count -= 1);
        counts.retain(|(_, count)| *count > 0);
        if counts.is_empty() {
            registry.of_mut(kind).remove(name);
            if kind == Channels::Pattern {
                registry.by_place.remove(name);
            }
        }
    }

    /// Who is subscribed to a channel now, by its name or by a pattern; `None` if finding that out takes more than `steps` of
    /// the matcher.
    pub fn audience(&self, kind: Channels, channel: &[u8], steps: u64) -> Option<Audience> {
        let mut audience = Audience::default();
        let candidates = {
            let registry = self.read();
            if let Some(counts) = registry.of(kind).get(channel) {
                audience.add(counts);
            }
            if kind == Channels::Shard || registry.by_place.is_empty() {
                return Some(audience);
            }
            registry.by_place.candidates(channel)
        };
        audience.patterns = candidates.matching(channel, steps)?;
        if !audience.patterns.is_empty() {
            let registry = self.read();
            for pattern in audience.patterns.clone() {
                if let Some(counts) = registry.patterns.get(&pattern) {
                    audience.add(counts);
                }
            }
        }
        Some(audience)
    }

    /// The channels that somebody is subscribed to.
    pub fn channels(&self, kind: Channels) -> Vec<Name> {
        self.read().of(kind).keys().cloned().collect()
    }

    /// How many clients are subscribed to a channel by its name.
    pub fn subscribers(&self, kind: Channels, name: &[u8]) -> usize {
        let registry = self.read();
        registry.of(kind).get(name).map_or(0, |counts| counts.iter().map(|(_, count)| *count as usize).sum())
    }

    /// How many names somebody is subscribed to.
    pub fn count(&self, kind: Channels) -> usize {
        self.read().of(kind).len()
    }
}

/// The sessions of one event loop that get messages.
#[derive(Default)]
pub(crate) struct Subscribers {
    plain: ByName<HashSet<u64, RandomState>>,
    shard: ByName<HashSet<u64, RandomState>>,
    patterns: ByName<HashSet<u64, RandomState>>,
    /// Sessions in MONITOR.
    pub monitors: HashSet<u64, RandomState>,
}

impl Subscribers {
    fn of_mut(&mut self, kind: Channels) -> &mut ByName<HashSet<u64, RandomState>> {
        match kind {
            Channels::Plain => &mut self.plain,
            Channels::Pattern => &mut self.patterns,
            Channels::Shard => &mut self.shard,
        }
    }

    /// Notes a change of a session's subscriptions here and in the registry.
    pub fn change(&mut self, engine: &Engine, worker: usize, session: u64, change: &Change) {
        let Change { kind, name, subscribed } = change;
        let of_kind = self.of_mut(*kind);
        if *subscribed {
            if of_kind.entry(name.clone()).or_default().insert(session) {
                engine.pubsub.subscribe(*kind, name, worker);
            }
        } else if let Some(sessions) = of_kind.get_mut(name)
            && sessions.remove(&session)
        {
            if sessions.is_empty() {
                of_kind.remove(name);
            }
            engine.pubsub.unsubscribe(*kind, name, worker);
        }
    }

    /// Calls `deliver` for each session that gets the message, with what it gets in RESP2: by its channel first, then by
    /// patterns, as in Redis.
    pub fn route(&self, message: &Message, mut deliver: impl FnMut(u64, &[u8])) {
        let direct = if message.kind == Channels::Shard { &self.shard } else { &self.plain };
        if let Some(sessions) = direct.get(&message.channel) {
            sessions.iter().for_each(|&session| deliver(session, &message.encoded));
        }
        for (pattern, encoded) in &message.patterns {
            if let Some(sessions) = self.patterns.get(pattern) {
                sessions.iter().for_each(|&session| deliver(session, encoded));
            }
        }
    }
}

/// A subscription that a session has begun or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub kind: Channels,
    pub name: Name,
    pub subscribed: bool,
}

impl Engine {
    /// Tells of what a transaction has done to keys, as Redis does by `notify-keyspace-events`. The caller still holds its
    /// locks.
    #[cold]
    pub(crate) fn tell(&self, txn: &Txn<'_>) {
        let classes = self.events();
        let publish = |channel: Vec<u8>, payload: &[u8]| {
            // In the order in which the keys change, under their locks: it cannot be left to others.
            let Some(audience) = self.pubsub.audience(Channels::Plain, &channel, u64::MAX) else { return };
            self.publish(Channels::Plain, channel.into(), payload, audience, txn.gate());
        };
        for KeyEvent { name, database, key } in txn.events() {
            if classes & event::KEYSPACE != 0 {
                publish([format!("__keyspace@{database}__:").as_bytes(), key].concat(), name.as_bytes());
            }
            if classes & event::KEYEVENT != 0 {
                publish(format!("__keyevent@{database}__:{name}").into_bytes(), key);
            }
        }
    }

    /// Sends a message to its audience, which was just asked for.
    pub(crate) fn publish(&self, kind: Channels, channel: Name, payload: &[u8], audience: Audience, gate: Index) {
        if audience.workers.is_empty() {
            return;
        }
        let message = Arc::new(Message::new(kind, channel, payload, audience.patterns, gate));
        audience.workers.iter().for_each(|&worker| self.notify(worker as usize, Notice::Message(message.clone())));
    }
}

impl Session {
    /// Appends a message, given in RESP2, unless a reply is half out: then it follows that.
    pub fn push(&mut self, message: &[u8], gate: Index, out: &mut Vec<u8>) {
        self.gate = self.gate.max(gate);
        let out = if self.is_half_out() { &mut self.deferred } else { out };
        let start = out.len();
        out.extend_from_slice(message);
        if self.state.protocol == Protocol::Resp3 && out[start] == b'*' {
            out[start] = b'>';
        }
    }
}

/// What SUBSCRIBE and its relatives answer for one name is a message as well: the same form, made by the command.
#[cfg(test)]
mod tests {
    use super::*;
    use haypile_resp::Reply;

    #[test]
    fn a_message_is_encoded_as_its_reply_would_be() {
        let reply = Reply::Push(["message", "ch", "text"].map(Reply::bulk).into());
        let mut expected = Vec::new();
        reply.encode(Protocol::Resp2, &mut expected);
        assert_eq!(encode(&[b"message", b"ch", b"text"]), expected);
        let mut resp3 = Vec::new();
        reply.encode(Protocol::Resp3, &mut resp3);
        expected[0] = b'>';
        assert_eq!(expected, resp3);
    }

    #[test]
    fn an_audience_counts_names_and_patterns_of_all_loops() {
        let pubsub = PubSub::default();
        let name = |text: &str| Name::from(text.as_bytes());
        let audience_of = |kind, channel: &[u8]| pubsub.audience(kind, channel, STEPS_AT_ONCE).expect("few steps");
        pubsub.subscribe(Channels::Plain, &name("news"), 0);
        pubsub.subscribe(Channels::Plain, &name("news"), 2);
        pubsub.subscribe(Channels::Pattern, &name("n*"), 2);
        pubsub.subscribe(Channels::Pattern, &name("x*"), 3);
        pubsub.subscribe(Channels::Shard, &name("news"), 1);
        let audience = audience_of(Channels::Plain, b"news");
        assert_eq!((audience.count, audience.workers.as_slice(), audience.patterns.len()), (3, &[0, 2][..], 1));
        assert_eq!(audience_of(Channels::Shard, b"news").workers.as_slice(), [1]);
        pubsub.unsubscribe(Channels::Plain, &name("news"), 0);
        pubsub.unsubscribe(Channels::Pattern, &name("n*"), 2);
        assert_eq!(audience_of(Channels::Plain, b"news").count, 1);
        assert_eq!((pubsub.count(Channels::Pattern), pubsub.subscribers(Channels::Plain, b"news")), (1, 1));
        pubsub.unsubscribe(Channels::Plain, &name("news"), 2);
        assert_eq!(pubsub.channels(Channels::Plain).len(), 0);
    }
}
