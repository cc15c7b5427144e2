//! Sessions that wait for keys: who waits for which, in order of arrival, and what ends each wait.
//!
//! A waiter is registered under the locks of its keys, so that whoever makes one of them finds it. Of all that can end
//! a wait (a run that serves it, its time, CLIENT UNBLOCK, the end of its client) exactly one does: the one that gets
//! to its state. Nothing here runs a command: `serving` does that for whom it serves, `blocking` is the session's side.

use crate::keys::gate::StoreGate;
use crate::sync::{Mutex, lock, lower};
use foldhash::fast::RandomState;
use haypile_acl::User;
use haypile_commands::CommandId;
use haypile_resp::{OwnedArgs, Reply};
use haypile_types::key::Type;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Parts of the maps, each with its own mutex: enough that event loops seldom meet.
const SHARDS: usize = 64;

/// The way to a session that waits.
pub(crate) trait Bell: Send + Sync {
    /// Has a session look at its waiter, from any thread.
    fn ring(&self, session: u64);
}

/// A session that waits for one of its keys. Bounded by what its client may have under way, as its request is.
pub(crate) struct Waiter {
    pub session: u64,
    /// The user that the client acts as, in the state in which it may make the call.
    pub user: Arc<User>,
    bell: Arc<dyn Bell>,
    pub command: CommandId,
    pub args: OwnedArgs,
    pub database: u32,
    /// The type that a key has to hold.
    pub kind: Type,
    /// The waiter is to learn, too, when a key does not hold that type any more.
    pub until_gone: bool,
    /// The arguments that name its keys.
    pub keys: Range<usize>,
    /// The end of the waiter's time; `None` waits for ever.
    pub deadline: Option<Instant>,
    /// The moment at which the command is run again by itself.
    pub again: Option<Instant>,
    /// The waiter's place among all waiters, by arrival.
    ticket: u64,
    /// Invariant: one run at a time has claimed it, and one end wins.
    state: Mutex<State>,
}

/// The end of a wait.
#[derive(Debug)]
pub(crate) enum End {
    /// The command is run again.
    Again,
    /// The waiter was served: its reply, and the newest record that the reply depends on.
    Served(Reply, StoreGate),
    /// The waiter's time is over, or is said to be.
    Timeout,
    /// CLIENT UNBLOCK with an error.
    Error,
    /// The server does not lead its group any more.
    Deposed,
    /// The server has another master.
    Follows,
    /// The waiter's client has gone, or is going to.
    Gone,
}

#[derive(Debug)]
enum State {
    Waiting,
    /// A run has got it something and has not committed. `end` is what came in between: the run is not to commit then.
    Claimed {
        end: Option<End>,
    },
    /// The run commits, or fails. `end` is what came in between: it counts if the run fails.
    Certain {
        end: Option<End>,
    },
    /// The wait is over. `None` once the session has taken the end.
    Ended(Option<End>),
}

/// The waiters for a key of a database to hold one type of values, by ticket.
struct Queue {
    database: u32,
    kind: Type,
    waiters: BTreeMap<u64, Arc<Waiter>>,
    /// The number of waiters that are to learn when the key does not hold such a value any more.
    until_gone: usize,
}

type ByName = Mutex<HashMap<Box<[u8]>, Vec<Queue>, RandomState>>;
type BySession = Mutex<HashMap<u64, Arc<Waiter>, RandomState>>;

/// All sessions that wait for keys.
pub(crate) struct Waiters {
    /// The number of waiters. Raised under the locks of a waiter's keys, so that a run that makes one of the keys later
    /// sees it.
    count: AtomicUsize,
    /// Keys that somebody waits for.
    keys: AtomicUsize,
    /// Keys of which somebody is to learn when they are gone. Only readers of streams are, so that a key has one such
    /// queue.
    keys_until_gone: AtomicUsize,
    last_ticket: AtomicU64,
    by_name: Box<[ByName]>,
    by_session: Box<[BySession]>,
    hasher: RandomState,
}

