//! Free ports for servers under test.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, anyhow};
use socket2::{Domain, Socket, Type};

/// The ports that servers get: below those that the kernel gives to clients, so that no client that runs beside takes
/// one between the check and the server's start.
const PORTS: Range<u32> = 10_000..32_000;

/// How far apart processes with consecutive numbers begin to look: tests of several run at a time.
const STRIDE: u32 = 7919;

/// Returns a port that no process listens on at any address, and that no other server of this process gets.
pub fn free_port() -> Result<u16> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let span = PORTS.end - PORTS.start;
    let first = std::process::id().wrapping_mul(STRIDE) % span;
    let ports = (0..span).map(|_| PORTS.start + (first + TAKEN.fetch_add(1, Ordering::Relaxed)) % span);
    let mut ports = ports.map(|port| u16::try_from(port).expect("the range is one of ports"));
    ports.find(|port| bind(*port).is_ok()).ok_or_else(|| anyhow!("no port of {} to {} is free", PORTS.start, PORTS.end))
}

/// Takes the port without listening on it. A socket that listened would keep the server from its port for as long as
/// any copy of it is open, and a process that another thread starts meanwhile has a copy until its exec.
fn bind(port: u16) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    #[test]
    fn a_port_that_is_listened_on_is_not_free() {
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(address).expect("a port is free");
            let port = listener.local_addr().expect("it is bound").port();
            assert_eq!(bind(port).map_err(|e| e.kind()), Err(io::ErrorKind::AddrInUse));
        }
    }

    #[test]
    fn a_free_port_can_be_listened_on_while_processes_start() {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        Command::new("true").status().expect("true is everywhere");
                    }
                });
            }
            for _ in 0..2000 {
                let port = free_port().expect("one is free");
                TcpListener::bind(("127.0.0.1", port)).unwrap_or_else(|error| panic!("port {port}: {error}"));
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
