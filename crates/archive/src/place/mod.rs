//! Places for objects: a directory, or a bucket of an object store. Whoever calls waits.

pub mod directory;
#[cfg(feature = "object-stores")]
pub mod objects;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Bytes that are read or written at a time: an object of more goes in so many parts.
pub const PART_BYTES: usize = 8 << 20;

/// False once whoever waits for a place wants no answer any more.
pub type GoesOn = Arc<AtomicBool>;

/// An object of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name, with slashes, relative to the place.
    pub name: String,
    pub bytes: u64,
    /// The time at which the object was written, in milliseconds since 1970, by the place's clock.
    pub modified_ms: u64,
}

/// Why a place did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceError {
    /// The place has no such object.
    Missing(String),
    /// The place has such an object already.
    Exists(String),
    /// A failure of any other kind, which may be temporary; the text is for people.
    Failed(String),
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Missing(name) => write!(f, "{name} is not there"),
            PlaceError::Exists(name) => write!(f, "{name} is there already"),
            PlaceError::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for PlaceError {}

/// A function that hands out the next bytes of an object; nothing at its end.
pub type NextPart<'a> = dyn FnMut() -> Result<Option<Vec<u8>>, PlaceError> + 'a;

/// A function that takes the next bytes of an object.
pub type TakePart<'a> = dyn FnMut(&[u8]) -> Result<(), PlaceError> + 'a;

/// Objects by name. An object is there as a whole or not at all, and for good when `put` has returned.
pub trait Place: Send + Sync {
    /// Returns the name of the place, for people.
    fn name(&self) -> String;

    /// Whether another place may come to be where this one was, as with a directory that was unmounted: whoever writes
    /// looks first.
    fn may_be_exchanged(&self) -> bool {
        false
    }

    /// Returns the objects whose names begin with `prefix`, which ends with a slash, and come behind `after`, in the
    /// order of their names.
    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, PlaceError>;

    /// Writes an object out of parts, each but the last of `PART_BYTES`, over one that is there.
    fn put(&self, name: &str, parts: &mut NextPart<'_>) -> Result<(), PlaceError>;

    /// Writes an object that is not there.
    ///
    /// # Errors
    /// `Exists` if it is.
    fn create(&self, name: &str, bytes: Vec<u8>) -> Result<(), PlaceError>;

    /// Reads an object from its beginning, as many bytes as `take` wants to have.
    ///
    /// # Errors
    /// Those of `take` are passed on.
    fn get(&self, name: &str, take: &mut TakePart<'_>) -> Result<(), PlaceError>;

    /// Returns the first bytes of an object, at most so many.
    fn get_start(&self, name: &str, bytes: usize) -> Result<Vec<u8>, PlaceError>;

    /// Removes an object; one that is not there is none.
    fn remove(&self, name: &str) -> Result<(), PlaceError>;

    /// Removes what a `put` that was broken off has left, if nothing was written to it for `age`. An object store keeps
    /// such parts by rules of its own.
    fn remove_broken_off(&self, _age: Duration) -> Result<(), PlaceError> {
        Ok(())
    }
}
