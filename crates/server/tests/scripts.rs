//! Scripts over sockets: what of them stands, whom they delay, and what bounds them.

mod process;

use process::following::{READONLY, is_equal, replica_of, wait_for_link};
use process::{Client, Ends, Server, TempDir, wait_until};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Socket = Client<TcpStream>;

fn start(more: &[&str]) -> (TempDir, Server) {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), more);
    (dir, server)
}

/// Runs a script with keys and arguments, as `EVAL` or another of its relatives.
fn call(client: &mut Socket, command: &str, script: &str, keys: &[&str], args: &[&str]) -> String {
    send(client, command, script, keys, args);
    client.reply()
}

fn send(client: &mut Socket, command: &str, script: &str, keys: &[&str], args: &[&str]) {
    let count = keys.len().to_string();
    let words = [command, script, &count].into_iter().chain(keys.iter().copied()).chain(args.iter().copied());
    let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
    client.send(&process::request(&words));
}

fn eval(client: &mut Socket, script: &str, keys: &[&str], args: &[&str]) -> String {
    call(client, "EVAL", script, keys, args)
}

#[test]
fn what_a_script_has_written_stands_as_a_whole_also_behind_an_error_and_a_kill() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    let script = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('RPUSH', 'undeclared', ARGV[1]) \
                  return redis.call('LPUSH', KEYS[1], 'x')";
    let reply = eval(&mut client, script, &["k"], &["v"]);
    assert!(
        reply.starts_with("-WRONGTYPE Operation against a key holding the wrong kind of value script: "),
        "{reply}"
    );
    assert_eq!(
        eval(&mut client, "return {redis.call('GET', 'k'), redis.call('LLEN', 'undeclared')}", &[], &[]),
        "*2\r\n$1\r\nv\r\n:1\r\n"
    );
    server.kill();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!((client.ask("GET k"), client.ask("LLEN undeclared")), ("$1\r\nv\r\n".into(), ":1\r\n".into()));
    server.stop();
}

#[test]
fn the_cache_of_scripts_is_that_of_redis() {
    let (_dir, server) = start(&["--workers", "2"]);
    let mut client = server.client();
    let sha = client.ask("SCRIPT LOAD \"return {KEYS[1], ARGV[1]}\"");
    let sha = sha.lines().nth(1).expect("a name").to_owned();
    assert_eq!(call(&mut client, "EVALSHA", &sha.to_uppercase(), &["k"], &["a"]), "*2\r\n$1\r\nk\r\n$1\r\na\r\n");
    assert_eq!(call(&mut client, "EVALSHA_RO", &sha, &["k"], &["a"]), "*2\r\n$1\r\nk\r\n$1\r\na\r\n");
    eval(&mut client, "return 1", &[], &[]);
    assert_eq!(
        client.ask(&format!("SCRIPT EXISTS {sha} e0e1f9fabfc9d4800c877a703b823ac0578ff8db ffff")),
        "*3\r\n:1\r\n:1\r\n:0\r\n"
    );
    assert_eq!(client.info("number_of_cached_scripts"), "2");
    // Another event loop has compiled it, too.
    assert_eq!(call(&mut server.client(), "EVALSHA", &sha, &["k"], &["a"]), "*2\r\n$1\r\nk\r\n$1\r\na\r\n");
    assert_eq!(client.ask("SCRIPT FLUSH"), "+OK\r\n");
    for client in [&mut client, &mut server.client()] {
        let reply = call(client, "EVALSHA", &sha, &["k"], &["a"]);
        assert_eq!(reply, "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    }
    assert_eq!(
        client.ask("SCRIPT LOAD x("),
        "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'\r\n"
    );
    for mode in ["YES", "SYNC", "NO"] {
        assert_eq!(client.ask(&format!("SCRIPT DEBUG {mode}")), "+OK\r\n");
    }
    // Within a block, too.
    client.ask("MULTI");
    client.ask("SCRIPT LOAD \"return {KEYS[1], ARGV[1]}\"");
    send(&mut client, "EVALSHA", &sha, &["k"], &["a"]);
    client.reply();
    client.ask(&format!("SCRIPT EXISTS {sha}"));
    assert_eq!(client.ask("EXEC"), format!("*3\r\n$40\r\n{sha}\r\n*2\r\n$1\r\nk\r\n$1\r\na\r\n*1\r\n:1\r\n"));
    assert_eq!(client.ask(&format!("SCRIPT EXISTS {sha}")), "*1\r\n:1\r\n");
    server.stop();
}

/// Moves one between two of the accounts that it draws, none of which it names; each script sees their sum.
#[test]
fn scripts_with_undeclared_keys_are_atomic_across_event_loops() {
    const ACCOUNTS: &str = "20";
    let (_dir, server) = start(&["--workers", "3", "--maxmemory", "64mb"]);
    let mut client = server.client();
    eval(&mut client, "for i = 1, ARGV[1] do redis.call('SET', 'account:' .. i, 100) end", &[], &[ACCOUNTS]);
    let transfer = "local from, to = 'account:' .. math.random(ARGV[1]), 'account:' .. math.random(ARGV[1]) \
                    redis.call('DECR', from) redis.call('INCR', to) return from";
    let sum = "local sum = 0 for i = 1, ARGV[1] do sum = sum + redis.call('GET', 'account:' .. i) end return sum";
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let (stop, server) = (&stop, &server);
        for _ in 0..4 {
            threads.spawn(move || {
                let mut client = server.client();
                for _ in 0..300 {
                    let reply = eval(&mut client, transfer, &[], &[ACCOUNTS]);
                    assert!(reply.starts_with("$9") || reply.starts_with("$10"), "{reply}");
                }
            });
        }
        threads.spawn(move || {
            let mut client = server.client();
            while !stop.load(Ordering::Relaxed) {
                client.ask("INCR account:1");
                client.ask("DECR account:1");
            }
        });
        let _ends = Ends(stop);
        for _ in 0..200 {
            let reply = eval(&mut client, sum, &[], &[ACCOUNTS]);
            assert!(reply == ":2000\r\n" || reply == ":2001\r\n", "{reply}");
        }
    });
    assert_eq!(eval(&mut client, sum, &[], &[ACCOUNTS]), ":2000\r\n");
    server.stop();
}

