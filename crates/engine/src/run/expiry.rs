//! Active expiry: keys whose deadline has passed, and fields of hashes, are removed even if nobody asks for them, so
//! that space comes back and events fire. Reads never depend on it: they look at the deadline themselves.
//!
//! Each key is a small transaction under its lock, `Worker::expire` takes a bounded number of them per call, and what
//! it does not find in memory is left to the I/O pool. Who holds a key's lock keeps it from expiring now; the next call
//! finds it again.

use crate::keys::admission::{KeysHeld, LoopInside, PoolInside};
use crate::keys::claims::{Claims, Hold};
use crate::keys::locks::{HeldFor, Turn};
use crate::run::engine::Engine;
use crate::run::pool::{Job, Task};
use crate::run::protocol::{Keeps, conclude, prepare};
use crate::run::serving::{Place, Service};
use crate::run::worker::Worker;
use haypile_commands::statement;
use haypile_store::{Call, Counter, Due, Mode, Stop, Store, Txn, TxnBuffers, WritePressure};
use haypile_types::hash::{self, Lapsed};
use std::sync::atomic::Ordering;

/// Keys that one call removes at most: about a tenth of a millisecond of an event loop's time.
pub(crate) const BATCH: usize = 64;

/// Keys that one call looks at where others held all those of the call before.
const BATCH_BEHIND_HELD: usize = 16 * BATCH;

/// Keys that the pool removes before it lets other jobs have the thread.
const POOL_BATCH: usize = 1024;

/// The outcome for a due key.
enum Expired {
    Gone,
    /// Fields of it are gone, and more are to go.
    Partly,
    /// The key has another deadline by now, or is locked.
    Kept,
    /// The key's row is on disk.
    Cold,
    /// The store takes no writes.
    Refused,
}

impl Worker {
    /// Removes some keys whose deadline has passed; whether there may be more of them right now.
    pub fn expire(&mut self, now_ms: u64) -> bool {
        let Worker { engine, state } = self;
        let version = engine.store_version();
        let Some(store) = engine.store() else { return false };
        let store = &*store;
        if !may_expire(engine, store, now_ms)
            || !has_deadlines(engine, store)
            || matches!(store.pressure_to_shrink(), WritePressure::Stop(_))
        {
            return false;
        }
        let due = store.due_deadlines(now_ms, state.expiry_batch);
        if due.is_empty() {
            return false;
        }
        let Some(inside) = LoopInside::try_enter(&engine.exclusion, state.index) else { return false };
        if version != engine.store_version() {
            // The keys that were found are of a store that is closed by now.
            return false;
        }
        let (mut gone, mut partly, mut cold) = (0, 0, 0);
        let started = engine.statistics.clock.now();
        for due in &due {
            let buffers = std::mem::take(&mut state.buffers);
            let (expired, buffers) = expire_key(engine, store, due, now_ms, Mode::Memory, buffers);
            state.buffers = buffers;
            match expired {
                Expired::Gone => gone += 1,
                Expired::Partly => partly += 1,
                Expired::Kept => {}
                Expired::Cold => cold += 1,
                Expired::Refused => break,
            }
        }
        drop(inside);
        engine.expire_ns.add_shared(engine.statistics.clock.ns(started, engine.moment()));
        engine.note_event("expire-cycle", started);
        // Where somebody holds them all, those behind them are looked at as well the next time.
        let are_held = due.len() >= BATCH && gone + partly + cold == 0;
        state.expiry_batch = if are_held { BATCH_BEHIND_HELD } else { BATCH };
        if cold > 0 {
            self.expire_in_base();
        }
        partly > 0 || due.len() >= BATCH && gone > 0
    }

    /// Lets the I/O pool remove expired keys that only the base knows, if it is not at it already.
    pub fn expire_in_base(&mut self) {
        let Some(store) = self.engine.store() else { return };
        if may_expire(&self.engine, &store, self.engine.now_ms())
            && has_deadlines(&self.engine, &store)
            && !self.engine.expiring_in_base.swap(true, Ordering::AcqRel)
        {
            self.engine.pool.submit(Job { session: 0, inbox: self.state.inbox.clone(), task: Task::Expire });
        }
    }
}

impl Engine {
    /// The I/O pool's part of the expiry.
    pub(crate) fn expire_in_base(&self) {
        let version = self.store_version();
        if let Some(store) = self.store() {
            self.expire_in_base_of(&store, version);
        }
        self.expiring_in_base.store(false, Ordering::Release);
    }

    /// Counts the keys, and the fields, that a transaction has removed because their deadlines had passed. To be called
    /// when it has committed.
    #[inline]
    pub(crate) fn count_expired(&self, txn: &Txn<'_>) {
        if txn.expired() > 0 {
            self.expired_keys.add_shared(u64::from(txn.expired()));
        }
        if txn.expired_fields() > 0 {
            self.expired_fields.add_shared(txn.expired_fields());
        }
    }

