//! Deadlines of fields of hashes in the running server: fields go by themselves, in memory and on disk, and are told
//! of; who watches a hash learns of it.

mod server;

use server::Server;

/// Lets the expiry do all that is due.
fn expire(server: &mut Server) {
    let now_ms = server.now_ms;
    while server.worker.expire(now_ms) {}
}

fn field_count(server: &mut Server) -> i64 {
    let space = server.store.store.counter(0, haypile_store::Counter::FieldDeadlines);
    assert!(space >= 0);
    space
}

#[test]
fn expired_fields_go_by_themselves_and_are_told_of() {
    let mut server = Server::new();
    server.ask(0, "CONFIG SET notify-keyspace-events Ehg");
    server.ask(1, "PSUBSCRIBE __keyevent*");
    for number in 0..300 {
        server.ask(0, &format!("HSET h f{number} v"));
    }
    let fields: Vec<String> = (0..299).map(|number| format!("f{number}")).collect();
    server.ask(0, &format!("HPEXPIRE h 10 FIELDS 299 {}", fields.join(" ")));
    server.ask(0, "HSET small a 1");
    server.ask(0, "HPEXPIRE small 10 FIELDS 1 a");
    server.ask(1, "PING");
    server.now_ms += 11;
    assert_eq!(field_count(&mut server), 2);
    expire(&mut server);
    assert_eq!(field_count(&mut server), 0, "what has gone is not counted any more");
    let told = server.ask(1, "PING");
    let times = |event: &str| told.matches(event).count();
    assert!((2..=8).contains(&times("hexpired")), "a few batches: {told}");
    assert_eq!(times("__keyevent@0__:del"), 1, "the small one goes as a whole: {told}");
    assert_eq!(server.ask(0, "HGETALL h"), "*2 $4 f299 $1 v");
    assert_eq!(server.ask(0, "DBSIZE"), ":1");
    assert_eq!(server.info(0, "expired_keys"), "1");
    assert_eq!(server.info(0, "expired_subkeys"), "300", "the only one of the small hash counts as well");
    server.ask(0, "CONFIG RESETSTAT");
    assert_eq!(server.info(0, "expired_subkeys"), "0");
}

#[test]
fn a_field_that_expires_counts_once_whoever_removes_it() {
    // A command, how many of two expired fields it removes from a hash in rows and from one in a single row, which
    // loses all of them with any change, and how many there are when the expiry has done its part.
    let cases = [
        ("HSET h f v", 1, 2, 2),
        ("HINCRBY h f 1", 1, 2, 2),
        ("HDEL h f", 1, 2, 2),
        ("HDEL h stays", 0, 2, 2),
        ("HSET h stays v", 0, 2, 2),
        ("HEXPIRE h 0 FIELDS 1 stays", 1, 3, 3),
        ("HEXPIRE h 0 FIELDS 1 f", 0, 2, 2),
        ("HGET h f", 0, 0, 2),
        ("DEL h", 0, 0, 0),
        ("SET h v", 0, 0, 0),
    ];
    for fields in [3, 100] {
        for (command, in_rows, in_one_row, all) in cases {
            let mut server = Server::new();
            server.ask(0, "HSET h f 1 g 2 stays 3");
            for number in 3..fields {
                server.ask(0, &format!("HSET h other{number} v"));
            }
            server.ask(0, "HPEXPIRE h 10 FIELDS 2 f g");
            server.now_ms += 11;
            server.ask(0, command);
            let at_once: u64 = if fields > 3 { in_rows } else { in_one_row };
            let expired = server.info(0, "expired_subkeys");
            assert_eq!(expired, at_once.to_string(), "{command} with {fields} fields");
            expire(&mut server);
            let expired = server.info(0, "expired_subkeys");
            assert_eq!(expired, all.to_string(), "{command} with {fields} fields, and the expiry");
        }
    }
}

/// Makes a hash `h` of fields that expire soon, and one that stays.
fn with_short_fields(server: &mut Server, fields: usize) {
    let names: Vec<String> = (0..fields).map(|number| format!("f{number}")).collect();
    names.iter().for_each(|name| drop(server.ask(0, &format!("HSET h {name} v"))));
    server.ask(0, "HSET h stays v");
    server.ask(0, &format!("HPEXPIRE h 10 FIELDS {fields} {}", names.join(" ")));
}

#[test]
fn a_hash_whose_last_fields_expire_counts_all_of_them() {
    for fields in [3, 100] {
        for command in ["PING", "DEL h", "SET h v", "HSET h f v"] {
            let mut server = Server::new();
            with_short_fields(&mut server, fields);
            server.ask(0, "HDEL h stays");
            server.now_ms += 11;
            server.ask(0, command);
            expire(&mut server);
            assert_eq!(server.info(0, "expired_subkeys"), fields.to_string(), "{command} with {fields} fields");
            assert_eq!(server.info(0, "expired_keys"), "1", "{command} with {fields} fields");
        }
        // A write that takes the last field that readers see takes those that have expired along.
        let mut server = Server::new();
        with_short_fields(&mut server, fields);
        server.now_ms += 11;
        assert_eq!(server.ask(0, "HDEL h stays"), ":1");
        assert_eq!(server.info(0, "expired_subkeys"), fields.to_string());
        expire(&mut server);
        assert_eq!(server.info(0, "expired_subkeys"), fields.to_string(), "none counts twice");
    }
}

