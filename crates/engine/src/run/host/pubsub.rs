//! Publish and subscribe.

use crate::clients::pubsub::{Change, STEPS_AT_ONCE, add_new};
use crate::clients::session::Effect;
use crate::run::host::SessionHost;
use haypile_commands::host::{Audience, Channels, PubSub};
use haypile_commands::{Error, Result};
use haypile_store::Stop;
use std::sync::Arc;

/// Channels that an event loop looks at in one command.
const CHANNELS_AT_ONCE: usize = 4096;

impl PubSub for SessionHost<'_, '_> {
    fn subscriptions(&self, kind: Channels) -> Vec<Arc<[u8]>> {
        self.state.subscriptions.of(kind).iter().cloned().collect()
    }

    fn subscription_count(&self, kind: Channels) -> usize {
        self.state.subscriptions.count(kind)
    }

    fn is_subscribed(&self, kind: Channels, name: &[u8]) -> bool {
        self.state.subscriptions.of(kind).contains(name)
    }

    fn audience(&self, kind: Channels, channel: &[u8]) -> Result<Audience> {
        // Without data there is no I/O pool yet.
        let may_take_long = self.may_wait || self.engine.store().is_none();
        let steps = if may_take_long { u64::MAX } else { STEPS_AT_ONCE };
        let Some(mut audience) = self.engine.pubsub.audience(kind, channel, steps) else {
            return Err(Error::Stop(Stop::Long));
        };
        self.add_own(kind, channel, &mut audience);
        let is_stated = || self.engine.store().is_some_and(|store| store.is_told());
        // The messages of a Redis that is followed go on to one that follows this server, as in Redis.
        audience.replicas = is_stated() || self.engine.replication.listeners.any() && !self.engine.is_replica();
        Ok(audience)
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

impl SessionHost<'_, '_> {
    /// Adds to an audience the subscriptions that the client has begun in the block under way, and no longer counts
    /// those that it has ended there.
    fn add_own(&self, kind: Channels, channel: &[u8], audience: &mut Audience) {
        let mut ended = 0;
        for effect in &self.state.effects {
            let Effect::Subscription(Change { kind: of, name, subscribed }) = effect else { continue };
            let gets = match (kind, of) {
                (Channels::Plain, Channels::Pattern) => haypile_config::glob::matches(name, channel, false),
                _ => kind == *of && **name == *channel,
            };
            match (gets, subscribed, self.engine.clients.get(self.session)) {
                (true, true, Some(client)) => add_new(audience, *of, name, client.worker),
                (true, false, _) => ended += 1,
                _ => {}
            }
        }
        audience.count = audience.count.saturating_sub(ended);
    }
}
