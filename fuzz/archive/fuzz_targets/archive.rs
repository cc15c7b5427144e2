//! The content of an archive: encrypted objects, manifests, names of chunks. The checks are in
//! `haypile_archive::testing::check_bytes`, which an ordinary seeded test runs as well.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haypile_archive::testing::check_bytes(data));
