//! Start and stop: the owner of the directory, the reasons of a refusal, and the data after a stop and after a kill.

mod process;

use process::{Client, PATIENCE, Server, TempDir, fails, free_port, wait_until};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
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

/// Asks the server behind a unix socket for the port that it listens on.
fn port_behind(socket: &Path) -> String {
    let socket = UnixStream::connect(socket).expect("somebody listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    Client { socket }.info("tcp_port")
}

#[test]
fn a_start_that_is_refused_leaves_the_unix_socket_to_its_server() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let path = dir.path().join("haypile.sock");
    let arguments = ["--unixsocket", path.to_str().expect("the path is text")];
    let server = Server::start(dir.path(), &arguments);
    let why = fails(dir.path(), free_port(), &arguments);
    assert!(why.contains("is in use by the server with process id"), "{why}");
    assert_eq!(port_behind(&path), server.port.to_string());
    let why = fails(other.path(), server.port, &arguments);
    assert!(why.contains(&format!("port {} is in use", server.port)), "{why}");
    assert_eq!(port_behind(&path), server.port.to_string());
    server.stop();
    assert!(!path.exists());
}

#[test]
fn a_server_that_stops_leaves_the_unix_socket_of_another() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let path = other.path().join("haypile.sock");
    let arguments = ["--unixsocket", path.to_str().expect("the path is text")];
    let first = Server::start(dir.path(), &arguments);
    // The server that starts last has the path, as in Redis.
    let second = Server::start(other.path(), &arguments);
    first.stop();
    assert_eq!(port_behind(&path), second.port.to_string());
    second.stop();
    assert!(!path.exists());
}

#[test]
fn directories_that_are_not_ours_are_refused() {
    let foreign = TempDir::new();
    std::fs::write(foreign.path().join("diary.txt"), "dear diary").expect("it is writable");
    let why = fails(foreign.path(), free_port(), &[]);
    let whole = foreign.path().canonicalize().expect("it exists");
    let expected = format!("The directory {} is not a data directory of Haypile and not empty", whole.display());
    assert!(why.contains(&format!("{expected} (there is diary.txt). Choose an empty one with --dir")), "{why}");
    std::fs::write(foreign.path().join("dump.rdb"), "REDIS").expect("it is writable");
    let why = fails(foreign.path(), free_port(), &[]);
    assert!(why.contains(&format!("{expected} (there are diary.txt, dump.rdb). These are data of a Redis.")), "{why}");
    assert!(why.contains("`haypile import`"), "{why}");

    for (format, age) in [(1, "older"), (3, "newer")] {
        let other = TempDir::new();
        let text = format!("haypile data directory\nformat {format}\nengine rocksdb\n");
        std::fs::write(other.path().join("HAYPILE"), text).expect("it is writable");
        let why = fails(other.path(), free_port(), &[]);
        let expected = format!("is of format {format}, which is {age} than this program's format 2");
        assert!(why.contains(&expected), "{why}");
    }

    let missing = foreign.path().join("missing");
    let why = fails(&missing, free_port(), &[]);
    assert!(why.contains("'dir' takes an existing directory"), "{why}");
}

