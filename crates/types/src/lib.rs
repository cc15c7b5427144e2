//! The data types: how values lie in rows, and the operations on them, over a `Txn`. Never names a reply or a command,
//! and knows neither cache nor memtable. The bytes are described in docs/format/rows.md.
//!
//! Reading order: `key` (type, deadline, owner, counters), `string` (strings, short and long), `hash`, `set`, `list`
//! (with `listpack`), `stream`, `chunks` (how a long string lies in rows), `packed` and `element` (how collections lie
//! in one row or in many), `walk` (cursors and random elements), `geo` (scores that are geospatial positions), `make`
//! (values made as a whole), `value` (operations of all types), `integer` and `extended` (numbers as Redis reads and
//! prints them).

pub mod key;
pub mod string;

pub mod bitmap;
pub mod hyperloglog;

pub mod hash;
pub mod set;

pub mod list;
pub mod listpack;

pub mod stream;

pub mod ahead;
pub mod chunks;
pub mod element;
pub mod make;
pub mod packed;
pub mod ranks;
pub mod score;
pub mod value;
pub mod walk;
pub mod zset;

pub mod geo;

pub mod extended;
pub mod integer;

pub mod event;
pub mod limits;

pub mod check;

mod error;

pub use error::{Error, Result};
pub use limits::EncodingLimit;
