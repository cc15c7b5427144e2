//! Real clients against the server: redis-benchmark, redis-py, go-redis; redis-cli has `cli.rs`, what is built on
//! clients `libraries.rs`. A tool that is missing is a failure; what `make test` needs, it installs.

mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;
use tools::{output, python_with, start};

#[test]
fn redis_benchmark_runs_its_tests() {
    let (server, _place) = start("benchmark");
    let port = server.port().to_string();
    for pipeline in ["1", "16"] {
        // Without a choice: all that it has.
        let arguments = ["-p", &port, "-n", "20000", "-r", "1000", "-d", "100", "-P", pipeline, "--csv"];
        let text = output("redis-benchmark", &arguments, "");
        assert!(text.lines().count() >= 20, "a head and a row for each: {text}");
        for test in ["PING_INLINE", "MSET", "SPOP", "HSET", "ZPOPMIN", "LRANGE_600"] {
            assert!(text.contains(test), "{text}");
        }
        assert!(!text.to_lowercase().contains("err") && !text.contains("WARNING"), "{text}");
    }
    let own = ["-p", &port, "-n", "5000", "-r", "1000", "-q", "SETRANGE", "key:__rand_int__", "5", "abc"];
    let text = output("redis-benchmark", &own, "");
    assert!(text.contains("requests per second"), "{text}");
    server.stop().expect("it stops cleanly");
}

/// redis-py comes with the system's Python; another may be named in `HAYPILE_PYTHON`.
#[test]
fn redis_py_works() {
    let (server, _place) = start("py");
    let python = std::env::var("HAYPILE_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_string());
    let (clients, collections) = (include_str!("data/clients.py"), include_str!("data/collections.py"));
    for script in [clients, collections, include_str!("data/streams.py")] {
        let script = format!("{}{script}", include_str!("data/clients_common.py"));
        let text = output(&python, &["-", &server.port().to_string()], &script);
        assert!(text.ends_with("all good\n"), "{text}");
    }
    server.stop().expect("it stops cleanly");
}

/// The system's redis-py may have no client-side cache yet: the first run fetches one that has.
#[test]
fn redis_py_is_told_what_it_keeps_in_vain() {
    let python = python_with("redis-5.2.1", "redis==5.2.1\n");
    let (server, _place) = start("cache");
    let text = output(&python, &["-", &server.port().to_string()], include_str!("data/caching.py"));
    assert!(text.ends_with("all good\n"), "{text}");
    server.stop().expect("it stops cleanly");
}

/// go-redis is built from its module, which the first build fetches.
#[test]
fn go_redis_works() {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-redis");
    let built = Command::new("go")
        .args(["build", "-buildvcs=false", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(package.join("tests/data/go-redis"))
        .env("CGO_ENABLED", "0")
        .output()
        .expect("go must be installed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let (server, _place) = start("go");
    let text = output(program.to_str().expect("the path is text"), &[&server.port().to_string()], "");
    // The library tells on standard error of subscribers that it has connected again.
    assert!(text.contains("all good\n"), "{text}");
    server.stop().expect("it stops cleanly");
}
