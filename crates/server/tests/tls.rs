//! TLS: clients, certificates that are exchanged while the server runs, replicas, and what this program connects to.
//! Handshakes, and what they settle, are in `tls_handshakes`.

mod authority;
mod process;

use authority::{Authority, Pair, connect, start, text};
use process::following::{DEBUG, fill, is_equal, wait_for_link};
use process::group::{QUICK, raft};
use process::{Client, Server, TempDir, free_port, wait_until};
use rustls::ClientConfig;
use socket2::SockRef;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn clients_talk_over_tls_as_without_it() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let server = start(dir.path(), &authority.directives(port), &["--tls-auth-clients", "no"]);
    let config = authority.client(None);
    let mut client = connect(port, &config);
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    assert_eq!(server.client().ask("GET k"), "$1\r\nv\r\n", "the other port is another way to the same data");
    // Records of all sizes, in both directions, and many at once.
    for length in [1, 100, 16_383, 16_384, 16_385, 70_000, 3_000_000] {
        let value = "x".repeat(length);
        assert_eq!(client.ask_words(&[b"SET", b"long", value.as_bytes()]), "+OK\r\n");
        assert_eq!(client.ask("GET long"), format!("${length}\r\n{value}\r\n"));
    }
    let pipeline: String =
        (0..5000).map(|number| format!("SET key:{number} {number}\r\nGET key:{number}\r\n")).collect();
    client.send(pipeline.as_bytes());
    for number in 0..5000 {
        assert_eq!(client.reply(), "+OK\r\n");
        let text = number.to_string();
        assert_eq!(client.reply(), format!("${}\r\n{text}\r\n", text.len()));
    }
    let mut subscriber = connect(port, &config);
    assert!(subscriber.ask("SUBSCRIBE news").contains("subscribe"));
    assert_eq!(client.ask("PUBLISH news hello"), ":1\r\n");
    assert!(subscriber.reply().contains("hello"));
    let mut waiter = connect(port, &config);
    waiter.send(b"BLPOP queue 0\r\n");
    wait_until("it waits", || server.client().info("blocked_clients") == "1");
    assert_eq!(client.ask("RPUSH queue x"), ":1\r\n");
    assert!(waiter.reply().contains("queue"));
    assert_eq!(client.ask("QUIT"), "+OK\r\n");
    let mut rest = Vec::new();
    client.socket.read_to_end(&mut rest).expect("the end is told, not only cut off");
    assert_eq!(rest, b"");
    server.stop();
}

#[test]
fn a_client_that_reads_slowly_gets_its_last_reply_whole() {
    const LENGTH: usize = 1 << 20;
    const REPLIES: usize = 24;
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let server = start(dir.path(), &authority.directives(port), &["--tls-auth-clients", "no"]);
    let mut client = connect(port, &authority.client(None));
    SockRef::from(&client.socket.sock).set_recv_buffer_size(64 << 10).expect("it can be set");
    assert_eq!(client.ask_words(&[b"SET", b"k", &[b'x'; LENGTH]]), "+OK\r\n");
    client.send(format!("{}QUIT\r\n", "GET k\r\n".repeat(REPLIES)).as_bytes());
    let mut read = 0;
    let mut piece = [0; 8 << 10];
    loop {
        match client.socket.read(&mut piece).expect("the end is told") {
            0 => break,
            count => read += count,
        }
    }
    assert_eq!(read, REPLIES * (LENGTH + "$1048576\r\n\r\n".len()) + "+OK\r\n".len());
    server.stop();
}

