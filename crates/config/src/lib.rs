//! Configuration of Haypile: redis.conf and the command line, the table of all directives, and CONFIG GET, SET and
//! REWRITE.
//!
//! This crate reads files and parses values. It opens no socket, writes no file but the configuration's own, starts
//! nothing and names no other crate of Haypile; the engine and the server share it. Read `table` for the directives,
//! `config` for the fields that the rest of the server reads, `settings` for changes at run time.

mod archive;
pub mod cli;
mod compaction;
pub mod config;
pub mod docs;
pub mod error;
pub mod glob;
pub mod kind;
pub mod load;
pub mod memory;
pub mod read;
mod rewrite;
mod selection;
pub mod settings;
pub mod special;
mod suggest;
pub mod table;
pub mod tls;
pub mod value;
pub mod values;
pub mod words;

pub use archive::Archive;
pub use compaction::{CompactInterval, CompactWindow};
pub use config::{
    ChangeStream, Compression, Config, Durability, Engine, LogFormat, LogLevel, OnLateReplicas, Protected, Rename,
    Share, Size, Supervised, UserLine,
};
pub use error::ConfigError;
pub use load::{Loaded, Note, load};
pub use read::CommandLine;
pub use rewrite::replace as replace_file_with;
pub use selection::{Ranges, Selection};
pub use settings::{Changed, Draft, Refused, Settings};
pub use special::{Bind, Limit};
pub use tls::{AuthClients, KeyFiles, SessionCache, Tls, may_wait};
