//! The RESP client: connections of one thread, each with `pipeline` requests in flight, in a closed loop. Every reply
//! is checked, and one that is not right ends the run.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};

use super::cases::{KEYS, Load, Op, Seen};
use crate::client::encode;
use crate::random::Random;
use crate::server::REPLY_TIMEOUT;

/// The values of the keys: pieces of random bytes, which do not compress.
pub struct Values {
    pool: Vec<u8>,
    bytes: usize,
}

impl Values {
    const POOL_BYTES: usize = 1 << 16;

    pub fn new(bytes: usize) -> Values {
        let mut pool = vec![0; Values::POOL_BYTES + bytes];
        Random::new(1).fill(&mut pool);
        Values { pool, bytes }
    }

    /// Returns the value of a key.
    pub fn of(&self, number: u64) -> &[u8] {
        let begin = number as usize * 61 % Values::POOL_BYTES;
        &self.pool[begin..begin + self.bytes]
    }
}

/// Returns a key as `etcd-load` has it.
pub fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

struct Connection {
    stream: TcpStream,
    sent: Instant,
    /// The right replies to all requests in flight.
    expected: Vec<u8>,
    received: Vec<u8>,
    received_bytes: usize,
}

pub struct Crowd {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    load: Load,
    values: Values,
    random: Random,
    requests: Vec<u8>,
}

impl Crowd {
    pub fn connect(port: u16, load: Load) -> Result<Crowd> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("making an epoll")?;
        let mut connections = Vec::new();
        for number in 0..load.connections as u64 {
            let stream = TcpStream::connect(("127.0.0.1", port)).context("connecting")?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
            stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
            let data = epoll::EventData::new_u64(number);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN).context("watching a connection")?;
            let (expected, received) = (Vec::new(), Vec::new());
            connections.push(Connection { stream, sent: Instant::now(), expected, received, received_bytes: 0 });
        }
        let (values, random) = (Values::new(load.value_bytes), Random::new(2));
        Ok(Crowd { epoll, connections, load, values, random, requests: Vec::new() })
    }

    /// Sends requests for so long, and waits for the replies to all of them. A pipeline's latency is that of its last
    /// reply.
    pub fn run(&mut self, window: Duration) -> Result<Seen> {
        const WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut latency_us = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
        let cpu_before = thread_cpu_seconds();
        let begin = Instant::now();
        (0..self.connections.len()).try_for_each(|number| self.send(number))?;
        let (mut in_flight, mut replied) = (self.connections.len(), begin);
        let mut events = Vec::with_capacity(self.connections.len());
        while in_flight > 0 {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&WAIT)) {
                Err(rustix::io::Errno::INTR) => {}
                result => drop(result.context("waiting for replies")?),
            }
            ensure!(!events.is_empty() || replied.elapsed() < REPLY_TIMEOUT, "no reply");
            for event in &events {
                let number = event.data.u64() as usize;
                if !self.connections[number].receive()? {
                    continue;
                }
                replied = Instant::now();
                let waited = replied - self.connections[number].sent;
                latency_us.record_n((waited.as_micros() as u64).max(1), self.load.pipeline as u64)?;
                if replied - begin < window {
                    self.send(number)?;
                } else {
                    in_flight -= 1;
                }
            }
        }
        Ok(Seen {
            requests: latency_us.len(),
            time: begin.elapsed(),
            p50_us: latency_us.value_at_quantile(0.5) as f64,
            p99_us: latency_us.value_at_quantile(0.99) as f64,
            cpu_seconds: thread_cpu_seconds() - cpu_before,
        })
    }

    /// Sends a connection's next requests.
    fn send(&mut self, number: usize) -> Result<()> {
        let connection = &mut self.connections[number];
        self.requests.clear();
        connection.expected.clear();
        for _ in 0..self.load.pipeline {
            let chosen = self.random.below(KEYS);
            let (key, value) = (key(chosen), self.values.of(chosen));
            match self.load.op {
                Op::Put => {
                    encode(&[b"SET", &key[..], value], &mut self.requests);
                    connection.expected.extend_from_slice(b"+OK\r\n");
                }
                Op::Get => {
                    encode(&[b"GET", &key[..]], &mut self.requests);
                    write!(connection.expected, "${}\r\n", value.len())?;
                    connection.expected.extend_from_slice(value);
                    connection.expected.extend_from_slice(b"\r\n");
                }
            }
        }
        connection.received.resize(connection.expected.len(), 0);
        connection.received_bytes = 0;
        connection.sent = Instant::now();
        connection.stream.write_all(&self.requests).context("sending")
    }
}

impl Connection {
    /// Reads what has come; returns true if the replies are complete.
    fn receive(&mut self) -> Result<bool> {
        let begin = self.received_bytes;
        let bytes = self.stream.read(&mut self.received[begin..]).context("receiving")?;
        ensure!(bytes > 0, "the server closed a connection, or answered what nobody asked");
        self.received_bytes += bytes;
        let end = self.received_bytes;
        if self.received[begin..end] != self.expected[begin..end] {
            bail!("a wrong reply: {}", self.received[..end.min(200)].escape_ascii());
        }
        Ok(end == self.expected.len())
    }
}

fn thread_cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_wrong_reply_ends_the_run() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("the crowd connects");
                stream.write_all(b"-MOVED 1 127.0.0.1:7001\r\n").expect("the crowd is there");
                // The stub reads until the crowd has gone.
                let mut request = [0; 64];
                while !matches!(stream.read(&mut request), Ok(0) | Err(_)) {}
            });
            let load = Load { op: Op::Get, value_bytes: 4096, connections: 1, pipeline: 2 };
            let mut crowd = Crowd::connect(port, load).expect("somebody listens");
            let error = crowd.run(Duration::from_secs(20)).map(drop).expect_err("no value");
            assert!(error.to_string().contains("-MOVED 1"), "{error}");
        });
    }

    #[test]
    fn keys_and_values_depend_on_the_number_alone() {
        assert_eq!(&key(9_999), b"key:000000009999");
        let values = Values::new(16);
        assert_eq!(values.of(7), Values::new(16).of(7));
        assert_ne!(values.of(7), values.of(8));
        assert_eq!(values.of(u64::from(u32::MAX)).len(), 16);
    }
}
