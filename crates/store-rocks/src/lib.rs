//! The base over RocksDB: `Rocks` implements `haypile_store::base::Base`. The only crate that names RocksDB.
//!
//! Read `rocks` first (the trait's calls), then `options` (every setting, and the reason for it), `ingest` (how a flush
//! becomes visible in one step) and `reclaim` (which rows compaction may drop, and why never a live one); `removal` is
//! how fast files are removed, `image` a base that is only read. RocksDB's memtable and log are never written: rows
//! come in as sorted files only, and durability before that is the log's business.

mod cursor;
mod error;
mod events;
mod handle;
mod image;
mod ingest;
mod level0;
mod options;
mod presence;
mod reclaim;
mod removal;
mod rocks;

pub use error::OpenError;
pub use image::Image;
pub use options::{Compression, Options};
pub use rocks::Rocks;