#[test]
fn the_command_line_of_redis_talks_over_tls() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let directives = authority.directives(port);
    let directives: Vec<&str> = directives.iter().map(String::as_str).chain(["--port", "0"]).collect();
    let server = Server::spawn(dir.path(), port, &directives);
    let pair = authority.pair("client");
    let ask = |more: &[&str], command: &[&str]| {
        let port = port.to_string();
        let out = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert", &authority.file()])
            .args(more)
            .args(command)
            .output()
            .expect("redis-cli is there");
        String::from_utf8_lossy(&out.stdout).trim().to_owned() + String::from_utf8_lossy(&out.stderr).trim()
    };
    let shown = ["--cert", &text(&pair.cert), "--key", &text(&pair.key)];
    wait_until("it serves", || ask(&shown, &["PING"]) == "PONG");
    assert_eq!(ask(&shown, &["SET", "k", "v"]), "OK");
    assert_eq!(ask(&shown, &["GET", "k"]), "v");
    let refused = ask(&[], &["PING"]);
    assert!(!refused.contains("PONG"), "without a certificate: {refused}");
    server.stop();
}

#[test]
fn certificates_say_who_comes_in_and_as_whom() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let other = Authority::new();
    let server = start(dir.path(), &authority.directives(port), &["--tls-auth-clients-user", "CN"]);
    let mut admin = server.client();
    let is_let_in = |config: &Arc<ClientConfig>| connect(port, config).try_ask("PING").is_some();
    let (bob, joe) = (authority.pair("bob"), authority.pair("joe"));
    assert!(is_let_in(&authority.client(Some(&bob))));
    assert!(!is_let_in(&authority.client(None)), "a certificate is asked for");
    let stranger = other.pair("stranger");
    assert!(!is_let_in(&authority.client(Some(&stranger))), "one of another authority is none");
    assert_eq!(admin.ask("CONFIG SET tls-auth-clients optional"), "+OK\r\n");
    assert!(is_let_in(&authority.client(None)) && is_let_in(&authority.client(Some(&bob))));
    assert!(!is_let_in(&authority.client(Some(&stranger))), "one that is shown has to be right");
    assert_eq!(admin.ask("CONFIG SET tls-auth-clients no"), "+OK\r\n");
    assert!(is_let_in(&authority.client(None)));
    assert_eq!(admin.ask("CONFIG SET tls-auth-clients yes"), "+OK\r\n");

    assert_eq!(admin.ask("ACL SETUSER bob on >secret ~b* +@all"), "+OK\r\n");
    let mut client = connect(port, &authority.client(Some(&bob)));
    assert_eq!(client.ask("ACL WHOAMI"), "$3\r\nbob\r\n", "the user of the common name");
    assert_eq!(client.ask("GET a"), "-NOPERM No permissions to access a key\r\n");
    assert!(client.ask("CLIENT INFO").contains(" user=bob "));
    let mut client = connect(port, &authority.client(Some(&joe)));
    assert_eq!(client.ask("ACL WHOAMI"), "$7\r\ndefault\r\n", "there is no user joe");
    assert!(admin.ask("ACL LOG").contains("joe"));

    // Where nobody comes in without a password, a certificate's user is no stranger all the same.
    assert_eq!(admin.ask("ACL SETUSER default resetpass >secret"), "+OK\r\n");
    let mut client = connect(port, &authority.client(Some(&bob)));
    assert_eq!(client.ask_words(&[b"SET", b"b", &[b'x'; 100_000]]), "+OK\r\n");
    server.stop();
}

#[test]
fn the_port_of_tls_comes_and_goes_while_the_server_runs() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let server = Server::start(dir.path(), &[]);
    let mut admin = server.client();
    let refused = admin.ask(&format!("CONFIG SET tls-port {port}"));
    assert!(refused.contains("'tls-port') - Unable to update TLS configuration. Check server logs."), "{refused}");
    let pairs = authority.directives(port).join(" ").replace("--", "");
    assert_eq!(admin.ask(&format!("CONFIG SET {pairs}")), "+OK\r\n");
    assert_eq!(connect(port, &authority.client(Some(&authority.pair("client")))).ask("PING"), "+PONG\r\n");
    let mut stays = connect(port, &authority.client(Some(&authority.pair("client"))));
    let plain = server.port;
    let taken = admin.ask(&format!("CONFIG SET tls-port {plain}"));
    assert!(taken.contains("'tls-port') - Unable to listen on this port. Check server logs."), "{taken}");
    assert_eq!(admin.ask("CONFIG SET port 0"), "+OK\r\n");
    assert!(TcpStream::connect(("127.0.0.1", plain)).is_err());
    assert_eq!(stays.ask(&format!("CONFIG SET port {plain} tls-port 0")), "+OK\r\n");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert_eq!(stays.ask("PING"), "+PONG\r\n");
    assert_eq!(server.client().ask("PING"), "+PONG\r\n");
    server.stop();
}

