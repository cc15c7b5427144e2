//! `haypile import` into a directory: the server that starts on it has all data of the file, however the import ended
//! meanwhile, and errors are told. `crates/harness/tests/import.rs` compares with redis-server.

mod process;

use haypile_harness::small_disk::SmallDisk;
use haypile_rdb::{Key, Kind, VERSION, Writer};
use process::group::Group;
use process::{Server, TempDir};
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The end of an import: exit code, standard output, standard error.
struct Ended {
    code: Option<i32>,
    summary: String,
    errors: String,
}

fn command(file: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haypile"));
    command.args(["import", file, "--maxmemory", "128mb"]).args(more).stdin(Stdio::null());
    command
}

fn import(file: &Path, dir: &Path, more: &[&str]) -> Ended {
    let mut command = command(&file.to_string_lossy(), more);
    let output = command.arg("--dir").arg(dir).output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code(), summary: text(&output.stdout), errors: text(&output.stderr) }
}

/// A whole import.
fn imports(file: &Path, dir: &Path, more: &[&str]) -> String {
    let ended = import(file, dir, more);
    assert_eq!((ended.code, ended.errors.as_str()), (Some(0), ""), "{}", ended.summary);
    ended.summary
}

/// Runs an import that does not get to its end; returns all that it says.
fn fails(file: &Path, dir: &Path, more: &[&str]) -> String {
    let ended = import(file, dir, more);
    assert_eq!(ended.code, Some(1), "{}{}", ended.summary, ended.errors);
    ended.summary + &ended.errors
}

