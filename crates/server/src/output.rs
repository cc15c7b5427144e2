//! The replies of one connection on their way out: bytes, and the place from which on they wait for the log.
//!
//! Pure bookkeeping: appended bytes wait until `release` finds their gate confirmed, and leave from the front. The
//! socket is written by `event_loop` and `connection`. Long messages lie between the replies and are not copied: all
//! recipients share one.

use haypile_engine::{Payload, Sink};
use haypile_log::Index;
use std::collections::VecDeque;
use std::sync::Arc;

/// The size above which a buffer is large.
pub const SPARE_BYTES_MAX: usize = 64 << 10;

/// The size above which a buffer is not kept for other connections.
const LARGE_BYTES_MAX: usize = 4 << 20;

/// The number of sent bytes that stay at the front of a buffer.
const SENT_BYTES_KEPT: usize = 4 << 10;

/// How many small buffers are kept.
const SPARE_BUFFERS: usize = 256;

/// Buffers that connections of one event loop hand on to each other.
#[derive(Default)]
pub struct Spares {
    small: Vec<Vec<u8>>,
    /// The large buffer, used first: its memory is in use already, and mostly in the processor's caches.
    large: Vec<u8>,
}

impl Spares {
    fn take(&mut self) -> Vec<u8> {
        if self.large.capacity() > 0 {
            return std::mem::take(&mut self.large);
        }
        self.small.pop().unwrap_or_default()
    }

    fn give(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        if bytes.capacity() > SPARE_BYTES_MAX {
            if (self.large.capacity()..=LARGE_BYTES_MAX).contains(&bytes.capacity()) {
                self.large = bytes;
            }
        } else if self.small.len() < SPARE_BUFFERS {
            self.small.push(bytes);
        }
    }
}

/// Replies that have not left.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// Bytes at the front of `bytes` that have left.
    sent: usize,
    /// Shared messages in the order in which they leave. Invariant: `at` does not fall.
    shared: VecDeque<Shared>,
    /// Bytes of shared messages that have not left, and bytes of these messages as a whole.
    shared_unsent: usize,
    shared_bytes: usize,
    /// Positions up to which everything has left and may leave, in bytes since the output was empty and new.
    left: u64,
    released: u64,
    /// Ends of the parts behind `released`, each with the record that it waits for. Invariant: both rise.
    gates: VecDeque<(u64, Gate)>,
    /// The end of what `has_new` was asked about.
    known: u64,
}

/// The record that a reply waits for, and the read round of a Raft group: 0 where it waits for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    pub index: Index,
    pub round: u64,
}

impl Gate {
    /// Returns whether a reply behind this gate may leave where so much is confirmed.
    #[inline]
    pub fn opens_at(self, confirmed: Gate) -> bool {
        self.index <= confirmed.index && self.round <= confirmed.round
    }
}

/// A message that other clients are sent as well.
struct Shared {
    payload: Arc<Payload>,
    /// The offset of the message in `bytes`.
    at: usize,
    sent: usize,
}

