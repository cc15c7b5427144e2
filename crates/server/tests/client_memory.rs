//! One bound for the memory of all clients: what counts, which clients are closed, and that the process stays within it
//! under any attack.

mod process;

use haypile_harness::hostile::{RESIDENT_BYTES_MAX, expanding};
use process::{Client, Ends, Server, TempDir, request, wait_until};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Tcp = Client<TcpStream>;

const MB: u64 = 1 << 20;

fn start(more: &[&str]) -> (TempDir, Server) {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), more);
    (dir, server)
}

/// Returns a field of a client's line in CLIENT LIST; `None` if the client is gone.
fn field(asker: &mut Tcp, id: &str, name: &str) -> Option<u64> {
    let list = asker.ask("CLIENT LIST");
    let line = list.lines().find(|line| line.contains(&format!("id={id} ")))?;
    let value = line.split(' ').find_map(|word| word.strip_prefix(&format!("{name}=")));
    Some(value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {line:?}")))
}

fn id_of(client: &mut Tcp) -> String {
    client.ask("CLIENT ID")[1..].trim_end().to_owned()
}

/// Queues `count` commands of `bytes` each.
fn queue(client: &mut Tcp, count: usize, bytes: usize) {
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    let value = vec![b'q'; bytes];
    (0..count).for_each(|_| assert_eq!(client.ask_words(&[b"SET", b"k", &value]), "+QUEUED\r\n"));
}

#[test]
fn what_clients_take_is_counted_and_shown() {
    let (_dir, server) = start(&[]);
    let mut asker = server.client();
    let sum = |asker: &mut Tcp| asker.info("mem_clients_normal").parse::<u64>().expect("a number");
    let before = sum(&mut asker);
    let shows = |asker: &mut Tcp, id: &str, name: &str, at_least: u64| {
        wait_until(name, || field(asker, id, name).is_some_and(|value| value >= at_least));
        assert!(field(asker, id, name).is_some_and(|value| value < at_least * 5 / 2), "{name}");
        assert!(field(asker, id, "tot-mem") > Some(at_least), "tot-mem counts {name}");
    };
    // A request that is not whole.
    let mut half = server.client();
    let id = id_of(&mut half);
    half.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\n");
    half.send(&vec![b'x'; 1_000_000]);
    shows(&mut asker, &id, "qbuf", 1_000_000);
    // Commands of a transaction, and watched keys.
    let mut queues = server.client();
    let id = id_of(&mut queues);
    queue(&mut queues, 10, 100_000);
    shows(&mut asker, &id, "multi-mem", 1_000_000);
    let mut watches = server.client();
    let id = id_of(&mut watches);
    let name = vec![b'w'; 500_000];
    assert_eq!(watches.ask_words(&[b"WATCH", &name]), "+OK\r\n");
    shows(&mut asker, &id, "multi-mem", 500_000);
    // The arguments of a command that waits.
    let mut blocked = server.client();
    let id = id_of(&mut blocked);
    blocked.send(&request(&[b"BLPOP", &name, b"0"]));
    shows(&mut asker, &id, "argv-mem", 500_000);
    // Replies that are not read.
    asker.ask_words(&[b"SET", b"value", &vec![b'v'; 12_000]]);
    let mut unread = server.deaf_client();
    let id = id_of(&mut unread);
    unread.send(&b"GET value\r\n".repeat(1000));
    wait_until("replies are waiting", || field(&mut asker, &id, "obl") > Some(100_000));
    // More come between the two looks until its socket is full.
    wait_until("they are counted", || field(&mut asker, &id, "tot-mem") > field(&mut asker, &id, "obl"));
    // Rows of long replies that are not read: two fields of a hash, and two elements in a view of the memtable.
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state.to_le_bytes()
    };
    let long: Vec<u8> = (0..1_000_000).flat_map(|_| random()).collect();
    for part in [b"1", b"2"] {
        asker.ask_words(&[b"HSET", b"hash", part, &long]);
        asker.ask_words(&[b"RPUSH", b"list", &long]);
    }
    let mut long_replies = Vec::new();
    for command in ["DUMP hash", "LRANGE list 0 -1"] {
        let mut reader = server.deaf_client();
        let id = id_of(&mut reader);
        reader.send(format!("{command}\r\n").as_bytes());
        wait_until(command, || field(&mut asker, &id, "tot-mem") > Some(8_000_000));
        long_replies.push(reader);
    }
    // Messages that are not read.
    let mut subscriber = server.deaf_client();
    let id = id_of(&mut subscriber);
    subscriber.ask("SUBSCRIBE news");
    (0..10).for_each(|_| _ = asker.ask_words(&[b"PUBLISH", b"news", &name]));
    wait_until("messages are waiting", || field(&mut asker, &id, "oll") > Some(1));
    assert!(field(&mut asker, &id, "omem") > Some(1_000_000));
    // Subscriptions.
    let mut many = server.client();
    let id = id_of(&mut many);
    for channel in 0..1000 {
        many.ask(&format!("SUBSCRIBE channel:{channel}"));
    }
    wait_until("subscriptions count", || field(&mut asker, &id, "tot-mem") > Some(280_000));
    assert!(sum(&mut asker) > before + 22_000_000);
    drop((half, queues, watches, blocked, unread, long_replies, subscriber, many));
    // The one that asks keeps spare room of its large requests.
    wait_until("all of it is given back", || sum(&mut asker) <= before + 100_000);
    server.stop();
}

