//! Publish and subscribe: who is subscribed to what, and the way of a message to its subscribers.
//!
//! The registry, which all event loops share, knows for each channel how many subscribers each event loop has. A
//! message goes to the event loops that have some, encoded once, and each of them hands it to its own sessions
//! (`Subscribers`). The registry is locked for a lookup; patterns are matched outside of the lock (`patterns`), on the
//! I/O pool where that takes long.

use crate::clients::client_memory::ClientMemory;
use crate::clients::parts::PartedMap;
use crate::clients::patterns::Patterns;
use crate::keys::gate::StoreGate;
use foldhash::fast::RandomState;
use haypile_commands::host::{Audience, Channels};
use haypile_resp::Protocol;
use haypile_resp::write;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

/// The name of a channel, or a pattern.
pub(crate) type Name = Arc<[u8]>;

/// The subscriptions of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscriptions {
    plain: BTreeSet<Name>,
    patterns: BTreeSet<Name>,
    shard: BTreeSet<Name>,
    /// Bytes of all names.
    name_bytes: usize,
}

/// Bytes that a subscription takes beside its name, in all tables that it is in, if nobody else has one to the channel.
pub(crate) const SUBSCRIPTION_BYTES: usize = 280;

impl Subscriptions {
    pub fn of(&self, kind: Channels) -> &BTreeSet<Name> {
        match kind {
            Channels::Plain => &self.plain,
            Channels::Pattern => &self.patterns,
            Channels::Shard => &self.shard,
        }
    }

    fn of_mut(&mut self, kind: Channels) -> &mut BTreeSet<Name> {
        match kind {
            Channels::Plain => &mut self.plain,
            Channels::Pattern => &mut self.patterns,
            Channels::Shard => &mut self.shard,
        }
    }

    pub fn insert(&mut self, kind: Channels, name: Name) {
        self.name_bytes += name.len();
        let is_new = self.of_mut(kind).insert(name);
        debug_assert!(is_new, "it was asked for");
    }

    pub fn remove(&mut self, kind: Channels, name: &[u8]) {
        let was_there = self.of_mut(kind).remove(name);
        assert!(was_there, "a subscription ends once");
        self.name_bytes -= name.len();
    }

    /// Takes one of them out; `None` if there are none.
    pub fn pop(&mut self) -> Option<(Channels, Name)> {
        let kinds = [Channels::Plain, Channels::Pattern, Channels::Shard];
        let (kind, name) = kinds.into_iter().find_map(|kind| Some((kind, self.of_mut(kind).pop_first()?)))?;
        self.name_bytes -= name.len();
        Some((kind, name))
    }

    /// Bytes that all of them take, about.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.len() * SUBSCRIPTION_BYTES + self.name_bytes
    }

    /// Returns the count for the replies of SUBSCRIBE: of shard channels by themselves, of the others together.
    pub fn count(&self, kind: Channels) -> usize {
        match kind {
            Channels::Shard => self.shard.len(),
            Channels::Plain | Channels::Pattern => self.plain.len() + self.patterns.len(),
        }
    }

    pub fn len(&self) -> usize {
        self.plain.len() + self.patterns.len() + self.shard.len()
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
    /// The bytes before the payload for subscribers of the channel, in RESP2.
    head: Vec<u8>,
    /// The patterns that the channel matches, each with what stands before the payload for its subscribers.
    patterns: Vec<(Name, Vec<u8>)>,
    payload: Arc<Payload>,
    /// The record that the message tells of; it must not leave before that is durable.
    pub gate: StoreGate,
    /// The number of its receivers on each event loop that has some, about.
    receivers: usize,
}

/// A session that gets a message.
#[derive(Clone, Copy)]
pub(crate) struct Receiver {
    pub session: u64,
    /// The place of the pattern that the message came by, from 1 on; 0 for the channel itself.
    by: u32,
}

impl Receiver {
    /// Makes the receiver of something that is no message of a channel.
    pub fn direct(session: u64) -> Receiver {
        Receiver { session, by: 0 }
    }
}

impl Message {
    pub(crate) fn new(
        kind: Channels,
        channel: Name,
        payload: Arc<Payload>,
        audience: &Audience,
        gate: StoreGate,
    ) -> Self {
        let word = if kind == Channels::Shard { "smessage" } else { "message" };
        let head = encode_head(&[word.as_bytes(), &channel]);
        let patterns = audience.patterns.iter().map(|pattern| {
            let head = encode_head(&[b"pmessage", pattern, &channel]);
            (pattern.clone(), head)
        });
        let patterns = patterns.collect();
        let receivers = audience.count / audience.workers.len().max(1);
        Message { kind, channel, head, patterns, payload, gate, receivers }
    }