impl Output {
    /// Returns the buffer where replies are appended; the caller tells their gate by `appended`.
    pub fn buffer(&mut self, spares: &mut Spares) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = spares.take();
        }
        &mut self.bytes
    }

    /// Returns whether something was appended since this was asked last.
    pub fn has_new(&mut self) -> bool {
        let end = self.left + self.unsent() as u64;
        std::mem::replace(&mut self.known, end) < end
    }

    /// Returns whether there are bytes that may not leave yet, and that were there at the last call of `has_new`.
    pub fn is_held(&self) -> bool {
        self.released < self.known
    }

    /// Returns the bytes that have not left.
    pub fn unsent(&self) -> usize {
        self.bytes.len() - self.sent + self.shared_unsent
    }

    /// Returns the number of shared messages in the output, and their bytes.
    pub fn shared(&self) -> (usize, usize) {
        (self.shared.len(), self.shared_bytes)
    }

    /// Returns the number of bytes in the buffer, those at its front that have left included.
    pub fn buffered(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the capacity of the buffer.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Releases the replies whose records are confirmed; everything that was appended depends on `gate` at most.
    /// Returns whether some still wait for the log.
    pub fn release(&mut self, gate: Gate, confirmed: Gate) -> bool {
        let end = self.left + self.unsent() as u64;
        if gate.opens_at(confirmed) {
            self.gates.clear();
            self.released = end;
            return false;
        }
        let last = self.gates.back().map_or(self.released, |(end, _)| *end);
        if last < end {
            self.gates.push_back((end, gate));
        }
        while let Some(&(end, gate)) = self.gates.front() {
            if !gate.opens_at(confirmed) {
                return true;
            }
            self.released = end;
            self.gates.pop_front();
        }
        false
    }

    /// Returns the record that the first reply waits for that may not leave.
    pub fn waits_for(&self) -> Option<Index> {
        self.gates.front().map(|(_, gate)| gate.index)
    }

    /// Returns the next bytes that may leave now: none if nothing may.
    pub fn ready(&self) -> &[u8] {
        let room = (self.released - self.left) as usize;
        match self.shared.front() {
            None => &self.bytes[self.sent..self.sent + room],
            Some(shared) if shared.at > self.sent => &self.bytes[self.sent..shared.at.min(self.sent + room)],
            Some(Shared { payload, sent, .. }) => {
                let bytes = &payload.bytes()[*sent..];
                &bytes[..bytes.len().min(room)]
            }
        }
    }

    /// Notes that the first `count` bytes of `ready` have left. An emptied buffer goes to `spares`.
    pub fn on_sent(&mut self, count: usize, spares: &mut Spares) {
        self.left += count as u64;
        debug_assert!(self.left <= self.released);
        match self.shared.front_mut() {
            Some(shared) if shared.at == self.sent => {
                shared.sent += count;
                self.shared_unsent -= count;
                if shared.sent == shared.payload.bytes().len() {
                    self.shared_bytes -= shared.sent;
                    self.shared.pop_front();
                }
            }
            _ => self.sent += count,
        }
        if self.sent == self.bytes.len() && self.shared.is_empty() {
            self.sent = 0;
            spares.give(std::mem::take(&mut self.bytes));
        } else if self.sent > SENT_BYTES_KEPT && self.sent >= self.bytes.len() - self.sent {
            // Bytes that have left make room for new ones. Unsent bytes are moved no farther than they are long, so
            // that in all no more bytes are moved than sent, however many lie here.
            self.bytes.drain(..self.sent);
            self.shared.iter_mut().for_each(|shared| shared.at -= self.sent);
            self.sent = 0;
        }
    }

    /// Moves what has not left to a buffer of its size, if it lies in a much larger one: it is going to stay for a
    /// while.
    pub fn shrink(&mut self, spares: &mut Spares) {
        let rest = &self.bytes[self.sent..];
        if self.bytes.capacity() <= SPARE_BYTES_MAX || rest.len() > self.bytes.capacity() / 2 {
            return;
        }
        let moved = rest.to_vec();
        self.shared.iter_mut().for_each(|shared| shared.at -= self.sent);
        self.sent = 0;
        spares.give(std::mem::replace(&mut self.bytes, moved));
    }

    /// Drops everything: the client is gone.
    pub fn discard(&mut self) {
        *self = Output::default();
    }
}

