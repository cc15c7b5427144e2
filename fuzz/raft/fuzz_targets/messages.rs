//! The messages that a member of a group may send, and the text that says who its members are. What may not happen is
//! in `haypile_raft::testing::check_bytes`, which an ordinary seeded test runs as well.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haypile_raft::testing::check_bytes(data));
