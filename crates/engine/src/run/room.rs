//! What bounds the memory of clients (`clients::client_memory`): those with most are closed, and long replies are made only
//! where they have room.

use crate::clients::client_memory::{CONGESTED_BYTES_MAX, ClientMemory, Counted, RESERVED_BYTES_MIN};
use crate::clients::session::Session;
use crate::run::engine::Engine;
use haypile_resp::Reply;
use haypile_store::Room;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl Engine {
    /// Bytes that clients need, with what is on its way to them.
    pub(crate) fn client_bytes(&self) -> u64 {
        self.client_memory.bytes().wrapping_add(self.inbox_bytes())
    }

    /// Whether clients have more than `maxmemory-clients`, without those that are being closed.
    pub(crate) fn exceeds_clients_bound(&self) -> bool {
        let Some(bound) = self.client_memory.bound() else { return false };
        self.client_bytes().saturating_sub(self.client_memory.leaving.load(Ordering::Relaxed)) > bound
    }

    /// Whether clients have seven eighths of what they may: those that can wait do.
    pub fn clients_are_tight(&self) -> bool {
        self.client_memory.bound().is_some_and(|bound| self.client_bytes() > bound / 8 * 7)
    }

    /// Whether clients are being closed, and all of them still have more than they may.
    pub fn waits_for_room(&self) -> bool {
        self.client_memory.is_closing() && self.client_memory.bound().is_some_and(|bound| self.client_bytes() > bound)
    }

    /// Bytes of messages in one inbox beyond which those who send more wait: a quarter of the bound for all of them.
    pub(crate) fn congested_bytes(&self) -> usize {
        let share = |bound: u64| bound as usize / 4 / self.workers();
        self.client_memory.bound().map_or(CONGESTED_BYTES_MAX, |bound| share(bound).min(CONGESTED_BYTES_MAX))
    }

    /// Sets what a session and its connection's buffers take: bytes of its own, and of messages that it shares with others.
    #[inline]
    pub fn count_client(&self, session: &Session, own: usize, shared: usize) {
        let of_session = session.bytes();
        let (own, shared) = (of_session.0 + own, of_session.1 + shared);
        if self.client_memory.set(&session.client, own, shared, !session.state.no_evict) {
            self.bound_clients();
        }
    }

    /// Counts what a client is about to take, until it is looked at again. False if it is among those that are closed for want
    /// of room.
    pub(crate) fn reserve(&self, session: &Session, more: usize) -> bool {
        let (footprint, may_be_closed) = (&session.client.footprint, !session.state.no_evict);
        let own = footprint.own.load(Ordering::Relaxed) + more;
        self.client_memory.set(&session.client, own, footprint.shared.load(Ordering::Relaxed), may_be_closed);
        self.bound_clients();
        !footprint.is_leaving()
    }

    /// Closes the clients with most bytes while all of them have more than `maxmemory-clients` allows.
    pub fn bound_clients(&self) {
        if self.exceeds_clients_bound() {
            self.close_worst(0);
        }
    }

    #[cold]
    fn close_worst(&self, bytes_min: usize) {
        let Some(bound) = self.client_memory.bound() else { return };
        let worst = self.client_memory.take_worst(bound, bytes_min, || self.client_bytes());
        for client in &worst {
            let mut line = String::new();
            client.line(&mut line, &client.names(), &self.table, self.now_ms());
            tracing::info!("Evicting client: {line}");
            self.client_memory.closed.add_shared(1);
            self.close_client(client);
        }
        if !worst.is_empty() {
            // Who publishes waits until they have gone.
            self.attention.set_congested(true);
        }
    }
}

impl Engine {
    /// Counts a long reply that is on its way to its event loop.
    pub(crate) fn count_reply(&self, reply: &Reply) -> Option<Counted> {
        let bytes = reply.weight().held_bytes;
        if bytes < RESERVED_BYTES_MIN {
            return None;
        }
        let counted = Counted::new(&self.client_memory, bytes);
        self.bound_clients();
        Some(counted)
    }
}

/// Room for replies that commands on the I/O pool collect.
pub(crate) struct ReplyRoom {
    engine: Weak<Engine>,
    memory: Arc<ClientMemory>,
}

/// How long a command waits at most for clients that are being closed, and how often it looks.
const CLOSING_WAITS_MAX: u32 = 50;
const CLOSING_WAIT: Duration = Duration::from_millis(1);

impl ReplyRoom {
    pub fn new(engine: &Arc<Engine>) -> Self {
        ReplyRoom { engine: Arc::downgrade(engine), memory: engine.client_memory.clone() }
    }
}

impl Room for ReplyRoom {
    /// Half of the bound is for those who have something already. Of these only clients that have more than the command are
    /// closed for it.
    fn take(&self, more: usize, all: usize) -> bool {
        let collected = self.memory.collected.fetch_add(more as u64, Ordering::Relaxed) + more as u64;
        let (Some(engine), Some(bound)) = (self.engine.upgrade(), self.memory.bound()) else { return true };
        if collected > bound / 2 {
            self.give_back(more);
            return false;
        }
        if engine.exceeds_clients_bound() {
            engine.close_worst(all);
        }
        for _ in 0..CLOSING_WAITS_MAX {
            if !engine.waits_for_room() {
                break;
            }
            std::thread::sleep(CLOSING_WAIT);
        }
        let fits = !engine.exceeds_clients_bound();
        if !fits {
            self.give_back(more);
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        self.memory.collected.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}
