//! A server that this program talks to as a client: it sends commands, many ahead if it likes, and takes their replies
//! in order.
//!
//! Blocks, so no event loop may use it. Never reconnects and never sends a command again: the user decides about the
//! commands under way when a connection breaks.

use crate::socket::Socket;
use crate::tls::threads::Encrypted;
use crate::tls::{self, Tls, Trusted};
use haypile_commands::keys::dump::LongDump;
use haypile_config::KeyFiles;
use haypile_config::cli::Server;
use haypile_engine::{Target, Targets};
use haypile_resp::decode::{Decoder, error_text};
use haypile_resp::{Reply, write};
use rustls::ClientConfig;
use socket2::{Domain, Protocol, Socket as Socket2, Type};
use std::borrow::Cow;
use std::io::{self, Error, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bytes of commands that are gathered before they are sent.
const SEND_BYTES: usize = 64 << 10;

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 64 << 10;

/// The longest line that `receive_line` takes.
const LINE_BYTES_MAX: usize = 4096;

/// A connection to another server, as a client.
pub struct Remote {
    socket: Socket,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// Bytes of `incoming` that were decoded.
    taken: usize,
    decoder: Decoder,
    /// The time for each reply, and for each piece that is sent.
    timeout: Duration,
}

/// The servers that MIGRATE sends keys to, over TLS if `tls-cluster` says so.
pub struct Remotes {
    pub tls: Arc<Tls>,
    pub settings: Arc<haypile_config::Settings>,
}

impl Targets for Remotes {
    fn connect(&self, host: &[u8], port: u16, timeout: Duration) -> io::Result<Box<dyn Target>> {
        let host = std::str::from_utf8(host).map_err(|error| Error::new(ErrorKind::InvalidInput, error))?;
        let is_encrypted = self.settings.config().tls.cluster;
        let tls = if is_encrypted { Some(self.tls.client().ok_or_else(tls::not_configured)?) } else { None };
        Ok(Box::new(Remote::connect(host, port, timeout, tls)?))
    }
}

impl Target for Remote {
    fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        Remote::send(self, words)
    }

    fn send_long(&mut self, before: &[&[u8]], payload: &mut LongDump, behind: &[&[u8]]) -> io::Result<()> {
        Remote::send_long(self, before, payload, behind)
    }

    fn flush(&mut self) -> io::Result<()> {
        Remote::flush(self)
    }

    fn receive(&mut self) -> io::Result<Reply> {
        Remote::receive(self)
    }
}

impl Remote {
    /// Logs in as this server does on others that it follows or is in a group with.
    ///
    /// # Errors
    /// The password is refused.
    pub fn log_in(&mut self, config: &haypile_config::Config) -> io::Result<()> {
        let (user, password) = (&config.replication.masteruser, &config.replication.masterauth);
        if password.is_empty() {
            return Ok(());
        }
        let words: Vec<&[u8]> = match user.is_empty() {
            true => vec![b"AUTH", password],
            false => vec![b"AUTH", user, password],
        };
        match error_in(&self.call(&words)?) {
            Some(why) => Err(Error::new(ErrorKind::PermissionDenied, format!("it refuses the password: {why}"))),
            None => Ok(()),
        }
    }

    /// Logs in as a command line says, or with the password of the environment.
    ///
    /// # Errors
    /// The server's words, or why there are none.
    pub fn log_in_as(&mut self, place: &Server) -> Result<(), String> {
        let environment = || ["HAYPILE_PASSWORD", "REDISCLI_AUTH"].iter().find_map(|name| std::env::var(name).ok());
        let password = place.password.clone().or_else(environment);
        let words: Vec<String> = match (&place.user, password) {
            (Some(user), password) => vec!["AUTH".into(), user.clone(), password.unwrap_or_default()],
            (None, Some(password)) => vec!["AUTH".into(), password],
            (None, None) => return Ok(()),
        };
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let reply = self.call(&words).map_err(|error| error.to_string())?;
        error_in(&reply).map_or(Ok(()), Err)
    }

    /// Returns this end's address.
    ///
    /// # Errors
    /// The operating system does not know it.
    pub fn local_ip(&self) -> io::Result<std::net::IpAddr> {
        Ok(self.socket.tcp().local_addr()?.ip().to_canonical())
    }

