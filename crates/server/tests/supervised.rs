//! The messages to a supervisor, the process that it finds, and a log file that is rotated.

mod process;

use process::{PATIENCE, Server, TempDir, free_port, wait_until};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::Stdio;

/// Starts a server that systemd is said to supervise, hears what it says, stops it, and hears the rest.
#[track_caller]
fn check(rule: &str, supervised: &str, socket: UnixDatagram, name: &str, expected: [&str; 2]) {
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let hear = || {
        let mut text = [0; 512];
        let bytes = socket.recv(&mut text).unwrap_or_else(|error| panic!("{rule}: nothing is said: {error}"));
        String::from_utf8_lossy(&text[..bytes]).into_owned()
    };
    let (dir, port) = (TempDir::new(), free_port());
    let child = process::command(dir.path(), port, &["--supervised", supervised])
        .env("NOTIFY_SOCKET", name)
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let server = Server { child, port };
    assert_eq!(hear(), expected[0], "{rule}");
    assert_eq!(server.client().ask("SET k v"), "+OK\r\n", "{rule}: it serves when it says so");
    server.stop();
    assert_eq!(hear(), expected[1], "{rule}");
}

#[test]
fn systemd_hears_when_the_server_is_ready_and_when_it_stops() {
    let news = ["STATUS=Ready to accept connections\nREADY=1\n", "STOPPING=1\n"];
    let dir = TempDir::new();
    let path = dir.path().join("notify");
    let text = path.to_str().expect("the path is text");
    let bind = |path: &Path| UnixDatagram::bind(path).expect("the path is free");
    check("by a path", "systemd", bind(&path), text, news);
    std::fs::remove_file(&path).expect("it is there");
    check("where the environment tells", "auto", bind(&path), text, news);
    let name = format!("haypile-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("it is short");
    let socket = UnixDatagram::bind_addr(&address).expect("the name is free");
    check("by an abstract name", "systemd", socket, &format!("@{name}"), news);
}

#[test]
fn nobody_hears_where_nobody_is_to_be_told() {
    let dir = TempDir::new();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("the path is free");
    socket.set_nonblocking(true).expect("it can be set");
    let (data, port) = (TempDir::new(), free_port());
    let child = process::command(data.path(), port, &[])
        .env("NOTIFY_SOCKET", &path)
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let server = Server { child, port };
    process::wait_until("it serves", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    process::wait_until("it answers", || server.client().ask("PING") == "+PONG\r\n");
    server.stop();
    assert!(socket.recv(&mut [0; 10]).is_err(), "without `supervised` nothing is said");
}

#[test]
fn the_root_of_a_file_system_is_a_data_directory() {
    let dir = TempDir::new();
    std::fs::create_dir(dir.path().join("lost+found")).expect("it is new");
    Server::start(dir.path(), &[]).stop();
}

#[test]
fn lines_go_to_a_new_file_once_the_log_file_has_been_renamed() {
    let dir = TempDir::new();
    let (log, old) = (dir.path().join("server.log"), dir.path().join("server.log.1"));
    let server = Server::start(dir.path(), &["--enable-debug-command", "yes", "--logfile", "server.log"]);
    let mut client = server.client();
    assert_eq!(client.ask("DEBUG LOG before"), "+OK\r\n");
    std::fs::rename(&log, &old).expect("it is there");
    wait_until("lines are in the new file", || {
        assert_eq!(client.ask("DEBUG LOG after"), "+OK\r\n");
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("DEBUG LOG: after"))
    });
    let text = std::fs::read_to_string(&old).expect("it is kept");
    assert!(text.contains("DEBUG LOG: before"), "{text}");
    let [old, new] = [&old, &log].map(|path| std::fs::metadata(path).expect("it is there").permissions().mode());
    assert_eq!(new, old, "the new file has the permissions of the first one");
    server.stop();
}

#[test]
fn a_hangup_ends_no_server_and_reopens_the_log_file() {
    let dir = TempDir::new();
    let log = dir.path().join("server.log");
    let server = Server::start(dir.path(), &["--logfile", "server.log"]);
    let mut client = server.client();
    server.signal("HUP");
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    std::fs::rename(&log, dir.path().join("server.log.1")).expect("it is there");
    server.signal("HUP");
    wait_until("there is a new file", || log.exists());
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    server.stop();
}
