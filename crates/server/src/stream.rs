//! A client's socket, TCP or unix: one half that reads, one half that writes, so that the tick can write replies that
//! the connection's own task did not.

use crate::socket::Socket;
use crate::tls::halves;
use crate::tls::handshake::{self, Greeted};
use crate::tls::threads::Encrypted;
use haypile_engine::Peer;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

/// The longest idle time and interval of keepalive probes that Linux takes, in seconds.
const KEEPALIVE_S_MAX: u32 = 32_767;

/// An accepted socket that has no event loop yet.
pub enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
    /// A client whose handshake is done.
    Tls(Box<Greeted>),
}

pub enum Reader {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Tls(halves::Reader),
}

pub enum Writer {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    Tls(halves::Writer),
}

fn is_loopback(socket: &std::net::TcpStream) -> bool {
    socket.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback())
}

/// Returns the addresses of both ends of a connection.
pub fn peer_of(socket: &std::net::TcpStream) -> Peer {
    let text = |address: io::Result<std::net::SocketAddr>| {
        let canonical = |at: std::net::SocketAddr| std::net::SocketAddr::new(at.ip().to_canonical(), at.port());
        address.map_or_else(|_| "?:0".to_owned(), |address| canonical(address).to_string())
    };
    let (address, local_address) = (text(socket.peer_addr()), text(socket.local_addr()));
    Peer { address, local_address, descriptor: socket.as_raw_fd(), is_local: is_loopback(socket), is_unix: false }
}

impl Accepted {
    /// Sends small packets at once and finds out about dead peers; `keepalive_s` 0 turns the latter off, and a time
    /// that is too long for Linux counts as the longest one.
    pub fn configure(&self, keepalive_s: u32) -> io::Result<()> {
        match self {
            Accepted::Unix(_) | Accepted::Tls(_) => Ok(()),
            Accepted::Tcp(socket) => {
                socket.set_nodelay(true)?;
                if keepalive_s > 0 {
                    // As in Redis, probes begin after the interval; three unanswered ones, a third of it apart, end the
                    // connection.
                    let idle_s = keepalive_s.min(KEEPALIVE_S_MAX);
                    let interval = Duration::from_secs(u64::from((idle_s / 3).max(1)));
                    let keepalive = socket2::TcpKeepalive::new()
                        .with_time(Duration::from_secs(u64::from(idle_s)))
                        .with_interval(interval)
                        .with_retries(3);
                    socket2::SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
                }
                Ok(())
            }
        }
    }

    /// Tells whether the client is on this host.
    pub fn is_local(&self) -> bool {
        match self {
            Accepted::Unix(_) => true,
            Accepted::Tcp(socket) => is_loopback(socket),
            Accepted::Tls(greeted) => is_loopback(&greeted.socket),
        }
    }

    /// Returns the addresses of both ends.
    pub fn peer(&self) -> Peer {
        match self {
            Accepted::Tcp(socket) => peer_of(socket),
            Accepted::Tls(greeted) => peer_of(&greeted.socket),
            Accepted::Unix(socket) => {
                let path = socket.local_addr().ok().and_then(|address| Some(address.as_pathname()?.to_owned()));
                let address = format!("{}:0", path.unwrap_or_default().display());
                let local_address = address.clone();
                Peer { address, local_address, descriptor: socket.as_raw_fd(), is_local: true, is_unix: true }
            }
        }
    }

    /// Returns the common name of the certificate that the client has shown.
    pub fn common_name(&self) -> Option<Vec<u8>> {
        match self {
            Accepted::Tls(greeted) => handshake::common_name(&greeted.session),
            Accepted::Tcp(_) | Accepted::Unix(_) => None,
        }
    }

    /// Sends a last text to a client that is not let in; a failure does not matter.
    pub fn refuse(self, text: &str) {
        use std::io::Write;
        let _ = match self {
            Accepted::Tcp(mut socket) => socket.write(text.as_bytes()),
            Accepted::Unix(mut socket) => socket.write(text.as_bytes()),
            // A client that waits for a handshake takes it for the beginning of one.
            Accepted::Tls(_) => Ok(0),
        };
    }

    /// Registers the socket with this thread's event loop.
    pub fn into_halves(self) -> io::Result<(Reader, Writer)> {
        Ok(match self {
            Accepted::Tcp(socket) => {
                let (reader, writer) = TcpStream::from_std(socket)?.into_split();
                (Reader::Tcp(reader), Writer::Tcp(writer))
            }
            Accepted::Unix(socket) => {
                let (reader, writer) = UnixStream::from_std(socket)?.into_split();
                (Reader::Unix(reader), Writer::Unix(writer))
            }
            Accepted::Tls(greeted) => {
                let (reader, writer) = halves::split(greeted.socket, greeted.session.into(), Vec::new())?;
                (Reader::Tls(reader), Writer::Tls(writer))
            }
        })
    }
}

