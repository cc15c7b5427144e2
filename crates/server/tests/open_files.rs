//! The limit of open files at the start, and CONFIG SET of `maxclients` within it.

mod process;

use process::{Server, TempDir, free_port, wait_until};
use std::path::Path;
use std::process::Command;

/// Starts a server behind a setting of `ulimit`, as `-n 200`.
fn start(dir: &Path, ulimit: &str, more: &[&str]) -> Server {
    let port = free_port();
    let server = process::command(dir, port, &[&["--logfile", "server.log"], more].concat());
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("ulimit {ulimit} && exec \"$0\" \"$@\"")).arg(server.get_program());
    Server::start_by(command.args(server.get_args()), port)
}

/// Returns the soft and the hard limit of a server.
fn limits(server: &Server) -> [String; 2] {
    let text = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).expect("there is one");
    let mut words = line.split_whitespace().map(str::to_owned);
    [(); 2].map(|()| words.next().expect("a limit"))
}

fn log(dir: &TempDir) -> String {
    std::fs::read_to_string(dir.path().join("server.log")).expect("it is text")
}

#[test]
fn maxclients_are_as_many_as_the_hard_limit_allows() {
    let dir = TempDir::new();
    let server = start(dir.path(), "-n 200", &["--maxclients", "5000"]);
    let mut client = server.client();
    let holds = |clients: u32| format!("*2\r\n$10\r\nmaxclients\r\n${}\r\n{clients}\r\n", clients.to_string().len());
    assert_eq!(client.ask("CONFIG GET maxclients"), holds(100));
    assert_eq!(client.info("maxclients"), "100");
    let log = log(&dir);
    for said in [
        "WARN You requested maxclients of 5000 requiring at least 5512 max file descriptors",
        "Server can't set maximum open files to 5512 because of OS error: the hard limit is 200",
        "maxclients has been reduced to 100 to compensate for low ulimit. If you need higher maxclients increase \
         'ulimit -n'",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }

    wait_until("who asked whether it is up has gone", || client.info("connected_clients") == "1");
    let mut others: Vec<_> = (1..100).map(|_| server.client()).collect();
    assert!(others.iter_mut().all(|other| other.ask("PING") == "+PONG\r\n"), "there are files for all");
    assert_eq!(server.client().rest(), "-ERR max number of clients reached\r\n");
    assert_eq!(client.ask("SET k v"), "+OK\r\n");

    let refused = "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not \
        able to handle the specified number of clients, try with 100\r\n";
    for clients in [101, 10_000, u32::MAX] {
        assert_eq!(client.ask(&format!("CONFIG SET timeout 9 maxclients {clients}")), refused);
        assert_eq!(client.ask("CONFIG GET maxclients"), holds(100));
    }
    assert_eq!(client.ask("CONFIG GET timeout"), "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n");
    for clients in [99, 100] {
        assert_eq!(client.ask(&format!("CONFIG SET maxclients {clients}")), "+OK\r\n");
        assert_eq!(client.ask("CONFIG GET maxclients"), holds(clients));
    }
    server.stop();
}

#[test]
fn the_soft_limit_becomes_the_hard_one() {
    let dir = TempDir::new();
    let server = start(dir.path(), "-Sn 200 && ulimit -Hn 2000", &["--maxclients", "1000"]);
    assert_eq!(limits(&server), ["2000", "2000"]);
    let mut client = server.client();
    assert_eq!(client.info("maxclients"), "1000");
    let log = log(&dir);
    assert!(log.contains("Increased maximum number of open files to 2000 (it was originally set to 200)."), "{log}");
    assert!(!log.contains("low ulimit"), "{log}");
    assert_eq!(client.ask("CONFIG SET maxclients 1488"), "+OK\r\n");
    assert!(client.ask("CONFIG SET maxclients 1489").ends_with("clients, try with 1488\r\n"));
    server.stop();
}
