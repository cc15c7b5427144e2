//! Files of the data directory that are lost, cut, damaged or mixed up: the start refuses them and names them, or tells
//! which data are gone; a running server stops writing.

mod process;

use process::{Server, TempDir, fails, free_port, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Small segments, so that there are some.
const OPTIONS: [&str; 8] = [
    "--log-segment-size",
    "1mb",
    "--log-retention-size",
    "64mb",
    "--maxmemory",
    "32mb",
    "--enable-debug-command",
    "yes",
];

fn set_many(server: &Server, count: usize) {
    let mut client = server.client();
    for n in 0..count {
        let (key, value) = (format!("key:{n}"), vec![b'v'; 1000]);
        assert_eq!(client.ask_words(&[b"SET", key.as_bytes(), &value]), "+OK\r\n");
    }
    // WAITAOF waits for the writes of its own connection.
    assert_eq!(client.ask("WAITAOF 1 0 10000"), "*2\r\n:1\r\n:0\r\n");
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("log")).expect("a log").flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
    found.sort();
    found
}

fn check(dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_haypile")).arg("check").arg(dir).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("it is writable");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type().expect("readable").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("it can be copied")),
        }
    }
}

/// Checks that the start is refused with a text that names the place, and that `haypile check` finds it.
#[track_caller]
fn is_refused(dir: &Path, says: &[&str]) {
    let why = fails(dir, free_port(), &OPTIONS);
    assert!(says.iter().all(|part| why.contains(part)), "{why}");
    assert!(why.contains("restore a backup") && why.contains(&dir.display().to_string()), "{why}");
    let checked = check(dir);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
}

#[test]
fn a_lost_or_emptied_log_is_refused() {
    for flushed in [false, true] {
        for emptied in [false, true] {
            let dir = TempDir::new();
            let server = Server::start(dir.path(), &OPTIONS);
            set_many(&server, 100);
            if flushed {
                assert_eq!(server.client().ask("DEBUG RELOAD"), "+OK\r\n");
            }
            server.kill();
            fs::remove_dir_all(dir.path().join("log")).expect("it is there");
            if emptied {
                fs::create_dir(dir.path().join("log")).expect("it is writable");
            }
            let lost = format!("{} is missing", dir.path().join("log").display());
            let empty = ["there is no segment", "/log at offset 0, record 1"];
            let says: &[&str] = if emptied { &empty } else { &[&lost] };
            is_refused(dir.path(), &[&["the log is damaged"], says].concat());
            assert_eq!(dir.path().join("log").exists(), emptied, "what was lost can be put back");
        }
    }
}

/// Without the note nothing else may tell that more is gone: not an empty base, nor the rest of the log.
#[test]
fn a_lost_note_of_the_log_is_refused_whatever_else_is_lost() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &OPTIONS);
    set_many(&server, 1500);
    server.kill();
    let note = dir.path().join("haypile.end");
    fs::remove_file(&note).expect("it is there");
    let says = ["the log is damaged", "haypile.end", "the note of how far the log reaches is missing"];
    is_refused(dir.path(), &says);
    let whole = TempDir::new();
    copy(dir.path(), whole.path());
    fs::remove_file(segments(dir.path()).pop().expect("a segment")).expect("it is there");
    is_refused(dir.path(), &says);
    fs::remove_dir_all(dir.path().join("log")).expect("it is there");
    is_refused(dir.path(), &says);
    // As docs/operations.md advises where the log is known to be whole.
    let about = whole.path().join("HAYPILE");
    let lines = fs::read_to_string(&about).expect("readable");
    fs::write(&about, lines.replace("log noted in haypile.end\n", "")).expect("it is writable");
    let server = Server::start(whole.path(), &OPTIONS);
    assert_eq!(server.client().ask("DBSIZE"), ":1500\r\n");
    server.stop();
    assert_eq!(fs::read_to_string(&about).expect("readable"), lines, "there is a note again");
}

/// The note is made anew where it went just before a stop, so that the next start has it.
#[test]
fn a_stop_leaves_a_note_that_was_lost_right_before() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &OPTIONS);
    set_many(&server, 10);
    fs::remove_file(dir.path().join("haypile.end")).expect("it is there");
    server.stop();
    let server = Server::start(dir.path(), &OPTIONS);
    assert_eq!(server.client().ask("DBSIZE"), ":10\r\n");
    server.stop();
}

