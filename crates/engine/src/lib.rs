//! A server without sockets: bytes of a client in, bytes of replies out.
//!
//! Owns sessions, the locks of keys, the execution of commands (inline on an event loop, or on the I/O pool), watched
//! keys, active expiry, and what INFO shows. It never names a socket, a runtime or a file of the data directory: the
//! server gives it a store, calls `Worker::turn` with what a connection has sent, and lets the replies leave when the
//! log is as durable as `Session::gate` asks. It never knows what a command does: that is the command table's.
//!
//! Three floors, and `engine` assembled above them: `keys` (who may touch what), `clients` (who is there) and `run`
//! (what happens). Read `run::worker`, `run::execute` and `run::short` first (the hot path), then `run::protocol` (what
//! all runs have in common), `run::wait` (what happens when a command cannot go on), `run::work` and `run::pool` (the
//! same command elsewhere), `run::multi`, and below them `keys`.

mod engine;

mod info;

mod run;

mod clients;

mod keys;

mod sync;

pub use clients::blocked::{Blocked, Unblock};
pub use clients::client::{Client, Names, Peer};
pub use clients::inbox::{Inbox, Wake};
pub use clients::pending::Event;
pub use clients::pubsub::{Payload, Sink};
pub use clients::push::Push;
pub use clients::session::Session;
pub use clients::statistics::Moment;
pub use clients::statistics::counters::{Count, Counters, Distribution, Histogram};
pub use info::page::page as info_page;
pub use keys::gate::StoreGate;
pub use run::archive::{ArchiveFacts, Archiver, Archiving, BackupFacts};
pub use run::backups::{Archive, Made};
pub use run::engine::{Engine, Loading, Process, StoreRef};
pub use run::group::{Group, GroupFacts, Leader, Member, MemberFacts, MemberSeen, Order, Proxied, WAY_BACK};
pub use run::memory::Allocator;
pub use run::migrate::{Target, Targets};
pub use run::proxy::PROXY;
pub use run::reload::Opener;
pub use run::replication::facts::{
    Downstream, DownstreamState, FailoverStep, Link, Master, Replication, Replicator, Upstream,
};
pub use run::replication::locks::FollowerLocks;
pub use run::replication::marks::Marks;
pub use run::replication::messages::{Listener, Told};
pub use run::replication::repeat::{Repeater, Repetition, Stopped};
pub use run::replication::shown::ShownServer;
pub use run::users::users_of;
pub use run::worker::{Delivery, Next, Turn, Worker};
