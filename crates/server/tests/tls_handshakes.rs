//! Handshakes of TLS: who is trusted, what both sides agree on, what is resumed, and that many at once hold up nobody.

mod authority;
mod process;

use authority::{Authority, connect, start, text};
use process::following::wait_for_link;
use process::{Client, TempDir, free_port, wait_until};
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, HandshakeKind, ProtocolVersion, SupportedProtocolVersion};
use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

#[test]
fn both_sides_agree_on_what_the_directives_leave() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let server = start(dir.path(), &authority.directives(port), &["--tls-auth-clients", "no"]);
    let mut admin = server.client();
    let client = authority.client(None);
    let agreed = || {
        let mut client = connect(port, &client);
        assert_eq!(client.ask("PING"), "+PONG\r\n");
        let suite = client.socket.conn.negotiated_cipher_suite().expect("they have talked").suite();
        (client.socket.conn.protocol_version().expect("they have talked"), suite)
    };
    assert_eq!(agreed().0, ProtocolVersion::TLSv1_3);
    let suite = CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
    assert_eq!(admin.ask("CONFIG SET tls-ciphersuites TLS_CHACHA20_POLY1305_SHA256"), "+OK\r\n");
    assert_eq!(agreed(), (ProtocolVersion::TLSv1_3, suite));
    assert_eq!(admin.ask("CONFIG SET tls-ciphersuites TLS_AES_128_GCM_SHA256"), "+OK\r\n");
    assert_eq!(agreed(), (ProtocolVersion::TLSv1_3, CipherSuite::TLS13_AES_128_GCM_SHA256));

    assert_eq!(admin.ask("CONFIG SET tls-protocols TLSv1.2 tls-ciphers ECDHE-ECDSA-CHACHA20-POLY1305"), "+OK\r\n");
    let suite = CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    assert_eq!(agreed(), (ProtocolVersion::TLSv1_2, suite));
    assert_eq!(admin.ask("CONFIG SET tls-ciphers ECDHE-ECDSA-AES256-GCM-SHA384"), "+OK\r\n");
    let suite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    assert_eq!(agreed(), (ProtocolVersion::TLSv1_2, suite));

    // A client that speaks nothing that is left does not come in.
    let is_let_in = |versions: &[&'static SupportedProtocolVersion]| {
        connect(port, &authority.client_of(None, versions)).try_ask("PING").is_some()
    };
    assert!(is_let_in(&[&TLS12]) && !is_let_in(&[&TLS13]));
    assert_eq!(admin.ask("CONFIG SET tls-protocols TLSv1.3"), "+OK\r\n");
    assert!(!is_let_in(&[&TLS12]) && is_let_in(&[&TLS13]));
    assert_eq!(admin.ask("CONFIG SET tls-protocols \"\""), "+OK\r\n");
    assert!(is_let_in(&[&TLS12]) && is_let_in(&[&TLS13]));
    server.stop();
}

#[test]
fn sessions_are_resumed_where_they_are_kept() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let server = start(dir.path(), &authority.directives(port), &["--tls-auth-clients", "no"]);
    let mut admin = server.client();
    // A client keeps what it needs to resume in its configuration.
    let kind = |config: &Arc<ClientConfig>| {
        let mut client = connect(port, config);
        assert_eq!(client.ask("PING"), "+PONG\r\n");
        client.socket.conn.handshake_kind().expect("they have talked")
    };
    for version in [&TLS12, &TLS13] {
        let config = authority.client_of(None, &[version]);
        assert_eq!(kind(&config), HandshakeKind::Full, "{version:?}: nothing is known yet");
        assert_eq!(kind(&config), HandshakeKind::Resumed, "{version:?}");
        assert_eq!(admin.ask("CONFIG SET tls-session-caching no"), "+OK\r\n");
        for _ in 0..3 {
            assert_eq!(kind(&config), HandshakeKind::Full, "{version:?}: nothing is kept");
        }
        assert_eq!(admin.ask("CONFIG SET tls-session-caching yes"), "+OK\r\n");
        assert_eq!(kind(&config), HandshakeKind::Full, "{version:?}: what was kept is gone");
        assert_eq!(kind(&config), HandshakeKind::Resumed, "{version:?}");
    }
    server.stop();
}

#[test]
fn each_authority_of_a_directory_is_trusted() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let (other, stranger) = (Authority::new(), Authority::new());
    let trusted = TempDir::new();
    for (name, of) in [("one.pem", &authority), ("other.pem", &other)] {
        fs::copy(of.file(), trusted.path().join(name)).expect("both are there");
    }
    let more = ["--tls-ca-cert-file", "", "--tls-ca-cert-dir", &text(trusted.path())];
    let server = start(dir.path(), &authority.directives(port), &more);
    // All trust the server's authority, and show a certificate of their own.
    let is_let_in = |of: &Authority| {
        let shown = of.pair("client");
        connect(port, &authority.client(Some(&shown))).try_ask("PING").is_some()
    };
    assert!(is_let_in(&authority) && is_let_in(&other));
    assert!(!is_let_in(&stranger));
    fs::copy(stranger.file(), trusted.path().join("stranger.pem")).expect("both are there");
    assert!(!is_let_in(&stranger), "nobody has told the server yet");
    let again = format!("CONFIG SET tls-ca-cert-dir {}", text(trusted.path()));
    assert_eq!(server.client().ask(&again), "+OK\r\n");
    assert!(is_let_in(&authority) && is_let_in(&other) && is_let_in(&stranger));
    server.stop();
}

