//! The short form of `make repl`.

use std::time::Duration;

use haypile_harness::random::fresh_seed;
use haypile_harness::repl::{DIRECTIVES, Options, run};
use haypile_harness::server::{Template, haypile_binary};

#[test]
fn servers_that_follow_each_other_agree_and_lose_nothing_after_any_disturbance() {
    let binary = haypile_binary().expect("the server is built before its tests");
    let server = Template::haypile(&binary, DIRECTIVES).expect("the template has its marks");
    let options = Options { server, seed: fresh_seed(), time: Duration::from_secs(30), writers: 4 };
    assert!(run(&options).expect("the servers can be run"), "see the seed and the directories above");
}