#[test]
fn the_clients_with_most_are_closed_first_and_those_that_ask_are_kept() {
    let dir = TempDir::new();
    let log = dir.path().join("server.log");
    let server = Server::start(dir.path(), &["--maxmemory-clients", "8mb", "--logfile", "server.log"]);
    let mut asker = server.client();
    let mut clients: Vec<Tcp> = (0..5).map(|_| server.client()).collect();
    assert_eq!(clients[4].ask("CLIENT NO-EVICT on"), "+OK\r\n");
    for (client, count) in clients.iter_mut().zip([5, 20, 1, 10, 40]) {
        queue(client, count, 100_000);
    }
    assert_eq!(asker.info("evicted_clients"), "0");
    // The clients have 7.6 MB so far.
    let mut last = server.client();
    queue(&mut last, 1, 800_000);
    wait_until("there is room again", || asker.info("evicted_clients") == "1");
    assert_eq!(clients[1].rest(), "", "it has most of those that may be closed");
    assert_eq!(last.ask("EXEC"), "*1\r\n+OK\r\n");
    for client in [0, 2, 3, 4] {
        assert!(clients[client].ask("EXEC").ends_with("+OK\r\n"));
    }
    let text = std::fs::read_to_string(log).expect("there is a log");
    let line = text.lines().find(|line| line.contains("Evicting client: id=")).expect("it is logged");
    assert!(line.contains(" multi=20 ") && line.contains(" tot-mem=20"), "{line}");
    // CONFIG SET takes effect at once; INFO says what the bound is in bytes.
    queue(&mut clients[3], 30, 100_000);
    assert_eq!(asker.ask("CONFIG SET maxmemory-clients 2mb"), "+OK\r\n");
    assert_eq!(clients[3].rest(), "");
    assert_eq!(asker.info("maxmemory_clients"), (2 * MB).to_string());
    assert_eq!(asker.ask("CONFIG SET maxmemory-clients 10%"), "+OK\r\n");
    assert_eq!(asker.info("maxmemory_clients"), (32 * MB).to_string(), "a share is at least that");
    assert_eq!(asker.ask("CONFIG SET maxmemory-clients 0"), "+OK\r\n");
    queue(&mut last, 300, 100_000);
    assert_eq!(asker.info("evicted_clients"), "2");
    server.stop();
}