impl Default for Waiters {
    fn default() -> Self {
        Waiters {
            count: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            keys_until_gone: AtomicUsize::new(0),
            last_ticket: AtomicU64::new(0),
            by_name: (0..SHARDS).map(|_| Mutex::default()).collect(),
            by_session: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
        }
    }
}

impl Waiters {
    /// Whether anybody waits. One load.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the number of keys that sessions wait for.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the number of keys with a waiter that is to learn, too, when the key is gone.
    pub fn keys_until_gone(&self) -> usize {
        self.keys_until_gone.load(Ordering::Relaxed)
    }

    /// Registers a session's wait; the caller holds the locks of its keys.
    pub fn add(&self, waiter: WaiterOf) -> Arc<Waiter> {
        let WaiterOf { session, user, bell, command, args, database, kind, until_gone, keys, deadline, again } = waiter;
        let ticket = self.last_ticket.fetch_add(1, Ordering::Relaxed) + 1;
        let state = Mutex::new(State::Waiting);
        let waiter = Arc::new(Waiter {
            session,
            user,
            bell,
            command,
            args,
            database,
            kind,
            until_gone,
            keys,
            deadline,
            again,
            ticket,
            state,
        });
        self.count.fetch_add(1, Ordering::Relaxed);
        for name in waiter.names() {
            let mut shard = lock(self.shard(name));
            let queues = shard.entry(name.into()).or_default();
            if queues.iter().all(|queue| queue.database != database) {
                self.keys.fetch_add(1, Ordering::Relaxed);
            }
            let queue = match queues.iter().position(|queue| queue.is_for(database, kind)) {
                Some(at) => &mut queues[at],
                None => queues.push_mut(Queue { database, kind, waiters: BTreeMap::new(), until_gone: 0 }),
            };
            // A name may come twice.
            if queue.waiters.insert(ticket, waiter.clone()).is_none() && until_gone {
                queue.until_gone += 1;
                self.keys_until_gone.fetch_add(usize::from(queue.until_gone == 1), Ordering::Relaxed);
            }
        }
        lock(self.session_shard(session)).insert(session, waiter.clone());
        waiter
    }

    /// Takes one whose wait has ended out of all queues.
    pub fn remove(&self, waiter: &Waiter) {
        let mut by_session = lock(self.session_shard(waiter.session));
        // The session may wait again by now.
        if by_session.get(&waiter.session).is_some_and(|other| other.ticket == waiter.ticket) {
            by_session.remove(&waiter.session);
        }
        drop(by_session);
        for name in waiter.names() {
            let mut shard = lock(self.shard(name));
            let Some(queues) = shard.get_mut(name) else { continue };
            let Some(at) = queues.iter().position(|queue| queue.is_for(waiter.database, waiter.kind)) else { continue };
            if queues[at].waiters.remove(&waiter.ticket).is_some() && waiter.until_gone {
                queues[at].until_gone -= 1;
                lower(&self.keys_until_gone, usize::from(queues[at].until_gone == 0));
            }
            if queues[at].waiters.is_empty() {
                queues.swap_remove(at);
                if queues.iter().all(|queue| queue.database != waiter.database) {
                    lower(&self.keys, 1);
                }
            }
            if queues.is_empty() {
                shard.remove(name);
            }
        }
        lower(&self.count, 1);
    }

    /// Whether anybody waits for a key.
    pub fn has(&self, database: u32, name: &[u8]) -> bool {
        let shard = lock(self.shard(name));
        shard.get(name).is_some_and(|queues| queues.iter().any(|queue| queue.database == database))
    }

