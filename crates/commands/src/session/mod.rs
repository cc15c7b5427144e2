//! The commands about connections and what they have open: clients, subscriptions, MULTI, MONITOR.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod monitor;
pub(crate) mod pubsub;
pub(crate) mod tracking;
pub(crate) mod transactions;
