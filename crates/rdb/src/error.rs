//! What can be wrong with a file or a payload, and where.

use std::fmt;

/// A file or a payload that cannot be read.
#[derive(Debug)]
pub struct Error {
    /// Bytes of the input that were taken when it was found out.
    pub position: u64,
    /// The key whose value it is about, if it is about one.
    pub key: Option<Vec<u8>>,
    pub why: Why,
}

#[derive(Debug)]
pub enum Why {
    Io(std::io::Error),
    /// The input ends in the middle of something.
    Truncated,
    /// It does not begin as an RDB file does.
    NotRdb,
    /// A version of the format that did not exist yet.
    Version(u32),
    /// The bytes are not those that were written.
    Checksum,
    /// Something that cannot be read here: data of a module, or a type that did not exist yet.
    Unsupported(&'static str),
    /// Bytes that no Redis has written.
    Corrupt(&'static str),
}

/// Reading ended early: the input was bad, or the sink did not want more.
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
    /// Says which key it was.
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

/// Of a longer key, messages show the beginning.
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

/// What is wrong with bytes that lie in memory as a whole; where they lie says who reads them.
pub type Damage = &'static str;

/// What is wrong with packed elements: their bytes, or what they are read from.
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

impl Fault {
    /// The error, of bytes that end at this place of a source.
    pub fn at(self, source: &impl crate::source::Source) -> Error {
        match self {
            Fault::Damage(what) => source.corrupt(what),
            Fault::Input(error) => error,
        }
    }
}
