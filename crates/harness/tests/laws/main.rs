//! Laws about the source code of all crates, and about the pages that tell of it: which imports may run in a circle,
//! how long a function may be, how a comment begins, that the store speaks no Redis, and that a page names code that is
//! there. Where a crate does not keep a law yet, a list says how far it is from it; figures there only shrink.

mod comments;
mod documents;
mod functions;
mod imports;
mod protocol;
mod redis;
mod source;
