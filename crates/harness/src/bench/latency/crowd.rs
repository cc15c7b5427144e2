//! Many connections of one thread, one request in flight on each: the load of a service with many clients, and how long
//! each of them waits. Every reply is checked.
//!
//! In a closed loop each connection asks again as soon as it has its reply. At a rate, requests arrive as they do from
//! clients that know nothing of each other, and a request's time begins when it arrives, whether or not it could be
//! sent then: a server that stops for a while cannot keep the requests of that while out of the figures.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};

use crate::bench::disk::keys::{VALUE_BYTES, key, value};
use crate::client::encode;
use crate::random::Random;
use crate::server::REPLY_TIMEOUT;

/// The percentage of requests that are SET; the others are GET.
pub const SETS_PERCENT: u64 = 20;

/// The moments at which requests are made.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Each connection asks as soon as it has its reply.
    Closed,
    /// Requests arrive at random moments, so many a second, whatever the server does.
    Rate(f64),
}

/// The observations of a crowd in one window.
#[derive(Debug)]
pub struct Seen {
    /// Nanoseconds from the arrival of a request to its reply.
    pub latency_ns: Histogram<u64>,
    /// Nanoseconds from the arrival of a request until it was sent: the client's own delay, or the lack of a
    /// connection.
    pub late_ns: Histogram<u64>,
    pub seconds: f64,
    /// CPU seconds of the client's thread.
    pub client_cpu_seconds: f64,
}

/// Returns a histogram of three digits, up to a minute, which is longer than any reply is waited for.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are constant and valid")
}

/// Bytes of the longest right reply: a value with its length and line ends.
const REPLY_BYTES_MAX: usize = b"$128\r\n".len() + VALUE_BYTES + b"\r\n".len();

struct Connection {
    stream: TcpStream,
    /// The arrival of the connection's request.
    asked: Instant,
    /// The right reply.
    expected: Vec<u8>,
    received: [u8; REPLY_BYTES_MAX],
    received_bytes: usize,
}

pub struct Crowd {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    keys: u64,
    random: Random,
    /// The request that is being sent.
    request: Vec<u8>,
}

impl Crowd {
    /// Connects; the server must hold all of `keys` with their values.
    pub fn connect(port: u16, connections: usize, keys: u64, seed: u64) -> Result<Crowd> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("making an epoll")?;
        let mut crowd = Crowd { epoll, connections: vec![], keys, random: Random::new(seed), request: vec![] };
        for number in 0..connections {
            let stream = TcpStream::connect(("127.0.0.1", port)).context("connecting")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&crowd.epoll, &stream, data, epoll::EventFlags::IN).context("watching a connection")?;
            let received = [0; REPLY_BYTES_MAX];
            let asked = Instant::now();
            crowd.connections.push(Connection { stream, asked, expected: vec![], received, received_bytes: 0 });
        }
        Ok(crowd)
    }

    /// Sends requests for so long, and waits for the replies to all of them.
    pub fn measure(&mut self, pace: Pace, time: Duration) -> Result<Seen> {
        /// The longest single wait for replies while nothing is to be sent.
        const WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
        /// A look at the sockets without a wait: a sleeping thread would wake up too late for the next arrival, and the
        /// client has a core of its own to look again.
        const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let cpu_before = thread_cpu_seconds();
        let begin = Instant::now();
        let mut arrivals = Arrivals::new(pace, begin, time, self.random.next());
        let mut free: VecDeque<usize> = (0..self.connections.len()).collect();
        let mut seen = Seen { latency_ns: histogram(), late_ns: histogram(), seconds: 0.0, client_cpu_seconds: 0.0 };
        let mut events = Vec::with_capacity(self.connections.len());
        let mut now = begin;
        let mut replied = begin;
        loop {
            self.send_due(&mut arrivals, &mut free, now, &mut seen)?;
            if free.len() == self.connections.len() && arrivals.over(now) {
                break;
            }
            let timeout = if free.is_empty() || arrivals.over(now) { WAIT } else { LOOK };
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => {}
                result => drop(result.context("waiting for replies")?),
            }
            for event in &events {
                let number = event.data.u64() as usize;
                let complete = self.connections[number].receive()?;
                now = Instant::now();
                if complete {
                    let waited = now - self.connections[number].asked;
                    seen.latency_ns.saturating_record(nanoseconds(waited));
                    free.push_back(number);
                    replied = now;
                }
                // Requests are sent at once, not behind all the other replies: arrivals must not wait for those.
                self.send_due(&mut arrivals, &mut free, now, &mut seen)?;
            }
            now = Instant::now();
            let asked = free.len() < self.connections.len();
            ensure!(!asked || now - replied < REPLY_TIMEOUT, "no reply within {} s", REPLY_TIMEOUT.as_secs());
            if !asked {
                replied = now;
            }
        }
        seen.seconds = begin.elapsed().as_secs_f64();
        seen.client_cpu_seconds = thread_cpu_seconds() - cpu_before;
        Ok(seen)
    }

    /// Sends what has arrived as long as connections are free, on the one that has been free for longest.
    fn send_due(
        &mut self,
        arrivals: &mut Arrivals,
        free: &mut VecDeque<usize>,
        now: Instant,
        seen: &mut Seen,
    ) -> Result<()> {
        while let Some(&number) = free.front() {
            let Some(asked) = arrivals.next_until(now) else { break };
            free.pop_front();
            self.send(number, asked)?;
            seen.late_ns.saturating_record(nanoseconds(now - asked));
        }
        Ok(())
    }

    fn send(&mut self, number: usize, asked: Instant) -> Result<()> {
        let chosen = self.random.below(self.keys);
        let connection = &mut self.connections[number];
        self.request.clear();
        connection.expected.clear();
        if self.random.percent(SETS_PERCENT) {
            encode(&[b"SET", &key(chosen)[..], &value(chosen)[..]], &mut self.request);
            connection.expected.extend_from_slice(b"+OK\r\n");
        } else {
            encode(&[b"GET", &key(chosen)[..]], &mut self.request);
            connection.expected.extend_from_slice(b"$128\r\n");
            connection.expected.extend_from_slice(&value(chosen));
            connection.expected.extend_from_slice(b"\r\n");
        }
        connection.received_bytes = 0;
        connection.asked = asked;
        // A connection's buffer is empty when its last request was answered, and takes one request whole.
        let sent = connection.stream.write(&self.request).context("sending")?;
        ensure!(sent == self.request.len(), "only {sent} bytes of a request were taken");
        Ok(())
    }
}

