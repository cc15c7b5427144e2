//! Listening: the sockets that clients connect to, and the event loop that gets a client.
//!
//! One thread accepts for all event loops and hands each client to the loop that has the fewest, so that few clients
//! are spread as evenly as many.

use crate::mailbox::Mailbox;
use crate::stream::{Accepted, peer_of};
use crate::tls::{Tls, handshake};
use haypile_config::{Bind, Config};
use haypile_engine::Engine;
use rustls::ServerConfig;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The pause after the process ran out of file descriptors: until one is closed, trying is of no use.
const OUT_OF_FILES_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// A socket that listens.
pub enum Listener {
    Tcp(TcpListener),
    /// A socket for clients that speak TLS.
    Tls(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Returns another handle on a TCP socket.
    pub fn try_clone_tcp(&self) -> io::Result<TcpListener> {
        match self {
            Listener::Tcp(socket) | Listener::Tls(socket) => socket.try_clone(),
            Listener::Unix(_) => Err(ErrorKind::Unsupported.into()),
        }
    }
}

/// The place of a TCP socket that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    address: SocketAddr,
    is_encrypted: bool,
}

impl Place {
    pub fn port(self) -> u16 {
        self.address.port()
    }
}

/// The sockets of a server. Dropping it removes the unix socket's file, unless another one has taken its place.
pub struct Listeners {
    pub sockets: Vec<(Option<Place>, Listener)>,
    unix: Option<UnixFile>,
}

/// The file of a unix socket.
struct UnixFile {
    path: PathBuf,
    /// The device and the inode when the socket was bound: another server may put its own file there.
    id: (u64, u64),
}

/// Returns the device and the inode of a file.
fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|about| (about.dev(), about.ino()))
}

/// The directive to blame where an address cannot be had.
const BIND: &str = "bind";

/// The reason why no socket listens somewhere.
pub struct CannotListen {
    /// The directive to blame.
    pub directive: &'static str,
    /// A text for people that names the address.
    pub text: String,
}

impl CannotListen {
    /// Says that a place cannot be had for an error.
    pub fn at(place: Place, error: &io::Error) -> CannotListen {
        let Place { address, is_encrypted } = place;
        let directive = if is_unavailable(error) { BIND } else { port_directive(is_encrypted) };
        CannotListen { directive, text: format!("Can't listen on {address}: {error}") }
    }
}

/// Returns the directive that names the port of clients that speak TLS, or none.
fn port_directive(is_encrypted: bool) -> &'static str {
    if is_encrypted { "tls-port" } else { "port" }
}

/// Returns the places of a configuration, each with what names it.
pub fn places(config: &Config) -> Result<Vec<(Place, &Bind)>, CannotListen> {
    let mut places = Vec::new();
    for (port, is_encrypted) in [(config.port, false), (config.tls.port, true)] {
        for bind in config.bind.iter().filter(|_| port > 0) {
            let found = addresses(bind, port).map_err(|text| CannotListen { directive: BIND, text })?;
            for address in found {
                let place = Place { address, is_encrypted };
                // Several names may stand for one address.
                if !places.iter().any(|(other, _)| *other == place) {
                    places.push((place, bind));
                }
            }
        }
    }
    Ok(places)
}

/// Returns the names of places, for the log.
pub fn names_of(places: &[Place]) -> Vec<String> {
    let name = |place: &Place| format!("{}{}", place.address, if place.is_encrypted { " (TLS)" } else { "" });
    places.iter().map(name).collect()
}

/// Returns the socket of a place as one that listens.
pub fn listener(place: Place, socket: TcpListener) -> Listener {
    if place.is_encrypted { Listener::Tls(socket) } else { Listener::Tcp(socket) }
}

/// Listens again where a socket listened until it was shut down. Linux keeps its address, so this takes no new file.
pub fn again(socket: &TcpListener, backlog: u32) -> io::Result<()> {
    SockRef::from(socket).listen(backlog_of(backlog))
}

