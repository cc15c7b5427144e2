//! A connection for threads that may wait, encrypted or not.

use crate::tls::threads::Encrypted;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A connection; a clone is another handle of it.
#[derive(Clone)]
pub enum Socket {
    Plain(Arc<TcpStream>),
    Encrypted(Arc<Encrypted>),
}

impl Socket {
    /// The socket itself, for its addresses and its options.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(tcp) => tcp,
            Socket::Encrypted(encrypted) => &encrypted.tcp,
        }
    }

    /// Ends the connection in both directions, whoever reads or writes it.
    pub fn shutdown(&self) {
        // The connection may have ended already.
        let _ = self.tcp().shutdown(Shutdown::Both);
    }

    /// Returns whether the other side has ended the connection, whatever of it has not been read yet. Never waits.
    pub fn has_ended(&self) -> bool {
        let mut ask = [PollFd::new(self.tcp(), PollFlags::RDHUP)];
        let is_told = poll(&mut ask, Some(&Timespec::default())).is_ok_and(|told| told > 0);
        is_told && ask[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }

    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.tcp().set_read_timeout(timeout)
    }

    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.tcp().set_write_timeout(timeout)
    }

    /// Reads some bytes; none at the end.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(tcp) => (&**tcp).read(into),
            Socket::Encrypted(encrypted) => encrypted.read(into),
        }
    }

    pub fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Socket::Plain(tcp) => (&**tcp).write_all(bytes),
            Socket::Encrypted(encrypted) => encrypted.write_all(bytes),
        }
    }
}

impl From<TcpStream> for Socket {
    fn from(tcp: TcpStream) -> Socket {
        Socket::Plain(Arc::new(tcp))
    }
}

impl From<Encrypted> for Socket {
    fn from(encrypted: Encrypted) -> Socket {
        Socket::Encrypted(Arc::new(encrypted))
    }
}
