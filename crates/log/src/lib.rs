//! The log: the one place where a change becomes durable, and the order in which all changes happened.
//!
//! This crate owns segments on disk, the sequencer that gives each record its index, writing and syncing in
//! groups, what is found at open, retention, and readers that follow. It never interprets a record's body
//! beyond splitting it into effects, and it names no other crate of this project.
//!
//! The format is described in `docs/format/log.md`. Read next: [`log`](Log) for the story of an append,
//! `survey.rs` for the story of an open, `sync.rs` for what happens when a disk fails.

mod begin;
mod body;
mod budget;
mod chunk;
mod close;
mod copy;
mod directory;
mod dump;
mod durable;
mod end;
mod error;
mod export;
mod files;
mod format;
mod group;
mod histories;
mod inspect;
mod listing;
mod locks;
mod log;
mod noting;
mod options;
mod phase;
mod queue;
mod reader;
mod record;
mod replay;
mod reserve;
mod segment;
mod space;
mod state;
mod stats;
mod survey;
mod sync;
pub mod testing;
mod unchanged;
mod walk;
mod watch;
mod write;

pub use body::{Body, BodyError, Effect, Effects, Placed, body_crc, effects};
pub use chunk::{Chunk, ChunkError, ChunkRecords, Chunks, Cut as ChunkCut};
pub use close::Closed;
pub use copy::{Copy, ExportError, Exported};
pub use directory::DirectoryId;
pub use dump::{Dump, DumpEntry, dump};
pub use durable::Durability;
pub use end::EndFile;
pub use error::{ADVICE, Damage, OpenError, SyncError};
pub use export::Hold;
pub use files::{DiskFiles, File, Files, read_exact_at, write_all_at};
pub use format::{
    EntrySpan, FORMAT_VERSION, GROUP_HEADER_BYTES, History, HistoryStart, Index, Kind, Origin, RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
};
pub use histories::{Applied, Histories};
pub use inspect::{Inspected, ReadOnlyFiles, inspect};
pub use log::{Log, Opened};
pub use options::{Options, Retention};
pub use queue::NotNext;
pub use reader::{Chain, Next, Reader, Through};
pub use record::Record;
pub use replay::{Progress, Replay};
pub use reserve::{AppendError, Reservation};
pub use stats::Stats;
pub use survey::Cut;
pub use unchanged::UnchangedFiles;
pub use watch::Look;
