//! The locks under which a master's record takes effect on its replica, and who is told of it: sessions that watch its
//! keys, and readers that wait for them.

use crate::clients::inbox::Inbox;
use crate::keys::admission::{ExclusionHeld, KeysHeld, PoolInside};
use crate::keys::claims::Claims;
use crate::keys::exclusion::Exclusive;
use crate::keys::locks::{HeldFor, Parked, Turn, Waiter};
use crate::run::engine::Engine;
use crate::run::protocol::{make_exchange_known, make_record_known, prepare};
use crate::run::serving::{Place, Service};
use haypile_store::{Call, Key, Mode, Named, RecordLocks, Stop, Store, TxnBuffers};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Looks for the locks of further keys of a reader that waits, before it is left waiting until the next record.
const TRIES_MAX: u32 = 100;
const TRY_EVERY: Duration = Duration::from_micros(100);

/// How long locks are waited for where the engine ends: those who have them give them back, unless the data could not
/// be opened again.
const END_WAIT: Duration = Duration::from_secs(5);

/// Keys of a record whose stripes are held: one in a hundred.
const FEW_KEYS: usize = 128;

/// The time between looks whether the engine ends, while locks are waited for.
const LOOK: Duration = Duration::from_millis(100);

/// The locks of the engine's keys, for the thread that applies records to this store.
pub struct FollowerLocks<'a> {
    engine: &'a Engine,
    store: &'a Store,
    /// The version of the store.
    version: u64,
    /// Says no when the engine ends. Before that, who has asked for locks has to take them: others wait behind.
    goes_on: &'a dyn Fn() -> bool,
    inbox: Arc<Inbox>,
}

/// Returns how a record's keys are held: to change those of a large one takes longer than others are to wait for a
/// stripe.
fn held_for(claims: &Claims) -> HeldFor {
    if claims.len() > FEW_KEYS { HeldFor::Long } else { HeldFor::Moment }
}

impl<'a> FollowerLocks<'a> {
    /// Makes them for a store that follows, which the engine serves under this version. `goes_on` says no when the
    /// engine ends.
    pub fn new(engine: &'a Engine, store: &'a Store, version: u64, goes_on: &'a dyn Fn() -> bool) -> Self {
        // Nobody waits for what is told there.
        FollowerLocks { engine, store, version, goes_on, inbox: Arc::new(Inbox::new(Box::new(|| ()))) }
    }

    /// Whether the engine serves this store. The caller is inside the exclusion, which keeps it from changing.
    fn is_served(&self) -> bool {
        self.engine.store_version() == self.version
    }

    /// Enters the exclusion and takes the locks, for as long as it takes, and runs; unless the store is another one by
    /// then, or the engine ends.
    fn with_keys(&self, claims: &Claims, run: impl FnOnce()) {
        let mut turn = Turn::Newcomer;
        loop {
            let mut told = None;
            let Some(inside) = PoolInside::try_enter(&self.engine.exclusion, || call(&mut told)) else {
                if !self.wait(told) {
                    return;
                }
                continue;
            };
            match KeysHeld::try_take(&self.engine.locks, claims, turn, held_for(claims)) {
                Ok(keys) => {
                    if self.is_served() {
                        run();
                    }
                    drop(keys);
                    drop(inside);
                    return;
                }
                Err(refused) => {
                    drop(inside);
                    let before = std::mem::replace(&mut turn, Turn::Called(refused));
                    if let Parked::Retry(waiter) = self.engine.locks.park(refused, before, call(&mut told)) {
                        waiter();
                    }
                    if !self.wait(told) {
                        return;
                    }
                }
            }
        }
    }

    /// Runs while nobody else runs on keys; unless the store is another one by then, or the engine ends.
    fn exclusively(&self, run: impl FnOnce()) {
        loop {
            let mut told = None;
            let held = ExclusionHeld::try_hold(&self.engine.exclusion, |answer| {
                let (tell, receiver) = channel();
                told = Some((receiver, answer));
                Box::new(move || {
                    // The thread waits below.
                    let _ = tell.send(());
                })
            });
            let held = match (held, told) {
                (Some(held), _) => held,
                (None, Some((receiver, answer))) => {
                    if !self.wait(Some(receiver)) {
                        return;
                    }
                    if answer != Exclusive::WillBeGranted {
                        continue;
                    }
                    ExclusionHeld::granted(&self.engine.exclusion)
                }
                (None, None) => unreachable!("who is not granted it leaves a waiter"),
            };
            if self.is_served() {
                run();
            }
            drop(held);
            return;
        }
    }

    /// Waits until a waiter is called; false if the engine ends, and the waiter is left behind.
    fn wait(&self, told: Option<Receiver<()>>) -> bool {
        let (told, since) = (told.expect("a waiter was made"), Instant::now());
        loop {
            match told.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) if (self.goes_on)() || since.elapsed() < END_WAIT => {}
                Err(RecvTimeoutError::Timeout) => return false,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Serves those who wait for a key, under its lock.
    fn serve(&self, database: u32, name: &[u8], place: Place<'_>) -> Result<(), Stop> {
        let (engine, store) = (self.engine, self.store);
        let call = Call { now_ms: engine.now_ms(), seed: 0, database, mode: Mode::Disk, pins: None };
        let mut txn = store.begin(TxnBuffers::default(), call);
        prepare(engine, &mut txn, place, true);
        let mut service = Service::new(engine, store, place, None);
        service.serve_key(&mut txn, database, name)?;
        service.confirm()?;
        debug_assert!(txn.touched().next().is_none(), "only readers wait on a replica");
        service.deliver(txn.gate());
        Ok(())
    }

    fn serve_keys(&self, keys: &[Key<'_>], claims: &Claims) {
        let place = Place::Locked { claims, held_for: held_for(claims), inbox: &self.inbox };
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

    /// Makes known that databases were exchanged or emptied, and serves all who wait.
    fn on_exchange(&self) {
        make_exchange_known(self.engine);
        let databases: Vec<u32> = (0..self.engine.databases).collect();
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
        // The thread waits in `FollowerLocks::wait`, unless it has given up.
        let _ = tell.send(());
    })
}

impl RecordLocks for FollowerLocks<'_> {
    fn hold(&self, named: Named<'_>, apply: &mut dyn FnMut()) {
        match named {
            Named::Keys(keys) => {
                let claims = Claims::exclusive(keys.iter().map(|key| key.hash));
                self.with_keys(&claims, || {
                    apply();
                    make_record_known(self.engine, self.store, keys);
                    if self.engine.waiters.any() {
                        self.serve_keys(keys, &claims);
                    }
                });
            }
            Named::Everything => self.exclusively(|| {
                apply();
                self.on_exchange();
            }),
        }
    }
}