    /// Returns the bytes that stand before the payload for a receiver, in RESP2.
    pub fn head_for(&self, receiver: Receiver) -> &[u8] {
        match receiver.by {
            0 => &self.head,
            by => &self.patterns[by as usize - 1].1,
        }
    }

    /// Returns the name that a receiver is subscribed to.
    pub fn name_for(&self, receiver: Receiver) -> (Channels, &Name) {
        match receiver.by {
            0 => (self.kind, &self.channel),
            by => (Channels::Pattern, &self.patterns[by as usize - 1].0),
        }
    }

    pub fn payload(&self) -> &Arc<Payload> {
        &self.payload
    }

    /// Bytes that the receivers on an event loop are going to be sent, each of them, about.
    pub fn sent_bytes(&self) -> usize {
        self.receivers * (self.head.len() + self.payload.own_and_shared_bytes().0)
    }

    /// Bytes of its own, and of a payload that is counted for all who share it.
    pub fn bytes(&self) -> (usize, usize) {
        let heads = self.head.len() + self.patterns.iter().map(|(_, head)| head.len()).sum::<usize>();
        let (own, shared) = self.payload.own_and_shared_bytes();
        (size_of::<Message>() + heads + own, shared)
    }
}

/// Encodes the head of a push, before its payload: these bulk strings, in RESP2. In RESP3 only the first byte differs.
pub(crate) fn encode_head(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(parts.iter().map(|part| part.len() + 16).sum());
    write::push_len(Protocol::Resp2, &mut out, parts.len() + 1);
    parts.iter().for_each(|part| write::bulk(&mut out, part));
    out
}

/// The text of a message as all its subscribers are sent it: encoded once, and, where it is long, held once for all of
/// them.
pub struct Payload {
    bytes: Box<[u8]>,
    /// The memory that a long payload is counted in.
    pub(crate) counted: Option<Arc<ClientMemory>>,
}

/// A payload from this length on is not copied for each who gets it.
const SHARED_BYTES_MIN: usize = 16 << 10;

impl Payload {
    /// Bytes that are sent as they are.
    pub(crate) fn new(bytes: Vec<u8>, memory: &Arc<ClientMemory>) -> Arc<Payload> {
        let counted = (bytes.len() >= SHARED_BYTES_MIN).then(|| memory.clone());
        if let Some(memory) = &counted {
            memory.add_shared(bytes.len());
        }
        Arc::new(Payload { bytes: bytes.into_boxed_slice(), counted })
    }

    /// A bulk string.
    pub(crate) fn bulk(text: &[u8], memory: &Arc<ClientMemory>) -> Arc<Payload> {
        let mut bytes = Vec::with_capacity(text.len() + 16);
        write::bulk(&mut bytes, text);
        Payload::new(bytes, memory)
    }

