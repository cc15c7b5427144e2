//! Whole files. What may not happen is in `haypile_rdb::testing::check_file`, which an ordinary seeded test runs as
//! well.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haypile_rdb::testing::check_file(data));
