//! Serves the clients that wait for what a run makes, in the same transaction: so the push and the pop are one record,
//! and nobody who comes behind the one that pushed can be earlier.
//!
//! After a command or a whole block has run, and before it commits, each key that has come to be is looked at, and who
//! waits for it is served in order of arrival, as long as there is something: its command runs once more, as in Redis
//! 7.2, under a savepoint. Its reply is delivered after the commit, still under the key locks. Where the run is
//! dropped, whatever for, those who were to be served wait as before.

use crate::clients::inbox::Inbox;
use crate::keys::admission::MoreKeysHeld;
use crate::keys::claims::{Claims, Hold};
use crate::keys::gate::StoreGate;
use crate::keys::locks::HeldFor;
use crate::keys::waiters::{End, Waiter};
use crate::run::engine::Engine;
use haypile_acl::{Fresh, User};
use haypile_commands::rights::Requested;
use haypile_commands::{Args, Body, Error, Tried, statement};
use haypile_log::Index;
use haypile_resp::Reply;
use haypile_store::{KeyLocks, Ready, Stop, Store, Txn};
use haypile_types::key as types_key;
use std::sync::Arc;

/// Waiters that an event loop serves in one run, and keys of theirs that it looks at: about a millisecond of its time.
const SERVED_AT_ONCE: usize = 512;

/// The place where a piece of work runs, and what the work holds there.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// The work runs without locks, to find out which rows it reads.
    DryRun,
    /// The work runs without locks: it reads one row, which is what it is at some moment.
    Unlocked { inbox: &'a Arc<Inbox> },
    /// The work runs under its key locks.
    Locked { claims: &'a Claims, held_for: HeldFor, inbox: &'a Arc<Inbox> },
    /// The work takes the short way, where nobody is served: under its key locks, or to read one row.
    Short { locked: bool, writes: bool },
    /// The work runs under the lock of a key that expires: no session waits for this.
    Expiry { claims: &'a Claims, held_for: HeldFor },
    /// The work runs while nothing else runs.
    Exclusive { inbox: &'a Arc<Inbox> },
}

impl<'a> Place<'a> {
    /// Returns the inbox in which a session is told what it waits for, if it may wait.
    pub fn inbox(&self) -> Option<&'a Arc<Inbox>> {
        match self {
            Place::DryRun | Place::Short { .. } | Place::Expiry { .. } => None,
            Place::Unlocked { inbox } | Place::Locked { inbox, .. } | Place::Exclusive { inbox } => Some(inbox),
        }
    }
}

/// The waiters that one run serves. A reply that is not delivered is taken back.
pub(crate) struct Service<'a> {
    engine: &'a Engine,
    store: &'a Store,
    place: Place<'a>,
    /// The locks of the run, which may have taken some on its way.
    locks: Option<&'a dyn KeyLocks>,
    /// The waiters that were served, in order, with their replies.
    served: Vec<(Arc<Waiter>, Reply)>,
    /// Key locks that were taken for them, beside those of the run.
    more: Vec<MoreKeysHeld<'a>>,
    /// Hashes of the keys whose locks could not be had at once: the run is to have them from the beginning.
    missing: Vec<u32>,
    /// Keys of waiters that were looked at.
    looked_at: usize,
}

impl<'a> Service<'a> {
    pub fn new(engine: &'a Engine, store: &'a Store, place: Place<'a>, locks: Option<&'a dyn KeyLocks>) -> Self {
        let (served, more, missing) = (Vec::new(), Vec::new(), Vec::new());
        Service { engine, store, place, locks, served, more, missing, looked_at: 0 }
    }

    /// Serves those who wait for what the transaction has made.
    ///
    /// # Errors
    /// The run is to be dropped.
    #[inline]
    pub fn serve(&mut self, txn: &mut Txn<'_>) -> Result<(), Stop> {
        if !self.engine.waiters.any() { Ok(()) } else { self.serve_all(txn) }
    }