/// Puts the halves of a connection together again, for threads that may wait. None of a unix socket.
pub fn reunite(reader: Reader, writer: Writer) -> Option<io::Result<Socket>> {
    match (reader, writer) {
        (Reader::Tcp(reader), Writer::Tcp(writer)) => {
            let whole = reader.reunite(writer).map_err(|_| io::Error::other("the halves are of two connections"));
            Some(whole.and_then(TcpStream::into_std).map(Socket::from))
        }
        (Reader::Tls(reader), Writer::Tls(writer)) => {
            Some(halves::reunite(reader, writer).map(|(tcp, session, read)| Encrypted::new(tcp, session, read).into()))
        }
        _ => None,
    }
}

/// Registers a connection that threads had with this thread's event loop. Nobody else has it.
pub fn halves_of(socket: Socket) -> io::Result<(Reader, Writer)> {
    let in_use = || io::Error::other("the connection is in use");
    match socket {
        Socket::Plain(tcp) => {
            let tcp = Arc::into_inner(tcp).ok_or_else(in_use)?;
            tcp.set_nonblocking(true)?;
            Accepted::Tcp(tcp).into_halves()
        }
        Socket::Encrypted(encrypted) => {
            let (tcp, session, read) = Arc::into_inner(encrypted).ok_or_else(in_use)?.into_parts();
            tcp.set_nonblocking(true)?;
            let (reader, writer) = halves::split(tcp, session, read)?;
            Ok((Reader::Tls(reader), Writer::Tls(writer)))
        }
    }
}

impl Reader {
    /// Reads. A read that does not fill the buffer clears the readiness, which saves a read that would find nothing.
    #[inline]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Reader::Tcp(half) => Pin::new(half).poll_read(cx, buf),
            Reader::Unix(half) => Pin::new(half).poll_read(cx, buf),
            Reader::Tls(half) => half.poll_read(cx, buf),
        }
    }
}

impl Writer {
    #[inline]
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Writer::Tcp(half) => half.try_write(bytes),
            Writer::Unix(half) => half.try_write(bytes),
            Writer::Tls(half) => half.try_write(bytes),
        }
    }

    /// Writes what `try_write` has taken and the socket has not; an error of the kind `WouldBlock` if that is not all.
    #[inline]
    pub fn flush(&self) -> io::Result<()> {
        match self {
            Writer::Tcp(_) | Writer::Unix(_) => Ok(()),
            Writer::Tls(half) => half.flush(),
        }
    }

    /// Tells whether the socket has all bytes that `try_write` has taken.
    pub fn is_flushed(&self) -> bool {
        match self {
            Writer::Tcp(_) | Writer::Unix(_) => true,
            Writer::Tls(half) => half.is_flushed(),
        }
    }

    /// Tells whether the connection has to end because its keys have encrypted as much as they may.
    #[inline]
    pub fn is_worn_out(&self) -> bool {
        match self {
            Writer::Tcp(_) | Writer::Unix(_) => false,
            Writer::Tls(half) => half.is_worn_out(),
        }
    }

    /// Tells a client over TLS that nothing more comes. The end of any other connection tells it by itself.
    pub fn say_goodbye(&self) {
        if let Writer::Tls(half) = self {
            half.say_goodbye();
        }
    }

    /// Tells the other side that nothing more comes; it may go on sending.
    pub fn finish(&self) {
        let shutdown = |socket: socket2::SockRef<'_>| socket.shutdown(std::net::Shutdown::Write);
        // A shutdown fails only for a connection that has ended by itself.
        let _ = match self {
            Writer::Tcp(half) => shutdown(half.as_ref().into()),
            Writer::Unix(half) => shutdown(half.as_ref().into()),
            Writer::Tls(half) => {
                half.say_goodbye();
                Ok(())
            }
        };
    }

    /// Ends the connection at once, in both directions; a task that waits for it to be writable is woken.
    pub fn abort(&self) {
        // A shutdown fails only for a connection that has ended by itself.
        let _ = match self {
            Writer::Tcp(half) => socket2::SockRef::from(half.as_ref()).shutdown(std::net::Shutdown::Both),
            Writer::Unix(half) => socket2::SockRef::from(half.as_ref()).shutdown(std::net::Shutdown::Both),
            Writer::Tls(half) => {
                half.say_goodbye();
                socket2::SockRef::from(half.half().as_ref()).shutdown(std::net::Shutdown::Both)
            }
        };
    }

    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Writer::Tcp(half) => half.writable().await,
            Writer::Unix(half) => half.writable().await,
            Writer::Tls(half) => half.half().writable().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_keepalive_is_cut_to_what_linux_takes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let longest_s = u64::from(KEEPALIVE_S_MAX);
        for (keepalive_s, idle_s, interval_s) in [
            (1, 1, 1),
            (300, 300, 100),
            (i32::MAX as u32, longest_s, longest_s / 3),
            (u32::MAX, longest_s, longest_s / 3),
        ] {
            let socket = std::net::TcpStream::connect(address).expect("it listens");
            let client = Accepted::Tcp(socket.try_clone().expect("it can be shared"));
            client.configure(keepalive_s).expect("Linux takes it");
            let of = socket2::SockRef::from(&socket);
            assert!(of.keepalive().expect("it is a socket"), "{keepalive_s}");
            let times = (of.tcp_keepalive_time().unwrap(), of.tcp_keepalive_interval().unwrap());
            assert_eq!(times, (Duration::from_secs(idle_s), Duration::from_secs(interval_s)), "{keepalive_s}");
        }
    }
}
