//! A server process for tests: started on a free port in a directory of its own, waited for, stopped by its id. Clients
//! speak RESP by hand, so that the tests see what is on the wire.
#![allow(dead_code, reason = "each test file uses its part")]

use haypile_rdb::lzf::Compressor;
use socket2::{Domain, SockRef, Socket, Type};
pub mod calls;
pub mod changes;
pub mod following;
pub mod group;
pub mod redis;

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a test waits for the process, or for a reply, before it fails.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// How often the process is looked at meanwhile.
const POLL: Duration = Duration::from_millis(2);

/// A directory that goes when the test ends.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("haypile-server-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a temporary directory can be made");
        TempDir(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for TempDir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Sets its flag when it is dropped: those who look at it end whichever way the test ends.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A port that nobody listens on, and that no other test of this process gets.
pub fn free_port() -> u16 {
    haypile_harness::port::free_port().expect("one is free")
}

/// Takes a port that refuses connections for as long as the socket is there: a free one may soon be another test's.
pub fn closed_port() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("sockets can be made");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("the loopback has a free port");
    let address = socket.local_addr().ok().and_then(|address| address.as_socket());
    (socket, address.expect("it is bound").port())
}

/// The command line of a server with two event loops and a small budget.
pub fn command(dir: &Path, port: u16, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haypile"));
    command.args(["server", "--bind", "127.0.0.1", "--workers", "2", "--maxmemory", "128mb"]);
    command.args(["--port", &port.to_string(), "--dir"]).arg(dir).args(more);
    command.stdin(Stdio::null());
    command
}

