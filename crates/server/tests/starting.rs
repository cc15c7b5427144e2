//! Start and stop: whose directory it is, what is said when it cannot be, what is there after a stop and after a kill.

mod process;

use process::{Server, TempDir, fails, free_port, wait_until};
use std::net::TcpStream;
use std::process::Command;

#[test]
fn data_is_there_after_a_stop_and_after_a_kill() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("MSET a 1 b 2"), "+OK\r\n");
    assert_eq!(client.ask("SELECT 3"), "+OK\r\n");
    assert_eq!(client.ask("SET c 3"), "+OK\r\n");
    server.stop();

    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("MGET a b c"), "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$-1\r\n");
    for n in 0..1000 {
        assert_eq!(client.ask(&format!("SET key{n} {n}")), "+OK\r\n");
    }
    server.kill();

    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("DBSIZE"), ":1002\r\n");
    assert_eq!(client.ask("GET key999"), "$3\r\n999\r\n");
    assert_eq!(client.ask("SELECT 3"), "+OK\r\n");
    assert_eq!(client.ask("GET c"), "$1\r\n3\r\n");
    client.send(b"SHUTDOWN\r\n");
    assert_eq!(client.rest(), "");
    assert_eq!(server.ended().code(), Some(0));
    let log = Command::new(env!("CARGO_BIN_EXE_haypile")).arg("log").arg(dir.path()).output().expect("it runs");
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert!(log.lines().any(|line| line.starts_with("segment ")) && log.contains("\nend "), "{log}");
}

#[test]
fn nothing_is_left_of_engine_memory() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--engine", "memory"]);
    assert_eq!(server.client().ask("SET k v"), "+OK\r\n");
    server.stop();
    let server = Server::start(dir.path(), &["--engine", "memory"]);
    assert_eq!(server.client().ask("DBSIZE"), ":0\r\n");
    server.stop();
    let why = fails(dir.path(), free_port(), &["--engine", "rocksdb"]);
    assert!(why.contains("belongs to 'engine memory'"), "{why}");
}

#[test]
fn a_port_in_use_is_named() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let server = Server::start(dir.path(), &[]);
    let why = fails(other.path(), server.port, &[]);
    assert!(why.contains(&format!("port {} is in use", server.port)), "{why}");
    assert!(!other.path().join("HAYPILE").exists(), "nothing was written");
    server.stop();
}

#[test]
fn a_directory_in_use_is_refused_with_its_holder() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let why = fails(dir.path(), free_port(), &[]);
    assert!(why.contains(&format!("is in use by the server with process id {}", server.pid())), "{why}");
    server.stop();
}

#[test]
fn directories_that_are_not_ours_are_refused() {
    let foreign = TempDir::new();
    std::fs::write(foreign.path().join("diary.txt"), "dear diary").expect("it is writable");
    let why = fails(foreign.path(), free_port(), &[]);
    assert!(why.contains("is not a data directory of Haypile and not empty (there is diary.txt)"), "{why}");

    let newer = TempDir::new();
    let format = "haypile data directory\nformat 2\nengine rocksdb\n";
    std::fs::write(newer.path().join("HAYPILE"), format).expect("it is writable");
    let why = fails(newer.path(), free_port(), &[]);
    assert!(why.contains("is of format 2, which is newer than this server's format 1"), "{why}");

    let missing = foreign.path().join("missing");
    let why = fails(&missing, free_port(), &[]);
    assert!(why.contains("'dir' takes an existing directory"), "{why}");
}

#[test]
fn bad_directives_stop_the_start() {
    let dir = TempDir::new();
    let why = fails(dir.path(), free_port(), &["--wrokers", "2"]);
    assert!(why.contains("did you mean 'workers'"), "{why}");
    let why = fails(dir.path(), free_port(), &["--rename-command", "NOSUCH", "other"]);
    assert!(why.contains("no such command: 'NOSUCH'"), "{why}");
    assert!(!dir.path().join("HAYPILE").exists(), "nothing was written");
}

#[test]
fn clients_are_told_while_data_is_loaded() {
    let dir = TempDir::new();
    Server::start(dir.path(), &[]).stop();
    // A base whose first file nobody writes to: it is being opened for ever.
    let current = dir.path().join("base/CURRENT");
    std::fs::remove_file(&current).expect("a base has such a file");
    assert!(Command::new("mkfifo").arg(&current).status().expect("mkfifo runs").success());
    let server = Server::spawn(dir.path(), free_port(), &[]);
    wait_until("it listens", || TcpStream::connect(("127.0.0.1", server.port)).is_ok());
    let mut client = server.client();
    assert_eq!(client.ask("GET k"), "-LOADING Redis is loading the dataset in memory\r\n");
    assert_eq!(client.info("loading"), "1");
    assert_eq!(client.ask("ECHO hi"), "$2\r\nhi\r\n");
    server.stop();
}

#[test]
fn a_daemon_leaves_its_pid_and_goes_away_with_it() {
    let dir = TempDir::new();
    let (pid_file, log_file) = (dir.path().join("server.pid"), dir.path().join("server.log"));
    let port = free_port();
    let status = process::command(dir.path(), port, &["--daemonize", "yes"])
        .arg("--pidfile")
        .arg(&pid_file)
        .arg("--logfile")
        .arg(&log_file)
        .status()
        .expect("the binary runs");
    assert!(status.success());
    let mut pid = String::new();
    wait_until("the daemon has started", || {
        pid = std::fs::read_to_string(&pid_file).unwrap_or_default();
        pid.ends_with('\n') && std::fs::read_to_string(&log_file).is_ok_and(|log| log.contains("ready to accept"))
    });
    assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().expect("kill runs").success());
    wait_until("the daemon ends", || !pid_file.exists());
    let log = std::fs::read_to_string(&log_file).expect("it was written");
    assert!(log.contains("ready to accept connections on 127.0.0.1:") && log.contains("stopped cleanly"), "{log}");
}