    /// The first one behind `ticket` who waits for a key to hold such a value, or to hold another than it does now.
    pub fn next(&self, database: u32, name: &[u8], kind: Option<Type>, ticket: u64) -> Option<Arc<Waiter>> {
        let shard = lock(self.shard(name));
        let queues = shard.get(name)?.iter().filter(|queue| queue.database == database);
        let first = |queue: &Queue| {
            let mut behind = queue.waiters.range(ticket + 1..).map(|(_, waiter)| waiter);
            if Some(queue.kind) == kind { behind.next() } else { behind.find(|waiter| waiter.until_gone) }.cloned()
        };
        queues.filter_map(first).min_by_key(|waiter| waiter.ticket)
    }

    /// Every key of these databases that somebody waits for.
    pub fn in_databases(&self, databases: &[u32]) -> Vec<(u32, Box<[u8]>)> {
        let mut found = Vec::new();
        for shard in &self.by_name {
            for (name, queues) in lock(shard).iter() {
                let waited =
                    databases.iter().filter(|database| queues.iter().any(|queue| queue.database == **database));
                found.extend(waited.map(|database| (*database, name.clone())));
            }
        }
        found
    }

    /// Returns the sessions that wait.
    pub fn sessions(&self) -> Vec<u64> {
        self.by_session.iter().flat_map(|shard| lock(shard).keys().copied().collect::<Vec<_>>()).collect()
    }

    pub fn of_session(&self, session: u64) -> Option<Arc<Waiter>> {
        lock(self.session_shard(session)).get(&session).cloned()
    }

    fn shard(&self, name: &[u8]) -> &ByName {
        &self.by_name[self.hasher.hash_one(name) as usize % SHARDS]
    }

    fn session_shard(&self, session: u64) -> &BySession {
        &self.by_session[session as usize % SHARDS]
    }
}

/// The parts of a new waiter.
pub(crate) struct WaiterOf {
    pub session: u64,
    pub user: Arc<User>,
    pub bell: Arc<dyn Bell>,
    pub command: CommandId,
    pub args: OwnedArgs,
    pub database: u32,
    pub kind: Type,
    pub until_gone: bool,
    pub keys: Range<usize>,
    pub deadline: Option<Instant>,
    pub again: Option<Instant>,
}

impl Queue {
    fn is_for(&self, database: u32, kind: Type) -> bool {
        self.database == database && self.kind == kind
    }
}

/// Returns the moment so many milliseconds from now; `None` if that is for ever.
pub(crate) fn in_ms(ms: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(ms))
}

/// The outcome of an attempt to end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The wait has ended: its waiter is to be taken out of the queues.
    Ended,
    /// The wait is going to end: the run that was about to serve it sees to that.
    Promised,
    /// The wait was ended by something else, or is about to be.
    TooLate,
}

impl Waiter {
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Bytes that it takes, with its places in the queues of its keys.
    pub fn bytes(&self) -> usize {
        const PLACE_BYTES: usize = 200;
        // Each queue has its key's name, too.
        2 * self.args.memory_bytes() + self.keys.len() * PLACE_BYTES
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.clone().map(|at| self.args.as_args().get(at))
    }

    /// Whether its time is over.
    pub fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Whether the command is to be run again by now.
    pub fn is_due(&self) -> bool {
        self.again.is_some_and(|again| again <= Instant::now())
    }

    /// Returns the moment at which its session has to look at it; `None` if only something that comes ends the wait.
    /// The command is not run again before `not_before`.
    pub fn looked_at_next(&self, not_before: Option<Instant>) -> Option<Instant> {
        let again = self.again.map(|again| not_before.map_or(again, |earliest| again.max(earliest)));
        self.deadline.into_iter().chain(again).min()
    }

    /// Ends the wait, unless something else has.
    pub fn end(&self, how: End) -> Attempt {
        let mut state = lock(&self.state);
        match &mut *state {
            State::Waiting => {
                *state = State::Ended(Some(how));
                Attempt::Ended
            }
            State::Claimed { end } if end.is_none() => {
                *end = Some(how);
                Attempt::Promised
            }
            State::Certain { end } => {
                end.get_or_insert(how);
                Attempt::TooLate
            }
            State::Claimed { .. } | State::Ended(_) => Attempt::TooLate,
        }
    }

