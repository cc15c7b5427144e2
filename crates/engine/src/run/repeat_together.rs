//! Commands of a master that have come together run in one transaction: one record of the log, one set of locks, and
//! the position in the master's stream written once.
//!
//! Only plain commands on their keys do, while nobody waits for what they make. Where one of them cannot run to its end
//! at once, or is refused, none has had an effect, and they run one by one.

use crate::clients::checks::REPEATS;
use crate::clients::repeating::Selected;
use crate::clients::session::Session;
use crate::clients::statistics::Sizes;
use crate::keys::admission::KeysHeld;
use crate::keys::claims::Hold;
use crate::keys::locks::{HeldFor, Turn};
use crate::run::ahead::{Ahead, Call as Planned, Located};
use crate::run::engine::Engine;
use crate::run::protocol::{Keeps, conclude, prepare};
use crate::run::serving::Place;
use crate::run::short::ARGUMENTS_AT_ONCE;
use crate::run::worker::WorkerState;
use haypile_commands::table::TxnFn;
use haypile_commands::{Access, Args, Body, Entry, statement};
use haypile_resp as resp;
use haypile_store::{Call, Key, Mode, Store, WritePressure};
use smallvec::SmallVec;
use std::ops::Range;

/// A command of several that run together: its function, and where its keys lie among those of all.
struct Plain<'c> {
    entry: &'c Entry,
    run: TxnFn,
    args: resp::Args<'c>,
    keys: Range<usize>,
}

impl WorkerState {
    /// Runs the first calls of what a master has sent, as many as go together; returns how many, and where the last of
    /// them ends. None, where they are to run one by one.
    pub(crate) fn repeat_together(
        &mut self,
        engine: &Engine,
        store: &Store,
        session: &mut Session,
        located: &Located<'_>,
        ahead: &Ahead,
    ) -> Option<(usize, usize)> {
        let repeating = session.state.repeating.clone()?;
        let is_plain = engine.checks.bits() | session.checks == REPEATS && !session.in_multi();
        if !is_plain || engine.waiters.any() || store.pressure_to_repeat(true) != WritePressure::Go {
            return None;
        }
        let runs = |call: &Planned<'_>| match plain(call) {
            Some((entry, _)) => repeating.select(entry, call.args.into()) == Selected::Runs,
            None => false,
        };
        let count = located.calls.iter().take_while(|call| call.as_ref().is_some_and(runs)).count();
        if count < 2 || !self.enter(engine) || self.store_version != engine.store_version() {
            return None;
        }
        let database = session.state.database;
        let (seed, (calls, keys)) = (self.next_seed(), self.claim_all(store, database, located, count));
        let held = KeysHeld::try_take(&engine.locks, &self.claims, Turn::Newcomer, HeldFor::Moment).ok()?;
        let (started, end) = (engine.statistics.clock.now(), ahead.end(count - 1));
        let call = Call { now_ms: self.now_ms, seed, database, mode: Mode::Memory, pins: session.pins.as_deref() };
        let mut txn = store.begin(std::mem::take(&mut self.buffers), call);
        prepare(engine, &mut txn, Place::Short { locked: true, writes: true }, true);
        txn.repeat(&repeating.repeated);
        repeating.begin(session.input_at, session.input_at + end as u64, false);
        let run = |plain: &Plain<'_>| {
            let args = Args::with_keys(plain.args, &keys[plain.keys.clone()]);
            let Ok(before) = statement::begin(&mut txn, plain.entry, args) else { return false };
            let has_run = (plain.run)(&mut txn, args).is_ok();
            statement::end(&mut txn, before, database, plain.entry, args);
            has_run
        };
        let has_run = calls.iter().all(run);
        let has_run = has_run && !engine.is_awaited(&txn);
        let has_run = has_run && conclude(engine, store, &mut txn, None, Keeps::Effects, session.id).is_ok();
        let lookups = txn.lookups();
        self.buffers = txn.end();
        drop(txn);
        drop(held);
        if !has_run {
            return None;
        }
        engine.counters(self.index).add_lookups(lookups);
        let mut started = started;
        for Plain { entry, args, .. } in &calls {
            let sizes = Sizes { request: args.bytes_len(), reply: 0 };
            started = self.count_ended(engine, session, entry, *args, started, sizes);
            session.last_command = Some(entry.id);
        }
        Some((count, end))
    }

    /// Claims the keys of the first calls, which are plain.
    fn claim_all<'c>(
        &mut self,
        store: &Store,
        database: u32,
        located: &Located<'c>,
        count: usize,
    ) -> (SmallVec<[Plain<'c>; 16]>, Vec<(usize, Key<'c>)>) {
        let (mut calls, mut keys) = (SmallVec::new(), Vec::with_capacity(2 * count));
        self.claims.clear();
        for call in located.calls[..count].iter().flatten() {
            let Some((entry, run)) = plain(call) else { continue };
            let (from, found) = (keys.len(), &located.keys[call.keys.clone()]);
            for (number, (at, spec)) in entry.command.keys(Args::from(call.args)).enumerate() {
                let key = match found.get(number) {
                    Some(key) if store.is_in(key, database) => *key,
                    _ => store.key(database, call.args.get(at)),
                };
                keys.push((at, key));
                let hold = if entry.command.changes(spec) { Hold::Exclusive } else { Hold::Shared };
                self.claims.add(key.hash, hold);
            }
            calls.push(Plain { entry, run, args: call.args, keys: from..keys.len() });
        }
        self.claims.arrange();
        (calls, keys)
    }
}

/// Returns the function of a call that goes together with others: a write of few arguments, which ends at once.
fn plain<'c>(call: &Planned<'c>) -> Option<(&'c Entry, TxnFn)> {
    let entry = *call.entry.as_ref().ok()?;
    match entry.command.body {
        Body::Txn(run) if entry.command.access == Access::Write && call.args.len() <= ARGUMENTS_AT_ONCE => {
            Some((entry, run))
        }
        _ => None,
    }
}
