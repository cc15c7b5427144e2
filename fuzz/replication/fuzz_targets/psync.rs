//! The words of a Redis that is followed: its answer to PSYNC, and its data in pieces. The checks are in
//! `haypile_replication::testing::check_psync`, which an ordinary seeded test runs as well.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haypile_replication::testing::check_psync(data));