    /// Takes the end of the wait, once.
    pub fn take_end(&self) -> Option<End> {
        match &mut *lock(&self.state) {
            State::Ended(end) => end.take(),
            _ => None,
        }
    }

    /// Claims the waiter for a run. Returns false if another run has claimed it, or its wait has ended.
    pub fn claim(&self) -> bool {
        let mut state = lock(&self.state);
        let waits = matches!(*state, State::Waiting);
        if waits {
            *state = State::Claimed { end: None };
        }
        waits
    }

    /// Confirms the claim, before the commit. Returns false if something has asked for the end of the wait meanwhile.
    pub fn confirm(&self) -> bool {
        let mut state = lock(&self.state);
        match &*state {
            State::Claimed { end: None } => {
                *state = State::Certain { end: None };
                true
            }
            State::Claimed { end: Some(_) } => false,
            state => unreachable!("who serves has claimed it: {state:?}"),
        }
    }

    /// Gives the claim back, for a run that does not take effect: the wait goes on, unless something has asked for its
    /// end meanwhile. Returns whether the wait has ended.
    pub fn release(&self) -> bool {
        let mut state = lock(&self.state);
        let end = match &mut *state {
            State::Claimed { end } | State::Certain { end } => end.take(),
            state => unreachable!("who serves has claimed it: {state:?}"),
        };
        let ends = end.is_some();
        *state = if ends { State::Ended(end) } else { State::Waiting };
        ends
    }

    /// Ends the wait with a reply, after the commit.
    pub fn serve(&self, reply: Reply, gate: StoreGate) {
        let mut state = lock(&self.state);
        assert!(matches!(*state, State::Certain { .. }), "the run that serves has confirmed it: {state:?}");
        *state = State::Ended(Some(End::Served(reply, gate)));
    }

