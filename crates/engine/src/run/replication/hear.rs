//! The messages and events that a master tells: how clients of a replica hear them, and the replicas behind it.

use crate::clients::pubsub::{Payload, STEPS_AT_ONCE};
use crate::keys::gate::StoreGate;
use crate::run::engine::Engine;
use crate::run::replication::messages::{Listener, Told};
use haypile_commands::host::Channels;
use haypile_store::{KeyEvent, Txn};
use haypile_types::event;
use std::sync::Arc;

/// The classes of events that only reads cause: a replica's own clients cause them there.
const OF_READS: u32 = event::KEY_MISS;

impl Engine {
    /// Begins to tell a replica of messages. `wake` is called when there is one.
    pub fn listen(&self, wake: Box<dyn Fn() + Send + Sync>) -> Arc<Listener> {
        self.replication.listeners.add(wake)
    }

    /// Ends what `listen` has begun.
    pub fn end_listening(&self, listener: &Arc<Listener>) {
        self.replication.listeners.remove(listener);
    }

    /// Sets the classes of events that a replica listens for.
    pub fn set_classes(&self, listener: &Listener, classes: u32) {
        self.replication.listeners.set_classes(listener, classes);
    }

    /// Returns the classes of events that this server asks its master for: its own, and those of its replicas.
    pub fn classes_of_replica(&self) -> u32 {
        self.events() & !OF_READS
    }

    /// Tells the replicas of what a transaction has done to keys.
    pub(crate) fn tell_replicas(&self, txn: &Txn<'_>) {
        for KeyEvent { class, name, database, key } in txn.events() {
            if class & self.replication.listeners.classes() & !OF_READS != 0 {
                let event = KeyEvent { class: *class, name: Box::from(*name), database: *database, key: key.clone() };
                self.replication.listeners.tell(self.gate_at(txn.gate()), &Told::Event(event));
            }
        }
    }

    /// Hands what the master tells to the clients of this server, and to its replicas. The record that it tells of has
    /// been applied. Nothing waits for a message: where event loops are behind it is dropped, and this returns false.
    pub fn hear(&self, told: &Told) -> bool {
        let version = self.store_version();
        let Some(index) = self.store().map(|store| store.log().last()) else { return false };
        // While data are exchanged a message is dropped, as it is where event loops are behind.
        if self.store_version() != version {
            return false;
        }
        let gate = StoreGate { index, version };
        let is_heard = !self.is_congested(0);
        if is_heard {
            match told {
                Told::Message { is_shard, channel, payload } => {
                    let kind = if *is_shard { Channels::Shard } else { Channels::Plain };
                    if let Some(audience) = self.pubsub.audience(kind, channel, u64::MAX) {
                        self.publish(kind, channel.clone(), payload.clone(), audience, gate);
                    }
                }
                Told::Event(event) => self.publish_event(event, gate),
            }
        }
        if self.replication.listeners.any() {
            self.replication.listeners.tell(gate, told);
        }
        is_heard
    }

    /// Hands what was published on another member of the group to the clients of this one. Nothing waits for a message:
    /// where event loops are behind it is dropped.
    pub fn hear_of_member(&self, is_shard: bool, channel: &[u8], text: &[u8]) {
        let kind = if is_shard { Channels::Shard } else { Channels::Plain };
        if !self.is_congested(0)
            && let Some(audience) = self.pubsub.audience(kind, channel, STEPS_AT_ONCE)
        {
            // The thread that hears it takes Raft's messages as well: where patterns are long to match it is dropped.
            // The other member has sent it when the group had agreed on all that it tells of.
            let payload = Payload::bulk(text, &self.client_memory);
            self.publish(kind, channel.into(), payload, audience, StoreGate::default());
        }
    }

    /// Makes a message that a master tells.
    pub fn message(&self, is_shard: bool, channel: &[u8], text: &[u8]) -> Told {
        Told::Message { is_shard, channel: channel.into(), payload: Payload::bulk(text, &self.client_memory) }
    }
}
