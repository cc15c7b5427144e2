//! /metrics over HTTP: the page for Prometheus, and the answers to hostile clients.

mod process;

use process::{Server, TempDir, free_port, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A server whose metrics are at the port that comes with it.
fn server(dir: &TempDir) -> (Server, u16) {
    let port = free_port();
    (Server::start(dir.path(), &["--metrics-port", &port.to_string()]), port)
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).expect("metrics are served")
}

/// Sends a request; returns all that comes back.
fn ask(port: u16, request: &str) -> String {
    let mut socket = connect(port);
    socket.write_all(request.as_bytes()).expect("it is read");
    let mut reply = String::new();
    socket.read_to_string(&mut reply).expect("it is answered");
    reply
}

fn metrics(port: u16) -> String {
    let reply = ask(port, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    body.to_owned()
}

fn value<'a>(metrics: &'a str, sample: &str) -> &'a str {
    let found = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{sample} is in {metrics}"))
}

#[test]
fn metrics_tell_what_info_tells() {
    let dir = TempDir::new();
    let (server, port) = server(&dir);
    let mut client = server.client();
    (0..5).for_each(|n| assert_eq!(client.ask(&format!("SET k{n} v")), "+OK\r\n"));
    assert!(client.ask("GET").starts_with("-ERR"));
    assert!(client.ask("INCR k1").starts_with("-ERR"));
    let metrics = metrics(port);
    assert_eq!(value(&metrics, "haypile_command_calls_total{command=\"set\"}"), "5");
    assert_eq!(value(&metrics, "haypile_command_seconds_count{command=\"set\"}"), "5");
    assert_eq!(value(&metrics, "haypile_command_seconds_bucket{command=\"set\",le=\"+Inf\"}"), "5");
    assert_eq!(value(&metrics, "haypile_command_rejected_total{command=\"get\"}"), "1");
    assert_eq!(value(&metrics, "haypile_command_failed_total{command=\"incr\"}"), "1");
    assert_eq!(value(&metrics, "haypile_errors_total{kind=\"ERR\"}"), "2");
    assert_eq!(value(&metrics, "haypile_db_keys{db=\"db0\"}"), "5");
    assert_eq!(value(&metrics, "haypile_db_type_keys{db=\"db0\",type=\"strings\"}"), "5");
    let commands: u64 = value(&metrics, "haypile_commands_processed_total").parse().expect("a number");
    assert!(commands >= 7, "{commands}");
    assert_eq!(value(&metrics, "haypile_connected_clients"), "1");
    // Figures of the process, the log, the caches and RocksDB.
    for name in
        ["haypile_used_memory", "haypile_log_writes_total", "haypile_row_cache_bytes", "haypile_block_cache_bytes"]
    {
        value(&metrics, name).parse::<f64>().expect("a number");
    }
    // Every figure of the store is explained, and so it is here.
    for section in ["store", "log", "cache", "rocksdb"] {
        let info = client.ask(&format!("INFO {section}"));
        for name in info.lines().skip(2).filter_map(|line| line.split_once(':')).map(|(name, _)| name) {
            let is_there = ["", "_total"].iter().any(|end| metrics.contains(&format!("\nhaypile_{name}{end} ")));
            assert!(is_there, "{name} of {section}");
        }
    }
    server.stop();
}

