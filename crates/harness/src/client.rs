//! A small blocking RESP client: pipelined sends, replies as plain values that compare byte for byte.
//!
//! The client decodes on its own, without the server's protocol crate, so that an error made on both sides there cannot
//! cancel out here. The client never reconnects and never retries: its user wants to know what happened to a
//! connection.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::quoted::abbreviate;

/// A reply as received: its type and its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reply {
    Simple(Vec<u8>),
    /// An error with its code, without the `-`.
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    /// RESP2's `$-1`.
    NullBulk,
    /// RESP2's `*-1`.
    NullArray,
    /// RESP3's `_`.
    Null,
    /// RESP3's `,`, as text.
    Double(Vec<u8>),
    Boolean(bool),
    BigNumber(Vec<u8>),
    BlobError(Vec<u8>),
    /// A text with its format, as in `txt:...`.
    Verbatim(Vec<u8>),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
}

impl Reply {
    pub fn bulk(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply::Bulk(bytes.into())
    }

    pub fn ok() -> Reply {
        Reply::Simple(b"OK".to_vec())
    }

    pub fn is_ok(&self) -> bool {
        matches!(self, Reply::Simple(text) if text == b"OK")
    }

    pub fn is_nil(&self) -> bool {
        matches!(self, Reply::NullBulk | Reply::NullArray | Reply::Null)
    }