#[test]
fn a_client_that_needs_more_than_all_may_have_is_closed() {
    let (_dir, server) = start(&["--maxmemory-clients", "4mb"]);
    let mut asker = server.client();
    // A request, a transaction, subscriptions, watched keys, a long reply.
    let value = vec![b'x'; 6_000_000];
    let mut large = server.client();
    let _ = std::io::Write::write_all(&mut large.socket, &request(&[b"SET", b"k", &value]));
    assert_eq!(large.rest(), "");
    let names: Vec<Vec<u8>> = (0..20_000).map(|number| format!("name:{number}").into_bytes()).collect();
    for (word, last) in [("SUBSCRIBE", ":20000\r\n"), ("WATCH", "+OK\r\n")] {
        let words: Vec<&[u8]> = std::iter::once(word.as_bytes()).chain(names.iter().map(Vec::as_slice)).collect();
        let mut many = server.client();
        let _ = std::io::Write::write_all(&mut many.socket, &request(&words));
        assert!(!many.rest().contains(last), "{word} is not done to its end");
    }
    wait_until("three are closed", || asker.info("evicted_clients") == "3");
    assert_eq!(asker.ask("EXISTS k"), ":0\r\n");
    // KEYS is refused, where no client has to be closed for it.
    for batch in names.chunks(1000) {
        for name in batch {
            asker.send(&request(&[b"SET", &[&name[..], &[b'n'; 300]].concat(), b"v"]));
        }
        batch.iter().for_each(|_| assert_eq!(asker.reply(), "+OK\r\n"));
    }
    let refused = asker.ask("KEYS *");
    assert!(refused.starts_with("-OOM the command would take more memory than 'maxmemory-clients'"), "{refused:.99}");
    assert_eq!(asker.ask("DBSIZE"), ":20000\r\n");
    assert_eq!(asker.ask("CONFIG SET maxmemory-clients 16mb"), "+OK\r\n");
    let keys = asker.ask("KEYS *");
    assert_eq!(keys.matches("name:").count(), 20_000);
    server.stop();
}

/// Thousands of clients may claim that long requests follow.
#[test]
fn half_a_request_gets_little_room_where_clients_have_little_left() {
    let (_dir, server) = start(&["--maxmemory-clients", "16mb"]);
    let mut asker = server.client();
    let mut room_of_half_a_request = || {
        let mut client = server.client();
        let id = id_of(&mut client);
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\nxxx");
        let mut room = 0;
        wait_until("what it has sent is read", || {
            room = field(&mut asker, &id, "qbuf-free").expect("it stays");
            room > 0
        });
        (client, room)
    };
    let (_first, room) = room_of_half_a_request();
    assert!(room > 900_000, "{room}");
    // Room is short from seven eighths of the bound on.
    let mut holder = server.client();
    queue(&mut holder, 146, 100_000);
    let (_second, room) = room_of_half_a_request();
    assert!(room < 32 << 10, "{room}");
    server.stop();
}

/// The buffer of a long reply goes on to whoever is answered next. It is the event loop's.
#[test]
fn a_buffer_that_is_handed_on_counts_for_nobody() {
    let (_dir, server) = start(&["--maxmemory-clients", "8mb", "--workers", "1"]);
    let mut reader = server.client();
    let value = vec![b'v'; 900_000];
    assert_eq!(reader.ask_words(&[b"SET", b"long", &value]), "+OK\r\n");
    assert_eq!(reader.ask("GET long").len(), 900_000 + 11);
    queue(&mut server.client(), 75, 100_000);
    assert_eq!(reader.info("evicted_clients"), "0");
    server.stop();
}

/// A client that reads nothing makes others wait for room, and none of them is lost.
#[test]
fn who_has_a_large_request_under_way_waits_for_room() {
    let (_dir, server) = start(&["--maxmemory-clients", "16mb"]);
    let mut asker = server.client();
    let mut holder = server.client();
    queue(&mut holder, 149, 100_000);
    // The request is read slowly, but it is read; by then the other is done. Where it is not, the request waits for the
    // key, and its arguments count beside the buffer that they came in.
    let mut sender = server.client();
    let value = vec![b'v'; 500_000];
    sender.send(&request(&[b"SET", b"k", &value]));
    assert!(holder.ask("EXEC").ends_with("+OK\r\n"));
    assert_eq!(sender.reply(), "+OK\r\n");
    assert_eq!((asker.ask("STRLEN k"), asker.info("evicted_clients")), (":500000\r\n".into(), "0".into()));
    server.stop();
}

