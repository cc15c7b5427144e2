//! The short forms of `make psync`.

use haypile_harness::psync::{Options, run};
use std::sync::{Mutex, PoisonError};

/// The lock of the run under way: each run keeps all cores busy.
static TURN: Mutex<()> = Mutex::new(());

fn runs(back: bool) -> bool {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let options = Options {
        server: None,
        options: String::new(),
        master: None,
        keep_master: false,
        seed: None,
        minutes: 0.4,
        back,
        disturbances: 4,
    };
    run(&options).expect("the servers can be run")
}

#[test]
fn a_server_that_follows_a_redis_through_kills_and_cuts_has_what_it_has() {
    assert!(runs(false), "see the seed and the directories above");
}

#[test]
fn a_redis_that_follows_a_server_through_kills_and_cuts_has_what_it_has() {
    assert!(runs(true), "see the seed and the directories above");
}
