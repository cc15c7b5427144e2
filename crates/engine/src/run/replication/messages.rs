//! Messages and events of keys on their way to replicas, whose clients hear them as the master's do.
//!
//! Messages are in no log: a replica that is away misses them, as a subscriber does. Each replica that gets records
//! has a queue, in which a message waits until the record that it tells of was sent. What has no room there is dropped.

use crate::clients::pubsub::Payload;
use crate::keys::gate::StoreGate;
use crate::sync::{Mutex, lock};
use haypile_log::Index;
use haypile_store::KeyEvent;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bytes that wait for one replica. A longer message waits alone.
const QUEUE_BYTES_MAX: usize = 16 << 20;

/// Bytes that a message takes in a queue, beside its texts: its place there, and what is allocated for it.
const MESSAGE_BYTES: usize = 160;

/// A message, or an event of a key.
#[derive(Clone, Debug)]
pub enum Told {
    Message {
        /// Whether the channel is a shard channel.
        is_shard: bool,
        channel: Arc<[u8]>,
        payload: Arc<Payload>,
    },
    Event(KeyEvent<Box<str>>),
}

impl Told {
    fn bytes(&self) -> usize {
        MESSAGE_BYTES
            + match self {
                Told::Message { channel, payload, .. } => channel.len() + payload.bytes().len(),
                Told::Event(event) => event.name.len() + event.key.len(),
            }
    }
}

/// The queue of one replica.
pub struct Listener {
    queue: Mutex<Queue>,
    has_some: AtomicBool,
    /// The classes of events that the replica listens for.
    classes: AtomicU32,
    dropped: AtomicU64,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Queue {
    /// The messages, each with the record behind which it is sent.
    messages: VecDeque<(StoreGate, Told)>,
    bytes: usize,
}

impl Listener {
    /// Makes a queue that is empty. `wake` is called when there is a message.
    fn new(wake: Box<dyn Fn() + Send + Sync>) -> Arc<Listener> {
        let (classes, dropped) = (AtomicU32::new(0), AtomicU64::new(0));
        Arc::new(Listener { queue: Mutex::default(), has_some: AtomicBool::new(false), classes, dropped, wake })
    }

    fn push(&self, gate: StoreGate, told: Told) {
        let bytes = told.bytes();
        let mut queue = lock(&self.queue);
        if queue.bytes > 0 && queue.bytes + bytes > QUEUE_BYTES_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.bytes += bytes;
        queue.messages.push_back((gate, told));
        self.has_some.store(true, Ordering::Release);
        drop(queue);
        (self.wake)();
    }

    /// Returns whether there are messages, be it that they wait for their records. One load.
    pub fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// Takes the messages that may be sent behind this record, until they have `bytes_max` bytes. One load where there
    /// is none. Those that tell of records of an earlier store are dropped: they may have been taken back.
    pub fn take_through(&self, sent: StoreGate, bytes_max: usize) -> Vec<Told> {
        if !self.has_some.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut queue = lock(&self.queue);
        let (mut taken, mut bytes) = (Vec::new(), 0);
        let is_due = |gate: &StoreGate| (gate.version, gate.index) <= (sent.version, sent.index);
        while bytes < bytes_max
            && let Some((gate, told)) = queue.messages.pop_front_if(|(gate, _)| is_due(gate))
        {
            queue.bytes -= told.bytes();
            if gate.version < sent.version && gate.index > Index(0) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            bytes += told.bytes();
            taken.push(told);
        }
        self.has_some.store(!queue.messages.is_empty(), Ordering::Release);
        taken
    }

    /// Returns how many messages had no room since this was asked last.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

/// The replicas that are told of messages.
#[derive(Default)]
pub(crate) struct Listeners {
    all: Mutex<Vec<Arc<Listener>>>,
    count: AtomicUsize,
    /// The classes of events that some replica listens for.
    classes: AtomicU32,
}

impl Listeners {
    /// Returns whether there is any listener. One load.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The classes of events that some replica listens for. One load.
    #[inline]
    pub fn classes(&self) -> u32 {
        self.classes.load(Ordering::Relaxed)
    }

    /// Adds a replica. `wake` is called when there is a message for it.
    pub fn add(&self, wake: Box<dyn Fn() + Send + Sync>) -> Arc<Listener> {
        let listener = Listener::new(wake);
        self.change(|all| all.push(listener.clone()));
        listener
    }

    /// Removes a replica.
    pub fn remove(&self, listener: &Arc<Listener>) {
        self.change(|all| all.retain(|other| !Arc::ptr_eq(other, listener)));
    }

