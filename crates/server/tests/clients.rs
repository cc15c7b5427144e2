//! Effects of clients on each other, over sockets and across event loops: messages, MONITOR, CLIENT and its limits.

mod process;

use process::{Client, Server, TempDir, request, wait_until};
use std::net::TcpStream;

/// Enough clients that both event loops have some.
const CLIENTS: usize = 6;

fn start(more: &[&str]) -> (TempDir, Server) {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), more);
    (dir, server)
}

#[test]
fn a_message_is_there_before_whatever_follows_its_publication() {
    let (_dir, server) = start(&[]);
    let mut subscribers: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    for client in &mut subscribers {
        assert_eq!(client.ask("SUBSCRIBE news"), "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    }
    let mut publishers = [server.client(), server.client()];
    for round in 0..300 {
        let publisher = &mut publishers[round % 2];
        assert_eq!(publisher.ask(&format!("PUBLISH news {round:03}")), format!(":{CLIENTS}\r\n"));
        // The publication was answered: no subscriber may be told anything else first.
        let subscriber = &mut subscribers[round % CLIENTS];
        subscriber.send(b"PING\r\n");
        let heard: Vec<String> = std::iter::from_fn(|| {
            let reply = subscriber.reply();
            (!reply.contains("pong")).then_some(reply)
        })
        .collect();
        let last = heard.last().unwrap_or_else(|| panic!("round {round}: nothing was heard before the answer"));
        assert!(last.ends_with(&format!("$3\r\n{round:03}\r\n")), "round {round}: {last:?}");
    }
    server.stop();
}

#[test]
fn who_does_not_read_its_messages_is_closed_at_its_limit() {
    let (_dir, server) = start(&["--client-output-buffer-limit", "pubsub 1mb 0 0"]);
    let (mut deaf, mut listens, mut publisher) = (server.client(), server.client(), server.client());
    deaf.ask("SUBSCRIBE news");
    listens.ask("SUBSCRIBE news");
    let message = vec![b'x'; 100_000];
    let mut sent = 0;
    // Bytes that the sockets take are beyond the server's reach.
    while publisher.ask_words(&[b"PUBLISH", b"news", &message]) == ":2\r\n" {
        assert!(listens.reply().len() > message.len());
        sent += 1;
        assert!(sent < 1000, "a hundred megabytes are unread");
    }
    assert!(sent > 10, "no earlier than at the limit");
    assert_eq!(publisher.ask("PUBSUB NUMSUB news"), "*2\r\n$4\r\nnews\r\n:1\r\n");
    assert!(deaf.rest().len() < sent * message.len(), "the rest was dropped");
    assert_eq!(publisher.info("client_output_buffer_limit_disconnections"), "1");
    // Replies have no such limit: a client that asks for much more gets it.
    publisher.ask_words(&[b"SET", b"k", &message]);
    publisher.send(&request(&[b"GET", b"k"]).repeat(50));
    (0..50).for_each(|_| assert_eq!(publisher.reply().len(), message.len() + 11));
    server.stop();
}

#[test]
fn monitor_sees_both_event_loops() {
    let (_dir, server) = start(&[]);
    let mut monitor = server.client();
    assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
    for number in 0..CLIENTS {
        let mut client = server.client();
        assert_eq!(client.ask(&format!("SET key:{number} v")), "+OK\r\n");
        let line = monitor.reply();
        let port = client.socket.local_addr().expect("it is connected").port();
        assert!(line.ends_with(&format!(" [0 127.0.0.1:{port}] \"SET\" \"key:{number}\" \"v\"\r\n")), "{line}");
    }
    drop(monitor);
    let mut client = server.client();
    wait_until("it is gone", || client.ask("CLIENT LIST").matches("flags=O").count() == 0);
    server.stop();
}

#[test]
fn a_monitor_that_does_not_read_is_closed_at_the_limit_of_subscribers() {
    let (_dir, server) = start(&["--client-output-buffer-limit", "pubsub 1mb 0 0"]);
    let (mut deaf, mut client) = (server.client(), server.client());
    deaf.ask("MONITOR");
    let value = vec![b'x'; 100_000];
    let mut sent = 0;
    while client.info("monitor_clients") == "1" {
        assert_eq!(client.ask_words(&[b"SET", b"k", &value]), "+OK\r\n");
        sent += 1;
        assert!(sent < 1000, "a hundred megabytes are unread");
    }
    assert!(sent > 10, "no earlier than at the limit");
    server.stop();
}

#[test]
fn clients_of_all_event_loops_are_listed_and_killed() {
    let (_dir, server) = start(&[]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    let ids: Vec<String> =
        clients.iter_mut().map(|client| client.ask("CLIENT ID")[1..].trim_end().to_owned()).collect();
    let address = |client: &Client<TcpStream>| client.socket.local_addr().expect("it is connected").to_string();
    let list = clients[0].ask("CLIENT LIST");
    for (client, id) in clients.iter().zip(&ids) {
        let line = list.lines().find(|line| line.contains(&format!("id={id} "))).expect("everyone is listed");
        assert!(line.contains(&format!(" addr={} ", address(client))), "{line}");
        assert!(line.contains(&format!(" laddr=127.0.0.1:{} ", server.port)), "{line}");
    }
    let victims = [clients.remove(5), clients.remove(4)];
    let kill = format!("CLIENT KILL {}", address(&victims[0]));
    assert_eq!(clients[0].ask(&kill), "+OK\r\n");
    assert_eq!(clients[0].ask(&format!("CLIENT KILL ID {}", ids[4])), ":1\r\n");
    for mut victim in victims {
        assert_eq!(victim.rest(), "");
    }
    assert_eq!(clients[0].ask("CLIENT KILL TYPE normal"), ":3\r\n", "but not the one that asks");
    assert_eq!(clients[0].ask("CLIENT KILL SKIPME no LADDR 127.0.0.1:1"), ":0\r\n");
    assert_eq!(clients[0].ask("CLIENT KILL SKIPME no MAXAGE 3600"), ":0\r\n", "nobody is that old");
    assert_eq!(clients[0].ask("CLIENT KILL SKIPME no TYPE normal"), ":1\r\n", "that one too, after its reply");
    assert_eq!(clients[0].rest(), "");
    server.stop();
}

#[test]
fn a_pause_holds_all_event_loops_and_ends_at_once() {
    let (_dir, server) = start(&[]);
    let (mut admin, mut gone) = (server.client(), server.client());
    let mut writers: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    writers.iter_mut().for_each(|writer| assert_eq!(writer.ask("PING"), "+PONG\r\n"));
    assert_eq!(admin.ask("CLIENT PAUSE 600000 WRITE"), "+OK\r\n");
    writers.iter_mut().for_each(|writer| writer.send(b"INCR k\r\n"));
    gone.send(b"INCR k\r\n");
    drop(gone);
    wait_until("the one that has gone is noticed", || admin.info("connected_clients") == (CLIENTS + 1).to_string());
    assert_eq!(admin.ask("GET k"), "$-1\r\n");
    assert_eq!(admin.ask("CLIENT UNPAUSE"), "+OK\r\n");
    let mut replies: Vec<String> = writers.iter_mut().map(Client::reply).collect();
    replies.sort();
    let expected: Vec<String> = (1..=CLIENTS).map(|number| format!(":{number}\r\n")).collect();
    assert_eq!(replies, expected, "each once, and nothing of the one that has gone");
    server.stop();
}

#[test]
fn a_client_that_a_pause_holds_is_blocked_and_named_after_its_command() {
    const COMMANDS: [&str; 6] = ["set k v", "publish c m", "spublish c m", "pfcount none", "flushall", "exec"];
    let (_dir, server) = start(&[]);
    let mut admin = server.client();
    for how in ["unpaused", "over"] {
        let mut held: Vec<_> = COMMANDS.iter().map(|_| server.client()).collect();
        held.iter_mut().for_each(|client| assert_eq!(client.ask("PING"), "+PONG\r\n"));
        assert_eq!(held[5].ask("MULTI"), "+OK\r\n");
        assert_eq!(held[5].ask("SET in block"), "+QUEUED\r\n");
        let pause_ms = if how == "over" { 400 } else { 600_000 };
        assert_eq!(admin.ask(&format!("CLIENT PAUSE {pause_ms} WRITE")), "+OK\r\n");
        for (client, command) in held.iter_mut().zip(COMMANDS) {
            client.send(format!("{command}\r\n").as_bytes());
        }
        if how == "unpaused" {
            wait_until("all are held", || admin.info("blocked_clients") == COMMANDS.len().to_string());
            let list = admin.ask("CLIENT LIST");
            for command in COMMANDS {
                let name = command.split(' ').next().expect("a name");
                let line = list.lines().find(|line| line.contains(&format!(" cmd={name} ")));
                let line = line.unwrap_or_else(|| panic!("{name}: {list}"));
                assert!(line.contains(if name == "exec" { " flags=xb " } else { " flags=b " }), "{line}");
            }
            // A client that goes is counted no more.
            let mut gone = server.client();
            gone.send(b"SET k v\r\n");
            wait_until("it is held, too", || admin.info("blocked_clients") == (COMMANDS.len() + 1).to_string());
            drop(gone);
            wait_until("it is gone", || admin.info("blocked_clients") == COMMANDS.len().to_string());
            assert_eq!(admin.ask("CLIENT UNPAUSE"), "+OK\r\n");
        }
        for (client, command) in held.iter_mut().zip(COMMANDS) {
            assert!(!client.reply().starts_with('-'), "{command}");
        }
        assert_eq!(admin.info("blocked_clients"), "0", "{how}");
    }
    server.stop();
}

#[test]
fn a_password_keeps_others_out() {
    let (_dir, server) = start(&[]);
    assert_eq!(server.client().ask("CONFIG SET requirepass s3cret"), "+OK\r\n");
    let mut client = server.client();
    assert_eq!(client.ask("GET k"), "-NOAUTH Authentication required.\r\n");
    assert_eq!(client.ask("AUTH wrong"), "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_eq!(client.ask("AUTH s3cret"), "+OK\r\n");
    assert_eq!(client.ask("GET k"), "$-1\r\n");
    assert_eq!(client.ask("CONFIG SET requirepass other"), "+OK\r\n");
    assert_eq!(client.ask("GET k"), "$-1\r\n", "who is in stays in");
    // Many small requests of a client that is not logged in, in one go.
    let mut stranger = server.client();
    stranger.send(b"PING\r\nAUTH other\r\nPING\r\n");
    assert_eq!(stranger.reply(), "-NOAUTH Authentication required.\r\n");
    assert_eq!(stranger.reply(), "+OK\r\n");
    assert_eq!(stranger.reply(), "+PONG\r\n");
    server.stop();
}

#[test]
fn of_who_is_killed_nothing_runs_that_had_not_begun() {
    const BACKUPS: usize = 40;
    let (_dir, server) = start(&[]);
    let (mut admin, mut victim) = (server.client(), server.client());
    admin.ask("SET k 1");
    let id = victim.ask("CLIENT ID").trim_start_matches(':').trim_end().to_owned();
    victim.send(&[b"SAVE\r\n".repeat(BACKUPS), b"SET k 2\r\n".to_vec()].concat());
    wait_until("it waits for its first backup", || admin.info("rdb_saves") != "0");
    assert_eq!(admin.ask(&format!("CLIENT KILL ID {id}")), ":1\r\n");
    assert_eq!(admin.ask(&format!("CLIENT KILL ID {id}")), ":0\r\n", "it is not found any more");
    assert!(!admin.ask("CLIENT LIST").contains(&format!("id={id} ")));
    wait_until("it is gone", || admin.info("connected_clients") == "1");
    assert_eq!(admin.ask("GET k"), "$1\r\n1\r\n");
    assert_ne!(admin.info("rdb_saves"), BACKUPS.to_string());
    server.stop();
}

#[test]
fn a_client_that_listens_may_be_silent() {
    let (_dir, server) = start(&["--timeout", "1"]);
    let (mut silent, mut subscriber, mut monitor) = (server.client(), server.client(), server.client());
    subscriber.ask("SUBSCRIBE news");
    monitor.ask("MONITOR");
    silent.ask("PING");
    assert_eq!(silent.rest(), "", "it is closed after its second");
    let mut publisher = server.client();
    assert_eq!(publisher.ask("PUBLISH news hello"), ":1\r\n");
    assert!(subscriber.reply().contains("hello"));
    assert!(monitor.reply().contains("PING"));
    server.stop();
}

#[test]
fn info_counts_who_listens() {
    let (_dir, server) = start(&[]);
    let (mut admin, mut one, mut two) = (server.client(), server.client(), server.client());
    one.ask("SUBSCRIBE a b");
    two.ask("SUBSCRIBE a");
    one.reply();
    one.send(b"PSUBSCRIBE n*\r\nSSUBSCRIBE s\r\nPING\r\n");
    assert!((0..3).all(|_| !one.reply().is_empty()));
    let fields = [
        ("pubsub_clients", "2"),
        ("pubsub_channels", "2"),
        ("pubsub_patterns", "1"),
        ("pubsubshard_channels", "1"),
        ("monitor_clients", "0"),
        ("blocked_clients", "0"),
    ];
    for (field, value) in fields {
        assert_eq!(admin.info(field), value, "{field}");
    }
    let mut half = server.client();
    half.send(b"*2\r\n$3\r\nGET\r\n$100000\r\n");
    half.send(&[b'x'; 50_000]);
    wait_until("half a request is seen", || {
        admin.info("client_recent_max_input_buffer").parse::<u64>().is_ok_and(|bytes| bytes > 50_000)
    });
    assert!(admin.info("mem_clients_normal").parse::<u64>().is_ok_and(|bytes| bytes > 50_000));
    drop((one, two, half));
    wait_until("they are gone", || admin.info("pubsub_channels") == "0" && admin.info("connected_clients") == "1");
    server.stop();
}

#[test]
fn a_client_that_waits_is_let_go_by_another() {
    let (_dir, server) = start(&[]);
    let mut other = server.client();
    let mut waiting: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    let ids: Vec<String> =
        waiting.iter_mut().map(|client| client.ask("CLIENT ID")[1..].trim_end().to_owned()).collect();
    assert_eq!(other.ask(&format!("CLIENT UNBLOCK {}", ids[0])), ":0\r\n", "nobody waits yet");
    let blocked = |other: &mut Client<TcpStream>, count: usize| {
        wait_until("they wait", || other.info("blocked_clients") == count.to_string());
    };

    // The one way and the other, from both event loops, with what comes behind.
    let timeout = ("", ":0\r\n");
    let error = ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    for (reason, expected) in [timeout, ("TIMEOUT", ":0\r\n"), error] {
        waiting.iter_mut().for_each(|client| client.send(b"WAIT 1 0\r\nPING\r\n"));
        blocked(&mut other, CLIENTS);
        for (client, id) in waiting.iter_mut().zip(&ids) {
            assert_eq!(other.ask(&format!("CLIENT UNBLOCK {id} {reason}")), ":1\r\n");
            assert_eq!(client.reply(), expected, "{reason}");
            assert_eq!(client.reply(), "+PONG\r\n");
            assert_eq!(other.ask(&format!("CLIENT UNBLOCK {id} {reason}")), ":0\r\n", "once");
        }
        blocked(&mut other, 0);
    }

    // UNBLOCK from a transaction; a WAIT in one does not wait.
    waiting[0].send(b"WAIT 1 0\r\n");
    blocked(&mut other, 1);
    other.ask("MULTI");
    other.ask(&format!("CLIENT UNBLOCK {} ERROR", ids[0]));
    other.ask("WAIT 1 0");
    assert_eq!(other.ask("EXEC"), "*2\r\n:1\r\n:0\r\n");
    assert_eq!(waiting[0].reply(), error.1);

    // A word that is no reason, and ids that are no clients.
    assert_eq!(
        other.ask(&format!("CLIENT UNBLOCK {} NOSUCH", ids[0])),
        "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR\r\n"
    );
    assert_eq!(other.ask("CLIENT UNBLOCK x"), "-ERR value is not an integer or out of range\r\n");
    assert_eq!(other.ask("CLIENT UNBLOCK -1"), ":0\r\n");
    server.stop();
}

/// A client that stops reading in the middle of a long reply keeps files of the base: it is closed when it has taken
/// too long for it, although it asks for nothing any more.
#[test]
fn a_client_that_stops_reading_a_long_reply_is_closed() {
    let dir = TempDir::new();
    let log = dir.path().join("server.log");
    let server = Server::start(dir.path(), &["--enable-debug-command", "yes", "--logfile", "server.log"]);
    let mut asker = server.client();
    let element = vec![b'e'; 5000];
    for _ in 0..2000 {
        assert!(asker.ask_words(&[b"RPUSH", b"list", &element]).starts_with(':'));
    }
    let (mut stops, mut idles) = (server.deaf_client(), server.client());
    let id_of = |client: &mut Client<TcpStream>| client.ask("CLIENT ID")[1..].trim_end().to_owned();
    let (stopped, idle) = (id_of(&mut stops), id_of(&mut idles));
    let lists = |asker: &mut Client<TcpStream>, id: &str| asker.ask("CLIENT LIST").contains(&format!("id={id} "));
    assert_eq!(idles.ask("LINDEX list 0").len(), 5009);
    stops.send(b"LRANGE list 0 -1\r\n");
    wait_until("the reply is half out", || stops.has_reply());
    // The view was opened while it might be as old as usual: nobody but the look at clients finds it.
    assert_eq!(asker.ask("DEBUG SET-REPLY-AGE 0"), "+OK\r\n");
    wait_until("it is closed", || !lists(&mut asker, &stopped));
    assert!(lists(&mut asker, &idle), "a client without a reply under way stays");
    assert_eq!(asker.info("evicted_clients"), "0");
    let text = std::fs::read_to_string(log).expect("there is a log");
    assert!(text.contains(&format!("client {stopped} is closed: it reads a long reply too slowly")), "{text}");
    server.stop();
}
