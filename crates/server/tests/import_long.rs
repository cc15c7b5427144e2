//! `haypile import` into a server of values that are too long for one command: they are made under another name, of
//! which nothing stays, and have their own when they are whole.

mod process;

use haypile_rdb::event::Group;
use haypile_rdb::{Key, Kind, StreamHead, StreamId, VERSION_WITH_FIELD_DEADLINES, Writer};
use process::{Client, Server, TempDir, wait_until};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;

/// A time far ahead, in milliseconds.
const LATER_MS: u64 = 4_102_444_800_000;

/// A directive of servers for which values of more than a megabyte are too long.
const SHORT: [&str; 2] = ["--proto-max-bulk-len", "1mb"];

type File = Writer<haypile_rdb::File<Vec<u8>>>;

/// A file whose strings are as long as they are: what is too long for a command is counted as it lies in the file.
fn file() -> File {
    let file = Writer::file(Vec::new(), VERSION_WITH_FIELD_DEADLINES).expect("memory takes it");
    let mut file = file.without_compression();
    file.database(0).expect("memory takes it");
    file
}

fn key(file: &mut File, name: &str, kind: Kind, deadline_ms: Option<u64>) {
    let key = Key { name: name.as_bytes(), kind, deadline_ms, idle_s: None, frequency: None, position: 0 };
    file.key(&key).expect("memory takes it");
}

/// Adds a hash all of whose fields have a deadline.
fn timed_hash(file: &mut File, name: &str, fields: u64, value_bytes: usize, deadline_ms: u64) {
    key(file, name, Kind::TimedHash, None);
    file.first_deadline(deadline_ms).expect("memory takes it");
    file.length(fields).expect("memory takes it");
    for field in 0..fields {
        file.field_deadline(Some(deadline_ms)).expect("memory takes it");
        file.string(format!("field:{field}").as_bytes()).expect("memory takes it");
        file.string(&vec![b'x'; value_bytes]).expect("memory takes it");
    }
}

fn string(file: &mut File, name: &str, bytes: usize, deadline_ms: Option<u64>) {
    key(file, name, Kind::String, deadline_ms);
    file.string(&vec![b'x'; bytes]).expect("memory takes it");
}

fn saved(file: File, dir: &TempDir) -> PathBuf {
    let path = dir.path().join("dump.rdb");
    std::fs::write(&path, file.end().expect("memory takes it")).expect("there is room");
    path
}

fn command(file: &Path, port: u16, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haypile"));
    command.arg("import").arg(file).args(["--host", "127.0.0.1", "--port", &port.to_string()]).args(more);
    command
}

