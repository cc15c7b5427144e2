//! `haypile import` beside a real redis-server: what redis-server has after it has loaded a file is in the directory or
//! the server that the file was imported into, key by key.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use haypile_harness::client::{Client, Reply};
use haypile_harness::random::Random;
use haypile_harness::server::{Server, Template, Workplace, haypile_binary};

const DATABASES: u64 = 16;
const DEBUG: &str = "--enable-debug-command yes";

fn ours(more: &str) -> Template {
    let binary = haypile_binary().expect("it is built");
    Template::haypile(&binary, &format!("{DEBUG} --maxmemory 128mb {more}")).expect("a command line")
}

fn redis(more: &str) -> Template {
    Template::redis(&format!("{DEBUG} {more}")).expect("a command line")
}

fn place(name: &str) -> Workplace {
    Workplace::new(name, None).expect("there is a disk")
}

fn start(template: &Template, place: &Workplace) -> (Server, Client) {
    let server = Server::start(template, place).expect("the server starts").0;
    let client = server.client().expect("it accepts clients");
    (server, client)
}

fn ask<W: AsRef<[u8]>>(client: &mut Client, words: &[W]) -> Reply {
    client.call(words).expect("the server answers")
}

fn tell(client: &mut Client, line: &str) {
    let reply = client.command(line).expect("the server answers");
    assert!(reply.error().is_none(), "{line}: {reply}");
}

fn import(file: &str, more: &[&str]) -> Command {
    let mut command = Command::new(haypile_binary().expect("it is built"));
    command.args(["import", file]).args(more).stdin(Stdio::null());
    command
}

