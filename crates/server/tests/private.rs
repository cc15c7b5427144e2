//! The view of other users of the machine: not a server's files, unless they are let, and not its passwords.

mod archives;
mod process;

use archives::{archiving, restored, wait_for_archive};
use process::following::{is_equal, replica_of};
use process::{Client, PATIENCE, Server, TempDir, command, free_port, wait_until};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

/// Makes a data directory that others may enter.
fn directory(parent: &TempDir) -> PathBuf {
    let dir = parent.path().join("data");
    std::fs::create_dir(&dir).expect("it can be made");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    dir
}

/// All below a directory, each with its mode.
fn modes(dir: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("it is there") {
        let path = entry.expect("it is readable").path();
        if path.is_dir() {
            found.extend(modes(&path));
        }
        found.push((path.clone(), mode_of(&path)));
    }
    found
}

/// Everything in a data directory has these modes, and each kind of file is among it.
#[track_caller]
fn all_have(dir: &Path, file_mode: u32, directory_mode: u32) {
    let found = modes(dir);
    for (path, mode) in &found {
        let expected = if path.is_dir() { directory_mode } else { file_mode };
        assert_eq!(*mode, expected, "{}: {mode:o}", path.display());
    }
    for part in ["HAYPILE", "haypile.lock", "log/", ".sst", "base/CURRENT", "backups/", "/LOG"] {
        let is_there =
            |path: &PathBuf| path.strip_prefix(dir).is_ok_and(|path| format!("/{}", path.display()).contains(part));
        assert!(found.iter().any(|(path, _)| is_there(path)), "there is no {part}: {found:?}");
    }
}

/// Writes, makes a backup and lets the base have what is in memory, twice: files of all kinds are made.
fn make_files(server: &Server) {
    let mut client = server.client();
    for round in 0..2 {
        assert_eq!(client.ask(&format!("MSET a{round} 1 b{round} 2")), "+OK\r\n");
        assert_eq!(client.ask("SAVE"), "+OK\r\n");
        assert_eq!(client.ask("DEBUG RELOAD"), "+OK\r\n");
    }
}

const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

#[test]
fn files_and_the_unix_socket_are_for_their_owner_only() {
    let parent = TempDir::new();
    let (dir, socket) = (directory(&parent), parent.path().join("haypile.sock"));
    let socket_text = socket.to_str().expect("a plain path");
    let server = Server::start(&dir, &[&DEBUG[..], &["--unixsocket", socket_text]].concat());
    make_files(&server);
    assert_eq!(mode_of(&socket), 0o700);
    assert!(std::fs::metadata(&socket).expect("it is there").file_type().is_socket());
    all_have(&dir, 0o600, 0o700);
    server.stop();

    let export = parent.path().join("dump.rdb");
    let run = |arguments: &[&str]| {
        let status = Command::new(env!("CARGO_BIN_EXE_haypile")).args(arguments).status();
        assert!(status.expect("it runs").success(), "{arguments:?}");
    };
    let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
    run(&["export", &text(&export), "--dir", &text(&dir)]);
    assert_eq!(mode_of(&export), 0o600);
    let imported = parent.path().join("imported");
    // The import makes this directory itself.
    run(&["import", &text(&export), "--dir", &text(&imported)]);
    assert_eq!(mode_of(&imported), 0o700);
    are_private(&imported, "log/");
}

