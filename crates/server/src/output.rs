//! The replies of one connection on their way out: bytes, and from where on they have to wait for the log.
//!
//! Pure bookkeeping: what is appended waits until `release` finds its gate durable, and leaves from the front. The socket
//! is written by `event_loop` and `connection`.

use haypile_log::Index;
use std::collections::VecDeque;

/// A buffer of more bytes than this is not kept for other connections.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// Replies that have not left.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// Bytes at the front that have left.
    sent: usize,
    /// Bytes from the start that may leave.
    released: usize,
    /// Ends of the parts behind `released`, each with the record that it waits for; both rise.
    gates: VecDeque<(usize, Index)>,
}

impl Output {
    /// Where replies are appended; the caller tells their gate by `appended`.
    pub fn buffer(&mut self, spare: &mut Vec<Vec<u8>>) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = spare.pop().unwrap_or_default();
        }
        &mut self.bytes
    }

    /// Bytes that have not left.
    pub fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Bytes of the buffer that holds them.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Lets leave what has become durable; everything that was appended depends on `gate` at most. Whether something still
    /// waits for the log.
    pub fn release(&mut self, gate: Index, durable: Index) -> bool {
        let end = self.bytes.len();
        if gate <= durable {
            self.gates.clear();
            self.released = end;
            return false;
        }
        let last = self.gates.back().map_or(self.released, |(end, _)| *end);
        if last < end {
            self.gates.push_back((end, gate));
        }
        while let Some(&(end, gate)) = self.gates.front() {
            if gate > durable {
                return true;
            }
            self.released = end;
            self.gates.pop_front();
        }
        false
    }

    /// What may leave now.
    pub fn ready(&self) -> &[u8] {
        &self.bytes[self.sent..self.released]
    }

    /// The first `count` bytes of `ready` have left. An emptied buffer goes to `spare`.
    pub fn on_sent(&mut self, count: usize, spare: &mut Vec<Vec<u8>>) {
        self.sent += count;
        debug_assert!(self.sent <= self.released);
        if self.sent == self.bytes.len() {
            let mut bytes = std::mem::take(&mut self.bytes);
            (self.sent, self.released) = (0, 0);
            if bytes.capacity() <= SPARE_BYTES_MAX && spare.len() < spare.capacity() {
                bytes.clear();
                spare.push(bytes);
            }
        } else if self.sent > SPARE_BYTES_MAX && self.sent >= self.unsent() {
            // What has left makes room for what comes. What has not is moved no farther than it is long, and so in all no
            // more bytes are moved than sent, however much lies here.
            self.bytes.drain(..self.sent);
            self.released -= self.sent;
            self.gates.iter_mut().for_each(|(end, _)| *end -= self.sent);
            self.sent = 0;
        }
    }

    /// Drops everything: the client is gone.
    pub fn discard(&mut self) {
        *self = Output::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(output: &mut Output, text: &[u8]) {
        output.buffer(&mut Vec::new()).extend_from_slice(text);
    }

    #[test]
    fn what_is_durable_leaves_and_the_rest_waits_in_order() {
        let mut output = Output::default();
        append(&mut output, b"one");
        assert!(!output.release(Index(5), Index(5)));
        append(&mut output, b"two");
        assert!(output.release(Index(7), Index(5)));
        append(&mut output, b"three");
        assert!(output.release(Index(9), Index(6)));
        assert_eq!(output.ready(), b"one");
        assert!(output.release(Index(9), Index(8)));
        assert_eq!(output.ready(), b"onetwo");
        output.on_sent(4, &mut Vec::new());
        assert!(!output.release(Index(9), Index(9)));
        assert_eq!(output.ready(), b"wothree");
        output.on_sent(7, &mut Vec::new());
        assert_eq!((output.unsent(), output.bytes.len()), (0, 0));
    }

    #[test]
    fn later_replies_do_not_hold_up_earlier_ones() {
        let mut output = Output::default();
        for index in 1..=4 {
            append(&mut output, b"x");
            output.release(Index(index), Index(0));
        }
        output.release(Index(4), Index(3));
        assert_eq!(output.ready(), b"xxx");
    }

    #[test]
    fn what_is_sent_in_pieces_is_moved_seldom() {
        const PIECES: usize = 64;
        let mut output = Output::default();
        output.buffer(&mut Vec::new()).resize(PIECES * 2 * SPARE_BYTES_MAX, 0);
        output.release(Index(0), Index(0));
        let mut moved = 0;
        for _ in 1..PIECES {
            let before = output.bytes.len();
            output.on_sent(2 * SPARE_BYTES_MAX, &mut Vec::new());
            if output.bytes.len() < before {
                moved += output.bytes.len();
            }
        }
        assert_eq!(output.unsent(), 2 * SPARE_BYTES_MAX);
        assert!(moved <= PIECES * 2 * SPARE_BYTES_MAX, "{moved} bytes were moved");
    }

    #[test]
    fn buffers_are_handed_on_unless_they_are_large() {
        let mut spare = Vec::with_capacity(4);
        let mut output = Output::default();
        append(&mut output, b"x");
        output.release(Index(0), Index(0));
        output.on_sent(1, &mut spare);
        assert_eq!(spare.len(), 1);
        output.buffer(&mut spare).resize(SPARE_BYTES_MAX * 3, 0);
        assert!(spare.is_empty());
        output.release(Index(0), Index(0));
        output.on_sent(SPARE_BYTES_MAX * 2, &mut spare);
        assert_eq!((output.unsent(), output.bytes.len()), (SPARE_BYTES_MAX, SPARE_BYTES_MAX));
        output.on_sent(SPARE_BYTES_MAX, &mut spare);
        assert!(spare.is_empty());
    }
}
