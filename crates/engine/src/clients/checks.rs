//! The checks between a request and its command that matter only at times: a missing login, a client bound
//! to its channels, a pause, clients in MONITOR, inboxes that are too full. Each is a bit; while none is set, a command
//! pays for one load.

use crate::clients::session::State;
use crate::sync::lower;
use haypile_commands::host::Paused;
use haypile_resp::Protocol;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Clients are paused. The engine sets this bit, and those up to `IN_GROUP`.
pub(crate) const PAUSED: u32 = 1;
pub(crate) const MONITORED: u32 = 2;
/// Messages come faster than some event loop takes them.
pub(crate) const CONGESTED: u32 = 4;
/// A replica whose master is not there does not serve what it has.
pub(crate) const STALE: u32 = 64;
/// The member here does not lead its consensus group: somebody else does, or nobody.
pub(crate) const REDIRECTED: u32 = 1024;
/// The server is in a consensus group.
pub(crate) const IN_GROUP: u32 = 2048;
/// The client has not logged in. A session sets this bit, and those below.
pub(crate) const UNAUTHENTICATED: u32 = 8;
/// The client is subscribed and speaks RESP2, in which a message cannot be told from a reply.
pub(crate) const BOUND: u32 = 16;
/// The client's user may not do everything.
pub(crate) const RESTRICTED: u32 = 128;
/// The client's reads are noted, because it keeps what it reads.
pub(crate) const TRACKS: u32 = 256;
/// The client's user has limits.
pub(crate) const LIMITED: u32 = 512;
/// The session repeats the commands of a master that is no Haypile.
pub(crate) const REPEATS: u32 = 4096;
/// The client is in MONITOR, which to Redis is a kind of replica.
pub(crate) const MONITORS: u32 = 32;

/// The engine's part.
#[derive(Default)]
pub(crate) struct Checks {
    bits: AtomicU32,
    pauses: Mutex<Pauses>,
    monitors: AtomicUsize,
    /// Sessions that a pause keeps waiting, of all event loops.
    held: AtomicUsize,
}

/// The reasons why commands are held.
#[derive(Default)]
struct Pauses {
    /// The pause of CLIENT PAUSE.
    of_client: Option<Pause>,
    /// Whether a FAILOVER goes on, which holds writes until it ends.
    is_failing_over: bool,
}

impl Pauses {
    /// Returns the pause that stands: the later end and the stronger kind of both.
    fn both(&self, now_ms: u64) -> Option<Pause> {
        let of_client = self.of_client.filter(|pause| pause.until_ms > now_ms);
        match (of_client, self.is_failing_over) {
            (pause, false) => pause,
            (None, true) => Some(Pause { until_ms: now_ms + FAILOVER_LOOK_MS, what: Paused::Writes }),
            (Some(pause), true) => Some(Pause { until_ms: pause.until_ms.max(now_ms + FAILOVER_LOOK_MS), ..pause }),
        }
    }
}

/// The time after which a command that a failover holds looks again. The end of a failover wakes it before.
const FAILOVER_LOOK_MS: u64 = 1000;

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

    pub fn set_redirected(&self, on: bool) {
        self.set(IN_GROUP, true);
        self.set(REDIRECTED, on);
    }

    /// The server is in no group any more.
    pub fn leave_group(&self) {
        self.set(IN_GROUP | REDIRECTED, false);
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

    /// Pauses clients for CLIENT PAUSE. The later end and the stronger kind stand, as in Redis.
    pub fn pause(&self, until_ms: u64, what: Paused, now_ms: u64) {
        let mut pauses = self.pauses();
        let earlier = pauses.of_client.filter(|earlier| earlier.until_ms > now_ms);
        let is_all = what == Paused::All || earlier.is_some_and(|earlier| earlier.what == Paused::All);
        let until_ms = until_ms.max(earlier.map_or(0, |earlier| earlier.until_ms));
        pauses.of_client = Some(Pause { until_ms, what: if is_all { Paused::All } else { Paused::Writes } });
        self.set(PAUSED, true);
    }

    /// Holds writes for as long as a failover goes on.
    pub fn set_failing_over(&self, on: bool) {
        let mut pauses = self.pauses();
        pauses.is_failing_over = on;
        self.set(PAUSED, on || pauses.of_client.is_some());
    }

    /// Returns which commands are paused, and until when.
    pub fn paused(&self, now_ms: u64) -> Option<(Paused, u64)> {
        if self.bits() & PAUSED == 0 {
            return None;
        }
        let mut pauses = self.pauses();
        let both = pauses.both(now_ms);
        if both.is_none() {
            pauses.of_client = None;
            self.set(PAUSED, false);
        }
        both.map(|pause| (pause.what, pause.until_ms))
    }

    /// Ends what `pause` has begun.
    pub fn unpause(&self) {
        let mut pauses = self.pauses();
        pauses.of_client = None;
        self.set(PAUSED, pauses.is_failing_over);
    }

    fn pauses(&self) -> MutexGuard<'_, Pauses> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        if self.tracker.as_ref().is_some_and(|tracker| tracker.notes_reads()) {
            bits |= TRACKS;
        }
        if self.is_limited() {
            bits |= LIMITED;
        }
        if self.monitors {
            bits |= MONITORS;
        }
        if !self.user.is_unrestricted() {
            bits |= RESTRICTED;
        }
        if self.repeating.is_some() {
            bits |= REPEATS;
        }
        bits
    }

    /// Whether the client is subscribed to something and speaks RESP2.
    pub fn is_bound(&self) -> bool {
        self.protocol == Protocol::Resp2 && !self.subscriptions.is_empty()
    }
}
