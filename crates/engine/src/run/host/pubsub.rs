//! Publish and subscribe.

use crate::clients::pubsub::{Audience, Change, Payload, STEPS_AT_ONCE};
use crate::clients::session::Effect;
use crate::run::host::Desk;
use haypile_commands::host::{Channels, PubSub};
use haypile_commands::{Error, Result};
use haypile_store::Stop;
use std::sync::Arc;

/// Channels that an event loop looks at in one command.
const CHANNELS_AT_ONCE: usize = 4096;

impl PubSub for Desk<'_, '_> {
    fn subscriptions(&self, kind: Channels) -> Vec<Arc<[u8]>> {
        self.state.subscriptions.of(kind).iter().cloned().collect()
    }

    fn subscription_count(&self, kind: Channels) -> usize {
        self.state.subscriptions.count(kind)
    }

    fn subscribe(&mut self, kind: Channels, name: &[u8]) -> usize {
        if !self.state.subscriptions.of(kind).contains(name) {
            let (name, state) = (Arc::<[u8]>::from(name), self.changing());
            Arc::make_mut(&mut state.subscriptions).insert(kind, name.clone());
            state.effects.push(Effect::Subscription(Change { kind, name, subscribed: true }));
        }
        self.state.subscriptions.count(kind)
    }

    fn unsubscribe(&mut self, kind: Channels, name: &[u8]) -> usize {
        if self.state.subscriptions.of(kind).contains(name) {
            let state = self.changing();
            Arc::make_mut(&mut state.subscriptions).remove(kind, name);
            let change = Change { kind, name: name.into(), subscribed: false };
            state.effects.push(Effect::Subscription(change));
        }
        self.state.subscriptions.count(kind)
    }

    fn publish(&mut self, kind: Channels, channel: &[u8], message: &[u8]) -> Result<usize> {
        // Without data there is no I/O pool yet.
        let may_take_long = self.may_wait || self.engine.store().is_none();
        let steps = if may_take_long { u64::MAX } else { STEPS_AT_ONCE };
        let Some(mut audience) = self.engine.pubsub.audience(kind, channel, steps) else {
            return Err(Error::Stop(Stop::Long));
        };
        let count = self.add_own(kind, channel, &mut audience);
        let (channel, payload) = (channel.into(), Payload::bulk(message, &self.engine.client_memory));
        self.changing().effects.push(Effect::Publish { kind, channel, payload, audience });
        Ok(count)
    }

    fn channels(&self, kind: Channels) -> Result<Vec<Arc<[u8]>>> {
        let is_long = self.engine.pubsub.count(kind) > CHANNELS_AT_ONCE && self.engine.store().is_some();
        if is_long && !self.may_wait {
            return Err(Error::Stop(Stop::Long));
        }
        Ok(self.engine.pubsub.channels(kind))
    }

    fn subscribers(&self, kind: Channels, name: &[u8]) -> usize {
        self.engine.pubsub.subscribers(kind, name)
    }

    fn patterns(&self) -> usize {
        self.engine.pubsub.count(Channels::Pattern)
    }
}

impl Desk<'_, '_> {
    /// Adds to an audience what the client has subscribed to and ended in the block under way; how many get the message.
    fn add_own(&self, kind: Channels, channel: &[u8], audience: &mut Audience) -> usize {
        let mut ended = 0;
        for effect in &self.state.effects {
            let Effect::Subscription(Change { kind: of, name, subscribed }) = effect else { continue };
            let gets = match (kind, of) {
                (Channels::Plain, Channels::Pattern) => haypile_config::glob::matches(name, channel, false),
                _ => kind == *of && **name == *channel,
            };
            match (gets, subscribed, self.engine.clients.get(self.session)) {
                (true, true, Some(client)) => audience.add_new(*of, name, client.worker),
                (true, false, _) => ended += 1,
                _ => {}
            }
        }
        audience.count.saturating_sub(ended)
    }
}
