//! Laws about the source code of all crates, and about the pages that tell of it: which imports may run in a circle,
//! how long a function may be, where a module with children lies, how a comment begins, that the store speaks no Redis,
//! what crates must not know, that a page names code that is there, and that planted bugs fit the code.

mod architecture;
mod comments;
mod documents;
mod functions;
mod imports;
mod layout;
mod plants;
mod protocol;
mod redis;
mod source;
