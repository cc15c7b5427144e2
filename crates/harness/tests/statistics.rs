//! What monitoring reads from INFO counts what redis-server counts.

use haypile_harness::bench::BASE;
use haypile_harness::client::info_field;
use haypile_harness::server::{Server, Template, Workplace, haypile_binary};

/// Commands on what is there, what is not, what has expired and what is of no concern, each on its own and in a block.
const COMMANDS: &[&str] = &[
    "GET a",
    "GET none",
    "MGET a none b c",
    "STRLEN a",
    "GETRANGE none 0 -1",
    "SUBSTR a 0 1",
    "EXISTS a b none",
    "TYPE a",
    "TYPE none",
    "TTL a",
    "PTTL none",
    "EXPIRETIME a",
    "KEYS a",
    "KEYS a*",
    "SCAN 0",
    "DBSIZE",
    "SET a 1 GET",
    "SET new 1 GET",
    "SET a 2",
    "SET a 2 XX",
    "SETNX a 1",
    "GETSET a 3",
    "GETSET other 3",
    "GETEX a",
    "GETEX none EX 10",
    "GETEX a EX 0",
    "GETEX none EX 0",
    "SET a 1 EX 0 GET",
    "GETDEL new",
    "GETDEL new",
    "INCR a",
    "APPEND a 1",
    "SETRANGE a 0 1",
    "EXPIRE a 100",
    "PERSIST a",
    "RENAME other b",
    "DEL a none",
    "MSET a 1 b 2",
    "MSETNX a 1 c 2",
    "GET",
    "INCR none x",
];

#[test]
fn hits_and_misses_are_those_of_redis() {
    let binary = haypile_binary().expect("the server is built before its tests");
    let templates =
        [Template::parse(BASE).expect("the template has its marks"), Template::haypile(&binary, "").expect("as well")];
    let [theirs, ours] = templates.map(|template| {
        let place = Workplace::new("statistics", None).expect("the temporary directory is writable");
        let (server, _) = Server::start(&template, &place).expect("the server starts");
        let mut client = server.client().expect("it takes clients");
        let mut counted = Vec::new();
        for in_block in [false, true] {
            client.command("FLUSHALL").expect("is answered");
            client.command("MSET a 1 b 2").expect("is answered");
            for command in COMMANDS {
                let words: &[&str] = if in_block { &["MULTI", command, "EXEC"] } else { &[command] };
                client.command("CONFIG RESETSTAT").expect("is answered");
                for command in words {
                    client.command(command).expect("is answered");
                }
                let info = client.info("stats").expect("is answered").expect("is text");
                let count =
                    |name: &str| info_field(&info, name).unwrap_or_else(|| panic!("INFO has {name}")).to_string();
                counted.push((*command, in_block, count("keyspace_hits"), count("keyspace_misses")));
            }
        }
        server.stop().expect("it stops");
        counted
    });
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs, ours, "redis-server and ours: command, in a block, hits, misses");
    }
}
