//! The parts that tests with real clients share: a server, and programs that run to their end.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

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

/// A Python that has the packages of `requirements`, lines as pip reads them. The first run fetches them, and so does
/// the first one after a change.
pub fn python_with(name: &str, requirements: &str) -> String {
    let place = installed(name, requirements, |place| {
        let (file, python) = (place.join("requirements.txt"), place.join("bin/python"));
        output("/usr/bin/python3", &["-m", "venv", "--clear", text(place)], "");
        std::fs::write(&file, requirements).expect("the directory was made");
        output(text(&python), &["-m", "pip", "install", "--quiet", "-r", text(&file)], "");
    });
    text(&place.join("bin/python")).to_string()
}

/// A directory with the packages that a `package.json` and its lock file name. The first run fetches them, and so does
/// the first one after a change.
pub fn node_modules(name: &str, package: &str, lock: &str) -> PathBuf {
    installed(name, lock, |place| {
        std::fs::create_dir_all(place).expect("the directory is writable");
        std::fs::write(place.join("package.json"), package).expect("the directory was made");
        std::fs::write(place.join("package-lock.json"), lock).expect("the directory was made");
        output("npm", &["--prefix", text(place), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], "");
    })
}

/// The class path of a Java program of one file that stands on what its `pom.xml` names. The first run fetches that and
/// compiles, and so does the first one after a change.
pub fn java_program(name: &str, pom: &str, file: &str, program: &str) -> String {
    let place = installed(name, &[pom, program].concat(), |place| {
        let (project, libraries, source) = (place.join("pom.xml"), place.join("libraries"), place.join(file));
        std::fs::create_dir_all(place).expect("the directory is writable");
        std::fs::write(&project, pom).expect("the directory was made");
        std::fs::write(&source, program).expect("the directory was made");
        let into = format!("-DoutputDirectory={}", text(&libraries));
        let copies = "dependency:copy-dependencies";
        output("mvn", &["--batch-mode", "--quiet", "--strict-checksums", "-f", text(&project), copies, &into], "");
        output("javac", &["-cp", &format!("{}/*", text(&libraries)), "-d", text(place), text(&source)], "");
    });
    format!("{0}:{0}/libraries/*", text(&place))
}

/// A directory that stays from run to run, filled by `install` unless that was done for the same `wanted` before.
fn installed(name: &str, wanted: &str, install: impl FnOnce(&Path)) -> PathBuf {
    // The tests of one file run at the same time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().expect("no installation has failed");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let done = place.join("done");
    if std::fs::read_to_string(&done).ok().as_deref() != Some(wanted) {
        // A half of this installation must not pass for the whole of the last one.
        _ = std::fs::remove_file(&done);
        install(&place);
        std::fs::write(&done, wanted).expect("the directory was made");
    }
    place
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("the path is text")
}