/// Runs a server that is expected not to start: its exit status and what it said.
pub fn fails(dir: &Path, port: u16, more: &[&str]) -> String {
    let output: Output = command(dir, port, more).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub struct Server {
    pub child: Child,
    pub port: u16,
}

impl Server {
    /// Starts a server and waits until it serves.
    pub fn start(dir: &Path, more: &[&str]) -> Server {
        Server::start_at(dir, free_port(), more)
    }

    pub fn start_at(dir: &Path, port: u16, more: &[&str]) -> Server {
        Server::start_by(&mut command(dir, port, more), port)
    }

    /// Starts a server by this command, which has it listen at this port, and waits until it serves.
    pub fn start_by(command: &mut Command, port: u16) -> Server {
        let child = command.stdout(Stdio::null()).spawn().expect("the binary runs");
        let mut server = Server { child, port };
        wait_until("it serves", || {
            if let Some(status) = server.child.try_wait().expect("it is our child") {
                panic!("the server ended: {status}");
            }
            server.is_ready()
        });
        server
    }

    /// Tells whether the server answers PING, with something else than LOADING.
    fn is_ready(&self) -> bool {
        let Ok(socket) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let mut client = Client { socket };
        client.socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let mut reply = Vec::new();
        let answered = client.socket.write_all(b"PING\r\n").and_then(|()| client.read_reply(&mut reply));
        answered.is_ok() && reply == b"+PONG\r\n"
    }

    /// Starts a server without waiting for it.
    pub fn spawn(dir: &Path, port: u16, more: &[&str]) -> Server {
        let child = command(dir, port, more).stdout(Stdio::null()).spawn().expect("the binary runs");
        Server { child, port }
    }

    pub fn client(&self) -> Client<TcpStream> {
        Client::at(self.port)
    }

    /// A client whose socket takes little of what it does not read.
    pub fn deaf_client(&self) -> Client<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be made");
        socket.set_recv_buffer_size(4096).expect("it can be set");
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        socket.connect(&address.into()).expect("the server listens");
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        Client { socket }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Memory that the process occupies.
    pub fn resident_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid())).expect("it runs");
        let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
        pages * 4096
    }

    /// Looks at the memory until `is_done`, while another client writes; returns the most memory, and the longest wait
    /// of the other client.
    pub fn watch_memory(&self, mut is_done: impl FnMut() -> bool) -> (u64, Duration) {
        let (mut other, mut most, mut longest) = (self.client(), 0, Duration::ZERO);
        while !is_done() {
            let asked = Instant::now();
            assert_eq!(other.ask("SET other 1"), "+OK\r\n");
            longest = longest.max(asked.elapsed());
            most = most.max(self.resident_bytes());
            std::thread::sleep(POLL);
        }
        (most, longest)
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Stops the process where it is, and waits until each of its threads stands still.
    pub fn halt(&self) {
        self.signal("STOP");
        wait_until("all its threads stand still", || {
            let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it is there");
            threads.flatten().all(|thread| {
                // A thread may end meanwhile.
                let state = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                state.is_empty() || state.rsplit_once(") ").is_some_and(|(_, behind)| behind.starts_with('T'))
            })
        });
    }

    /// Waits for its end.
    pub fn ended(mut self) -> ExitStatus {
        let mut status = None;
        wait_until("it ends", || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// Sends SIGTERM, and expects a clean end.
    pub fn stop(self) {
        self.signal("TERM");
        assert_eq!(self.ended().code(), Some(0));
    }

    pub fn kill(mut self) {
        self.kill_now();
    }

    /// Kills it and waits for its end; another one may be started in its place.
    pub fn kill_now(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed leaves nothing running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
pub fn wait_until(what: &str, done: impl FnMut() -> bool) {
    wait_within(PATIENCE, what, done);
}

#[track_caller]
pub fn wait_within(patience: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < patience, "waited too long until {what}");
        std::thread::sleep(POLL);
    }
}

/// A client over any socket.
pub struct Client<S> {
    pub socket: S,
}

impl Client<TcpStream> {
    /// Connects to whatever listens at this port.
    pub fn at(port: u16) -> Client<TcpStream> {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        Client { socket }
    }
}

impl<S: Read + Write> Client<S> {
    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server takes it");
    }

    /// Sends an inline command and reads its whole reply, as it is on the wire.
    pub fn ask(&mut self, command: &str) -> String {
        self.send(format!("{command}\r\n").as_bytes());
        self.reply()
    }

    /// Sends an inline command and reads its whole reply; None where the connection ends instead.
    pub fn try_ask(&mut self, command: &str) -> Option<String> {
        self.socket.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        self.try_reply()
    }

    /// Sends a command with any arguments.
    pub fn ask_words(&mut self, words: &[&[u8]]) -> String {
        self.send(&request(words));
        self.reply()
    }

    /// Sends a command with any arguments; None where the connection ends instead of a reply.
    pub fn try_ask_words(&mut self, words: &[&[u8]]) -> Option<String> {
        self.socket.write_all(&request(words)).ok()?;
        self.try_reply()
    }

    /// One reply with all that is in it.
    pub fn reply(&mut self) -> String {
        let mut bytes = Vec::new();
        self.read_reply(&mut bytes).expect("the server answers to the end");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn try_reply(&mut self) -> Option<String> {
        let mut bytes = Vec::new();
        self.read_reply(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn read_reply(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let start = bytes.len();
        while !bytes[start..].ends_with(b"\r\n") {
            let mut byte = [0];
            self.socket.read_exact(&mut byte)?;
            bytes.push(byte[0]);
        }
        let line = String::from_utf8_lossy(&bytes[start..]).into_owned();
        let count = line[1..].trim_end().parse::<i64>().unwrap_or(0).max(0) as usize;
        match line.as_bytes()[0] {
            b'$' | b'=' if !line.starts_with("$-1") => {
                let from = bytes.len();
                bytes.resize(from + count + 2, 0);
                self.socket.read_exact(&mut bytes[from..])
            }
            b'*' | b'~' | b'>' => (0..count).try_for_each(|_| self.read_reply(bytes)),
            b'%' => (0..2 * count).try_for_each(|_| self.read_reply(bytes)),
            _ => Ok(()),
        }
    }

    /// The next line; empty where the connection has ended.
    pub fn line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") && matches!(self.socket.read(&mut byte), Ok(1)) {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Whether a reply has come, or the end of the connection.
    pub fn has_reply(&self) -> bool
    where
        S: AsFd,
    {
        let socket = SockRef::from(&self.socket);
        socket.set_nonblocking(true).expect("it is a socket");
        let peeked = socket.peek(&mut [MaybeUninit::uninit()]);
        socket.set_nonblocking(false).expect("it is a socket");
        !peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Everything until the server closes.
    pub fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        // A reset is an end as well.
        let _ = self.socket.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The value of a field of INFO.
    pub fn info(&mut self, field: &str) -> String {
        let all = self.ask("INFO everything");
        let line = all.lines().find_map(|line| line.strip_prefix(&format!("{field}:")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("there is a field {field}"))
    }
}

/// A request as clients send it.
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Returns a string as RDB files have it, compressed.
pub fn compressed(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert!(Compressor::default().compress(text, usize::MAX, &mut bytes));
    let lengths = [bytes.len(), text.len()].map(|length| (length as u32).to_be_bytes());
    [&[0xc3, 0x80][..], &lengths[0], &[0x80], &lengths[1], &bytes].concat()
}
