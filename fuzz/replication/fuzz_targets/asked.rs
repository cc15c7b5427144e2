//! The words of a Redis that follows: its request, and what it acknowledges. The checks are in
//! `haypile_replication::testing::check_asked`, which an ordinary seeded test runs as well.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haypile_replication::testing::check_asked(data));
