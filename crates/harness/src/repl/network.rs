//! The network between servers under test: a relay on the loopback for each direction, which can be cut, stalled and
//! slowed down.
//!
//! A server reaches another one through the relay's port only. A cut relay ends its connections and takes no new one; a
//! stalled one keeps them and lets nothing through, as a network that swallows packets: what was on its way arrives
//! when the stall ends, unless a side has given up by then.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use anyhow::{Context, Result};

/// The time between looks at the state.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes that are passed on at once.
const PIECE_BYTES: usize = 32 << 10;

/// The state of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flow {
    Open = 0,
    Stalled = 1,
    Cut = 2,
}

/// A relay in one direction of connecting; bytes go both ways.
pub struct Relay {
    state: Arc<Shared>,
    port: u16,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    target: AtomicU16,
    flow: AtomicU8,
    /// Milliseconds that each piece waits.
    delay_ms: AtomicU64,
    passed: AtomicU64,
    ended: AtomicBool,
}

impl Shared {
    fn is(&self, flow: Flow) -> bool {
        self.flow.load(Ordering::Acquire) == flow as u8
    }

    fn ends(&self) -> bool {
        self.ended.load(Ordering::Acquire) || self.is(Flow::Cut)
    }
}

impl Relay {
    /// Begins to take connections, for a target that is named later.
    pub fn start() -> Result<Relay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a port for a relay")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Shared::default());
        let shared = state.clone();
        let thread = thread::spawn(move || accept(&listener, &shared));
        Ok(Relay { state, port, thread: Some(thread) })
    }

    /// Returns the port that leads to the target.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn lead_to(&self, port: u16) {
        self.state.target.store(port, Ordering::Release);
    }

    pub fn set(&self, flow: Flow) {
        self.state.flow.store(flow as u8, Ordering::Release);
    }

    /// Makes each piece of data wait.
    pub fn slow_down(&self, delay: Duration) {
        self.state.delay_ms.store(delay.as_millis() as u64, Ordering::Release);
    }

    /// Returns the bytes that have passed.
    pub fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The thread has no result, and its panic has been printed.
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, state: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !state.ended.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((client, _)) if state.is(Flow::Open) => {
                let state = state.clone();
                threads.push(thread::spawn(move || relay(&client, &state)));
            }
            // In a stall the connection is there, and nobody answers; it ends here, as if that took too long.
            Ok(_) | Err(_) => sleep(LOOK),
        }
        threads.retain(|thread| !thread.is_finished());
    }
    threads.into_iter().for_each(|thread| _ = thread.join());
}

fn relay(client: &TcpStream, state: &Shared) {
    let target = TcpStream::connect((Ipv4Addr::LOCALHOST, state.target.load(Ordering::Acquire)));
    let Ok(server) = target else { return };
    thread::scope(|threads| {
        threads.spawn(|| end(client, &server, pass(client, &server, state)));
        end(client, &server, pass(&server, client, state));
    });
}

/// Ends both connections, for whatever reason one direction has ended.
fn end(client: &TcpStream, server: &TcpStream, _passed: io::Result<()>) {
    for stream in [client, server] {
        // The connection may have ended already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, state: &Shared) -> io::Result<()> {
    from.set_nonblocking(false)?;
    from.set_nodelay(true)?;
    from.set_read_timeout(Some(LOOK))?;
    let mut piece = vec![0; PIECE_BYTES];
    while !state.ends() {
        if state.is(Flow::Stalled) {
            sleep(LOOK);
            continue;
        }
        let count = match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
            Err(error) => return Err(error),
        };
        sleep(Duration::from_millis(state.delay_ms.load(Ordering::Relaxed)));
        // Bytes that were read before a stall began are on their way.
        while state.is(Flow::Stalled) && !state.ended.load(Ordering::Acquire) {
            sleep(LOOK);
        }
        if state.ends() {
            return Ok(());
        }
        to.write_all(&piece[..count])?;
        state.passed.fetch_add(count as u64, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each byte by the next higher one.
    fn echo(listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept() {
            thread::spawn(move || {
                let mut byte = [0];
                while matches!(stream.read(&mut byte), Ok(1)) && byte[0] != 0 {
                    let _ = stream.write_all(&[byte[0] + 1]);
                }
            });
        }
    }

    fn ask(stream: &mut TcpStream, byte: u8) -> Option<u8> {
        stream.write_all(&[byte]).ok()?;
        let mut answer = [0];
        stream.read_exact(&mut answer).ok().map(|()| answer[0])
    }

    #[test]
    fn a_relay_passes_stalls_and_cuts() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        thread::spawn(move || echo(listener));
        let relay = Relay::start().expect("a port is free");
        relay.lead_to(port);
        let connect = || {
            let stream = TcpStream::connect(("127.0.0.1", relay.port())).expect("the relay listens");
            stream.set_read_timeout(Some(Duration::from_millis(100))).expect("it can be set");
            stream
        };
        let mut stream = connect();
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("it can be set");
        assert_eq!(ask(&mut stream, 1), Some(2));
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("it can be set");
        relay.set(Flow::Stalled);
        assert_eq!(ask(&mut stream, 3), None);
        relay.set(Flow::Open);
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("it can be set");
        let mut late = [0];
        stream.read_exact(&mut late).expect("it was on its way");
        assert_eq!(late, [4]);
        relay.set(Flow::Cut);
        assert_eq!(stream.read(&mut late).ok(), Some(0));
        assert_eq!(ask(&mut connect(), 1), None);
        relay.set(Flow::Open);
        let mut again = connect();
        again.set_read_timeout(Some(Duration::from_secs(10))).expect("it can be set");
        assert_eq!(ask(&mut again, 7), Some(8));
        // A piece is counted when it has been passed on.
        while relay.passed() < 6 {
            sleep(LOOK);
        }
    }
}
