//! The short form of `make psync`.

use haypile_harness::psync::{Options, run};

#[test]
fn a_server_that_follows_a_redis_through_kills_and_cuts_has_what_it_has() {
    let options = Options {
        server: None,
        options: String::new(),
        master: None,
        keep_master: false,
        seed: None,
        minutes: 0.4,
        disturbances: 4,
    };
    assert!(run(&options).expect("the servers can be run"), "see the seed and the directories above");
}
