//! The locks under which a master's record takes effect on its replica, and who is told of it: sessions that watch its
//! keys, and readers that wait for them.

use crate::clients::inbox::Inbox;
use crate::keys::admission::{ExclusionHeld, KeysHeld, PoolInside};
use crate::keys::locks::{Claims, HeldFor, Parked, Turn, Waiter};
use crate::run::engine::Engine;
use crate::run::protocol::prepare;
use crate::run::serving::{Place, Service};
use haypile_store::{Call, Key, Mode, Named, RecordLocks, Stop, Store, TxnBuffers};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Looks for the locks of further keys of a reader that waits, before it is left waiting until the next record.
const TRIES_MAX: u32 = 100;
const TRY_EVERY: Duration = Duration::from_micros(100);

/// The locks of the engine's keys, for the thread that applies records to this store.
pub struct FollowerLocks<'a> {
    engine: &'a Engine,
    store: &'a Store,
    inbox: Arc<Inbox>,
}

impl<'a> FollowerLocks<'a> {
    /// Makes them for a store that follows, which the engine serves.
    pub fn new(engine: &'a Engine, store: &'a Store) -> Self {
        // Nobody waits for what is told there.
        FollowerLocks { engine, store, inbox: Arc::new(Inbox::new(Box::new(|| ()))) }
    }

    /// Enters the exclusion and takes the locks, for as long as it takes.
    fn with_keys<R>(&self, claims: &Claims, run: impl FnOnce() -> R) -> R {
        let mut turn = Turn::Newcomer;
        loop {
            let mut told = None;
            let Some(inside) = PoolInside::try_enter(&self.engine.exclusion, || call(&mut told)) else {
                wait(told);
                continue;
            };
            match KeysHeld::try_take(&self.engine.locks, claims, turn, HeldFor::Moment) {
                Ok(keys) => {
                    let result = run();
                    drop(keys);
                    drop(inside);
                    return result;
                }
                Err(refused) => {
                    drop(inside);
                    let before = std::mem::replace(&mut turn, Turn::Called(refused));
                    if let Parked::Retry(waiter) = self.engine.locks.park(refused, before, call(&mut told)) {
                        waiter();
                    }
                    wait(told);
                }
            }
        }
    }

    /// Marks the sessions that watch one of the keys.
    fn mark(&self, keys: &[Key<'_>]) {
        if self.engine.watches.any() {
            keys.iter().for_each(|key| {
                self.engine.watches.on_record(key.name, |database| self.store.database_of(key.space) == Some(database));
            });
        }
    }

    /// Serves those who wait for a key, under its lock.
    fn serve(&self, database: u32, name: &[u8], place: Place<'_>) -> Result<(), Stop> {
        let (engine, store) = (self.engine, self.store);
        let call = Call { now_ms: engine.now_ms(), seed: 0, database, mode: Mode::Disk, pins: None };
        let mut txn = store.begin(TxnBuffers::default(), call);
        prepare(engine, &mut txn, place, true);
        let mut service = Service::new(engine, store, place);
        service.serve_key(&mut txn, database, name)?;
        service.confirm()?;
        debug_assert!(txn.touched().next().is_none(), "only readers wait on a replica");
        service.deliver(txn.gate());
        Ok(())
    }

    fn serve_keys(&self, keys: &[Key<'_>], claims: &Claims) {
        let place = Place::Locked { claims, held_for: HeldFor::Moment, inbox: &self.inbox };
        for key in keys {
            let Some(database) = self.store.database_of(key.space) else { continue };
            for _ in 0..TRIES_MAX {
                if !self.engine.waiters.has(database, key.name) {
                    break;
                }
                match self.serve(database, key.name, place) {
                    Err(Stop::NeedsLocks) => std::thread::sleep(TRY_EVERY),
                    served => {
                        if let Err(stop) = served {
                            tracing::warn!("who waits for a key waits on: {stop:?}");
                        }
                        break;
                    }
                }
            }
        }
    }

    /// Marks all watched keys, and serves all who wait: databases were exchanged or emptied.
    fn on_exchange(&self) {
        let databases: Vec<u32> = (0..self.engine.databases).collect();
        for (database, name) in self.engine.watches.in_databases(&databases) {
            self.engine.watches.on_exchange(database, &name, u64::MAX);
        }
        for (database, name) in self.engine.waiters.in_databases(&databases) {
            if let Err(stop) = self.serve(database, &name, Place::Exclusive { inbox: &self.inbox }) {
                tracing::warn!("who waits for a key waits on: {stop:?}");
            }
        }
    }
}

/// Makes a waiter, and the place where its thread is told that it was called.
fn call(told: &mut Option<Receiver<()>>) -> Waiter {
    let (tell, receiver) = channel();
    *told = Some(receiver);
    Box::new(move || {
        // The thread waits in `wait`.
        let _ = tell.send(());
    })
}

/// Waits until a waiter is called, which lives in a queue until then.
fn wait(told: Option<Receiver<()>>) {
    // A queue that is dropped has no waiters: the server ends.
    let _ = told.expect("a waiter was made").recv();
}

impl RecordLocks for FollowerLocks<'_> {
    fn hold(&self, named: Named<'_>, apply: &mut dyn FnMut()) {
        match named {
            Named::Keys(keys) => {
                let hashes: Vec<u32> = keys.iter().map(|key| key.hash).collect();
                let claims = Claims::exclusive(&hashes);
                self.with_keys(&claims, || {
                    apply();
                    self.mark(keys);
                    if self.engine.waiters.any() {
                        self.serve_keys(keys, &claims);
                    }
                });
            }
            Named::Everything => {
                let held: ExclusionHeld<'_> = self.engine.hold_exclusion();
                apply();
                self.on_exchange();
                drop(held);
            }
        }
    }
}
