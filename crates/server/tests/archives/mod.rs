//! Archives in directories, for tests: servers that write to one, and the subcommands that read it.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::process::following::field;
use crate::process::{Client, Server, TempDir, wait_until};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

/// Runs a subcommand.
pub fn haypile(words: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_haypile")).args(words).output();
    output.expect("the program can be run")
}

/// Runs a subcommand that succeeds; returns its output.
pub fn succeeds(words: &[&str]) -> String {
    let Output { status, stdout, stderr } = haypile(words);
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{words:?}: {stdout}{stderr}");
    stdout.into_owned()
}

/// Runs a subcommand that fails; returns what it says.
pub fn refuses(words: &[&str]) -> String {
    let Output { status, stdout, stderr } = haypile(words);
    assert!(!status.success(), "{words:?}");
    String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned()
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("the path is a text")
}

/// Starts a server that archives to `archive`, what waits at once.
pub fn archiving(dir: &Path, archive: &Path, more: &[&str]) -> Server {
    let own = ["--archive-to", text(archive), "--archive-interval", "1"];
    Server::start(dir, &[&own[..], &DEBUG, more].concat())
}

/// Waits until all that was written is in the archive, and a backup.
pub fn wait_for_archive(client: &mut Client<TcpStream>) {
    let last = field(client, "master_repl_offset");
    wait_until("all is archived", || {
        number(client, "archive_last_record") >= last.parse().expect("a number")
            && !field_of(client, "archive_last_backup").is_empty()
    });
}

pub fn field_of(client: &mut Client<TcpStream>, name: &str) -> String {
    let info = client.ask("INFO archive");
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned));
    value.unwrap_or_else(|| panic!("no {name} in {info}"))
}

pub fn number(client: &mut Client<TcpStream>, name: &str) -> u64 {
    field_of(client, name).parse().expect("a number")
}

pub fn last_record(client: &mut Client<TcpStream>) -> u64 {
    field(client, "master_repl_offset").parse().expect("a number")
}

pub fn digest(client: &mut Client<TcpStream>) -> String {
    client.ask("DEBUG DIGEST")
}

/// Restores into a new directory, and returns it.
pub fn restored(archive: &Path, more: &[&str]) -> (TempDir, PathBuf) {
    let dir = TempDir::new();
    let data = dir.path().join("restored");
    succeeds(&[&["restore", "--from", text(archive), "--dir", text(&data)], more].concat());
    (dir, data)
}

/// Returns the digest of restored data, which are sound.
pub fn digest_of(data: &Path) -> String {
    succeeds(&["check", text(data)]);
    let server = Server::start(data, &DEBUG);
    let digest = digest(&mut server.client());
    server.stop();
    digest
}

/// Returns the files below a directory of an archive.
pub fn objects(archive: &Path, below: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![archive.join(below)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { dirs.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}
