//! The short form of `make crash`.

use std::time::Duration;

use haypile_harness::crash::{Options, SMALL_STORE, run, short_disk};
use haypile_harness::random::fresh_seed;
use haypile_harness::server::{Template, haypile_binary};

fn crash(durability: &str, seconds: u64) {
    let binary = haypile_binary().expect("the server is built before its tests");
    let directives = format!("--durability {durability} {SMALL_STORE}");
    let server = Template::haypile(&binary, &directives).expect("the template has its marks");
    let options = Options { server, seed: fresh_seed(), time: Duration::from_secs(seconds), writers: 16 };
    assert!(run(&options).expect("the server can be run"), "see the seed and the directory above");
}

#[test]
fn nothing_acknowledged_is_lost_to_a_kill() {
    crash("os", 15);
    crash("fsync", 8);
}

#[test]
fn nothing_acknowledged_is_lost_on_a_disk_that_turns_short() {
    let binary = haypile_binary().expect("the server is built before its tests");
    let server = Template::haypile(&binary, short_disk::SMALL_STORE).expect("the template has its marks");
    let options = Options { server, seed: fresh_seed(), time: Duration::from_secs(15), writers: 8 };
    assert!(short_disk::run(&options).expect("the server can be run"), "see the seed and the log above");
}