/// Reads a key before it writes it, as queues and limiters do, and serves who waits for one: none of it is declared.
#[test]
fn a_script_with_undeclared_keys_takes_those_that_are_free_where_it_runs() {
    let (_dir, server) = start(&["--workers", "1"]);
    let mut client = server.client();
    let script = "if not redis.call('GET', 'seen:' .. ARGV[1]) then \
                  redis.call('SET', 'seen:' .. ARGV[1], 1) redis.call('LPUSH', 'fresh:' .. ARGV[1], ARGV[1]) end \
                  return redis.call('INCR', 'calls')";
    let elsewhere = ["commands_that_loaded_rows", "commands_on_io_pool"];
    let before = elsewhere.map(|field| client.info(field));
    for number in 0..100 {
        let mut waiting = server.client();
        waiting.send(format!("BRPOP fresh:{number} 0\r\n").as_bytes());
        while client.info("blocked_clients") != "1" {}
        for calls in [2 * number + 1, 2 * number + 2] {
            assert_eq!(eval(&mut client, script, &[], &[&number.to_string()]), format!(":{calls}\r\n"));
        }
        assert!(waiting.reply().ends_with(&format!("\r\n{number}\r\n")));
    }
    assert_eq!(elsewhere.map(|field| client.info(field)), before, "no run was left to another thread");
    // More keys than one takes on its way.
    let many = "for i = 1, 1000 do redis.call('INCR', 'many:' .. i) end return redis.call('GET', 'many:1000')";
    for expected in ["$1\r\n1\r\n", "$1\r\n2\r\n"] {
        assert_eq!(eval(&mut client, many, &[], &[]), expected);
    }
    server.stop();
}

/// Nobody waits when the script begins, and somebody does when it comes to the key.
#[test]
fn who_begins_to_wait_for_a_key_before_a_script_comes_to_it_is_served() {
    let (_dir, server) = start(&["--workers", "2"]);
    let script = "local sum = 0 for i = 1, 30000 do sum = sum + i end return redis.call('LPUSH', 'queue', ARGV[1])";
    for number in 0..300 {
        let number = number.to_string();
        let (mut client, mut waiting) = (server.client(), server.client());
        send(&mut client, "EVAL", script, &[], &[&number]);
        waiting.send(b"BLPOP queue 0\r\n");
        assert_eq!(client.reply(), ":1\r\n");
        assert!(waiting.reply().ends_with(&format!("\r\n{number}\r\n")));
    }
    server.stop();
}

