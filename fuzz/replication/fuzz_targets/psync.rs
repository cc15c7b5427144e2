//! What a Redis says that is followed: its answer to PSYNC, and its data in pieces. What may not happen is in
//! `haypile_replication::testing::check_psync`, which an ordinary seeded test runs as well.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haypile_replication::testing::check_psync(data));
