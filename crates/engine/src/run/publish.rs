//! The way of a message from a command, or from a change of keys, to the event loops of its subscribers.

use crate::clients::inbox::Notice;
use crate::clients::pubsub::{Message, Name, Payload, STEPS_AT_ONCE};
use crate::run::engine::Engine;
use haypile_commands::host::{Audience, Channels};
use haypile_log::Index;
use haypile_store::{KeyEvent, Txn};
use haypile_types::event;
use std::sync::Arc;

impl Engine {
    /// Tells of what a transaction has done to keys, as Redis does by `notify-keyspace-events`. The caller still holds
    /// its locks.
    #[cold]
    pub(crate) fn tell(&self, txn: &Txn<'_>) {
        for (channel, payload) in self.notifications(txn) {
            // In the order in which the keys change, under their locks: it cannot be left to others.
            let Some(audience) = self.pubsub.audience(Channels::Plain, &channel, u64::MAX) else { return };
            let payload = Payload::bulk(payload, &self.client_memory);
            self.publish(Channels::Plain, channel.into(), payload, audience, txn.gate());
        }
    }

    /// Whether patterns take longer to be matched for what `tell` has to say than an event loop spends on it.
    #[cold]
    pub(crate) fn is_long_to_tell(&self, txn: &Txn<'_>) -> bool {
        let mut steps = STEPS_AT_ONCE;
        self.notifications(txn).any(|(channel, _)| !self.pubsub.matches_within(&channel, &mut steps))
    }

    /// The channels that hear of what a transaction has done to keys, each with what it is sent.
    fn notifications<'t>(&self, txn: &'t Txn<'_>) -> impl Iterator<Item = (Vec<u8>, &'t [u8])> {
        let classes = self.events();
        txn.events().iter().flat_map(move |KeyEvent { name, database, key }| {
            let of_key = (classes & event::KEYSPACE != 0)
                .then(|| ([format!("__keyspace@{database}__:").as_bytes(), key].concat(), name.as_bytes()));
            let of_event = (classes & event::KEYEVENT != 0)
                .then(|| (format!("__keyevent@{database}__:{name}").into_bytes(), &key[..]));
            of_key.into_iter().chain(of_event)
        })
    }

    /// Sends a message to its audience, which was just asked for.
    pub(crate) fn publish(
        &self,
        kind: Channels,
        channel: Name,
        payload: Arc<Payload>,
        audience: Audience,
        gate: Index,
    ) {
        if audience.workers.is_empty() {
            return;
        }
        let message = Arc::new(Message::new(kind, channel, payload, audience.patterns, gate));
        audience.workers.iter().for_each(|&worker| self.notify(worker as usize, Notice::Message(message.clone())));
    }
}
