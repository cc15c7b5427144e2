//! The short form of `make soak`.

use std::time::Duration;

use haypile_harness::random::fresh_seed;
use haypile_harness::server::{Template, haypile_binary};
use haypile_harness::soak::{DIRECTIVES, Options, SETTINGS, run};

#[test]
fn mixed_load_meets_no_error() {
    let binary = haypile_binary().expect("the server is built before its tests");
    let options = Options {
        server: Template::haypile(&binary, DIRECTIVES).expect("the template has its marks"),
        seed: fresh_seed(),
        time: Duration::from_secs(12),
        clients: 8,
        settings: SETTINGS.split(';').map(str::to_string).collect(),
    };
    assert!(run(&options).expect("the server can be run"), "see above");
}
