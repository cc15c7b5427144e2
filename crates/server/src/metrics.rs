//! `metrics-port`: /metrics over HTTP/1.1, for Prometheus.
//!
//! A thread of its own with a runtime of its own: a request, however slow, delays no event loop. Each connection is one
//! request and one reply; how long it may take and how much it may send is bounded. So is the number of connections:
//! the oldest of those that have not sent a request makes room for the next one, so that idle connections keep no
//! request out.

use crate::listen;
use crate::stream::Accepted;
use crate::tls::{self, Tls, handshake};
use haypile_config::Config;
use haypile_engine::Engine;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;

/// The most connections at a time. Where one more comes, another one is closed: a request is answered, however many
/// others only connect.
const CONNECTIONS_MAX: usize = 64;

/// The longest time from the accept to the last byte of the reply.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The most bytes of a request, more than any client for metrics sends.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// The pause after an accept has failed, for want of file descriptors as a rule.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens and serves until the process ends; nothing where the port is 0.
///
/// # Errors
/// A text for people that names the address.
pub fn start(config: &Config, engine: &Arc<Engine>, tls: &Arc<Tls>) -> Result<(), String> {
    if config.metrics_port == 0 {
        return Ok(());
    }
    let sockets = listen::bind_port(config, config.metrics_port)?;
    for address in sockets.iter().filter_map(|socket| socket.local_addr().ok()) {
        let scheme = if config.metrics_tls { "https" } else { "http" };
        tracing::info!("metrics at {scheme}://{address}/metrics");
    }
    let engine = engine.clone();
    let tls = config.metrics_tls.then(|| tls.clone());
    let serve = move || {
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let served = runtime.and_then(|runtime| runtime.block_on(serve_all(sockets, engine, tls)));
        if let Err(error) = served {
            tracing::error!("metrics cannot be served: {error}");
        }
    };
    let thread = std::thread::Builder::new().name("metrics".into()).spawn(serve);
    thread.map(drop).map_err(|error| format!("A thread cannot start: {error}"))
}

/// A connection, as the list of connections knows it.
struct Open {
    /// Whether the connection's request is whole, and is being answered.
    asked: Cell<bool>,
    /// Ends the connection.
    close: Notify,
}

/// The connections, in the order in which they came.
#[derive(Default)]
struct Connections(RefCell<VecDeque<Rc<Open>>>);

impl Connections {
    /// Adds a connection, in the place of another one where there are too many.
    fn add(&self) -> Rc<Open> {
        if self.0.borrow().len() >= CONNECTIONS_MAX {
            self.close_one();
        }
        let open = Rc::new(Open { asked: Cell::new(false), close: Notify::new() });
        self.0.borrow_mut().push_back(open.clone());
        open
    }

    fn remove(&self, open: &Rc<Open>) {
        self.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, open));
    }

    /// Closes the oldest connection without a request, or the oldest one if all have sent theirs.
    fn close_one(&self) {
        let mut open = self.0.borrow_mut();
        let at = open.iter().position(|open| !open.asked.get()).unwrap_or(0);
        if let Some(closed) = open.remove(at) {
            closed.close.notify_one();
        }
    }
}

async fn serve_all(sockets: Vec<std::net::TcpListener>, engine: Arc<Engine>, tls: Option<Arc<Tls>>) -> io::Result<()> {
    let connections = Rc::new(Connections::default());
    let mut tasks = Vec::new();
    for socket in sockets {
        let socket = TcpListener::from_std(socket)?;
        tasks.push(tokio::task::spawn_local(accept(socket, engine.clone(), tls.clone(), connections.clone())));
    }
    for task in tasks {
        // The tasks end with the process.
        let _ = task.await;
    }
    Ok(())
}

async fn accept(socket: TcpListener, engine: Arc<Engine>, tls: Option<Arc<Tls>>, connections: Rc<Connections>) {
    loop {
        let Ok((client, _)) = socket.accept().await else {
            // One of these connections may have the file descriptor.
            connections.close_one();
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (engine, connections, tls) = (engine.clone(), connections.clone(), tls.clone());
        let open = connections.add();
        tokio::task::spawn_local(async move {
            // A client that is too slow or breaks off gets nothing more.
            tokio::select! {
                _ = tokio::time::timeout(TIME_MAX, answer(client, tls.as_deref(), &engine, &open.asked)) => {}
                () = open.close.notified() => {}
            }
            connections.remove(&open);
        });
    }
}

async fn answer(client: TcpStream, tls: Option<&Tls>, engine: &Engine, asked: &Cell<bool>) -> io::Result<()> {
    let client = client.into_std()?;
    let client = match tls {
        Some(tls) => {
            let config = tls.server().ok_or_else(tls::not_configured)?;
            Accepted::Tls(Box::new(handshake::greet(client, config).await?))
        }
        None => Accepted::Tcp(client),
    };
    let (mut reader, writer) = client.into_halves()?;
    let mut request = Vec::new();
    let reply = loop {
        let mut piece = [0; 1024];
        let mut read = ReadBuf::new(&mut piece);
        poll_fn(|cx| reader.poll_read(cx, &mut read)).await?;
        if read.filled().is_empty() {
            return Ok(());
        }
        request.extend_from_slice(read.filled());
        if request.windows(4).any(|end| end == b"\r\n\r\n") {
            break reply(&request, engine);
        }
        if request.len() > REQUEST_BYTES_MAX {
            break response("431 Request Header Fields Too Large", "The request is too large.\n", true);
        }
    };
    asked.set(true);
    let mut rest = &reply[..];
    loop {
        let written = if rest.is_empty() { writer.flush().map(|()| 0) } else { writer.try_write(rest) };
        match written {
            Ok(_) if rest.is_empty() => break,
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => writer.writable().await?,
            Err(error) => return Err(error),
        }
    }
    writer.say_goodbye();
    Ok(())
}

fn reply(request: &[u8], engine: &Engine) -> Vec<u8> {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let path = target.unwrap_or_default().split(|byte| *byte == b'?').next().unwrap_or_default();
    let has_body = method != Some(b"HEAD");
    match (method, path) {
        _ if !version.is_some_and(|version| version.starts_with(b"HTTP/1.")) || words.next().is_some() => {
            response("400 Bad Request", "This is no request of HTTP/1.\n", true)
        }
        (Some(b"GET" | b"HEAD"), b"/metrics") => response("200 OK", &engine.metrics(), has_body),
        (Some(b"GET" | b"HEAD"), _) => response("404 Not Found", "Metrics are at /metrics.\n", has_body),
        _ => response("405 Method Not Allowed", "Only GET is allowed.\n", true),
    }
}

fn response(status: &str, body: &str, has_body: bool) -> Vec<u8> {
    let kind = if status.starts_with("200") { "text/plain; version=0.0.4; charset=utf-8" } else { "text/plain" };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), if has_body { body.as_bytes() } else { b"" }].concat()
}
