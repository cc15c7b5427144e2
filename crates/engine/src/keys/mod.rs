//! The right to touch keys: the locks of keys, the exclusion over all of them, watched keys, and clients that wait for
//! keys.
//!
//! Owns no client and runs no command; `run` asks here before it touches a key, and tells here what it has touched.

pub(crate) mod admission;
mod by_key;
pub(crate) mod claims;
pub(crate) mod exclusion;
pub(crate) mod gate;
pub(crate) mod locks;
pub(crate) mod visits;
pub(crate) mod waiters;
pub(crate) mod watch;
