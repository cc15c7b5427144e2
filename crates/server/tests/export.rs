//! `haypile export`: the data of a directory, a backup or a server are in the file, nothing of them changes, and the
//! file is whole or not there. `crates/harness/tests/export.rs` has redis-server load such files.

mod process;

use haypile_harness::small_disk::SmallDisk;
use haypile_rdb::{Event, Kind, Sink, VERSION, VERSION_WITH_FIELD_DEADLINES, read_file};
use process::{Client, Ends, Server, TempDir};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

fn haypile(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haypile"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

/// A whole export, and its summary.
fn exports(file: &Path, from: &[&str]) -> String {
    let Output { status, stdout, stderr } =
        haypile(&["export", path(file)]).args(from).output().expect("the binary runs");
    assert_eq!((status.code(), text(&stderr)), (Some(0), String::new()), "{}", text(&stdout));
    text(&stdout)
}

/// Runs an export that fails; returns the reason.
fn fails(file: &Path, from: &[&str]) -> String {
    let Output { status, stderr, .. } = haypile(&["export", path(file)]).args(from).output().expect("the binary runs");
    assert_eq!(status.code(), Some(1), "{}", text(&stderr));
    text(&stderr)
}

/// The contents of a file: its version, and of each key its database, name, type, deadline and number of elements.
#[derive(Default)]
struct Content {
    version: u32,
    database: u64,
    sizes: BTreeMap<u64, (u64, u64)>,
    keys: HashMap<(u64, Vec<u8>), (Kind, Option<u64>, u64)>,
    idle: usize,
    last: (u64, Vec<u8>),
}

impl Sink for Content {
    type Error = Infallible;

    fn take(&mut self, event: Event<'_>) -> Result<(), Infallible> {
        match event {
            Event::Database(number) => self.database = number,
            Event::Sizes { keys, deadlines } => drop(self.sizes.insert(self.database, (keys, deadlines))),
            Event::Key(key) => {
                self.last = (self.database, key.name.to_vec());
                self.idle += usize::from(key.idle_s.is_some() || key.frequency.is_some());
                let before = self.keys.insert(self.last.clone(), (key.kind, key.deadline_ms, 0));
                assert_eq!(before, None, "{} is there twice", key.name.escape_ascii());
            }
            Event::End { elements } => self.keys.get_mut(&self.last).expect("it has begun").2 = elements,
            _ => {}
        }
        Ok(())
    }
}

fn content(file: &Path) -> Content {
    let mut content = Content::default();
    let summary = read_file(std::fs::File::open(file).expect("it is there"), &mut content).expect("it is sound");
    assert!(summary.has_checksum);
    content.version = summary.version;
    content
}

/// Returns the digest of all data that an import of the file makes.
fn digest_of(file: &Path) -> String {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let imported = haypile(&["import", path(file), "--databases", "100", "--dir", path(&data)]).output().unwrap();
    assert_eq!(imported.status.code(), Some(0), "{}", text(&imported.stderr));
    let server = start(&data);
    let digest = server.client().ask("DEBUG DIGEST");
    server.stop();
    digest
}

fn start(dir: &Path) -> Server {
    Server::start(dir, &["--databases", "100", "--enable-debug-command", "yes"])
}

/// Writes some of everything: all types in both encodings, deadlines, several databases; one of the keys is going to
/// have lapsed.
fn fill(client: &mut Client<TcpStream>) {
    let many = |name: &str, each: &dyn Fn(usize) -> String| {
        (0..1000).fold(name.to_owned(), |line, n| format!("{line} {}", each(n)))
    };
    for command in [
        "SET short 17".to_owned(),
        format!("SET long {}", "hay".repeat(30_000)),
        "SET timed x PXAT 4102444800123".into(),
        "SET lapses x PX 1".into(),
        "RPUSH list a b c".into(),
        many("RPUSH lists", &|n| format!("element{n}")),
        "SADD set a b 3".into(),
        many("SADD sets", &|n| n.to_string()),
        "ZADD zset 1.5 a -inf b".into(),
        many("ZADD zsets", &|n| format!("{n}.25 member{n}")),
        "HSET hash a 1 b 2".into(),
        many("HSET hashes", &|n| format!("field{n} value{n}")),
        "XADD stream 5-1 a 1".into(),
        "XADD stream 5-2 a 2".into(),
        "XGROUP CREATE stream group 0".into(),
        "XREADGROUP GROUP group me COUNT 1 STREAMS stream >".into(),
        "SELECT 99".into(),
        "SET other x".into(),
        "SELECT 3".into(),
        "SET gone x".into(),
        "FLUSHDB".into(),
        "SET '' emptyname".into(),
        "PEXPIREAT '' 4102444800456".into(),
        "SELECT 0".into(),
    ] {
        let words = command.split(' ').map(|word| if word == "''" { "" } else { word }.as_bytes());
        let reply = client.ask_words(&words.collect::<Vec<_>>());
        assert!(!reply.starts_with('-'), "{}: {reply}", &command[..command.len().min(60)]);
    }
    // The server is not asked about the key that lapses, so it may well still have it.
    std::thread::sleep(std::time::Duration::from_millis(3));
}

fn check(content: &Content) {
    assert_eq!(content.version, u32::from(VERSION));
    assert_eq!(content.sizes.get(&99), Some(&(1, 0)));
    assert_eq!(content.sizes.get(&3), Some(&(1, 1)));
    let key = |database: u64, name: &str| content.keys.get(&(database, name.as_bytes().to_vec())).copied();
    for (name, kind, elements) in [
        ("short", Kind::String, 1),
        ("long", Kind::String, 1),
        ("list", Kind::List, 3),
        ("lists", Kind::List, 1000),
        ("set", Kind::Set, 3),
        ("sets", Kind::Set, 1000),
        ("zset", Kind::Zset, 2),
        ("zsets", Kind::Zset, 1000),
        ("hash", Kind::Hash, 2),
        ("hashes", Kind::Hash, 1000),
        ("stream", Kind::Stream, 3),
    ] {
        assert_eq!(key(0, name), Some((kind, None, elements)), "{name}");
    }
    assert_eq!(key(0, "timed"), Some((Kind::String, Some(4_102_444_800_123), 1)));
    assert_eq!(key(3, ""), Some((Kind::String, Some(4_102_444_800_456), 1)));
    assert_eq!(key(99, "other"), Some((Kind::String, None, 1)));
    assert_eq!(key(0, "lapses"), None);
    assert_eq!(content.keys.len(), 14);
}

/// Returns all files in a directory: names, bytes, and when they were changed.
fn listing(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("it is a directory") {
        let path = entry.expect("it can be listed").path();
        let changed = path.metadata().expect("it is there").modified().expect("files have times");
        if path.is_dir() {
            all.extend(listing(&path));
            all.insert(path, (Vec::new(), changed));
        } else {
            all.insert(path.clone(), (std::fs::read(&path).expect("it is readable"), changed));
        }
    }
    all
}

#[test]
fn a_directory_is_exported_however_its_server_ended() {
    let dir = TempDir::new();
    let (data, file) = (dir.path().join("data"), dir.path().join("a.rdb"));
    std::fs::create_dir(&data).unwrap();
    let server = start(&data);
    let mut client = server.client();
    fill(&mut client);
    let digest = client.ask("DEBUG DIGEST");

    let why = fails(&file, &["--dir", path(&data)]);
    assert!(why.contains("is in use by the server with process id") && why.contains("--host"), "{why}");
    server.kill();
    let before = listing(&data);
    // The server's log was not flushed. Two exports, because the first one must not have changed anything.
    for round in 0..2 {
        let summary = exports(&file, &["--dir", path(&data), "--force"]);
        for line in [
            "database 0: 3 strings, 2 lists, 2 sets, 2 sorted sets, 2 hashes, 1 streams\n",
            "database 3: 1 strings\ndatabase 99: 1 strings\n",
            "14 keys exported in ",
        ] {
            assert!(summary.contains(line), "{round}: {line:?} is not in {summary}");
        }
        check(&content(&file));
        assert!(listing(&data) == before, "{round}: the directory has changed");
    }
    assert_eq!(digest_of(&file), digest);

    // All data lie in the base now, with equal results.
    start(&data).stop();
    let before = listing(&data);
    let again = dir.path().join("b.rdb");
    exports(&again, &["--dir", path(&data)]);
    check(&content(&again));
    assert!(listing(&data) == before, "the directory has changed");
    assert_eq!(digest_of(&again), digest);
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.rdb", "b.rdb", "data"], "nothing else is left");
}

#[test]
fn a_backup_is_exported_while_its_server_goes_on() {
    let dir = TempDir::new();
    let (data, file) = (dir.path().join("data"), dir.path().join("a.rdb"));
    std::fs::create_dir(&data).unwrap();
    let server = start(&data);
    let mut client = server.client();
    fill(&mut client);
    let digest = client.ask("DEBUG DIGEST");
    assert_eq!(client.ask("SAVE"), "+OK\r\n");
    assert_eq!(client.ask("SET later x"), "+OK\r\n");
    let backups = data.join("backups");
    let backup = std::fs::read_dir(&backups).unwrap().next().expect("there is one").unwrap().path();
    let before = listing(&backups);
    exports(&file, &["--dir", path(&backup)]);
    assert!(listing(&backups) == before, "the backup has changed");
    check(&content(&file));
    assert_eq!(digest_of(&file), digest);
    server.stop();
}

#[test]
fn keys_are_left_out_whose_time_has_passed() {
    let dir = TempDir::new();
    let (data, file) = (dir.path().join("data"), dir.path().join("a.rdb"));
    std::fs::create_dir(&data).unwrap();
    let server = start(&data);
    let mut client = server.client();
    assert_eq!(client.ask("DEBUG SET-ACTIVE-EXPIRE 0"), "+OK\r\n");
    for n in 0..10 {
        client.ask(&format!("SET a{n} x PX {}", if n < 3 { 1 } else { 1_000_000_000 }));
    }
    client.ask("SET b x");
    server.kill();
    std::thread::sleep(std::time::Duration::from_millis(3));
    let summary = exports(&file, &["--dir", path(&data)]);
    assert!(summary.contains("database 0: 8 strings\nleft out: 3 keys whose time had passed\n8 keys"), "{summary}");
    assert_eq!(content(&file).keys.len(), 8);
}

#[test]
fn a_large_collection_takes_little_memory() {
    const FIELDS: usize = 300_000;
    const VALUE_BYTES: usize = 1000;
    let dir = TempDir::new();
    let (data, file) = (dir.path().join("data"), dir.path().join("a.rdb"));
    std::fs::create_dir(&data).unwrap();
    let server = start(&data);
    let mut client = server.client();
    let mut seed = 1u64;
    for from in (0..FIELDS).step_by(500) {
        let mut words = vec![b"HSET".to_vec(), b"hash".to_vec()];
        for n in from..from + 500 {
            words.push(n.to_string().into_bytes());
            // Values that compress would hide how much there is.
            words.push(
                (0..VALUE_BYTES)
                    .map(|_| {
                        seed ^= seed << 13;
                        seed ^= seed >> 7;
                        seed ^= seed << 17;
                        seed as u8
                    })
                    .collect(),
            );
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        assert_eq!(client.ask_words(&words), ":500\r\n");
    }
    let digest = client.ask("DEBUG DIGEST");
    server.stop();
    let script = format!(
        "{} export {} --dir {} & pid=$!; peak=0; while kill -0 $pid 2>/dev/null; do \
        now=$(awk '/VmHWM/ {{ print $2 }}' /proc/$pid/status 2>/dev/null); peak=${{now:-$peak}}; sleep 0.01; done; wait $pid && echo peak $peak",
        env!("CARGO_BIN_EXE_haypile"),
        path(&file),
        path(&data)
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let peak_kib: usize = said.lines().find_map(|line| line.strip_prefix("peak ")).unwrap().parse().unwrap();
    assert!(peak_kib < 200 << 10, "{peak_kib} KiB for {} MB", FIELDS * VALUE_BYTES / 1_000_000);
    let content = content(&file);
    assert_eq!(content.keys[&(0, b"hash".to_vec())].2, FIELDS as u64);
    assert_eq!(digest_of(&file), digest);
}

#[test]
fn deadlines_of_fields_make_a_file_for_redis_7_4() {
    let dir = TempDir::new();
    let (data, file) = (dir.path().join("data"), dir.path().join("a.rdb"));
    std::fs::create_dir(&data).unwrap();
    let server = start(&data);
    let mut client = server.client();
    assert_eq!(client.ask("HSET hash a 1 b 2"), ":2\r\n");
    assert_eq!(client.ask("HPEXPIREAT hash 4102444800000 FIELDS 1 a"), "*1\r\n:1\r\n");
    let digest = client.ask("DEBUG DIGEST");
    server.stop();
    let summary = exports(&file, &["--dir", path(&data)]);
    assert!(summary.contains("Redis before 7.4 does not load this file (RDB version 12)"), "{summary}");
    let read = content(&file);
    assert_eq!(read.version, u32::from(VERSION_WITH_FIELD_DEADLINES));
    assert_eq!(read.keys[&(0, b"hash".to_vec())].0, Kind::TimedHash);
    assert_eq!(digest_of(&file), digest);

    // When the deadlines are gone, so is the counter that says so before.
    let server = start(&data);
    assert_eq!(server.client().ask("HPERSIST hash FIELDS 1 a"), "*1\r\n:1\r\n");
    server.stop();
    let summary = exports(&file, &["--dir", path(&data), "--force"]);
    assert!(!summary.contains("7.4"), "{summary}");
    assert_eq!(content(&file).version, u32::from(VERSION));
}

#[test]
fn what_cannot_be_exported_is_said_and_leaves_nothing() {
    let dir = TempDir::new();
    let (data, file) = (dir.path().join("data"), dir.path().join("a.rdb"));
    std::fs::create_dir(&data).unwrap();
    let why = fails(&file, &["--dir", path(&data)]);
    assert!(why.contains("is not a data directory of Haypile"), "{why}");
    let why = fails(&file, &["--dir", "/nowhere"]);
    assert!(why.contains("/nowhere is not a data directory"), "{why}");

    let memory = dir.path().join("memory");
    std::fs::create_dir(&memory).unwrap();
    Server::start(&memory, &["--engine", "memory"]).stop();
    let why = fails(&file, &["--dir", path(&memory)]);
    assert!(why.contains("'engine memory', which keeps nothing on disk"), "{why}");
    assert!(!file.exists());

    // An empty directory has an empty file.
    start(&data).stop();
    let summary = exports(&file, &["--dir", path(&data)]);
    assert!(summary.starts_with("0 keys exported"), "{summary}");
    assert!(content(&file).keys.is_empty());

    let whole = std::fs::read(&file).unwrap();
    let why = fails(&file, &["--dir", path(&data)]);
    assert!(why.contains("exists. It is replaced with --force."), "{why}");
    assert_eq!(std::fs::read(&file).unwrap(), whole);
    let why = fails(dir.path(), &["--dir", path(&data), "--force"]);
    assert!(why.contains("is a directory"), "{why}");
    let why = fails(Path::new("/nowhere/a.rdb"), &["--dir", path(&data)]);
    assert!(why.contains("/nowhere/a.rdb cannot be made"), "{why}");

    // A base whose files are not named any more is not taken for an empty one.
    let server = start(&data);
    assert_eq!(server.client().ask("SET key x"), "+OK\r\n");
    server.stop();
    std::fs::remove_file(data.join("base/CURRENT")).unwrap();
    let why = fails(&dir.path().join("b.rdb"), &["--dir", path(&data)]);
    assert!(why.contains("cannot be opened"), "{why}");
    assert!(!dir.path().join("b.rdb").exists());
}

#[test]
fn a_file_without_room_is_not_there() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let server = start(&data);
    let mut client = server.client();
    for n in 0..3000u64 {
        let noise: String =
            (0..100).map(|i| format!("{:016x}", (n * 100 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        client.ask(&format!("SET key{n} {noise}"));
    }
    server.stop();

    // A bound of the process: 1 MB of 512-byte blocks, and no signal for it.
    let limited = dir.path().join("limited");
    std::fs::create_dir(&limited).unwrap();
    let script = format!(
        "trap '' XFSZ; ulimit -f 2000; exec {} export {} --dir {}",
        env!("CARGO_BIN_EXE_haypile"),
        path(&limited.join("a.rdb")),
        path(&data)
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("The file cannot be written: File too large"), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(&limited).unwrap().count(), 0);

    let output = haypile(&["export", "-", "--dir", path(&data)])
        .stdout(std::fs::File::options().write(true).open("/dev/full").unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("The file cannot be written: No space left on device"),
        "{}",
        text(&output.stderr)
    );

    let Some(disk) = SmallDisk::mount(&dir.path().join("disk"), "size=1m") else { return };
    let why = fails(&disk.0.join("a.rdb"), &["--dir", path(&data)]);
    assert!(why.contains("The file cannot be written: No space left on device"), "{why}");
    assert_eq!(std::fs::read_dir(&disk.0).unwrap().count(), 0);
}

#[test]
fn standard_output_gets_the_same_file() {
    let dir = TempDir::new();
    let (data, file) = (dir.path().join("data"), dir.path().join("a.rdb"));
    std::fs::create_dir(&data).unwrap();
    let server = start(&data);
    fill(&mut server.client());
    server.stop();
    let output = haypile(&["export", "-", "--dir", path(&data)]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("14 keys exported in "), "{}", text(&output.stderr));
    std::fs::write(&file, output.stdout).unwrap();
    check(&content(&file));
}

/// An export of a server.
fn at(server: &Server) -> [String; 2] {
    ["--port".into(), server.port.to_string()]
}

#[test]
fn a_server_is_exported_while_writers_write() {
    const KEYS: usize = 20_000;
    let dir = TempDir::new();
    let (data, file) = (dir.path().join("data"), dir.path().join("a.rdb"));
    std::fs::create_dir(&data).unwrap();
    let server = start(&data);
    let mut client = server.client();
    fill(&mut client);
    let [option, port] = at(&server);
    let from = [option.as_str(), &port];
    exports(&file, &from);
    let read = content(&file);
    check(&read);
    assert_eq!(digest_of(&file), client.ask("DEBUG DIGEST"));

    for from in (0..KEYS).step_by(1000) {
        let pairs = (from..from + 1000).map(|n| format!(" stays:{n} old")).collect::<String>();
        assert_eq!(client.ask(&format!("MSET{pairs}")), "+OK\r\n");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The flag is set even if the test fails: the scope waits for the writers.
        let _ends = Ends(&stop);
        for writer in 0..2 {
            let (mut client, stop) = (server.client(), &stop);
            scope.spawn(move || {
                let mut n = 0_usize;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    client.ask(&format!("SET goes{writer}:{n} x"));
                    client.ask(&format!("DEL goes{writer}:{}", n.wrapping_sub(5)));
                    client.ask(&format!("SET stays:{} new{n} PX 100000000", n % KEYS));
                }
            });
        }
        // A key that comes twice fails the test where the file is read.
        for round in 0..3 {
            let summary = exports(&file, &[&from[..], &["--force"]].concat());
            let stays = content(&file).keys.keys().filter(|(_, name)| name.starts_with(b"stays:")).count();
            assert_eq!(stays, KEYS, "round {round}: {summary}");
        }
    });
    server.stop();
    let why = fails(&dir.path().join("b.rdb"), &from);
    assert!(why.contains(&format!("The server 127.0.0.1:{port} cannot be reached")), "{why}");
    assert!(!dir.path().join("b.rdb").exists());
}

#[test]
fn a_server_has_users_and_says_who_may_not() {
    let dir = TempDir::new();
    let (data, file) = (dir.path().join("data"), dir.path().join("a.rdb"));
    std::fs::create_dir(&data).unwrap();
    let server = {
        let port = process::free_port();
        let mut server = Server::spawn(&data, port, &["--requirepass", "secret"]);
        process::wait_until("it serves", || {
            assert!(server.child.try_wait().unwrap().is_none(), "it ended");
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok_and(|socket| {
                socket.set_read_timeout(Some(process::PATIENCE)).unwrap();
                let mut client = Client { socket };
                client.ask("AUTH secret");
                client.ask("PING") == "+PONG\r\n"
            })
        });
        server
    };
    let mut client = server.client();
    assert_eq!(client.ask("AUTH secret"), "+OK\r\n");
    assert_eq!(client.ask("SET key x"), "+OK\r\n");
    let [option, port] = at(&server);
    let from = [option.as_str(), &port];
    let why = fails(&file, &from);
    assert!(why.contains("refuses: NOAUTH"), "{why}");
    let why = fails(&file, &[&from[..], &["--password", "wrong"]].concat());
    assert!(why.contains("refuses: WRONGPASS"), "{why}");
    exports(&file, &[&from[..], &["--password", "secret"]].concat());
    for name in ["HAYPILE_PASSWORD", "REDISCLI_AUTH"] {
        let mut command = haypile(&["export", path(&file), "--force"]);
        let output = command.args(from).env(name, "secret").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {output:?}");
    }
    exports(&file, &[&from[..], &["--force", "--user", "default", "--password", "secret"]].concat());
    assert_eq!(content(&file).keys.len(), 1);
    server.kill();
}

#[test]
fn keys_that_a_server_does_not_dump_are_named() {
    let dir = TempDir::new();
    let (data, file) = (dir.path().join("data"), dir.path().join("a.rdb"));
    std::fs::create_dir(&data).unwrap();
    let server = start(&data);
    let mut client = server.client();
    assert_eq!(client.ask("HSET hash a 1"), ":1\r\n");
    assert_eq!(client.ask("HPEXPIREAT hash 4102444800000 FIELDS 1 a"), "*1\r\n:1\r\n");
    let noise: Vec<u8> = (0..2_000_000u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect();
    assert_eq!(client.ask_words(&[b"SET", b"long", &noise]), "+OK\r\n");
    assert_eq!(client.ask("CONFIG SET proto-max-bulk-len 1mb"), "+OK\r\n");
    let [option, port] = at(&server);
    let output = haypile(&["export", path(&file), &option, &port]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("1 keys exported"), "{}", text(&output.stdout));
    let why = text(&output.stderr);
    assert!(why.contains("1 keys are not in the file:\nlong in database 0: ERR the payload would be longer"), "{why}");
    assert!(why.contains("export a backup"), "{why}");
    // The rest is there, and the file names the version it needs, which was not known at its beginning.
    let read = content(&file);
    assert_eq!((read.version, read.keys.len()), (u32::from(VERSION_WITH_FIELD_DEADLINES), 1));
    server.stop();
}

#[test]
fn a_key_without_its_deadline_is_named_and_left_out() {
    let dir = TempDir::new();
    let (data, file) = (dir.path().join("data"), dir.path().join("a.rdb"));
    std::fs::create_dir(&data).unwrap();
    // Each value is read by the commands of its type.
    let server = Server::start(&data, &["--rename-command", "DUMP", ""]);
    let mut client = server.client();
    assert_eq!(client.ask("SET key x EX 1000"), "+OK\r\n");
    let [option, port] = at(&server);
    for command in ["pttl", "exists"] {
        assert_eq!(client.ask(&format!("ACL SETUSER app reset on >pw ~* &* +@all -{command}")), "+OK\r\n");
        let arguments = ["export", path(&file), "--force", &option, &port, "--user", "app", "--password", "pw"];
        let output = haypile(&arguments).output().unwrap();
        let why = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(why.contains("1 keys are not in the file:\nkey in database 0: NOPERM"), "{command}: {why}");
        assert!(content(&file).keys.is_empty(), "{command}");
    }
    exports(&file, &["--force", &option, &port]);
    assert!(content(&file).keys[&(0, b"key".to_vec())].1.is_some());
    server.stop();
}
