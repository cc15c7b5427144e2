//! The rest of a request: bytes that were read and have not run, because others are missing.
//!
//! A client says how long its arguments are before it sends them. Room for them is made in steps as they come:
//! thousands of clients may claim much and send little.

use std::ops::Deref;

/// The capacity above which an empty buffer is not kept for the next request.
const BYTES_KEPT: usize = 4 << 10;

/// The room that is made for an announced argument at a time; more is made as the bytes arrive.
const STEP_BYTES: usize = 1 << 20;

/// The room that is made at a time while clients have little room left together: thousands of requests that are never
/// whole are held in small pieces.
pub const SHORT_STEP_BYTES: usize = 16 << 10;

/// See the file's head.
#[derive(Default)]
pub struct Rest(Vec<u8>);

impl Deref for Rest {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Rest {
    /// Returns the bytes that the rest takes in memory.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Keeps the beginning of a request, which lacks at least `needed` bytes more. `is_tight`: clients have little room
    /// left together.
    pub fn begin(&mut self, input: &[u8], needed: usize, is_tight: bool) {
        let step = if is_tight { SHORT_STEP_BYTES } else { STEP_BYTES };
        self.0.reserve(input.len() + needed.min(step));
        self.0.extend_from_slice(input);
    }

    /// Appends to a request, which lacked at least `needed` bytes. A long rest grows by a quarter, not to the double;
    /// when half of what is announced has come, room is made for all of it, unless clients have little room.
    pub fn extend(&mut self, input: &[u8], needed: usize, is_tight: bool) {
        let length = self.0.len();
        if length + input.len() > self.0.capacity() && length > STEP_BYTES {
            let is_known = !is_tight && (input.len()..=length).contains(&needed);
            self.0.reserve_exact(if is_known { needed } else { length / 4 + input.len() });
        }
        self.0.extend_from_slice(input);
    }

    /// Removes the first bytes: they have run.
    pub fn consume(&mut self, bytes: usize) {
        if bytes == self.0.len() {
            self.clear();
            self.0.shrink_to(BYTES_KEPT);
        } else {
            self.0.drain(..bytes);
        }
    }

    /// Removes all bytes: the client is gone.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_BYTES: usize = 64 << 10;

    /// Returns the capacities that a request of `length` bytes goes through.
    fn capacities(length: usize, is_tight: bool) -> Vec<usize> {
        let mut rest = Rest::default();
        rest.begin(&[0; READ_BYTES], length - READ_BYTES, is_tight);
        let mut seen = vec![rest.capacity()];
        while rest.len() < length {
            let input = READ_BYTES.min(length - rest.len());
            rest.extend(&vec![0; input], length - rest.len(), is_tight);
            assert!(rest.capacity() <= 2 * rest.len().max(STEP_BYTES), "room for what has not come: {seen:?}");
            seen.push(rest.capacity());
        }
        rest.consume(length);
        assert!(rest.capacity() <= BYTES_KEPT);
        seen.dedup();
        seen
    }

    #[test]
    fn a_long_request_moves_seldom_and_ends_in_a_buffer_of_its_size() {
        let seen = capacities(9 << 20, false);
        assert!(seen.len() <= 10 && seen.last() == Some(&(9 << 20)), "{seen:?}");
        let seen = capacities(9 << 20, true);
        assert!(seen.windows(2).skip(5).all(|pair| pair[1] <= pair[0] / 4 * 5 + READ_BYTES), "{seen:?}");
    }

    #[test]
    fn what_has_run_leaves_the_rest_behind() {
        let mut rest = Rest::default();
        rest.begin(b"abcdef", 0, false);
        rest.consume(2);
        rest.extend(b"gh", 1, false);
        assert_eq!(&*rest, b"cdefgh");
    }
}