    /// Returns the text of an error reply.
    pub fn error(&self) -> Option<String> {
        match self {
            Reply::Error(text) | Reply::BlobError(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }
    }

    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the bytes of a reply that is one string of any type.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Simple(bytes) | Reply::Bulk(bytes) => Some(bytes),
            Reply::Verbatim(bytes) => bytes.get(4..),
            _ => None,
        }
    }

    /// Returns the elements of an array, set or push.
    pub fn elements(&self) -> Option<&[Reply]> {
        match self {
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => Some(items),
            _ => None,
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Simple(text) => write!(f, "+{}", String::from_utf8_lossy(text)),
            Reply::Error(text) => write!(f, "-{}", String::from_utf8_lossy(text)),
            Reply::BlobError(text) => write!(f, "!{}", String::from_utf8_lossy(text)),
            Reply::Integer(number) => write!(f, ":{number}"),
            Reply::Bulk(bytes) => write!(f, "${}", abbreviate(bytes)),
            Reply::Verbatim(bytes) => write!(f, "={}", abbreviate(bytes)),
            Reply::Double(text) => write!(f, ",{}", String::from_utf8_lossy(text)),
            Reply::BigNumber(text) => write!(f, "({}", String::from_utf8_lossy(text)),
            Reply::Boolean(yes) => write!(f, "#{}", if *yes { 't' } else { 'f' }),
            Reply::NullBulk => write!(f, "$-1"),
            Reply::NullArray => write!(f, "*-1"),
            Reply::Null => write!(f, "_"),
            Reply::Array(items) => list(f, '*', items),
            Reply::Set(items) => list(f, '~', items),
            Reply::Push(items) => list(f, '>', items),
            Reply::Map(pairs) => {
                write!(f, "%{{")?;
                for (i, (key, value)) in pairs.iter().enumerate() {
                    write!(f, "{}{key} => {value}", if i == 0 { "" } else { ", " })?;
                }
                write!(f, "}}")
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, mark: char, items: &[Reply]) -> fmt::Result {
    write!(f, "{mark}[")?;
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
    }
    write!(f, "]")
}

/// The greatest depth of nested replies: the deepest of Redis, COMMAND DOCS, needs about ten.
const DEPTH_MAX: u32 = 64;

/// Reads one reply. A malformed one is `InvalidData`, a closed connection `UnexpectedEof`.
pub fn decode(from: &mut impl BufRead) -> io::Result<Reply> {
    decode_at(from, DEPTH_MAX)
}

fn decode_at(from: &mut impl BufRead, depth: u32) -> io::Result<Reply> {
    let line = line(from)?;
    let (&mark, text) = line.split_first().ok_or_else(|| malformed("an empty line"))?;
    let items = |from: &mut _, count: i64| -> io::Result<Vec<Reply>> {
        if depth == 0 {
            return Err(malformed("a reply nested too deeply"));
        }
        (0..count).map(|_| decode_at(from, depth - 1)).collect()
    };
    Ok(match mark {
        b'+' => Reply::Simple(text.to_vec()),
        b'-' => Reply::Error(text.to_vec()),
        b':' => Reply::Integer(number(text)?),
        b'_' if text.is_empty() => Reply::Null,
        b',' => Reply::Double(text.to_vec()),
        b'(' => Reply::BigNumber(text.to_vec()),
        b'#' if text == b"t" => Reply::Boolean(true),
        b'#' if text == b"f" => Reply::Boolean(false),
        b'$' if text == b"-1" => Reply::NullBulk,
        b'*' if text == b"-1" => Reply::NullArray,
        b'$' => Reply::Bulk(body(from, number(text)?)?),
        b'!' => Reply::BlobError(body(from, number(text)?)?),
        b'=' => Reply::Verbatim(body(from, number(text)?)?),
        b'*' => Reply::Array(items(from, length(text)?)?),
        b'~' => Reply::Set(items(from, length(text)?)?),
        b'>' => Reply::Push(items(from, length(text)?)?),
        b'%' => {
            let mut flat = items(from, 2 * length(text)?)?.into_iter();
            let mut pairs = Vec::new();
            while let (Some(key), Some(value)) = (flat.next(), flat.next()) {
                pairs.push((key, value));
            }
            Reply::Map(pairs)
        }
        _ => return Err(malformed(&format!("the line {}", abbreviate(&line)))),
    })
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {what}"))
}

/// Reads a line without its CRLF.
fn line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\n") {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if !line.ends_with(b"\r\n") {
        return Err(malformed("a line without CRLF"));
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

fn number(text: &[u8]) -> io::Result<i64> {
    let text = std::str::from_utf8(text).map_err(|_| malformed("a number"))?;
    text.parse().map_err(|_| malformed(&format!("the number {text:?}")))
}

fn length(text: &[u8]) -> io::Result<i64> {
    number(text).and_then(|n| if n < 0 { Err(malformed("a negative length")) } else { Ok(n) })
}

fn body(from: &mut impl BufRead, length: i64) -> io::Result<Vec<u8>> {
    let length = u64::try_from(length).map_err(|_| malformed("a negative length"))?;
    let mut bytes = Vec::new();
    from.take(length + 2).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length + 2 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if !bytes.ends_with(b"\r\n") {
        return Err(malformed("a bulk without CRLF"));
    }
    bytes.truncate(length as usize);
    Ok(bytes)
}

/// Appends a command as a RESP array of bulks.
pub fn encode(arguments: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    const WRITES: &str = "a vector takes any bytes";
    write!(out, "*{}\r\n", arguments.len()).expect(WRITES);
    for argument in arguments {
        let bytes = argument.as_ref();
        write!(out, "${}\r\n", bytes.len()).expect(WRITES);
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

/// A connection. Commands gather in `out` until [`Client::flush`]; replies are read in order.
pub struct Client {
    input: BufReader<TcpStream>,
    out: Vec<u8>,
}

impl Client {
    /// Connects to a server on this machine. A read that waits longer than `timeout` fails with `WouldBlock`.
    pub fn connect(port: u16, timeout: Duration) -> io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Client::over(stream))
    }

    /// Uses a connection as it is, with its time limits.
    pub fn over(stream: TcpStream) -> Client {
        Client { input: BufReader::with_capacity(64 << 10, stream), out: Vec::new() }
    }

    /// Returns the connection. Bytes that were read ahead are lost.
    pub fn into_stream(self) -> TcpStream {
        self.input.into_inner()
    }

    /// Returns our end's port, by which a server knows this client.
    pub fn local_port(&self) -> io::Result<u16> {
        Ok(self.input.get_ref().local_addr()?.port())
    }

    /// Adds a command to the buffer of the next flush.
    pub fn push(&mut self, arguments: &[impl AsRef<[u8]>]) {
        encode(arguments, &mut self.out);
    }

    pub fn flush(&mut self) -> io::Result<()> {
        let result = self.input.get_mut().write_all(&self.out);
        self.out.clear();
        result
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.input.get_mut().write_all(bytes)
    }

    /// Returns whether the server has closed the connection, even if unread bytes remain.
    pub fn is_closed(&self) -> bool {
        let mut looked_at = [PollFd::new(self.input.get_ref(), PollFlags::RDHUP)];
        let found = poll(&mut looked_at, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        found.is_ok_and(|count| count > 0)
    }

    pub fn read(&mut self) -> io::Result<Reply> {
        decode(&mut self.input)
    }

    /// Returns whether unread bytes have arrived; the end of the connection is an error.
    pub fn has_input(&mut self) -> io::Result<bool> {
        self.input.get_ref().set_nonblocking(true)?;
        let has = match self.input.fill_buf() {
            Ok([]) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        };
        self.input.get_ref().set_nonblocking(false)?;
        has
    }

    /// Sends one command and waits for its reply.
    pub fn call(&mut self, arguments: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.push(arguments);
        self.flush()?;
        self.read()
    }

    /// Sends a command given as words, and waits for its reply.
    pub fn command(&mut self, words: &str) -> io::Result<Reply> {
        self.call(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// Returns an INFO section as text; `None` if the server has no such section.
    pub fn info(&mut self, section: &str) -> io::Result<Option<String>> {
        let reply = self.call(&["INFO", section])?;
        Ok(reply.bytes().filter(|b| !b.is_empty()).map(|b| String::from_utf8_lossy(b).into_owned()))
    }

    /// Sends bytes as they are, shuts down the sending side, and returns everything received until the server closes.
    pub fn exchange_raw(mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.input.get_mut().write_all(bytes)?;
        self.input.get_mut().shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        match self.input.read_to_end(&mut answer) {
            // A server that closes with bytes unread resets the connection; the bytes received before count.
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
            _ => Ok(answer),
        }
    }
}

/// Returns a field of INFO's text.
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Reply) {
        assert_eq!(decode(&mut &bytes[..]).expect("the bytes are one reply"), expected);
    }

    #[test]
    fn replies_keep_their_types() {
        check(b"+OK\r\n", Reply::ok());
        check(b"$3\r\na\r\n\r\n", Reply::bulk(*b"a\r\n"));
        check(b"$-1\r\n", Reply::NullBulk);
        check(b"*-1\r\n", Reply::NullArray);
        check(b"_\r\n", Reply::Null);
        check(b"*2\r\n:1\r\n*0\r\n", Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![])]));
        check(b"%1\r\n+a\r\n#t\r\n", Reply::Map(vec![(Reply::Simple(b"a".to_vec()), Reply::Boolean(true))]));
        check(b"=5\r\ntxt:x\r\n", Reply::Verbatim(b"txt:x".to_vec()));
    }

    #[test]
    fn what_is_not_resp_is_an_error() {
        for bytes in [&b"hello\r\n"[..], b"$2\r\nabc\r\n", b":x\r\n", b"*-2\r\n", b"+OK\n"] {
            let error = decode(&mut &bytes[..]).expect_err("not RESP");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{}", String::from_utf8_lossy(bytes));
        }
        for bytes in [&b"$5\r\nab"[..], b"$5\r", b"+O", b""] {
            let cut = decode(&mut &bytes[..]).expect_err("cut short");
            assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
