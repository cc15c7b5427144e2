//! The Redis serialization protocol: requests are parsed, replies are encoded and decoded.
//!
//! This crate owns the bytes of RESP2 and RESP3 and nothing else: it never touches a socket, a key or a command's
//! meaning, and it names no other crate of this project. A count or a length that a client claims never decides how
//! much is allocated or how often a loop runs; only bytes that have arrived do.
//!
//! Reading order: [`args`] (the arguments of a request), [`parser`] (finding a request in a buffer), [`inline`]
//! (requests typed by hand), [`bytes`], [`elements`] and [`reply`] (the answers), [`mod@write`] (the single elements of
//! a reply), [`pieces`] (replies too long for one buffer), [`decode`] (the way back, for clients and tests), [`number`]
//! (digits to and fro).
//!
//! ```
//! use haypile_resp::{Limits, Parser, Protocol, Reply, Request};
//!
//! let received = b"*2\r\n$4\r\nECHO\r\n$3\r\nhay\r\n\r\nECHO 'a pile'\r\nECH";
//! let mut parser = Parser::new(Limits::default());
//! let (mut at, mut ranges, mut replies) = (0, Vec::new(), Vec::new());
//! while let Some(request) = parser.next(&received[at..], &mut ranges)? {
//!     if !matches!(request, Request::Empty { .. }) {
//!         let args = request.args(&received[at..], &ranges);
//!         Reply::bulk(args.get(1).to_vec()).encode(Protocol::Resp2, &mut replies);
//!     }
//!     at += request.bytes();
//! }
//! assert_eq!(replies, b"$3\r\nhay\r\n$6\r\na pile\r\n");
//! assert_eq!(&received[at..], b"ECH");
//! # Ok::<(), haypile_resp::ProtocolError>(())
//! ```

#![forbid(unsafe_code)]

pub mod args;
pub mod parser;

pub mod inline;

pub mod bytes;
pub mod elements;
pub mod records;
pub mod reply;
pub mod scored;

pub mod write;

pub mod pieces;
mod reply_pieces;

pub mod decode;

pub mod number;

mod error;

pub use args::{Args, OwnedArgs};
pub use bytes::Bytes;
pub use elements::{Elements, Shape};
pub use error::ProtocolError;
pub use parser::{Limits, Parser, Request};
pub use pieces::{Pieces, Weight};
pub use records::Records;
pub use reply::Reply;
pub use reply_pieces::ReplyPieces;
pub use scored::{Nesting, Scored};

/// The version of the protocol that a connection speaks; `HELLO` switches it. Requests look the same in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// The version that every connection begins with.
    #[default]
    Resp2,
    /// Adds maps, sets, doubles, booleans, one null, pushes and attributes.
    Resp3,
}
