//! Pika's words and hours are understood, and a Pika is exported.

mod process;

use process::following::{DEBUG, field, fill, is_equal, replica_of, wait_for_link, wait_for_only};
use process::redis::redis;
use process::{Client, Server, TempDir, wait_until};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn client_kill_all_closes_everybody_but_replicas() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let replica = replica_of(&master, &other, &DEBUG);
    let (mut subscriber, mut monitor, mut client) = (master.client(), master.client(), master.client());
    assert!(subscriber.ask("SUBSCRIBE news").contains("subscribe"));
    assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
    assert_eq!(client.ask("client kill all"), "+OK\r\n");
    for mut closed in [subscriber, monitor, client] {
        let rest = closed.rest();
        assert!(!rest.contains("PONG"), "{rest}");
    }
    wait_for_only(&master);
    let mut client = master.client();
    assert_eq!(client.ask("CLIENT LIST TYPE replica").matches("id=").count(), 1);
    fill(&mut client, 0, 10);
    is_equal(&master, &replica);
}

#[test]
fn slaveof_with_force_fetches_a_copy() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &DEBUG);
    let mut of_master = master.client();
    fill(&mut of_master, 0, 100);
    let replica = replica_of(&master, &other, &DEBUG);
    is_equal(&master, &replica);
    let mut of_replica = replica.client();
    // A copy is a directory of its own, which takes the place of the one before.
    let base = || std::fs::metadata(other.path().join("base")).expect("the base is there").ino();
    let before = base();
    let again = format!("SLAVEOF 127.0.0.1 {}", master.port);
    assert_eq!(of_replica.ask(&again), "+OK Already connected to specified master\r\n");
    assert_eq!(of_replica.ask(&format!("{again} force")), "+OK\r\n");
    wait_until("the copy is in place", || base() != before);
    wait_for_link(&replica);
    fill(&mut of_master, 100, 200);
    is_equal(&master, &replica);
    // Once is enough: the next connection goes on from where it was.
    let copied = base();
    assert_eq!(of_replica.ask("CLIENT KILL TYPE master"), ":1\r\n");
    fill(&mut of_master, 200, 210);
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(base(), copied);
    // The replica gives up what it had, whoever it follows.
    let place = TempDir::new();
    let redis = redis(&place, &["--repl-diskless-sync-delay", "0"]);
    let mut of_redis = redis.client();
    assert_eq!(of_redis.ask("SET k v"), "+OK\r\n");
    for count in ["1", "2"] {
        assert_eq!(of_replica.ask(&format!("SLAVEOF 127.0.0.1 {} FORCE", redis.port)), "+OK\r\n");
        wait_until("all of it was sent", || of_redis.info("sync_full") == count);
        wait_for_link(&replica);
        assert_eq!(of_replica.ask("GET k"), "$1\r\nv\r\n");
        assert_eq!(of_replica.ask("DBSIZE"), ":1\r\n");
    }
    assert_eq!(of_redis.ask("CLIENT KILL TYPE replica"), ":1\r\n");
    wait_until("it goes on", || of_redis.info("sync_partial_ok") == "1");
    assert_eq!(field(&mut of_replica, "role"), "slave");
}

/// Directives with which a few megabytes fill a base.
const SMALL: [&str; 4] = ["--memtable-size", "1mb", "--row-cache-size", "1mb"];

fn value_of(client: &mut Client<TcpStream>, name: &str) -> u64 {
    client.info(name).parse().expect("it is a number")
}