fn backlog_of(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

/// Listens in some of the places of a configuration; those that may be missing can be left out.
///
/// # Errors
/// One of them cannot be had.
pub fn open_all(wanted: &[(Place, &Bind)], backlog: u32) -> Result<Vec<(Place, Listener)>, CannotListen> {
    let mut opened = Vec::new();
    for (place, bind) in wanted {
        let Place { address, is_encrypted } = *place;
        match listen(address, backlog) {
            Ok(socket) => opened.push((*place, listener(*place, socket))),
            Err(error) if bind.optional && is_unavailable(&error) => {
                tracing::debug!("not listening on {address}: {error}");
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let directive = port_directive(is_encrypted);
                let port = address.port();
                let text = format!(
                    "Can't listen on {address}: port {port} is in use by another process. Stop that, or choose another \
                     port with --{directive}."
                );
                return Err(CannotListen { directive, text });
            }
            Err(error) => return Err(CannotListen::at(*place, &error)),
        }
    }
    Ok(opened)
}

/// Checks that each port is had at one address at least.
pub fn check_ports(wanted: &[(Place, &Bind)], had: &[Place]) -> Result<(), CannotListen> {
    for (place, _) in wanted {
        if !had.iter().any(|other| other.is_encrypted == place.is_encrypted) {
            let port = place.address.port();
            let text = format!("Can't listen on port {port}: none of the addresses of 'bind' is available.");
            return Err(CannotListen { directive: BIND, text });
        }
    }
    Ok(())
}

impl Listeners {
    /// Listens on the ports that the configuration names. Nothing that belongs to another server is touched.
    ///
    /// # Errors
    /// A text for people that names the address.
    pub fn bind_ports(config: &Config) -> Result<Listeners, String> {
        let sockets = Listeners::of_ports(config).map_err(|why| why.text)?;
        if sockets.is_empty() && config.unixsocket.is_none() {
            return Err(
                "There is nothing to listen on: 'port' and 'tls-port' are 0 and 'unixsocket' is not set.".into()
            );
        }
        Ok(Listeners { sockets, unix: None })
    }

    /// Listens on the unix socket that the configuration names, if it does. Whatever socket was there is removed, so
    /// the data directory is taken before: no other server of these data is alive.
    ///
    /// # Errors
    /// A text for people that names the path.
    pub fn bind_unix(&mut self, config: &Config) -> Result<(), String> {
        config.unixsocket.as_ref().map_or(Ok(()), |path| self.bind_path(path, config))
    }

    fn of_ports(config: &Config) -> Result<Vec<(Option<Place>, Listener)>, CannotListen> {
        let wanted = places(config)?;
        let opened = open_all(&wanted, config.tcp_backlog)?;
        let had: Vec<Place> = opened.iter().map(|(place, _)| *place).collect();
        check_ports(&wanted, &had)?;
        Ok(opened.into_iter().map(|(place, socket)| (Some(place), socket)).collect())
    }

    fn bind_path(&mut self, path: &Path, config: &Config) -> Result<(), String> {
        let fails = |error: io::Error| format!("Can't listen on the unix socket {}: {error}", path.display());
        // The file is left of an earlier run, as Redis assumes, too.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(fails(error)),
            _ => {}
        }
        let socket = UnixListener::bind(path).map_err(fails)?;
        self.unix = Some(UnixFile { path: path.to_owned(), id: id_of(path).map_err(fails)? });
        if config.unixsocketperm > 0 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(config.unixsocketperm)).map_err(fails)?;
        }
        socket.set_nonblocking(true).map_err(fails)?;
        self.sockets.push((None, Listener::Unix(socket)));
        Ok(())
    }

    /// Returns the addresses where clients may connect, for the log.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (_, socket) in &self.sockets {
            match socket {
                Listener::Tcp(socket) => names.extend(socket.local_addr().map(|address| address.to_string())),
                Listener::Tls(socket) => names.extend(socket.local_addr().map(|address| format!("{address} (TLS)"))),
                Listener::Unix(_) => names.extend(self.unix.as_ref().map(|file| file.path.display().to_string())),
            }
        }
        names
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        if let Some(UnixFile { path, id }) = &self.unix
            && id_of(path).is_ok_and(|now| now == *id)
        {
            // The file may have been removed meanwhile.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Listens on another port of all addresses of `bind`.
///
/// # Errors
/// A text for people that names the address.
pub fn bind_port(config: &Config, port: u16) -> Result<Vec<TcpListener>, String> {
    let mut sockets = Vec::new();
    for bind in &config.bind {
        for address in addresses(bind, port)? {
            match listen(address, config.tcp_backlog) {
                Ok(socket) => sockets.push(socket),
                Err(error) if bind.optional && is_unavailable(&error) => {}
                Err(error) => return Err(format!("Can't listen on {address} for metrics: {error}")),
            }
        }
    }
    Ok(sockets)
}

/// Returns the addresses of a `bind`: `*` and `::*` are all of their kind, a name may have several.
fn addresses(bind: &Bind, port: u16) -> Result<Vec<SocketAddr>, String> {
    let host = match bind.address.as_str() {
        "*" => "0.0.0.0",
        "::*" => "::",
        host => host,
    };
    match (host, port).to_socket_addrs() {
        Ok(addresses) => Ok(addresses.take(1).collect()),
        Err(_) if bind.optional => Ok(Vec::new()),
        Err(error) => Err(format!("Can't listen on '{}': {error}", bind.address)),
    }
}

fn listen(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `bind * ::*` listens on both.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog_of(backlog))?;
    Ok(socket.into())
}

/// Tells whether this host has no such address, or no such family.
fn is_unavailable(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    const EPROTONOSUPPORT: i32 = 93;
    error.kind() == ErrorKind::AddrNotAvailable || matches!(error.raw_os_error(), Some(EAFNOSUPPORT | EPROTONOSUPPORT))
}

