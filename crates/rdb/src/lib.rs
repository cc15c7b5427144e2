//! Redis's file format (RDB) and the payloads of DUMP: read and written. Owns these bytes and nothing else: knows
//! neither a key's place nor a type's operations, and names no other crate of this project.
//!
//! Reading hands values over element by element, so that a hash of ten million fields needs no memory of its size:
//! [`read_file`] gives a whole file to a [`Sink`] as [`Event`]s, [`Payload::read`] the value of a DUMP payload as
//! [`Part`]s. All that Redis has ever written for its own types is read: ziplists, zipmaps, intsets, listpacks,
//! quicklists, the streams of 5.0 to 7.2, the hashes of 7.4 whose fields have deadlines. A count or a length that a
//! file claims never decides how much is allocated: only bytes that are there do. The sink, which has the elements,
//! finds out whether they repeat.
//!
//! Writing ([`Writer`]) uses the oldest types that can hold a value, which need no more than its count beforehand: the
//! result loads into any Redis since 5.0 (streams: 7.0), but for hashes whose fields have deadlines (7.4).
//!
//! Reading order: [`event`] (the content of a file), [`file`](mod@file), [`payload`], [`value`] and [`stream`] (how
//! values lie in it), [`encoded`] (lengths and strings), [`listpack`], [`ziplist`], [`zipmap`] and [`intset`] (values
//! in one string), [`lzf`], [`source`] (where bytes come from), `text` (long strings, a piece at a time) and [`tape`]
//! (a recording of them), [`writer`] and [`nodes`].
//!
//! ```
//! use haypile_rdb::{Kind, Memory, Part, Payload, Writer};
//!
//! let mut writer = Writer::new(Memory::new(1 << 20));
//! writer.kind(Kind::Set)?;
//! writer.length(2)?;
//! writer.string(b"hay")?;
//! writer.string(b"1024")?;
//! let dump = writer.seal();
//!
//! let mut members = Vec::new();
//! Payload::check(&dump)?.read::<std::fmt::Error>(|part| match part {
//!     Part::Element(member) => Ok(members.push(member.to_vec())),
//!     _ => Err(std::fmt::Error),
//! })?;
//! assert_eq!(members, [b"hay".to_vec(), b"1024".to_vec()]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod event;

pub mod file;
pub mod payload;

pub mod form;
pub mod stream;
pub mod value;

pub mod encoded;
pub mod intset;
pub mod listpack;
pub mod lzf;
pub mod ziplist;
pub mod zipmap;

mod input;
pub mod source;
pub mod tape;
mod text;

pub mod nodes;
mod recode;
pub mod writer;

pub mod checksum;
mod error;
pub mod item;
pub mod testing;

pub use error::{Error, Failure, Why};
pub use event::{Event, Fields, Idempotency, Key, Kind, Part, Sink, StreamHead, StreamId};
pub use file::{Summary, read_file, read_file_recorded};
pub use input::Input;
pub use payload::{Payload, Seal};
pub use source::{Slice, Source};
pub use tape::{Beginning, Tape};
pub use writer::{File, Measure, Measured, Memory, Output, Writer};

/// The newest version of the format that is read: that of Redis 8.10.
pub const VERSION_MAX: u16 = 15;

/// The version that is written: that of Redis 7.0.
pub const VERSION: u16 = 10;

/// The version that is written where fields of a hash have deadlines: that of Redis 7.4.
pub const VERSION_WITH_FIELD_DEADLINES: u16 = 12;
