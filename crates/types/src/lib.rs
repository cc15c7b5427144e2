//! The data types: how values lie in rows, and the operations on them, over a `Txn`. Never names a reply or a command,
//! and knows neither cache nor memtable. The bytes are described in docs/format/rows.md.
//!
//! Reading order: `key` (what a key is: type, deadline, owner, counters), `string` (strings, short and long),
//! `chunks` (how a long string lies in rows), `packed` and `element` (how collections lie in one row or in many), `value`
//! (what all types can do), `integer` and `extended` (numbers as Redis reads and
//! prints them).

pub mod key;
pub mod string;

pub mod chunks;
pub mod element;
pub mod packed;
pub mod value;

pub mod extended;
pub mod integer;

pub mod event;

mod error;

pub use error::{Error, Result};
