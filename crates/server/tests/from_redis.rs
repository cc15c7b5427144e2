//! REPLICAOF a Redis: all of its data, then what it does, after breaks from where it was; and nobody else's writes.
//! Beside a real redis-server 7.0, and beside masters that a test makes up. `haypile-harness psync` does this with
//! generated commands, kills and cuts.

mod process;

use process::following::{DEBUG, READONLY, field, is_equal, replica_of, wait_for_link};
use process::redis::{Master, STREAM, file_of, redis};
use process::{Client, Server, TempDir, wait_until};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Directives of a Redis that tells its replicas at once.
const AT_ONCE: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];

fn follow(replica: &Server, port: u16) {
    assert_eq!(replica.client().ask(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
}

/// Returns how often a master has sent all of its data, and how often it went on.
fn syncs(master: &Server) -> [String; 2] {
    let mut client = master.client();
    ["sync_full", "sync_partial_ok"].map(|field| client.info(field))
}

fn is_sound(dir: &Path) {
    let checked = Command::new(env!("CARGO_BIN_EXE_haypile")).arg("check").arg(dir).output().expect("the binary runs");
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_millis()
}

/// Writes values of every type, and what belongs to them.
fn fill(client: &mut Client<TcpStream>) {
    let commands = [
        "MSET a 1 b 2 text long",
        "SETRANGE text 30000 end",
        "RPUSH list 1 2 3",
        "SADD set a b c",
        "SADD numbers 1 2 3",
        "ZADD zset 1 a 2.5 b inf c",
        "HSET hash f v g w",
        "XADD stream 1-1 f v",
        "XADD stream 2-1 f v g w",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group alice COUNT 1 STREAMS stream >",
        "PFADD sketch a b c",
        "SETBIT bits 1000 1",
        "GEOADD places 13.361389 38.115556 Palermo",
        "SET fading v EX 5000",
        "SELECT 3",
        "SET other database",
        "SELECT 0",
    ];
    for command in commands {
        let reply = client.ask(command);
        assert!(!reply.starts_with('-'), "{command} is answered by {reply}");
    }
    let library =
        "#!lua name=mine\nredis.register_function('twice', function(k, a) return redis.call('INCRBY', k[1], 2) end)";
    assert_eq!(client.ask_words(&[b"FUNCTION", b"LOAD", library.as_bytes()]), "$4\r\nmine\r\n");
    for number in 0..2000 {
        client.ask(&format!("RPUSH long element:{number}"));
    }
}

/// Does things whose replication differs from what the client has sent.
fn change(client: &mut Client<TcpStream>) {
    let commands = [
        "SPOP set",
        "SET fading v PX 4000000",
        "EXPIRE a 3000",
        "INCRBYFLOAT b 0.5",
        "XADD stream MAXLEN ~ 100 LIMIT 5 * f v",
        "MULTI",
        "INCR counter",
        "SELECT 5",
        "LPUSH list x",
        "EXEC",
        "SELECT 0",
        "GETDEL text",
        "LMOVE long list LEFT RIGHT",
        "FCALL twice 1 counter",
        "SWAPDB 5 7",
        "XCLAIM stream group bob 0 1-1",
        "ZINCRBY zset 3 a",
        "HINCRBYFLOAT hash n 1.5",
        "SELECT 3",
        "FLUSHDB",
        "SELECT 0",
    ];
    for command in commands {
        let reply = client.ask(command);
        assert!(!reply.starts_with('-'), "{command} is answered by {reply}");
    }
    let script = "redis.call('SET', KEYS[1], 1) redis.call('SELECT', 7) return redis.call('INCR', KEYS[1])";
    assert_eq!(client.ask_words(&[b"EVAL", script.as_bytes(), b"1", b"scripted"]), ":1\r\n");
}

#[test]
fn a_redis_is_followed_with_all_its_data_and_what_it_does_from_then_on() {
    for diskless in ["yes", "no"] {
        let (dir, other) = (TempDir::new(), TempDir::new());
        let more = [&AT_ONCE[..], &["--repl-diskless-sync", diskless, "--requirepass", "secret"]].concat();
        let master = redis(&dir, &more);
        let mut of_master = master.client();
        assert_eq!(of_master.ask("AUTH secret"), "+OK\r\n");
        assert_eq!(of_master.ask("ACL SETUSER copier on >copies +psync +replconf +ping"), "+OK\r\n");
        fill(&mut of_master);
        let login = ["--masteruser", "copier", "--masterauth", "wrong", "--notify-keyspace-events", "KEA"];
        let replica = Server::start(other.path(), &[&DEBUG[..], &login].concat());
        let mut of_replica = replica.client();
        assert_eq!(of_replica.ask("SET own 1"), "+OK\r\n");
        follow(&replica, master.port);
        wait_until("the refusal is told", || {
            field(&mut of_replica, "master_link_error").contains("refuses the password")
        });
        assert_eq!((&*of_replica.ask("GET own"), &*of_replica.ask("SET own 2")), ("$1\r\n1\r\n", READONLY));
        assert_eq!(of_replica.ask("CONFIG SET masterauth copies"), "+OK\r\n");
        wait_for_link(&replica);
        let equal = |of_master: &mut Client<TcpStream>, of_replica: &mut Client<TcpStream>| {
            wait_until("the replica has all", || {
                field(of_replica, "slave_repl_offset") == field(of_master, "master_repl_offset")
            });
            assert_eq!(of_replica.ask("DEBUG DIGEST"), of_master.ask("DEBUG DIGEST"));
        };
        equal(&mut of_master, &mut of_replica);
        assert_eq!(of_replica.ask("EXISTS own"), ":0\r\n");
        let mut listener = replica.client();
        listener.ask("SUBSCRIBE news __keyevent@0__:spop");
        listener.reply();
        change(&mut of_master);
        assert_eq!(of_master.ask("PUBLISH news hello"), ":0\r\n");
        assert_eq!(of_master.ask("WAIT 1 10000"), ":1\r\n");
        equal(&mut of_master, &mut of_replica);
        // Questions about what the fingerprint does not cover.
        for question in ["XPENDING stream group", "FUNCTION LIST", "TTL fading", "ZRANGE zset 0 -1 WITHSCORES"] {
            assert_eq!(of_replica.ask(question), of_master.ask(question), "{question}");
        }
        assert!(listener.reply().ends_with("$4\r\nnews\r\n$5\r\nhello\r\n"), "SPOP came as SREM");
        let offset = field(&mut of_master, "master_repl_offset");
        let role = of_replica.ask("ROLE");
        assert!(role.starts_with("*5\r\n$5\r\nslave\r\n") && role.contains("connected"), "{role} and {offset}");
        assert_eq!(field(&mut of_replica, "master_protocol"), "psync");
        assert_eq!(field(&mut of_replica, "master_stream_id"), field(&mut of_master, "master_replid"));
        assert!(of_replica.ask("CLIENT LIST TYPE master").contains("flags=M"));
        assert!(field(&mut of_master, "slave0").contains(&format!("port={},state=online", replica.port)));
        assert_eq!(of_replica.ask("LPUSH list x"), READONLY);
        assert_eq!(of_replica.ask("EVAL return(redis.call('INCR','a')) 0").chars().next(), Some('-'));
        drop((of_replica, listener));
        replica.stop();
        is_sound(other.path());
    }
}

#[test]
fn after_breaks_and_kills_a_redis_is_followed_from_where_it_was() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = redis(&dir, &AT_ONCE);
    let mut of_master = master.client();
    let mut replica = replica_of(&master, &other, &DEBUG);
    let mut count = 0;
    for round in 0..6 {
        for _ in 0..200 {
            of_master.ask("INCR counter");
            count = of_master.ask("RPUSH list x").trim()[1..].parse::<u32>().expect("a length");
        }
        match round % 3 {
            0 => {
                replica.kill_now();
                is_sound(other.path());
                replica = Server::start_at(other.path(), replica.port, &of(&master));
            }
            1 => {
                let port = replica.port;
                replica.stop();
                replica = Server::start_at(other.path(), port, &of(&master));
            }
            // One that has just gone may be there for a moment longer.
            _ => assert_ne!(of_master.ask("CLIENT KILL TYPE replica"), ":0\r\n"),
        }
        wait_for_link(&replica);
    }
    is_equal(&master, &replica);
    assert_eq!(replica.client().ask("LLEN list"), format!(":{count}\r\n"), "no command came twice");
    // The last break may not have been noticed until now.
    wait_until("it has gone on behind each break", || syncs(&master)[1] == "6");
    assert_eq!(syncs(&master)[0], "1", "not all data again");
}

fn of(master: &Server) -> [&'static str; 5] {
    let port: &'static str = master.port.to_string().leak();
    ["--replicaof", "127.0.0.1", port, DEBUG[0], DEBUG[1]]
}

#[test]
fn who_leaves_its_redis_takes_writes_and_loads_all_when_it_comes_back() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = redis(&dir, &AT_ONCE);
    let mut of_master = master.client();
    of_master.ask("MSET a 1 b 2");
    let replica = replica_of(&master, &other, &DEBUG);
    let mut of_replica = replica.client();
    // The master will not say any more that the key has expired.
    of_master.ask("DEBUG SET-ACTIVE-EXPIRE 0");
    of_master.ask("SET short v PX 100");
    wait_until("the key is there", || of_replica.ask("DBSIZE") == ":3\r\n");
    assert_eq!(of_replica.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it takes writes", || of_replica.ask("SET own 1") == "+OK\r\n");
    wait_until("keys expire again", || of_replica.ask("DBSIZE") == ":3\r\n");
    assert_eq!(field(&mut of_replica, "role"), "master");
    of_master.ask("DEL short");
    follow(&replica, master.port);
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(syncs(&master), ["2", "0"]);
    // A restart that leads forgets where its data were from, too.
    let port = replica.port;
    drop(of_replica);
    replica.stop();
    let replica = Server::start_at(other.path(), port, &[&DEBUG[..], &["--logfile", "server.log"]].concat());
    assert_eq!(replica.client().ask("SET own 2"), "+OK\r\n");
    follow(&replica, master.port);
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(syncs(&master), ["3", "0"]);
    replica.stop();
    let told = std::fs::read_to_string(other.path().join("server.log")).expect("it is written");
    assert!(told.contains("the data of this server, 3 keys, give way"), "{told}");
    assert!(told.contains(" s: 2 keys, "), "{told}");
}

#[test]
fn a_replica_of_a_replica_goes_on_with_the_redis_itself() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let master = redis(&dirs[0], &AT_ONCE);
    let mut of_master = master.client();
    fill(&mut of_master);
    let first = replica_of(&master, &dirs[1], &DEBUG);
    let second = replica_of(&first, &dirs[2], &DEBUG);
    change(&mut of_master);
    is_equal(&master, &first);
    is_equal(&first, &second);
    first.kill();
    of_master.ask("SET a later");
    follow(&second, master.port);
    wait_for_link(&second);
    is_equal(&master, &second);
    assert_eq!(syncs(&master), ["1", "1"]);
    assert_eq!(second.client().ask("GET a"), "$5\r\nlater\r\n");
}

