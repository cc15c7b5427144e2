//! A load of any commands: fifty connections, `pipeline` requests in flight on each, in a closed loop. redis-benchmark
//! draws all random parts of a request from one range; keys and fields need ranges of their own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::cases::Make;
use crate::bench::process::on_cpu;
use crate::client::encode;
use crate::random::Random;
use crate::server::REPLY_TIMEOUT;

/// Connections: as many as redis-benchmark has.
pub const CONNECTIONS: usize = 50;

pub struct Load {
    pub port: u16,
    pub requests: u64,
    pub pipeline: usize,
    pub seed: u64,
    /// The core of the client.
    pub cpu: Option<u32>,
    pub make: Make,
}

/// One connection, with the bytes that it has received and not parsed.
struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    under_way: usize,
}

impl Load {
    /// Sends all requests and returns how many there were a second. An error reply is an error.
    pub fn run(&self) -> Result<f64> {
        on_cpu(self.cpu, || self.run_here())
    }

    fn run_here(&self) -> Result<f64> {
        let mut random = Random::new(self.seed);
        let mut connections = (0..CONNECTIONS).map(|_| Connection::new(self.port)).collect::<Result<Vec<_>>>()?;
        let (mut sent, mut begun) = (0, true);
        let mut requests = Vec::new();
        let started = Instant::now();
        while begun {
            begun = false;
            for connection in &mut connections {
                connection.read_all()?;
                let count = (self.requests - sent).min(self.pipeline as u64);
                requests.clear();
                for number in sent..sent + count {
                    add(&(self.make)(&mut random, number), &mut requests);
                }
                connection.stream.write_all(&requests).context("sending requests")?;
                connection.under_way = count as usize;
                sent += count;
                begun |= count > 0;
            }
        }
        connections.iter_mut().try_for_each(Connection::read_all)?;
        Ok(self.requests as f64 / started.elapsed().as_secs_f64())
    }
}

/// Adds a request; a single word is sent inline, as a person would type it.
fn add(words: &[Vec<u8>], requests: &mut Vec<u8>) {
    match words {
        [word] => requests.extend([word, &b"\r\n"[..]].concat()),
        words => encode(words, requests),
    }
}

impl Connection {
    fn new(port: u16) -> Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("connecting")?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).context("setting a time limit")?;
        stream.set_nodelay(true).context("sending at once")?;
        Ok(Connection { stream, received: Vec::new(), under_way: 0 })
    }

    /// Reads the replies of all requests in flight.
    fn read_all(&mut self) -> Result<()> {
        let (mut at, mut used) = (0, self.received.len());
        while self.under_way > 0 {
            match reply_end(&self.received[..used], at)? {
                Some(end) => {
                    let reply = &self.received[at..end];
                    ensure!(reply[0] != b'-', "an error: {}", reply.escape_ascii());
                    self.under_way -= 1;
                    at = end;
                }
                None => {
                    self.received.resize((used + (64 << 10)).max(self.received.len()), 0);
                    match self.stream.read(&mut self.received[used..]).context("reading replies")? {
                        0 => bail!("the server has closed the connection"),
                        read => used += read,
                    }
                }
            }
        }
        ensure!(at == used, "more replies than requests");
        self.received.clear();
        Ok(())
    }
}

/// Returns the end of the reply that begins at `at`, if all of it is there.
fn reply_end(bytes: &[u8], at: usize) -> Result<Option<usize>> {
    let (mut at, mut left) = (at, 1u64);
    while left > 0 {
        let Some(line) = bytes.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == b'\n')) else {
            return Ok(None);
        };
        let (kind, text) = (bytes[at], &bytes[at + 1..at + line - 1]);
        at += line + 1;
        left -= 1;
        if matches!(kind, b'+' | b'-' | b':') {
            continue;
        }
        let length: i64 = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).context("a length")?;
        match kind {
            b'*' => left += length.max(0) as u64,
            b'$' if length >= 0 => at += length as usize + 2,
            b'$' => {}
            other => bail!("no reply of RESP2 begins with {:?}", char::from(other)),
        }
        if at > bytes.len() {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_it_ends() {
        for reply in ["+OK\r\n", "$3\r\na\nb\r\n", "$-1\r\n", "*-1\r\n", "*2\r\n:1\r\n*1\r\n$0\r\n\r\n"] {
            let two = format!("{reply}+OK\r\n");
            assert_eq!(reply_end(two.as_bytes(), 0).expect("parses"), Some(reply.len()), "{reply:?}");
            for cut in 0..reply.len() {
                assert_eq!(reply_end(&reply.as_bytes()[..cut], 0).expect("parses"), None, "{reply:?} {cut}");
            }
        }
        assert!(reply_end(b"hello\r\n", 0).is_err());
    }
}
