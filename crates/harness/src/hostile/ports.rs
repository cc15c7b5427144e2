//! Connections to a port that are no clients: requests of HTTP, connections that come by the hundred and go, and silent
//! connections to `metrics-port`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Attack, Site, nothing, right};
use crate::client::Client;
use crate::server::REPLY_TIMEOUT;

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "http-post", prepare: nothing, attack: http_post },
    Attack { name: "connect-storm", prepare: nothing, attack: connect_storm },
    Attack { name: METRICS, prepare: nothing, attack: metrics_half_open },
];

/// The name of the attack that needs a port for metrics.
pub(super) const METRICS: &str = "metrics-half-open";

/// The longest wait for metrics, however many connections are silent.
const METRICS_WAIT_MAX: Duration = Duration::from_secs(1);

fn connect(port: u16) -> Result<TcpStream> {
    let socket = TcpStream::connect(("127.0.0.1", port)).context("connecting")?;
    socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
    Ok(socket)
}

/// Sends requests as from pages that have a browser post commands: none of these may run.
fn http_post(site: &Site) -> Result<()> {
    const TOGETHER: usize = 100;
    const BEGINS: [&str; 3] = ["POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n", "*1\r\n$4\r\npost\r\n"];
    loop {
        let mut sockets = (0..TOGETHER).map(|_| connect(site.port)).collect::<Result<Vec<_>>>()?;
        for (number, socket) in sockets.iter_mut().enumerate() {
            let request = format!("{}Content-Length: 14\r\n\r\nSET posted 1\r\n", BEGINS[number % BEGINS.len()]);
            // The server may close the socket before everything is sent.
            let _ = socket.write_all(request.as_bytes());
        }
        for mut socket in sockets {
            let mut answer = Vec::new();
            // A reset ends the connection as well.
            let _ = socket.read_to_end(&mut answer);
            ensure!(answer.is_empty(), "a request of HTTP was answered by {:?}", String::from_utf8_lossy(&answer));
        }
        ensure!(right(site.client()?.call(&["GET", "posted"])?)?.is_nil(), "a command in a request of HTTP has run");
        if !site.again() {
            return Ok(());
        }
    }
}

/// Opens and closes connections, some in the middle of a block, some by another client's CLIENT KILL.
fn connect_storm(site: &Site) -> Result<()> {
    let mut admin = site.client()?;
    let itself = admin.call(&["CLIENT", "ID"])?;
    loop {
        let mut clients = (0..site.count(500)).map(|_| site.client()).collect::<Result<Vec<Client>>>()?;
        for (number, client) in clients.iter_mut().enumerate() {
            client.push(&["CLIENT", "SETNAME", "storm"]);
            if number % 2 == 0 {
                client.push(&["MULTI"]);
                client.push(&["SET", "stormed", "x"]);
            }
            client.flush()?;
        }
        for client in clients.iter().step_by(2) {
            admin.call(&["CLIENT", "KILL", "ADDR", &format!("127.0.0.1:{}", client.local_port()?)])?;
        }
        drop(clients);
        ensure!(admin.call(&["CLIENT", "ID"])? == itself, "somebody else was closed");
        if !site.again() {
            return Ok(());
        }
    }
}

/// Opens hundreds of connections to /metrics that never ask, never end or do not read, and one that asks.
fn metrics_half_open(site: &Site) -> Result<()> {
    const REQUEST: &str = "GET /metrics HTTP/1.1\r\n\r\n";
    /// The most sockets that are kept open: this process must not run out of descriptors.
    const KEPT: usize = 500;
    let mut open: Vec<TcpStream> = Vec::new();
    loop {
        for number in 0..site.count(300) {
            let mut socket = connect(site.metrics_port)?;
            let _ = socket.write_all(["", "GET /metrics HTTP/1.1\r\n", REQUEST][number % 3].as_bytes());
            open.push(socket);
        }
        let begun = Instant::now();
        let mut socket = connect(site.metrics_port)?;
        socket.write_all(REQUEST.as_bytes())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).context("/metrics")?;
        let took = begun.elapsed();
        ensure!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "/metrics was answered by {answer:.40}");
        ensure!(took < METRICS_WAIT_MAX, "/metrics took {took:?}");
        open.drain(..open.len().saturating_sub(KEPT));
        if !site.again() {
            return Ok(());
        }
    }
}
