//! The counters of INFO that monitoring reads agree with those of redis-server.

use haypile_harness::bench::BASE;
use haypile_harness::client::{Client, Reply, info_field};
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

/// Starts both servers, redis-server first.
fn both() -> [(Server, Client, Workplace); 2] {
    let binary = haypile_binary().expect("the server is built before its tests");
    let templates =
        [Template::parse(BASE).expect("the template has its marks"), Template::haypile(&binary, "").expect("as well")];
    templates.map(|template| {
        let place = Workplace::new("statistics", None).expect("the temporary directory is writable");
        let (server, _) = Server::start(&template, &place).expect("the server starts");
        let client = server.client().expect("it takes clients");
        (server, client, place)
    })
}

/// Runs on both, redis-server first; a word may be quoted as in redis-cli.
fn on_both<T>(check: impl Fn(&mut Client) -> T) -> [T; 2] {
    both().map(|(server, mut client, _place)| {
        let found = check(&mut client);
        server.stop().expect("it stops");
        found
    })
}

/// Commands that run, fail and are refused, alone and in blocks, and subcommands.
const CALLS: &[&str] = &[
    "SET a 1",
    "SET a",
    "GET a",
    "GET none",
    "INCR a",
    "SET s x",
    "INCR s",
    "SET a 1 HAY",
    "NOSUCH a",
    "CONFIG GET port",
    "CONFIG SET nosuch 1",
    "CONFIG HAY",
    "CONFIG",
    "CLIENT SETNAME me",
    "CLIENT SETNAME",
    "MULTI",
    "INCR a",
    "INCR s",
    "GET",
    "EXEC",
    "MULTI",
    "INCR a",
    "INCR s",
    "MGET a b",
    "EXEC",
    "EXEC",
    "DISCARD",
    "MULTI",
    "WATCH a",
    "DISCARD",
    "WATCH a",
    "UNWATCH",
    "SELECT 99",
    "RENAME none other",
    "HELLO 9",
    "COMMAND COUNT",
    "SLOWLOG LEN",
    "SLOWLOG GET x",
    "LATENCY GRAPH none",
];

#[test]
fn calls_and_errors_are_those_of_redis() {
    let [theirs, ours] = on_both(|client| {
        client.command("CONFIG RESETSTAT").expect("is answered");
        CALLS.iter().for_each(|line| drop(client.command(line).expect("is answered")));
        let commands = client.info("commandstats").expect("is answered").expect("is text");
        let mut counts: Vec<String> = commands
            .lines()
            .filter(|line| line.starts_with("cmdstat_"))
            .map(|line| {
                let (name, numbers) = line.split_once(':').expect("a field has a name");
                let timeless = |number: &&str| !number.starts_with("usec");
                let numbers: Vec<&str> = numbers.split(',').filter(timeless).collect();
                format!("{name}:{}", numbers.join(","))
            })
            .collect();
        counts.sort();
        let errors = client.info("errorstats").expect("is answered").expect("is text");
        let mut errors: Vec<String> = errors.lines().map(str::to_owned).collect();
        errors.sort();
        let stats = client.info("stats").expect("is answered").expect("is text");
        let replies = info_field(&stats, "total_error_replies").expect("INFO has it").to_owned();
        client.command("CONFIG RESETSTAT").expect("is answered");
        let after = client.info("errorstats").expect("is answered").expect("is text");
        (counts, errors, replies, after)
    });
    assert_eq!(ours, theirs);
    assert!(ours.0.len() > 15 && ours.1.len() > 3, "{ours:?}");
}

#[test]
fn every_call_is_timed() {
    let [theirs, ours] = on_both(|client| {
        client.command("CONFIG RESETSTAT").expect("is answered");
        (0..10).for_each(|_| drop(client.command("SET a 1").expect("is answered")));
        client.command("CONFIG SET latency-tracking-info-percentiles '50 99.5'").expect("is answered");
        let line = client.info("latencystats").expect("is answered").expect("is text");
        let value = info_field(&line, "latency_percentiles_usec_set").expect("SET was called").to_owned();
        let decimals = |number: &str| number.split_once('.').map(|(_, decimals)| decimals.trim().len());
        let percentiles: Vec<_> = value
            .split(',')
            .map(|part| part.split_once('=').expect("a percentile has a value"))
            .map(|(name, value)| (name.to_owned(), decimals(value)))
            .collect();
        client.command("CONFIG SET latency-tracking no").expect("is answered");
        client.command("SET a 1").expect("is answered");
        let Reply::Array(commands) = client.command("LATENCY HISTOGRAM set nosuch get").expect("is answered") else {
            panic!("LATENCY HISTOGRAM answers a list")
        };
        let [Reply::Bulk(name), Reply::Array(facts)] = &commands[..] else {
            panic!("only SET was called: {commands:?}")
        };
        let [calls_word, calls, histogram_word, Reply::Array(histogram)] = &facts[..] else { panic!("{facts:?}") };
        assert_eq!(histogram.last(), Some(&Reply::Integer(10)), "the last count is of all calls");
        let numbers: Vec<i64> = histogram.iter().map(|number| number.integer().expect("a number")).collect();
        let pairs: Vec<&[i64]> = numbers.chunks(2).collect();
        assert!(pairs.is_sorted_by(|one, other| one[0] < other[0] && one[1] < other[1]), "{pairs:?}");
        let bounds = [1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113, 4227, 8454, 16908, 33816, 67633];
        assert!(pairs.iter().all(|pair| bounds.contains(&pair[0])), "{pairs:?}");
        client.command("HELLO 3").expect("is answered");
        let Reply::Map(maps) = client.command("LATENCY HISTOGRAM").expect("is answered") else {
            panic!("LATENCY HISTOGRAM answers a map in RESP3")
        };
        let is_map =
            |(_, facts): &(Reply, Reply)| matches!(facts, Reply::Map(facts) if matches!(facts[1].1, Reply::Map(_)));
        assert!(maps.iter().all(is_map), "{maps:?}");
        let mut names: Vec<Reply> = maps.into_iter().map(|(name, _)| name).collect();
        names.sort();
        (percentiles, name.clone(), calls_word.clone(), calls.clone(), histogram_word.clone(), names)
    });
    assert_eq!(ours, theirs);
}

