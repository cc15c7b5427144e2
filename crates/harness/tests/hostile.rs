//! The short form of `haypile-harness hostile`: small attacks, which show that each does what it says and that the
//! innocent client gets its answers. How long it waits is measured by the long form, on a machine that does nothing
//! else.

use std::time::Duration;

use haypile_harness::hostile::{DIRECTIVES, Judged, Options, RESIDENT_BYTES_MAX, run};
use haypile_harness::server::{Template, haypile_binary};

fn attack(directives: &str, resident_bytes_max: Option<u64>, base: Option<Template>) {
    let binary = haypile_binary().expect("the server is built before its tests");
    let options = Options {
        server: Template::haypile(&binary, directives).expect("the template has its marks"),
        judged: Judged { waits: false, resident_bytes_max },
        base,
        time: Duration::from_millis(100),
        attacks: Vec::new(),
        scale: 0.01,
    };
    assert!(run(&options).expect("no reply is wrong or missing"), "memory is bounded");
}

#[test]
fn every_attack_is_survived() {
    attack(DIRECTIVES, Some(RESIDENT_BYTES_MAX), None);
}

#[test]
fn every_attack_is_survived_with_default_settings_beside_redis_server() {
    attack("", None, Some(Template::redis("").expect("the template has its marks")));
}
