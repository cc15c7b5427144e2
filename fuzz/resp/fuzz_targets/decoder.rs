//! Fuzzes the reply decoder: any bytes, any pieces; what it decodes must survive being encoded again.
//!
//! The body is the crate's own, so that its seeded test and this target check the same; see
//! `crates/resp/tests/suite/round_trip_check.rs`.

#![no_main]

#[path = "../../../crates/resp/tests/suite/round_trip_check.rs"]
mod round_trip_check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| round_trip_check::check(input));
