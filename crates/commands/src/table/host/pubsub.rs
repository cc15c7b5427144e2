//! Publish and subscribe.

use crate::error::Result;
use std::sync::Arc;

/// The subscriptions of the running command's client, and those of all clients.
pub trait PubSub {
    /// The names of the channels or patterns that the client has subscribed to, in order.
    fn subscriptions(&self, kind: Channels) -> Vec<Arc<[u8]>>;

    /// The number of the client's subscriptions: shard channels are counted by themselves, the others together.
    fn subscription_count(&self, kind: Channels) -> usize;

    /// Adds a subscription and returns [`PubSub::subscription_count`] with it.
    fn subscribe(&mut self, kind: Channels, name: &[u8]) -> usize;

    /// Ends a subscription, if there is such a one, and returns [`PubSub::subscription_count`] without it.
    fn unsubscribe(&mut self, kind: Channels, name: &[u8]) -> usize;

    /// Sends a message to all subscribers of its channel, when the command has taken effect. Returns how many get it.
    ///
    /// # Errors
    /// [`Stop::Long`](haypile_store::Stop::Long) on an event loop where many patterns take long to match: the engine
    /// runs the command on the I/O pool.
    fn publish(&mut self, kind: Channels, channel: &[u8], message: &[u8]) -> Result<usize>;

    /// The channels that have subscribers.
    ///
    /// # Errors
    /// [`Stop::Long`](haypile_store::Stop::Long) on an event loop where there are many channels: the engine runs the
    /// command on the I/O pool.
    fn channels(&self, kind: Channels) -> Result<Vec<Arc<[u8]>>>;

    /// The number of clients that have subscribed to a channel.
    fn subscribers(&self, kind: Channels, name: &[u8]) -> usize;

    /// The number of patterns that have subscribers.
    fn patterns(&self) -> usize;
}

/// The kind of a subscription's name. Messages to shard channels reach only their own subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channels {
    Plain,
    /// All channels that match.
    Pattern,
    Shard,
}
