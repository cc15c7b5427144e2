//! Bytes that are read from a file or a socket through a buffer of fixed size.

use crate::checksum::Checksum;
use crate::error::{Error, Why};
use crate::form::Form;
use crate::source::{Source, TAKE_MAX};
use crate::tape::Tape;
use std::io::Read;

/// Bytes that are read, with the checksum of those taken.
pub struct Input<R> {
    from: R,
    buffer: Box<[u8]>,
    /// `start..end` of the buffer was read and not taken.
    start: usize,
    end: usize,
    /// The end of the part of the buffer that is in `checksum`.
    summed: usize,
    checksum: Checksum,
    position: u64,
    tape: Option<Tape>,
    /// While a value is recorded: the begin of the taken part of the buffer that is not on the tape.
    recorded: Option<usize>,
}

/// Bytes of the buffer: large beside what is taken at once, so that little is moved.
const BUFFER_BYTES: usize = 4 * TAKE_MAX;

impl<R: Read> Input<R> {
    pub fn new(from: R) -> Input<R> {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        let (checksum, position) = (Checksum::default(), 0);
        Input { from, buffer, start: 0, end: 0, summed: 0, checksum, position, tape: None, recorded: None }
    }

    /// Adds a tape for the values in the input.
    pub fn recorded_by(self, tape: Tape) -> Input<R> {
        Input { tape: Some(tape), ..self }
    }

    /// Records the bytes taken from here on, if there is a tape.
    pub(crate) fn record(&mut self, form: Form) {
        if let Some(tape) = &self.tape {
            tape.begin(form);
            self.recorded = Some(self.start);
        }
    }

    /// Puts the bytes taken of the buffer on the tape.
    fn put_on_tape(&mut self) {
        if let (Some(tape), Some(from)) = (&self.tape, self.recorded) {
            self.recorded = tape.add(&self.buffer[from..self.start]).then_some(self.start);
        }
    }

    pub(crate) fn end_record(&mut self) {
        self.put_on_tape();
        if let (Some(tape), Some(_)) = (&self.tape, self.recorded.take()) {
            tape.end();
        }
    }

    /// Returns the checksum of all bytes taken so far.
    pub fn checksum(&mut self) -> u64 {
        self.checksum = self.checksum.and(&self.buffer[self.summed..self.start]);
        self.summed = self.start;
        self.checksum.value()
    }

    /// Reads until `count` bytes lie in the buffer.
    fn fill(&mut self, count: usize) -> Result<(), Error> {
        debug_assert!(count <= TAKE_MAX);
        self.checksum();
        self.put_on_tape();
        self.recorded = self.recorded.map(|_| 0);
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end, self.summed) = (0, self.end - self.start, 0);
        while self.end < count {
            match self.from.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(self.error(Why::Truncated)),
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(Why::Io(error))),
            }
        }
        Ok(())
    }
}

impl<R: Read> Source for Input<R> {
    #[inline]
    fn take(&mut self, count: usize) -> Result<&[u8], Error> {
        if self.end - self.start < count {
            self.fill(count)?;
        }
        self.start += count;
        self.position += count as u64;
        Ok(&self.buffer[self.start - count..self.start])
    }

    fn position(&self) -> u64 {
        self.position
    }
}
