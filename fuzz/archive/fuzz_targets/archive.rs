//! What may lie in an archive: encrypted objects, manifests, names of chunks. What may not happen is in
//! `haypile_archive::testing::check_bytes`, which an ordinary seeded test runs as well.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haypile_archive::testing::check_bytes(data));
