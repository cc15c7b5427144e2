//! A connection over TLS on an event loop: one half that reads, one that writes, over one session.
//!
//! Bytes that were encrypted and that the socket did not take stay in the session, `ENCRYPTED_BYTES_MAX` of them at
//! most. When nothing more is to be written, `Writer::flush` sends them.

use crate::tls::{feed, records_max, records_of};
use rustls::Connection;
use std::cell::{Cell, RefCell};
use std::io::{self, Error, ErrorKind, IoSlice, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, tcp};

/// Bytes that are read from a socket at once.
const READ_BYTES: usize = 64 << 10;

/// Bytes that a session holds encrypted, at most: about what one write gives to a socket.
const ENCRYPTED_BYTES_MAX: usize = 256 << 10;

thread_local! {
    /// The encrypted bytes of one read.
    static ENCRYPTED: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

type Shared = Rc<RefCell<Connection>>;

pub struct Reader {
    half: tcp::OwnedReadHalf,
    session: Shared,
    /// Encrypted bytes that the session had no room for.
    rest: Vec<u8>,
}

pub struct Writer {
    half: tcp::OwnedWriteHalf,
    session: Shared,
    /// Records that may still be encrypted.
    records_left: Cell<u64>,
}

/// Parts a connection whose handshake is done; `rest` was read behind that, and is encrypted.
pub fn split(socket: std::net::TcpStream, mut session: Connection, rest: Vec<u8>) -> io::Result<(Reader, Writer)> {
    session.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
    let (reader, writer) = TcpStream::from_std(socket)?.into_split();
    let records_left = Cell::new(records_max(session.negotiated_cipher_suite()));
    let session = Rc::new(RefCell::new(session));
    let reader = Reader { half: reader, session: session.clone(), rest };
    Ok((reader, Writer { half: writer, session, records_left }))
}

/// Puts the halves together again.
pub fn reunite(reader: Reader, writer: Writer) -> io::Result<(std::net::TcpStream, Connection, Vec<u8>)> {
    let Reader { half, session, rest } = reader;
    let (write_half, shared) = writer.into_parts();
    drop(session);
    let whole = half.reunite(write_half).map_err(|_| Error::other("the halves are of two connections"))?;
    let session = Rc::try_unwrap(shared).map_err(|_| Error::other("the connection is in use"))?.into_inner();
    Ok((whole.into_std()?, session, rest))
}

impl Reader {
    /// Reads what has come, decrypted. Ready with nothing read is the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut session = self.session.borrow_mut();
        let before = buf.filled().len();
        loop {
            let ended = take_plain(&mut session, buf)?;
            let has_read = buf.filled().len() > before;
            if ended || buf.remaining() == 0 || has_read && self.rest.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if !self.rest.is_empty() {
                let taken = feed(&mut session, &self.rest)?;
                self.rest.drain(..taken);
                if self.rest.is_empty() {
                    // The rest may have been long.
                    self.rest = Vec::new();
                }
                continue;
            }
            let read = ENCRYPTED.with_borrow_mut(|encrypted| {
                let mut raw = ReadBuf::new(encrypted);
                match Pin::new(&mut self.half).poll_read(cx, &mut raw) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(read) => read?,
                }
                let bytes = raw.filled();
                if bytes.is_empty() {
                    return Poll::Ready(Ok(true));
                }
                let taken = feed(&mut session, bytes)?;
                self.rest.extend_from_slice(&bytes[taken..]);
                Poll::Ready(Ok(false))
            });
            match read {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(false)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// Moves decrypted bytes into a buffer; whether the client has said that no more come.
fn take_plain(session: &mut Connection, buf: &mut ReadBuf<'_>) -> io::Result<bool> {
    while buf.remaining() > 0 {
        match session.reader().read(buf.initialize_unfilled()) {
            Ok(0) => return Ok(true),
            Ok(count) => buf.advance(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

impl Writer {
    /// Encrypts bytes and writes them as far as the socket takes them. The session keeps the rest of those that are
    /// counted.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.session.borrow_mut();
        write_encrypted(&mut session, &self.half)?;
        let count = session.writer().write(bytes)?;
        self.records_left.set(self.records_left.get().saturating_sub(records_of(count)));
        match write_encrypted(&mut session, &self.half) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Writes encrypted bytes that are left; an error of the kind `WouldBlock` if the socket does not take all of them.
    pub fn flush(&self) -> io::Result<()> {
        write_encrypted(&mut self.session.borrow_mut(), &self.half)
    }

    /// Tells whether the socket has all that was encrypted.
    pub fn is_flushed(&self) -> bool {
        !self.session.borrow().wants_write()
    }

    /// Tells whether the connection has to end because its keys have encrypted as much as they may.
    pub fn is_worn_out(&self) -> bool {
        self.records_left.get() == 0
    }

    pub fn half(&self) -> &tcp::OwnedWriteHalf {
        &self.half
    }

    fn into_parts(self) -> (tcp::OwnedWriteHalf, Shared) {
        (self.half, self.session)
    }

    /// Tells the client that nothing more comes, as far as the socket takes that.
    pub fn say_goodbye(&self) {
        let mut session = self.session.borrow_mut();
        session.send_close_notify();
        let _ = write_encrypted(&mut session, &self.half);
    }
}

fn write_encrypted(session: &mut Connection, half: &tcp::OwnedWriteHalf) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(&mut Now(half))?;
    }
    Ok(())
}

/// A socket that is written as far as it goes at this moment.
struct Now<'a>(&'a tcp::OwnedWriteHalf);

impl Write for Now<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
