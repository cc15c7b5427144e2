//! Real clients against the server: redis-cli, redis-benchmark, redis-py, go-redis. A tool that is missing is a failure; what
//! `make test` needs, it installs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use haypile_harness::server::{Server, Template, Workplace, haypile_binary};

/// A server of our own for one test.
fn start(name: &str) -> (Server, Workplace) {
    let binary = haypile_binary().expect("the server is built before its tests");
    let template = Template::haypile(&binary, "--maxmemory 64mb").expect("the template has its marks");
    let place = Workplace::new(name, None).expect("the temporary directory is writable");
    let (server, _) = Server::start(&template, &place).expect("the server starts");
    (server, place)
}

/// Runs a program to its end, which must be a success, and gives what it printed.
fn output(program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} must be installed: {error}"));
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads its input");
    let output = child.wait_with_output().expect("it is our child");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{text}", output.status);
    text
}

fn cli(port: &str, arguments: &[&str], input: &str) -> String {
    output("redis-cli", &[&["-p", port], arguments].concat(), input)
}

#[test]
fn redis_cli_works() {
    let (server, _place) = start("cli");
    let port = server.port().to_string();
    assert_eq!(
        cli(&port, &[], "SET a \"x y\\x00\"\nGET a\nTTL a\nNOSUCH\n"),
        "OK\nx y\0\n-1\nERR unknown command 'NOSUCH', with args beginning with: \n\n"
    );
    assert_eq!(cli(&port, &["-3", "GET", "nothing"], ""), "\n");
    assert_eq!(cli(&port, &["-n", "3", "SET", "b", "1"], ""), "OK\n");
    assert_eq!(cli(&port, &["-n", "3", "DBSIZE"], ""), "1\n");
    assert_eq!(cli(&port, &["-x", "SET", "stdin"], "from a pipe"), "OK\n");
    assert_eq!(cli(&port, &["GET", "stdin"], ""), "from a pipe\n");
    assert_eq!(cli(&port, &["MULTI"], ""), "OK\n");
    assert_eq!(cli(&port, &[], "MULTI\nSET a 1\nINCR a\nEXEC\n"), "OK\nQUEUED\nQUEUED\nOK\n2\n");
    let info = cli(&port, &["INFO"], "");
    for field in ["redis_version:", "tcp_port:", "db0:keys="] {
        assert!(info.contains(field), "INFO has {field}");
    }
    server.stop().expect("it stops cleanly");
}

#[test]
fn redis_cli_loads_in_bulk_and_iterates() {
    let (server, _place) = start("cli-bulk");
    let port = server.port().to_string();
    let commands: String = (0..5000).map(|n| format!("SET key:{n} value:{n}\r\n")).collect();
    let loaded = cli(&port, &["--pipe"], &commands);
    assert!(loaded.contains("errors: 0, replies: 5000"), "{loaded}");
    let mut names: Vec<String> =
        cli(&port, &["--scan", "--pattern", "key:*"], "").lines().map(str::to_string).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5000);
    let big = cli(&port, &["--bigkeys"], "");
    assert!(big.contains("Sampled 5000 keys"), "{big}");
    server.stop().expect("it stops cleanly");
}

#[test]
fn redis_benchmark_runs_its_tests() {
    let (server, _place) = start("benchmark");
    let port = server.port().to_string();
    for pipeline in ["1", "16"] {
        let tests = "ping_inline,ping_mbulk,set,get,incr,mset";
        let arguments = ["-p", &port, "-t", tests, "-n", "20000", "-r", "1000", "-d", "100", "-P", pipeline, "--csv"];
        let text = output("redis-benchmark", &arguments, "");
        assert_eq!(text.lines().count(), 7, "a head and six rows: {text}");
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
    let text = output(&python, &["-", &server.port().to_string()], include_str!("data/clients.py"));
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
    assert!(text.ends_with("all good\n"), "{text}");
    server.stop().expect("it stops cleanly");
}