#[test]
fn a_clean_stop_knows_every_byte() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &OPTIONS);
    set_many(&server, 3000);
    server.stop();
    let whole = TempDir::new();
    copy(dir.path(), whole.path());
    let last = segments(dir.path()).pop().expect("a segment");
    let bytes = fs::read(&last).expect("readable");
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("records");
    for at in [used, used - 20, used / 2, 4096 + 100, 50] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x40;
        fs::write(&last, flipped).expect("it is writable");
        is_refused(dir.path(), &[last.to_str().expect("text"), "the log is damaged"]);
    }
    for length in [bytes.len() - 1, bytes.len() / 2, 4096, 100, 0] {
        fs::write(&last, &bytes[..length]).expect("it is writable");
        // Without a record in it, the place where the next one is missed is the end of the segment before.
        is_refused(dir.path(), &["the log is damaged", "/log/000"]);
    }
    fs::remove_file(&last).expect("it is there");
    is_refused(dir.path(), &["the log is damaged"]);
    let server = Server::start(whole.path(), &OPTIONS);
    assert_eq!(server.client().ask("DBSIZE"), ":3000\r\n");
    server.stop();
}

#[test]
fn what_was_synced_before_a_kill_is_missed_once_the_log_was_idle() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &OPTIONS);
    set_many(&server, 1500);
    // The sync is noted right behind it.
    std::thread::sleep(Duration::from_millis(200));
    server.kill();
    let whole = TempDir::new();
    copy(dir.path(), whole.path());
    let all = segments(whole.path());
    let with_records = |path: &&PathBuf| fs::read(path).expect("readable")[4096..].iter().any(|byte| *byte != 0);
    let used: Vec<&PathBuf> = all.iter().filter(with_records).collect();
    assert!(used.len() > 1, "{all:?}");
    for path in used {
        let there = dir.path().join("log").join(path.file_name().expect("a name"));
        let bytes = fs::read(&there).expect("readable");
        let last = bytes.iter().rposition(|byte| *byte != 0).expect("records");
        fs::remove_file(&there).expect("it is there");
        is_refused(dir.path(), &["the log is damaged"]);
        let mut flipped = bytes.clone();
        flipped[last - 10] ^= 1;
        fs::write(&there, flipped).expect("it is writable");
        is_refused(dir.path(), &["the log is damaged", there.to_str().expect("text")]);
        fs::write(&there, bytes).expect("it is writable");
    }
    assert_eq!(check(dir.path()).status.code(), Some(0));
}

#[test]
fn bytes_that_are_cut_off_are_told() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &OPTIONS);
    set_many(&server, 1);
    server.kill();
    // A power failure may leave such bytes behind the last record that was synced.
    let last = segments(dir.path()).into_iter().next().expect("a segment");
    let mut bytes = fs::read(&last).expect("readable");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("records") + 1;
    bytes[end + 40..end + 60].fill(7);
    fs::write(&last, bytes).expect("it is writable");
    let checked = check(dir.path());
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(text(&checked.stdout).contains("a start cuts the end of the log off"), "{checked:?}");
    let out = dir.path().join("said.conf");
    let child = process::command(dir.path(), free_port(), &OPTIONS)
        .stdout(Stdio::from(fs::File::create(&out).expect("it is writable")))
        .spawn()
        .expect("the binary runs");
    wait_until("it is ready", || fs::read_to_string(&out).expect("readable").contains("ready to accept"));
    Server { child, port: 0 }.stop();
    let said = fs::read_to_string(&out).expect("readable");
    let place = format!(", in {} from offset ", last.display());
    let told = said.split_once("WARN the end of the log is cut off: ").and_then(|(_, told)| told.split_once(&place));
    let (before, behind) = told.unwrap_or_else(|| panic!("the place is told: {said}"));
    let number = |text: &str| text.split(' ').next().and_then(|word| word.parse::<usize>().ok());
    let (bytes, offset) = (number(before).expect("a number"), number(behind).expect("a number"));
    // A record may end with zeros.
    assert!(before.contains(" bytes behind record ") && (end..end + 40).contains(&offset), "{said}");
    assert_eq!(offset + bytes, end + 60, "through the last byte that is not zero: {said}");
    assert!(behind.contains(" on. Nothing says that they were synced: "), "{said}");
}

