//! Publish and subscribe.

use crate::error::Result;
use smallvec::SmallVec;
use std::sync::Arc;

/// The subscriptions of the running command's client, and those of all clients.
pub trait PubSub {
    /// The names of the channels or patterns that the client has subscribed to, in order.
    fn subscriptions(&self, kind: Channels) -> Vec<Arc<[u8]>>;

    /// The number of the client's subscriptions: shard channels are counted by themselves, the others together.
    fn subscription_count(&self, kind: Channels) -> usize;

    /// Whether the client has this subscription.
    fn is_subscribed(&self, kind: Channels, name: &[u8]) -> bool;

    /// The subscribers of a channel, those among them that the same block subscribes.
    ///
    /// # Errors
    /// [`Stop::Long`](haypile_store::Stop::Long) on an event loop where many patterns take long to match: the engine
    /// runs the command on the I/O pool.
    fn audience(&self, kind: Channels, channel: &[u8]) -> Result<Audience>;

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

/// The subscribers that get a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// The number of times that the message is delivered.
    pub count: usize,
    /// The event loops of the subscribers, each once.
    pub workers: SmallVec<[u16; 8]>,
    /// The patterns that match the channel.
    pub patterns: Vec<Arc<[u8]>>,
    /// Whether replicas are to be told as well. Their subscribers do not count.
    pub replicas: bool,
}