#[test]
fn fields_that_go_with_their_key_have_not_expired() {
    let mut server = Server::new();
    server.ask(0, "HSET h f v g w");
    server.ask(0, "HPEXPIRE h 1000 FIELDS 1 f");
    server.ask(0, "PEXPIRE h 10");
    server.now_ms += 11;
    expire(&mut server);
    assert_eq!(server.info(0, "expired_keys"), "1");
    assert_eq!(server.info(0, "expired_subkeys"), "0");
}

#[test]
fn hashes_that_have_fields_with_a_deadline_are_counted() {
    let mut server = Server::new();
    server.ask(0, "SET s v EX 100");
    for hash in ["a", "b", "c"] {
        server.ask(0, &format!("HSET {hash} f 1 g 2"));
    }
    let line = |server: &mut Server| server.info(0, "db0");
    assert_eq!(line(&mut server), "keys=4,expires=1,avg_ttl=0,subexpiry=0");
    server.ask(0, "HEXPIRE a 100 FIELDS 2 f g");
    server.ask(0, "HEXPIRE b 100 FIELDS 1 f");
    assert_eq!(line(&mut server), "keys=4,expires=1,avg_ttl=0,subexpiry=2");
    server.ask(0, "HPERSIST a FIELDS 1 f");
    assert_eq!(line(&mut server), "keys=4,expires=1,avg_ttl=0,subexpiry=2", "another field has one");
    server.ask(0, "HPERSIST a FIELDS 1 g");
    server.ask(0, "COPY b d");
    assert_eq!(line(&mut server), "keys=5,expires=1,avg_ttl=0,subexpiry=2");
    server.ask(0, "DEL b d");
    assert_eq!(line(&mut server), "keys=3,expires=1,avg_ttl=0,subexpiry=0");
}

#[test]
fn fields_on_disk_expire_too() {
    let mut server = Server::new();
    for number in 0..200 {
        server.ask(0, &format!("HSET h f{number} v"));
    }
    let fields: Vec<String> = (0..199).map(|number| format!("f{number}")).collect();
    server.ask(0, &format!("HPEXPIRE h 10 FIELDS 199 {}", fields.join(" ")));
    server.freeze();
    server.now_ms += 11;
    // The I/O pool looks at the clock itself.
    while server.engine.now_ms() < server.now_ms {
        std::thread::yield_now();
    }
    assert_eq!(server.ask(0, "HLEN h"), ":1");
    let deadline = std::time::Instant::now() + server::PATIENCE;
    while field_count(&mut server) > 0 {
        assert!(std::time::Instant::now() < deadline, "the fields do not expire");
        expire(&mut server);
        server.worker.expire_in_base();
        server.ask(0, "PING");
        std::thread::yield_now();
    }
    assert_eq!(server.ask(0, "HGETALL h"), "*2 $4 f199 $1 v");
}

#[test]
fn who_watches_a_hash_sees_its_fields_expire() {
    for is_removed in [false, true] {
        for size in [1, 100] {
            let mut server = Server::new();
            for number in 0..size {
                server.ask(0, &format!("HSET h f{number} v stays v"));
            }
            server.ask(0, "HPEXPIRE h 10 FIELDS 1 f0");
            server.ask(0, "WATCH h");
            server.now_ms += 11;
            // Watched when the field was gone already.
            server.ask(1, "WATCH h");
            if is_removed {
                expire(&mut server);
            }
            for client in [0, 1] {
                server.ask(client, "MULTI");
                server.ask(client, "HLEN h");
            }
            let left = format!("*1 :{}", if size == 1 { 1 } else { size });
            assert_eq!(server.ask(0, "EXEC"), "*-1", "{size} fields, removed: {is_removed}");
            assert_eq!(server.ask(1, "EXEC"), left, "{size} fields, removed: {is_removed}");
        }
    }
}

/// Returns the events of a command that a client subscribed to all of them is told.
fn told(server: &mut Server, command: &str) -> Vec<String> {
    server.ask(0, command);
    let heard = server.ask(1, "PING");
    let name = |part: &str| part.split_whitespace().next().expect("the name of an event").to_owned();
    heard.split("__keyevent@0__:").skip(1).map(name).collect()
}

fn listen(server: &mut Server) {
    server.ask(0, "CONFIG SET notify-keyspace-events Ehg");
    server.ask(1, "PSUBSCRIBE __keyevent*");
    server.ask(1, "PING");
}

