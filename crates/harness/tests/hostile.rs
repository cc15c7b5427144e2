//! The short form of `haypile-harness hostile`: small attacks, which show that each does what it says and that the
//! innocent client gets its answers. How long it waits is measured by the long form, on a machine that does nothing
//! else.

use std::time::Duration;

use haypile_harness::hostile::{DIRECTIVES, Options, run};
use haypile_harness::server::{Template, haypile_binary};

fn attack(directives: &str, base: Option<Template>) {
    let binary = haypile_binary().expect("the server is built before its tests");
    let options = Options {
        server: Template::haypile(&binary, directives).expect("the template has its marks"),
        resident_bytes_max: None,
        base,
        time: Duration::from_millis(100),
        attacks: Vec::new(),
        scale: 0.01,
    };
    run(&options).expect("no reply is wrong or missing");
}

#[test]
fn every_attack_is_survived() {
    attack(DIRECTIVES, None);
}

#[test]
fn every_attack_is_survived_with_default_settings_beside_redis_server() {
    attack("", Some(Template::redis("").expect("the template has its marks")));
}
