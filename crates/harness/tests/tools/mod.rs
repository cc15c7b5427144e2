//! The parts that tests with real clients share: a server, and programs that run to their end.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use haypile_harness::server::{Server, Template, Workplace, haypile_binary};

/// A server of our own for one test.
pub fn start(name: &str) -> (Server, Workplace) {
    let binary = haypile_binary().expect("the server is built before its tests");
    let template = Template::haypile(&binary, "--maxmemory 64mb").expect("the template has its marks");
    let place = Workplace::new(name, None).expect("the temporary directory is writable");
    let (server, _) = Server::start(&template, &place).expect("the server starts");
    (server, place)
}

/// Runs a program to its end, which must be a success, and gives what it printed.
pub fn output(program: &str, arguments: &[&str], input: &str) -> String {
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

pub fn cli(port: &str, arguments: &[&str], input: &str) -> String {
    output("redis-cli", &[&["-p", port], arguments].concat(), input)
}

/// The first lines of a program that goes on for ever; it is killed then. `enough` sees each line.
pub fn watch(program: &str, arguments: &[&str], mut enough: impl FnMut(&str) -> bool) {
    // Line by line: without it what goes into a pipe comes in large pieces.
    let mut child = Command::new("stdbuf")
        .args(["-oL", program])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} and stdbuf must be installed: {error}"));
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let seen = lines.map_while(Result::ok).any(|line| enough(&line));
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    assert!(seen, "{program} {arguments:?} ended too early");
}

/// Runs a program to its end, which must be a failure, and gives what it printed.
pub fn failure(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program} must be installed: {error}"));
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success(), "{program} {arguments:?}: {}\n{text}", output.status);
    text
}