    /// Connects to the server of a command line.
    ///
    /// # Errors
    /// The outer one, a text for people: its certificates or keys cannot be used. The inner one: as `connect`.
    pub fn connect_to(place: &Server, timeout: Duration) -> Result<io::Result<Remote>, String> {
        let tls = place.tls.as_ref().map(|given| {
            let keys = KeyFiles { cert: given.cert.clone(), key: given.key.clone(), key_pass: Vec::new() };
            let roots = || tls::roots_of(given.ca_cert_file.as_deref(), given.ca_cert_dir.as_deref());
            let roots = if given.insecure { None } else { Some(roots()?) };
            tls::client_config(&keys, Trusted { roots, ciphers: "", ciphersuites: "" }, "").map(Arc::new)
        });
        Ok(Remote::connect(&place.host, place.port, timeout, tls.transpose()?))
    }

    /// Connects, over TLS if `tls` says how; the connection attempt, each reply, and each write from then on, may take
    /// `timeout`.
    ///
    /// # Errors
    /// The name is not known, or no address answers: the error of the last one. TLS: one of the two is not trusted.
    pub fn connect(host: &str, port: u16, timeout: Duration, tls: Option<Arc<ClientConfig>>) -> io::Result<Remote> {
        Remote::connect_from("", host, port, timeout, tls)
    }

    /// Connects as `connect` does, from this address of this host; from any if it is empty.
    ///
    /// # Errors
    /// As of `connect`.
    pub fn connect_from(
        source: &str,
        host: &str,
        port: u16,
        timeout: Duration,
        tls: Option<Arc<ClientConfig>>,
    ) -> io::Result<Remote> {
        let mut last = Error::new(ErrorKind::NotFound, "the name has no address");
        // Sockets take no timeout of zero, nor one beyond their clock.
        let timeout = timeout.clamp(Duration::from_millis(1), Duration::from_secs(u32::MAX.into()));
        let addresses = (host, port).to_socket_addrs()?;
        let since = Instant::now();
        for address in addresses {
            let Some(left) = timeout.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) else {
                return Err(Error::new(ErrorKind::TimedOut, "nobody answers"));
            };
            match open(source, address, left) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(timeout))?;
                    stream.set_write_timeout(Some(timeout))?;
                    let (outgoing, incoming) = (Vec::new(), Vec::new());
                    let socket = match tls {
                        Some(tls) => Encrypted::connect(stream, host, tls).map_err(plain)?.into(),
                        None => stream.into(),
                    };
                    return Ok(Remote { socket, outgoing, incoming, taken: 0, decoder: Decoder::new(), timeout });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sets the time for each reply from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns another handle of the connection, by which another thread can end it.
    pub fn handle(&self) -> Socket {
        self.socket.clone()
    }

    /// Returns the connection, and bytes that have come and were not decoded. What is gathered was sent before.
    pub fn into_parts(mut self) -> (Socket, Vec<u8>) {
        self.incoming.drain(..self.taken);
        (self.socket, self.incoming)
    }

    /// Sends a command, now or together with those that follow.
    pub fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        write::array_len(&mut self.outgoing, words.len());
        for word in words {
            if word.len() < SEND_BYTES {
                write::bulk(&mut self.outgoing, word);
            } else {
                // A long word is not copied.
                write!(self.outgoing, "${}\r\n", word.len())?;
                self.flush()?;
                self.socket.write_all(word).map_err(plain)?;
                self.outgoing.extend_from_slice(b"\r\n");
            }
            if self.outgoing.len() >= SEND_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Sends a command with a long payload between its words.
    fn send_long(&mut self, before: &[&[u8]], payload: &mut LongDump, behind: &[&[u8]]) -> io::Result<()> {
        write::array_len(&mut self.outgoing, before.len() + 1 + behind.len());
        before.iter().for_each(|word| write::bulk(&mut self.outgoing, word));
        write!(self.outgoing, "${}\r\n", payload.bytes())?;
        while payload.next(&mut self.outgoing).map_err(Error::other)? {
            self.flush()?;
        }
        self.outgoing.extend_from_slice(b"\r\n");
        behind.iter().for_each(|word| write::bulk(&mut self.outgoing, word));
        self.flush()
    }

    /// Sends the gathered commands.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.socket.write_all(&self.outgoing);
        self.outgoing.clear();
        sent.map_err(plain)
    }

