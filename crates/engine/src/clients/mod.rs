//! The clients: sessions and their inboxes, publish and subscribe, the checks between a client and its commands, the
//! memory that clients take, and what is counted for them.

pub(crate) mod accounts;
pub(crate) mod acts;
pub(crate) mod client;
pub(crate) mod pending;
pub(crate) mod session;
pub(crate) mod steps;
pub(crate) mod usage;

pub(crate) mod blocked;
pub(crate) mod checks;
pub(crate) mod client_memory;
pub(crate) mod inbox;

pub(crate) mod parted_list;
pub(crate) mod parts;
pub(crate) mod patterns;
pub(crate) mod pubsub;
pub(crate) mod push;
pub(crate) mod repeating;
pub(crate) mod tracking;

pub(crate) mod statistics;
