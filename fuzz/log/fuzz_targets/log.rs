//! Everything of the log that reads bytes: bodies, segments, open, replay and dump. What may not happen is in
//! `haypile_log::testing::check_bytes`, which an ordinary seeded test runs as well.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haypile_log::testing::check_bytes(data));