#[test]
fn limits_of_users_are_shown_with_what_is_taken_of_them() {
    let dir = TempDir::new();
    let (server, port) = server(&dir);
    let (mut admin, mut client) = (server.client(), server.client());
    let rules = "on nopass ~* +@all rate=1000 bandwidth=10mb memory=64mb connections=7";
    assert_eq!(admin.ask(&format!("ACL SETUSER bob {rules}")), "+OK\r\n");
    assert_eq!(admin.ask("ACL SETUSER free on nopass ~* +@all"), "+OK\r\n");
    let shown = "$6\r\nlimits\r\n$58\r\nrate=1000 bandwidth=10485760 memory=67108864 connections=7\r\n";
    let of_bob = admin.ask("ACL GETUSER bob");
    assert!(of_bob.ends_with(shown), "{of_bob}");
    assert!(!admin.ask("ACL GETUSER free").contains("limits"), "a user without any has no such field");
    assert_eq!(client.ask("AUTH bob x"), "+OK\r\n");
    (0..3).for_each(|_| assert_eq!(client.ask("SET k v"), "+OK\r\n"));
    let page = metrics(port);
    for (limit, expected) in [("rate", "1000"), ("bandwidth", "10485760"), ("memory", "67108864"), ("connections", "7")]
    {
        let sample = format!("haypile_user_limit{{user=\"bob\",limit=\"{limit}\"}}");
        assert_eq!(value(&page, &sample), expected);
    }
    assert_eq!(value(&page, "haypile_user_connections{user=\"bob\"}"), "1");
    let calls: u64 = value(&page, "haypile_user_calls_total{user=\"bob\"}").parse().expect("a number");
    assert!(calls >= 3, "{calls}");
    assert!(!page.contains("user=\"free\""), "nothing is counted for a user without limits");
    // Changed limits show at once, and go with the last of them.
    assert_eq!(admin.ask("ACL SETUSER bob rate=5 bandwidth=0 memory=0 connections=0"), "+OK\r\n");
    assert!(admin.ask("ACL GETUSER bob").ends_with("$6\r\nlimits\r\n$6\r\nrate=5\r\n"));
    let page = metrics(port);
    assert_eq!(value(&page, "haypile_user_limit{user=\"bob\",limit=\"rate\"}"), "5");
    assert!(!page.contains("limit=\"memory\""));
    assert_eq!(admin.ask("ACL SETUSER bob rate=0"), "+OK\r\n");
    assert!(!admin.ask("ACL GETUSER bob").contains("limits") && !metrics(port).contains("user=\"bob\""));
    server.stop();
}

#[test]
fn a_strict_parser_reads_them() {
    let dir = TempDir::new();
    let (server, port) = server(&dir);
    let mut client = server.client();
    for command in ["SET k v", "GET k", "GET none", "CONFIG GET port", "INCR k", "NOSUCH"] {
        client.ask(command);
    }
    let page = metrics(port);
    let (mut families, mut current) = (std::collections::HashMap::new(), None);
    let mut samples = std::collections::HashSet::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help has a text");
            assert!(!help.is_empty() && families.insert(name.to_owned(), None).is_none(), "{name} comes once");
            current = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type has a name");
            assert_eq!(current.as_deref(), Some(name), "the type follows its help");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            families.insert(name.to_owned(), Some(kind.to_owned()));
        } else {
            let (sample, number) = line.rsplit_once(' ').expect("a sample has a value");
            number.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
            assert!(samples.insert(sample.to_owned()), "{sample} comes once");
            let family = current.as_deref().expect("a sample follows its head");
            let kind = families[family].as_deref().expect("it has a type");
            let name = sample.split('{').next().expect("a name");
            let allowed = match kind {
                "histogram" => ["_bucket", "_sum", "_count"].iter().any(|end| name == format!("{family}{end}")),
                "counter" => name == family && name.ends_with("_total"),
                _ => name == family,
            };
            assert!(allowed, "{line} below {family}, a {kind}");
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{name}");
        }
    }
    assert!(families.len() > 100);
    server.stop();
}

