//! The handshake of a client, by the accepting thread: what it costs delays no other client's commands.

use rustls::pki_types::CertificateDer;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Error, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The longest time that a handshake may take: then the place is another client's.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

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

/// The common name of the certificate that a client has shown.
pub fn common_name(session: &ServerConnection) -> Option<Vec<u8>> {
    let certificate: &CertificateDer<'_> = session.peer_certificates()?.first()?;
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    Some(name.as_str().ok()?.as_bytes().to_vec())
}
