//! The way of a message from a command, or from a change of keys, to the event loops of its subscribers.

use crate::clients::inbox::Notice;
use crate::clients::pubsub::{Message, Name, Payload, STEPS_AT_ONCE};
use crate::keys::gate::StoreGate;
use crate::run::engine::Engine;
use crate::run::replication::messages::Told;
use haypile_commands::host::{Audience, Channels};
use haypile_store::{KeyEvent, Txn};
use haypile_types::event;
use std::sync::Arc;

impl Engine {
    /// Tells of what a transaction has done to keys, as Redis does by `notify-keyspace-events`. The caller still holds
    /// its locks: it is told in the order in which the keys change, and cannot be left to others.
    #[cold]
    pub(crate) fn tell(&self, txn: &Txn<'_>) {
        let gate = self.gate_at(txn.gate());
        txn.events().iter().for_each(|event| self.publish_event(event, gate));
        if self.replication.listeners.any() {
            self.tell_replicas(txn);
        }
    }

    /// Publishes an event of a key on the channels on which clients of this server hear of it.
    pub(crate) fn publish_event<N: AsRef<str>>(&self, event: &KeyEvent<N>, gate: StoreGate) {
        for (channel, payload) in self.notifications(event) {
            let Some(audience) = self.pubsub.audience(Channels::Plain, &channel, u64::MAX) else { return };
            let payload = Payload::bulk(payload, &self.client_memory);
            self.publish(Channels::Plain, channel.into(), payload, audience, gate);
        }
    }

    /// Whether patterns take longer to be matched for what `tell` has to say than an event loop spends on it.
    #[cold]
    pub(crate) fn is_long_to_tell(&self, txn: &Txn<'_>) -> bool {
        let mut steps = STEPS_AT_ONCE;
        let mut channels = txn.events().iter().flat_map(|event| self.notifications(event));
        channels.any(|(channel, _)| !self.pubsub.matches_within(&channel, &mut steps))
    }

    /// The channels that hear of an event of a key, each with what it is sent.
    fn notifications<'t, N: AsRef<str>>(
        &self,
        event: &'t KeyEvent<N>,
    ) -> impl Iterator<Item = (Vec<u8>, &'t [u8])> + use<'t, N> {
        let KeyEvent { class, name, database, key } = event;
        let own = self.own_events();
        let classes = if own & class != 0 { own } else { 0 };
        let name = name.as_ref();
        let of_key = (classes & event::KEYSPACE != 0)
            .then(|| ([format!("__keyspace@{database}__:").as_bytes(), key].concat(), name.as_bytes()));
        let of_event = (classes & event::KEYEVENT != 0)
            .then(|| (format!("__keyevent@{database}__:{name}").into_bytes(), &key[..]));
        of_key.into_iter().chain(of_event)
    }

    /// Sends a message to its audience, which was just asked for.
    pub(crate) fn publish(
        &self,
        kind: Channels,
        channel: Name,
        payload: Arc<Payload>,
        audience: Audience,
        gate: StoreGate,
    ) {
        if audience.replicas {
            let told =
                Told::Message { is_shard: kind == Channels::Shard, channel: channel.clone(), payload: payload.clone() };
            if !self.is_replica() {
                self.replication.listeners.tell(gate, &told);
            }
            self.state_message(kind, &channel, payload.text());
        }
        if audience.workers.is_empty() {
            return;
        }
        let message = Arc::new(Message::new(kind, channel, payload, &audience, gate));
        audience.workers.iter().for_each(|&worker| self.notify(worker as usize, Notice::Message(message.clone())));
    }
}
