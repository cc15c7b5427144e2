//! The checks between a request and its command that matter only at times: a missing login, a client bound
//! to its channels, a pause, clients in MONITOR, inboxes that are too full. Each is a bit; while none is set, a command
//! pays for one load.

use crate::clients::session::State;
use crate::sync::lower;
use haypile_commands::host::Paused;
use haypile_resp::Protocol;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Set in the engine.
pub(crate) const PAUSED: u32 = 1;
pub(crate) const MONITORED: u32 = 2;
/// Messages come faster than some event loop takes them.
pub(crate) const CONGESTED: u32 = 4;
/// A replica whose master is not there does not serve what it has.
pub(crate) const STALE: u32 = 64;
/// Set in a session.
pub(crate) const UNAUTHENTICATED: u32 = 8;
/// The client is subscribed and speaks RESP2, in which a message cannot be told from a reply.
pub(crate) const BOUND: u32 = 16;
/// The client is in MONITOR, which to Redis is a kind of replica.
pub(crate) const MONITORS: u32 = 32;

/// The engine's part.
#[derive(Default)]
pub(crate) struct Checks {
    bits: AtomicU32,
    pause: Mutex<Option<Pause>>,
    monitors: AtomicUsize,
    /// Sessions that a pause keeps waiting, of all event loops.
    held: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until_ms: u64,
    what: Paused,
}

impl Checks {
    #[inline]
    pub fn bits(&self) -> u32 {
        self.bits.load(Ordering::Relaxed)
    }

    fn set(&self, bit: u32, on: bool) {
        match on {
            true => self.bits.fetch_or(bit, Ordering::Relaxed),
            false => self.bits.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    pub fn set_congested(&self, on: bool) {
        self.set(CONGESTED, on);
    }

    pub fn set_stale(&self, on: bool) {
        if (self.bits() & STALE != 0) != on {
            self.set(STALE, on);
        }
    }

    /// A client begins or ends to be shown all commands.
    pub fn add_monitor(&self) {
        self.monitors.fetch_add(1, Ordering::Relaxed);
        self.set(MONITORED, true);
    }

    pub fn remove_monitor(&self) {
        if lower(&self.monitors, 1) == 0 {
            self.set(MONITORED, false);
        }
    }

    /// Clients that are shown all commands.
    pub fn monitors(&self) -> usize {
        self.monitors.load(Ordering::Relaxed)
    }

    /// Sessions that a pause keeps waiting.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// A pause begins or ends to keep a session waiting.
    pub fn add_held(&self) {
        self.held.fetch_add(1, Ordering::Relaxed);
    }

    pub fn remove_held(&self) {
        lower(&self.held, 1);
    }

    /// CLIENT PAUSE. The later end and the stronger kind stand, as in Redis.
    pub fn pause(&self, until_ms: u64, what: Paused, now_ms: u64) {
        let mut pause = lock_pause(&self.pause);
        let earlier = pause.filter(|earlier| earlier.until_ms > now_ms);
        let is_all = what == Paused::All || earlier.is_some_and(|earlier| earlier.what == Paused::All);
        let until_ms = until_ms.max(earlier.map_or(0, |earlier| earlier.until_ms));
        *pause = Some(Pause { until_ms, what: if is_all { Paused::All } else { Paused::Writes } });
        self.set(PAUSED, true);
    }

    /// Returns which commands are paused, and until when.
    pub fn paused(&self, now_ms: u64) -> Option<(Paused, u64)> {
        if self.bits() & PAUSED == 0 {
            return None;
        }
        let mut pause = lock_pause(&self.pause);
        match *pause {
            Some(Pause { until_ms, what }) if until_ms > now_ms => Some((what, until_ms)),
            _ => {
                *pause = None;
                self.set(PAUSED, false);
                None
            }
        }
    }

    pub fn unpause(&self) {
        *lock_pause(&self.pause) = None;
        self.set(PAUSED, false);
    }
}

fn lock_pause(pause: &Mutex<Option<Pause>>) -> std::sync::MutexGuard<'_, Option<Pause>> {
    pause.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl State {
    /// The session's bits.
    pub fn checks(&self) -> u32 {
        let mut bits = 0;
        if !self.authenticated {
            bits |= UNAUTHENTICATED;
        }
        if self.is_bound() {
            bits |= BOUND;
        }
        if self.monitors {
            bits |= MONITORS;
        }
        bits
    }

    /// Whether the client is subscribed to something and speaks RESP2.
    pub fn is_bound(&self) -> bool {
        self.protocol == Protocol::Resp2 && !self.subscriptions.is_empty()
    }
}
