//! Long strings on their way out of a source, compressed or not, a piece at a time: however long a string is, some 100
//! KB of it are held. A string that has elements in it goes through a [`Window`], which holds an element.

use crate::error::{Damage, Error, Why};
use crate::lzf::Inflate;
use crate::source::{Source, TAKE_MAX};

/// Shorter strings are read whole, which costs less.
pub(crate) const WHOLE_BYTES_MAX: u64 = 256 << 10;

/// A long string of which the length has been read.
#[derive(Debug)]
pub(crate) struct Long {
    bytes: u64,
    inflate: Option<Inflate>,
}

impl Long {
    /// Returns the length of the string.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn plain(bytes: u64) -> Long {
        Long { bytes, inflate: None }
    }

    pub fn compressed(compressed: u64, bytes: u64) -> Result<Long, Damage> {
        Ok(Long { bytes, inflate: Some(Inflate::new(compressed, bytes)?) })
    }

    /// Reads the string as a whole into `out`, whose bytes are the next ones of the source.
    pub fn read(self, source: &mut impl Source, out: &mut Vec<u8>) -> Result<(), Error> {
        out.clear();
        let bytes = self.bytes;
        let mut text = self.of(source);
        if text.rest_bytes().is_some() {
            // A buffer that grows by doubling would be held three times for a moment.
            out.reserve_exact(bytes as usize);
        }
        text.append(bytes, out)
    }

    /// Returns the string, whose bytes are the next ones of the source.
    pub fn of<S: Source>(self, source: &mut S) -> Text<'_, S> {
        Text { source, left: self.bytes, inflate: self.inflate }
    }
}

/// The bytes of a long string: a source with an end.
pub(crate) struct Text<'s, S> {
    source: &'s mut S,
    left: u64,
    inflate: Option<Inflate>,
}

impl<S> Text<'_, S> {
    /// Returns the number of bytes that were not taken.
    pub fn rest(&self) -> u64 {
        self.left
    }
}

impl<S: Source> Source for Text<'_, S> {
    fn take(&mut self, count: usize) -> Result<&[u8], Error> {
        let left = self.left.checked_sub(count as u64);
        self.left = left.ok_or_else(|| self.source.error(Why::Truncated))?;
        match &mut self.inflate {
            None => self.source.take(count),
            Some(inflate) => inflate.take(self.source, count),
        }
    }

    fn position(&self) -> u64 {
        self.source.position()
    }

    fn rest_bytes(&self) -> Option<u64> {
        self.source.rest_bytes().map(|_| self.left)
    }
}

/// A part of a text in one piece, as long as it is asked for.
pub(crate) struct Window<'s, S> {
    text: Text<'s, S>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were taken.
    start: usize,
}

impl<'s, S: Source> Window<'s, S> {
    pub fn new(text: Text<'s, S>) -> Window<'s, S> {
        Window { text, buffer: Vec::new(), start: 0 }
    }

    /// Returns the number of bytes that were not taken.
    pub fn rest(&self) -> u64 {
        self.text.left + (self.buffer.len() - self.start) as u64
    }

    /// Returns the next bytes without taking them.
    pub fn peek(&mut self, count: usize) -> Result<&[u8], Error> {
        if count as u64 > self.rest() {
            return Err(self.text.error(Why::Truncated));
        }
        if self.buffer.len() - self.start < count {
            self.buffer.drain(..self.start);
            self.buffer.shrink_to(count.max(2 * TAKE_MAX));
            self.start = 0;
            let missing = (count - self.buffer.len()).max(TAKE_MAX) as u64;
            if self.text.rest_bytes().is_some() {
                self.buffer.reserve_exact(missing.min(self.text.left) as usize);
            }
            self.text.append(missing.min(self.text.left), &mut self.buffer)?;
        }
        Ok(&self.buffer[self.start..self.start + count])
    }

    /// Takes the next bytes.
    pub fn take(&mut self, count: usize) -> Result<&[u8], Error> {
        self.peek(count)?;
        self.start += count;
        Ok(&self.buffer[self.start - count..self.start])
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        Ok(self.take(N)?.try_into().expect("as many bytes as were asked for"))
    }
}
