//! CONFIG REWRITE over a socket: a server that is started anew has the settings of before, and no client waits for the
//! file.

mod process;

use process::{Client, PATIENCE, TempDir, wait_until};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server that is started from a file only.
struct Started {
    child: Child,
    port: u16,
}

impl Started {
    fn from(file: &Path, port: u16) -> Started {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haypile"));
        let child = command.arg("server").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let started = Started { child: child.expect("the binary runs"), port };
        wait_until("it serves", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok() && started.client().ask("PING") == "+PONG\r\n"
        });
        started
    }

    fn client(&self) -> Client<TcpStream> {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        Client { socket }
    }

    fn stop(mut self) {
        self.client().send(b"SHUTDOWN\r\n");
        assert!(self.child.wait().expect("it is our child").success());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A test that failed leaves nothing running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_was_set_and_rewritten_is_there_after_a_start() {
    let dir = TempDir::new();
    let port = process::free_port();
    let file = dir.path().join("haypile.conf");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("it is new");
    let text = format!(
        "# of the test\nbind 127.0.0.1\nport {port}\ndir {}\nmaxmemory 64mb\nworkers 1\n\
         user bob on >pw ~a*\nrename-command FLUSHALL \"\"\nclient-output-buffer-limit pubsub 1mb 2mb 3\n",
        data.display()
    );
    std::fs::write(&file, text).expect("it is writable");
    let server = Started::from(&file, port);
    let mut client = server.client();
    for set in ["maxmemory 96mb timeout 77", "save \"1 2 3 4\"", "durability fsync memtable-size 4mb"] {
        assert_eq!(client.ask(&format!("CONFIG SET {set}")), "+OK\r\n");
    }
    // In a pipeline it comes after what is before it, and before what is behind it.
    client.send(b"CONFIG SET hz 50\r\nCONFIG REWRITE\r\nCONFIG SET hz 60\r\nCONFIG GET hz\r\n");
    assert_eq!((0..3).map(|_| client.reply()).collect::<String>(), "+OK\r\n+OK\r\n+OK\r\n");
    assert_eq!(client.reply(), "*2\r\n$2\r\nhz\r\n$2\r\n60\r\n");
    assert_eq!(client.ask("CONFIG SET hz 50"), "+OK\r\n");
    assert_eq!(client.ask("ACL SETUSER joe on nopass +get (+set ~b*)"), "+OK\r\n");
    assert_eq!(client.ask("CONFIG REWRITE"), "+OK\r\n");
    let (before, users) = (client.ask("CONFIG GET *"), client.ask("ACL LIST"));
    server.stop();

    let written = std::fs::read_to_string(&file).expect("it is there");
    assert!(written.starts_with(&format!("# of the test\nbind 127.0.0.1\nport {port}\ndir \"")), "{written}");
    assert!(written.contains("\nmaxmemory 96mb\n") && written.contains("\nhz 50\n"), "{written}");
    let server = Started::from(&file, port);
    let mut client = server.client();
    assert_eq!((client.ask("CONFIG GET *"), client.ask("ACL LIST")), (before, users));
    assert!(client.ask("FLUSHALL").starts_with("-ERR unknown command 'FLUSHALL'"));
    // In a transaction as well.
    client.send(b"MULTI\r\nCONFIG SET hz 70\r\nCONFIG REWRITE\r\nSET k v\r\nEXEC\r\n");
    (0..4).for_each(|_| assert!(client.reply().starts_with('+')));
    assert_eq!(client.reply(), "*3\r\n+OK\r\n+OK\r\n+OK\r\n");
    assert!(std::fs::read_to_string(&file).expect("it is there").contains("\nhz 70\n"));
    server.stop();
}

#[test]
fn a_rewrite_that_fails_says_why_and_harms_nothing() {
    let dir = TempDir::new();
    let server = process::Server::start(dir.path(), &[]);
    assert_eq!(server.client().ask("CONFIG REWRITE"), "-ERR The server is running without a config file\r\n");
    server.stop();

    let (dir, port) = (TempDir::new(), process::free_port());
    let (data, below) = (dir.path().join("data"), dir.path().join("below"));
    std::fs::create_dir(&data).expect("it is new");
    std::fs::create_dir(&below).expect("it is new");
    let file = below.join("haypile.conf");
    let text = format!("bind 127.0.0.1\nport {port}\ndir {}\nmaxmemory 64mb\nworkers 1\n", data.display());
    std::fs::write(&file, text).expect("it is writable");
    let server = Started::from(&file, port);
    let mut client = server.client();
    std::fs::remove_dir_all(&below).expect("it can go");
    assert_eq!(client.ask("CONFIG REWRITE"), "-ERR Rewriting config file: No such file or directory\r\n");
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    server.stop();
}

/// However the process ends, the file is one of those that were written, and one to start from.
#[test]
fn a_kill_leaves_the_old_file_or_the_new_one() {
    let dir = TempDir::new();
    let port = process::free_port();
    let file = dir.path().join("haypile.conf");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("it is new");
    // Long enough for a write to be cut in two.
    let comment = format!("# {}\n", "x".repeat(100)).repeat(2000);
    let text =
        format!("{comment}bind 127.0.0.1\nport {port}\ndir {}\nmaxmemory 64mb\nworkers 1\ntimeout 1\n", data.display());
    std::fs::write(&file, text).expect("it is writable");
    for round in 0..6 {
        let mut server = Started::from(&file, port);
        let mut client = server.client();
        let mut sent = Vec::new();
        for number in 0..200 {
            sent.extend(format!("CONFIG SET timeout {}\r\nCONFIG REWRITE\r\n", 1000 + number).bytes());
        }
        client.send(&sent);
        (0..10 + 7 * round).for_each(|_| assert_eq!(client.reply(), "+OK\r\n"));
        server.child.kill().expect("it is our child");
        server.child.wait().expect("it is our child");
        let written = std::fs::read_to_string(&file).expect("it is there");
        assert!(written.starts_with(&comment) && written.ends_with('\n'), "round {round}: {} bytes", written.len());
        let timeout: u32 =
            written.lines().find_map(|line| line.strip_prefix("timeout ")?.parse().ok()).expect("a value");
        assert!((1000..1200).contains(&timeout), "round {round}: {timeout}");
    }
    Started::from(&file, port).stop();
}