#[test]
fn certificates_are_exchanged_while_the_server_runs() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let server = start(dir.path(), &authority.directives(port), &["--tls-auth-clients", "no"]);
    let config = authority.client(None);
    let mut admin = server.client();
    let shown = || {
        let mut client = connect(port, &config);
        assert_eq!(client.ask("PING"), "+PONG\r\n");
        client.socket.conn.peer_certificates().expect("it is shown")[0].to_vec()
    };
    let (first, mut early) = (shown(), connect(port, &config));
    assert_eq!(early.ask("PING"), "+PONG\r\n");
    // The same files with another certificate, as renewals leave them.
    let pair = Pair { cert: authority.dir.path().join("server.pem"), key: authority.dir.path().join("server.key") };
    authority.write(&pair, "server");
    assert_eq!(shown(), first, "nobody was told yet");
    let same = format!("CONFIG SET tls-cert-file {} tls-key-file {}", text(&pair.cert), text(&pair.key));
    assert_eq!(admin.ask(&same), "+OK\r\n");
    let second = shown();
    assert_ne!(second, first);
    assert_eq!(early.ask("PING"), "+PONG\r\n", "who is connected stays");

    let refused = |name: &str| {
        format!(
            "-ERR CONFIG SET failed (possibly related to argument '{name}') - Unable to update TLS configuration. Check \
             server logs.\r\n"
        )
    };
    fs::write(&pair.cert, "nonsense").expect("it is there");
    assert_eq!(admin.ask(&format!("CONFIG SET tls-cert-file {}", text(&pair.cert))), refused("tls-cert-file"));
    assert_eq!(admin.ask("CONFIG SET tls-key-file /nowhere"), refused("tls-key-file"));
    assert_eq!(admin.ask("CONFIG SET tls-ciphers RC4-SHA"), refused("tls-ciphers"));
    assert_eq!(admin.ask("CONFIG SET tls-protocols TLSv1.1"), refused("tls-protocols"));
    assert_eq!(shown(), second, "a change that cannot be made leaves all as it was");
    assert_eq!(admin.ask("CONFIG GET tls-protocols"), "*2\r\n$13\r\ntls-protocols\r\n$0\r\n\r\n");
    server.stop();
}

#[test]
fn an_encrypted_key_needs_its_password() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let mut directives = authority.directives(port);
    let plain = authority.dir.path().join("server.key");
    let locked = authority.dir.path().join("locked.key");
    let made = Command::new("openssl")
        .args([
            "pkcs8",
            "-topk8",
            "-v2",
            "aes-256-cbc",
            "-passout",
            "pass:s3cret",
            "-in",
            &text(&plain),
            "-out",
            &text(&locked),
        ])
        .status();
    assert!(made.expect("openssl is there").success());
    let at = directives.iter().position(|word| *word == text(&plain)).expect("it is named");
    directives[at] = text(&locked);
    let words = |pass| -> Vec<&str> {
        directives.iter().map(String::as_str).chain(["--tls-auth-clients", "no", "--tls-key-file-pass", pass]).collect()
    };
    let said = process::fails(dir.path(), free_port(), &words("other"));
    assert!(said.contains("cannot be decrypted: the password may be another one"), "{said}");
    let server = Server::start(dir.path(), &words("s3cret"));
    assert_eq!(connect(port, &authority.client(None)).ask("PING"), "+PONG\r\n");
    server.stop();
}