/// Runs an import; returns its exit status and all that it says.
fn import(file: &Path, port: u16, more: &[&str]) -> (Option<i32>, String) {
    let output = command(file, port, more).stdin(Stdio::null()).output().expect("the binary runs");
    let Output { status, stdout, stderr } = output;
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[test]
fn a_hash_whose_fields_have_all_lapsed_is_left_out() {
    let (data, dir) = (TempDir::new(), TempDir::new());
    let server = Server::start(data.path(), &SHORT);
    let mut client = server.client();
    let mut made = file();
    timed_hash(&mut made, "hash", 3, 600_000, 1000);
    string(&mut made, "after", 3, None);
    let path = saved(made, &dir);
    for before in ["SET other x", "SET hash old"] {
        assert_eq!(client.ask(before), "+OK\r\n");
        let (code, said) = import(&path, server.port, &[]);
        assert_eq!(code, Some(0), "{said}");
        let lines = "database 0: 1 strings\nleft out: 1 keys whose time had passed\n";
        assert!(said.contains(lines), "{said}");
        assert_eq!(client.ask("EXISTS hash"), ":0\r\n", "{before}");
        assert_eq!(client.ask("GET after"), "$3\r\nxxx\r\n");
    }
    assert_eq!(client.ask("SET hash old"), "+OK\r\n");
    let (code, said) = import(&path, server.port, &["--keep"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(client.ask("GET hash"), "$3\r\nold\r\n");
    assert_eq!(client.ask("DBSIZE"), ":3\r\n", "nothing is left of the import");
    server.stop();
}

#[test]
fn a_key_that_could_not_be_made_is_removed() {
    let (data, dir) = (TempDir::new(), TempDir::new());
    let server = Server::start(data.path(), &SHORT);
    let mut client = server.client();
    assert_eq!(client.ask("ACL SETUSER app on >pw ~* &* +@all -hpexpireat"), "+OK\r\n");
    let mut made = file();
    // More commands than are sent ahead, for the part of the value that was read when it turned out to be too long.
    timed_hash(&mut made, "hash", 600, 4000, LATER_MS);
    let path = saved(made, &dir);
    let (code, said) = import(&path, server.port, &["--user", "app", "--password", "pw"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("does not take key \"hash\": NOPERM"), "{said}");
    assert_eq!(client.ask("KEYS *"), "*0\r\n");
    server.stop();
}

#[test]
fn a_stream_without_entries_has_a_deadline_in_the_making() {
    const GROUPS: u64 = 3000;
    let data = TempDir::new();
    let server = Server::start(data.path(), &SHORT);
    let mut client = server.client();
    let mut made = file();
    key(&mut made, "stream", Kind::Stream, None);
    made.length(0).expect("memory takes it");
    let id = StreamId { ms: 5, seq: 5 };
    let head = StreamHead { last: id, max_deleted: id, entries_added: 5, groups: GROUPS, ..StreamHead::default() };
    made.stream(&head).expect("memory takes it");
    for n in 0..GROUPS {
        let name = format!("group:{n:01000}");
        let group = Group { name: name.as_bytes(), last: id, entries_read: Some(5), pending: 0 };
        made.group(&group).expect("memory takes it");
        made.length(0).expect("memory takes it");
    }
    let bytes = made.end().expect("memory takes it");
    let (first, rest) = bytes.split_at(bytes.len() / 4 * 3);
    let mut command = command(Path::new("-"), server.port, &[]);
    let mut importing = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the binary runs");
    let mut input = importing.stdin.take().expect("it is a pipe");
    input.write_all(first).expect("it reads");
    wait_until("the key in the making has a deadline", || {
        let keys = client.ask("KEYS haypile:import:*");
        let name = keys.split("\r\n").nth(2).unwrap_or_default();
        !name.is_empty() && !client.ask(&format!("PTTL {name}")).starts_with(":-")
    });
    input.write_all(rest).expect("it reads");
    drop(input);
    assert!(importing.wait().expect("it is our child").success());
    assert_eq!(client.ask("KEYS *"), "*1\r\n$6\r\nstream\r\n");
    assert_eq!(client.ask("PTTL stream"), ":-1\r\n");
    assert_eq!(client.ask("XINFO GROUPS stream").matches("group:").count() as u64, GROUPS);
    server.stop();
}

/// A made-up server for one import, which takes everything, but that RENAME ends in an error.
struct Refusing {
    port: u16,
    /// The commands that came, a line each, but those that bring the value.
    served: JoinHandle<Vec<String>>,
}

impl Refusing {
    fn start(error: &'static str) -> Refusing {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let serve = move || serve_refusing(listener.accept().expect("the import connects").0, error);
        Refusing { port, served: std::thread::spawn(serve) }
    }
}

fn serve_refusing(socket: TcpStream, error: &str) -> Vec<String> {
    let (mut client, mut commands, mut length) = (Client { socket }, Vec::new(), 0);
    while matches!(client.socket.peek(&mut [0]), Ok(1)) {
        let request = client.reply();
        // Words are the lines behind those with a length.
        let words: Vec<&str> = request.split("\r\n").skip(2).step_by(2).filter(|word| !word.is_empty()).collect();
        let reply = match words[0] {
            "INFO" => "$0\r\n\r\n".to_owned(),
            "CONFIG" => "*2\r\n$18\r\nproto-max-bulk-len\r\n$4\r\n1000\r\n".into(),
            "EXISTS" => ":0\r\n".into(),
            "APPEND" => {
                length += words[2].len();
                format!(":{length}\r\n")
            }
            "STRLEN" => format!(":{length}\r\n"),
            "EXEC" => format!("*2\r\n:1\r\n-{error}\r\n"),
            _ => "+OK\r\n".into(),
        };
        if words[0] != "APPEND" {
            commands.push(words.join(" "));
        }
        client.send(reply.as_bytes());
    }
    commands
}

#[test]
fn a_value_that_does_not_get_its_name_is_left_out_or_an_error() {
    const GONE: &str = "ERR no such key";
    let expired = (Some(0), "left out: 1 keys whose time had passed\n");
    let (timed, plain) = (Some(LATER_MS), None);
    for (what, error, deadline_ms, more, (code, expected), removes) in [
        ("its deadline has passed", GONE, timed, &[][..], expired, true),
        ("the name is another's to keep", GONE, timed, &["--keep"], expired, false),
        ("another error", "ERR not now", timed, &[], (Some(1), "does not take key \"name\": ERR not now"), false),
        ("no deadline", GONE, plain, &[], (Some(1), "does not take key \"name\": ERR no such key"), false),
    ] {
        let dir = TempDir::new();
        let mut made = file();
        string(&mut made, "name", 5000, deadline_ms);
        let path = saved(made, &dir);
        let server = Refusing::start(error);
        let (ended, said) = import(&path, server.port, more);
        assert_eq!(ended, code, "{what}: {said}");
        assert!(said.contains(expected), "{what}: {said}");
        let commands = server.served.join().expect("it understands all of it");
        assert_eq!(commands.iter().any(|command| command == "DEL name"), removes, "{what}: {commands:?}");
        let abandons = commands.iter().any(|command| command.starts_with("DEL haypile:import:"));
        assert_eq!(abandons, code == Some(1), "{what}: {commands:?}");
    }
}
