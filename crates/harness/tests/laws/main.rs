//! Laws about the source code of all crates, read from the files: which imports may run in a circle, how long a
//! function may be, and how a comment begins. Where a crate does not keep a law yet, a list says how far it is from it;
//! figures there only shrink.

mod comments;
mod functions;
mod imports;
mod protocol;
mod source;