#[test]
fn a_message_is_held_once_for_all_who_do_not_read_it() {
    const SUBSCRIBERS: usize = 100;
    // Below the soft limit of subscribers.
    const MESSAGES: u8 = 7;
    let (_dir, server) = start(&[]);
    let mut publisher = server.client();
    let mut deaf: Vec<Tcp> = (0..SUBSCRIBERS).map(|_| server.deaf_client()).collect();
    for (number, client) in deaf.iter_mut().enumerate() {
        if number % 3 == 0 {
            client.ask("HELLO 3");
        }
        assert!(client.ask(if number % 2 == 0 { "SUBSCRIBE news" } else { "PSUBSCRIBE n*" }).contains("subscribe"));
    }
    let before = server.resident_bytes();
    for number in 0..MESSAGES {
        let message = vec![b'a' + number; 1_000_000];
        assert_eq!(publisher.ask_words(&[b"PUBLISH", b"news", &message]), format!(":{SUBSCRIBERS}\r\n"));
    }
    let more = server.resident_bytes().saturating_sub(before);
    assert!(more < 30 * MB, "{MESSAGES} MB for {SUBSCRIBERS} clients took {} MB", more / MB);
    let counted: u64 = publisher.info("mem_clients_normal").parse().expect("a number");
    assert!(counted < 10 * MB, "{counted}");
    assert_eq!(publisher.info("evicted_clients"), "0");
    // Each gets all of them, in order and in its protocol.
    for (index, client) in deaf.iter_mut().enumerate().take(12) {
        for number in 0..MESSAGES {
            let message = client.reply();
            let head = if index % 2 == 0 { "3\r\n$7\r\nmessage" } else { "4\r\n$8\r\npmessage\r\n$2\r\nn*" };
            let sign = if index % 3 == 0 { ">" } else { "*" };
            assert!(message.starts_with(&format!("{sign}{head}\r\n$4\r\nnews\r\n$1000000\r\n")), "{message:.99}");
            assert_eq!(message.as_bytes()[message.len() - 3], b'a' + number);
        }
    }
    drop(deaf);
    wait_until("nothing is held any more", || {
        publisher.info("mem_clients_normal").parse::<u64>().is_ok_and(|bytes| bytes < MB)
    });
    server.stop();
}

/// Messages that come while a long reply is half out follow it, shared ones as well.
#[test]
fn long_messages_follow_a_long_reply() {
    let (_dir, server) = start(&[]);
    let (mut publisher, mut reader) = (server.client(), server.deaf_client());
    let value = vec![b'v'; 8_000_000];
    assert_eq!(publisher.ask_words(&[b"SET", b"k", &value]), "+OK\r\n");
    reader.ask("HELLO 3");
    reader.ask("SUBSCRIBE news");
    reader.send(b"GET k\r\n");
    wait_until("the reply is half out", || publisher.ask("CLIENT LIST").contains("cmd=get"));
    let messages = ["short", &"l".repeat(100_000), "end"];
    for message in messages {
        assert_eq!(publisher.ask_words(&[b"PUBLISH", b"news", message.as_bytes()]), ":1\r\n");
    }
    reader.send(b"PING\r\n");
    let heard: Vec<String> = (0..5).map(|_| reader.reply()).collect();
    let reply = heard.iter().position(|reply| reply.len() > 8_000_000).expect("the value");
    let pushed: Vec<&String> = heard.iter().filter(|reply| reply.starts_with('>')).collect();
    assert_eq!(pushed.len(), 3, "{reply}");
    for (pushed, message) in pushed.iter().zip(messages) {
        assert!(pushed.ends_with(&format!("\r\n{message}\r\n")));
    }
    assert_eq!(heard[4], "+PONG\r\n", "what was published before comes before");
    server.stop();
}

