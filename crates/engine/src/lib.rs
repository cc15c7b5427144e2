//! A server without sockets: bytes of a client in, bytes of replies out.
//!
//! Owns sessions, the locks of keys, the execution of commands (inline on an event loop, or on the I/O pool), watched
//! keys, active expiry, and what INFO shows. It never names a socket, a runtime or a file of the data directory: the
//! server gives it a store, calls `Worker::turn` with what a connection has sent, and lets the replies leave when the log
//! is as durable as `Session::gate` asks. It never knows what a command does: that is the command table's.
//!
//! Read `worker` and `execute` first (the hot path), then `wait` (what happens when a command cannot go on), `work` and
//! `pool` (the same command elsewhere), `multi`, and below them `locks`, `exclusion` and `watch`.

mod worker;

mod acts;
mod adopt;
mod ahead;
mod blocked;
mod blocking;
mod execute;
mod movers;
mod multi;
mod reply;
mod together;
mod wait;
mod work;

mod pool;

mod migrate;
mod reload;

mod attention;
mod backups;
mod client_memory;
mod clients;
mod host;
mod http;
mod inbox;
mod session;

mod monitor;
mod patterns;
mod pubsub;

mod engine;
mod expiry;

mod figures;
mod info;
mod memory;

mod counters;
mod statistics;
mod subscribing;

mod watch;

mod serving;
mod waiters;

mod exclusion;
mod locks;

mod sync;

pub use backups::{Archive, Made};
pub use blocked::{Blocked, Unblock};
pub use clients::{Client, Names, Peer};
pub use counters::{Count, Counters, Distribution, Histogram};
pub use engine::{Engine, Loading, Process, StoreRef};
pub use execute::OUTPUT_BYTES_MAX;
pub use inbox::{Inbox, Wake};
pub use info::page::page as info_page;
pub use memory::Allocator;
pub use migrate::{Target, Targets};
pub use pubsub::{Payload, Sink};
pub use reload::Opener;
pub use session::{Event, Session};
pub use statistics::Moment;
pub use worker::{Delivery, Next, Turn, Worker};
