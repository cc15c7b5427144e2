//! The commands: a table that describes each of them, and the function that runs it.
//!
//! A command is one `const` entry and one function, in the file of its group; everything else that knows a command
//! walks the table. This crate names no socket and no row: it asks [`haypile_store::Txn`] through `haypile-types`, or
//! the session through [`Host`].
//!
//! Read [`table`] first, then any group (`string/`), then [`lookup`] for the way from a request to its command.

pub mod table;

pub mod args;
mod before;
pub mod call;
pub mod changes;
mod command_id;
pub mod error;
pub mod flags;
pub mod keyspec;
pub mod migration;
mod names;
pub mod redact;
pub mod rights;
pub mod statement;
pub mod syntax;

mod bitmap;
mod blocking;
mod elements;
mod geo;
mod hash;
mod hyperloglog;
mod list;
mod set;
mod stream;
mod string;
mod zset;

pub mod keys;
pub mod transfer;

pub mod function;
pub mod script;

mod session;

mod debug;
mod memory;
mod server;

pub mod compatibility;

pub use args::Args;
pub use call::{call, call_host};
pub use command_id::CommandId;
pub use error::{Error, Result};
pub use host::Host;
pub use lookup::{Entry, Table};
pub use names::is_http;
pub use server::acl::wrong_rule;
pub use table::{
    Access, Awaited, Begin, Body, Command, Control, ElementArgs, Find, Flag, Group, KeySpec, Selects, Tried,
};
pub use table::{host, lookup};

/// The version of Redis that clients are told: commands and replies are those of 7.2, and fields of hashes have
/// deadlines as in 7.4, from which on libraries offer their caches (redis-py).
pub const REDIS_VERSION: &str = "7.4.0";

/// The entries of all groups, in the order of the documentation.
pub(crate) fn groups() -> &'static [&'static [Command]] {
    &[
        string::COMMANDS,
        string::compare::COMMANDS,
        string::counter::COMMANDS,
        string::increx::COMMANDS,
        string::several::COMMANDS,
        string::lcs::COMMANDS,
        string::substring::COMMANDS,
        bitmap::COMMANDS,
        bitmap::field::COMMANDS,
        hyperloglog::COMMANDS,
        hash::COMMANDS,
        hash::expire::COMMANDS,
        list::COMMANDS,
        list::middle::COMMANDS,
        list::moving::COMMANDS,
        list::moving_many::COMMANDS,
        blocking::COMMANDS,
        set::COMMANDS,
        set::random::COMMANDS,
        set::algebra::COMMANDS,
        set::card::COMMANDS,
        zset::COMMANDS,
        geo::COMMANDS,
        stream::COMMANDS,
        stream::group::COMMANDS,
        stream::nack::COMMANDS,
        stream::idempotency::COMMANDS,
        stream::read_group::COMMANDS,
        stream::claim::COMMANDS,
        keys::COMMANDS,
        keys::expire::COMMANDS,
        keys::dump::COMMANDS,
        keys::migrate::COMMANDS,
        keys::scan::COMMANDS,
        keys::sort::COMMANDS,
        server::database::COMMANDS,
        session::connection::COMMANDS,
        session::client::COMMANDS,
        session::pubsub::COMMANDS,
        server::COMMANDS,
        server::backup::COMMANDS,
        changes::COMMANDS,
        server::compact::COMMANDS,
        server::slowlog::COMMANDS,
        server::latency::COMMANDS,
        server::introspect::COMMANDS,
        session::monitor::COMMANDS,
        session::transactions::COMMANDS,
        script::COMMANDS,
        function::COMMANDS,
        server::replication::COMMANDS,
        server::acl::COMMANDS,
        server::modules::COMMANDS,
        server::lolwut::COMMANDS,
        keys::object::COMMANDS,
        memory::COMMANDS,
        debug::COMMANDS,
        server::cluster::COMMANDS,
        server::group::COMMANDS,
    ]
}
