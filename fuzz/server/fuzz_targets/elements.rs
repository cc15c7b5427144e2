//! The replies of a server without DUMP, as `haypile export` reads and writes them. The checks are in `check_replies`
//! of the server's `export::testing`, which an ordinary seeded test runs as well.
#![no_main]

#[path = "../../../crates/server/src/export/elements.rs"]
mod elements;
#[path = "../../../crates/server/src/export/replies.rs"]
mod replies;
#[path = "../../../crates/server/src/export/testing.rs"]
mod testing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| testing::check_replies(data));
