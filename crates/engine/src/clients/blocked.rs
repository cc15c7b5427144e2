//! Sessions whose reply is held back: WAIT, WAITAOF, DEBUG SLEEP, REPLICAOF NO ONE.
//!
//! No thread waits with them. Their event loop comes back when their time is over, when the log is on the disk as far
//! as they asked (`Blocked::on_sync`, from the log's threads), when the data lead, or when somebody lets them go
//! (`Blocked::unblock`). Of time and unblocking exactly one wins: whoever takes the session out of the table. Those
//! that wait for keys are in `blocking`.

use crate::clients::inbox::Inbox;
use crate::clients::pending::{Event, What};
use crate::sync::{Mutex, lock};
use haypile_commands::host::{Wait, WaitKind};
use haypile_log::Index;
use haypile_resp::Reply;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A reply that is held back, and the end of its wait.
pub(crate) struct Held {
    pub wait: Wait,
    /// The reply that the command has made: WAIT and WAITAOF have none yet.
    pub made: Reply,
    /// Bytes of the reply, which count for its client.
    pub bytes: usize,
    /// The end of the reply's wait; `None` waits for ever.
    pub deadline: Option<Instant>,
    /// The newest record that the client has written or read so far: WAITAOF asks for it to be on the disk.
    pub through: Index,
}

/// Why a session was let go before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unblock {
    /// The wait ends as if its time were over.
    Timeout,
    /// The wait ends with an error.
    Error,
}

/// The place of a blocked session.
struct Place {
    inbox: Arc<Inbox>,
    /// The command has taken effect, and only its reply waits: nobody ends that before its time.
    is_done: bool,
}

/// The blocked sessions of all event loops, but for those that sleep: nobody can wake these.
#[derive(Default)]
pub struct Blocked {
    sessions: Mutex<HashMap<u64, Place>>,
    /// Some session waits for the log, for replicas or for the role: only then progress is worth a look at the table.
    waits_for_sync: AtomicBool,
}

impl Blocked {
    /// Returns the number of blocked sessions.
    pub fn count(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Lets a session go, from any thread; whether it was blocked.
    pub fn unblock(&self, session: u64, how: Unblock) -> bool {
        let mut sessions = lock(&self.sessions);
        if sessions.get(&session).is_none_or(|place| place.is_done) {
            return false;
        }
        let place = sessions.remove(&session).expect("it was there");
        drop(sessions);
        place.inbox.push(Event { session, what: What::Unblocked(how), begun: None });
        true
    }

    /// Whether a session is there to be let go.
    pub(crate) fn has(&self, session: u64) -> bool {
        lock(&self.sessions).get(&session).is_some_and(|place| !place.is_done)
    }

    /// The log has got further on its way to the disk or to a replica: has the event loops look.
    pub fn on_sync(&self) {
        if !self.waits_for_sync.swap(false, Ordering::SeqCst) {
            return;
        }
        let sessions: Vec<_> = lock(&self.sessions).iter().map(|(id, place)| (*id, place.inbox.clone())).collect();
        sessions.into_iter().for_each(|(session, inbox)| inbox.push(Event { session, what: What::Look, begun: None }));
    }

    /// Notes that some session waits for the log, for replicas or for the role; before it looks how far they are.
    pub(crate) fn wait_for_sync(&self) {
        self.waits_for_sync.store(true, Ordering::SeqCst);
    }

    /// Has all of them look.
    pub(crate) fn look_again(&self) {
        self.waits_for_sync.store(true, Ordering::SeqCst);
        self.on_sync();
    }

    /// Adds a session; `is_done` says that its command has taken effect.
    pub(crate) fn add(&self, session: u64, inbox: Arc<Inbox>, is_done: bool) {
        lock(&self.sessions).insert(session, Place { inbox, is_done });
    }

    /// Removes a session, and returns whether it was there: if not, somebody has let it go and the event is on its way.
    pub(crate) fn remove(&self, session: u64) -> bool {
        lock(&self.sessions).remove(&session).is_some()
    }
}

impl Held {
    pub fn sleeps(&self) -> bool {
        self.wait.kind == WaitKind::Sleep
    }

    /// Whether the command has taken effect, and only its reply waits.
    pub fn is_done(&self) -> bool {
        self.wait.kind == WaitKind::Promotion
    }

    pub fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    pub fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_which_only_the_reply_waits_is_not_let_go() {
        let blocked = Blocked::default();
        let inbox = Arc::new(Inbox::new(Box::new(|| {})));
        blocked.add(1, inbox.clone(), true);
        blocked.add(2, inbox, false);
        assert!(!blocked.has(1) && !blocked.unblock(1, Unblock::Error));
        assert!(blocked.has(2) && blocked.unblock(2, Unblock::Error) && !blocked.unblock(2, Unblock::Timeout));
        assert!(blocked.remove(1) && !blocked.remove(2));
    }
}
