//! Client-side caching over sockets and across event loops: no client goes on with a value that has changed.

mod process;

use process::{Server, TempDir, request, wait_until};
use std::collections::HashMap;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KEYS: usize = 400;
const WRITERS: usize = 2;
const READERS: usize = 4;

/// How long the clients run.
const TIME: Duration = Duration::from_secs(3);

/// Requests that a reader sends together.
const TOGETHER: usize = 8;

/// A client that keeps what it has read, as libraries do.
struct Cached {
    socket: BufReader<TcpStream>,
    kept: HashMap<String, String>,
    invalidations: usize,
}

impl Cached {
    fn new(port: u16, options: &str) -> Cached {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        socket.set_read_timeout(Some(process::PATIENCE)).expect("a timeout can be set");
        let mut cached = Cached { socket: BufReader::new(socket), kept: HashMap::new(), invalidations: 0 };
        cached.send(format!("HELLO 3\r\nCLIENT TRACKING ON{options}\r\nPING\r\n").as_bytes());
        while cached.line() != "+PONG" {}
        cached
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.get_mut().write_all(bytes).expect("the server takes it");
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.socket.read_exact(&mut byte).expect("the server answers to the end");
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("tests are in ASCII").trim_end().to_owned()
    }

    /// Reads the next reply. What comes before it about keys has them forgotten.
    fn reply(&mut self) -> String {
        loop {
            match self.line().as_str() {
                ">2" => self.forget(),
                "_" => return String::new(),
                line if line.starts_with('$') => return self.line(),
                line => return line.to_owned(),
            }
        }
    }

    fn forget(&mut self) {
        self.invalidations += 1;
        assert_eq!([self.line(), self.line()], ["$10", "invalidate"]);
        match self.line().as_str() {
            "_" => self.kept.clear(),
            count => {
                for _ in 0..count[1..].parse().expect("an array") {
                    self.line();
                    let key = self.line();
                    self.kept.remove(&key);
                }
            }
        }
    }

    /// Reads some keys, and keeps them.
    fn read(&mut self, keys: &[String]) {
        let all: Vec<u8> = keys.iter().flat_map(|key| request(&[b"GET", key.as_bytes()])).collect();
        self.send(&all);
        for key in keys {
            let value = self.reply();
            self.kept.insert(key.clone(), value);
        }
    }
}

/// A sequence of numbers that looks random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn key(&mut self) -> String {
        format!("key:{}", self.below(KEYS))
    }
}

/// Readers that keep what they read, beside writers in all forms, over data that lie on the disk at first.
fn nobody_keeps_what_has_changed(options: &str) {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--workers", "2"]);
    let mut admin = server.client();
    let pad = "x".repeat(2000);
    (0..KEYS).for_each(|key| assert_eq!(admin.ask(&format!("SET key:{key} {pad}")), "+OK\r\n"));
    server.stop();
    let server = Server::start(dir.path(), &["--workers", "2", "--enable-debug-command", "yes"]);
    let port = server.port;
    let is_over = AtomicBool::new(false);
    let mut readers: Vec<Cached> = std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                let (mut client, mut dice) = (server.client(), Dice(writer as u64));
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let (key, other) = (dice.key(), dice.key());
                    let command = match dice.below(60) {
                        0 => "FLUSHALL".to_owned(),
                        1..=9 => format!("DEL {key}"),
                        10..=14 => format!("EVAL \"redis.call('set',KEYS[1],{number})\" 1 {key}"),
                        15..=19 => format!("MULTI\r\nSET {key} {number}\r\nSET {other} {number}\r\nEXEC"),
                        20..=24 => format!("SET {key} {number} PX 1"),
                        25..=29 => format!("RENAME {key} {other}"),
                        30..=34 => format!("MSET {key} {number} {other} {number}"),
                        _ => format!("SET {key} {writer}-{number}"),
                    };
                    client.send(format!("{command}\r\nECHO done\r\n").as_bytes());
                    while client.reply() != "$4\r\ndone\r\n" {}
                }
            });
        }
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let (mut cached, mut dice) = (Cached::new(port, options), Dice(1000 + reader as u64));
                    while !is_over.load(Ordering::Relaxed) {
                        let keys: Vec<String> = (0..TOGETHER).map(|_| dice.key()).collect();
                        cached.read(&keys);
                    }
                    cached
                })
            })
            .collect();
        let since = Instant::now();
        wait_until("the time is over", || since.elapsed() > TIME);
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().expect("no assertion failed")).collect()
    });
    // All deadlines have passed, and been told.
    let mut admin = server.client();
    wait_until("all keys with deadlines have gone", || {
        admin.ask("DBSIZE") == ":0\r\n" || admin.info("db0").contains("expires=0,")
    });
    let now: HashMap<String, String> = (0..KEYS)
        .map(|key| {
            let reply = admin.ask(&format!("GET key:{key}"));
            (format!("key:{key}"), reply.lines().nth(1).unwrap_or_default().to_owned())
        })
        .collect();
    for cached in &mut readers {
        cached.send(b"PING\r\n");
        assert_eq!(cached.reply(), "+PONG");
        assert!(cached.invalidations > 100, "{}", cached.invalidations);
        for (key, value) in &cached.kept {
            assert_eq!(value, &now[key], "{key}");
        }
    }
    server.stop();
}

#[test]
fn nobody_keeps_what_has_changed_of_what_it_has_read() {
    nobody_keeps_what_has_changed("");
}

#[test]
fn nobody_keeps_what_has_changed_of_what_begins_so() {
    nobody_keeps_what_has_changed(" BCAST PREFIX key:");
}

#[test]
fn a_lower_bound_of_tracked_keys_takes_effect_by_itself() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let (mut admin, mut cached) = (server.client(), Cached::new(server.port, ""));
    for number in 0..1000 {
        cached.send(&request(&[b"GET", format!("key:{number}").as_bytes()]));
        assert_eq!(cached.reply(), "");
    }
    assert_eq!(admin.info("tracking_total_keys"), "1000");
    assert_eq!(admin.ask("CONFIG SET tracking-table-max-keys 1"), "+OK\r\n");
    wait_until("the table has no more than it may", || admin.info("tracking_total_keys") == "1");
    wait_until("the client has heard of all others", || {
        cached.send(b"PING\r\n");
        assert_eq!(cached.reply(), "+PONG");
        cached.invalidations == 999
    });
    server.stop();
}
