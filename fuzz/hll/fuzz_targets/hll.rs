//! HyperLogLogs of any bytes, sparse ones above all, and changes of them. What may not happen is in
//! `haypile_types::hyperloglog::testing::check_bytes`, which an ordinary seeded test runs as well.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haypile_types::hyperloglog::testing::check_bytes(data));