#[test]
fn a_replica_shows_its_certificate_for_other_servers() {
    let authority = Authority::new();
    let (dirs, ports) = ([TempDir::new(), TempDir::new()], [free_port(), free_port()]);
    let user = ["--user", "repl", "on", ">pw", "+@all", "~*", "--tls-auth-clients-user", "CN"];
    let master = start(dirs[0].path(), &authority.directives(ports[0]), &user);
    let shown = authority.pair("repl");
    let files = [text(&shown.cert), text(&shown.key)];
    let of = ["--replicaof", "127.0.0.1", &ports[0].to_string(), "--tls-replication", "yes"];
    let own = ["--tls-client-cert-file", &files[0], "--tls-client-key-file", &files[1]];
    let replica = start(dirs[1].path(), &authority.directives(ports[1]), &[&of[..], &own[..]].concat());
    wait_for_link(&replica);
    let mut admin = master.client();
    let listed = admin.ask("CLIENT LIST TYPE replica");
    assert!(listed.contains(" user=repl "), "{listed}");
    assert_eq!(admin.ask("SET k v"), "+OK\r\n");
    wait_until("the replica has it", || replica.client().ask("GET k") == "$1\r\nv\r\n");
    // To its own clients it shows that of the server.
    let mut client = connect(ports[1], &authority.client(Some(&shown)));
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    let certificates = client.socket.conn.peer_certificates().expect("it is shown");
    assert_ne!(certificates[0], CertificateDer::from_pem_file(&shown.cert).expect("it was written"));
    replica.stop();
    master.stop();
}

#[test]
fn handshakes_that_fail_are_counted_and_told() {
    const FAILURES: usize = 50;
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let log = dir.path().join("server.log");
    let server = start(dir.path(), &authority.directives(port), &["--logfile", "server.log"]);
    let mut admin = server.client();
    let begin = Instant::now();
    let mut addresses = Vec::new();
    for _ in 0..FAILURES {
        let mut plain = Client::at(port);
        addresses.push(plain.socket.local_addr().expect("it is connected").to_string());
        plain.send(b"PING\r\n");
        assert!(!plain.rest().contains("PONG"));
    }
    wait_until("all are counted", || admin.info("tls_handshakes_failed") == FAILURES.to_string());
    let seconds = begin.elapsed().as_secs() as usize;
    let text = fs::read_to_string(&log).expect("it is text");
    let lines: Vec<&str> =
        text.lines().filter(|line| line.contains("WARN Error accepting a client connection: ")).collect();
    assert!((1..=seconds + 1).contains(&lines.len()), "{seconds} seconds: {text}");
    assert!(
        lines[0].contains(&format!("corrupt message of type InvalidContentType (addr={})", addresses[0])),
        "{text}"
    );

    // A client without the certificate that is asked for.
    assert_eq!(admin.ask("CONFIG RESETSTAT"), "+OK\r\n");
    assert_eq!(admin.info("tls_handshakes_failed"), "0");
    assert_eq!(connect(port, &authority.client(None)).try_ask("PING"), None);
    wait_until("it is counted", || admin.info("tls_handshakes_failed") == "1");
    let shown = authority.pair("client");
    assert_eq!(connect(port, &authority.client(Some(&shown))).ask("PING"), "+PONG\r\n");
    assert_eq!(admin.info("tls_handshakes_failed"), "1");
    server.stop();
}

/// Clients at the same time, and the handshakes of each.
const CLIENTS: usize = 16;
const EACH: usize = 40;

#[test]
fn many_handshakes_at_once_leave_others_their_turn() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let more = ["--tls-auth-clients", "no", "--workers", "1"];
    let server = start(dir.path(), &authority.directives(port), &more);
    let mut config = ClientConfig::clone(&authority.client(None));
    config.resumption = Resumption::disabled();
    let config = Arc::new(config);
    let (finished, begin) = (AtomicUsize::new(0), Barrier::new(CLIENTS + 1));
    let mut client = server.client();
    // The handshakes that were finished at each answer to a client that only asks.
    let mut seen = BTreeSet::new();
    std::thread::scope(|threads| {
        let shakes = || {
            begin.wait();
            for _ in 0..EACH {
                let mut client = connect(port, &config);
                assert_eq!(client.ask("PING"), "+PONG\r\n");
                assert_eq!(client.socket.conn.handshake_kind(), Some(HandshakeKind::Full));
                finished.fetch_add(1, Ordering::Relaxed);
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| threads.spawn(shakes)).collect();
        begin.wait();
        while !clients.iter().all(|client| client.is_finished()) {
            assert_eq!(client.ask("PING"), "+PONG\r\n");
            seen.insert(finished.load(Ordering::Relaxed));
        }
    });
    assert_eq!(finished.into_inner(), CLIENTS * EACH);
    // Were it to wait for all that are there, it would be answered once or twice.
    assert!(seen.len() > EACH / 8, "it is answered again and again between them: {seen:?}");
    server.stop();
}