#[test]
fn compact_takes_out_of_the_base_what_is_dead() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &SMALL);
    let mut client = server.client();
    let value = "x".repeat(200);
    for database in ["0", "1"] {
        assert_eq!(client.ask(&format!("SELECT {database}")), "+OK\r\n");
        for number in 0..20_000 {
            client.send(format!("SET key:{number} {number}{value}\r\n").as_bytes());
        }
        (0..20_000).for_each(|_| assert_eq!(client.reply(), "+OK\r\n"));
        assert_eq!(client.ask("HSET kept f v"), ":1\r\n");
    }
    for database in ["0", "1"] {
        assert_eq!(client.ask(&format!("SELECT {database}")), "+OK\r\n");
        (0..20_000).for_each(|number| client.send(format!("DEL key:{number}\r\n").as_bytes()));
        (0..20_000).for_each(|_| assert_eq!(client.reply(), ":1\r\n"));
    }
    // One database, then all of them, while the first one may go on still.
    assert_eq!(client.ask("COMPACT db1 hash"), "+OK\r\n");
    assert_eq!(client.ask("COMPACT"), "+OK\r\n");
    wait_until("both have ended", || client.info("full_compaction_running") == "0");
    // The second one is a part of the first if that had not begun.
    assert!((1..=2).contains(&value_of(&mut client, "full_compactions_done")));
    assert_eq!(client.info("full_compactions_failed"), "0");
    wait_until("the figures are those of now", || value_of(&mut client, "live_sst_bytes") < 200_000);
    for database in ["0", "1"] {
        assert_eq!(client.ask(&format!("SELECT {database}")), "+OK\r\n");
        assert_eq!(client.ask("DBSIZE"), ":1\r\n");
        assert_eq!(client.ask("HGET kept f"), "$1\r\nv\r\n");
    }
    server.stop();
}

#[test]
fn info_keyspace_1_shows_counts_by_type_and_sizes() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &SMALL);
    let mut client = server.client();
    assert_eq!(client.ask("SELECT 3"), "+OK\r\n");
    assert_eq!(client.ask("SET string 1 EX 1000"), "+OK\r\n");
    for number in 0..20_000 {
        client.send(format!("HSET hash field:{number} {number}\r\nZADD zset {number} member:{number}\r\n").as_bytes());
    }
    (0..40_000).for_each(|_| assert_eq!(client.reply(), ":1\r\n"));
    assert_eq!(client.ask("COMPACT"), "+OK\r\n");
    wait_until("all is in the base", || value_of(&mut client, "full_compactions_done") == 1);
    let info = client.ask("INFO keyspace 1");
    assert!(info.contains("\r\n# Keyspace\r\ndb3:keys=3,expires=1,avg_ttl=0,subexpiry=0\r\n"), "{info}");
    assert!(
        info.contains("\r\n# Types\r\ntypes_db3:strings=1,lists=0,sets=0,sorted_sets=1,hashes=1,streams=0\r\n"),
        "{info}"
    );
    let sizes = info.lines().find_map(|line| line.strip_prefix("sizes_db3:")).expect("the database has a size");
    let size = |name: &str| -> u64 {
        let part = sizes.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        part.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{name} of {sizes}"))
    };
    assert!(size("elements") > 100_000 && size("scores") > 100_000, "{sizes}");
    assert!(size("bytes") >= size("elements") + size("scores") + size("keys"), "{sizes}");
    assert!(!info.contains("sizes_db0"), "{info}");
    assert!(!client.ask("INFO everything").contains("sizes_db3"));
    assert!(client.ask("INFO sizes").contains("sizes_db3"));
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(client.ask("INFO keyspace 1"), "+QUEUED\r\n");
    assert!(client.ask("EXEC").contains("sizes_db3"), "in a block as well");
    server.stop();
}

#[test]
fn a_full_compaction_begins_by_itself_in_its_hours() {
    let dir = TempDir::new();
    let port = process::free_port();
    let mut start = process::command(dir.path(), port, &SMALL);
    let server = Server::start_by(start.env("TZ", "UTC"), port);
    let mut client = server.client();
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    assert_eq!(client.ask("CONFIG SET compact-cron 0-23/101").chars().next(), Some('-'));
    // Hours of which this one is none, and then hours of which it is one; the test may run at their bounds.
    let hour = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs() / 3600 % 24;
    let window = |from: u64, hours: u64| format!("CONFIG SET compact-cron {}-{}/0", from % 24, (from + hours) % 24);
    assert_eq!(client.ask(&window(hour + 8, 2)), "+OK\r\n");
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.info("full_compactions_done"), "0");
    assert_eq!(client.ask(&window(hour + 23, 4)), "+OK\r\n");
    wait_until("one has begun by itself", || client.info("full_compactions_done") == "1");
    assert_eq!(client.ask("SET k w"), "+OK\r\n");
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.info("full_compactions_done"), "1", "once in these hours");
    assert_eq!(client.ask("COMPACT"), "+OK\r\n");
    wait_until("by hand at any time", || client.info("full_compactions_done") == "2");
    server.stop();
}