/// Checks that the owner alone may read what is in a directory, and that a file of this kind is among it.
#[track_caller]
fn are_private(dir: &Path, part: &str) {
    let found = modes(dir);
    for (path, mode) in &found {
        assert_eq!(*mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
    assert!(found.iter().any(|(path, _)| path.display().to_string().contains(part)), "there is no {part}: {found:?}");
}

#[test]
fn an_archive_and_what_is_restored_from_it_are_for_their_owner_only() {
    let parent = TempDir::new();
    let (dir, archive) = (directory(&parent), parent.path().join("archive"));
    let server = archiving(&dir, &archive, &[]);
    make_files(&server);
    wait_for_archive(&mut server.client());
    server.stop();
    assert_eq!(mode_of(&archive), 0o700);
    are_private(&archive, "/backups/");
    let (_keep, data) = restored(&archive, &[]);
    assert_eq!(mode_of(&data), 0o700);
    are_private(&data, ".sst");
    // A directory that was there is whosever it was; all in it is not.
    let second = parent.path().join("second");
    std::fs::create_dir(&second).expect("it can be made");
    std::fs::set_permissions(&second, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    archives::succeeds(&["restore", "--from", archives::text(&archive), "--dir", archives::text(&second)]);
    are_private(&second, ".sst");
}

#[test]
fn the_copy_of_a_replica_is_for_its_owner_only() {
    let (parent, other) = (TempDir::new(), TempDir::new());
    let (dir, copied) = (directory(&parent), directory(&other));
    let master = Server::start(&dir, &DEBUG);
    make_files(&master);
    let replica = replica_of(&master, &copied, &DEBUG);
    is_equal(&master, &replica);
    assert_eq!(master.client().info("sync_full"), "1");
    replica.stop();
    master.stop();
    are_private(&copied, ".sst");
}

#[test]
fn a_file_of_users_that_is_made_anew_is_for_its_owner_only() {
    let parent = TempDir::new();
    let (dir, file) = (directory(&parent), parent.path().join("users.acl"));
    std::fs::write(&file, "").expect("it is new");
    let server = Server::start(&dir, &["--aclfile", file.to_str().expect("a plain path")]);
    let mut client = server.client();
    assert_eq!(client.ask("ACL SETUSER bob on >secret"), "+OK\r\n");
    std::fs::remove_file(&file).expect("it is there");
    assert_eq!(client.ask("ACL SAVE"), "+OK\r\n");
    assert_eq!(mode_of(&file), 0o600);
    server.stop();
}

#[test]
fn a_directive_lets_others_read_them() {
    let parent = TempDir::new();
    let (dir, socket) = (directory(&parent), parent.path().join("haypile.sock"));
    let more = ["--data-file-mode", "640", "--unixsocketperm", "777", "--unixsocket", socket.to_str().expect("plain")];
    let server = Server::start(&dir, &[&DEBUG[..], &more].concat());
    make_files(&server);
    assert_eq!(mode_of(&socket), 0o777);
    all_have(&dir, 0o640, 0o750);
    let mut client = Client { socket: UnixStream::connect(&socket).expect("it listens") };
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    server.stop();
    for wrong in ["500", "666", "700", "1600", "x"] {
        let output = command(&dir, free_port(), &["--data-file-mode", wrong]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{wrong}");
    }
}

/// A directory of an earlier version, or one that was copied without care.
#[test]
fn what_is_there_from_before_is_closed_at_the_start() {
    let parent = TempDir::new();
    let dir = directory(&parent);
    let server = Server::start(&dir, &DEBUG);
    make_files(&server);
    server.stop();
    for (path, _) in modes(&dir) {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    let server = Server::start(&dir, &DEBUG);
    assert_eq!(mode_of(&dir), 0o755, "who made it may have others in it");
    for name in ["log", "base", "backups"] {
        assert_eq!(mode_of(&dir.join(name)), 0o700, "{name}");
    }
    for name in ["HAYPILE", "haypile.lock"] {
        assert_eq!(mode_of(&dir.join(name)), 0o600, "{name}");
    }
    assert_eq!(server.client().ask("GET a1"), "$1\r\n1\r\n");
    server.stop();
}

/// Returns everything that others may read of a process.
fn seen_of(pid: u32) -> String {
    let seen = ["cmdline", "comm", "status"].map(|file| std::fs::read(format!("/proc/{pid}/{file}")).expect("it runs"));
    String::from_utf8_lossy(&seen.concat()).replace('\0', " ")
}

/// Waits until the server lets a client in that has the password.
fn log_in(port: u16, password: &str) -> Client<TcpStream> {
    let mut client = None;
    wait_until("it serves", || {
        let Ok(socket) = TcpStream::connect(("127.0.0.1", port)) else { return false };
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let mut one = Client { socket };
        let is_in = one.ask(&format!("AUTH {password}")) == "+OK\r\n" && one.ask("PING") == "+PONG\r\n";
        client = is_in.then_some(one);
        is_in
    });
    client.expect("it is in")
}

#[test]
fn a_password_of_the_command_line_is_not_seen_by_others() {
    let dir = TempDir::new();
    let log = dir.path().join("server.log");
    let more = ["--requirepass", "s3cret phrase", "--loglevel", "debug", "--logfile"];
    let arguments = [&more[..], &[log.to_str().expect("a plain path")]].concat();
    let port = free_port();
    let server = Server { child: command(dir.path(), port, &arguments).spawn().expect("it runs"), port };
    let mut client = log_in(port, "\"s3cret phrase\"");
    let seen = seen_of(server.pid());
    assert!(seen.contains("--requirepass (hidden) --loglevel debug"), "{seen}");
    assert!(seen.contains("haypile"), "the process keeps its name: {seen}");
    let environment = std::fs::read(format!("/proc/{}/environ", server.pid())).expect("it runs");
    let info = client.ask("INFO everything");
    let logged = std::fs::read_to_string(&log).expect("there is a log");
    for text in [&seen, &String::from_utf8_lossy(&environment).into_owned(), &info, &logged] {
        assert!(!text.contains("s3cret"), "{text}");
    }
    server.stop();
}

#[test]
fn nor_that_of_a_server_in_the_background() {
    let dir = TempDir::new();
    let port = free_port();
    let pid_file = dir.path().join("server.pid");
    let more = ["--requirepass", "s3cret", "--daemonize", "yes", "--pidfile", pid_file.to_str().expect("plain")];
    assert!(command(dir.path(), port, &more).status().expect("it runs").success());
    let mut client = log_in(port, "s3cret");
    let pid: u32 = std::fs::read_to_string(&pid_file).expect("it is written").trim().parse().expect("a number");
    assert_eq!(mode_of(&pid_file), 0o644, "what looks after the server may read it");
    let seen = seen_of(pid);
    assert!(seen.contains("--requirepass (hidden)") && !seen.contains("s3cret"), "{seen}");
    client.send(b"SHUTDOWN\r\n");
    assert_eq!(client.rest(), "");
    // A zombie is left where no process takes in orphans.
    let ended = |status: std::io::Result<String>| status.map_or(true, |status| status.contains("State:\tZ"));
    wait_until("it has ended", || ended(std::fs::read_to_string(format!("/proc/{pid}/status"))));
}