#[test]
fn a_wrong_configuration_of_tls_ends_the_start() {
    let authority = Authority::new();
    let right = authority.directives(free_port());
    let with = |more: &[&str]| -> Vec<String> {
        right.iter().cloned().chain(more.iter().map(|word| word.to_string())).collect()
    };
    let (other, mine) = (Authority::new(), authority.pair("mine"));
    let cases: [(Vec<String>, &str); 7] = [
        (vec!["--tls-port".into(), "1".into()], "need 'tls-cert-file' and 'tls-key-file'"),
        (with(&["--tls-ca-cert-file", ""]), "Either tls-ca-cert-file or tls-ca-cert-dir must be specified"),
        (with(&["--tls-cert-file", "/nowhere"]), "'/nowhere' cannot be read: No such file"),
        (with(&["--tls-key-file", &other.file()]), "has no key that can be read"),
        (with(&["--tls-key-file", &text(&mine.key)]), "do not go together"),
        (with(&["--tls-protocols", "TLSv1.1"]), "TLSv1.1 is not safe any more"),
        (with(&["--tls-ciphers", "NONSENSE"]), "tls-ciphers: 'NONSENSE' is not there"),
    ];
    for (words, why) in cases {
        let dir = TempDir::new();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = process::fails(dir.path(), free_port(), &words);
        assert!(said.contains(why), "{words:?}: {said}");
    }
}

#[test]
fn those_who_do_not_finish_a_handshake_hold_up_nobody() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let server = start(dir.path(), &authority.directives(port), &["--tls-auth-clients", "no", "--maxclients", "200"]);
    let config = authority.client(None);
    let mut client = connect(port, &config);
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    let silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("the server listens")).collect();
    for bytes in [&b"PING\r\n"[..], b"\x16\x03\x01\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x03\x00\x05hello"] {
        let mut plain = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        plain.write_all(bytes).expect("it takes them");
        plain.shutdown(std::net::Shutdown::Write).expect("it is connected");
        let mut said = Vec::new();
        let _ = plain.read_to_end(&mut said);
        assert!(!said.starts_with(b"+PONG") && !said.starts_with(b"-"), "nothing in the clear: {said:?}");
    }
    let since = Instant::now();
    assert_eq!(connect(port, &config).ask("PING"), "+PONG\r\n");
    assert!(since.elapsed() < Duration::from_secs(5), "beside a hundred who say nothing");
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    drop(silent);
    wait_until("their places are free again", || server.client().info("connected_clients") == "2");
    server.stop();
}

