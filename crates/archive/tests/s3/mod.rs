//! An S3 server over a directory, and a bad network before it.
#![allow(dead_code)] // each test program uses a part

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

pub const BUCKET: &str = "bucket";
pub const ACCESS_KEY: &str = "someone";
pub const SECRET_KEY: &str = "something-secret";

/// An S3 server; it ends when this is dropped.
pub struct S3 {
    pub address: SocketAddr,
    _runtime: Runtime,
}

impl S3 {
    /// Starts a server with one bucket, whose objects are files below `dir`.
    pub fn start(dir: &Path) -> S3 {
        std::fs::create_dir_all(dir.join(BUCKET)).expect("the directory is ours");
        let mut service = S3ServiceBuilder::new(FileSystem::new(dir).expect("the directory is there"));
        service.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = service.build();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("threads can be started");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    // A client that goes away is no matter.
                    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        S3 { address, _runtime: runtime }
    }
}

/// The options by which a client reaches a server at this address.
pub fn options(address: SocketAddr) -> Vec<(String, String)> {
    let endpoint = format!("http://{address}");
    let pairs = [
        ("endpoint", endpoint.as_str()),
        ("allow_http", "true"),
        ("region", "us-east-1"),
        ("access_key_id", ACCESS_KEY),
        ("secret_access_key", SECRET_KEY),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// The ways in which a network is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Good,
    /// Connections end at once.
    Refusing,
    /// Connections end within the first requests that are longer than so many bytes.
    Cutting(u64),
    /// Each piece of up to 16 KB waits so many milliseconds.
    Slow(u64),
}

/// A network between a client and a server.
pub struct Between {
    pub address: SocketAddr,
    /// The way, and its number.
    state: Arc<(AtomicU64, AtomicU64)>,
    /// Pieces that have come to the network.
    pieces: Arc<AtomicU64>,
}

impl Between {
    pub fn new(server: SocketAddr) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state: Arc<(AtomicU64, AtomicU64)> = Arc::default();
        let of_thread = state.clone();
        let pieces: Arc<AtomicU64> = Arc::default();
        let counted = pieces.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if way(&of_thread) == Network::Refusing {
                    continue;
                }
                let Ok(server) = TcpStream::connect(server) else { continue };
                let pairs = [(client.try_clone(), server.try_clone(), true), (Ok(server), Ok(client), false)];
                for (from, to, is_request) in pairs {
                    let (Ok(from), Ok(to)) = (from, to) else { continue };
                    let (state, pieces) = (of_thread.clone(), counted.clone());
                    std::thread::spawn(move || carry(from, to, &state, &pieces, is_request));
                }
            }
        });
        Between { address, state, pieces }
    }

    /// Returns how many pieces have come to the network.
    pub fn pieces(&self) -> u64 {
        self.pieces.load(Ordering::SeqCst)
    }

    pub fn set(&self, network: Network) {
        let (way, number) = match network {
            Network::Good => (0, 0),
            Network::Refusing => (1, 0),
            Network::Cutting(bytes) => (2, bytes),
            Network::Slow(ms) => (3, ms),
        };
        self.state.1.store(number, Ordering::SeqCst);
        self.state.0.store(way, Ordering::SeqCst);
    }
}

fn way(state: &(AtomicU64, AtomicU64)) -> Network {
    let number = state.1.load(Ordering::SeqCst);
    match state.0.load(Ordering::SeqCst) {
        0 => Network::Good,
        1 => Network::Refusing,
        2 => Network::Cutting(number),
        _ => Network::Slow(number),
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, state: &(AtomicU64, AtomicU64), pieces: &AtomicU64, is_request: bool) {
    let (mut buf, mut carried) = (vec![0; 16 << 10], 0);
    while let Ok(read) = from.read(&mut buf) {
        carried += read as u64;
        pieces.fetch_add(1, Ordering::SeqCst);
        match way(state) {
            Network::Good => {}
            Network::Refusing => break,
            Network::Cutting(bytes) if is_request && carried > bytes => break,
            Network::Cutting(_) => {}
            Network::Slow(ms) => std::thread::sleep(Duration::from_millis(ms)),
        }
        if read == 0 || to.write_all(&buf[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
