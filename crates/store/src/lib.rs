//! The store: a log, a memtable on top of a base, and the transactions that commands run in.
//!
//! Read `txn` first (a command's access to rows; ordered reads are in `txn::visit`), then `txn::commit` and `apply`
//! (how its writes take effect), `flush` (how they get to the base), `reclaim` (how room comes back), `backup` (a copy
//! while writes go on), `load` (much at once into an empty store), `spool` (rows that are too many for a command's
//! memory) and `open` (how all of it comes back). `memtable`, `cache`, `presence`, `databases`, `facts` and `objects`
//! are the parts below these; `access` and `txn::accesses` note how idle keys are; `base` is the contract of the layer
//! below, `check` checks a directory offline. The store never names RocksDB, a socket or a reply.

mod access;
mod apply;
mod attempts;
mod backup;
pub mod base;
mod cache;
pub mod check;
mod databases;
mod derived;
mod due;
mod facts;
mod figures;
mod flush;
mod follow;
mod lending;
mod load;
mod member;
mod memtable;
mod objects;
mod open;
mod options;
mod origin;
mod presence;
mod random;
mod reclaim;
mod refusal;
mod reserve;
mod role;
mod room;
pub mod row;
mod sparse;
mod spool;
mod stop;
mod store;
mod stretch;
mod stretches;
pub mod testing;
mod tunables;
mod txn;
mod value;
mod watch;

pub use access::{Access, AccessPolicy};
pub use backup::BackedUp;
pub use base::Direction;
pub use base::memory::MemoryBase;
pub use databases::{COUNTERS, Counter, CountsAt, DATABASES_MAX};
pub use derived::Version;
pub use due::Due;
pub use facts::Facts;
pub use flush::WritePressure;
pub use follow::{FollowError, Named, RecordLocks};
pub use haypile_log::{ADVICE, Progress};
pub use load::{Load, LoadError};
pub use member::EntryTurn;
pub use memtable::{Sought, TOGETHER_MAX};
pub use open::OpenError;
pub use options::{DiskFree, StoreOptions};
pub use origin::{Origin, Repeated, STREAM_BYTES};
pub use refusal::Refusal;
pub use reserve::Reserve;
pub use room::{Room, Taken};
pub use row::{Key, ObjectId, ScanPosition, Slot, Space, slot_of};
pub use spool::{Spool, Spooled};
pub use stop::{Mode, Stop};
pub use store::Store;
pub use tunables::{TUNABLES, Tunables};
pub use txn::commit::Committed;
pub use txn::next::NextRows;
pub use txn::view::View;
pub use txn::visit::RowPresence;
pub use txn::{
    Before, Call, Drawn, KeyEvent, KeyLocks, Lacking, Lookups, NOTE, Pins, Presence, Ready, STATEMENTS_BYTES_MAX,
    Savepoint, Txn, TxnBuffers, UNSAID, Unstated, is_stated,
};
pub use value::Value;

/// Returns the wall clock in milliseconds since 1970: for the store's own records. Commands get theirs as a value.
fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
