//! Addresses, strangers and limits of connections, over sockets.

mod process;

use process::{Client, Server, TempDir, wait_until};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

fn connect(address: impl Into<SocketAddr>) -> Option<Client<TcpStream>> {
    let socket = TcpStream::connect(address.into()).ok()?;
    socket.set_read_timeout(Some(process::PATIENCE)).expect("a timeout can be set");
    Some(Client { socket })
}

/// An address of this host that is not the loopback, if it has one. Nothing is sent.
fn outer_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(address) if !address.ip().is_loopback() => Some(*address.ip()),
        _ => None,
    }
}

#[test]
fn all_addresses_of_bind_are_served_and_no_others() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--bind", "127.0.0.1", "127.0.0.3", "-::1", "-192.0.2.1"]);
    for host in ["127.0.0.1", "127.0.0.3"] {
        let address: SocketAddr = format!("{host}:{}", server.port).parse().expect("an address");
        let mut client = connect(address).expect("it is listened on");
        assert_eq!(client.ask("PING"), "+PONG\r\n", "{host}");
        assert!(client.ask("CLIENT INFO").contains(&format!(" laddr={address} ")), "{host}");
    }
    assert!(connect((Ipv4Addr::new(127, 0, 0, 2), server.port)).is_none(), "nobody listens there");
    assert_eq!(
        server.client().ask("CONFIG GET bind"),
        "*2\r\n$4\r\nbind\r\n$35\r\n127.0.0.1 127.0.0.3 -::1 -192.0.2.1\r\n"
    );
    server.stop();
}

#[test]
fn strangers_need_a_password_or_leave() {
    let Some(outer) = outer_address() else {
        eprintln!("this host has the loopback only: nobody can be a stranger");
        return;
    };
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--bind", "0.0.0.0"]);
    let stranger = || connect((outer, server.port)).expect("it is listened on");
    let refused = stranger().rest();
    assert!(refused.starts_with("-DENIED Redis is running in protected mode"), "{refused}");
    assert_eq!(server.client().ask("CONFIG SET requirepass secret"), "+OK\r\n");
    assert_eq!(stranger().ask("PING"), "-NOAUTH Authentication required.\r\n", "a password protects");
    let mut local = server.client();
    assert_eq!(local.ask("AUTH secret"), "+OK\r\n");
    assert_eq!(local.ask("CONFIG SET requirepass \"\" protected-mode no"), "+OK\r\n");
    assert_eq!(stranger().ask("PING"), "+PONG\r\n", "as the operator says");
    server.stop();
}

/// The timer of the server's end of a connection, from the kernel: 2 is the one of keepalive.
fn timer(server: &Server, client: &Client<TcpStream>) -> Option<u32> {
    let port = client.socket.local_addr().expect("it is connected").port();
    let ends = (format!(":{:04X}", server.port), format!(":{port:04X}"));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("this is Linux");
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields.get(1)?.ends_with(&ends.0) && fields.get(2)?.ends_with(&ends.1);
        is_ours.then(|| u32::from_str_radix(fields[5].split(':').next()?, 16).ok())?
    })
}

#[test]
fn dead_peers_are_probed_for() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    client.ask("PING");
    wait_until("its keepalive timer runs", || timer(&server, &client) == Some(2));
    assert_eq!(client.ask("CONFIG SET tcp-keepalive 0"), "+OK\r\n");
    let mut later = server.client();
    later.ask("PING");
    wait_until("its acknowledgements are done", || timer(&server, &later) == Some(0));
    server.stop();
}

#[test]
fn a_soft_limit_counts_from_when_it_is_passed() {
    let dir = TempDir::new();
    // More than sockets take, so that the server keeps some of it.
    let server = Server::start(dir.path(), &["--client-output-buffer-limit", "pubsub 0 100kb 3"]);
    let (mut deaf, mut reads, mut publisher) = (server.client(), server.client(), server.client());
    deaf.ask("SUBSCRIBE news");
    reads.ask("SUBSCRIBE news");
    let message = vec![b'x'; 200_000];
    for _ in 0..60 {
        assert_eq!(publisher.ask_words(&[b"PUBLISH", b"news", &message]), ":2\r\n", "nobody is closed at once");
        reads.reply();
    }
    wait_until("the one that does not read is closed", || {
        publisher.ask("PUBSUB NUMSUB news") == "*2\r\n$4\r\nnews\r\n:1\r\n"
    });
    assert_eq!(publisher.ask("PUBLISH news on"), ":1\r\n");
    assert_eq!(publisher.info("client_output_buffer_limit_disconnections"), "1");
    server.stop();
}