    /// Sets the classes of events that a replica listens for.
    pub fn set_classes(&self, listener: &Listener, classes: u32) {
        self.change(|_| listener.classes.store(classes, Ordering::Relaxed));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Listener>>)) {
        let mut all = lock(&self.all);
        change(&mut all);
        self.count.store(all.len(), Ordering::Relaxed);
        let classes = all.iter().fold(0, |classes, listener| classes | listener.classes.load(Ordering::Relaxed));
        self.classes.store(classes, Ordering::Relaxed);
    }

    /// Tells all replicas.
    pub fn tell(&self, gate: StoreGate, told: &Told) {
        let listens = |listener: &&Arc<Listener>| match told {
            Told::Message { .. } => true,
            Told::Event(event) => listener.classes.load(Ordering::Relaxed) & event.class != 0,
        };
        lock(&self.all).iter().filter(listens).for_each(|listener| listener.push(gate, told.clone()));
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use haypile_types::event;

    const VERSION: u64 = 2;

    fn at(index: u64) -> StoreGate {
        StoreGate { index: Index(index), version: VERSION }
    }

    fn message(text: &[u8]) -> Told {
        let payload = Payload::uncounted([b"$1\r\n", text, b"\r\n"].concat());
        Told::Message { is_shard: false, channel: (*b"c").into(), payload }
    }

    fn event(class: u32) -> Told {
        Told::Event(KeyEvent { class, name: "set".into(), database: 0, key: (*b"k").into() })
    }

    fn listener() -> Arc<Listener> {
        Listener::new(Box::new(|| ()))
    }

    #[test]
    fn messages_wait_for_their_records() {
        let listener = listener();
        listener.push(at(3), message(b"a"));
        listener.push(at(5), message(b"b"));
        // A message does not overtake the one before it.
        listener.push(at(4), message(b"c"));
        assert_eq!(listener.take_through(at(2), usize::MAX).len(), 0);
        assert_eq!(listener.take_through(at(4), usize::MAX).len(), 1);
        assert_eq!(listener.take_through(at(5), 1).len(), 1, "one, however long");
        assert_eq!(listener.take_through(at(5), usize::MAX).len(), 1);
        assert_eq!(lock(&listener.queue).bytes, 0);
        assert!(listener.take_through(at(9), usize::MAX).is_empty());
    }

    #[test]
    fn messages_that_tell_of_an_earlier_store_are_dropped() {
        let listener = listener();
        let of = |version, index| StoreGate { index: Index(index), version };
        [(1, 9), (1, 0), (VERSION, 3), (VERSION, 4), (3, 1)].iter().for_each(|(version, index)| {
            listener.push(of(*version, *index), message(b"a"));
        });
        let taken = listener.take_through(at(3), usize::MAX).len();
        assert_eq!(taken, 2, "what the store of then had is not known, but one that tells of nothing is sent");
        assert_eq!(listener.take_dropped(), 1);
        assert_eq!(listener.take_through(of(3, 1), usize::MAX).len(), 1);
        assert_eq!((listener.take_dropped(), listener.has_some()), (1, false));
        assert_eq!(lock(&listener.queue).bytes, 0);
    }

    #[test]
    fn a_full_queue_drops_what_comes() {
        let listener = listener();
        // The first one may be of any length.
        listener.push(at(0), message(&vec![b'x'; QUEUE_BYTES_MAX + 1]));
        listener.push(at(0), message(b"a"));
        assert_eq!((listener.take_dropped(), listener.take_dropped()), (1, 0));
        assert_eq!(listener.take_through(at(0), usize::MAX).len(), 1);
        listener.push(at(0), message(b"a"));
        assert_eq!((listener.take_through(at(0), usize::MAX).len(), listener.take_dropped()), (1, 0));
    }

    #[test]
    fn each_hears_of_the_classes_that_it_listens_for() {
        let listeners = Listeners::default();
        let [strings, all] = [event::STRING, event::STRING | event::LIST].map(|classes| {
            let listener = listeners.add(Box::new(|| ()));
            listeners.set_classes(&listener, classes);
            listener
        });
        assert_eq!(listeners.classes(), event::STRING | event::LIST);
        for told in [event(event::STRING), event(event::LIST), event(event::SET), message(b"m")] {
            listeners.tell(at(1), &told);
        }
        assert_eq!(strings.take_through(at(1), usize::MAX).len(), 2);
        assert_eq!(all.take_through(at(1), usize::MAX).len(), 3);
        listeners.remove(&all);
        assert_eq!(listeners.classes(), event::STRING);
    }
}