#[test]
fn a_directory_is_named_with_its_whole_path() {
    let above = TempDir::new();
    std::fs::create_dir(above.path().join("data")).expect("it is new");
    let above = above.path().canonicalize().expect("it exists");
    let (port, log) = (free_port(), above.join("server.log"));
    let arguments = ["--logfile", log.to_str().expect("the path is text")];
    let server = Server::start_by(process::command(Path::new("data"), port, &arguments).current_dir(&above), port);
    server.stop();
    let log = std::fs::read_to_string(&log).expect("it was written");
    assert!(log.contains(&format!("data in {}, engine", above.join("data").display())), "{log}");

    let mut command = process::command(Path::new("none"), port, &[]);
    let output = command.current_dir(&above).output().expect("the binary runs");
    let why = String::from_utf8_lossy(&output.stderr);
    let expected = format!("{}: No such file or directory", above.join("none").display());
    assert!(!output.status.success() && why.contains(&expected), "{why}");
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
    // A base whose first file is a pipe without writer: it is being opened for ever.
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

/// Each mistake of a configuration that only shows when the server is started: it ends with status 1, says why, and has
/// touched nothing. What is wrong with single lines is told by the tests of the configuration.
#[test]
fn a_wrong_configuration_ends_the_start_with_its_reason() {
    let scratch = TempDir::new();
    let here = |name: &str| scratch.path().join(name).to_str().expect("the path is text").to_owned();
    std::fs::create_dir(here("directory")).expect("it is new");
    std::fs::write(here("file"), "x").expect("it is new");
    std::fs::write(here("picture.conf"), b"\x89PNG\r\n\x1a\n").expect("it is new");
    let (directory, file, picture) = (here("directory"), here("file"), here("picture.conf"));
    let (log, socket, long) = (here("none/log"), here("none/socket"), here(&"a".repeat(120)));
    let cases: [(&[&str], &str); 24] = [
        (&["--logfile", &log], "Can't open the log file"),
        (&["--logfile", &directory], "Is a directory"),
        (&["--daemonize", "yes", "--logfile", &log], "Can't open the log file"),
        (&["--daemonize", "yes", "--logfile", &directory], "Is a directory"),
        (&["--bind", "203.0.113.7"], "Can't listen on 203.0.113.7:"),
        (&["--bind", "nosuch.invalid"], "Can't listen on 'nosuch.invalid'"),
        (&["--port", "0"], "There is nothing to listen on"),
        (&["--port", "65536"], "'port' takes an integer from 0 to 65535"),
        (&["--unixsocket", &socket], "No such file or directory"),
        (&["--unixsocket", &directory], "Is a directory"),
        (&["--unixsocket", &long], "Can't listen on the unix socket"),
        (&["--dir", &file], "Not a directory"),
        (&["--dir", &here("none")], "No such file or directory"),
        (&["--include", &directory], "Is a directory"),
        (&["--include", &picture], "picture.conf, at line 1"),
        (&["--io-pool", "0"], "'io-pool' takes an integer from 1"),
        (&["--maxmemory", "lots"], "argument must be a memory value"),
        (&["--cluster-enabled", "yes"], "'cluster-enabled' is not supported yet"),
        (&["--rename-command", "GET", "SET"], "rename-command"),
        (
            &["--user", "bob", "on", "+nosuch"],
            "Error in user declaration 'bob': Unknown command or category name in ACL",
        ),
        (&["--user", "bob", "(+get"], "Unmatched parenthesis in selector definition"),
        (&["--user", "bob", "--user", "bob"], "Duplicate user found. A user can only be defined once"),
        (&["--user", "bob", "--aclfile", &file], "at the same setting an ACL file path is invalid"),
        (&["--aclfile", &file], "file:1 should start with user keyword followed by the username."),
    ];
    for (arguments, why) in cases {
        let dir = TempDir::new();
        let said = fails(dir.path(), free_port(), arguments);
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(!dir.path().join("HAYPILE").exists(), "{arguments:?}: nothing was written");
    }
}

/// More memory than any machine has is what this one has: nothing is allocated that cannot be there.
#[test]
fn a_budget_beyond_the_machine_is_the_machine() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--maxmemory", "9999gb", "--block-cache-size", "9999gb"]);
    let mut client = server.client();
    let budget: u64 = client.info("memory_budget").parse().expect("a number");
    assert!(budget < 9999 << 30, "{budget}");
    assert_eq!(client.ask("CONFIG GET maxmemory"), "*2\r\n$9\r\nmaxmemory\r\n$14\r\n10736344498176\r\n");
    assert_eq!(client.ask("CONFIG SET maxmemory 64mb row-cache-size 9999gb memtable-size 9999gb"), "+OK\r\n");
    assert_eq!(client.ask("CONFIG SET maxmemory 999gb"), "+OK\r\n");
    assert_eq!(client.info("memory_budget"), budget.to_string());
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    server.stop();
}
