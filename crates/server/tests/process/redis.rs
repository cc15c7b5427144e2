//! A real redis-server beside ours, and a master that speaks as one does and says what a test wants.

use super::{PATIENCE, Server, TempDir, free_port, request, wait_until};
use haypile_rdb::{Key, Kind, VERSION, Writer};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

/// Starts redis-server without files of its own, and waits until it listens.
pub fn redis(dir: &TempDir, more: &[&str]) -> Server {
    let port = free_port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "yes"]);
    command.arg("--dir").arg(dir.path()).args(more).stdin(Stdio::null()).stdout(Stdio::null());
    let server = Server { child: command.spawn().expect("redis-server is installed"), port };
    wait_until("redis-server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    server
}

/// The name of the stream that a made-up master has.
pub const STREAM: &str = "0123456789abcdef0123456789abcdef01234567";

/// A made-up master.
pub struct Master {
    listener: TcpListener,
    pub port: u16,
}

/// A replica's connection to a made-up master, behind its PSYNC.
pub struct Replica {
    pub socket: TcpStream,
    /// The stream and the offset that it asked for.
    pub asked: (String, i64),
    read: Vec<u8>,
}

impl Master {
    pub fn new() -> Master {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        Master { listener, port }
    }

    /// Takes the next connection, and answers as Redis does until the replica asks for the stream.
    pub fn accept(&self) -> Replica {
        let (socket, _) = self.listener.accept().expect("the replica connects");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let mut replica = Replica { socket, asked: Default::default(), read: Vec::new() };
        loop {
            let words = replica.command();
            let word = |at: usize| words.get(at).map(String::as_str).unwrap_or_default();
            match (word(0), word(1)) {
                ("REPLCONF", "haypile-hello") => replica.say(b"-ERR syntax error\r\n"),
                ("PSYNC", _) => {
                    replica.asked = (word(1).to_owned(), word(2).parse().expect("a number"));
                    return replica;
                }
                _ => replica.say(b"+OK\r\n"),
            }
        }
    }

    /// Takes the next connection, and sends it this file as all data, of this offset.
    pub fn load(&self, file: &[u8], offset: u64) -> Replica {
        let mut replica = self.accept();
        replica.say(format!("+FULLRESYNC {STREAM} {offset}\r\n\n${}\r\n", file.len()).as_bytes());
        replica.say(file);
        replica
    }

    /// Takes the next connection, which goes on from this offset.
    pub fn go_on(&self, offset: u64) -> Replica {
        let mut replica = self.accept();
        assert_eq!(replica.asked, (STREAM.to_owned(), offset as i64 + 1), "it asks for what comes next");
        replica.say(b"+CONTINUE\r\n");
        replica
    }
}

impl Replica {
    pub fn say(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the replica takes it");
    }

    /// Sends commands of the stream; returns their bytes.
    pub fn send(&mut self, commands: &[&str]) -> u64 {
        let mut bytes = Vec::new();
        for line in commands {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            bytes.extend(request(&words));
        }
        self.say(&bytes);
        bytes.len() as u64
    }

    /// Reads the next command of the replica. Between commands it may send empty lines.
    pub fn command(&mut self) -> Vec<String> {
        loop {
            let text = String::from_utf8_lossy(&self.read).into_owned();
            let empty = text.len() - text.trim_start_matches('\n').len();
            let mut lines = text[empty..].split_inclusive("\r\n");
            let count = lines.next().filter(|line| line.ends_with('\n')).map(|line| line[1..].trim().parse::<usize>());
            if let Some(Ok(count)) = count {
                let of_words: Vec<&str> = lines.take(2 * count).collect();
                if of_words.len() == 2 * count && of_words.iter().all(|line| line.ends_with('\n')) {
                    let bytes = text[empty..].split_inclusive("\r\n").take(2 * count + 1).map(str::len).sum::<usize>();
                    let words = of_words.iter().skip(1).step_by(2).map(|word| word.trim_end().to_owned()).collect();
                    self.read.drain(..empty + bytes);
                    return words;
                }
            }
            let mut piece = [0; 4096];
            let count = self.socket.read(&mut piece).expect("the replica speaks");
            assert!(count > 0, "the replica has not gone");
            self.read.extend_from_slice(&piece[..count]);
        }
    }

    /// Waits until the replica says that it has taken all of the stream up to this offset.
    pub fn wait_for(&mut self, offset: u64) {
        loop {
            let words = self.command();
            if words.len() == 3 && words[1] == "ACK" && words[2].parse::<u64>().is_ok_and(|has| has >= offset) {
                assert_eq!(words[2], offset.to_string(), "it has taken no more than there is");
                return;
            }
        }
    }
}

/// Returns a file of Redis with strings.
pub fn file_of(strings: &[(&str, &str)]) -> Vec<u8> {
    let mut file = Writer::file(Vec::new(), VERSION).expect("memory takes it");
    file.database(0).expect("memory takes it");
    for (name, value) in strings {
        let key = Key {
            name: name.as_bytes(),
            kind: Kind::String,
            deadline_ms: None,
            idle_s: None,
            frequency: None,
            position: 0,
        };
        file.key(&key).expect("memory takes it");
        file.string(value.as_bytes()).expect("memory takes it");
    }
    file.end().expect("memory takes it")
}
