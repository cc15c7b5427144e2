//! The frames that a peer in replication may send, and the manifest of a copy. What may not happen is in
//! `haypile_replication::testing::check_bytes`, which an ordinary seeded test runs as well.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haypile_replication::testing::check_bytes(data));