impl Connection {
    /// Reads what has come; returns true if the reply is complete. A wrong reply is an error.
    fn receive(&mut self) -> Result<bool> {
        let room = &mut self.received[self.received_bytes..];
        match self.stream.read(room) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(bytes) => self.received_bytes += bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(error) => return Err(error).context("receiving"),
        }
        let received = &self.received[..self.received_bytes];
        if !self.expected.starts_with(received) {
            bail!("a wrong reply: {}", String::from_utf8_lossy(received));
        }
        Ok(received.len() == self.expected.len())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    (time.as_nanos() as u64).max(1)
}

fn thread_cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The arrivals of requests.
struct Arrivals {
    end: Instant,
    /// The next arrival and the mean time between two, of arrivals at a rate.
    timed: Option<(Instant, f64)>,
    random: Random,
}

impl Arrivals {
    fn new(pace: Pace, begin: Instant, time: Duration, seed: u64) -> Arrivals {
        let timed = match pace {
            Pace::Closed => None,
            Pace::Rate(rate) => Some((begin, 1.0 / rate)),
        };
        Arrivals { end: begin + time, timed, random: Random::new(seed) }
    }

    /// Returns the first request that has arrived by `now` and was not given out yet.
    fn next_until(&mut self, now: Instant) -> Option<Instant> {
        let Some((next, gap_seconds)) = self.timed else { return Some(now).filter(|now| *now < self.end) };
        if next > now || next >= self.end {
            return None;
        }
        // Exponential gaps make arrivals that do not depend on each other.
        let gap = -(1.0 - self.random.fraction()).ln() * gap_seconds;
        self.timed = Some((next + Duration::from_secs_f64(gap), gap_seconds));
        Some(next)
    }

    /// Returns true if nothing arrives from here on.
    fn over(&self, now: Instant) -> bool {
        self.timed.map_or(now, |(next, _)| next) >= self.end
    }
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
                let mut request = [0; 8];
                stream.read_exact(&mut request).expect("a request");
                stream.write_all(b"-LOADING wait\r\n").expect("the crowd is there");
                // The stub reads until the crowd has gone.
                while !matches!(stream.read(&mut request), Ok(0) | Err(_)) {}
            });
            let mut crowd = Crowd::connect(port, 1, 10, 1).expect("somebody listens");
            let error = crowd.measure(Pace::Closed, Duration::from_secs(20)).expect_err("neither a value nor OK");
            assert!(error.to_string().contains("-LOADING wait"), "{error}");
        });
    }

    #[test]
    fn arrivals_keep_their_rate_whenever_they_are_asked_for() {
        let (begin, time) = (Instant::now(), Duration::from_secs(10));
        let mut all = Vec::new();
        let mut arrivals = Arrivals::new(Pace::Rate(1000.0), begin, time, 7);
        // No arrival is taken for nine seconds: each keeps its own moment.
        for now in [begin + Duration::from_secs(9), begin + time * 2] {
            while let Some(asked) = arrivals.next_until(now) {
                all.push(asked - begin);
            }
        }
        assert!(arrivals.over(begin + time));
        assert!((9_500..10_500).contains(&all.len()), "{}", all.len());
        assert!(all.is_sorted() && all.last().is_some_and(|last| *last < time));
        let early = all.iter().filter(|at| **at < Duration::from_secs(1)).count();
        assert!((850..1150).contains(&early), "{early}");
    }

    #[test]
    fn a_closed_loop_asks_at_once_until_its_end() {
        let begin = Instant::now();
        let mut arrivals = Arrivals::new(Pace::Closed, begin, Duration::from_secs(1), 7);
        let later = begin + Duration::from_millis(500);
        assert_eq!((arrivals.next_until(begin), arrivals.next_until(later)), (Some(begin), Some(later)));
        let end = begin + Duration::from_secs(1);
        assert!(!arrivals.over(later) && arrivals.over(end) && arrivals.next_until(end).is_none());
    }
}