#[test]
fn limits_of_output_count_at_once_and_for_the_whole_reply() {
    let (_dir, server) = start(&[]);
    let mut admin = server.client();
    let set = |admin: &mut Tcp, limit: &str| {
        let set = admin.ask_words(&[b"CONFIG", b"SET", b"client-output-buffer-limit", limit.as_bytes()]);
        assert_eq!(set, "+OK\r\n");
    };
    // In a row of the memtable, in pieces, and made of many.
    admin.ask_words(&[b"SET", b"short", &[b's'; 10_000]]);
    admin.ask_words(&[b"SET", b"long", &vec![b'l'; 400_000]]);
    for number in 0..4000 {
        admin.send(format!("RPUSH list element:{number:0>60}\r\n").as_bytes());
    }
    (0..4000).for_each(|_| _ = admin.reply());
    let large = ["GET long", "LRANGE list 0 -1", "MGET long short", "GETRANGE long 0 300000"];
    for round in 0..5 {
        for command in large {
            set(&mut admin, "normal 100000 0 0");
            let mut client = server.client();
            client.send(format!("{command}\r\n").as_bytes());
            assert_eq!(client.rest(), "", "round {round}: {command} is above the limit");
            // A smaller reply is not.
            let mut client = server.client();
            assert_eq!(client.ask("GET short").len(), 10_010);
            set(&mut admin, "normal 0 0 0");
            assert!(client.ask(command).len() > 250_000, "round {round}: {command}");
        }
    }
    server.stop();
}

#[test]
fn replies_up_to_16_kb_count_for_no_limit_of_output() {
    const LIMIT: usize = 5000;
    const UNLIMITED: usize = 16 << 10;
    let (_dir, server) = start(&[]);
    let mut client = server.client();
    let limit = format!("normal {LIMIT} 0 0");
    let set = client.ask_words(&[b"CONFIG", b"SET", b"client-output-buffer-limit", limit.as_bytes()]);
    assert_eq!(set, "+OK\r\n");
    // Bytes beyond count. A reply is a little longer than its value.
    for (bytes, is_answered) in
        [(2 * LIMIT, true), (UNLIMITED, true), (UNLIMITED + LIMIT - 100, true), (UNLIMITED + LIMIT, false)]
    {
        assert_eq!(client.ask_words(&[b"SET", b"value", &vec![b'v'; bytes]]), "+OK\r\n");
        let mut reader = server.client();
        reader.send(b"GET value\r\nPING\r\n");
        let reply = if is_answered { reader.reply() + &reader.reply() } else { reader.rest() };
        assert_eq!(reply.len() > bytes, is_answered, "a reply of {bytes} bytes");
    }
    server.stop();
}

/// The replies that all clients have asked for are twenty times the default bound; none of the clients reads fast.
#[test]
fn clients_that_read_their_replies_are_not_closed_by_the_default_bound() {
    const CLIENTS: usize = 60;
    const REPLIES: usize = 60;
    const LONG: usize = 400_000;
    let (_dir, server) = start(&["--maxmemory", "64mb"]);
    let mut asker = server.client();
    assert!(asker.ask("CONFIG GET maxmemory-clients").ends_with("\r\n50%\r\n"));
    assert_eq!(asker.info("maxmemory_clients"), (32 * MB).to_string());
    assert_eq!(asker.ask_words(&[b"SET", b"long", &vec![b'l'; LONG]]), "+OK\r\n");
    for number in 0..600 {
        assert_eq!(asker.ask(&format!("RPUSH list {number:0>100}")), format!(":{}\r\n", number + 1));
    }
    let read = |client: &mut Tcp, bytes: usize| {
        let mut piece = vec![0; 50_000];
        let mut left = bytes;
        while left > 0 {
            let count = std::io::Read::read(&mut client.socket, &mut piece).expect("it is answered");
            assert!(count > 0, "it is closed with {left} bytes unread");
            left -= count.min(left);
        }
    };
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = server.deaf_client();
            scope.spawn(move || {
                // All at once, before anything is read.
                let (request, bytes) = match number % 2 {
                    0 => (&b"GET long\r\n"[..], LONG + 11),
                    _ => (&b"LRANGE list 0 -1\r\n"[..], 600 * 108 + 6),
                };
                client.send(&request.repeat(REPLIES));
                read(&mut client, bytes * REPLIES);
            });
        }
    });
    assert_eq!(asker.info("evicted_clients"), "0");
    server.stop();
}

/// The number of keys of `LargeRequests`, and of those that `twenty_sides` writes.
const MANY: usize = 200_000;

