//! Scripts as they are kept: the cache of their texts, the interpreter of each thread, the list of those that run, and
//! which were slow.
//! Their runs are in `run::script`.

pub(crate) mod cache;
pub(crate) mod local;
pub(crate) mod running;
pub(crate) mod slow;
