//! CONFIG SET of every directive that redis-server shares, with values of every kind: the reply, and the value that
//! CONFIG GET prints then. The hand-picked cases are in `redis`.

use crate::common::{Redis, Scratch};
use haypile_config::Settings;
use haypile_config::table;

/// Good for some kind of directive, and bad for all others.
const VALUES: &[&str] = &[
    "",
    "yes",
    "no",
    "YES",
    "0",
    "-1",
    "1",
    "7",
    "50",
    "101",
    "+1",
    "01",
    "1.5",
    "abc",
    " 5",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1k",
    "1KB",
    "3mb",
    "2gB",
    "1b",
    "1t",
    "5%",
    "100%",
    "101%",
    "-5%",
    "-1mb",
    "none",
    "default",
    "now force",
    "save  now",
    "1 2 3",
    "1 2 3 4",
    "0 1",
    "normal 1mb 2 3",
    "pubsub 1 2",
    "50 99.9",
    "a/b",
    "a b",
    "KEA",
    "no one",
    "allkeys-lru",
    "local",
    "disabled",
    "everysec",
    "777",
];

/// Values that would end or hide the test's own server, or that are not there yet here.
fn is_left_out(name: &str, value: &str) -> bool {
    match name {
        // Other servers' sockets, files and passwords.
        "port" | "bind" | "dir" | "requirepass" | "masterauth" | "masteruser" => true,
        name if name.starts_with("tls-") => true,
        // The value closes the only client.
        "maxmemory-clients" => !matches!(value, "" | "abc" | "101%" | "-5%" | "1.5" | "-1" | "5%"),
        "timeout" => value == "1",
        // The value starts the snapshots and logs of Redis, which takes time.
        "appendonly" => value.eq_ignore_ascii_case("yes"),
        // Debian's redis-server has another allocator than most, and refuses it.
        "activedefrag" => value.eq_ignore_ascii_case("yes"),
        // Redis makes its replication buffer at least 16 kb, and then says so.
        "repl-backlog-size" => matches!(value, "1" | "7" | "50" | "101" | "01" | "777" | "1k" | "1KB" | "1b"),
        // A deliberate difference.
        "replica-read-only" => value.eq_ignore_ascii_case("no"),
        // The value changes the process, as far as its user may.
        "oom-score-adj" | "oom-score-adj-values" => !matches!(value, "" | "abc" | "no" | "1 2"),
        // The value is bounded by the number of files that may be open.
        "maxclients" => value.len() > 3,
        // Redis moves the value to a multiple of its own clock's tick; it is for debugging Redis.
        "watchdog-period" => true,
        // 7.2 knows one level more, and says so.
        "loglevel" => true,
        _ => false,
    }
}

#[test]
fn every_shared_directive_answers_as_in_redis() {
    let scratch = Scratch::new();
    let mut redis = Redis::plain(&scratch.0);
    let ours = Settings::defaults(&scratch.0);
    ours.set(&[(b"save", b"")]).unwrap();
    let (mut compared, mut taken) = (0, 0);
    for row in table::rows().filter(|row| !row.ours && row.name != "durability") {
        let name = row.name.as_bytes();
        let get = |redis: &mut Redis| redis.call(&[b"CONFIG", b"GET", name]).unwrap();
        if get(&mut redis).is_empty() {
            // New in 7.2.
            continue;
        }
        let before = row.kind.print(&row.default_value());
        for value in VALUES.iter().filter(|value| !is_left_out(row.name, value)) {
            let answer = redis.call(&[b"CONFIG", b"SET", name, value.as_bytes()]).map(|_| ());
            let here = ours.set(&[(name, value.as_bytes())]).map(|_| ());
            assert_eq!(here, answer, "CONFIG SET {} {value:?}", row.name);
            let now: Vec<Vec<u8>> =
                ours.get(&[name]).into_iter().flat_map(|(name, value)| [name.into(), value]).collect();
            if !["unixsocket", "pidfile", "logfile"].contains(&row.name) {
                let text = |pair: Vec<Vec<u8>>| {
                    pair.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect::<Vec<_>>()
                };
                assert_eq!(text(now), text(get(&mut redis)), "CONFIG GET {} after CONFIG SET {value:?}", row.name);
            }
            compared += 1;
            taken += usize::from(answer.is_ok());
        }
        // All or none: a good value does not stay when another one is refused, whichever comes first.
        let unchanged = ours.get(&[b"*"]);
        for pairs in [[(name, &before[..]), (b"hz".as_slice(), b"x".as_slice())], [(b"hz", b"x"), (name, &before)]] {
            if row.name == "hz" {
                continue;
            }
            let words = pairs.iter().flat_map(|(name, value)| [*name, *value]);
            let words: Vec<&[u8]> = [b"CONFIG".as_slice(), b"SET"].into_iter().chain(words).collect();
            let (answer, here) = (redis.call(&words).map(|_| ()), ours.set(&pairs).map(|_| ()));
            assert!(here.is_err(), "{pairs:?}");
            if !is_left_out(row.name, "x") {
                assert_eq!(here, answer, "{}", row.name);
            }
            assert_eq!(ours.get(&[b"*"]), unchanged, "{}", row.name);
        }
    }
    assert!(compared > 6000 && taken > 500, "{compared} compared, {taken} taken");
}