#[test]
fn who_reads_late_gets_all() {
    let (authority, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let server = start(dir.path(), &authority.directives(port), &["--tls-auth-clients", "no"]);
    let mut client = connect(port, &authority.client(None));
    let value = "0123456789abcdef".repeat(1 << 16);
    assert_eq!(client.ask_words(&[b"SET", b"k", value.as_bytes()]), "+OK\r\n");
    for _ in 0..20 {
        client.send(b"GET k\r\n");
    }
    // Far more than sockets hold has to wait for this client, who does not read.
    wait_until("replies wait", || {
        let list = server.client().ask("CLIENT LIST");
        list.lines().any(|line| line.contains(" cmd=get ") && !line.contains(" obl=0 "))
    });
    for number in 0..20 {
        assert_eq!(client.reply(), format!("${}\r\n{value}\r\n", value.len()), "reply {number}");
    }
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    server.stop();
}

#[test]
fn a_replica_follows_over_tls() {
    let authority = Authority::new();
    let (dirs, ports) = ([TempDir::new(), TempDir::new()], [free_port(), free_port()]);
    let master = start(dirs[0].path(), &authority.directives(ports[0]), &DEBUG);
    fill(&mut master.client(), 0, 500);
    let of = ["--replicaof", "127.0.0.1", &ports[0].to_string(), "--tls-replication", "yes"].map(str::to_owned);
    let directives: Vec<String> = authority.directives(ports[1]).into_iter().chain(of).collect();
    let replica = start(dirs[1].path(), &directives, &DEBUG);
    wait_for_link(&replica);
    is_equal(&master, &replica);
    fill(&mut master.client(), 500, 1500);
    let long = "x".repeat(5 << 20);
    assert_eq!(master.client().ask_words(&[b"SET", b"long", long.as_bytes()]), "+OK\r\n");
    is_equal(&master, &replica);
    let of_master = master.client().ask("INFO replication");
    assert!(of_master.contains(&format!("port={}", ports[1])), "it announces its port of TLS: {of_master}");
    replica.kill();
    fill(&mut master.client(), 1500, 2000);
    let replica = start(dirs[1].path(), &directives, &DEBUG);
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(master.client().ask("WAIT 1 5000"), ":1\r\n");

    // A master that it does not trust is not followed, and says why.
    let (stranger, dir, port) = (Authority::new(), TempDir::new(), free_port());
    let other = start(dir.path(), &stranger.directives(port), &["--tls-auth-clients", "no"]);
    assert_eq!(replica.client().ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
    wait_until("it is refused", || replica.client().ask("INFO replication").contains("no connection over TLS"));
    other.stop();
    replica.stop();
    master.stop();
}

#[test]
fn a_group_goes_over_tls_and_its_members_log_in() {
    let authority = Authority::new();
    let dirs: Vec<_> = (0..3).map(|_| TempDir::new()).collect();
    let ports: Vec<_> = (0..3).map(|_| free_port()).collect();
    // Rights that a member needs with the others.
    let user = ["--user", "peer", "on", ">pw", "+replconf", "+raft.info", "+raft.node"];
    let more = ["--tls-cluster", "yes", "--masteruser", "peer", "--masterauth", "pw"];
    let more = [&DEBUG[..], &more, &QUICK, &user].concat();
    let begin = |at: usize| start(dirs[at].path(), &authority.directives(ports[at]), &more);
    let mut servers: Vec<_> = (0..3).map(begin).collect();
    let address = |at: usize| format!("127.0.0.1:{}", ports[at]);
    let role = |server: &Server| raft(&mut server.client(), "role");
    fill(&mut servers[0].client(), 0, 500);
    assert_eq!(servers[0].client().ask(&format!("RAFT.CLUSTER INIT {}", address(0))), "+OK\r\n");
    wait_until("it leads itself", || role(&servers[0]) == "leader");
    for at in 1..3 {
        // The group knows it by its port of TLS.
        assert_eq!(servers[at].client().ask(&format!("RAFT.CLUSTER JOIN {}", address(0))), "+OK\r\n");
        let votes = || servers[0].client().ask("INFO raft").matches("part=voter").count();
        wait_until("it votes", || votes() == at + 1);
    }
    // A client without the rights of a member is none.
    let mut stranger = servers[0].client();
    assert_eq!(stranger.ask("ACL SETUSER weak on >pw +info"), "+OK\r\n");
    assert_eq!(stranger.ask("AUTH weak pw"), "+OK\r\n");
    for command in
        ["REPLCONF haypile-member x 2 1 a:1 index", "RAFT.NODE REMOVE 2", "RAFT.CLUSTER RESET", "RAFT.TRANSFER-LEADER"]
    {
        assert!(stranger.ask(command).starts_with("-NOPERM "), "{command}");
    }
    // Clients are sent to the leader's port of TLS.
    let leader = 0;
    wait_until("it knows the leader", || raft(&mut servers[1].client(), "leader_id") == "1");
    assert_eq!(servers[1].client().ask("GET x"), format!("-MOVED 16287 {}\r\n", address(leader)));
    fill(&mut servers[0].client(), 500, 1500);
    let long = "x".repeat(5 << 20);
    assert_eq!(servers[0].client().ask_words(&[b"SET", b"long", long.as_bytes()]), "+OK\r\n");
    // Or handed on to it, where the user of the members may act for all.
    assert_eq!(servers[1].client().ask("CONFIG SET raft-follower-proxy yes"), "+OK\r\n");
    assert!(servers[1].client().ask("GET x").starts_with("-NOPERM a member "));
    assert_eq!(servers[0].client().ask("ACL SETUSER peer allcommands allkeys allchannels"), "+OK\r\n");
    let mut handed_on = servers[1].client();
    assert_eq!(handed_on.ask_words(&[b"APPEND", b"long", long.as_bytes()]), format!(":{}\r\n", 2 * long.len()));
    assert_eq!(handed_on.ask("GET long"), format!("${}\r\n{long}{long}\r\n", 2 * long.len()));
    assert_eq!(handed_on.ask_words(&[b"SET", b"long", long.as_bytes()]), "+OK\r\n");
    servers.remove(leader).kill();
    wait_until("another one leads", || servers.iter().any(|server| role(server) == "leader"));
    let next = servers.iter().position(|server| role(server) == "leader").expect("one was found");
    assert_eq!(servers[next].client().ask("STRLEN long"), format!(":{}\r\n", long.len()));
    fill(&mut servers[next].client(), 1500, 1600);
    servers.push(begin(leader));
    let digests = || servers.iter().map(|server| server.client().ask("DEBUG DIGEST")).collect::<Vec<_>>();
    wait_until("all have the same", || digests().windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn import_export_and_migrate_go_over_tls() {
    let authority = Authority::new();
    let (dirs, ports) = ([TempDir::new(), TempDir::new()], [free_port(), free_port()]);
    let servers: Vec<Server> = (0..2)
        .map(|at| {
            start(dirs[at].path(), &authority.directives(ports[at]), &["--tls-cluster", "yes", DEBUG[0], DEBUG[1]])
        })
        .collect();
    let pair = authority.pair("client");
    fill(&mut servers[0].client(), 0, 200);
    let file = text(&authority.dir.path().join("dump.rdb"));
    let run = |command: &str, port: u16, more: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_haypile"))
            .args([command, &file, "--host", "127.0.0.1", "--port", &port.to_string()])
            .args(more)
            .output()
            .expect("the binary runs");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let cert = [text(&pair.cert), text(&pair.key)];
    let tls = ["--tls", "--cacert", &authority.file(), "--cert", &cert[0], "--key", &cert[1]];
    let (code, said) = run("export", ports[0], &tls);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run("import", ports[1], &tls);
    assert_eq!(code, Some(0), "{said}");
    let digest = |server: &Server| server.client().ask("DEBUG DIGEST");
    assert_eq!(digest(&servers[0]), digest(&servers[1]));
    let (code, said) = run("import", ports[1], &["--tls", "--cacert", &Authority::new().file()]);
    assert!(code == Some(1) && said.contains("cannot be reached"), "{said}");
    let (code, said) = run("import", ports[1], &["--tls"]);
    assert!(code == Some(2) && said.contains("--tls needs --cacert"), "{said}");

    assert_eq!(servers[0].client().ask("SET moved v"), "+OK\r\n");
    let migrate = format!("MIGRATE 127.0.0.1 {} moved 0 5000", ports[1]);
    assert_eq!(servers[0].client().ask(&migrate), "+OK\r\n");
    assert_eq!(servers[1].client().ask("GET moved"), "$1\r\nv\r\n");
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn metrics_are_served_over_tls() {
    let (authority, dir) = (Authority::new(), TempDir::new());
    let (port, metrics) = (free_port(), free_port());
    let more = ["--tls-auth-clients", "no", "--metrics-tls", "yes", "--metrics-port", &metrics.to_string()];
    let server = start(dir.path(), &authority.directives(port), &more);
    let mut client = connect(metrics, &authority.client(None));
    client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut page = String::new();
    client.socket.read_to_string(&mut page).expect("the end is told");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("haypile_connected_clients "), "{page}");
    let mut plain = Client::at(metrics);
    plain.send(b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(!plain.rest().contains("haypile_"), "nothing in the clear");
    server.stop();
}