    /// Makes a payload that is not counted, for tests.
    pub fn uncounted(bytes: Vec<u8>) -> Arc<Payload> {
        Arc::new(Payload { bytes: bytes.into_boxed_slice(), counted: None })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the text of a bulk string.
    pub fn text(&self) -> &[u8] {
        let head = self.bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        &self.bytes[head..self.bytes.len() - 2]
    }

    /// Returns the payload's bytes, as those of its holder, or as shared.
    pub(crate) fn own_and_shared_bytes(&self) -> (usize, usize) {
        if self.counted.is_some() { (0, self.bytes.len()) } else { (self.bytes.len(), 0) }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some(memory) = &self.counted {
            memory.subtract_shared(self.bytes.len());
        }
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

/// A client's output, which takes what is pushed to the client behind what is there.
pub trait Sink {
    fn bytes(&mut self) -> &mut Vec<u8>;

    /// Adds bytes that others have as well.
    fn share(&mut self, payload: &Arc<Payload>);
}

/// Copies everything.
impl Sink for Vec<u8> {
    fn bytes(&mut self) -> &mut Vec<u8> {
        self
    }

    fn share(&mut self, payload: &Arc<Payload>) {
        self.extend_from_slice(payload.bytes());
    }
}

/// Messages that wait for the end of a long reply.
#[derive(Default)]
pub(crate) struct Deferred {
    bytes: Vec<u8>,
    /// The payloads that others share, each with its place in `bytes`; the places rise.
    shared: Vec<(usize, Arc<Payload>)>,
    shared_bytes: usize,
}

impl Deferred {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.shared.is_empty()
    }

    /// Bytes that the client is going to be sent.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.shared_bytes
    }

    #[inline]
    pub fn own_and_shared_bytes(&self) -> (usize, usize) {
        (self.bytes.capacity(), self.shared_bytes)
    }

    pub fn move_to(self, out: &mut impl Sink) {
        let mut from = 0;
        for (at, payload) in &self.shared {
            out.bytes().extend_from_slice(&self.bytes[from..*at]);
            out.share(payload);
            from = *at;
        }
        out.bytes().extend_from_slice(&self.bytes[from..]);
    }
}

impl Sink for Deferred {
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn share(&mut self, payload: &Arc<Payload>) {
        self.shared_bytes += payload.bytes.len();
        self.shared.push((self.bytes.len(), payload.clone()));
    }
}

/// Counts the subscribers of a channel or a pattern in an audience.
fn add(audience: &mut Audience, counts: &Counts) {
    for &(worker, count) in counts {
        audience.count += count as usize;
        add_worker(audience, worker);
    }
}

fn add_worker(audience: &mut Audience, worker: u16) {
    if !audience.workers.contains(&worker) {
        audience.workers.push(worker);
    }
}

/// Adds a subscription of a client of `worker` that the registry does not know yet.
pub(crate) fn add_new(audience: &mut Audience, kind: Channels, name: &Name, worker: usize) {
    audience.count += 1;
    add_worker(audience, worker as u16);
    if kind == Channels::Pattern && !audience.patterns.contains(name) {
        audience.patterns.push(name.clone());
    }
}

/// Steps of the matcher that an event loop spends on one message, about a tenth of a millisecond.
pub(crate) const STEPS_AT_ONCE: u64 = 20_000;

/// Subscribers of a channel or pattern, by event loop.
type Counts = SmallVec<[(u16, u32); 4]>;

pub(crate) type ByName<T> = PartedMap<Name, T>;

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
        let counts = registry.of_mut(kind).or_default(name.clone());
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
        let counts = registry.of_mut(kind).get_mut(name);
        let Some(counts) = counts else { unreachable!("a subscription is registered until it ends") };
        let of_worker = counts.iter_mut().find(|(of, count)| *of == worker as u16 && *count > 0);
        of_worker.expect("a count of subscribers never goes below zero").1 -= 1;
        counts.retain(|(_, count)| *count > 0);
        if counts.is_empty() {
            registry.of_mut(kind).remove(name);
            if kind == Channels::Pattern {
                registry.by_place.remove(name);
            }
        }
    }

    /// Returns the subscribers of a channel now, by its name or by a pattern; `None` if finding them takes more than
    /// `steps` of the matcher.
    pub fn audience(&self, kind: Channels, channel: &[u8], steps: u64) -> Option<Audience> {
        let mut audience = Audience::default();
        let candidates = {
            let registry = self.read();
            if let Some(counts) = registry.of(kind).get(channel) {
                add(&mut audience, counts);
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
                    add(&mut audience, counts);
                }
            }
        }
        Some(audience)
    }

    /// Subtracts from `steps` those of the matcher that `audience` takes for a plain channel; false if there are too
    /// few.
    pub fn matches_within(&self, channel: &[u8], steps: &mut u64) -> bool {
        let candidates = {
            let registry = self.read();
            if registry.by_place.is_empty() {
                return true;
            }
            registry.by_place.candidates(channel)
        };
        candidates.are_quick(channel) || candidates.matching_within(channel, steps).is_some()
    }

    /// The channels that somebody is subscribed to.
    pub fn channels(&self, kind: Channels) -> Vec<Name> {
        self.read().of(kind).keys().cloned().collect()
    }

    /// Returns the number of clients that are subscribed to a channel by its name.
    pub fn subscribers(&self, kind: Channels, name: &[u8]) -> usize {
        let registry = self.read();
        registry.of(kind).get(name).map_or(0, |counts| counts.iter().map(|(_, count)| *count as usize).sum())
    }

    /// Returns the number of names that clients are subscribed to.
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
    pub fn change(&mut self, pubsub: &PubSub, worker: usize, session: u64, change: &Change) {
        let Change { kind, name, subscribed } = change;
        let of_kind = self.of_mut(*kind);
        if *subscribed {
            if of_kind.or_default(name.clone()).insert(session) {
                pubsub.subscribe(*kind, name, worker);
            }
        } else if let Some(sessions) = of_kind.get_mut(name)
            && sessions.remove(&session)
        {
            if sessions.is_empty() {
                of_kind.remove(name);
            }
            pubsub.unsubscribe(*kind, name, worker);
        }
    }

    /// Adds the sessions that get a message: by its channel first, then by patterns, as in Redis.
    pub fn receivers(&self, message: &Message, into: &mut Vec<Receiver>) {
        let direct = if message.kind == Channels::Shard { &self.shard } else { &self.plain };
        if let Some(sessions) = direct.get(&message.channel) {
            into.extend(sessions.iter().map(|&session| Receiver::direct(session)));
        }
        for (at, (pattern, _)) in message.patterns.iter().enumerate() {
            if let Some(sessions) = self.patterns.get(pattern) {
                into.extend(sessions.iter().map(|&session| Receiver { session, by: at as u32 + 1 }));
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

#[cfg(test)]
mod tests {
    use super::*;

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