    /// Returns the next reply. Sends the gathered commands before, if it has to wait for the reply.
    ///
    /// # Errors
    /// `TimedOut` if the reply does not come in time, `UnexpectedEof` if the other end has closed the connection,
    /// `InvalidData` if the bytes are no reply. The connection is of no more use.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut since = None;
        loop {
            let decoded = self.decoder.next(&self.incoming[self.taken..]);
            let (bytes, reply) = decoded.map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
            self.taken += bytes;
            if let Some(reply) = reply {
                return Ok(reply);
            }
            self.flush()?;
            // Bytes that trickle in do not extend the timeout.
            let since: &mut Instant = since.get_or_insert_with(Instant::now);
            let left = self.timeout.checked_sub(since.elapsed()).filter(|left| !left.is_zero());
            let left = left.ok_or_else(|| plain(ErrorKind::WouldBlock.into()))?;
            self.socket.set_read_timeout(Some(left))?;
            self.fill()?;
        }
    }

    /// Returns the next line that is not empty, without its end: what is no reply comes behind it. All earlier replies
    /// were taken.
    ///
    /// # Errors
    /// As of `receive`, or the line is too long.
    pub fn receive_line(&mut self) -> io::Result<Vec<u8>> {
        self.socket.set_read_timeout(Some(self.timeout))?;
        loop {
            let rest = &self.incoming[self.taken..];
            match rest.iter().position(|byte| *byte == b'\n') {
                Some(length) => {
                    let line = rest[..length].trim_ascii_end().to_vec();
                    self.taken += length + 1;
                    if !line.is_empty() {
                        return Ok(line);
                    }
                }
                None if rest.len() > LINE_BYTES_MAX => {
                    return Err(Error::new(ErrorKind::InvalidData, "it sends a line without an end"));
                }
                None => self.fill()?,
            }
        }
    }

    /// Sends a command and waits for its reply, when those of all earlier commands were taken.
    pub fn call(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Receives more bytes, behind those that were not decoded yet.
    fn fill(&mut self) -> io::Result<()> {
        self.incoming.drain(..self.taken);
        self.taken = 0;
        let have = self.incoming.len();
        self.incoming.resize(have + RECEIVE_BYTES, 0);
        let read = loop {
            match self.socket.read(&mut self.incoming[have..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.map_err(plain),
            }
        };
        self.incoming.truncate(have + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(Error::new(ErrorKind::UnexpectedEof, "the other end has closed the connection")),
            _ => Ok(()),
        }
    }
}

/// Connects a socket, from an address of this host if one is given and can be had, as Redis does.
fn open(source: &str, address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    if source.is_empty() {
        return TcpStream::connect_timeout(&address, timeout);
    }
    let from_there = || {
        let mut own = (source, 0).to_socket_addrs()?;
        let own = own.find(|own| own.is_ipv4() == address.is_ipv4()).ok_or(ErrorKind::AddrNotAvailable)?;
        let socket = Socket2::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.bind(&own.into())?;
        Ok(socket)
    };
    match from_there() {
        Ok(socket) => {
            socket.connect_timeout(&address.into(), timeout)?;
            Ok(socket.into())
        }
        Err(error) => {
            let error: Error = error;
            tracing::warn!("{source} cannot be connected from, any address is: {error}");
            TcpStream::connect_timeout(&address, timeout)
        }
    }
}

/// Translates a timeout of a socket, which is `WouldBlock` to the operating system.
fn plain(error: Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock => Error::new(ErrorKind::TimedOut, "the other end does not answer"),
        _ => error,
    }
}

/// Returns the text of an error reply, whatever bytes it has; `None` of any other reply.
pub fn error_in(reply: &Reply) -> Option<String> {
    error_text(reply).map(Cow::into_owned)
}

/// Returns whether INFO speaks of a member of a group that does not lead.
pub fn is_beside(reply: &Reply) -> bool {
    let Reply::Bulk(info) = reply else { return false };
    let role =
        std::str::from_utf8(info).ok().and_then(|info| info.lines().find_map(|line| line.strip_prefix("raft_role:")));
    role.is_some_and(|role| role != "leader" && role != "none")
}

