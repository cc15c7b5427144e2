//! The master's data on their way over a connection: a file of Redis, of which the length is told before, or its end
//! shown by a mark.

use super::{LOOK, is_pause};
use crate::socket::Socket;
use haypile_replication::psync::{End, Known, LINE_BYTES_MAX, PsyncError};
use std::io::{self, Error, ErrorKind, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 256 << 10;

/// The bytes of the data, in their order.
pub struct Payload<'a> {
    socket: &'a Socket,
    end: End,
    /// Bytes that have been received and not been read.
    bytes: Vec<u8>,
    at: usize,
    /// Bytes that have been read.
    read: &'a AtomicU64,
    timeout: Duration,
    goes_on: &'a dyn Fn() -> bool,
}

impl<'a> Payload<'a> {
    /// Waits until the master announces its data; `bytes` has come already. While it prepares them, it sends empty
    /// lines.
    ///
    /// # Errors
    /// The connection broke, or is not wanted any more; or something else comes.
    pub fn begin(
        socket: &'a Socket,
        bytes: Vec<u8>,
        read: &'a AtomicU64,
        timeout: Duration,
        goes_on: &'a dyn Fn() -> bool,
    ) -> io::Result<Payload<'a>> {
        socket.set_read_timeout(Some(LOOK))?;
        let mut payload = Payload { socket, end: End::Length(0), bytes, at: 0, read, timeout, goes_on };
        loop {
            let line = &payload.bytes[payload.at..];
            match line.iter().position(|byte| *byte == b'\n') {
                Some(0) => payload.at += 1,
                Some(length) => {
                    payload.end = announced(line[..length].trim_ascii_end())?;
                    payload.at += length + 1;
                    return Ok(payload);
                }
                None if line.len() > LINE_BYTES_MAX => return Err(nothing_announced()),
                None => payload.receive()?,
            }
        }
    }

    /// Returns the bytes that are going to come, if that is known.
    pub fn length(&self) -> Option<u64> {
        match self.end {
            End::Length(length) => Some(length),
            End::Mark(_) => None,
        }
    }

    /// Reads what is left of the data; returns the bytes that have come behind them.
    ///
    /// # Errors
    /// As of `read`.
    pub fn finish(mut self) -> io::Result<Vec<u8>> {
        io::copy(&mut self, &mut io::sink())?;
        self.bytes.drain(..self.at);
        Ok(self.bytes)
    }

    /// Receives more bytes.
    fn receive(&mut self) -> io::Result<()> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let (have, since) = (self.bytes.len(), Instant::now());
        self.bytes.resize(have + RECEIVE_BYTES, 0);
        let read = loop {
            match self.socket.read(&mut self.bytes[have..]) {
                Ok(0) => break Err(Error::new(ErrorKind::UnexpectedEof, "the other end has closed the connection")),
                Err(error) if !is_pause(&error) => break Err(error),
                Ok(read) => break Ok(read),
                Err(_) if !(self.goes_on)() => {
                    break Err(Error::other("the master is another one by now"));
                }
                Err(_) if since.elapsed() > self.timeout => {
                    break Err(Error::new(ErrorKind::TimedOut, "it sends nothing any more"));
                }
                Err(_) => {}
            }
        };
        self.bytes.truncate(have + *read.as_ref().unwrap_or(&0));
        read.map(drop)
    }
}

impl Read for Payload<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.read.load(Ordering::Relaxed);
            match self.end.look(read, &self.bytes[self.at..]) {
                Known::Ended { mark } => {
                    self.at += mark;
                    self.end = End::Length(read);
                    return Ok(0);
                }
                Known::Data(0) => self.receive()?,
                Known::Data(known) => {
                    let count = known.min(into.len());
                    into[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
                    self.at += count;
                    self.read.fetch_add(count as u64, Ordering::Relaxed);
                    return Ok(count);
                }
            }
        }
    }
}

/// Reads the line that announces the data.
fn announced(line: &[u8]) -> io::Result<End> {
    End::parse(line).map_err(|why| match why {
        PsyncError::Refused(words) => {
            Error::other(format!("it cannot send its data: {}", words.trim_start_matches('-')))
        }
        _ => nothing_announced(),
    })
}

fn nothing_announced() -> Error {
    Error::new(ErrorKind::InvalidData, "it does not announce its data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// Sends `bytes` in pieces of `piece`, and reads a payload of it: the data, and what comes behind.
    fn sent(bytes: &[u8], piece: usize) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut master = TcpStream::connect(listener.local_addr()?)?;
        let socket = Socket::from(listener.accept()?.0);
        let bytes = bytes.to_vec();
        let sends = std::thread::spawn(move || {
            bytes.chunks(piece).try_for_each(|piece| {
                std::thread::yield_now();
                master.write_all(piece)
            })
        });
        let (read, mut data) = (AtomicU64::new(0), Vec::new());
        let mut payload = Payload::begin(&socket, b"\n".to_vec(), &read, Duration::from_secs(20), &|| true)?;
        payload.read_to_end(&mut data)?;
        let behind = payload.finish()?;
        sends.join().expect("it does not panic")?;
        assert_eq!(read.into_inner(), data.len() as u64);
        Ok((data, behind))
    }

    #[test]
    fn data_end_at_their_length_or_at_their_mark_however_they_are_cut() {
        let data: Vec<u8> = (0..10_000u32).flat_map(|n| (n * 7).to_le_bytes()).collect();
        let mark = b"abcdefghijabcdefghijabcdefghijabcdefghij";
        let counted = [format!("\n\n${}\r\n", data.len()).as_bytes(), &data].concat();
        let marked = [&b"$EOF:"[..], mark, b"\r\n", &data, mark].concat();
        for piece in [1 << 20, 4096, 333] {
            assert_eq!(sent(&counted, piece).unwrap(), (data.clone(), Vec::new()));
            assert_eq!(sent(&marked, piece).unwrap(), (data.clone(), Vec::new()));
        }
        let followed = [&counted[..], b"*1\r\n$4\r\nPING\r\n"].concat();
        let (read, behind) = sent(&followed, 1 << 20).unwrap();
        assert_eq!(read, data);
        assert!(b"*1\r\n$4\r\nPING\r\n".starts_with(&behind[..]), "it may come later");
        assert_eq!(sent(b"$0\r\n", 9).unwrap().0, b"");
    }

    #[test]
    fn liars_and_those_who_go_are_errors() {
        for wrong in ["hello\r\n", "$\r\n", "$EOF:short\r\n", "$-1\r\n", &"x".repeat(1000), "$12\r\nhalf", "$EOF:"] {
            assert!(sent(wrong.as_bytes(), 64).is_err(), "{wrong}");
        }
        let told = sent(b"-ERR no disk\r\n", 64).unwrap_err().to_string();
        assert!(told.contains("ERR no disk"), "{told}");
    }
}
