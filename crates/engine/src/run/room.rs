//! Bounds the memory of clients (`clients::client_memory`): those with most are closed, and long replies are made only
//! where they have room.

use crate::clients::checks::LIMITED;
use crate::clients::client_memory::{
    CONGESTED_BYTES_MAX, ClientMemory, Counted, Figures, LOOK_AGAIN_MS, RESERVED_BYTES_MIN,
};
use crate::clients::session::Session;
use crate::run::engine::Engine;
use crate::sync::lower_bytes;
use haypile_resp::Reply;
use haypile_store::Room;
use std::sync::atomic::{AtomicUsize, Ordering};
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

    /// Bytes of one client's replies at which its next commands wait until it has read some.
    #[inline]
    pub fn output_bytes_max(&self) -> usize {
        self.client_memory.output_bytes_max.0.load(Ordering::Relaxed)
    }

    /// Whether the replies of each client wait in fewer bytes than usual.
    pub fn output_is_short(&self) -> bool {
        self.client_memory.is_adapted()
    }

    /// Sets the bytes of a session and its connection's buffers: `input` bytes of requests that have not run, `output`
    /// bytes of replies, and `shared` bytes of messages that others have as well.
    #[inline]
    pub fn count_client(&self, session: &Session, input: usize, output: usize, shared: usize) {
        let (own, of_session) = session.bytes();
        let rows = session.reply_bytes();
        // Messages to a subscriber do not wait until it has read.
        let replies = if session.listens() { 0 } else { output + rows };
        let figures = Figures { own: own + input + output, shared: of_session + shared, replies, rows };
        match self.client_memory.set(&session.client, figures, !session.state.no_evict) {
            std::cmp::Ordering::Greater => self.bound_clients(),
            std::cmp::Ordering::Less if self.client_memory.is_adapted() => {
                self.client_memory.adapt(self.client_bytes());
            }
            _ => {}
        }
        if session.checks & LIMITED != 0 {
            self.count_for_user(session, figures.own + figures.shared);
        }
    }

    /// Counts a reply of so many bytes that a client is about to take, until its figures are set again. False if the
    /// client is among those that are closed for want of room.
    pub(crate) fn reserve_reply(&self, session: &Session, bytes: usize) -> bool {
        self.reserve_with(session, bytes, bytes)
    }

    /// Counts bytes that a client's session is about to keep, as `reserve_reply` counts a reply. That the client reads
    /// its replies does not spare it: these bytes do not leave.
    pub(crate) fn reserve(&self, session: &Session, bytes: usize) -> bool {
        self.reserve_with(session, bytes, 0)
    }

    /// Counts `more` bytes of a client, of which `replies` are those of replies.
    fn reserve_with(&self, session: &Session, more: usize, replies: usize) -> bool {
        let (footprint, may_be_closed) = (&session.client.footprint, !session.state.no_evict);
        let figure = |figure: &AtomicUsize| figure.load(Ordering::Relaxed);
        let figures = Figures {
            own: figure(&footprint.own) + more,
            shared: figure(&footprint.shared),
            replies: if session.listens() { 0 } else { figure(&footprint.replies) + replies },
            rows: figure(&footprint.rows),
        };
        self.client_memory.set(&session.client, figures, may_be_closed);
        self.bound_clients();
        !footprint.is_leaving()
    }

    /// Has replies wait in fewer bytes where clients take nearly as much as `maxmemory-clients` allows, and closes the
    /// clients with most bytes while all of them have more.
    pub fn bound_clients(&self) {
        let bytes = self.client_bytes();
        self.client_memory.adapt(bytes);
        let Some(bound) = self.client_memory.bound() else { return };
        if bytes.saturating_sub(self.client_memory.leaving.load(Ordering::Relaxed)) > bound {
            self.close_worst(0);
        }
    }

    #[cold]
    fn close_worst(&self, bytes_min: usize) {
        let (Some(bound), now_ms) = (self.client_memory.bound(), self.now_ms()) else { return };
        let spared_ms = self.client_memory.spared_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(spared_ms) < LOOK_AGAIN_MS && self.client_bytes() < bound / 4 * 5 {
            return;
        }
        let worst = self.client_memory.take_worst(bound, bytes_min, now_ms, || self.client_bytes());
        for client in &worst {
            self.evict(client);
        }
        if !worst.is_empty() {
            // Publishers wait until the closed clients have gone.
            self.checks.set_congested(true);
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
    /// Takes `more` bytes for what a command collects, while all commands have less than half of the bound: the other
    /// half is for clients that have something already. Clients that have more than the `all` bytes of the command are
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
        lower_bytes(&self.memory.collected, bytes as u64);
    }
}
