//! `replicas-to-ack`: replies that wait until replicas have what they depend on, and what happens when these are late.
//!
//! The log counts what is confirmed (`Log::confirmed`); here is who confirms it. Since when what has been waiting is
//! in `confirmations`. Whether a reply that waited too long has taken effect for good cannot be known: its connection
//! ends. So does each whose replies wait when the data are taken away, because the server follows another one.

use crate::clients::session::Session;
use crate::keys::gate::StoreGate;
use crate::run::engine::Engine;
use crate::run::replication::confirmations::{Confirmed, Look};
use haypile_config::{Config, Durability, OnLateReplicas};
use haypile_log::Index;
use haypile_store::Store;
use std::time::{Duration, Instant};

impl Engine {
    /// A replica has acknowledged something: replies that wait for it are looked at.
    pub fn on_acknowledged(&self) {
        self.blocked.on_sync();
        let config = self.settings.config();
        let replicas = config.replication.replicas_to_ack as usize;
        if replicas == 0 {
            return;
        }
        // The replicas of this version have the records of this store, unless it is exchanged in between.
        let version = self.store_version();
        let Some(store) = self.store() else { return };
        if self.store_version() != version || store.follows() {
            return;
        }
        let through = self.replication.acknowledged_by(replicas, version, config.durability == Durability::Fsync);
        store.log().confirm(through);
        if self.replication.confirmations.are_late() {
            self.look_at_confirmations();
        }
    }

    /// Looks how long records have been waiting for replicas: to be called about ten times a second, and when what this
    /// depends on changes.
    pub fn look_at_confirmations(&self) {
        self.look_at_confirmations_by(&self.settings.config());
    }

    /// Looks how long records have been waiting for replicas, by settings that are about to come into force.
    pub fn look_at_confirmations_by(&self, config: &Config) {
        let Some(store) = self.store() else { return };
        if config.replication.replicas_to_ack == 0 || store.follows() {
            self.replication.confirmations.end();
            return self.obey(&store, config);
        }
        let timeout = Some(config.replication.ack_timeout_ms).filter(|timeout_ms| *timeout_ms > 0);
        let look = Look {
            version: self.store_version(),
            durable: store.log().durable(),
            confirmed: store.log().confirmed_by_others(),
            timeout: timeout.map(Duration::from_millis),
            on_late: config.replication.on_late_replicas,
            now: Instant::now(),
        };
        self.replication.confirmations.look(look);
        self.obey(&store, config);
    }

    /// Has the store do what is to be done when replicas are late, or are not.
    fn obey(&self, store: &Store, config: &Config) {
        self.ask_replicas(store, config);
        store.set_lacks_replicas(self.lacks_replicas());
    }

    /// Sets whether replies wait for replicas: before the store is put in place, and when what that depends on changes.
    ///
    /// Invariant: a store that leads asks until it is closed, also when it is to follow.
    pub(crate) fn ask_replicas(&self, store: &Store, config: &Config) {
        let is_asked = config.replication.replicas_to_ack > 0 && !store.follows();
        let goes_on = self.replication.confirmations.late() == Some(OnLateReplicas::GoOn);
        store.log().ask_others(is_asked && !goes_on);
    }

    /// Whether writes are refused because replicas are late.
    pub(crate) fn refuses_for_late_replicas(&self) -> bool {
        self.replication.confirmations.late() == Some(OnLateReplicas::Refuse)
    }

    /// Returns the last record that has waited too long for replicas, if there is one: replies that wait for it, or for
    /// one before it, are given up.
    #[inline]
    pub fn overdue(&self) -> Option<Index> {
        self.replication.confirmations.overdue()
    }

    /// Returns the newest record that the session's replies depend on; None if that was of a store that is no longer
    /// there, and nobody knows whether replicas have it. Records of a store before this one are on the disk.
    #[inline]
    pub fn gate_of(&self, session: &Session) -> Option<Index> {
        match session.gate_of(self.store_version()) {
            _ if session.is_lost => None,
            Some(gate) => Some(gate),
            None => (!self.has_lost(session)).then_some(Index(0)),
        }
    }

    /// Whether the newest record that the session's replies depend on is of a store before this one.
    pub fn is_of_former_store(&self, session: &Session) -> bool {
        session.gate() > Index(0) && session.gate_of(self.store_version()).is_none()
    }

    /// Whether the session depends on a record of a store before this one that replicas had not confirmed.
    #[cold]
    pub(crate) fn has_lost(&self, session: &Session) -> bool {
        self.is_lost(StoreGate { index: session.gate(), version: session.store_version })
    }

    /// Whether the record is one of a store that was taken away before replicas had confirmed it.
    pub(crate) fn is_lost(&self, gate: StoreGate) -> bool {
        self.replication.confirmations.is_lost(gate)
    }

    /// Notes what is confirmed of a store that is about to be taken away.
    pub(crate) fn note_unconfirmed(&self, store: &Store) {
        let log = store.log();
        let confirmed = log.confirmed();
        if log.asks_others() && confirmed < log.last() {
            self.replication.confirmations.note_lost(self.store_version(), confirmed);
        }
    }

    /// Returns the facts for INFO.
    pub(crate) fn confirmations(&self) -> Confirmed {
        self.replication.confirmations.facts()
    }
}
