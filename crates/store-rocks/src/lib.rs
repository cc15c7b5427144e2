//! The base over RocksDB: `Rocks` implements `haypile_store::base::Base`. The only crate that names RocksDB.
//!
//! Read `rocks` first (what the trait's calls become), then `options` (every setting, and the measurement behind it),
//! `ingest` (how a flush becomes visible in one step) and `reclaim` (what compaction may drop, and why it cannot drop a
//! live row); `removal` is how fast files go, `image` a base that is only read. It never writes through RocksDB's
//! memtable or log: rows come in as sorted files only, and durability before that is the log's business.

mod cursor;
mod error;
mod events;
mod handle;
mod image;
mod ingest;
mod options;
mod presence;
mod reclaim;
mod removal;
mod rocks;

pub use error::OpenError;
pub use image::Image;
pub use options::{Compression, Options};
pub use rocks::Rocks;