/// Requests of commands with very many keys, and of one whose payload expands.
struct LargeRequests {
    mset: Vec<u8>,
    /// Deletes what `mset` writes.
    del: Vec<u8>,
    /// Reads the keys that are there.
    mget: Vec<u8>,
    restore: Vec<u8>,
}

impl LargeRequests {
    fn new() -> LargeRequests {
        let words = |name: &str, words: Vec<String>| {
            let words = std::iter::once(name.as_bytes()).chain(words.iter().map(String::as_bytes));
            request(&words.collect::<Vec<_>>())
        };
        let numbers = 0..MANY;
        LargeRequests {
            mset: words("MSET", numbers.clone().flat_map(|number| [format!("gone:{number}"), "v".into()]).collect()),
            del: words("DEL", numbers.clone().map(|number| format!("gone:{number}")).collect()),
            mget: words("MGET", numbers.map(|number| format!("key:{number:0>40}")).collect()),
            restore: request(&[b"RESTORE", b"restored", b"0", &expanding(100 * MB as usize), b"REPLACE"]),
        }
    }
}

/// Makes many keys and a long list.
fn fill(asker: &mut Tcp, value: &[u8]) {
    for first in (0..MANY).step_by(1000) {
        (first..first + 1000).for_each(|number| asker.send(format!("SET key:{number:0>40} v\r\n").as_bytes()));
        (0..1000).for_each(|_| _ = asker.reply());
    }
    for _ in 0..20 {
        let words: Vec<&[u8]> = [&b"RPUSH"[..], b"list"].into_iter().chain(value.chunks(1000)).collect();
        assert!(asker.ask_words(&words).starts_with(':'));
    }
    // From the base each view has a piece of the list. From the memtable each counts all of it, though all share it.
    assert_eq!(asker.ask("DEBUG RELOAD"), "+OK\r\n");
}

/// Says what an attacker of this kind says, which has made as many clients before it.
fn attack(client: &mut Tcp, kind: usize, number: usize, value: &[u8], large: &LargeRequests) {
    // A client that is closed is one of those that were to be.
    let mut say = |bytes: &[u8]| std::io::Write::write_all(&mut client.socket, bytes).is_ok();
    match kind % 16 {
        0 => _ = say(b"SUBSCRIBE news\r\n"),
        1 => _ = (0..5).all(|_| say(&request(&[b"PUBLISH", b"news", value]))),
        2 => _ = say(b"MONITOR\r\n"),
        3 => _ = say(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$512000000\r\n") && say(value),
        4 => _ = say(b"MULTI\r\n") && (0..20).all(|_| say(&request(&[b"SET", b"k", value]))),
        5 => _ = say(b"KEYS *\r\n"),
        6 => {
            let names: Vec<String> = (0..5000).map(|name| format!("channel:{number}:{name}")).collect();
            let words = std::iter::once(&b"SUBSCRIBE"[..]).chain(names.iter().map(|name| name.as_bytes()));
            say(&request(&words.collect::<Vec<_>>()));
        }
        7 => _ = say(&request(&[b"BLPOP", &value[..500_000], b"0"])),
        8 => _ = say(&request(&[b"WATCH", &value[..500_000]])),
        9 => _ = say(b"DUMP list\r\n"),
        10 => _ = say(b"LRANGE list 0 -1\r\n"),
        11 => {
            let names: Vec<String> = (0..500).map(|name| format!("*{number}:{name}*")).collect();
            let words = std::iter::once(&b"PSUBSCRIBE"[..]).chain(names.iter().map(|name| name.as_bytes()));
            say(&request(&words.collect::<Vec<_>>()));
        }
        12 => _ = say(&large.mset) && say(&large.del),
        13 => _ = say(&large.mget),
        14 => _ = say(&large.restore),
        _ => _ = (0..5).all(|_| say(&request(&[b"SET", b"long", value])) && say(b"GET long\r\n")),
    }
}

/// Attacks from twenty sides, all at once, each as fast as it can, until clients have been closed for room and an
/// innocent one has been answered often, however slow the machine is. Each of its requests has the usual patience.
#[test]
fn twenty_sides_attack_and_the_process_stays_within_its_bound() {
    /// The least time for which the attacks go on.
    const TIME: Duration = Duration::from_secs(5);
    /// The number of answers to the innocent client.
    const ANSWERS: usize = 20;
    let (_dir, server) = start(&["--enable-debug-command", "yes"]);
    let mut asker = server.client();
    let value = vec![b'x'; 1_000_000];
    fill(&mut asker, &value);
    let large = LargeRequests::new();
    let over = AtomicBool::new(false);
    let attack_on = |kind: usize| {
        let mut kept: Vec<Tcp> = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let mut client = server.deaf_client();
            attack(&mut client, kind, kept.len(), &value, &large);
            kept.push(client);
            if kept.len() > 100 {
                kept.drain(..50);
            }
        }
    };
    let begun = Instant::now();
    let mut most = 0;
    let counted = |asker: &mut Tcp| asker.info("mem_clients_normal").parse::<u64>().expect("a number");
    std::thread::scope(|scope| {
        for kind in 0..20 {
            let attack_on = &attack_on;
            scope.spawn(move || attack_on(kind));
        }
        // A failure ends the attacks, too.
        let _ends = Ends(&over);
        let mut answers = 0;
        while begun.elapsed() < TIME || answers < ANSWERS || asker.info("evicted_clients") == "0" {
            assert_eq!(asker.ask("SET innocent 1"), "+OK\r\n");
            assert_eq!(asker.ask("GET innocent"), "$1\r\n1\r\n");
            answers += 1;
            most = most.max(server.resident_bytes());
            assert!(begun.elapsed() < 20 * process::PATIENCE, "no client is closed for room");
        }
    });
    // Beside them: the program, its threads, and what its allocator keeps.
    let bound = 128 * MB / 4 * 5 + 64 * MB + 96 * MB;
    assert!(most < bound, "{} MB were resident, {} MB are allowed", most / MB, bound / MB);
    // KEYS of clients that have closed still have their turn, and each takes its session meanwhile.
    let is_given_back = || counted(&mut asker) < 48 * MB;
    process::wait_within(6 * process::PATIENCE, "what the attackers had is given back", is_given_back);
    server.stop();
}

