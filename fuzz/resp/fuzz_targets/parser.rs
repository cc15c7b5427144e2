//! Fuzzes the request parser: any bytes, any pieces, small and default limits, against the model in the crate's tests.
//!
//! The body is the crate's own, so that its seeded test and this target check the same; see
//! `crates/resp/tests/suite/parser_check.rs`.

#![no_main]

#[path = "../../../crates/resp/tests/suite/parser_check.rs"]
mod parser_check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| parser_check::check(input));
