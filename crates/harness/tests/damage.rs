//! The short form of `make damage`.

use std::time::Duration;

use haypile_harness::crash::SMALL_STORE;
use haypile_harness::damage::{Options, run};
use haypile_harness::random::fresh_seed;
use haypile_harness::server::{Template, haypile_binary};

fn damage(durability: &str, seconds: u64) {
    let binary = haypile_binary().expect("the server is built before its tests");
    let server = Template::haypile(&binary, &format!("--durability {durability} {SMALL_STORE}"));
    let server = server.expect("the template has its marks");
    let (time, fsync) = (Duration::from_secs(seconds), durability == "fsync");
    let options = Options { server, seed: fresh_seed(), time, fsync };
    assert!(run(&options).expect("the server can be run"), "see the seed and the directory above");
}

#[test]
fn nothing_is_lost_in_silence() {
    damage("os", 25);
    damage("fsync", 10);
}
