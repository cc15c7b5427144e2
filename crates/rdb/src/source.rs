//! Sources of bytes: the trait, and bytes in memory. Bytes that are read through a buffer are in `input.rs`.

use crate::error::{Error, Failure, Fault, Stop, Why};

/// The most bytes that are asked for at once.
pub const TAKE_MAX: usize = 64 * 1024;

/// Bytes in order.
pub trait Source {
    /// Returns the next `count` bytes, `TAKE_MAX` at most.
    fn take(&mut self, count: usize) -> Result<&[u8], Error>;

    /// Returns the bytes taken so far.
    fn position(&self) -> u64;

    /// Returns the number of bytes that are left; `None` where only their end will tell.
    fn rest_bytes(&self) -> Option<u64> {
        None
    }

    fn error(&self, why: Why) -> Error {
        Error { position: self.position(), key: None, why }
    }

    fn corrupt(&self, what: &'static str) -> Error {
        self.error(Why::Corrupt(what))
    }

    fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        Ok(self.take(N)?.try_into().expect("as many bytes as were asked for"))
    }

    /// Checks that `count` bytes may be left.
    fn may_have(&self, count: u64) -> Result<(), Error> {
        match self.rest_bytes() {
            Some(rest) if rest < count => Err(self.error(Why::Truncated)),
            _ => Ok(()),
        }
    }

    /// Adds the next `count` bytes to `out`. Bytes that were only claimed to be there are never allocated.
    fn append(&mut self, count: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        let mut left = count;
        while left > 0 {
            let piece = left.min(TAKE_MAX as u64) as usize;
            out.extend_from_slice(self.take(piece)?);
            left -= piece as u64;
        }
        Ok(())
    }

    fn skip(&mut self, count: u64) -> Result<(), Error> {
        let mut left = count;
        while left > 0 {
            let piece = left.min(TAKE_MAX as u64) as usize;
            self.take(piece)?;
            left -= piece as u64;
        }
        Ok(())
    }
}

/// Bytes in memory.
#[derive(Clone, Debug)]
pub struct Slice<'a> {
    rest: &'a [u8],
    position: u64,
    /// Whether more bytes follow elsewhere.
    is_cut: bool,
}

impl<'a> Slice<'a> {
    pub fn new(bytes: &'a [u8]) -> Slice<'a> {
        Slice { rest: bytes, position: 0, is_cut: false }
    }

    /// Takes the beginning of bytes that go on elsewhere.
    pub(crate) fn beginning(bytes: &'a [u8]) -> Slice<'a> {
        Slice { is_cut: true, ..Slice::new(bytes) }
    }

    /// Returns the bytes that were not taken.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl Source for Slice<'_> {
    #[inline]
    fn take(&mut self, count: usize) -> Result<&[u8], Error> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                self.position += count as u64;
                Ok(taken)
            }
            None => Err(self.error(Why::Truncated)),
        }
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn rest_bytes(&self) -> Option<u64> {
        (!self.is_cut).then_some(self.rest.len() as u64)
    }
}

impl Fault {
    /// Returns the error, for bytes that end at this place of a source.
    pub(crate) fn at(self, source: &impl Source) -> Error {
        match self {
            Fault::Damage(what) => source.corrupt(what),
            Fault::Input(error) => error,
        }
    }
}

impl<E> Stop<E> {
    /// Returns the failure, for bytes that end at this place of a source.
    pub(crate) fn at(self, source: &impl Source) -> Failure<E> {
        match self {
            Stop::Fault(fault) => fault.at(source).into(),
            Stop::Sink(why) => Failure::Sink(why),
        }
    }
}
