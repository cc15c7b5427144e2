//! The tests of the crate as seen from outside, in one binary.
//!
//! [`parser_cases`] lists requests that the parser takes and refuses; [`parser_check`] compares any input with a plain
//! model of it (the fuzz target runs the same function), [`parser_random`] feeds that with seeded inputs; [`redis`]
//! compares with a real redis-server; [`replies`] covers the encoder, [`round_trip`] encoder and decoder together.

mod random;

mod parser_cases;
mod parser_check;
mod parser_random;

mod redis;

mod replies;
mod round_trip;
mod round_trip_check;