/// The dry run of one that has left its event loop finds all of its keys, also those that it reads before it writes.
#[test]
fn a_long_script_with_undeclared_keys_stops_nobody() {
    let (_dir, server) = start(&["--workers", "1"]);
    let mut client = server.client();
    let script = "local count = function(key) redis.call('GET', key) return redis.call('INCR', key) end \
                  if ARGV[2] == 'early' then count('first') end local sum = 0 for i = 1, ARGV[1] do sum = sum + i end \
                  for i = 1, 20 do count('key:' .. i) end return count('last')";
    let before = client.info("exclusive_runs");
    for (number, when) in [(1, "early"), (2, "late")] {
        assert_eq!(eval(&mut client, script, &[], &["400000", when]), format!(":{number}\r\n"));
        assert_eq!(client.info("commands_on_io_pool"), number.to_string());
        assert_eq!(client.info("exclusive_runs"), before, "{when}");
    }
    server.stop();
}

#[test]
fn a_script_that_runs_for_long_delays_only_who_wants_its_keys_and_can_be_killed() {
    let (_dir, server) = start(&["--workers", "1"]);
    let (mut slow, mut other) = (server.client(), server.client());
    assert_eq!(other.ask("SCRIPT KILL"), "-NOTBUSY No scripts in execution right now.\r\n");
    send(&mut slow, "EVAL", "redis.call('GET', KEYS[1]) while true do end", &["k"], &[]);
    let begun = Instant::now();
    let kill = |other: &mut Socket, expected: &str| {
        wait_until("it is found", || {
            let reply = other.ask("SCRIPT KILL");
            assert!(reply == expected || reply.starts_with("-NOTBUSY"), "{reply}");
            reply == expected
        });
    };
    // Nobody who wants other keys waits for it: not even on its event loop.
    (0..100).for_each(|n| assert_eq!(other.ask(&format!("SET other:{n} v")), "+OK\r\n"));
    assert!(begun.elapsed() < Duration::from_secs(20), "they had to wait for {:?}", begun.elapsed());
    let mut waiting = server.client();
    waiting.send(b"GET k\r\n");
    kill(&mut other, "+OK\r\n");
    let reply = slow.reply();
    assert!(reply.contains("Script killed by user with SCRIPT KILL"), "{reply}");
    assert_eq!(waiting.reply(), "$-1\r\n");

    // One that catches its errors ends all the same; one that has written does not.
    send(&mut slow, "EVAL", "while true do pcall(function() while true do end end) end", &[], &[]);
    kill(&mut other, "+OK\r\n");
    assert!(slow.reply().contains("Script killed by user"));
    // One whose writes are refused has written nothing.
    send(&mut slow, "EVAL_RO", "redis.pcall('SET', KEYS[1], 1) while true do end", &["k"], &[]);
    kill(&mut other, "+OK\r\n");
    assert!(slow.reply().contains("Script killed by user"));
    // A kill that comes before the write still ends the script: it is sent once more then.
    wait_until("it has written", || {
        send(&mut slow, "EVAL", "redis.call('SET', KEYS[1], 1) while true do end", &["k"], &[]);
        let mut reply = String::new();
        wait_until("it is found", || {
            reply = other.ask("SCRIPT KILL");
            !reply.starts_with("-NOTBUSY")
        });
        let has_written = reply.starts_with("-UNKILLABLE");
        if !has_written {
            assert_eq!(reply, "+OK\r\n");
            assert!(slow.reply().contains("Script killed by user"));
        }
        has_written
    });
    // The end of the server is its end; it was not acknowledged.
    other.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(server.ended().success());
}

