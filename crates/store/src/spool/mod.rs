//! Rows that are sorted outside of memory, in a file that has no name.

mod runs;
pub(crate) mod sorter;
