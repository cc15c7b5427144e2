//! The commands: a table that describes each of them, and the function that runs it.
//!
//! A command is one `const` entry and one function, in the file of its group; everything else that knows a command walks the
//! table. This crate names no socket and no row: it asks [`haypile_store::Txn`] through `haypile-types`, or the session
//! through [`Host`].
//!
//! Read [`table`] first, then any group (`string.rs`), then [`lookup`] for the way from a request to its command.

pub mod table;

pub mod args;
pub mod error;
pub mod flags;
pub mod host;
pub mod keyspec;
pub mod lookup;
mod names;
pub mod redact;
pub mod syntax;

mod string;

mod counter;
mod lcs;
mod substring;

mod bitfield;
mod bitmap;
mod hyperloglog;

mod elements;
mod hash;
mod hash_expire;
mod hash_random;

mod list;
mod list_middle;
mod list_move;

mod blocking;
mod set;

mod set_algebra;
mod set_random;

mod stream;
mod stream_claim;
mod stream_footprint;
mod stream_group;
mod stream_group_info;
mod stream_id;
mod stream_info;
mod stream_range;
mod stream_read;
mod stream_read_group;

mod zset;
mod zset_combine;
mod zset_pop;
mod zset_random;
mod zset_range;

mod geo;
mod geo_found;
mod geo_search;

mod keys;

mod database;
pub mod dump;
mod expire;
pub mod migrate;
mod scan;
mod sort;
mod sort_large;

mod backup;
mod client;
mod connection;
mod pubsub;

mod introspect;
mod latency;
mod monitor;
mod server;
mod slowlog;
mod transactions;

mod acl;
mod cluster;
mod debug;
mod debug_protocol;
mod digest;
mod footprint;
mod lolwut;
mod memory;
mod modules;
mod object;
mod reload;
mod replication;

pub mod transfer;

pub mod compatibility;

pub use args::Args;
pub use error::{Error, Result};
pub use host::Host;
pub use lookup::{CommandId, Entry, Table};
pub use names::is_http;
pub use table::{Awaited, Command, Control, ElementArgs, Flag, Run, Tried};

/// The version of Redis whose behaviour this server has; HELLO and INFO report it.
pub const REDIS_VERSION: &str = "7.2.0";

/// The entries of all groups, in the order of the documentation.
pub(crate) fn groups() -> &'static [&'static [Command]] {
    &[
        string::COMMANDS,
        counter::COMMANDS,
        lcs::COMMANDS,
        substring::COMMANDS,
        bitmap::COMMANDS,
        bitfield::COMMANDS,
        hyperloglog::COMMANDS,
        hash::COMMANDS,
        hash_expire::COMMANDS,
        list::COMMANDS,
        list_middle::COMMANDS,
        list_move::COMMANDS,
        blocking::COMMANDS,
        set::COMMANDS,
        set_random::COMMANDS,
        set_algebra::COMMANDS,
        zset::COMMANDS,
        geo::COMMANDS,
        stream::COMMANDS,
        stream_group::COMMANDS,
        stream_read_group::COMMANDS,
        stream_claim::COMMANDS,
        keys::COMMANDS,
        expire::COMMANDS,
        dump::COMMANDS,
        migrate::COMMANDS,
        scan::COMMANDS,
        sort::COMMANDS,
        database::COMMANDS,
        connection::COMMANDS,
        client::COMMANDS,
        pubsub::COMMANDS,
        server::COMMANDS,
        backup::COMMANDS,
        slowlog::COMMANDS,
        latency::COMMANDS,
        introspect::COMMANDS,
        monitor::COMMANDS,
        transactions::COMMANDS,
        replication::COMMANDS,
        acl::COMMANDS,
        modules::COMMANDS,
        lolwut::COMMANDS,
        object::COMMANDS,
        memory::COMMANDS,
        debug::COMMANDS,
        cluster::COMMANDS,
    ]
}