/// Returns where another server leads the group that INFO speaks of.
pub fn leader_in(reply: &Reply) -> Option<(String, u16)> {
    let Reply::Bulk(info) = reply else { return None };
    let info = std::str::from_utf8(info).ok()?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let (host, port) =
        field("raft_leader_address").filter(|_| field("raft_role") != Some("leader"))?.rsplit_once(':')?;
    Some((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::thread;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Starts a server that takes `expected`, answers with `reply` in pieces of `piece` bytes, and closes the
    /// connection.
    fn server(expected: &'static [u8], reply: Vec<u8>, piece: usize) -> (u16, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = vec![0; expected.len()];
            stream.read_exact(&mut received).unwrap();
            assert_eq!(received, expected);
            reply.chunks(piece).for_each(|piece| stream.write_all(piece).unwrap());
        });
        (port, served)
    }

    #[test]
    fn replies_come_in_order_however_they_are_cut() {
        let sent = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        let long = "x".repeat(3 * RECEIVE_BYTES);
        let reply = format!("+PONG\r\n${}\r\n{long}\r\n", long.len()).into_bytes();
        for piece in [1 << 20, 4096, 7] {
            let (port, served) = server(sent, reply.clone(), piece);
            let mut remote = Remote::connect("127.0.0.1", port, PATIENCE, None).unwrap();
            remote.send(&[b"PING"]).unwrap();
            remote.send(&[b"GET", b"k"]).unwrap();
            assert_eq!(remote.receive().unwrap(), Reply::Status("PONG".into()));
            assert_eq!(remote.receive().unwrap(), Reply::bulk(long.clone().into_bytes()));
            assert_eq!(remote.receive().unwrap_err().kind(), ErrorKind::UnexpectedEof);
            served.join().unwrap();
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        let (port, served) = server(b"*1\r\n$4\r\nPING\r\n", b"HTTP/1.1 400\r\n".to_vec(), 99);
        let mut remote = Remote::connect("localhost", port, PATIENCE, None).unwrap();
        assert_eq!(remote.call(&[b"PING"]).unwrap_err().kind(), ErrorKind::InvalidData);
        served.join().unwrap();
    }

    #[test]
    fn a_refusal_is_one_whatever_bytes_it_has() {
        let place = Server { host: "127.0.0.1".into(), port: 0, user: None, password: Some("x".into()), tls: None };
        for (reply, said) in
            [(&b"-WRONGPASS no\r\n"[..], "WRONGPASS no"), (b"-WRONGPASS \xff\r\n", "WRONGPASS \u{fffd}")]
        {
            let (port, served) = server(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n", reply.to_vec(), 99);
            let mut remote = Remote::connect("127.0.0.1", port, PATIENCE, None).unwrap();
            assert_eq!(remote.log_in_as(&place), Err(said.to_owned()));
            served.join().unwrap();
        }
        let (port, served) = server(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n", b"+OK\r\n".to_vec(), 99);
        let mut remote = Remote::connect("127.0.0.1", port, PATIENCE, None).unwrap();
        assert_eq!(remote.log_in_as(&place), Ok(()));
        served.join().unwrap();
    }

    #[test]
    fn who_does_not_answer_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut remote = Remote::connect("127.0.0.1", port, Duration::from_millis(20), None).unwrap();
        assert_eq!(remote.call(&[b"PING"]).unwrap_err().kind(), ErrorKind::TimedOut);
        drop(listener);
        assert!(Remote::connect("127.0.0.1", port, PATIENCE, None).is_err());
    }

    #[test]
    fn connections_come_from_the_address_that_is_given() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connect = |source| Remote::connect_from(source, "127.0.0.1", port, PATIENCE, None);
        let remote = connect("127.0.0.2").unwrap();
        assert_eq!(listener.accept().unwrap().1.ip().to_string(), "127.0.0.2");
        assert_eq!(remote.local_ip().unwrap().to_string(), "127.0.0.2");
        for source in ["203.0.113.1", "::1"] {
            let _remote = connect(source).expect("from any other one");
            assert_eq!(listener.accept().unwrap().1.ip().to_string(), "127.0.0.1", "{source}");
        }
    }
}
