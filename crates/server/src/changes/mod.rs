//! The change stream: what has been done to the data, record by record, for programs that follow the log.
//!
//! `asked` reads the request, `record` turns a record into JSON, `feed` is a connection of somebody who follows, and
//! `follow` is `haypile log --follow`. The format is in docs/changes.md.

mod asked;
mod feed;
pub mod follow;
mod record;

pub use asked::Asked;
pub use feed::ChangesFeed;
pub use record::{Record, Wanted};

/// The version of the stream's format.
pub const VERSION: u32 = 1;