/// Runs it to its end: its exit code, and what it said.
fn ended(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("the binary runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn imports(command: &mut Command) -> String {
    let (code, said) = ended(command);
    assert_eq!(code, Some(0), "{said}");
    said
}

/// All that can be asked of each key of each database.
fn content(client: &mut Client) -> Vec<String> {
    let mut content = Vec::new();
    for database in 0..DATABASES {
        tell(client, &format!("SELECT {database}"));
        let keys = ask(client, &["KEYS", "*"]);
        let keys: BTreeSet<&[u8]> =
            keys.elements().expect("an array").iter().map(|key| key.bytes().expect("a name")).collect();
        for key in keys {
            let mut line = format!("{database} {}", key.escape_ascii());
            let mut streams = Vec::new();
            for question in ["TYPE", "PEXPIRETIME", "DEBUG DIGEST-VALUE"] {
                let words = question.split(' ').map(str::as_bytes).chain([key]).collect::<Vec<_>>();
                let reply = ask(client, &words);
                if reply.bytes() == Some(b"stream") {
                    streams.extend(["GROUPS", "STREAM"]);
                }
                line += &format!(" {reply}");
            }
            for question in streams {
                let reply = ask(client, &[&b"XINFO"[..], question.as_bytes(), key]);
                // How the tree of a stream is made is its server's affair.
                let elements = reply.elements().expect("an array");
                let elements = elements.chunks(2).filter(|pair| !pair[0].to_string().contains("radix"));
                line += &elements
                    .map(|pair| format!(" {} {}", pair[0], pair.last().unwrap_or(&pair[0])))
                    .collect::<String>();
                let groups = ask(client, &[&b"XINFO"[..], b"GROUPS", key]);
                for group in groups.elements().expect("an array") {
                    let name = group.elements().expect("fields")[1].bytes().expect("a name").to_vec();
                    let pending = ask(client, &[b"XPENDING", key, &name, b"-", b"+", b"100000"]);
                    for entry in pending.elements().expect("an array") {
                        // All but the time since it was delivered.
                        let entry = entry.elements().expect("four");
                        line += &format!(" {} {} {}", entry[0], entry[1], entry[3]);
                    }
                }
            }
            content.push(line);
        }
    }
    content
}

fn same(ours: &[String], theirs: &[String], what: &str) {
    for (our, their) in ours.iter().zip(theirs) {
        assert_eq!(our, their, "{what}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
}

/// Returns the content of a redis-server that has loaded a file; `None` if it cannot.
fn loaded_by_redis(file: &Path) -> Option<Vec<String>> {
    let place = place("import-redis");
    std::fs::copy(file, place.data().join("dump.rdb")).expect("there is room");
    let server = Server::start(&redis(""), &place).ok()?.0;
    Some(content(&mut server.client().expect("it accepts clients")))
}

/// Returns the content of our server in a directory that a file was imported into.
fn imported(file: &Path) -> Vec<String> {
    let place = place("import-ours");
    imports(import(&file.to_string_lossy(), &["--dir"]).arg(place.data()));
    let template = ours("");
    assert!(template.check(&place.data()).expect("it is sound"));
    content(&mut start(&template, &place).1)
}

/// Returns the folder of this package as cargo says it now, because several checkouts may share a build.
fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this").into()
}

#[test]
fn files_of_real_servers_are_what_redis_makes_of_them() {
    let dir = package().join("../rdb/tests/data");
    let mut compared = 0;
    for entry in std::fs::read_dir(dir).expect("it is in the repository") {
        let path = entry.expect("it can be listed").path();
        if path.extension().is_none_or(|extension| extension != "rdb") {
            continue;
        }
        let Some(theirs) = loaded_by_redis(&path) else {
            let said = ended(import(&path.to_string_lossy(), &["--dir"]).arg(place("import-bad").data()));
            assert_eq!(said.0, Some(1), "{}: {}", path.display(), said.1);
            continue;
        };
        same(&imported(&path), &theirs, &path.display().to_string());
        compared += 1;
    }
    assert!(compared >= 7, "{compared} files");
}

fn text(random: &mut Random, bytes_max: u64) -> Vec<u8> {
    match random.below(4) {
        0 => (random.next() as i64 >> random.below(64)).to_string().into_bytes(),
        1 => b"pile of hay ".repeat(random.below(1 + bytes_max / 12) as usize),
        _ => {
            let mut bytes = vec![0; random.below(bytes_max) as usize];
            random.fill(&mut bytes);
            bytes
        }
    }
}

/// Makes a value of a type.
fn make(client: &mut Client, random: &mut Random, kind: &str, key: &str, elements: usize, bytes_max: u64) {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut send = |words: &mut Vec<Vec<u8>>, command: &str| {
        let command = [command, key].map(|word| word.as_bytes().to_vec());
        let reply = ask(client, &[&command[..], words].concat());
        assert!(reply.error().is_none(), "{reply}");
        words.clear();
    };
    let command = match kind {
        "string" => "SET",
        "list" => "RPUSH",
        "set" => "SADD",
        "zset" => "ZADD",
        "hash" => "HSET",
        _ => "",
    };
    if kind == "string" {
        words.push(text(random, bytes_max));
        return send(&mut words, command);
    }
    for n in 0..elements {
        match kind {
            "stream" => {
                words.extend([format!("{}-{}", 5 + n / 3, n % 3).into_bytes(), b"name".to_vec()]);
                words.extend([text(random, bytes_max), b"more".into(), b"x".into()]);
                send(&mut words, "XADD");
                continue;
            }
            "zset" => words.push(format!("{}", random.fraction() * 1e6).into_bytes()),
            "hash" => words.push(format!("field {n}").into_bytes()),
            _ => {}
        }
        words.push(text(random, bytes_max));
        if words.len() >= 500 {
            send(&mut words, command);
        }
    }
    if kind != "stream" {
        if !words.is_empty() {
            send(&mut words, command);
        }
        return;
    }
    let mut group = |line: String| tell(client, &line.replace("KEY", key));
    if elements > 3 {
        group("XDEL KEY 5-1 6-0".into());
    }
    for number in 0..2 {
        group(format!("XGROUP CREATE KEY group{number} 5-0"));
        for consumer in ["alice", "bob"] {
            let count = 1 + elements / 7;
            group(format!("XREADGROUP GROUP group{number} {consumer} COUNT {count} STREAMS KEY >"));
        }
        group(format!("XGROUP CREATECONSUMER KEY group{number} idle"));
    }
    group("XREADGROUP GROUP group1 bob STREAMS KEY 0".into());
}

/// A file of all types and sizes, with deadlines, in several databases, made by redis-server; and what that has.
fn file_of_redis(place: &Workplace, large: bool) -> (PathBuf, Vec<String>) {
    let (server, mut client) = start(&redis("--maxmemory-policy allkeys-lru"), place);
    let mut random = Random::of_part(77, u64::from(large));
    for database in [0, 3, 15] {
        tell(&mut client, &format!("SELECT {database}"));
        for kind in ["string", "list", "set", "zset", "hash", "stream"] {
            for (n, elements) in [1, 3, 20, 150, 600, 3000].into_iter().enumerate() {
                let key = format!("{kind}:{n}");
                make(&mut client, &mut random, kind, &key, elements, 70);
                if n % 2 == 1 {
                    tell(&mut client, &format!("PEXPIREAT {key} {}", 4_102_444_800_000 + random.below(1 << 30)));
                }
            }
            if large && database == 3 {
                // More than a megabyte as a payload.
                let (elements, bytes) = if kind == "string" { (1, (1 << 20) - 2) } else { (20_000, 250) };
                let key = format!("{kind}:large");
                match kind {
                    "string" => {
                        let mut bytes = vec![0; bytes as usize];
                        random.fill(&mut bytes);
                        ask(&mut client, &[b"SET", key.as_bytes(), &bytes]);
                    }
                    _ => make(&mut client, &mut random, kind, &key, elements, bytes),
                }
                if kind != "list" {
                    tell(&mut client, &format!("PEXPIREAT {key} 4102444800123"));
                }
            }
        }
        tell(&mut client, "XGROUP CREATE none g 0 MKSTREAM");
        tell(&mut client, "SET going x PX 1");
    }
    // The key is in the file where the clock has not come that far when it is saved.
    tell(&mut client, "SAVE");
    let theirs = content(&mut client).into_iter().filter(|line| !line.contains(" going ")).collect();
    server.stop().expect("it stops");
    (place.data().join("dump.rdb"), theirs)
}

#[test]
fn a_directory_has_what_redis_had() {
    let source = place("import-source");
    let (file, theirs) = file_of_redis(&source, false);
    same(&imported(&file), &theirs, "imported");
}

#[test]
fn a_server_has_what_redis_had() {
    let source = place("import-source");
    let (file, theirs) = file_of_redis(&source, true);
    let file = file.to_string_lossy();
    for (name, template) in [("ours", ours("")), ("redis", redis(""))] {
        for limit in ["1mb", "512mb"] {
            let place = place("import-target");
            let (server, mut client) = start(&template, &place);
            tell(&mut client, &format!("CONFIG SET proto-max-bulk-len {limit}"));
            tell(&mut client, "RPUSH string:0 other");
            let port = server.port().to_string();
            for _ in 0..2 {
                let said = imports(&mut import(&file, &["--port", &port]));
                assert!(
                    said.contains("database 15: 6 strings, 6 lists, 6 sets, 6 sorted sets, 6 hashes, 7 streams"),
                    "{said}"
                );
                same(&content(&mut client), &theirs, &format!("{name} with {limit}"));
            }
            let said = imports(&mut import(&file, &["--port", &port, "--keep"]));
            assert!(said.contains(&format!("left out: {} keys that were there", theirs.len())), "{said}");
            same(&content(&mut client), &theirs, &format!("{name} with {limit}, kept"));
            assert_eq!(ask(&mut client, &["DBSIZE"]), Reply::Integer(37), "nothing temporary is left");
        }
    }
}

/// The file has sets in listpacks and streams with the times at which consumers were active, as Redis 7.2 lays them
/// out. redis-server 7.0 refuses these forms.
#[test]
fn an_older_server_has_what_a_newer_one_had() {
    let file = &package().join("tests/data/forms-of-7.2.rdb");
    assert!(loaded_by_redis(file).is_none(), "an older redis-server can do it alone");
    let expected = imported(file);
    assert_eq!(expected.len(), 8, "{expected:?}");
    for (name, template) in [("ours", ours("")), ("redis", redis(""))] {
        let place = place("import-older");
        let (server, mut client) = start(&template, &place);
        let port = server.port().to_string();
        imports(&mut import(&file.to_string_lossy(), &["--port", &port]));
        same(&content(&mut client), &expected, name);
        tell(&mut client, "SELECT 0");
        let members = ask(&mut client, &["SMISMEMBER", "set", "straw", "-300", "1000000000000000", "8"]);
        assert_eq!(members, Reply::Array([1, 1, 1, 0].map(Reply::Integer).to_vec()), "{name}");
        let said = imports(&mut import(&file.to_string_lossy(), &["--port", &port, "--keep"]));
        assert!(said.contains("left out: 8 keys that were there"), "{said}");
    }
}

/// A set whose listpack goes in one command, and whose older form, with its numbers as texts, does not.
#[test]
fn an_older_server_gets_what_is_too_long_in_its_own_form_in_pieces() {
    const MEMBERS: i64 = 70_000;
    const FIRST: i64 = 1_000_000_000_000_000;
    let mut listpack = vec![0; 4];
    // The count is not kept where it is this large.
    listpack.extend([0xff, 0xff]);
    for member in FIRST..FIRST + MEMBERS {
        listpack.push(0xf4);
        listpack.extend(member.to_le_bytes());
        listpack.push(9);
    }
    listpack.push(0xff);
    let bytes = listpack.len() as u32;
    listpack[..4].copy_from_slice(&bytes.to_le_bytes());
    // Type 20 is a set in a listpack, and a checksum of zeros none.
    let head = [&b"REDIS0011\xfe\x00\x14\x03big\x80"[..], &bytes.to_be_bytes()].concat();
    let file = [&head[..], &listpack, b"\xff", &[0; 8]].concat();
    let source = place("import-long");
    let path = source.data().join("file.rdb");
    std::fs::write(&path, file).expect("there is room");
    let place = place("import-older-long");
    let (server, mut client) = start(&redis("--proto-max-bulk-len 1mb"), &place);
    let port = server.port().to_string();
    imports(&mut import(&path.to_string_lossy(), &["--port", &port]));
    assert_eq!(ask(&mut client, &["KEYS", "*"]), Reply::Array(vec![Reply::bulk("big")]));
    assert_eq!(ask(&mut client, &["SCARD", "big"]), Reply::Integer(MEMBERS));
    let last = (FIRST + MEMBERS - 1).to_string();
    assert_eq!(ask(&mut client, &["SISMEMBER", "big", &last]), Reply::Integer(1));
}

#[test]
fn idle_keys_are_idle_in_a_server() {
    let source = place("import-idle");
    let (server, mut client) = start(&redis("--maxmemory-policy allkeys-lru"), &source);
    tell(&mut client, "SET a x");
    let dumped = ask(&mut client, &["DUMP", "a"]);
    let dumped = dumped.bytes().expect("it is there");
    ask(&mut client, &[b"RESTORE", &b"idle"[..], b"0", dumped, b"IDLETIME", b"5000"]);
    tell(&mut client, "SAVE");
    server.stop().expect("it stops");
    let place = place("import-target");
    let (server, mut client) = start(&ours(""), &place);
    let file = source.data().join("dump.rdb");
    imports(&mut import(&file.to_string_lossy(), &["--port", &server.port().to_string()]));
    let idle = |client: &mut Client, key: &str| ask(client, &["OBJECT", "IDLETIME", key]).integer().expect("a number");
    assert!(idle(&mut client, "idle") >= 5000);
    assert!(idle(&mut client, "a") < 1000);
}

#[test]
fn a_server_that_does_not_take_it_is_told() {
    let source = place("import-source");
    let (server, mut client) = start(&redis("--databases 20"), &source);
    tell(&mut client, "SET a x");
    tell(&mut client, "SELECT 18");
    tell(&mut client, "SET b x");
    tell(&mut client, "SAVE");
    server.stop().expect("it stops");
    let file = source.data().join("dump.rdb").to_string_lossy().into_owned();

    let place = place("import-target");
    let (server, mut client) = start(&ours(""), &place);
    tell(&mut client, "CONFIG SET requirepass secret");
    let port = server.port().to_string();
    let (code, said) = ended(&mut import(&file, &["--port", &port]));
    assert!(code == Some(1) && said.contains("refuses: NOAUTH"), "{said}");
    let (code, said) = ended(&mut import(&file, &["--port", &port, "--password", "wrong"]));
    assert!(code == Some(1) && said.contains("refuses: WRONGPASS"), "{said}");
    for variable in ["HAYPILE_PASSWORD", "REDISCLI_AUTH"] {
        let (code, said) = ended(import(&file, &["--port", &port]).env(variable, "secret"));
        assert_eq!(code, Some(1), "{said}");
        let why = format!(
            "keys of database 18, which the server 127.0.0.1:{port} does not take: ERR DB index is out of range"
        );
        assert!(said.contains(&why) && said.contains("Set its `databases` to 19 or more."), "{said}");
        assert!(said.contains("what was, 1 keys, stays in the server"), "{said}");
    }
    tell(&mut client, "AUTH secret");
    assert_eq!(ask(&mut client, &["DBSIZE"]), Reply::Integer(1));
    server.stop().expect("it stops");
    let (code, said) = ended(&mut import(&file, &["--host", "localhost", "--port", &port]));
    assert!(code == Some(1) && said.contains(&format!("The server localhost:{port} cannot be reached")), "{said}");
}

/// A value that is too long for one command is not there before it is whole, and what a kill leaves of it goes by
/// itself.
#[test]
fn a_killed_import_into_a_server_leaves_no_half_of_a_key() {
    let source = place("import-source");
    let (server, mut client) = start(&redis(""), &source);
    let mut random = Random::of_part(78, 0);
    make(&mut client, &mut random, "list", "giant", 40_000, 250);
    tell(&mut client, "SAVE");
    let theirs = content(&mut client);
    server.stop().expect("it stops");
    let bytes = std::fs::read(source.data().join("dump.rdb")).expect("it was saved");

    let place = place("import-target");
    let (server, mut client) = start(&ours(""), &place);
    tell(&mut client, "CONFIG SET proto-max-bulk-len 1mb");
    let port = server.port().to_string();
    let spawn =
        || import("-", &["--port", &port]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = spawn().expect("the binary runs");
    let pipe = child.stdin.as_mut().expect("it is a pipe");
    pipe.write_all(&bytes[..bytes.len() / 4 * 3]).expect("it reads");
    // The beginning of the value was sent when the server has it.
    let temporary = loop {
        match ask(&mut client, &["KEYS", "*"]).elements().expect("an array") {
            [only] => break only.bytes().expect("a name").to_vec(),
            _ => sleep(Duration::from_millis(5)),
        }
    };
    assert!(temporary.starts_with(b"haypile:import:"), "{}", temporary.escape_ascii());
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    let ttl = ask(&mut client, &[b"PTTL", &temporary[..]]).integer().expect("a number");
    assert!((1..=3_600_000).contains(&ttl), "{ttl}");
    // Where it can say something at its end, it takes it away itself.
    let mut child = spawn().expect("the binary runs");
    child.stdin.take().expect("it is a pipe").write_all(&bytes[..bytes.len() / 4 * 3]).expect("it reads");
    assert_eq!(child.wait().expect("it is our child").code(), Some(1));
    assert_eq!(ask(&mut client, &["DBSIZE"]), Reply::Integer(1));
    assert_eq!(ask(&mut client, &[b"DEL", &temporary[..]]), Reply::Integer(1));
    let file = source.data().join("dump.rdb");
    imports(&mut import(&file.to_string_lossy(), &["--port", &port]));
    same(&content(&mut client), &theirs, "imported");
}
