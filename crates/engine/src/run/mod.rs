//! The runs: commands on an event loop and on the I/O pool, blocks, active expiry, MIGRATE, and what takes the data
//! away and brings them back.

pub(crate) mod engine;
pub(crate) mod worker;

pub(crate) mod ahead;
pub(crate) mod beside;
pub(crate) mod blocking;
pub(crate) mod execute;
pub(crate) mod movers;
pub(crate) mod multi;
pub(crate) mod protocol;
pub(crate) mod repeat_together;
pub(crate) mod reply;
pub(crate) mod script;
pub(crate) mod script_server;
pub(crate) mod scripts;
pub(crate) mod serving;
pub(crate) mod short;
pub(crate) mod show_changes;
pub(crate) mod together;
pub(crate) mod wait;
pub(crate) mod work;

pub(crate) mod lane;
pub(crate) mod pool;

pub(crate) mod archive;
pub(crate) mod backups;
pub(crate) mod compactions;
pub(crate) mod expiry;
pub(crate) mod group;
pub(crate) mod group_users;
pub(crate) mod migrate;
pub(crate) mod reload;
pub(crate) mod replication;

pub(crate) mod carry_out;
pub(crate) mod check;
pub(crate) mod count;
pub(crate) mod held_back;
pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod invalidate;
pub(crate) mod limit;
pub(crate) mod monitor;
pub(crate) mod notices;
pub(crate) mod proxy;
pub(crate) mod publish;
pub(crate) mod room;
pub(crate) mod subscribing;
pub(crate) mod users;

pub(crate) mod figures;
pub(crate) mod memory;