/// Returns the most memory that the process has ever occupied.
fn most_resident_bytes(server: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel keeps it");
    let kilobytes = line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
    kilobytes.expect("a number of kilobytes") << 10
}

/// Deletes a million keys in one command, and looks at the most memory that the process ever had.
fn a_million_keys_go_at_once(policy: &str) {
    const KEYS: usize = 1_000_000;
    const STEP: usize = 10_000;
    let (_dir, server) = start(&["--maxmemory-policy", policy]);
    let mut client = server.client();
    let names: Vec<String> = (0..KEYS).map(|number| format!("key:{number}")).collect();
    for names in names.chunks(STEP) {
        let pairs = names.iter().flat_map(|name| [name.as_bytes(), b"value"]);
        client.send(&request(&std::iter::once(&b"MSET"[..]).chain(pairs).collect::<Vec<_>>()));
    }
    (0..KEYS / STEP).for_each(|_| assert_eq!(client.reply(), "+OK\r\n"));
    assert_eq!(client.ask("DBSIZE"), format!(":{KEYS}\r\n"));
    let words = std::iter::once(&b"DEL"[..]).chain(names.iter().map(String::as_bytes));
    assert_eq!(client.ask_words(&words.collect::<Vec<_>>()), format!(":{KEYS}\r\n"));
    assert_eq!(client.ask("DBSIZE"), ":0\r\n");
    let (most, bound) = (most_resident_bytes(&server), RESIDENT_BYTES_MAX);
    assert!(most < bound, "{} MB were resident, {} MB are allowed", most / MB, bound / MB);
    server.stop();
}

#[test]
fn a_million_keys_go_at_once_within_the_bound() {
    a_million_keys_go_at_once("noeviction");
}

/// The server counts the uses of each key where the policy is LFU.
#[test]
fn a_million_keys_with_counters_go_at_once_within_the_bound() {
    a_million_keys_go_at_once("allkeys-lfu");
}
