//! Frames over a socket, for threads that may wait.

use crate::socket::Socket;
use crate::stream::peer_of;
use haypile_commands::host::ClientType;
use haypile_engine::{Engine, Names, ShownServer};
use haypile_replication::Sink;
use haypile_replication::frame::{self, Decoded, Frame};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use std::cell::Cell;
use std::io::{self, Error, ErrorKind};
use std::sync::Arc;

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 256 << 10;

/// Bytes of frames that are gathered before they are sent.
pub const SEND_BYTES: usize = 256 << 10;

/// The capacity above which the buffer of a long frame is not kept.
const KEPT_BYTES: usize = 4 << 20;

/// Shows a connection in CLIENT LIST, until what is returned is dropped. CLIENT KILL closes it.
pub fn show<'e>(engine: &'e Engine, kind: ClientType, names: &Arc<Names>, socket: &Socket) -> ShownServer<'e> {
    let handle = socket.clone();
    engine.show_server(kind, peer_of(socket.tcp()), names, move || handle.shutdown())
}

/// The frames that come in.
pub struct Incoming {
    socket: Socket,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were taken as frames.
    taken: Cell<usize>,
    /// Bytes that the next frame lacks, at least.
    lacks: Cell<usize>,
}

impl Incoming {
    /// Takes a stream of which some bytes have been read already.
    pub fn new(socket: Socket, read: Vec<u8>) -> Incoming {
        Incoming { socket, buffer: read, taken: Cell::new(0), lacks: Cell::new(1) }
    }

    /// Returns the next frame that has come as a whole.
    ///
    /// # Errors
    /// The bytes that have come are no frame. The connection is of no more use.
    pub fn next(&self) -> io::Result<Option<Frame<'_>>> {
        let decoded = frame::decode(&self.buffer[self.taken.get()..]);
        match decoded.map_err(|error| Error::new(ErrorKind::InvalidData, error))? {
            Decoded::Frame(frame, bytes) => {
                self.taken.set(self.taken.get() + bytes);
                Ok(Some(frame))
            }
            Decoded::Incomplete(bytes) => {
                self.lacks.set(bytes);
                Ok(None)
            }
        }
    }

    /// Reads behind the bytes that the buffer has.
    fn read(&mut self) -> io::Result<usize> {
        match &self.socket {
            Socket::Plain(tcp) => loop {
                match rustix::io::read(&**tcp, spare_capacity(&mut self.buffer)) {
                    Err(Errno::INTR) => {}
                    read => return read.map_err(Error::from),
                }
            },
            Socket::Encrypted(encrypted) => {
                let have = self.buffer.len();
                self.buffer.resize(self.buffer.capacity(), 0);
                let read = encrypted.read(&mut self.buffer[have..]);
                self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
                read
            }
        }
    }

    /// Receives more bytes; false if none have come within the stream's time.
    ///
    /// # Errors
    /// The connection broke, or the other end has closed it.
    pub fn receive(&mut self) -> io::Result<bool> {
        let taken = self.taken.take();
        self.buffer.drain(..taken);
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
        let have = self.buffer.len();
        // The sender's claim is believed as far as bytes have come for it.
        self.buffer.reserve(RECEIVE_BYTES.max(self.lacks.get().min(have)));
        match self.read() {
            Ok(0) => Err(Error::new(ErrorKind::UnexpectedEof, "the other end has closed the connection")),
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The frames that go out.
pub struct Outgoing {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Sink for Outgoing {
    /// Sends a frame, now or together with those that follow.
    fn send(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        frame.encode(&mut self.buffer);
        if self.buffer.len() >= SEND_BYTES { self.flush() } else { Ok(()) }
    }
}

impl Outgoing {
    pub fn new(socket: Socket) -> Outgoing {
        Outgoing { socket, buffer: Vec::new() }
    }

    /// Sends the gathered frames.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.socket.write_all(&self.buffer);
        self.buffer.clear();
        if self.buffer.capacity() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
        sent
    }
}
