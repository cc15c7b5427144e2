//! Messages of client-side caching: reads that are noted, and clients that are told of changes.

use crate::clients::client::Client;
use crate::clients::inbox::Notice;
use crate::clients::pubsub::Payload;
use crate::clients::session::State;
use crate::clients::tracking::{Caching, Stale, Tracker};
use crate::keys::gate::StoreGate;
use crate::run::engine::Engine;
use haypile_commands::host::TrackingMode;
use haypile_commands::{Args, Body, Control, Entry, Flag};
use haypile_resp::write;
use haypile_store::Txn;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Keys that may leave the table of tracked keys at once: their messages go to event loops, which have other work, too.
const SHRINK_KEYS: usize = 1000;

impl Engine {
    /// A command of a client whose reads are noted is about to run: what CLIENT CACHING has said is about this one, or
    /// about one behind it. In a block it is about the EXEC, and nothing in between changes that.
    pub(crate) fn begin_tracked(&self, state: &mut State, entry: &Entry, is_in_block: bool) {
        let ends_block = matches!(entry.command.body, Body::Engine(Control::Exec | Control::Discard));
        state.caching = match state.caching {
            Caching::Next if self.keeps_caching(entry) || is_in_block && !ends_block => Caching::Next,
            Caching::Next => Caching::Now,
            Caching::Now | Caching::No => Caching::No,
        };
    }

    /// Ends what CLIENT CACHING asked for, behind a request that is refused. As in Redis, a subcommand of CLIENT leaves
    /// it, however many arguments there are, and a MULTI that begins no block does not.
    pub(crate) fn end_caching(&self, state: &mut State, refused: Option<&Entry>) {
        if !refused.is_some_and(|entry| entry.parent.is_some() && self.keeps_caching(entry)) {
            state.caching = Caching::No;
        }
    }

    /// Whether what CLIENT CACHING has said is about a command behind this one.
    fn keeps_caching(&self, entry: &Entry) -> bool {
        entry.parent.map_or(entry, |parent| self.table.entry(parent)).command.keeps_caching
    }

    /// Has others find a session's tracker from now on; with None they find none.
    pub(crate) fn show_tracker(&self, session: u64, tracker: Option<Arc<Tracker>>) {
        self.tracking.set(session, tracker.clone());
        if let Some(tracker) = tracker.filter(|tracker| tracker.began_in_block) {
            // The block has read keys that may have changed before anybody could find its tracker.
            self.send_invalidation(&tracker, None, StoreGate::default());
        }
    }

    /// Notes that a client is about to read the keys of a call, if it is to hear of their changes.
    pub(crate) fn note_read(&self, state: &State, entry: &Entry, args: Args<'_>) {
        let Some(tracker) = state.tracker.as_ref().filter(|tracker| tracker.notes_reads()) else { return };
        let is_asked_for = match tracker.options.mode {
            TrackingMode::OptIn => state.caching == Caching::Now,
            TrackingMode::OptOut => state.caching != Caching::Now,
            TrackingMode::Default | TrackingMode::Broadcast => true,
        };
        // The calls of a script are noted one by one.
        let is_read = entry.flags.has(Flag::Readonly) && !matches!(entry.command.body, Body::Script(_));
        if is_asked_for && is_read {
            let names = entry.command.keys(args).map(|(at, _)| args.get(at));
            let displaced = self.tracking.note_read(tracker, names);
            self.invalidate(displaced, StoreGate::default());
        }
    }

    /// Takes some keys out of the table of those that clients track, if it has more than it may: its bound may have
    /// been lowered. Returns whether there are more.
    pub fn shrink_tracking(&self) -> bool {
        if !self.tracking.has_too_much() || self.is_congested(0) {
            return false;
        }
        let before = self.tracking.keys();
        self.invalidate(self.tracking.shrink(SHRINK_KEYS), StoreGate::default());
        self.tracking.keys() < before && self.tracking.has_too_much()
    }

    /// Tells who has read them of the keys that a transaction has changed, which has been committed and still has their
    /// locks. `by` is the session that has changed them.
    #[cold]
    pub(crate) fn invalidate_changed(&self, txn: &Txn<'_>, by: u64) {
        let gate = self.gate_at(txn.gate());
        if txn.moved_databases().next().is_some() {
            self.invalidate_all(gate);
        }
        let touched: Vec<_> = txn.touched().collect();
        self.invalidate(self.tracking.take_stale(touched.iter().map(|key| key.name), by), gate);
    }

    /// Tells who has read it of a key that a record of a master has changed.
    #[cold]
    pub(crate) fn invalidate_key(&self, name: &[u8]) {
        self.invalidate(self.tracking.take_stale(std::iter::once(name), 0), StoreGate::default());
    }

    /// Tells all who track that nothing they have kept counts any more.
    #[cold]
    pub(crate) fn invalidate_all(&self, gate: StoreGate) {
        self.tracking.take_all().iter().for_each(|tracker| self.send_invalidation(tracker, None, gate));
    }

    fn invalidate(&self, stale: Vec<Stale>, gate: StoreGate) {
        for Stale { tracker, keys } in stale {
            let mut bytes = Vec::new();
            write::array_len(&mut bytes, keys.len());
            keys.iter().for_each(|key| write::bulk(&mut bytes, key));
            self.send_invalidation(&tracker, Some(Payload::new(bytes, &self.client_memory)), gate);
        }
    }

    /// Sends a message about keys, or about all of them, to a client or to the one that it redirects to.
    pub(crate) fn send_invalidation(&self, tracker: &Tracker, keys: Option<Arc<Payload>>, gate: StoreGate) {
        let redirect = tracker.options.redirect;
        let listens = |client: &Arc<Client>| !client.is_handed_on();
        let (session, worker) = match (redirect, self.clients.get(redirect).filter(listens)) {
            (0, _) => (tracker.session, tracker.worker),
            (_, Some(client)) => {
                client.hears_for_others.store(true, Ordering::Relaxed);
                (client.id, client.worker)
            }
            (_, None) => {
                tracker.is_broken.store(true, Ordering::Relaxed);
                return self.notify(tracker.worker, Notice::RedirectBroken { session: tracker.session, redirect });
            }
        };
        self.notify(worker, Notice::Invalidate { session, is_redirected: redirect != 0, keys, gate });
    }
}