    #[cold]
    fn serve_all(&mut self, txn: &mut Txn<'_>) -> Result<(), Stop> {
        let selected = txn.database();
        let mut done = 0;
        self.serve_ready(txn, &mut done)?;
        // In a database that is exchanged as a whole, every key may have come to be.
        let moved: Vec<u32> = txn.moved_databases().collect();
        if !moved.is_empty() {
            let keys = self.engine.waiters.in_databases(&moved);
            if keys.len() > SERVED_AT_ONCE {
                txn.long()?;
            }
            for (database, name) in keys {
                self.serve_key(txn, database, &name)?;
            }
            self.serve_ready(txn, &mut done)?;
        }
        txn.select(selected);
        Ok(())
    }

    /// Serves the waiters for all keys that have come to be; serving them may make keys that others wait for.
    fn serve_ready(&mut self, txn: &mut Txn<'_>, done: &mut usize) -> Result<(), Stop> {
        while let Some(Ready { database, name }) = txn.ready().get(*done).cloned() {
            *done += 1;
            self.serve_key(txn, database, &name)?;
        }
        Ok(())
    }

    /// Serves those who wait for a key, in order of arrival.
    ///
    /// # Errors
    /// The run is to be dropped.
    pub fn serve_key(&mut self, txn: &mut Txn<'_>, database: u32, name: &[u8]) -> Result<(), Stop> {
        let mut ticket = 0;
        while self.engine.waiters.has(database, name) {
            txn.select(database);
            let key = txn.key(name);
            let kind = match types_key::peek(txn, &key) {
                Ok(entry) => entry.map(|entry| entry.header.type_of()),
                Err(haypile_types::Error::Stop(stop)) => return Err(stop),
                Err(error) => unreachable!("a look at a key's type has no other error: {error:?}"),
            };
            let Some(waiter) = self.engine.waiters.next(database, name, kind, ticket) else { break };
            ticket = waiter.ticket();
            self.serve_one(txn, waiter)?;
        }
        Ok(())
    }

    fn serve_one(&mut self, txn: &mut Txn<'_>, waiter: Arc<Waiter>) -> Result<(), Stop> {
        let entry = self.engine.table.entry(waiter.command);
        let command = entry.command;
        let Body::Wait(run) = command.body else { unreachable!("only blocking commands wait for keys") };
        if txn.repeats() && command.access.writes() {
            // The client came before this server had a master, whose data it must not change.
            return Ok(());
        }
        let args = Args::from(waiter.args.as_args());
        self.looked_at += waiter.keys.len();
        if self.looked_at > SERVED_AT_ONCE {
            txn.long()?;
        }
        let is_real = !matches!(self.place, Place::DryRun);
        if is_real {
            self.lock_keys_of(&waiter)?;
            if !waiter.claim() {
                return Ok(());
            }
        }
        // From here on it is taken back with the others.
        self.served.push((waiter.clone(), Reply::None));
        let before = txn.savepoint();
        let mut begun = || {
            self.engine.permit(&waiter, args)?;
            let stating = statement::begin(txn, entry, args)?;
            Ok((run(txn, args)?, stating))
        };
        let reply = match begun() {
            Ok((Tried::Got(reply), stating)) => {
                statement::end_waiting(txn, stating);
                reply
            }
            Ok((Tried::Nothing(_), _)) => {
                txn.rollback(before);
                self.served.pop();
                if is_real {
                    self.take_back(&waiter);
                }
                return Ok(());
            }
            Err(Error::Stop(stop @ (Stop::WouldBlock | Stop::Long | Stop::NeedsLocks))) => {
                return Err(stop);
            }
            Err(error) => {
                txn.rollback(before);
                error.into_reply()
            }
        };
        if let Some((_, place)) = self.served.last_mut() {
            *place = reply;
        }
        Ok(())
    }

