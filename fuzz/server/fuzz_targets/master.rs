//! The commands of a Redis that is followed: what of them is kept, left out and shown. The checks are in
//! `check_commands` of the server's `replication::psync::testing`, which an ordinary seeded test runs as well.
#![no_main]

#[path = "../../../crates/server/src/replication/psync/received.rs"]
mod received;
#[path = "../../../crates/server/src/replication/psync/request.rs"]
mod request;
#[path = "../../../crates/server/src/replication/psync/testing.rs"]
mod testing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| testing::check_commands(data));
