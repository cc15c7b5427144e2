//! Libraries that live on scripts against the server: queues, locks, limits of rates and sessions, in Python and for
//! Node. All versions are pinned, those of their dependencies too. A tool that is missing is a failure; what
//! `make test` needs, it installs, and the first run fetches the libraries.

mod tools;

use std::path::PathBuf;
use tools::{node_modules, output, python_with, start, text};

/// Runs a script of `data/libraries` from its file: workers of the libraries import what lies beside it.
fn check_python(script: &str) {
    let python = python_with("libraries", include_str!("data/libraries/requirements.txt"));
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this"));
    let file = package.join("tests/data/libraries").join(script);
    let (server, _place) = start(script);
    let printed = output(&python, &["-B", text(&file), &server.port().to_string()], "");
    // The libraries may log on standard error.
    assert!(printed.contains("all good\n"), "{printed}");
    server.stop().expect("it stops cleanly");
}

#[test]
fn rq_works() {
    check_python("rq_queues.py");
}

#[test]
fn celery_works() {
    check_python("celery_tasks.py");
}

#[test]
fn locks_exclude() {
    check_python("redis_locks.py");
}

#[test]
fn rates_are_limited() {
    check_python("rate_limits.py");
}

#[test]
fn sessions_are_kept() {
    check_python("flask_sessions.py");
}

#[test]
fn bullmq_works() {
    let (package, lock) = (include_str!("data/bullmq/package.json"), include_str!("data/bullmq/package-lock.json"));
    let script = node_modules("bullmq", package, lock).join("main.js");
    std::fs::write(&script, include_str!("data/bullmq/main.js")).expect("the directory was made");
    let (server, _place) = start("bullmq");
    let printed = output("node", &[text(&script), &server.port().to_string()], "");
    assert!(printed.contains("all good\n"), "{printed}");
    server.stop().expect("it stops cleanly");
}