#[test]
fn what_a_script_takes_is_bounded() {
    let (_dir, server) = start(&["--workers", "1", "--maxmemory", "128mb"]);
    let mut client = server.client();
    for script in [
        "local t = {} for i = 1, 1e9 do t[i] = i .. ' some text that is long enough' end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 1e9)",
        "local t = {} while true do local ok = pcall(function() for i = 1, 1e9 do t[#t + 1] = {} end end) \
         if not ok then t = nil error('all of it') end end",
    ] {
        let reply = eval(&mut client, script, &[], &[]);
        let is_bound = reply.contains("not enough memory") || reply.contains("all of it");
        assert!(is_bound, "{script}: {}", &reply[..reply.len().min(200)]);
    }
    let reply = eval(&mut client, "local s = 'x' while true do s = s .. s end", &[], &[]);
    let bound =
        "-ERR not enough memory: a script may take 8 MB (a sixteenth of 'maxmemory', at least 8 MB and at most 64 MB)";
    assert!(reply.starts_with(&format!("{bound} script: ")), "{reply}");
    assert_eq!(client.ask("CONFIG SET maxmemory 200mb"), "+OK\r\n");
    let reply = eval(&mut client, "local t = {} for i = 1, 1e9 do t[i] = {} end", &[], &[]);
    assert!(reply.contains(": a script may take 12.5 MB ("), "{reply}");
    let deep = "local function f() return 1 + f() end return f()";
    assert!(eval(&mut client, deep, &[], &[]).contains("stack overflow"));
    let nested = "local t = {} for i = 1, 1000 do t = {t} end return t";
    assert!(eval(&mut client, nested, &[], &[]).contains("reached lua stack limit"));
    assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1\r\n");
    assert!(server.resident_bytes() < 400 << 20, "{}", server.resident_bytes());
    server.stop();
}

#[test]
fn what_a_script_does_is_seen_by_others_as_what_a_client_does() {
    let (_dir, server) = start(&["--workers", "2", "--notify-keyspace-events", "KEA"]);
    let mut client = server.client();
    let (mut waiter, mut listener, mut monitor, mut watcher) =
        (server.client(), server.client(), server.client(), server.client());
    waiter.send(b"BLPOP list 0\r\n");
    wait_until("it waits", || client.info("blocked_clients") == "1");
    listener.ask("SUBSCRIBE channel __keyspace@0__:list");
    listener.reply();
    watcher.ask("WATCH other");
    assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
    let script =
        "redis.call('RPUSH', KEYS[1], 'x') redis.call('SET', 'other', 1) return redis.call('PUBLISH', 'channel', 'm')";
    assert_eq!(eval(&mut client, script, &["list"], &[]), ":1\r\n");
    assert_eq!(waiter.reply(), "*2\r\n$4\r\nlist\r\n$1\r\nx\r\n");
    assert!(listener.reply().contains("rpush"));
    watcher.ask("MULTI");
    assert_eq!(watcher.ask("EXEC"), "*-1\r\n");
    let lines = [monitor.line(), monitor.line(), monitor.line()];
    assert!(lines[0].contains("\"EVAL\"") && lines[1].contains("[0 lua] \"RPUSH\" \"list\" \"x\""), "{lines:?}");
    assert!(client.ask("INFO commandstats").contains("cmdstat_rpush:calls=1,"));
    // A script selects for itself alone.
    assert_eq!(eval(&mut client, "redis.call('SELECT', 3) return redis.call('SET', 'k', 1)", &[], &[]), "+OK\r\n");
    assert_eq!(client.ask("GET k"), "$-1\r\n");
    server.stop();
}

#[test]
fn a_block_with_a_script_is_refused_where_its_own_writes_are() {
    let (_dir, server) = start(&["--workers", "1", "--engine", "memory", "--maxmemory", "64mb"]);
    let mut client = server.client();
    let fill = "for i = 1, 100 do redis.call('SET', ARGV[1] .. i, string.rep('x', 10000)) end";
    let mut part = 0;
    wait_until("no more is taken", || {
        part += 1;
        eval(&mut client, fill, &[], &[&format!("{part}:")]).starts_with("-OOM")
    });
    client.ask("MULTI");
    client.ask("SET other v");
    send(&mut client, "EVAL", "return 1", &[], &[]);
    client.reply();
    let reply = client.ask("EXEC");
    assert!(reply.starts_with("-EXECABORT") || reply.starts_with("-OOM"), "{reply}");
    assert_eq!(eval(&mut client, "return 1", &[], &[]), ":1\r\n");
    assert!(eval(&mut client, "return redis.call('SET', 'k', 1)", &[], &[]).starts_with("-OOM"));
    assert!(eval(&mut client, "#!lua\nreturn 1", &[], &[]).starts_with("-OOM command not allowed"));
    assert_eq!(eval(&mut client, "#!lua flags=allow-oom\nreturn redis.call('SET', 'k', 1)", &[], &[]), "+OK\r\n");
    server.stop();
}

