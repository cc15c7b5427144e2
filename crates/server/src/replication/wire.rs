//! Frames over a socket, for threads that may wait.

use crate::socket::Socket;
use crate::stream::peer_of;
use haypile_commands::host::ClientType;
use haypile_engine::{Engine, Names, ShownServer};
use haypile_replication::Sink;
use haypile_replication::frame::{self, Decoded, Frame, REPLICA_BODY_BYTES_MAX};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use std::cell::Cell;
use std::io::{self, Error, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 256 << 10;

/// Bytes of frames that are gathered before they are sent.
pub const SEND_BYTES: usize = 256 << 10;

/// The capacity above which the buffer of a long frame is not kept.
const KEPT_BYTES: usize = 4 << 20;

/// Bytes of a frame that is not whole which count as much as a frame: over a slow link, a long one takes its time.
const PART_BYTES: usize = 1 << 20;

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
    /// The most bytes of a frame's body.
    body_most: usize,
    /// The moment when a whole frame was taken last, or `PART_BYTES` of one had come.
    heard: Instant,
    /// Bytes that have come since.
    since_heard: usize,
}

impl Incoming {
    /// Takes a master's stream, of which some bytes have been read already.
    pub fn new(socket: Socket, read: Vec<u8>) -> Incoming {
        Incoming {
            socket,
            buffer: read,
            taken: Cell::new(0),
            lacks: Cell::new(1),
            body_most: usize::MAX,
            heard: Instant::now(),
            since_heard: 0,
        }
    }

    /// Takes a replica's stream, of which some bytes have been read already.
    pub fn of_replica(socket: Socket, read: Vec<u8>) -> Incoming {
        Incoming { body_most: REPLICA_BODY_BYTES_MAX, ..Incoming::new(socket, read) }
    }

    /// Returns for how long no frame has come, and no considerable part of one: bytes that trickle are none. To be
    /// asked when all frames have been taken that are there.
    pub fn silence(&self) -> Duration {
        if self.has_heard() { Duration::ZERO } else { self.heard.elapsed() }
    }

    /// Whether the bytes that were received last ended a frame, or a considerable part of one.
    fn has_heard(&self) -> bool {
        self.taken.get() > 0 || self.since_heard >= PART_BYTES
    }

    /// Returns the next frame that has come as a whole.
    ///
    /// # Errors
    /// The bytes that have come are no frame. The connection is of no more use.
    pub fn next(&self) -> io::Result<Option<Frame<'_>>> {
        let decoded = frame::decode_within(&self.buffer[self.taken.get()..], self.body_most);
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
        if self.has_heard() {
            (self.heard, self.since_heard) = (Instant::now(), 0);
        }
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
            Ok(read) => {
                self.since_heard += read;
                Ok(true)
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// Returns the two ends of a connection, of which a read waits for a moment.
    fn connection() -> (TcpStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let there = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("somebody listens");
        let (here, _) = listener.accept().expect("somebody connects");
        here.set_read_timeout(Some(Duration::from_secs(10))).expect("it can be set");
        (there, Socket::Plain(Arc::new(here)))
    }

    fn encoded(frame: &Frame<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        bytes
    }

    #[test]
    fn bytes_that_trickle_are_silence() {
        let (mut there, here) = connection();
        let mut incoming = Incoming::new(here, Vec::new());
        let began = incoming.heard;
        let frame = encoded(&Frame::Piece { file: 0, offset: 0, bytes: &vec![7; 8 * PART_BYTES] });
        for byte in &frame[..20] {
            there.write_all(&[*byte]).expect("it is read");
            assert!(incoming.receive().expect("it is open"));
            assert!(incoming.next().expect("it is a beginning").is_none());
        }
        assert_eq!(incoming.heard, began, "twenty bytes are no frame");
        assert!(incoming.silence() > Duration::ZERO);
        let rest = frame[20..].to_vec();
        let sent = std::thread::spawn(move || there.write_all(&rest).map(|()| there));
        while incoming.since_heard < PART_BYTES {
            assert!(incoming.receive().expect("it is open"));
        }
        assert_eq!((incoming.heard, incoming.silence()), (began, Duration::ZERO));
        assert!(incoming.receive().expect("it is open"));
        let of_part = incoming.heard;
        assert!(of_part > began, "a part of a long frame counts");
        while incoming.next().expect("it is sound").is_none() {
            assert!(incoming.receive().expect("it is open"));
        }
        assert_eq!(incoming.silence(), Duration::ZERO, "the frame was just taken");
        let mut there = sent.join().expect("no panic").expect("it was read");
        there.write_all(&[0]).expect("it is open");
        assert!(incoming.receive().expect("it is open"));
        assert!(incoming.heard > of_part, "and the frame does");
    }

    #[test]
    fn a_replica_sends_no_long_frames() {
        let (_there, here) = connection();
        let record =
            encoded(&Frame::Message { is_shard: false, channel: b"c", text: &vec![7; REPLICA_BODY_BYTES_MAX] });
        // The claim alone is enough.
        let claim = record[..100].to_vec();
        assert!(Incoming::new(here.clone(), claim.clone()).next().is_ok());
        let refused = Incoming::of_replica(here.clone(), claim).next().map(|frame| frame.is_some());
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::InvalidData));
        let acknowledged = Frame::Listen { classes: 7 };
        let incoming = Incoming::of_replica(here, encoded(&acknowledged));
        assert_eq!(incoming.next().expect("it is sound"), Some(acknowledged));
    }
}