    /// Sees to it that the locks of all keys of a waiter's command are held.
    fn lock_keys_of(&mut self, waiter: &Waiter) -> Result<(), Stop> {
        let (Place::Locked { claims, held_for, .. } | Place::Expiry { claims, held_for }) = self.place else {
            return Ok(());
        };
        let is_its_own = |hash| match self.locks {
            Some(locks) => locks.holds(hash, true),
            None => self.engine.locks.cover(claims, held_for, hash, Hold::Exclusive),
        };
        let is_more = |hash| self.more.iter().any(|more| more.covers(hash, Hold::Exclusive));
        let is_held = |hash: &u32| is_its_own(*hash) || is_more(*hash);
        let lacking: Vec<u32> = self.hashes_of(waiter).filter(|hash| !is_held(hash)).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let more = Claims::exclusive(lacking.iter().copied());
        // Whoever waits for locks while it holds others waits for ever some day: this one does not wait.
        let Some(more) = MoreKeysHeld::try_take(&self.engine.locks, more, held_for) else {
            let all = self.served.iter().flat_map(|(waiter, _)| self.hashes_of(waiter)).chain(lacking).collect();
            self.missing = all;
            return Err(Stop::NeedsLocks);
        };
        self.more.push(more);
        Ok(())
    }

    /// Returns the hashes of the keys of a waiter's command.
    fn hashes_of(&self, waiter: &Waiter) -> impl Iterator<Item = u32> {
        let command = self.engine.table.entry(waiter.command).command;
        let args = Args::from(waiter.args.as_args());
        command.keys(args).map(move |(at, _)| self.store.key(waiter.database, args.get(at)).hash)
    }

    /// Makes the claim on every served waiter certain; called before the commit.
    ///
    /// # Errors
    /// Somebody has gone: the run is to be repeated without it.
    pub fn confirm(&self) -> Result<(), Stop> {
        let is_sure = self.served.iter().all(|(waiter, _)| waiter.confirm());
        if is_sure { Ok(()) } else { Err(Stop::NeedsLocks) }
    }

    /// Hands each reply to its waiter, after the commit and under the key locks.
    pub fn deliver(&mut self, gate: Index) {
        let version = self.engine.store_version();
        for (waiter, reply) in self.served.drain(..) {
            waiter.serve(reply, StoreGate { index: gate, version });
            self.engine.dismiss(&waiter);
            waiter.wake();
        }
    }

    /// The hashes of keys whose locks the run lacked.
    pub fn take_missing(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.missing)
    }

    /// A waiter is not served: it waits as before, unless something has ended that meanwhile.
    fn take_back(&self, waiter: &Arc<Waiter>) {
        if waiter.release() {
            self.engine.dismiss(waiter);
        }
        // The waiter's time may be over, too.
        waiter.wake();
    }
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        let served = std::mem::take(&mut self.served);
        if !matches!(self.place, Place::DryRun) {
            served.iter().for_each(|(waiter, _)| self.take_back(waiter));
        }
        // The locks that were taken for them go with this, once their waiters were taken back.
    }
}

impl Engine {
    /// Looks whether a waiter's client may still make its call, if its user has changed since that was looked at.
    pub(crate) fn permit(&self, waiter: &Waiter, args: Args<'_>) -> Result<(), Error> {
        let newest = self.accounts.newest(&waiter.user);
        if newest.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, &waiter.user)) {
            return Ok(());
        }
        let user = newest.unwrap_or_else(|| Arc::new(User::new(waiter.user.name(), Fresh::default())));
        let called = Requested { entry: self.table.entry(waiter.command), args, database: waiter.database };
        called.check(&user).map_err(|denied| Error::text(format!("NOPERM {}", called.text(&user, denied))))
    }

    /// Whether somebody waits for what a transaction has made.
    #[inline]
    pub(crate) fn is_awaited(&self, txn: &Txn<'_>) -> bool {
        txn.ready().iter().any(|ready| self.waiters.has(ready.database, &ready.name))
    }

    /// Ends a session's wait for keys, from any thread; whether that is what ends it.
    pub(crate) fn end_wait(&self, session: u64, how: End) -> bool {
        use crate::keys::waiters::Attempt;
        let Some(waiter) = self.waiters.of_session(session) else { return false };
        match waiter.end(how) {
            Attempt::Ended => {
                self.dismiss(&waiter);
                waiter.wake();
                true
            }
            Attempt::Promised => true,
            Attempt::TooLate => false,
        }
    }
}