    /// Has its session look.
    pub fn wake(&self) {
        self.bell.ring(self.session);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use haypile_acl::Fresh;

    /// Nobody listens.
    struct Silent;

    impl Bell for Silent {
        fn ring(&self, _: u64) {}
    }

    /// A session that waits for keys of database 0, by the words of its command.
    fn wait(waiters: &Waiters, session: u64, kind: Type, words: &[&str]) -> Arc<Waiter> {
        wait_until(waiters, session, kind, false, words)
    }

    fn wait_until(waiters: &Waiters, session: u64, kind: Type, until_gone: bool, words: &[&str]) -> Arc<Waiter> {
        let (command, args, keys) = (CommandId(0), words.iter().collect(), 1..words.len());
        waiters.add(WaiterOf {
            session,
            user: Arc::new(User::new(b"default", Fresh::default())),
            bell: Arc::new(Silent),
            command,
            args,
            database: 0,
            kind,
            until_gone,
            keys,
            deadline: None,
            again: None,
        })
    }

    #[test]
    fn who_waits_for_the_end_of_a_value_is_found_whatever_comes_then() {
        let waiters = Waiters::default();
        let list = wait(&waiters, 1, Type::List, &["", "a"]);
        let reader = wait(&waiters, 2, Type::Stream, &["", "a"]);
        let of_group = wait_until(&waiters, 3, Type::Stream, true, &["", "a"]);
        let later = wait(&waiters, 4, Type::List, &["", "a"]);
        let order = |kind| {
            let (mut found, mut ticket) = (Vec::new(), 0);
            while let Some(waiter) = waiters.next(0, b"a", kind, ticket) {
                ticket = waiter.ticket();
                found.push(waiter.session);
            }
            found
        };
        assert_eq!(order(None), [of_group.session]);
        assert_eq!(order(Some(Type::Stream)), [reader.session, of_group.session]);
        assert_eq!(order(Some(Type::List)), [list.session, of_group.session, later.session]);
    }

    #[test]
    fn they_are_found_in_order_of_arrival_by_what_they_wait_for() {
        let waiters = Waiters::default();
        let first = wait(&waiters, 1, Type::List, &["", "a", "b"]);
        let other = wait(&waiters, 2, Type::Zset, &["", "a"]);
        let second = wait(&waiters, 3, Type::List, &["", "b", "a", "b"]);
        assert_eq!((waiters.count(), waiters.keys()), (3, 2));
        let next = |name: &str, kind, after| {
            waiters.next(0, name.as_bytes(), Some(kind), after).map(|waiter| (waiter.session, waiter.ticket()))
        };
        assert_eq!(next("a", Type::List, 0), Some((1, first.ticket())));
        assert_eq!(next("a", Type::List, first.ticket()), Some((3, second.ticket())));
        assert_eq!(next("a", Type::List, second.ticket()), None);
        assert_eq!(next("a", Type::Zset, 0), Some((2, other.ticket())));
        assert_eq!(next("b", Type::Zset, 0), None);
        assert!(waiters.has(0, b"b") && !waiters.has(1, b"b") && !waiters.has(0, b"c"));
        let mut keys = waiters.in_databases(&[0, 1]);
        keys.sort();
        assert_eq!(keys, [(0, b"a"[..].into()), (0, b"b"[..].into())]);
        waiters.remove(&first);
        assert_eq!(next("a", Type::List, 0), Some((3, second.ticket())));
        waiters.remove(&second);
        assert_eq!((waiters.count(), waiters.keys(), next("b", Type::List, 0)), (1, 1, None));
        waiters.remove(&other);
        assert!(!waiters.any() && waiters.keys() == 0 && waiters.of_session(2).is_none());
    }

    #[test]
    fn a_session_that_waits_again_is_not_forgotten_with_its_earlier_wait() {
        let waiters = Waiters::default();
        let earlier = wait(&waiters, 1, Type::List, &["", "a"]);
        assert_eq!(earlier.end(End::Timeout), Attempt::Ended);
        let later = wait(&waiters, 1, Type::List, &["", "a"]);
        waiters.remove(&earlier);
        assert_eq!(waiters.of_session(1).map(|waiter| waiter.ticket()), Some(later.ticket()));
    }

    #[test]
    fn one_end_wins() {
        let waiters = Waiters::default();
        let waiter = wait(&waiters, 1, Type::List, &["", "a"]);
        assert!(waiter.claim() && !waiter.claim());
        // Somebody has claimed it and has not committed: it is let go, and nobody else can any more.
        assert_eq!(waiter.end(End::Error), Attempt::Promised);
        assert_eq!(waiter.end(End::Gone), Attempt::TooLate);
        assert!(!waiter.confirm(), "it is not to be served");
        assert!(waiter.take_end().is_none(), "not before the run was dropped");
        assert!(waiter.release());
        assert!(matches!(waiter.take_end(), Some(End::Error)) && waiter.take_end().is_none());

        let waiter = wait(&waiters, 2, Type::List, &["", "a"]);
        assert!(waiter.claim() && waiter.confirm());
        assert_eq!(waiter.end(End::Gone), Attempt::TooLate);
        let gate = StoreGate { index: haypile_log::Index(7), version: 1 };
        waiter.serve(Reply::Integer(1), gate);
        assert_eq!(waiter.end(End::Timeout), Attempt::TooLate);
        assert!(matches!(waiter.take_end(), Some(End::Served(Reply::Integer(1), served)) if served == gate));

        // A commit that fails: what came in between counts.
        let waiter = wait(&waiters, 3, Type::List, &["", "a"]);
        assert!(waiter.claim() && waiter.confirm());
        assert_eq!(waiter.end(End::Gone), Attempt::TooLate);
        assert!(waiter.release() && matches!(waiter.take_end(), Some(End::Gone)));
        // And if nothing did, it waits as before.
        let waiter = wait(&waiters, 4, Type::List, &["", "a"]);
        assert!(waiter.claim() && waiter.confirm() && !waiter.release() && waiter.claim());
    }
}
