//! The bytes of a master's stream that have been received, until the commands in them have had their effect.
//!
//! A session takes whole commands and forgets their bytes. Here they stay until it has ended what they belong to: where
//! it stops before, a block of which a part has come, or a command that waits for room, begins again in another one.

use super::request;

/// The capacity above which the buffer of a long command is not kept.
const KEPT_BYTES: usize = 4 << 20;

/// See the file's head.
pub struct Received {
    /// Bytes from the first one on that has had no effect.
    bytes: Vec<u8>,
    /// Bytes of these that the session has. Invariant: no more than there are.
    taken: usize,
}

impl Received {
    pub fn new(bytes: Vec<u8>) -> Received {
        Received { bytes, taken: 0 }
    }

    /// Returns all bytes whose commands have had no effect.
    pub fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes of these that the session does not have.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    pub fn add(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// Notes that the session has taken so many bytes of the rest, and that the first ones of all, as many as `ended`
    /// says, have had their effect. A block that has come in part is kept as a whole.
    pub fn take(&mut self, taken: usize, ended: usize) {
        self.taken += taken;
        self.leave_out(ended);
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Forgets what the session has, which has ended: another one gets all bytes.
    pub fn begin_again(&mut self) {
        self.taken = 0;
    }

    /// Leaves out the first bytes, which were refused; returns the database that the commands in them have selected
    /// last, if they have selected one.
    pub fn skip(&mut self, bytes: usize) -> Option<u32> {
        let selected = request::last_selected(&self.bytes[..bytes]);
        self.leave_out(bytes);
        selected
    }

    fn leave_out(&mut self, bytes: usize) {
        self.bytes.drain(..bytes);
        self.taken = self.taken.saturating_sub(bytes);
        assert!(self.taken <= self.bytes.len(), "the session has bytes that have not come");
    }
}