fn haypile(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_haypile")).args(arguments).stdin(Stdio::null()).output();
    let output = output.expect("the binary runs");
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

/// Imports a file, and returns a server with its data.
fn server_of(dir: &TempDir, file: &str) -> Server {
    let data = dir.path().join("data");
    haypile(&["import", file, "--dir", data.to_str().expect("temporary paths are text")]);
    Server::start(&data, &DEBUG)
}

#[test]
fn a_server_without_dump_is_exported_by_reads_of_each_type() {
    let (place, dir) = (TempDir::new(), TempDir::new());
    let redis = redis(&place, &["--rename-command", "DUMP", ""]);
    let mut client = redis.client();
    let many = |begin: &str, each: &dyn Fn(usize) -> String| {
        (0..2500).fold(begin.to_owned(), |line, number| format!("{line} {}", each(number)))
    };
    for command in [
        "SET short 17".to_owned(),
        "SET timed x PXAT 4102444800123".into(),
        "RPUSH list a b a".into(),
        many("RPUSH lists", &|number| format!("element:{}", number % 7)),
        "SADD set a 3".into(),
        many("SADD sets", &|number| format!("member:{number}")),
        "ZADD zset 1.5 a -inf b inf c 3e100 d".into(),
        many("ZADD zsets", &|number| format!("{}.25 member:{number}", number % 10)),
        "HSET hash f v".into(),
        many("HSET hashes", &|number| format!("field:{number} {number}")),
        "PEXPIREAT hashes 4102444800456".into(),
        "XADD stream 5-1 f v g w".into(),
        "XADD gaps 5-1 f v".into(),
        "XADD gaps 6-1 f v".into(),
        "XDEL gaps 6-1".into(),
        "SELECT 5".into(),
        "SET other database".into(),
        "SELECT 0".into(),
    ] {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let reply = client.ask_words(&words);
        assert!(!reply.starts_with('-'), "{}: {reply}", &command[..command.len().min(60)]);
    }
    for number in 0..2500 {
        client.ask(&format!("XADD streams {}-{} field {number}", 1 + number / 3, 1 + number % 3));
    }
    assert!(client.ask("DUMP short").starts_with("-ERR unknown command"));
    let file = dir.path().join("a.rdb");
    let file = file.to_str().expect("temporary paths are text");
    let said = haypile(&["export", file, "--port", &redis.port.to_string()]);
    assert!(said.contains("database 0: 2 strings, 2 lists, 2 sets, 2 sorted sets, 2 hashes, 3 streams\n"), "{said}");
    assert!(said.contains("database 5: 1 strings\n14 keys exported"), "{said}");
    let server = server_of(&dir, file);
    let mut of_server = server.client();
    assert_eq!(of_server.ask("DEBUG DIGEST"), client.ask("DEBUG DIGEST"));
    for question in ["XADD gaps 6-1 f v", "XRANGE streams 800 +"] {
        assert_eq!(of_server.ask(question), client.ask(question), "{question}");
    }
    // Such a server says how much time is left, so that a deadline is as exact as the answer was quick.
    for (question, deadline_ms) in [("PEXPIRETIME timed", 4102444800123), ("PEXPIRETIME hashes", 4102444800456)] {
        let found: i64 = of_server.ask(question).trim_matches([':', '\r', '\n']).parse().expect("a number");
        assert!((found - deadline_ms).abs() < 5_000, "{question}: {found}");
    }
    server.stop();
}

/// A connection to a made-up Pika 3.5, which answers as its sources say, and has these keys in its second database.
fn serve_as_pika(mut socket: TcpStream) {
    let mut client = Client { socket: socket.try_clone().expect("it can be shared") };
    let mut database = "0".to_owned();
    loop {
        let request = client.reply();
        // Words are the lines behind those with a length.
        let words: Vec<String> = request.split("\r\n").skip(2).step_by(2).map(str::to_lowercase).collect();
        let Some(command) = words.first() else { return };
        let argument = words.get(1).map(String::as_str).unwrap_or_default();
        let bulks = |words: &[&str]| {
            let bulks = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
            bulks.fold(format!("*{}\r\n", words.len()), |all, bulk| all + &bulk)
        };
        let reply = match (command.as_str(), argument) {
            ("info", "") => {
                let info = "# Server\r\npika_version:3.5.5\r\n\r\n# Keyspace\r\n# Time:1970-01-01 08:00:00\r\ndb0 Strings_keys=0, expires=0, invalid_keys=0\r\n";
                format!("${}\r\n{info}\r\n", info.len())
            }
            ("info", _) => "$0\r\n\r\n".into(),
            ("config", _) => bulks(&["databases", "2"]),
            ("select", _) => {
                database = argument.to_owned();
                "+OK\r\n".into()
            }
            ("scan", _) if database == "0" => format!("*2\r\n$1\r\n0\r\n{}", bulks(&[])),
            // A name with several types comes once for each of them.
            ("scan", "0") => format!("*2\r\n$1\r\n7\r\n{}", bulks(&["string", "twice"])),
            ("scan", _) => format!("*2\r\n$1\r\n0\r\n{}", bulks(&["twice", "hash", "gone"])),
            ("time", _) => bulks(&["4102444800", "500000"]),
            ("type", "gone") => "+none\r\n".into(),
            ("type", "hash") => "+hash\r\n".into(),
            ("type", _) => "+string\r\n".into(),
            ("exists", "twice") => ":2\r\n".into(),
            ("exists", _) => ":1\r\n".into(),
            ("pttl", "hash") => ":60000\r\n".into(),
            ("pttl", _) => ":-1\r\n".into(),
            ("get", name) => format!("${}\r\n{name}\r\n", name.len()),
            ("hlen", _) => ":2\r\n".into(),
            ("hgetall", _) => bulks(&["f", "v", "g", "w"]),
            (unknown, _) => format!("-ERR unknown command \"{unknown}\"\r\n"),
        };
        if socket.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn a_pika_is_exported_by_its_own_commands() {
    let dir = TempDir::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let pika = std::thread::spawn(move || {
        let (socket, _) = listener.accept().expect("the export connects");
        // The connection ends in the middle of a read.
        let _ = std::panic::catch_unwind(|| serve_as_pika(socket));
    });
    let file = dir.path().join("a.rdb");
    let file = file.to_str().expect("temporary paths are text");
    let said = haypile(&["export", file, "--port", &port]);
    assert!(said.contains("database 1: 2 strings, 1 hashes\nleft out: 1 keys that went meanwhile\n"), "{said}");
    assert!(said.contains("twice has values of several types, of which the string is in the file\n"), "{said}");
    assert!(pika.join().is_ok());
    let server = server_of(&dir, file);
    let mut client = server.client();
    assert_eq!(client.ask("SELECT 1"), "+OK\r\n");
    assert_eq!(client.ask("GET string"), "$6\r\nstring\r\n");
    assert_eq!(client.ask("HGETALL hash"), "*4\r\n$1\r\nf\r\n$1\r\nv\r\n$1\r\ng\r\n$1\r\nw\r\n");
    assert_eq!(client.ask("PEXPIRETIME hash"), ":4102444860500\r\n");
    assert_eq!(client.ask("DBSIZE"), ":3\r\n");
    server.stop();
}
