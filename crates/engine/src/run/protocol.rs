//! The protocol of a run, which stands here once: begin, note what others want to hear of, run, serve waiters, confirm,
//! commit, mark watchers, tell, deliver.
//!
//! The short way of an event loop, the long way, blocks, active expiry and MIGRATE differ in what they run and in what
//! they hold (`keys::admission`), never in this order. The locks of the run's keys are held from before the
//! transaction begins until after `conclude`; those of keys that it finds on its way, from then on.

use crate::keys::gate::StoreGate;
use crate::keys::watch::Watches;
use crate::run::engine::Engine;
use crate::run::serving::{Place, Service};
use haypile_store::{Key, Stop, Store, Txn};
use haypile_types::check::defects_left;
use haypile_types::key as types_key;
use std::sync::Arc;

/// The part of a run that stays when it has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// The run keeps all its effects, or none where they are refused.
    Effects,
    /// The run keeps nothing: it has only read.
    Nothing,
    /// The run keeps nothing: a dry run holds no locks, and finds out which rows it reads.
    DryRun,
}

/// Prepares a run's transaction, which has just begun.
#[inline]
pub(crate) fn prepare(engine: &Engine, txn: &mut Txn<'_>, place: Place<'_>, touches: bool) {
    if !matches!(place, Place::DryRun) {
        txn.note_events(engine.events());
    }
    match place {
        Place::Unlocked { .. } | Place::Short { locked: false, .. } => txn.read_one_row(),
        Place::Exclusive { .. } => txn.set_exclusive(),
        Place::DryRun | Place::Short { locked: true, .. } | Place::Locked { .. } | Place::Expiry { .. } => {}
    }
    // A read on the short way makes no key.
    if !matches!(place, Place::Short { writes: false, .. }) && engine.waiters.any() {
        txn.note_ready();
    }
    if !touches {
        txn.set_touching(false);
    }
}

/// Concludes a run that its command has not refused, under the locks of its keys. `by` is the session that it runs for;
/// 0 is none.
///
/// Invariant: the engine calls `Txn::commit` here alone. Whether anybody watches or tracks is asked after the commit: a
/// WATCH that this look misses came later, so what its session reads next is the committed value. A look before the
/// commit would miss sessions that read the value before it.
///
/// # Errors
/// The run has no effect: it is to be repeated, or its effects are refused.
#[inline]
pub(crate) fn conclude(
    engine: &Engine,
    store: &Store,
    txn: &mut Txn<'_>,
    mut service: Option<&mut Service<'_>>,
    keeps: Keeps,
    by: u64,
) -> Result<(), Stop> {
    if let Some(service) = &mut service {
        service.serve(txn)?;
    }
    if keeps != Keeps::DryRun && !txn.events().is_empty() && engine.is_long_to_tell(txn) {
        txn.long()?;
    }
    let committed = match keeps {
        Keeps::DryRun => return Ok(()),
        Keeps::Nothing => Ok(false),
        Keeps::Effects => {
            let exchanged = exchanged_keys(engine, store, txn)?;
            let is_sure = service.as_ref().map_or(Ok(()), |service| service.confirm());
            debug_assert!(txn.names_all_keys(), "a record names each key whose elements it writes");
            debug_assert_eq!(defects_left(txn), Vec::<String>::new(), "Invariant: rows are as docs/format says");
            is_sure.and_then(|()| txn.commit()).map(|_| {
                engine.count_expired(txn);
                let mark = |watches: &Watches| {
                    watches.on_commit(txn);
                    exchanged.iter().for_each(|(database, name, until)| watches.on_exchange(*database, name, *until));
                };
                make_known(engine, mark, || engine.invalidate_changed(txn, by));
                true
            })
        }
    };
    let is_committed = committed?;
    if !txn.events().is_empty() {
        // Under the locks: in the order in which the keys changed.
        engine.tell(txn);
    }
    if let Some(service) = service.filter(|_| is_committed) {
        service.deliver(txn.gate());
    }
    Ok(())
}

/// Makes known that a transaction or a master's record has taken effect, while the locks of its keys are held: `mark`
/// marks the sessions that watch a key of it, and then `tell` tells those that have kept one.
///
/// Invariant: the order of the two stands here alone. A client that is told may send EXEC at once, which has to fail
/// if it watches such a key.
#[inline]
fn make_known(engine: &Engine, mark: impl FnOnce(&Watches), tell: impl FnOnce()) {
    if engine.watches.any() {
        mark(&engine.watches);
    }
    if engine.tracking.any() {
        tell();
    }
}

/// Makes known that a master's record about these keys has taken effect.
pub(crate) fn make_record_known(engine: &Engine, store: &Store, keys: &[Key<'_>]) {
    let mark = |watches: &Watches| {
        let is_in = |key: &Key<'_>, database| store.database_of(key.space) == Some(database);
        keys.iter().for_each(|key| watches.on_record(key.name, |database| is_in(key, database)));
    };
    make_known(engine, mark, || keys.iter().for_each(|key| engine.invalidate_key(key.name)));
}

/// Makes known that a master's record has taken effect which exchanges or empties databases, or may change any key.
pub(crate) fn make_exchange_known(engine: &Engine) {
    make_known(engine, Watches::on_replaced, || engine.invalidate_all(StoreGate::default()));
}

/// A database, the name of a key in it, and the deadline up to which those who watched it saw it there.
type Exchanged = (u32, Arc<[u8]>, u64);

/// The watched keys of databases that are emptied or exchanged, as far as they exist before or afterwards: these
/// change.
#[inline]
fn exchanged_keys(engine: &Engine, store: &Store, txn: &mut Txn<'_>) -> Result<Vec<Exchanged>, Stop> {
    if txn.moved_databases().next().is_none() { Ok(Vec::new()) } else { look_for_exchanged(engine, store, txn) }
}

/// Looks for the watched keys that change. The transaction runs exclusively, so no session reads between this look and
/// the commit.
#[cold]
fn look_for_exchanged(engine: &Engine, store: &Store, txn: &mut Txn<'_>) -> Result<Vec<Exchanged>, Stop> {
    let databases: Vec<u32> = txn.moved_databases().collect();
    let mut changed = Vec::new();
    for (database, name) in engine.watches.in_databases(&databases) {
        let (before, after) = (store.key(database, &name), txn.key_in(database, &name));
        let (was, is) = (lives_until(txn, &before)?, lives_until(txn, &after)?);
        // A key whose deadline has passed is none now; whether it was one depends on who watched it when.
        if let Some(until_ms) = is.filter(|&until_ms| until_ms > txn.now_ms()).map(|_| u64::MAX).or(was) {
            changed.push((database, name, until_ms));
        }
    }
    Ok(changed)
}

/// The deadline of a key that has a row, in milliseconds since 1970; the end of time if it has none.
fn lives_until(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<u64>, Stop> {
    let Some(row) = txn.meta(key)? else { return Ok(None) };
    // A damaged row says nothing: the key counts as one that changes.
    Ok(Some(types_key::Entry::parse(row).ok().and_then(|entry| entry.header.ends_ms()).unwrap_or(u64::MAX)))
}
