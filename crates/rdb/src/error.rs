//! The errors of a file or a payload, and where they lie.

use std::fmt;

/// A file or a payload that cannot be read.
#[derive(Debug)]
pub struct Error {
    /// Bytes of the input that were taken when the error was found.
    pub position: u64,
    /// The key whose value is wrong, if the error is about one.
    pub key: Option<Vec<u8>>,
    pub why: Why,
}

#[derive(Debug)]
pub enum Why {
    Io(std::io::Error),
    /// The input ends in the middle of something.
    Truncated,
    /// The input does not begin as an RDB file does.
    NotRdb,
    /// A version of the format that did not exist yet.
    Version(u32),
    /// The bytes differ from those that were written.
    Checksum,
    /// Something that cannot be read here: data of a module, or a type that did not exist yet.
    Unsupported(&'static str),
    /// Bytes that no Redis has written.
    Corrupt(&'static str),
}

/// The reason why reading ended early: the input was bad, or the sink did not want more.
#[derive(Debug)]
pub enum Failure<E> {
    Input(Error),
    Sink(E),
}

impl<E> From<Error> for Failure<E> {
    fn from(error: Error) -> Failure<E> {
        Failure::Input(error)
    }
}

impl<E> Failure<E> {
    /// Adds the name of the key.
    pub(crate) fn of_key(self, name: &[u8]) -> Failure<E> {
        match self {
            Failure::Input(error) => Failure::Input(Error { key: Some(name.to_vec()), ..error }),
            sink => sink,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}", self.position)?;
        if let Some(key) = &self.key {
            let shown = &key[..key.len().min(KEY_BYTES_SHOWN)];
            write!(f, ", key \"{}\"", shown.escape_ascii())?;
        }
        match &self.why {
            Why::Io(error) => write!(f, ": {error}"),
            Why::Truncated => write!(f, ": the data ends too early"),
            Why::NotRdb => write!(f, ": this is no RDB file"),
            Why::Version(version) => {
                write!(f, ": version {version} of the format is not known, {} is the newest", crate::VERSION_MAX)
            }
            Why::Checksum => write!(f, ": the checksum is wrong"),
            Why::Unsupported(what) => write!(f, ": {what}"),
            Why::Corrupt(what) => write!(f, ": corrupt: {what}"),
        }
    }
}

/// Bytes of a longer key that messages show.
const KEY_BYTES_SHOWN: usize = 128;

impl std::error::Error for Error {}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(error) => error.fmt(f),
            Failure::Sink(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Failure<E> {}

/// A defect of bytes that lie in memory as a whole; the caller adds where they lie.
pub type Damage = &'static str;

/// A defect of packed elements: of their bytes, or of their source.
#[derive(Debug)]
pub(crate) enum Fault {
    Damage(Damage),
    Input(Error),
}

impl From<Damage> for Fault {
    fn from(what: Damage) -> Fault {
        Fault::Damage(what)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Input(error)
    }
}

/// The reason why the elements of a string did not all go out.
pub(crate) enum Stop<E> {
    Fault(Fault),
    Sink(E),
}

impl<E, F: Into<Fault>> From<F> for Stop<E> {
    fn from(fault: F) -> Stop<E> {
        Stop::Fault(fault.into())
    }
}