    fn expire_in_base_of(&self, store: &Store, version: u64) {
        let now_ms = self.now_ms();
        let mut buffers = TxnBuffers::default();
        for database in 0..self.databases {
            if !has_deadlines_in(store, database) {
                continue;
            }
            let due = match store.due_in_base(database, now_ms, POOL_BATCH) {
                Ok(due) => due,
                Err(why) => {
                    tracing::warn!("expired keys cannot be looked for: {why}");
                    continue;
                }
            };
            // Keys that are due in the memtable but have their rows on disk come here too.
            for due in due.iter().chain(&store.due_deadlines(now_ms, BATCH)) {
                // A pause of expiry may have begun meanwhile.
                if !may_expire(self, store, self.now_ms()) {
                    return;
                }
                let Some(inside) = PoolInside::try_enter(&self.exclusion, || Box::new(|| ())) else { break };
                if version != self.store_version() {
                    return;
                }
                let (expired, back) = expire_key(self, store, due, now_ms, Mode::Disk, buffers);
                buffers = back;
                drop(inside);
                if matches!(expired, Expired::Refused) {
                    break;
                }
            }
        }
    }
}

/// Whether expired keys may be removed now. As in Redis, a pause keeps them: a replica that catches up meanwhile gets
/// no news. A replica's master removes them.
fn may_expire(engine: &Engine, store: &Store, now_ms: u64) -> bool {
    !store.takes_no_writes() && engine.checks.paused(now_ms).is_none()
}

/// Whether there is something to look for.
fn has_deadlines(engine: &Engine, store: &Store) -> bool {
    engine.active_expire.load(Ordering::Relaxed)
        && (0..engine.databases).any(|database| has_deadlines_in(store, database))
}

fn has_deadlines_in(store: &Store, database: u32) -> bool {
    [Counter::Deadlines, Counter::FieldDeadlines].iter().any(|counter| store.counter(database, *counter) > 0)
}

/// Fields of one hash that are removed at once.
const FIELDS_BATCH: usize = 64;

/// Fields of a hash that the I/O pool removes in one transaction.
const POOL_FIELDS_BATCH: usize = 1024;

fn expire_key(
    engine: &Engine,
    store: &Store,
    due: &Due,
    now_ms: u64,
    mode: Mode,
    buffers: TxnBuffers,
) -> (Expired, TxnBuffers) {
    // A dead space's keys are garbage already.
    let Some(database) = store.database_of(due.space) else { return (Expired::Kept, buffers) };
    let key = store.key(database, &due.name);
    let mut claims = Claims::default();
    claims.add(key.hash, Hold::Exclusive);
    let (held, fields_max) = match mode {
        Mode::Disk => (HeldFor::Long, POOL_FIELDS_BATCH),
        _ => (HeldFor::Moment, FIELDS_BATCH),
    };
    let Ok(keys) = KeysHeld::try_take(&engine.locks, &claims, Turn::Newcomer, held) else {
        return (Expired::Kept, buffers);
    };
    let call = Call { now_ms, seed: 0, database, mode, pins: None };
    let place = Place::Expiry { claims: &claims, held_for: held };
    let mut txn = store.begin(buffers, call);
    prepare(engine, &mut txn, place, false);
    let mut service = Service::new(engine, store, place, None);
    let before = statement::begin_unasked(&mut txn);
    let lapsed = hash::expire(&mut txn, &key, due.deadline_ms, fields_max).and_then(|lapsed| {
        statement::end_waiting(&mut txn, before);
        // Whoever watched it after that has seen it as it is from now on.
        match &lapsed {
            Lapsed::Key => txn.on_lapsed(&key, due.deadline_ms),
            Lapsed::Fields(expired) => txn.on_lapsed(&key, expired.until_ms),
            Lapsed::Nothing => {}
        }
        // A deadline that is not its key's any more goes too; and some wait for the end of a stream.
        conclude(engine, store, &mut txn, Some(&mut service), Keeps::Effects, 0)?;
        Ok(lapsed)
    });
    drop(service);
    let expired = match lapsed {
        Ok(Lapsed::Nothing) => Expired::Kept,
        Ok(Lapsed::Fields(hash::Expired { may_be_more: true, .. })) => Expired::Partly,
        Ok(Lapsed::Key | Lapsed::Fields(_)) => Expired::Gone,
        Err(haypile_types::Error::Stop(Stop::WouldBlock | Stop::Long)) => Expired::Cold,
        Err(haypile_types::Error::Stop(Stop::NeedsLocks)) => Expired::Kept,
        Err(haypile_types::Error::Stop(stop)) => {
            tracing::debug!("a key cannot expire: {stop:?}");
            Expired::Refused
        }
        Err(error) => {
            tracing::warn!("a key cannot expire: {error:?}");
            Expired::Kept
        }
    };
    let buffers = txn.finish();
    drop(keys);
    (expired, buffers)
}
