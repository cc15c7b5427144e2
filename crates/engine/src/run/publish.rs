//! The way of a message from a command, or from a change of keys, to the event loops of its subscribers.

use crate::clients::inbox::Notice;
use crate::clients::pubsub::{Message, Name, Payload};
use crate::run::engine::Engine;
use haypile_commands::host::{Audience, Channels};
use haypile_log::Index;
use haypile_store::{KeyEvent, Txn};
use haypile_types::event;
use std::sync::Arc;

impl Engine {
    /// Tells of what a transaction has done to keys, as Redis does by `notify-keyspace-events`. The caller still holds its
    /// locks.
    #[cold]
    pub(crate) fn tell(&self, txn: &Txn<'_>) {
        let classes = self.events();
        let publish = |channel: Vec<u8>, payload: &[u8]| {
            // In the order in which the keys change, under their locks: it cannot be left to others.
            let Some(audience) = self.pubsub.audience(Channels::Plain, &channel, u64::MAX) else { return };
            let payload = Payload::bulk(payload, &self.client_memory);
            self.publish(Channels::Plain, channel.into(), payload, audience, txn.gate());
        };
        for KeyEvent { name, database, key } in txn.events() {
            if classes & event::KEYSPACE != 0 {
                publish([format!("__keyspace@{database}__:").as_bytes(), key].concat(), name.as_bytes());
            }
            if classes & event::KEYEVENT != 0 {
                publish(format!("__keyevent@{database}__:{name}").into_bytes(), key);
            }
        }
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