#[test]
fn the_master_says_which_keys_expire() {
    let other = TempDir::new();
    let master = Master::new();
    let replica = Server::start(other.path(), &DEBUG);
    follow(&replica, master.port);
    let mut link = master.load(&file_of(&[("a", "1")]), 100);
    let mut client = replica.client();
    wait_for_link(&replica);
    let past = now_ms() - 5000;
    let mut offset = 100;
    offset += link.send(&[&format!("SET k 5 PXAT {past}"), "HSET hash f 1"]);
    link.wait_for(offset);
    assert_eq!((&*client.ask("GET k"), &*client.ask("TTL k")), ("$-1\r\n", ":-2\r\n"));
    assert_eq!(client.ask("DBSIZE"), ":3\r\n", "nobody but the master removes it");
    offset += link.send(&["INCR k", "PERSIST k", &format!("PEXPIREAT hash {past}"), "HSET hash g 2", "PERSIST hash"]);
    link.wait_for(offset);
    assert_eq!(client.ask("GET k"), "$1\r\n6\r\n");
    assert_eq!(client.ask("HLEN hash"), ":2\r\n");
}

#[test]
fn what_is_refused_stops_the_stream_or_is_left_out_as_a_whole() {
    let other = TempDir::new();
    let master = Master::new();
    let mut replica = Server::start(other.path(), &DEBUG);
    follow(&replica, master.port);
    let mut link = master.load(&file_of(&[("a", "1"), ("word", "text")]), 0);
    let mut client = replica.client();
    let mut offset = link.send(&["INCR a"]);
    link.wait_for(offset);
    // The command behind it has not run, and what is asked for again is the one that was refused.
    let refused =
        ["INCR word", "RENAMED x", "MULTI\nINCR a\nINCR word\nEXEC", "MULTI\nRENAMED x\nINCR a\nEXEC", "SELECT 99"];
    for block in refused {
        let lines: Vec<&str> = block.split('\n').collect();
        link.send(&lines);
        link.send(&["INCR a"]);
        let first = lines[0];
        wait_until("the refusal is told", || field(&mut client, "master_link_error").contains(first));
        assert_eq!(client.ask("GET a"), "$1\r\n2\r\n", "{block}");
        link = master.go_on(offset);
    }
    // A crash does not change that.
    replica.kill_now();
    let directives = [&DEBUG[..], &["--replica-refused-commands", "skip"]].concat();
    let port = master.port.to_string();
    let replica =
        Server::start_at(other.path(), replica.port, &[&["--replicaof", "127.0.0.1", &port][..], &directives].concat());
    link = master.go_on(offset);
    let mut client = replica.client();
    for (number, block) in refused[..4].iter().enumerate() {
        offset += link.send(&block.split('\n').collect::<Vec<_>>());
        offset += link.send(&["INCR a"]);
        link.wait_for(offset);
        assert_eq!(client.ask("GET a"), format!("$1\r\n{}\r\n", 3 + number), "{block}");
        assert_eq!(field(&mut client, "master_commands_skipped"), (number + 1).to_string());
    }
    // The database that a block has selected counts all the same.
    offset += link.send(&["MULTI", "SELECT 2", "INCR word", "RENAMED x", "EXEC", "SET there 1"]);
    link.wait_for(offset);
    client.ask("SELECT 2");
    assert_eq!(client.ask("GET there"), "$1\r\n1\r\n");
    link.send(&["SELECT 99", "SET nowhere 1"]);
    wait_until("there is no such database", || field(&mut client, "master_link_error").contains("database 99"));
    // Nothing behind it goes elsewhere.
    master.go_on(offset);
}

