//! Functions over sockets: libraries are data, and calls are scripts.

mod process;

use process::following::{READONLY, is_equal, replica_of, wait_for_link};
use process::{Client, Server, TempDir, wait_until};
use std::net::TcpStream;

const LIBRARY: &str = "#!lua name=lib\n\
    redis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)\n\
    redis.register_function{function_name = 'read', flags = {'no-writes'}, description = 'reads', callback =\n\
    function(keys) return redis.call('GET', keys[1]) end}\n\
    redis.register_function('spin', function(keys, args) if args[1] then redis.call('SET', keys[1], 1) end\n\
    while true do end end)";

fn send(client: &mut Client<TcpStream>, words: &[&[u8]]) -> String {
    client.send(&process::request(words));
    client.reply()
}

fn load(client: &mut Client<TcpStream>, code: &str) -> String {
    send(client, &[b"FUNCTION", b"LOAD", code.as_bytes()])
}

/// Libraries and functions, as FUNCTION STATS counts them.
fn counts(client: &mut Client<TcpStream>) -> (String, String) {
    (client.info("number_of_libraries"), client.info("number_of_functions"))
}

fn numbers(libraries: u32, functions: u32) -> (String, String) {
    (libraries.to_string(), functions.to_string())
}

#[test]
fn libraries_are_data_they_survive_kills_and_flushall_and_are_in_backups() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--workers", "2"]);
    let mut client = server.client();
    assert_eq!(load(&mut client, LIBRARY), "$3\r\nlib\r\n");
    assert_eq!(load(&mut client, LIBRARY), "-ERR Library 'lib' already exists\r\n");
    assert_eq!(client.ask("FCALL put 1 k v"), "+OK\r\n");
    server.kill();
    let server = Server::start(dir.path(), &["--workers", "2"]);
    let mut clients = [server.client(), server.client()];
    for client in &mut clients {
        assert_eq!(client.ask("FCALL_RO READ 1 k"), "$1\r\nv\r\n");
    }
    let [client, other] = &mut clients;
    client.ask("FLUSHALL");
    assert_eq!(counts(client), numbers(1, 3));
    assert_eq!(client.ask("SAVE"), "+OK\r\n");
    assert_eq!(client.ask("FUNCTION FLUSH"), "+OK\r\n");
    assert_eq!(other.ask("FCALL read 1 k"), "-ERR Function not found\r\n");
    server.stop();
    let backups = dir.path().join("backups");
    let backup = std::fs::read_dir(backups).expect("it was made").flatten().next().expect("one").path();
    let server = Server::start(&backup, &[]);
    assert_eq!(counts(&mut server.client()), numbers(1, 3));
    server.stop();
}

#[test]
fn a_block_sees_its_own_libraries_and_leaves_none_where_it_is_refused() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.ask("MULTI");
    load(&mut client, LIBRARY);
    client.ask("FCALL put 1 k v");
    client.ask("FUNCTION DELETE nosuch");
    client.ask("FUNCTION DELETE lib");
    client.ask("FCALL put 1 k v");
    load(&mut client, &LIBRARY.replace("name=lib", "name=second"));
    assert_eq!(
        client.ask("EXEC"),
        "*6\r\n$3\r\nlib\r\n+OK\r\n-ERR Library not found\r\n+OK\r\n-ERR Function not found\r\n$6\r\nsecond\r\n"
    );
    assert_eq!(other.ask("FCALL read 1 k"), "$1\r\nv\r\n");
    assert_eq!(counts(&mut other), numbers(1, 3));
    // Of two that load at once one comes first.
    let replies: Vec<String> = std::thread::scope(|threads| {
        let loads: Vec<_> = (0..8)
            .map(|_| {
                let server = &server;
                threads.spawn(move || {
                    load(
                        &mut server.client(),
                        &LIBRARY
                            .replace("name=lib", "name=raced")
                            .replace("'put'", "'p2'")
                            .replace("'read'", "'r2'")
                            .replace("'spin'", "'s2'"),
                    )
                })
            })
            .collect();
        loads.into_iter().map(|load| load.join().expect("no panic")).collect()
    });
    assert_eq!(replies.iter().filter(|reply| *reply == "$5\r\nraced\r\n").count(), 1, "{replies:?}");
    assert_eq!(counts(&mut other), numbers(2, 6));
    server.stop();
}

