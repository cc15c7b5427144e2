//! redis-cli in every mode that concerns one node.

mod tools;

use tools::{cli, failure, output, start, text, watch};

#[test]
fn redis_cli_works() {
    let (server, _place) = start("cli");
    let port = server.port().to_string();
    assert_eq!(
        cli(&port, &[], "SET a \"x y\\x00\"\nGET a\nTTL a\nNOSUCH\n"),
        "OK\nx y\0\n-1\nERR unknown command 'NOSUCH', with args beginning with: \n\n"
    );
    assert_eq!(cli(&port, &["-3", "GET", "nothing"], ""), "\n");
    assert_eq!(cli(&port, &["-n", "3", "SET", "b", "1"], ""), "OK\n");
    assert_eq!(cli(&port, &["-n", "3", "DBSIZE"], ""), "1\n");
    assert_eq!(cli(&port, &["-x", "SET", "stdin"], "from a pipe"), "OK\n");
    assert_eq!(cli(&port, &["GET", "stdin"], ""), "from a pipe\n");
    assert_eq!(cli(&port, &["MULTI"], ""), "OK\n");
    assert_eq!(cli(&port, &[], "MULTI\nSET a 1\nINCR a\nEXEC\n"), "OK\nQUEUED\nQUEUED\nOK\n2\n");
    let info = cli(&port, &["INFO"], "");
    for field in ["redis_version:", "tcp_port:", "db0:keys="] {
        assert!(info.contains(field), "INFO has {field}");
    }
    server.stop().expect("it stops cleanly");
}

#[test]
fn redis_cli_loads_in_bulk_and_iterates() {
    let (server, _place) = start("cli-bulk");
    let port = server.port().to_string();
    let commands: String = (0..5000).map(|n| format!("SET key:{n} value:{n}\r\n")).collect();
    let loaded = cli(&port, &["--pipe"], &commands);
    assert!(loaded.contains("errors: 0, replies: 5000"), "{loaded}");
    let mut names: Vec<String> =
        cli(&port, &["--scan", "--pattern", "key:*"], "").lines().map(str::to_string).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5000);
    let big = cli(&port, &["--bigkeys"], "");
    assert!(big.contains("Sampled 5000 keys"), "{big}");
    server.stop().expect("it stops cleanly");
}

/// The words of a line, as numbers.
fn numbers(line: &str) -> Vec<f64> {
    line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn redis_cli_watches() {
    let (server, _place) = start("cli-watch");
    let port = server.port().to_string();
    cli(&port, &["MSET", "a", "1", "b", "2"], "");
    let mut rows = 0;
    watch("redis-cli", &["-p", &port, "--stat", "-i", "0.05"], |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // keys, mem, clients, blocked, requests, connections
        if fields.first() == Some(&"2") {
            assert!(fields[1].ends_with('M') || fields[1].ends_with('K'), "{line}");
            assert!(fields[2].parse::<u32>().is_ok_and(|clients| clients >= 1), "{line}");
            assert_eq!(fields[3], "0", "{line}");
            assert!(fields[4].parse::<u32>().is_ok_and(|requests| requests >= 1), "{line}");
            rows += 1;
        }
        rows == 3
    });
    let once = cli(&port, &["--latency", "-i", "0.3"], "");
    let [min, max, average, samples] = numbers(once.lines().next().expect("a line"))[..] else { panic!("{once}") };
    assert!(min <= average && average <= max && samples >= 5.0, "{once}");
    let csv = cli(&port, &["--csv", "--latency", "-i", "0.3"], "");
    assert_eq!(numbers(csv.lines().last().expect("a line")).len(), 4, "{csv}");
    let mut ranges = 0;
    watch("redis-cli", &["-p", &port, "--latency-history", "-i", "0.2"], |line| {
        ranges += u32::from(line.contains("seconds range"));
        ranges == 2
    });
    let mut legend = false;
    watch("redis-cli", &["-p", &port, "--latency-dist", "-i", "0.2"], |line| {
        legend |= line.contains("From 0 to 100%");
        // A row of the spectrum ends its colors.
        legend && line.contains("\x1b[0m")
    });
    let own = output("redis-cli", &["--intrinsic-latency", "1"], "");
    assert!(own.contains("total runs (avg latency:"), "{own}");
    server.stop().expect("it stops cleanly");
}