#[test]
fn nobody_but_the_master_changes_what_it_has() {
    let other = TempDir::new();
    let master = Master::new();
    let replica = Server::start(other.path(), &DEBUG);
    let (mut client, mut waits) = (replica.client(), replica.client());
    waits.send(b"BLPOP queue 0\r\n");
    wait_until("it waits", || client.info("blocked_clients") == "1");
    follow(&replica, master.port);
    let sent_away = waits.reply();
    assert!(sent_away.starts_with("-UNBLOCKED"), "its key is the master's: {sent_away}");
    let mut link = master.load(&file_of(&[("a", "1")]), 0);
    let mut offset = link.send(&["RPUSH queue v", "RESET", "INCR a"]);
    link.wait_for(offset);
    assert_eq!((&*client.ask("LLEN queue"), &*client.ask("GET a")), (":1\r\n", "$1\r\n2\r\n"));
    // A pause holds the master, too; it hears of this server meanwhile.
    assert_eq!(client.ask("CLIENT PAUSE 100000 WRITE"), "+OK\r\n");
    let sent = link.send(&["INCR a"]);
    (0..2).for_each(|_| link.wait_for(offset));
    assert_eq!(client.ask("GET a"), "$1\r\n2\r\n");
    assert_eq!(client.ask("CLIENT UNPAUSE"), "+OK\r\n");
    offset += sent;
    link.wait_for(offset);
    assert_eq!(client.ask("GET a"), "$1\r\n3\r\n");
    // A script of an old master that has written and then failed has done neither here.
    link.send(&["EVAL redis.call('INCR',KEYS[1])error('late') 1 a"]);
    wait_until("it is told", || field(&mut client, "master_link_error").contains("EVAL"));
    assert_eq!(client.ask("GET a"), "$1\r\n3\r\n");
    link = master.go_on(offset);
    // The data are opened again while commands come.
    offset += link.send(&["INCR a"]);
    link.wait_for(offset);
    assert_eq!(client.ask("DEBUG RELOAD"), "+OK\r\n");
    let mut link = master.go_on(offset);
    offset += link.send(&["INCR a"]);
    link.wait_for(offset);
    assert_eq!((&*client.ask("GET a"), &*client.ask("SET a x")), ("$1\r\n5\r\n", READONLY));
    drop((client, waits));
    replica.stop();
    is_sound(other.path());
}