#[test]
fn a_base_or_a_log_of_another_directory_or_of_another_time_is_refused() {
    let (ours, theirs) = (TempDir::new(), TempDir::new());
    let older = TempDir::new();
    for dir in [&ours, &theirs] {
        let server = Server::start(dir.path(), &OPTIONS);
        set_many(&server, 200);
        server.stop();
    }
    copy(ours.path(), older.path());
    let server = Server::start(ours.path(), &OPTIONS);
    set_many(&server, 500);
    server.stop();
    let exchange = |part: &str, from: &TempDir| {
        let mixed = TempDir::new();
        copy(ours.path(), mixed.path());
        fs::remove_dir_all(mixed.path().join(part)).expect("it is there");
        copy(&from.path().join(part), &mixed.path().join(part));
        mixed
    };
    for (part, from) in [("log", &theirs), ("base", &theirs), ("log", &older)] {
        is_refused(exchange(part, from).path(), &["the log is damaged"]);
    }
    // The log has all records that an older base lacks.
    let mixed = exchange("base", &older);
    let server = Server::start(mixed.path(), &OPTIONS);
    assert_eq!(server.client().ask("DBSIZE"), ":500\r\n");
    server.stop();
}

#[test]
fn a_backup_copied_over_other_data_is_refused() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &OPTIONS);
    set_many(&server, 300);
    assert_eq!(server.client().ask("SAVE"), "+OK\r\n");
    assert_eq!(server.client().ask("FLUSHALL"), "+OK\r\n");
    server.stop();
    let backups = fs::read_dir(dir.path().join("backups")).expect("backups").flatten().next().expect("one").path();
    let (over, empty) = (TempDir::new(), TempDir::new());
    copy(dir.path(), over.path());
    copy(&backups, over.path());
    is_refused(over.path(), &["files of two directories are mixed", "haypile.end"]);
    copy(&backups, empty.path());
    let server = Server::start(empty.path(), &OPTIONS);
    assert_eq!(server.client().ask("DBSIZE"), ":300\r\n");
    server.stop();
    Server::start(empty.path(), &OPTIONS).stop();
}

#[test]
fn a_missing_head_of_the_base_is_named() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &OPTIONS);
    set_many(&server, 10);
    server.stop();
    let head = dir.path().join("base/CURRENT");
    fs::remove_file(&head).expect("it is there");
    is_refused(dir.path(), &["the base is damaged", &format!("{} is missing", head.display())]);
}

/// The refusal leaves the place of the lost base free, so that the base can be put back there.
#[test]
fn a_lost_base_is_named_and_can_be_put_back() {
    let (dir, elsewhere) = (TempDir::new(), TempDir::new());
    let server = Server::start(dir.path(), &OPTIONS);
    set_many(&server, 10);
    server.kill();
    let (base, moved) = (dir.path().join("base"), elsewhere.path().join("base"));
    fs::rename(&base, &moved).expect("it is there");
    is_refused(dir.path(), &[&format!("the base is damaged: {} is missing", base.display())]);
    assert!(!base.exists());
    fs::rename(&moved, &base).expect("its place is free");
    let server = Server::start(dir.path(), &OPTIONS);
    assert_eq!(server.client().ask("DBSIZE"), ":10\r\n");
}

/// Some times the second within which docs/operations.md has the server notice.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);

#[test]
fn a_directory_that_goes_while_it_is_served_stops_writes_and_fails_the_stop() {
    for part in ["", "log", "base"] {
        let dir = TempDir::new();
        let data = dir.path().join("data");
        fs::create_dir(&data).expect("it is writable");
        let server = Server::start(&data, &OPTIONS);
        set_many(&server, 10);
        fs::remove_dir_all(data.join(part)).expect("it is there");
        let gone = Instant::now();
        let mut client = server.client();
        let (mut reply, mut last_acknowledged) = (String::new(), gone);
        wait_until("writes are refused", || {
            reply = client.ask("SET k v");
            let is_refused = reply != "+OK\r\n";
            if !is_refused {
                last_acknowledged = Instant::now();
            }
            is_refused
        });
        let late = last_acknowledged - gone;
        assert!(late < NOTICED_WITHIN, "{part}: a write was acknowledged {late:?} after its files had gone");
        // No write gets through between two looks at the files.
        for _ in 0..100 {
            let again = client.ask("SET k v");
            assert!(again.starts_with("-MISCONF Haypile cannot write: "), "{part}: {again}");
        }
        let is_named = reply.contains(data.join(part).to_str().expect("text"));
        assert!(reply.starts_with("-MISCONF Haypile cannot write: ") && is_named, "{part}: {reply}");
        assert_eq!(client.ask("GET key:9").len(), 1000 + 9, "{part}: reads go on");
        server.signal("TERM");
        assert_eq!(server.ended().code(), Some(1), "{part}: the stop was not clean");
    }
}