#[test]
fn an_expired_field_that_a_write_meets_is_told_of_before_the_write() {
    let cases: &[(&str, &[&str])] = &[
        ("HSET h f v", &["hexpired", "hset"]),
        ("HINCRBY h f 1", &["hexpired", "hincrby"]),
        ("HDEL h f", &["hexpired"]),
        ("HDEL h f g", &["hexpired", "hdel"]),
        ("HGETDEL h FIELDS 2 f g", &["hexpired", "hdel"]),
        ("HSETEX h FNX EX 10 FIELDS 1 f v", &["hexpired", "hset", "hexpire"]),
        ("HGET h f", &[]),
    ];
    // In one row, and in rows.
    for fields in [2, 100] {
        for (command, expected) in cases {
            let mut server = Server::new();
            for number in 2..fields {
                server.ask(0, &format!("HSET h other{number} v"));
            }
            server.ask(0, "HSET h f 1 g 2 stays 3");
            server.ask(0, "HPEXPIRE h 10 FIELDS 1 f");
            listen(&mut server);
            server.now_ms += 11;
            assert_eq!(told(&mut server, command), *expected, "{command} with {fields} fields");
            expire(&mut server);
            let later: &[&str] = if expected.is_empty() { &["hexpired"] } else { &[] };
            assert_eq!(told(&mut server, "PING"), later, "once only: {command} with {fields} fields");
        }
    }
}

#[test]
fn what_happens_to_fields_is_told() {
    let mut server = Server::new();
    listen(&mut server);
    let cases: &[(&str, &[&str])] = &[
        ("HSET h f v g w", &["hset"]),
        ("HEXPIRE h 10 FIELDS 2 f x", &["hexpire"]),
        ("HEXPIRE h 10 NX FIELDS 1 f", &[]),
        ("HPERSIST h FIELDS 1 f", &["hpersist"]),
        ("HPERSIST h FIELDS 1 f", &[]),
        ("HGETEX h FIELDS 1 f", &[]),
        ("HGETEX h EX 10 FIELDS 1 f", &["hexpire"]),
        ("HGETEX h PERSIST FIELDS 1 f", &["hpersist"]),
        ("HSETEX h EX 10 FIELDS 1 f v", &["hset", "hexpire"]),
        ("HSETEX h FXX FIELDS 1 nofield v", &[]),
        ("HINCRBY h n 1", &["hincrby"]),
        ("HINCRBYFLOAT h n 1", &["hincrbyfloat"]),
        ("HEXPIRE h 0 FIELDS 1 n", &["hdel"]),
        ("HGETDEL h FIELDS 1 f", &["hdel"]),
        ("HDEL h nofield", &[]),
        ("HEXPIRE h 0 FIELDS 1 g", &["hdel", "del"]),
        ("HSETEX h PX 0 FIELDS 1 g v", &["hset", "hdel", "del"]),
        ("HSETNX h f v", &["hset"]),
        ("HSETNX h f v", &[]),
        ("HDEL h f", &["hdel", "del"]),
    ];
    for (command, expected) in cases {
        assert_eq!(told(&mut server, command), *expected, "{command}");
    }
}

/// In Redis a `listpack` keeps the order in which elements were added, and an `intset` sorts them.
#[test]
fn what_is_told_of_an_encoding_says_nothing_of_the_order() {
    let mut server = Server::new();
    let rising: Vec<u32> = (1000..1200).collect();
    let falling: Vec<u32> = rising.iter().rev().copied().collect();
    for (name, numbers) in [("up", &rising), ("down", &falling)] {
        for (at, number) in numbers.iter().enumerate() {
            let sizes = if at < 30 { &["small", "large"][..] } else { &["large"] };
            for size in sizes {
                server.ask(0, &format!("HSET hash:{size}:{name} {number} v"));
                server.ask(0, &format!("SADD set:{size}:{name} {number}"));
            }
        }
    }
    for (kind, command, encoding) in [("hash", "HKEYS", "$8 listpack"), ("set", "SMEMBERS", "$6 intset")] {
        let mut elements = |key: &str| -> Vec<u32> {
            assert_eq!(server.ask(0, &format!("OBJECT ENCODING {kind}:{key}")), encoding, "{kind}:{key}");
            server.ask(0, &format!("{command} {kind}:{key}")).split(' ').filter_map(|word| word.parse().ok()).collect()
        };
        let (up, down) = (elements("small:up"), elements("small:down"));
        assert_eq!(up, rising[..30], "a small {kind} comes as in Redis");
        match kind {
            "hash" => assert_eq!(down, falling[..30]),
            _ => assert!(down.is_sorted() && down[0] == 1170, "{down:?}"),
        }
        let mut large = elements("large:up");
        assert_eq!(large, elements("large:down"), "a large {kind} has an order of its own");
        assert_ne!(large, rising, "{kind}");
        large.sort_unstable();
        assert_eq!(large, rising, "{kind}");
    }
}