#[test]
fn a_script_that_empties_the_data_runs_exclusively() {
    let (_dir, server) = start(&["--workers", "2"]);
    let mut client = server.client();
    client.ask("SET k v");
    assert_eq!(
        eval(&mut client, "redis.call('FLUSHALL') redis.call('SET', 'new', 1) return redis.call('DBSIZE')", &[], &[]),
        ":1\r\n"
    );
    assert_eq!((client.ask("EXISTS k"), client.ask("EXISTS new")), (":0\r\n".into(), ":1\r\n".into()));
    client.ask("MULTI");
    send(&mut client, "EVAL", "return redis.call('FLUSHDB')", &[], &[]);
    client.reply();
    client.ask("DBSIZE");
    assert_eq!(client.ask("EXEC"), "*2\r\n+OK\r\n:0\r\n");
    server.stop();
}

#[test]
fn a_script_that_reads_many_cold_rows_comes_to_its_end() {
    let dir = TempDir::new();
    let more = ["--workers", "1", "--maxmemory", "64mb"];
    let server = Server::start(dir.path(), &more);
    let mut client = server.client();
    let fill = "for i = 1, 1000 do redis.call('SET', 'k:' .. ARGV[1] * 1000 + i, string.rep('x', 1000)) end";
    for part in 0..20 {
        assert_eq!(eval(&mut client, fill, &[], &[&part.to_string()]), "$-1\r\n");
    }
    server.stop();
    let server = Server::start(dir.path(), &more);
    let mut client = server.client();
    let read = "local sum = 0 for i = 1, 10000 do sum = sum + #redis.call('GET', 'k:' .. i) end return sum";
    assert_eq!(eval(&mut client, read, &[], &[]), ":10000000\r\n");
    let change = "local n = 0 for i = 10001, 12000 do n = n + redis.call('APPEND', 'k:' .. i, 'y') end return n";
    assert_eq!(eval(&mut client, change, &[], &[]), ":2002000\r\n");
    assert_eq!(client.ask("STRLEN k:12000"), ":1001\r\n");
    server.stop();
}

#[test]
fn a_script_cannot_keep_writes_from_replicas() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &[]);
    let replica = replica_of(&master, other.path(), &[]);
    wait_for_link(&replica);
    let mut client = master.client();
    for flags in ["NONE", "AOF", "REPLICA", "ALL"] {
        let script = format!("redis.set_repl(redis.REPL_{flags}) return redis.call('SET', KEYS[1], 'v')");
        assert_eq!(eval(&mut client, &script, &[flags], &[]), "+OK\r\n");
    }
    is_equal(&master, &replica);
    assert_eq!(replica.client().ask("GET NONE"), "$1\r\nv\r\n");
    replica.stop();
    master.stop();
}

#[test]
fn on_a_replica_scripts_read_and_what_they_wrote_on_the_master_arrives_whole() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &[]);
    let replica = replica_of(&master, other.path(), &[]);
    wait_for_link(&replica);
    let mut client = master.client();
    let script =
        "for i = 1, 100 do redis.call('RPUSH', KEYS[1], redis.call('TIME')[2] .. math.random(1000)) end return 1";
    (0..20).for_each(|n| assert_eq!(eval(&mut client, script, &[&format!("list:{n}")], &[]), ":1\r\n"));
    is_equal(&master, &replica);
    let mut reader = replica.client();
    assert_eq!(eval(&mut reader, "return redis.call('LLEN', KEYS[1])", &["list:3"], &[]), ":100\r\n");
    let reply = eval(&mut reader, "return redis.call('SET', KEYS[1], 1)", &["k"], &[]);
    assert!(reply.starts_with("-READONLY You can't write against a read only replica. script: "), "{reply}");
    assert_eq!(eval(&mut reader, "#!lua\nreturn 1", &["k"], &[]), READONLY);
    assert_eq!(call(&mut reader, "EVAL_RO", "#!lua\nreturn 1", &["k"], &[]), READONLY);
    assert_eq!(eval(&mut reader, "#!lua flags=no-writes\nreturn 1", &["k"], &[]), ":1\r\n");
    replica.stop();
    master.stop();
}