fn is_sound(dir: &Path) {
    let checked = Command::new(env!("CARGO_BIN_EXE_haypile")).arg("check").arg(dir).output().expect("the binary runs");
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

fn ask(dir: &Path, commands: &[(&str, &str)]) {
    let server = Server::start(dir, &["--databases", "100"]);
    let mut client = server.client();
    for (command, expected) in commands {
        assert_eq!(client.ask(command), *expected, "{command}");
    }
    drop(client);
    server.stop();
}

type File = Writer<haypile_rdb::File<Vec<u8>>>;

fn file() -> File {
    let mut file = Writer::file(Vec::new(), VERSION).expect("memory takes it");
    file.database(0).expect("memory takes it");
    file
}

fn key(file: &mut File, name: &str, kind: Kind, deadline_ms: Option<u64>) {
    let key = Key { name: name.as_bytes(), kind, deadline_ms, idle_s: None, frequency: None, position: 0 };
    file.key(&key).expect("memory takes it");
}

fn string(file: &mut File, name: &str, value: &[u8]) {
    key(file, name, Kind::String, None);
    file.string(value).expect("memory takes it");
}

fn set(file: &mut File, name: &str, members: u64) {
    key(file, name, Kind::Set, None);
    file.length(members).expect("memory takes it");
    (0..members).for_each(|n| file.string(format!("member {n}").as_bytes()).expect("memory takes it"));
}

fn saved(file: File, dir: &TempDir) -> PathBuf {
    let path = dir.path().join("dump.rdb");
    std::fs::write(&path, file.end().expect("memory takes it")).expect("there is room");
    path
}

/// Returns the path in this package as cargo says it now, because several checkouts may share a build.
fn redis_7() -> PathBuf {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this"));
    package.join("tests/data/redis-7.0.rdb")
}

#[test]
fn a_file_of_redis_is_in_the_server_that_starts() {
    let dir = TempDir::new();
    let data = dir.path().join("made/by/it");
    for round in 0..2 {
        let summary = imports(&redis_7(), &data, &[]);
        assert!(summary.starts_with("database 0: 5 strings, 1 lists, 3 sets, 2 sorted sets, "), "{round}: {summary}");
        assert!(summary.contains("libraries of functions: 1\n"), "{round}: {summary}");
        is_sound(&data);
        ask(
            &data,
            &[
                ("DBSIZE", ":15\r\n"),
                ("GET timed", "$1\r\nx\r\n"),
                (
                    "FUNCTION STATS",
                    "*4\r\n$14\r\nrunning_script\r\n$-1\r\n$7\r\nengines\r\n*2\r\n$3\r\nLUA\r\n*4\r\n$15\r\nlibraries_count\r\n:1\r\n$15\r\nfunctions_count\r\n:1\r\n",
                ),
                ("PEXPIRETIME timed", ":4102444800123\r\n"),
                ("ZSCORE zset m3", "$19\r\n0.30000000000000004\r\n"),
                ("LINDEX list -1", "$2\r\n19\r\n"),
                ("XLEN stream", ":9\r\n"),
                (
                    "XPENDING stream group",
                    "*4\r\n:5\r\n$6\r\n1000-2\r\n$6\r\n1003-1\r\n*2\r\n*2\r\n$5\r\nalice\r\n$1\r\n3\r\n*2\r\n$3\r\nbob\r\n$1\r\n2\r\n",
                ),
            ],
        );
    }
}

#[test]
fn keys_take_the_place_of_others_or_leave_it() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    ask(
        &data,
        &[
            ("SET a old", "+OK\r\n"),
            ("RPUSH b old", ":1\r\n"),
            ("SET gone old", "+OK\r\n"),
            ("PEXPIREAT gone 4000000000000", ":1\r\n"),
            ("SET lapsed old", "+OK\r\n"),
        ],
    );
    let mut made = file();
    string(&mut made, "a", b"new");
    string(&mut made, "b", b"new");
    set(&mut made, "gone", 2);
    string(&mut made, "long", &vec![b'x'; 100_000]);
    key(&mut made, "lapsed", Kind::String, Some(1000));
    made.string(b"new").unwrap();
    made.database(3).unwrap();
    set(&mut made, "many", 1000);
    key(&mut made, "empty", Kind::Hash, None);
    made.length(0).unwrap();
    let path = saved(made, &dir);

    let summary = imports(&path, &data, &["--keep"]);
    for line in ["database 0: 1 strings\n", "database 3: 1 sets\n", "left out: 3 keys that were there already\n"] {
        assert!(summary.contains(line), "{line:?} is not in {summary}");
    }
    is_sound(&data);
    ask(&data, &[("GET a", "$3\r\nold\r\n"), ("LLEN b", ":1\r\n"), ("STRLEN long", ":100000\r\n")]);
    let summary = imports(&path, &data, &[]);
    for line in ["database 0: 3 strings, 1 sets\n", "left out: 1 keys whose time", "left out: 1 collections without"] {
        assert!(summary.contains(line), "{line:?} is not in {summary}");
    }
    is_sound(&data);
    ask(
        &data,
        &[
            ("MGET a b lapsed", "*3\r\n$3\r\nnew\r\n$3\r\nnew\r\n$3\r\nold\r\n"),
            ("SCARD gone", ":2\r\n"),
            ("PTTL gone", ":-1\r\n"),
            ("DBSIZE", ":5\r\n"),
            ("SELECT 3", "+OK\r\n"),
            ("SCARD many", ":1000\r\n"),
            ("DBSIZE", ":1\r\n"),
        ],
    );
}

/// An import of standard input.
struct Piped(Child);

