//! A connection over TLS for threads that may wait: one may read while another one writes.
//!
//! The session is locked while bytes are encrypted or decrypted, never while the socket is waited for. Bytes leave in
//! the order in which they were encrypted, because a writer holds `sending` from before the one until after the other.

use crate::tls::{feed, records_max, records_of};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection};
use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that are read from the socket at once.
const READ_BYTES: usize = 64 << 10;

/// Bytes that are encrypted at once.
const WRITE_BYTES: usize = 64 << 10;

/// A connection over TLS.
pub struct Encrypted {
    pub tcp: TcpStream,
    session: Mutex<Connection>,
    /// The receiving half, locked by the thread that reads.
    incoming: Mutex<Incoming>,
    /// The sending half, locked by the thread that writes.
    sending: Mutex<Sending>,
}

/// The buffer of a writer, and the number of records that may still be encrypted.
struct Sending {
    out: Vec<u8>,
    records_left: u64,
}

/// Encrypted bytes that were read.
struct Incoming {
    bytes: Vec<u8>,
    taken: usize,
    filled: usize,
}

impl Encrypted {
    /// Takes a connection whose handshake is done; `read` has come behind it.
    pub fn new(tcp: TcpStream, mut session: Connection, read: Vec<u8>) -> Encrypted {
        // The bound is that of one write.
        session.set_buffer_limit(None);
        let records_left = records_max(session.negotiated_cipher_suite());
        let sending = Mutex::new(Sending { out: Vec::new(), records_left });
        let filled = read.len();
        let mut bytes = read;
        bytes.resize(READ_BYTES.max(filled), 0);
        let incoming = Mutex::new(Incoming { bytes, taken: 0, filled });
        Encrypted { tcp, session: Mutex::new(session), incoming, sending }
    }

    /// Begins TLS as a client, within the read timeout of the socket.
    ///
    /// # Errors
    /// The other one speaks no TLS, or is not trusted, or does not trust this one.
    pub fn connect(mut tcp: TcpStream, host: &str, config: Arc<ClientConfig>) -> io::Result<Encrypted> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| Error::new(ErrorKind::InvalidInput, "the name cannot be one of a server"))?;
        let mut session = ClientConnection::new(config, name).map_err(Error::other)?;
        let deadline = Deadline::of(&tcp)?;
        while session.is_handshaking() {
            while session.wants_write() {
                session.write_tls(&mut tcp)?;
            }
            deadline.look()?;
            match session.read_tls(&mut tcp) {
                Ok(0) => return Err(Error::new(ErrorKind::UnexpectedEof, "it ends the handshake of TLS")),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => _ = read?,
            }
            if let Err(why) = session.process_new_packets() {
                // The alert that says why, if the other one listens still.
                let _ = session.write_tls(&mut tcp);
                return Err(Error::new(ErrorKind::InvalidData, format!("no connection over TLS: {why}")));
            }
        }
        Ok(Encrypted::new(tcp, session.into(), Vec::new()))
    }

    /// Returns the socket, the session, and encrypted bytes that were read and the session has not had.
    pub fn into_parts(self) -> (TcpStream, Connection, Vec<u8>) {
        let Incoming { mut bytes, taken, filled } = self.incoming.into_inner().unwrap_or_else(PoisonError::into_inner);
        bytes.truncate(filled);
        bytes.drain(..taken);
        (self.tcp, self.session.into_inner().unwrap_or_else(PoisonError::into_inner), bytes)
    }

    fn session(&self) -> MutexGuard<'_, Connection> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads, within the socket's timeout: bytes that make nothing readable do not extend it.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let deadline = Deadline::of(&self.tcp)?;
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let has_answer = {
                let mut session = self.session();
                incoming.feed(&mut session)?;
                session.wants_write()
            };
            if has_answer {
                self.send_encrypted()?;
            }
            match self.session().reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            if incoming.taken == incoming.filled {
                deadline.look()?;
                let Incoming { bytes, taken, filled } = &mut *incoming;
                let read = match (&self.tcp).read(bytes) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    read => read?,
                };
                (*taken, *filled) = (0, read);
                if read == 0 {
                    return Ok(0);
                }
            }
        }
    }

    /// Writes all bytes, within the socket's timeout for each part.
    ///
    /// # Errors
    /// Beside those of the socket: the keys have encrypted as much as they may.
    pub fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        for some in bytes.chunks(WRITE_BYTES) {
            let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
            let Sending { out, records_left } = &mut *sending;
            *records_left = records_left.saturating_sub(records_of(some.len()));
            if *records_left == 0 {
                return Err(Error::other("the keys of this connection have encrypted as much as they may"));
            }
            {
                let mut session = self.session();
                session.writer().write_all(some)?;
                gather(&mut session, out)?;
            }
            (&self.tcp).write_all(out)?;
        }
        Ok(())
    }

    fn send_encrypted(&self) -> io::Result<()> {
        let out = &mut self.sending.lock().unwrap_or_else(PoisonError::into_inner).out;
        gather(&mut self.session(), out)?;
        (&self.tcp).write_all(out)
    }
}

impl Incoming {
    /// Gives the session what has come, as far as it takes it.
    fn feed(&mut self, session: &mut Connection) -> io::Result<()> {
        let bytes = &self.bytes[self.taken..self.filled];
        self.taken += feed(session, bytes)?;
        Ok(())
    }
}

/// Moves what is encrypted into a buffer.
fn gather(session: &mut Connection, out: &mut Vec<u8>) -> io::Result<()> {
    out.clear();
    while session.wants_write() {
        session.write_tls(out)?;
    }
    Ok(())
}

/// The end of the time that a socket's timeout gives to one call.
struct Deadline {
    since: Instant,
    timeout: Option<Duration>,
}

impl Deadline {
    fn of(tcp: &TcpStream) -> io::Result<Deadline> {
        Ok(Deadline { since: Instant::now(), timeout: tcp.read_timeout()? })
    }

    /// Checks that there is time left.
    ///
    /// # Errors
    /// The time is over.
    fn look(&self) -> io::Result<()> {
        match self.timeout {
            Some(timeout) if self.since.elapsed() >= timeout => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }
}