#[test]
fn the_slow_log_is_that_of_redis() {
    let long = "x".repeat(200);
    let many: String = (0..40).map(|n| format!(" k{n}")).collect();
    let commands = [
        "CLIENT SETNAME me".to_owned(),
        format!("SET {long} {long}"),
        format!("MGET{many}"),
        "HELLO 2 AUTH default secret".to_owned(),
        "HELLO 2 SETNAME you".to_owned(),
        "GET".to_owned(),
        "INCR none x".to_owned(),
        "SET n x".to_owned(),
        "INCR n".to_owned(),
        "MULTI".to_owned(),
        "SET a 1".to_owned(),
        "INCR n".to_owned(),
        "EXEC".to_owned(),
        "CONFIG SET slowlog-max-len 64 maxclients 200".to_owned(),
    ];
    let [theirs, ours] = on_both(|client| {
        client.command("CONFIG SET slowlog-log-slower-than 0").expect("is answered");
        client.command("SLOWLOG RESET").expect("is answered");
        commands.iter().for_each(|line| drop(client.command(line).expect("is answered")));
        client.command("CONFIG SET slowlog-log-slower-than -1").expect("is answered");
        let length = client.command("SLOWLOG LEN").expect("is answered");
        let usual = client.command("SLOWLOG GET").expect("is answered");
        assert_eq!(usual.elements().map(<[Reply]>::len), Some(10));
        let Reply::Array(entries) = client.command("SLOWLOG GET -1").expect("is answered") else { panic!("a list") };
        let mut ids = Vec::new();
        let kept: Vec<(Reply, Reply)> = entries
            .iter()
            .map(|entry| match entry.elements().expect("an entry has fields") {
                [Reply::Integer(id), Reply::Integer(time), Reply::Integer(_), args, Reply::Bulk(_), name] => {
                    assert!(*time > 1_700_000_000);
                    ids.push(*id);
                    (args.clone(), name.clone())
                }
                fields => panic!("an entry has six fields: {fields:?}"),
            })
            .collect();
        assert!(ids.is_sorted_by(|newer, older| newer == &(older + 1)), "{ids:?}");
        client.command("SLOWLOG RESET").expect("is answered");
        (length, kept, client.command("SLOWLOG LEN").expect("is answered"))
    });
    for (theirs, ours) in theirs.1.iter().zip(&ours.1) {
        assert_eq!(ours, theirs, "arguments and the client's name");
    }
    assert_eq!(ours, theirs);
}

#[test]
fn info_shows_the_sections_of_redis() {
    /// Sections that only this server has.
    const OURS: &[&str] = &["Slowlog", "Waits", "Types", "Store", "Log", "Cache", "RocksDB"];
    let [theirs, ours] = on_both(|client| {
        let sections = ["default", "all", "everything", "commandstats", "CPU server", "modules", "nosuch"];
        sections.map(|asked| {
            let reply = client.command(&format!("INFO {asked}")).expect("is answered");
            let info = String::from_utf8_lossy(reply.bytes().expect("is text")).into_owned();
            let titles = info.lines().filter_map(|line| line.strip_prefix("# "));
            titles.filter(|title| !OURS.contains(title)).map(str::to_owned).collect::<Vec<_>>()
        })
    });
    assert_eq!(ours, theirs);
}

#[test]
fn info_has_every_field_of_redis() {
    let [theirs, ours] = on_both(|client| {
        client.command("SET a 1").expect("is answered");
        client.command("GET").expect("is answered");
        client.info("everything").expect("is answered").expect("is text")
    });
    let fields = |info: &str| -> Vec<(String, String)> {
        let mut section = String::new();
        let mut found = Vec::new();
        for line in info.lines() {
            match line.strip_prefix("# ") {
                Some(title) => section = title.to_owned(),
                None => found.extend(line.split_once(':').map(|(name, _)| (section.clone(), name.to_owned()))),
            }
        }
        found
    };
    let ours = fields(&ours);
    // Sections that list the commands called here differ.
    let compared = |field: &&(String, String)| !["Commandstats", "Latencystats"].contains(&field.0.as_str());
    let missing: Vec<_> =
        fields(&theirs).into_iter().filter(|field| compared(&field) && !ours.contains(field)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(ours.len() > 200);
}