#[test]
fn masters_that_lie_or_go_lose_nothing_here() {
    let other = TempDir::new();
    let master = Master::new();
    let replica = Server::start(other.path(), &DEBUG);
    let mut client = replica.client();
    assert_eq!(client.ask("SET own 1"), "+OK\r\n");
    follow(&replica, master.port);
    let file = file_of(&[("a", "1"), ("b", "2")]);
    let half = &file[..file.len() / 2];
    let mut damaged = file.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let header = format!("+FULLRESYNC {STREAM} 7\r\n");
    let of_length = |file: &[u8], length: usize| [format!("{header}${length}\r\n").as_bytes(), file].concat();
    let lies: Vec<(Vec<u8>, &str)> = vec![
        (b"-ERR I am busy\r\n".to_vec(), "I am busy"),
        (b"+CONTINUE\r\n".to_vec(), "where nothing has begun"),
        (b"+FULLRESYNC short 7\r\n".to_vec(), "answer to PSYNC is none"),
        (b"HTTP/1.1 200 OK\r\n".to_vec(), "answer to PSYNC is none"),
        (vec![b'x'; 10_000], "a line without an end"),
        (format!("{header}+OK\r\n").into_bytes(), "does not announce its data"),
        (format!("{header}-ERR no disk\r\n").into_bytes(), "no disk"),
        (of_length(b"REDIS", 5), "its data are wrong"),
        (of_length(half, file.len()), "closed the connection"),
        (of_length(half, half.len()), "its data are wrong"),
        (of_length(&damaged, file.len()), "its data are wrong"),
        (of_length(&[&b"$$$$$$$$$"[..], &file].concat(), file.len() + 9), "its data are wrong"),
        ([format!("{header}$EOF:{STREAM}\r\n").as_bytes(), &file].concat(), "closed the connection"),
        ([format!("{header}$EOF:{STREAM}\r\n").as_bytes(), half, STREAM.as_bytes()].concat(), "its data are wrong"),
    ];
    for (lie, why) in lies {
        let mut link = master.accept();
        assert_eq!(link.asked, ("?".to_owned(), -1));
        // The replica may have gone before it has heard all.
        let _ = std::io::Write::write_all(&mut link.socket, &lie);
        drop(link);
        wait_until(why, || field(&mut client, "master_link_error").contains(why));
        assert_eq!(client.ask("GET own"), "$1\r\n1\r\n", "{why}");
    }
    let mut link = master.load(&file, 7);
    wait_for_link(&replica);
    assert_eq!((&*client.ask("GET own"), &*client.ask("GET b")), ("$-1\r\n", "$1\r\n2\r\n"));
    // In the middle of a command, and what is none.
    let sent = link.send(&["SET a 2"]);
    link.say(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100\r\nhalf");
    link.wait_for(7 + sent);
    drop(link);
    let mut link = master.go_on(7 + sent);
    link.say(b"*x\r\n");
    wait_until("it is told", || field(&mut client, "master_link_error").contains("what is no command"));
    let mut link = master.go_on(7 + sent);
    assert_eq!(client.ask("GET a"), "$1\r\n2\r\n");
    // Another name for the same stream is a matter of the next question.
    drop(link);
    link = master.accept();
    let other_name = STREAM.replace('0', "f");
    link.say(format!("+CONTINUE {other_name}\r\n").as_bytes());
    let more = link.send(&["REPLCONF GETACK *", "SET a 3"]);
    link.wait_for(7 + sent + more);
    drop(link);
    assert_eq!(master.accept().asked, (other_name, (7 + sent + more + 1) as i64));
    drop(client);
    replica.stop();
    is_sound(other.path());
}

#[test]
fn a_block_that_has_come_in_part_comes_again_as_a_whole() {
    let other = TempDir::new();
    let master = Master::new();
    let replica = Server::start(other.path(), &DEBUG);
    follow(&replica, master.port);
    let mut link = master.load(&file_of(&[("a", "1")]), 50);
    let mut client = replica.client();
    let sent = link.send(&["INCR a"]);
    link.wait_for(50 + sent);
    link.send(&["MULTI", "INCR a", "INCR a"]);
    (0..2).for_each(|_| link.wait_for(50 + sent));
    assert_eq!(client.ask("GET a"), "$1\r\n2\r\n");
    drop(link);
    let mut link = master.go_on(50 + sent);
    let block = link.send(&["MULTI", "INCR a", "INCR a", "EXEC"]);
    link.wait_for(50 + sent + block);
    assert_eq!(client.ask("GET a"), "$1\r\n4\r\n");
}

#[test]
fn a_redis_that_follows_another_one_says_in_which_database_it_goes_on() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let master = redis(&dirs[0], &AT_ONCE);
    let port = master.port.to_string();
    let between = redis(&dirs[1], &[&AT_ONCE[..], &["--replicaof", "127.0.0.1", &port]].concat());
    wait_for_link(&between);
    let (mut of_master, mut of_between) = (master.client(), between.client());
    for command in ["SELECT 3", "SET before 1"] {
        assert_eq!(of_master.ask(command), "+OK\r\n");
    }
    of_between.ask("SELECT 3");
    wait_until("its stream is in database 3", || of_between.ask("GET before") == "$1\r\n1\r\n");
    let replica = replica_of(&between, &dirs[2], &DEBUG);
    assert_eq!(of_master.ask("SET behind 2"), "+OK\r\n");
    let mut client = replica.client();
    client.ask("SELECT 3");
    wait_until("it comes there", || client.ask("GET behind") == "$1\r\n2\r\n");
}