impl Piped {
    fn start(dir: &Path) -> Piped {
        let mut command = command("-", &["--dir"]);
        Piped(command.arg(dir).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the binary runs"))
    }

    /// When this returns, all but a few hundred kilobytes were taken.
    fn feed(&mut self, bytes: &[u8]) {
        self.0.stdin.as_mut().expect("it is a pipe").write_all(bytes).expect("it reads");
    }

    fn kill(mut self) {
        self.0.kill().expect("it is our child");
        self.0.wait().expect("it is our child");
    }
}

/// In an empty directory a key is there when all are. Elsewhere nothing is lost of the keys taken but those that the
/// process had not handed over yet.
#[test]
fn a_killed_import_is_run_again() {
    is_killed_and_run_again(None, 0..=0);
    is_killed_and_run_again(Some("key:0"), KEYS / 10..=KEYS / 2);
}

const KEYS: usize = 60_000;

fn is_killed_and_run_again(there_before: Option<&str>, expected: RangeInclusive<usize>) {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    if let Some(key) = there_before {
        std::fs::create_dir(&data).unwrap();
        ask(&data, &[(&format!("SET {key} before"), "+OK\r\n")]);
    }
    let mut made = file();
    (0..KEYS).for_each(|n| string(&mut made, &format!("key:{n}"), format!("{n} ").repeat(20).as_bytes()));
    let path = saved(made, &dir);
    let bytes = std::fs::read(&path).unwrap();
    let mut piped = Piped::start(&data);
    piped.feed(&bytes[..bytes.len() / 2]);
    piped.kill();
    is_sound(&data);
    let server = Server::start(&data, &[]);
    let mut client = server.client();
    let there: usize = client.ask("DBSIZE")[1..].trim().parse().unwrap();
    assert!(expected.contains(&there), "{there} keys");
    if there > 0 {
        assert_eq!(client.ask("GET key:0"), format!("$40\r\n{}\r\n", "0 ".repeat(20)));
    }
    drop(client);
    server.kill();
    for more in [&["--keep"][..], &[]] {
        let summary = imports(&path, &data, more);
        let kept = format!("left out: {there} keys that were there already");
        assert_eq!(summary.contains(&kept), there > 0 && !more.is_empty(), "{summary}");
        is_sound(&data);
        let last = KEYS - 1;
        let value = format!("{last} ").repeat(20);
        ask(
            &data,
            &[
                ("DBSIZE", &format!(":{KEYS}\r\n")),
                (&format!("GET key:{last}"), &format!("${}\r\n{value}\r\n", value.len())),
            ],
        );
    }
}

#[test]
fn a_giant_is_there_whole_or_not_at_all() {
    const MEMBERS: u64 = 400_000;
    let dir = TempDir::new();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    ask(&data, &[("SET there x", "+OK\r\n")]);
    let mut made = file();
    set(&mut made, "small", 3);
    string(&mut made, "before", b"x");
    set(&mut made, "giant", MEMBERS);
    string(&mut made, "after", b"x");
    let path = saved(made, &dir);
    let bytes = std::fs::read(&path).unwrap();
    let mut piped = Piped::start(&data);
    piped.feed(&bytes[..bytes.len() / 4 * 3]);
    piped.kill();
    is_sound(&data);
    ask(&data, &[("DBSIZE", ":3\r\n"), ("EXISTS giant", ":0\r\n"), ("SCARD small", ":3\r\n")]);
    imports(&path, &data, &[]);
    is_sound(&data);
    ask(&data, &[("DBSIZE", ":5\r\n"), ("SCARD giant", &format!(":{MEMBERS}\r\n"))]);
    // In an empty directory, the value is committed while the others are loaded.
    let data = dir.path().join("other");
    imports(&path, &data, &[]);
    is_sound(&data);
    let members = format!(":{MEMBERS}\r\n");
    ask(
        &data,
        &[("DBSIZE", ":4\r\n"), ("SCARD giant", &members), ("SCARD small", ":3\r\n"), ("GET after", "$1\r\nx\r\n")],
    );
}

/// Redis does not load such a file either.
#[test]
fn a_key_that_is_there_twice_is_refused_where_nothing_was() {
    const MEMBERS: u64 = 400_000;
    for giants in [[false, false], [false, true], [true, false]] {
        let dir = TempDir::new();
        let data = dir.path().join("data");
        let mut made = file();
        string(&mut made, "other", b"x");
        for is_giant in giants {
            match is_giant {
                true => set(&mut made, "again", MEMBERS),
                false => string(&mut made, "again", b"x"),
            }
        }
        let path = saved(made, &dir);
        let said = fails(&path, &data, &[]);
        assert!(said.contains("The file is wrong: key \"again\" of database 0 is in it twice."), "{said}");
        let committed = giants.contains(&true);
        assert!(said.contains(&format!("what was, {} keys, stays", u8::from(committed))), "{said}");
        is_sound(&data);
        let count = format!(":{}\r\n", u8::from(committed));
        ask(&data, &[("DBSIZE", &count), ("EXISTS other", ":0\r\n"), ("SET again x", "+OK\r\n")]);
        // Elsewhere the last one stays.
        imports(&path, &data, &[]);
        is_sound(&data);
        ask(&data, &[("DBSIZE", ":2\r\n"), ("EXISTS other", ":1\r\n")]);
    }
}

/// More than stays in memory, of all types, in several databases.
#[test]
fn what_memory_does_not_hold_is_sorted_in_a_file() {
    const EACH: usize = 3000;
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let mut made = file();
    let value = |n: usize| format!("{n} ").repeat(100 + n % 1000);
    for database in [0, 9] {
        made.database(database).unwrap();
        for n in 0..EACH {
            let deadline = n.is_multiple_of(3).then_some(4_102_444_800_000 + n as u64);
            key(&mut made, &format!("string:{n}"), Kind::String, deadline);
            made.string(value(n).as_bytes()).unwrap();
            set(&mut made, &format!("set:{n}"), n as u64 % 100 + 1);
            key(&mut made, &format!("hash:{n}"), Kind::Hash, None);
            made.length(1).unwrap();
            made.string(b"field").unwrap();
            made.string(value(n).as_bytes()).unwrap();
        }
    }
    let path = saved(made, &dir);
    let summary = imports(&path, &data, &["--memtable-size", "1mb"]);
    for database in [0, 9] {
        let line = format!("database {database}: {EACH} strings, {EACH} sets, {EACH} hashes\n");
        assert!(summary.contains(&line), "{line:?} is not in {summary}");
    }
    is_sound(&data);
    let (first, last) = (value(0), value(EACH - 1));
    let (first, last) = (format!("${}\r\n{first}\r\n", first.len()), format!("${}\r\n{last}\r\n", last.len()));
    for database in ["SELECT 0", "SELECT 9"] {
        ask(
            &data,
            &[
                (database, "+OK\r\n"),
                ("DBSIZE", &format!(":{}\r\n", 3 * EACH)),
                ("GET string:0", &first),
                ("PEXPIRETIME string:3", ":4102444800003\r\n"),
                ("HGET hash:2999 field", &last),
                ("SCARD set:99", ":100\r\n"),
                ("SISMEMBER set:99 \"member 99\"", ":1\r\n"),
            ],
        );
    }
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let mut made = file();
    (0..200).for_each(|n| string(&mut made, &format!("key:{n}"), b"value"));
    set(&mut made, "twice", 2);
    let good = saved(made, &dir);
    let bytes = std::fs::read(&good).unwrap();
    let bad = dir.path().join("bad.rdb");
    let check = |bytes: &[u8], expected: &str, keys: u64| {
        std::fs::write(&bad, bytes).unwrap();
        let said = fails(&bad, &data, &[]);
        assert!(said.contains(expected), "{expected:?} is not in {said}");
        let stays = format!("what was, {keys} keys, stays in the data directory");
        assert!(said.contains(&stays), "{stays:?} is not in {said}");
        is_sound(&data);
    };
    check(&bytes[..bytes.len() - 15], "key \"twice\": the data ends too early", 200);
    check(&bytes[..bytes.len() - 5], "the data ends too early", 201);
    check(b"", "at byte 0: this is no RDB file", 0);
    check(b"hello, world", "this is no RDB file", 0);
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    check(&damaged, "the checksum is wrong", 201);
    let mut damaged = bytes.clone();
    let at = damaged.windows(8).rposition(|window| window == b"member 1").unwrap();
    damaged[at + 7] = b'0';
    check(&damaged, "key \"twice\": corrupt: an element is there twice", 200);
    let mut made = file();
    string(&mut made, "here", b"x");
    made.database(16).unwrap();
    string(&mut made, "there", b"x");
    let made = made.end().unwrap();
    check(&made, "keys of database 16, and here are 16, counted from 0: add --databases 17", 1);
    std::fs::write(&bad, &made).unwrap();
    imports(&bad, &data, &["--databases", "17"]);
    let missing = fails(&dir.path().join("missing.rdb"), &data, &[]);
    assert!(missing.contains("missing.rdb cannot be read: No such file"), "{missing}");
    assert!(fails(dir.path(), &data, &[]).contains("is a directory, no file"));
    assert!(fails(&good, &data, &["--engine", "memory"]).contains("nothing stays on disk"));
    assert!(fails(&good, &data, &["--maxmemroy", "1gb"]).contains("did you mean 'maxmemory'"));
}

#[test]
fn any_member_takes_a_file_to_the_leader_of_its_group_and_gives_one() {
    let group = Group::start(&["--enable-debug-command", "yes"]);
    let leader = group.leader();
    group.settle();
    let port = |at: usize| group.ports[at].to_string();
    let told = |words: &[&str], at: usize| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haypile"));
        let output = command.args(words).args(["--host", "127.0.0.1", "--port", &port(at)]).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let said = told(&["import", &redis_7().to_string_lossy()], one);
    assert!(said.contains("libraries of functions: 1\n") && said.contains("16 keys imported"), "{said}");
    group.settle();
    let digests = group.digests();
    assert!(digests.iter().all(|digest| *digest == digests[0] && !digest.contains("0000000000")), "{digests:?}");
    let exported = group.dirs[other].path().join("export.rdb");
    let said = told(&["export", &exported.to_string_lossy()], other);
    assert!(said.contains("16 keys exported"), "{said}");
    // An import over all that is there changes nothing.
    assert!(told(&["import", &exported.to_string_lossy()], other).contains("16 keys imported"));
    group.settle();
    assert_eq!(group.digests(), digests);
}

#[test]
fn a_directory_belongs_to_one() {
    let dir = TempDir::new();
    let mut made = file();
    string(&mut made, "a", b"x");
    let path = saved(made, &dir);
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let server = Server::start(&data, &[]);
    let said = fails(&path, &data, &[]);
    assert!(said.contains(&format!("process id {}", server.pid())), "{said}");
    assert_eq!(server.client().ask("DBSIZE"), ":0\r\n");
    server.stop();
    imports(&path, &data, &[]);
}

#[test]
fn a_full_disk_is_said() {
    let dir = TempDir::new();
    // Such that are committed, and such that are loaded.
    for value_bytes in [1 << 20, 10_000] {
        let Some(disk) = SmallDisk::mount(&dir.path().join(value_bytes.to_string()), "size=128m") else { return };
        let mut made = file();
        let mut state = 1u64;
        for n in 0..(200 << 20) / value_bytes {
            let mut noise = || {
                state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
                (state >> 56) as u8
            };
            let value: Vec<u8> = (0..value_bytes).map(|_| noise()).collect();
            string(&mut made, &format!("k{n}"), &value);
        }
        let path = saved(made, &dir);
        let small = ["--disk-free-min", "20mb", "--log-segment-size", "1mb", "--memtable-size", "4mb"];
        let said = fails(&path, &disk.0, &small);
        let whys = [
            "Haypile cannot write: the disk has ",
            "Haypile cannot write: no space for the log",
            "the disk is full: it has ",
        ];
        assert!(whys.iter().any(|why| said.contains(why)), "{said}");
        assert!(said.contains("Not all of the file was imported; what was, "), "{said}");
        assert!(!said.contains("Reads go on"), "{said}");
        is_sound(&disk.0);
    }
}

#[test]
fn a_command_line_that_makes_no_sense_is_told_apart() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haypile"));
    let output = command.args(["import", "x.rdb", "--host", "h", "--maxmemory", "1gb"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("--maxmemory makes no sense with a server"));
}