/// Accepts clients from one socket, until it is ended.
pub async fn accept(
    socket: Listener,
    engine: Arc<Engine>,
    mailboxes: Arc<Vec<Arc<Mailbox>>>,
    tls: Arc<Tls>,
) -> io::Result<()> {
    let socket = Acceptor::new(socket)?;
    loop {
        match socket.accept().await {
            Ok(client) => {
                let is_encrypted = socket.is_encrypted();
                let Some(client) = admit(client, is_encrypted, &engine) else { continue };
                match (client, tls.server()) {
                    (client, _) if !is_encrypted => hand_on(client, &mailboxes),
                    (Accepted::Tcp(client), Some(config)) => {
                        let (engine, mailboxes, tls) = (engine.clone(), mailboxes.clone(), tls.clone());
                        tokio::task::spawn_local(greet(client, config, engine, mailboxes, tls));
                    }
                    _ => {
                        tracing::error!("a client cannot be served over TLS: there is no configuration of it");
                        engine.on_disconnect();
                    }
                }
            }
            // The client went away before it was let in.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            // CONFIG SET has ended the socket.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(()),
            Err(error) => {
                tracing::warn!("a client cannot be accepted: {error}");
                tokio::time::sleep(OUT_OF_FILES_PAUSE).await;
            }
        }
    }
}

/// A listening socket registered with the accepting thread's runtime.
enum Acceptor {
    Tcp(tokio::net::TcpListener),
    Tls(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Acceptor {
    fn new(socket: Listener) -> io::Result<Acceptor> {
        Ok(match socket {
            Listener::Tcp(socket) => Acceptor::Tcp(tokio::net::TcpListener::from_std(socket)?),
            Listener::Tls(socket) => Acceptor::Tls(tokio::net::TcpListener::from_std(socket)?),
            Listener::Unix(socket) => Acceptor::Unix(tokio::net::UnixListener::from_std(socket)?),
        })
    }

    /// Tells whether its clients speak TLS.
    fn is_encrypted(&self) -> bool {
        matches!(self, Acceptor::Tls(_))
    }

    /// Returns the next client, free of this runtime again.
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Acceptor::Tcp(socket) | Acceptor::Tls(socket) => socket.accept().await?.0.into_std().map(Accepted::Tcp),
            Acceptor::Unix(socket) => socket.accept().await?.0.into_std().map(Accepted::Unix),
        }
    }
}

/// Lets a client in, unless there are too many or it may not come in. One that waits for a handshake is not told why.
fn admit(client: Accepted, is_encrypted: bool, engine: &Engine) -> Option<Accepted> {
    let refuse = |client: Accepted, why| {
        engine.counters(0).rejected_connections.add_shared(1);
        if !is_encrypted {
            client.refuse(why);
        }
        None
    };
    let config = engine.settings.config();
    // A client is served without an option that its socket does not take, as in Redis.
    if let Err(error) = client.configure(config.tcp_keepalive_s) {
        tracing::debug!("an option of a client's socket cannot be set: {error}");
    }
    if !engine.admit() {
        return refuse(client, "-ERR max number of clients reached\r\n");
    }
    if config.protected_mode && engine.is_open() && !client.is_local() {
        engine.on_disconnect();
        return refuse(client, PROTECTED);
    }
    Some(client)
}

/// Does a client's handshake and hands it to an event loop.
async fn greet(
    client: std::net::TcpStream,
    config: Arc<ServerConfig>,
    engine: Arc<Engine>,
    mailboxes: Arc<Vec<Arc<Mailbox>>>,
    tls: Arc<Tls>,
) {
    // A client that has gone has no address any more.
    let address = peer_of(&client).address;
    match handshake::greet(client, config).await {
        Ok(greeted) => hand_on(Accepted::Tls(Box::new(greeted)), &mailboxes),
        Err(error) => {
            engine.counters(0).tls_handshakes_failed.add_shared(1);
            tls.failures.log(&address, &error);
            engine.on_disconnect();
        }
    }
}

/// Hands a client to the event loop that has the fewest.
fn hand_on(client: Accepted, mailboxes: &[Arc<Mailbox>]) {
    let fewest = mailboxes.iter().min_by_key(|mailbox| mailbox.clients.load(Ordering::Relaxed));
    fewest.expect("there is an event loop").accept(client);
}

/// The reply of Redis to a client from another host while the server is not secured.
const PROTECTED: &str = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is \
    set for the default user. In this mode connections are only accepted from the loopback interface. If you want to \
    connect from external computers to Redis you may adopt one of the following solutions: 1) Just disable protected mode \
    sending the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same \
    host the server is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use CONFIG \
    REWRITE to make this change permanent. 2) Alternatively you can just disable the protected mode by editing the Redis \
    configuration file, and setting the protected mode option to 'no', and then restarting the server. 3) If you started \
    the server manually just for testing, restart it with the '--protected-mode no' option. 4) Setup a an authentication \
    password for the default user. NOTE: You only need to do one of the above things in order for the server to start \
    accepting connections from the outside.\r\n";
