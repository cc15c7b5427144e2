//! The handshake of a client, by the accepting thread: what it costs delays no other client's commands.

use rustls::pki_types::CertificateDer;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Error, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The longest time that a handshake may take: then the place is another client's.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The time between two warnings about handshakes that failed.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// A client whose handshake is done.
pub struct Greeted {
    pub socket: std::net::TcpStream,
    pub session: ServerConnection,
}

/// Does the handshake of a client that was accepted.
///
/// # Errors
/// The client goes, takes too long, speaks no TLS, or shows no certificate that is trusted. It was told so, if it can
/// be.
pub async fn greet(socket: std::net::TcpStream, config: Arc<ServerConfig>) -> io::Result<Greeted> {
    let socket = TcpStream::from_std(socket)?;
    let mut session = ServerConnection::new(config).map_err(Error::other)?;
    match tokio::time::timeout(HANDSHAKE_MAX, shake(&socket, &mut session)).await {
        Ok(done) => done?,
        Err(_) => return Err(Error::new(ErrorKind::TimedOut, "its handshake takes too long")),
    }
    Ok(Greeted { socket: socket.into_std()?, session })
}

async fn shake(socket: &TcpStream, session: &mut ServerConnection) -> io::Result<()> {
    loop {
        while session.wants_write() {
            match session.write_tls(&mut Now(socket)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => socket.writable().await?,
                written => _ = written?,
            }
        }
        if !session.is_handshaking() {
            return Ok(());
        }
        match session.read_tls(&mut Now(socket)) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {
                if let Err(why) = session.process_new_packets() {
                    // The alert that says why.
                    let _ = session.write_tls(&mut Now(socket));
                    return Err(Error::new(ErrorKind::InvalidData, why));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => socket.readable().await?,
            Err(error) => return Err(error),
        }
    }
}

/// A socket that is read and written as far as it goes at this moment.
struct Now<'a>(&'a TcpStream);

impl Read for Now<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Write for Now<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The failed handshakes of clients, for the log: one line a second, because a port may be tried thousands of times.
#[derive(Default)]
pub struct Failures(Mutex<Told>);

/// The time of the last line, and the failures since then.
#[derive(Default)]
struct Told {
    last: Option<Instant>,
    untold: u64,
}

impl Failures {
    /// Logs the failure of a client's handshake, in Redis's words: as a warning if there was none for a second.
    pub fn log(&self, address: &str, why: &Error) {
        let due = self.0.lock().unwrap_or_else(PoisonError::into_inner).due(Instant::now());
        match due {
            None => tracing::debug!("Error accepting a client connection: {why} (addr={address})"),
            Some(0) => tracing::warn!("Error accepting a client connection: {why} (addr={address})"),
            Some(more) => {
                tracing::warn!("Error accepting a client connection: {why} (addr={address}), and {more} more before");
            }
        }
    }
}

impl Told {
    /// Returns the failures since the last line if it is time for another one.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < LINE_INTERVAL) {
            self.untold += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

/// The common name of the certificate that a client has shown.
pub fn common_name(session: &ServerConnection) -> Option<Vec<u8>> {
    let certificate: &CertificateDer<'_> = session.peer_certificates()?.first()?;
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    Some(name.as_str().ok()?.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_once_a_second() {
        let (mut told, begin) = (Told::default(), Instant::now());
        let due = [0, 1, 999, 1000, 1001, 2500, 3500].map(|ms| told.due(begin + Duration::from_millis(ms)));
        assert_eq!(due, [Some(0), None, None, Some(2), None, Some(1), Some(0)]);
    }
}