#[test]
fn a_replica_has_the_libraries_of_its_master_and_runs_what_only_reads() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &process::following::DEBUG);
    let mut client = master.client();
    load(&mut client, LIBRARY);
    let replica = replica_of(&master, other.path(), &process::following::DEBUG);
    wait_for_link(&replica);
    let mut reader = replica.client();
    assert_eq!(client.ask("FCALL put 1 k v"), "+OK\r\n");
    is_equal(&master, &replica);
    assert_eq!(reader.ask("FCALL read 1 k"), "$1\r\nv\r\n");
    assert_eq!(reader.ask("FCALL put 1 k v"), READONLY);
    assert_eq!(reader.ask("MULTI"), "+OK\r\n");
    assert_eq!(reader.ask("FCALL read 1 k"), "+QUEUED\r\n");
    assert_eq!(reader.ask("FCALL put 1 k v"), READONLY);
    assert_eq!(reader.ask("EXEC"), "-EXECABORT Transaction discarded because of previous errors.\r\n");
    assert_eq!(load(&mut reader, LIBRARY), READONLY);
    assert_eq!(client.ask("FUNCTION DELETE lib"), "+OK\r\n");
    is_equal(&master, &replica);
    assert_eq!(reader.ask("FCALL read 1 k"), "-ERR Function not found\r\n");
    replica.stop();
    master.stop();
}

#[test]
fn a_function_that_runs_for_long_is_shown_and_ends_by_function_kill() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--workers", "1"]);
    let (mut slow, mut other) = (server.client(), server.client());
    load(&mut other, LIBRARY);
    slow.send(b"FCALL spin 1 k\r\n");
    wait_until("it is shown", || other.ask("FUNCTION STATS").contains("duration_ms"));
    let stats = other.ask("FUNCTION STATS");
    assert!(
        stats.contains("$4\r\nname\r\n$4\r\nspin\r\n$7\r\ncommand\r\n*4\r\n$5\r\nFCALL\r\n$4\r\nspin\r\n"),
        "{stats}"
    );
    assert!(
        other.ask("SCRIPT KILL").starts_with("-BUSY Redis is busy running a script. You can only call FUNCTION KILL")
    );
    assert_eq!(other.ask("FUNCTION KILL"), "+OK\r\n");
    assert!(slow.reply().contains("Script killed by user with FUNCTION KILL"));
    assert_eq!(other.ask("FUNCTION KILL"), "-NOTBUSY No scripts in execution right now.\r\n");
    // One that has written stands until the server ends.
    wait_until("it has written", || {
        slow.send(b"FCALL spin 1 k write\r\n");
        let mut reply = String::new();
        wait_until("it is found", || {
            reply = other.ask("FUNCTION KILL");
            !reply.starts_with("-NOTBUSY")
        });
        let has_written = reply.starts_with("-UNKILLABLE");
        if !has_written {
            slow.reply();
        }
        has_written
    });
    other.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(server.ended().success());
}

#[test]
fn payloads_of_function_dump_are_restored_as_the_policy_says() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    load(&mut client, LIBRARY);
    let dump = client.ask("FUNCTION DUMP");
    assert!(dump.starts_with('$'), "{dump}");
    // Of redis-server 7.0.15.
    let of_redis =
        b"\xf5@C#!lua name=l1\nredis.register_function('f1',function() return 1 end)\n\x00\x08 O\xd8\x15\xd1\x96\xed";
    assert_eq!(send(&mut client, &[b"FUNCTION", b"RESTORE", of_redis]), "+OK\r\n");
    assert_eq!((client.ask("FCALL f1 0"), counts(&mut client)), (":1\r\n".to_owned(), numbers(2, 4)));
    let reply = send(&mut client, &[b"FUNCTION", b"RESTORE", of_redis]);
    assert_eq!(reply, "-ERR Library l1 already exists\r\n");
    assert_eq!(send(&mut client, &[b"FUNCTION", b"RESTORE", of_redis, b"REPLACE"]), "+OK\r\n");
    assert_eq!(send(&mut client, &[b"FUNCTION", b"RESTORE", of_redis, b"FLUSH"]), "+OK\r\n");
    assert_eq!(counts(&mut client), numbers(1, 1));
    for at in 0..of_redis.len() {
        let mut damaged = of_redis.to_vec();
        damaged[at] ^= 0x10;
        let reply = send(&mut client, &[b"FUNCTION", b"RESTORE", &damaged, b"FLUSH"]);
        assert_eq!(reply, "-ERR DUMP payload version or checksum are wrong\r\n", "{at}");
    }
    assert_eq!(counts(&mut client), numbers(1, 1));
    server.stop();
}

/// A library that takes half a second to be loaded holds up nobody: not even on the only event loop.
#[test]
fn who_loads_a_library_holds_up_nobody() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--workers", "1"]);
    let (mut slow, mut other) = (server.client(), server.client());
    slow.send(&process::request(&[b"FUNCTION", b"LOAD", b"#!lua name=slow\nwhile true do end"]));
    let mut asked = 0;
    while !slow.has_reply() {
        assert_eq!(other.ask(&format!("SET k {asked}")), "+OK\r\n");
        asked += 1;
    }
    // One or two might be answered together with the load.
    assert!(asked > 3, "{asked}");
    assert_eq!(slow.reply(), "-ERR Error registering functions: ERR FUNCTION LOAD timeout\r\n");
    server.stop();
}