#[test]
fn redis_cli_prints_in_all_forms() {
    let (server, _place) = start("cli-forms");
    let port = server.port().to_string();
    cli(&port, &["MSET", "a", "1", "b", "x \"y\""], "");
    assert_eq!(cli(&port, &["--csv", "MGET", "a", "b", "nothing"], ""), "\"1\",\"x \\\"y\\\"\",NULL\n");
    assert_eq!(cli(&port, &["--json", "MGET", "a", "nothing"], ""), "[\"1\",null]\n");
    assert_eq!(cli(&port, &["--json", "CONFIG", "GET", "port"], ""), format!("{{\"port\":\"{port}\"}}\n"));
    assert_eq!(cli(&port, &["--no-raw", "MGET", "a", "nothing"], ""), "1) \"1\"\n2) (nil)\n");
    assert_eq!(cli(&port, &["-3", "--no-raw", "CONFIG", "GET", "databases"], ""), "1# \"databases\" => \"16\"\n");
    assert_eq!(cli(&port, &["--no-raw", "GET"], ""), "(error) ERR wrong number of arguments for 'get' command\n");
    assert_eq!(cli(&port, &["-d", ";", "MGET", "a", "b"], ""), "1;x \"y\"\n");
    assert_eq!(cli(&port, &["-r", "3", "-i", "0.01", "INCR", "n"], ""), "1\n2\n3\n");
    assert_eq!(cli(&port, &["-X", "tag", "SET", "x", "tag"], "from a pipe"), "OK\n");
    assert_eq!(cli(&port, &["--quoted-input", "SET", "\"q\\x00\"", "1"], ""), "OK\n");
    assert_eq!(cli(&port, &["--quoted-json", "KEYS", "q*"], ""), "[\"q\\\\x00\"]\n");
    assert_eq!(output("redis-cli", &["-u", &format!("redis://127.0.0.1:{port}/3"), "DBSIZE"], ""), "0\n");
    assert_eq!(cli(&port, &["-e", "GET", "x"], ""), "from a pipe\n");
    failure("redis-cli", &["-p", &port, "-e", "NOSUCH"]);
    let help = cli(&port, &[], "help getrange\n");
    assert!(help.contains("GETRANGE") && help.contains("key start end"), "{help}");
    server.stop().expect("it stops cleanly");
}

#[test]
fn redis_cli_looks_through_the_keys() {
    let (server, _place) = start("cli-keys");
    let port = server.port().to_string();
    let commands: String = (0..1000).map(|n| format!("SET key:{n} {n}\r\n")).collect();
    cli(&port, &["--pipe"], &commands);
    cli(&port, &["SETRANGE", "big", "50000", "x"], "");
    assert_eq!(cli(&port, &["--scan", "--pattern", "key:99?"], "").lines().count(), 10);
    let big = cli(&port, &["--bigkeys"], "");
    assert!(big.contains("Biggest string found '\"big\"' has 50001 bytes"), "{big}");
    let memory = cli(&port, &["--memkeys"], "");
    assert!(memory.contains("Biggest string found '\"big\"'"), "{memory}");
    // Which keys are hot is known under an LFU policy only, and the text says so.
    let hot = failure("redis-cli", &["-p", &port, "--hotkeys"]);
    assert!(hot.contains("ERR An LFU maxmemory policy is not selected"), "{hot}");
    server.stop().expect("it stops cleanly");
}

#[test]
fn redis_cli_runs_scripts_from_files() {
    let (server, place) = start("cli-eval");
    let port = server.port().to_string();
    let file = place.data().join("add.lua");
    let eval = |source: &str, arguments: &[&str]| {
        std::fs::write(&file, source).expect("it is writable");
        cli(&port, &[&["--eval", text(&file)], arguments].concat(), "")
    };
    assert_eq!(eval("return {KEYS[1], ARGV[2]}", &["key", ",", "one", "two"]), "key\ntwo\n");
    assert_eq!(eval("return {#KEYS, #ARGV}", &[]), "0\n0\n");
    assert_eq!(eval("return {#KEYS, #ARGV}", &["a", "b"]), "2\n0\n");
    assert_eq!(eval("return {#KEYS, #ARGV}", &[",", "one"]), "0\n1\n");
    let add = "#!lua flags=allow-oom\n-- Adds to each key.
        for n, key in ipairs(KEYS) do redis.call('INCRBY', key, ARGV[n]) end
        return redis.call('MGET', unpack(KEYS))";
    assert_eq!(eval(add, &["a", "b", ",", "3", "-4"]), "3\n-4\n");
    assert_eq!(eval(add, &["a", "b", ",", "30", "-40"]), "33\n-44\n");
    let error = eval("return redis.call('LPUSH', KEYS[1], 'x')", &["a"]);
    assert!(error.starts_with("WRONGTYPE Operation against a key"), "{error}");
    let error = eval("return (", &[]);
    assert!(error.starts_with("ERR Error compiling script"), "{error}");
    assert_eq!(cli(&port, &["MGET", "a", "b"], ""), "33\n-44\n");
    server.stop().expect("it stops cleanly");
}

#[test]
fn redis_cli_fetches_the_data_as_a_file() {
    let (server, place) = start("cli-rdb");
    let port = server.port().to_string();
    assert_eq!(cli(&port, &["SET", "key", "value"], ""), "OK\n");
    let file = place.data().join("dump.rdb");
    cli(&port, &["--rdb", file.to_str().expect("the path is text")], "");
    let fetched = std::fs::read(&file).expect("redis-cli has written it");
    let has_value = fetched.windows(8).any(|bytes| bytes == b"key\x05valu");
    assert!(fetched.starts_with(b"REDIS") && has_value, "{}", fetched.escape_ascii());
    std::fs::remove_file(&file).expect("it is there");
    server.stop().expect("it stops cleanly");
}
