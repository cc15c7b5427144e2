//! The content of a bulk string on its way out, in the form in which its maker has it.
//!
//! Bytes are never copied here: a constant stays a constant, a value of the store stays shared with the store until the
//! encoder writes it into the connection's buffer. See [`crate::reply`].

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Immutable bytes, cheap to hand over. Equality and printing look at the bytes, not at where they live.
#[derive(Clone)]
pub enum Bytes {
    /// A constant.
    Static(&'static [u8]),
    /// Bytes made for this reply.
    Owned(Vec<u8>),
    /// A part of bytes that others hold too. The range lies inside the slice.
    Shared(Arc<[u8]>, Range<u32>),
}

impl Bytes {
    /// Returns a part of shared bytes.
    ///
    /// # Panics
    /// If `range` is not inside `bytes`.
    pub fn shared(bytes: Arc<[u8]>, range: Range<u32>) -> Bytes {
        assert!(range.start <= range.end && range.end as usize <= bytes.len(), "a shared range lies inside its bytes");
        Bytes::Shared(bytes, range)
    }

    /// Returns the bytes as a vector of their own; copies unless they are owned already.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Bytes::Owned(bytes) => bytes,
            other => other.to_vec(),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Static(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
            Bytes::Shared(bytes, range) => &bytes[range.start as usize..range.end as usize],
        }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::Owned(bytes)
    }
}

impl From<String> for Bytes {
    fn from(text: String) -> Bytes {
        Bytes::Owned(text.into_bytes())
    }
}

impl From<&'static [u8]> for Bytes {
    fn from(bytes: &'static [u8]) -> Bytes {
        Bytes::Static(bytes)
    }
}

impl<const N: usize> From<&'static [u8; N]> for Bytes {
    fn from(bytes: &'static [u8; N]) -> Bytes {
        Bytes::Static(bytes)
    }
}

impl From<&'static str> for Bytes {
    fn from(text: &'static str) -> Bytes {
        Bytes::Static(text.as_bytes())
    }
}

impl From<Arc<[u8]>> for Bytes {
    /// # Panics
    /// If there are 4 GiB or more: no bulk string of this server is that long.
    fn from(bytes: Arc<[u8]>) -> Bytes {
        let end = u32::try_from(bytes.len()).expect("a bulk string is shorter than 4 GiB");
        Bytes::Shared(bytes, 0..end)
    }
}

impl From<(Arc<[u8]>, Range<u32>)> for Bytes {
    /// # Panics
    /// If the range is not inside the bytes.
    fn from((bytes, range): (Arc<[u8]>, Range<u32>)) -> Bytes {
        Bytes::shared(bytes, range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_the_same_bytes_are_equal() {
        let shared: Arc<[u8]> = Arc::from(&b"a hay pile"[..]);
        let forms = [Bytes::from("hay"), Bytes::from(b"hay".to_vec()), Bytes::shared(shared, 2..5)];
        for form in &forms {
            assert_eq!(form, &forms[0]);
            assert_eq!(format!("{form:?}"), "\"hay\"");
            assert_eq!(form.clone().into_vec(), b"hay");
        }
    }

    #[test]
    #[should_panic(expected = "inside its bytes")]
    fn a_shared_range_outside_its_bytes_is_refused() {
        Bytes::shared(Arc::from(&b"hay"[..]), 2..4);
    }
}