#[test]
fn a_block_that_was_refused_begins_in_its_database_when_it_comes_again() {
    let other = TempDir::new();
    let master = Master::new();
    let replica = Server::start(other.path(), &[&DEBUG[..], &["--proto-max-bulk-len", "1mb"]].concat());
    follow(&replica, master.port);
    let mut link = master.load(&file_of(&[("a", "0")]), 0);
    let mut client = replica.client();
    let block = ["MULTI", "SET a 1", "SELECT 5", "SETRANGE long 2000000 x", "EXEC"];
    link.send(&block);
    wait_until("it is refused", || field(&mut client, "master_link_error").contains("maximum allowed size"));
    assert_eq!(client.ask("GET a"), "$1\r\n0\r\n");
    assert_eq!(client.ask("CONFIG SET proto-max-bulk-len 512mb"), "+OK\r\n");
    link = master.go_on(0);
    let sent = link.send(&block);
    link.wait_for(sent);
    assert_eq!(client.ask("GET a"), "$1\r\n1\r\n");
    client.ask("SELECT 5");
    assert_eq!(client.ask("EXISTS a long"), ":1\r\n");
}

#[test]
fn a_master_that_has_its_replica_wait_for_keys_can_be_left() {
    let other = TempDir::new();
    let master = Master::new();
    let replica = Server::start(other.path(), &DEBUG);
    follow(&replica, master.port);
    let mut link = master.load(&file_of(&[("a", "1")]), 0);
    let mut client = replica.client();
    wait_for_link(&replica);
    link.send(&["BLPOP absent 0"]);
    wait_until("it waits", || client.info("blocked_clients") == "1");
    assert_eq!(client.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || client.ask("SET own 1") == "+OK\r\n");
    replica.stop();
}