impl Sink for Output {
    /// Returns the bytes of an output that has got its buffer.
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn share(&mut self, payload: &Arc<Payload>) {
        let bytes = payload.bytes().len();
        self.shared_unsent += bytes;
        self.shared_bytes += bytes;
        self.shared.push_back(Shared { payload: payload.clone(), at: self.bytes.len(), sent: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(index: u64) -> Gate {
        Gate { index: Index(index), round: 0 }
    }

    /// Returns the bytes that leave when the socket takes `step` bytes at a time.
    fn send(output: &mut Output, step: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        while !output.ready().is_empty() {
            let count = output.ready().len().min(step);
            sent.extend_from_slice(&output.ready()[..count]);
            output.on_sent(count, &mut Spares::default());
        }
        sent
    }

    #[test]
    fn shared_messages_leave_in_their_places() {
        let payload = |byte: u8, count: usize| Payload::uncounted(vec![byte; count]);
        for step in [1, 7, 1000, 70_000, usize::MAX] {
            let (mut output, mut expected) = (Output::default(), Vec::new());
            for round in 0..40_u8 {
                let text = vec![b'a' + round % 26; round as usize * 211];
                append(&mut output, &text);
                expected.extend_from_slice(&text);
                for count in [30_000, 5].into_iter().take(round as usize % 3) {
                    let payload = payload(round, count);
                    output.share(&payload);
                    expected.extend_from_slice(payload.bytes());
                }
                output.release(gate(round.into()), gate(0));
            }
            let mut sent = Vec::new();
            for durable in [0, 3, 20, 39] {
                output.release(gate(39), gate(durable));
                sent.extend(send(&mut output, step));
                assert_eq!(sent.len() + output.unsent(), expected.len());
            }
            assert!(sent == expected, "in steps of {step}");
            assert_eq!((output.unsent(), output.shared(), output.capacity()), (0, (0, 0), 0));
            // Later bytes begin anew.
            append(&mut output, b"more");
            output.release(gate(39), gate(39));
            assert_eq!(output.ready(), b"more");
        }
    }

    fn append(output: &mut Output, text: &[u8]) {
        output.buffer(&mut Spares::default()).extend_from_slice(text);
    }

    #[test]
    fn what_is_durable_leaves_and_the_rest_waits_in_order() {
        let mut output = Output::default();
        append(&mut output, b"one");
        assert!(!output.release(gate(5), gate(5)));
        append(&mut output, b"two");
        assert!(output.release(gate(7), gate(5)));
        append(&mut output, b"three");
        assert!(output.release(gate(9), gate(6)));
        assert_eq!(output.ready(), b"one");
        assert!(output.release(gate(9), gate(8)));
        assert_eq!(output.ready(), b"onetwo");
        output.on_sent(4, &mut Spares::default());
        assert!(!output.release(gate(9), gate(9)));
        assert_eq!(output.ready(), b"wothree");
        output.on_sent(7, &mut Spares::default());
        assert_eq!((output.unsent(), output.bytes.len()), (0, 0));
    }

    #[test]
    fn later_replies_do_not_hold_up_earlier_ones() {
        let mut output = Output::default();
        for index in 1..=4 {
            append(&mut output, b"x");
            output.release(gate(index), gate(0));
        }
        output.release(gate(4), gate(3));
        assert_eq!(output.ready(), b"xxx");
    }

    #[test]
    fn what_is_sent_in_pieces_is_moved_seldom() {
        const PIECES: usize = 64;
        let mut output = Output::default();
        output.buffer(&mut Spares::default()).resize(PIECES * 2 * SPARE_BYTES_MAX, 0);
        output.release(gate(0), gate(0));
        let mut moved = 0;
        for _ in 1..PIECES {
            let before = output.bytes.len();
            output.on_sent(2 * SPARE_BYTES_MAX, &mut Spares::default());
            if output.bytes.len() < before {
                moved += output.bytes.len();
            }
        }
        assert_eq!(output.unsent(), 2 * SPARE_BYTES_MAX);
        assert!(moved <= PIECES * 2 * SPARE_BYTES_MAX, "{moved} bytes were moved");
    }

    #[test]
    fn what_stays_does_not_keep_a_large_buffer() {
        let (mut output, mut spares) = (Output::default(), Spares::default());
        output.buffer(&mut spares).resize(SPARE_BYTES_MAX * 8, 1);
        let payload = Payload::uncounted(vec![2; 3]);
        output.share(&payload);
        append(&mut output, b"end");
        output.release(gate(0), gate(0));
        output.shrink(&mut spares);
        assert_eq!(spares.large.capacity(), 0, "most of it is in use");
        output.on_sent(SPARE_BYTES_MAX * 6, &mut spares);
        output.shrink(&mut spares);
        assert!(output.capacity() < SPARE_BYTES_MAX * 3 && spares.large.capacity() > 0);
        let sent = send(&mut output, 1000);
        assert_eq!(sent, [&vec![1; SPARE_BYTES_MAX * 2][..], &[2; 3], b"end"].concat());
    }

    #[test]
    fn small_buffers_are_handed_on_and_one_large_one() {
        let mut spares = Spares::default();
        let used = |bytes: usize, spares: &mut Spares| {
            let mut output = Output::default();
            output.buffer(spares).resize(bytes, 0);
            output.release(gate(0), gate(0));
            output.on_sent(bytes, spares);
            (spares.small.len(), spares.large.capacity() / SPARE_BYTES_MAX)
        };
        assert_eq!(used(1, &mut spares), (1, 0));
        // The buffer grows.
        assert_eq!(used(SPARE_BYTES_MAX * 3, &mut spares), (0, 3));
        assert_eq!(used(SPARE_BYTES_MAX * 2, &mut spares), (0, 3));
        assert_eq!(used(1, &mut spares), (0, 3));
        assert_eq!(used(LARGE_BYTES_MAX + 1, &mut spares), (0, 0));
        assert_eq!((used(1, &mut spares), used(1, &mut spares)), ((1, 0), (1, 0)));
    }

    #[test]
    fn what_is_sent_in_two_parts_keeps_the_second() {
        let mut output = Output::default();
        output.buffer(&mut Spares::default()).resize(SPARE_BYTES_MAX * 3, 0);
        output.release(gate(0), gate(0));
        output.on_sent(SPARE_BYTES_MAX * 2, &mut Spares::default());
        assert_eq!((output.unsent(), output.bytes.len()), (SPARE_BYTES_MAX, SPARE_BYTES_MAX));
    }
}
