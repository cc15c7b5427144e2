//! Replies too long to be held at once.
//!
//! A long value or a long list is read and written a piece at a time, as fast as its client takes it. This module owns
//! the trait for that; the walk over a reply that contains such parts is in `reply_pieces.rs`. No part waits or has a
//! thread: the caller of [`Pieces::next`] decides where that may block.

use crate::Protocol;

/// How many bytes a piece has, about: a maker stops adding to a piece when it has reached this size.
pub const PIECE_BYTES: usize = 64 * 1024;

/// A reply, or a part of one, that is produced piece by piece. Its length was known when it began, so either it is sent
/// to its end, or its connection is closed.
pub trait Pieces: Send {
    /// Appends the next piece to `out`; returns whether there are more. A piece may be empty and others still follow.
    ///
    /// # Errors
    /// The rest cannot be produced, for the reason given: the connection must be closed, since an error reply in the
    /// middle of another reply would be taken for a part of it.
    fn next(&mut self, protocol: Protocol, out: &mut Vec<u8>) -> Result<bool, String>;

    /// Returns the weight before the first piece. By default nothing: replies that hold rows or know their length
    /// override this.
    fn weight(&self) -> Weight {
        Weight::default()
    }
}

/// The memory that a reply costs while it is sent piece by piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Bytes of memory that are held until the reply has been sent, about.
    pub held_bytes: usize,
    /// Bytes that are going to be sent, as far as they are known.
    pub encoded_bytes: usize,
}
