//! The arguments of a request: where they lie; their meaning is the command's affair.
//!
//! [`Args`] borrows the connection's read buffer, so that a command runs without its arguments being copied;
//! [`OwnedArgs`] holds them itself, for a command that outlives the buffer. Numbers and options are not parsed here.
//! [`crate::parser`] makes both.

use std::fmt;
use std::ops::{Index, Range};

/// The arguments of one request, the command's name at 0, as ranges of borrowed bytes.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    ranges: &'a [Range<u32>],
}

impl<'a> Args<'a> {
    /// Arguments at `ranges` of `bytes`. A range outside `bytes` makes [`Args::get`] panic.
    #[inline]
    pub fn new(bytes: &'a [u8], ranges: &'a [Range<u32>]) -> Args<'a> {
        Args { bytes, ranges }
    }

    /// Returns how many arguments there are, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Tells whether there is not even a name; a parsed request always has one.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns argument `i`.
    ///
    /// # Panics
    /// If there is none: the arity of a command is checked before it runs.
    #[inline]
    pub fn get(&self, i: usize) -> &'a [u8] {
        let range = &self.ranges[i];
        &self.bytes[range.start as usize..range.end as usize]
    }

    /// Returns argument `i`, if there is one.
    #[inline]
    pub fn opt(&self, i: usize) -> Option<&'a [u8]> {
        self.ranges.get(i).map(|range| &self.bytes[range.start as usize..range.end as usize])
    }

    /// Returns the arguments from `i` on; none if there are fewer.
    #[inline]
    pub fn from(&self, i: usize) -> Args<'a> {
        Args { bytes: self.bytes, ranges: self.ranges.get(i..).unwrap_or(&[]) }
    }

    /// Returns all arguments in order, the name first.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone + use<'a> {
        let bytes = self.bytes;
        self.ranges.iter().map(move |range| &bytes[range.start as usize..range.end as usize])
    }

    /// Returns how many bytes all arguments have together.
    pub fn bytes_len(&self) -> usize {
        self.ranges.iter().map(|range| (range.end - range.start) as usize).sum()
    }

    /// Copies the arguments, without the bytes between them in the buffer.
    pub fn to_owned_args(&self) -> OwnedArgs {
        let mut owned = OwnedArgs::with_capacity(self.bytes_len(), self.len());
        for arg in self.iter() {
            owned.push(arg);
        }
        owned
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, i: usize) -> &[u8] {
        self.get(i)
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|arg| arg.escape_ascii().to_string())).finish()
    }
}

/// The arguments of one request with the bytes they lie in.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OwnedArgs {
    bytes: Vec<u8>,
    ranges: Vec<Range<u32>>,
}

impl OwnedArgs {
    /// Returns no arguments yet, with room for `bytes` bytes in `args` arguments.
    pub fn with_capacity(bytes: usize, args: usize) -> OwnedArgs {
        OwnedArgs { bytes: Vec::with_capacity(bytes), ranges: Vec::with_capacity(args) }
    }

    /// Takes arguments in a buffer that is handed over whole: a large request needs no copy. Every range lies in
    /// `bytes`.
    pub fn in_buffer(bytes: Vec<u8>, ranges: Vec<Range<u32>>) -> OwnedArgs {
        OwnedArgs { bytes, ranges }
    }

    /// Adds an argument.
    ///
    /// # Panics
    /// If all arguments together reach 4 GiB; [`crate::Limits::request_bytes_max`] keeps a request below that.
    pub fn push(&mut self, arg: &[u8]) {
        let start = self.open();
        self.bytes.extend_from_slice(arg);
        self.close(start);
    }

    /// Borrows the arguments.
    #[inline]
    pub fn as_args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.ranges)
    }

    /// Returns the memory held, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ranges.capacity() * size_of::<Range<u32>>()
    }

    /// Begins an argument whose bytes are added one by one; returns the start that [`OwnedArgs::close`] takes.
    pub(crate) fn open(&self) -> u32 {
        u32::try_from(self.bytes.len()).expect("a request is shorter than 4 GiB")
    }

    /// Adds a byte to the argument begun last.
    pub(crate) fn push_byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Ends the argument that began at `start`.
    pub(crate) fn close(&mut self, start: u32) {
        let end = self.open();
        self.ranges.push(start..end);
    }
}

impl<A: AsRef<[u8]>> FromIterator<A> for OwnedArgs {
    fn from_iter<I: IntoIterator<Item = A>>(args: I) -> OwnedArgs {
        let mut owned = OwnedArgs::default();
        for arg in args {
            owned.push(arg.as_ref());
        }
        owned
    }
}

impl fmt::Debug for OwnedArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_args().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_holds_the_arguments_and_not_what_lies_between() {
        let buffer = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
        let ranges = [8..11, 17..20];
        let args = Args::new(buffer, &ranges);
        let owned = args.to_owned_args();
        assert_eq!(owned, ["GET", "key"].into_iter().collect());
        assert_eq!(owned.bytes, b"GETkey");
        assert_eq!(owned.as_args().iter().collect::<Vec<_>>(), [&b"GET"[..], b"key"]);
    }

    #[test]
    fn arguments_are_reached_by_position() {
        let owned: OwnedArgs = ["SET", "", "value"].into_iter().collect();
        let args = owned.as_args();
        assert_eq!((args.len(), args.bytes_len()), (3, 8));
        assert_eq!((args.get(0), args.opt(1), args.opt(3)), (&b"SET"[..], Some(&b""[..]), None));
        assert_eq!(args.from(2).iter().collect::<Vec<_>>(), [&b"value"[..]]);
        assert!(args.from(9).is_empty());
        assert_eq!(format!("{args:?}"), r#"["SET", "", "value"]"#);
    }
}