#[test]
fn the_dashboard_asks_for_what_is_there() {
    let dir = TempDir::new();
    let (server, port) = server(&dir);
    let mut client = server.client();
    for command in ["SET k v", "GET k", "GET"] {
        client.ask(command);
    }
    let (of_replica, port_of_replica) = (TempDir::new(), free_port());
    let follows =
        ["--metrics-port", &port_of_replica.to_string(), "--replicaof", "127.0.0.1", &server.port.to_string()];
    let replica = Server::start(of_replica.path(), &follows);
    wait_until("the replica follows", || replica.client().ask("INFO replication").contains("master_link_up:1"));
    let page = metrics(port) + &metrics(port_of_replica);
    replica.stop();
    let here: std::path::PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this").into();
    let dashboard = std::fs::read_to_string(here.join("../../deploy/grafana/haypile.json")).expect("it is there");
    let expressions: Vec<String> = dashboard
        .lines()
        .filter_map(|line| line.trim().strip_prefix("\"expr\": \"")?.trim_end_matches(',').strip_suffix('"'))
        .map(|expression| expression.replace("\\\"", "\""))
        .collect();
    assert!(expressions.len() > 20, "{expressions:?}");
    for expression in &expressions {
        let mut rest = expression.as_str();
        let mut found = 0;
        while let Some(at) = rest.find("haypile_") {
            rest = &rest[at..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            let is_here = |line: &&str| line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}{{"));
            let sample = page.lines().find(is_here).unwrap_or_else(|| panic!("{name} of {expression} is not served"));
            // Labels that the expression asks for, and those that it groups by.
            if let Some(labels) = behind.strip_prefix('{').and_then(|labels| labels.split('}').next()) {
                for matcher in labels.split(',').filter(|matcher| !matcher.is_empty()) {
                    let (label, wanted) = matcher.split_once('=').expect("a matcher has a value");
                    let label = label.trim_end_matches('!');
                    if ["instance", "job"].contains(&label) {
                        continue;
                    }
                    assert!(sample.contains(&format!("{label}=\"")), "{label} of {expression}: {sample}");
                    let wanted = wanted.trim_matches(['~', '"']);
                    let exists = |value: &str| {
                        page.lines()
                            .any(|line| line.starts_with(name) && line.contains(&format!("{label}=\"{value}\"")))
                    };
                    assert!(wanted.contains('$') || wanted.split('|').all(exists), "{label}={wanted} of {expression}");
                }
            }
            if let Some(by) = expression.split("by (").nth(1).and_then(|by| by.split(')').next()) {
                for label in by.split(", ").filter(|label| *label != "instance") {
                    let has = page.lines().any(|line| line.starts_with(name) && line.contains(&format!("{label}=\"")));
                    assert!(has, "{label} of {expression}");
                }
            }
            found += 1;
            rest = behind;
        }
        assert!(found > 0, "{expression} asks for nothing of ours");
    }
    server.stop();
}

#[test]
fn other_requests_are_refused() {
    let dir = TempDir::new();
    let (server, port) = server(&dir);
    let status = |request: &str| ask(port, request).lines().next().unwrap_or_default().to_owned();
    assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(status("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 OK");
    assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(status("GET /metrics\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    assert_eq!(status("\0\u{1}\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    let head = ask(port, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    // All of the request is read, so that the answer is not lost with the rest.
    let endless = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(8600));
    assert_eq!(status(&endless), "HTTP/1.1 431 Request Header Fields Too Large");
    server.stop();
}

/// Connections that never ask, that ask for ever, and that do not read what they asked for, far more than there may be.
#[test]
fn whoever_asks_is_answered_beside_any_number_that_do_not() {
    let dir = TempDir::new();
    let (server, port) = server(&dir);
    let mut client = server.client();
    let mut others = Vec::new();
    for round in 0..20 {
        for _ in 0..15 {
            others.push(connect(port));
            let mut half = connect(port);
            half.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").expect("it is read");
            others.push(half);
            let mut unread = connect(port);
            unread.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it is read");
            others.push(unread);
        }
        let since = Instant::now();
        assert_eq!(value(&metrics(port), "haypile_connected_clients"), "1", "who asks for metrics is no client");
        // A silent connection is let go after ten seconds: nobody has waited for that, nor for a second of them.
        assert!(since.elapsed() < Duration::from_secs(3), "{round}: {:?}", since.elapsed());
        assert_eq!(client.ask("PING"), "+PONG\r\n");
    }
    // No more of them are open than there may be.
    let open = others.iter_mut().map(is_open).filter(|is_open| *is_open).count();
    assert!(open <= 64, "{open}");
    drop(others);
    metrics(port);
    server.stop();
}

/// Tells whether the server has not closed the connection, by now or after the bytes it has sent.
fn is_open(socket: &mut TcpStream) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout can be set");
    let mut reply = Vec::new();
    // A reset is an end as well.
    socket.read_to_end(&mut reply).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}
