//! Archives in directories: the log and backups go there, and the data of any moment come back.

mod archives;
mod process;

use archives::{
    DEBUG, archiving, digest, digest_of, field_of, haypile, last_record, number, objects, refuses, restored, succeeds,
    text, wait_for_archive,
};
use process::following::{field, fill, is_equal, wait_for_link};
use process::{Server, TempDir, free_port, wait_until};
use std::path::Path;
use std::time::{Duration, SystemTime};

#[test]
fn a_start_tells_that_a_restore_was_broken_off() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let archive = place.path().join("archive");
    let server = archiving(dir.path(), &archive, &[]);
    let mut client = server.client();
    fill(&mut client, 0, 20);
    wait_for_archive(&mut client);
    let before = digest(&mut client);
    server.stop();
    // A restore that is killed before its end leaves the one file and not the other.
    let (_keep, cut) = restored(&archive, &[]);
    std::fs::remove_file(cut.join("HAYPILE")).expect("it was restored");
    std::fs::write(cut.join("haypile.restoring"), "").expect("it is writable");
    let told = "`haypile restore` was broken off in it: run it again, with the same arguments";
    let why = process::fails(&cut, free_port(), &[]);
    let whole = cut.canonicalize().expect("it exists");
    assert!(why.contains(&format!("The directory {} is not a data directory", whole.display())), "{why}");
    assert!(why.contains("(there are base, haypile.restoring, log)") && why.contains(told), "{why}");
    assert!(refuses(&["check", text(&cut)]).contains(told));
    succeeds(&["restore", "--from", text(&archive), "--dir", text(&cut)]);
    assert_eq!(digest_of(&cut), before);
}

#[test]
fn a_flushall_is_undone_to_the_record() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let archive = place.path().join("archive");
    let server = archiving(dir.path(), &archive, &["--memtable-size", "1mb", "--log-segment-size", "1mb"]);
    let mut client = server.client();
    fill(&mut client, 0, 2000);
    wait_for_archive(&mut client);
    fill(&mut client, 2000, 3000);
    let (before, digest_before) = (last_record(&mut client), digest(&mut client));
    assert_eq!(client.ask("FLUSHALL"), "+OK\r\n");
    assert_eq!(last_record(&mut client), before + 1, "one record");
    fill(&mut client, 0, 10);
    let digest_after = digest(&mut client);
    wait_for_archive(&mut client);
    server.kill();

    let (_keep, data) = restored(&archive, &["--to", &before.to_string()]);
    assert_eq!(digest_of(&data), digest_before);
    let (_keep, data) = restored(&archive, &["--to", &(before + 1).to_string()]);
    let flushed = Server::start(&data, &DEBUG);
    assert_eq!(flushed.client().ask("DBSIZE"), ":0\r\n");
    flushed.stop();
    let (_keep, data) = restored(&archive, &[]);
    assert_eq!(digest_of(&data), digest_after, "the newest");
    assert!(succeeds(&["check", text(&archive)]).contains(": 0 defects"));

    let beyond = refuses(&["restore", "--from", text(&archive), "--dir", "/nowhere", "--to", "99999999"]);
    assert!(beyond.contains("the archive ends with record"), "{beyond}");
    let full = refuses(&["restore", "--from", text(&archive), "--dir", text(&data)]);
    assert!(full.contains("is a data directory already"), "{full}");
    std::fs::write(place.path().join("file"), "of somebody").expect("the directory is ours");
    let full = refuses(&["restore", "--from", text(&archive), "--dir", text(place.path())]);
    assert!(full.contains("is not empty"), "{full}");
    let none = refuses(&["restore", "--from", text(place.path()), "--dir", "/nowhere"]);
    assert!(none.contains("there is no archive at"), "{none}");
}

#[test]
fn the_data_of_a_time_are_those_of_all_records_until_then() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let server = archiving(dir.path(), place.path(), &[]);
    let mut client = server.client();
    client.ask("SET k 0");
    wait_for_archive(&mut client);
    let mut times = Vec::new();
    for n in 1..=5 {
        assert_eq!(client.ask(&format!("SET k {n}")), "+OK\r\n");
        let now = client.ask("TIME");
        let parts: Vec<&str> = now.split("\r\n").collect();
        let ms =
            parts[2].parse::<u64>().expect("seconds") * 1000 + parts[4].parse::<u64>().expect("microseconds") / 1000;
        times.push((n, ms));
        wait_until("the next moment", || {
            let now = client.ask("TIME");
            let parts: Vec<&str> = now.split("\r\n").collect();
            let now =
                parts[2].parse::<u64>().expect("seconds") * 1000 + parts[4].parse::<u64>().expect("digits") / 1000;
            now > ms + 2
        });
    }
    wait_for_archive(&mut client);
    server.stop();
    for (n, ms) in times {
        let (_keep, data) = restored(place.path(), &["--to", &format!("@{}.{:03}", ms / 1000, ms % 1000)]);
        let copy = Server::start(&data, &[]);
        assert_eq!(copy.client().ask("GET k"), format!("$1\r\n{n}\r\n"), "at {ms}");
        copy.stop();
    }
    let early =
        refuses(&["restore", "--from", text(place.path()), "--dir", "/nowhere", "--to", "1999-12-31T23:59:59Z"]);
    assert!(early.contains("the oldest backup is of a later moment"), "{early}");
    // The moment that is named there can be had.
    let named = early.split_once("complete at ").and_then(|(_, rest)| rest.split_once(". "));
    let oldest = named.expect("the moment is named").0;
    assert!(succeeds(&["backups", text(place.path())]).contains(&format!("or {oldest} on")));
    restored(place.path(), &["--to", oldest]);
}

/// Returns the milliseconds since 1970.
fn now_ms() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970").as_millis()
}

#[test]
fn a_time_behind_the_last_record_is_warned_of_and_one_in_the_future_is_refused() {
    let (dir, place, kept) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = archiving(dir.path(), place.path(), &[]);
    let mut client = server.client();
    client.ask("SET k 0");
    wait_for_archive(&mut client);
    let between = now_ms();
    wait_until("the next moment", || now_ms() > between + 5);
    assert_eq!(client.ask("SET k 1"), "+OK\r\n");
    let last = last_record(&mut client);
    wait_for_archive(&mut client);
    server.stop();
    let at = |ms: u128| format!("@{}.{:03}", ms / 1000, ms % 1000);
    let restore = |name: &str, to: &str| {
        let data = kept.path().join(name);
        (haypile(&["restore", "--from", text(place.path()), "--dir", text(&data), "--to", to]), data)
    };

    let (output, data) = restore("beyond", &at(now_ms()));
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "there may have been no writes: {warned}");
    assert!(warned.contains(&format!("its last record, {last}, was made at 20")), "{warned}");
    assert!(warned.contains("if there were any, are not in the archive"), "{warned}");
    let copy = Server::start(&data, &[]);
    assert_eq!(copy.client().ask("GET k"), "$1\r\n1\r\n");
    copy.stop();

    let (output, _) = restore("between", &at(between));
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !warned.contains("warning"), "a later record is there: {warned}");

    let now = now_ms();
    for to in [at(now + 3_600_000), format!("@{now}")] {
        let (output, data) = restore("future", &to);
        let refused = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && refused.contains("is in the future"), "{to}: {refused}");
        assert!(refused.contains("`--to @N` takes seconds"), "{to}: {refused}");
        assert!(!data.exists(), "nothing was begun");
    }
}

#[test]
fn files_that_are_there_are_not_sent_again_and_old_backups_go() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let server = archiving(dir.path(), place.path(), &["--memtable-size", "1mb", "--archive-backups-keep", "2"]);
    let mut client = server.client();
    fill(&mut client, 0, 20_000);
    wait_for_archive(&mut client);
    let port = server.port.to_string();
    let first = succeeds(&["backup", "--port", &port]);
    assert!(first.contains("is in the archive"), "{first}");
    let (bytes, sent) = (number(&mut client, "archive_backup_bytes"), number(&mut client, "archive_backup_bytes_sent"));
    assert!(sent < bytes && bytes > 500_000, "{sent} of {bytes}");
    let second = succeeds(&["backup", "--port", &port]);
    let sent_again = number(&mut client, "archive_backup_bytes_sent");
    assert!(sent_again < bytes / 4, "{sent_again} of {bytes}: {second}");
    fill(&mut client, 20_000, 20_100);
    succeeds(&["backup", "--port", &port]);
    assert_eq!(objects(place.path(), "backups").len(), 2);
    let listed = succeeds(&["backups", text(place.path())]);
    assert!(listed.starts_with("backups: 2\n"), "{listed}");
    assert!(listed.contains("it can be restored from record"), "{listed}");
    let digest_now = digest(&mut client);
    wait_for_archive(&mut client);
    let early = refuses(&["restore", "--from", text(place.path()), "--dir", "/nowhere", "--to", "3"]);
    assert!(early.contains("the oldest backup is of a later moment"), "{early}");
    assert!(succeeds(&["check", text(place.path())]).contains(": 0 defects"));
    server.stop();
    let (_keep, data) = restored(place.path(), &[]);
    assert_eq!(digest_of(&data), digest_now);
}

#[test]
fn a_backup_waits_while_another_server_removes_files_and_none_go_while_another_makes_one() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let server = archiving(dir.path(), place.path(), &["--archive-backups-keep", "1"]);
    let mut client = server.client();
    fill(&mut client, 0, 1000);
    wait_for_archive(&mut client);
    let marks = place.path().join("marks");
    // A file of no backup, old enough to go.
    let file = place.path().join("files").join("ab").join("ab".repeat(32));
    let put_file = || {
        std::fs::create_dir_all(file.parent().expect("it is in a directory")).expect("the directory is ours");
        std::fs::write(&file, "of a backup that is not there").expect("the directory is ours");
        let opened = std::fs::File::options().write(true).open(&file).expect("it is there");
        opened.set_modified(SystemTime::now() - Duration::from_secs(48 * 3600)).expect("the file is ours");
    };
    put_file();
    std::fs::write(marks.join("making-00"), "haypile\n").expect("the directory is there since the first backup");
    let port = server.port.to_string();
    succeeds(&["backup", "--port", &port]);
    assert!(file.exists(), "it may be one of the backup that another server makes");
    std::fs::remove_file(marks.join("making-00")).expect("it is there");
    succeeds(&["backup", "--port", &port]);
    assert!(!file.exists(), "it is nobody's");

    let removing = marks.join("removing-00");
    std::fs::write(&removing, "haypile\n").expect("the directory is ours");
    let before = objects(place.path(), "backups");
    // A backup of the same second and record would have the same name.
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    let backup = std::thread::spawn(move || succeeds(&["backup", "--port", &port]));
    wait_until("the backup has its mark", || !objects(place.path(), "marks/").iter().all(|mark| *mark == removing));
    assert_eq!(objects(place.path(), "backups"), before, "it waits");
    std::fs::remove_file(&removing).expect("it is there");
    backup.join().expect("the backup is made");
    assert_ne!(objects(place.path(), "backups"), before);
    server.stop();
}

#[test]
fn a_key_of_the_users_encrypts_all_of_it() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let (archive, key) = (place.path().join("archive"), place.path().join("key"));
    std::fs::write(&key, "5a".repeat(32)).expect("the directory is ours");
    let server = archiving(dir.path(), &archive, &["--archive-key-file", text(&key)]);
    let mut client = server.client();
    for n in 0..2000 {
        assert_eq!(client.ask(&format!("SET secret:{n} very-secret-{n}")), "+OK\r\n");
    }
    wait_for_archive(&mut client);
    succeeds(&["backup", "--port", &server.port.to_string()]);
    let digest_now = digest(&mut client);
    server.stop();
    for file in objects(&archive, "") {
        let bytes = std::fs::read(&file).expect("it is there");
        let is_readable = bytes.windows(6).any(|part| part == b"secret");
        assert!(!is_readable, "{}", file.display());
    }
    let without = refuses(&["backups", text(&archive)]);
    assert!(without.contains("is encrypted: it needs its key"), "{without}");
    let other = place.path().join("other");
    std::fs::write(&other, "5b".repeat(32)).expect("the directory is ours");
    let wrong = refuses(&["backups", text(&archive), "--key-file", text(&other)]);
    assert!(wrong.contains("the key is not that of the archive"), "{wrong}");
    let with = ["--key-file", text(&key)];
    let (_keep, data) = restored(&archive, &with);
    assert_eq!(digest_of(&data), digest_now);
    assert!(succeeds(&[&["check", text(&archive)], &with[..]].concat()).contains(": 0 defects"));
}

#[test]
fn an_archive_that_refuses_keeps_the_log_until_it_is_back() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let archive = place.path().join("archive");
    // Nothing can be made below a file.
    std::fs::write(&archive, "in the way").expect("the directory is ours");
    let small = ["--memtable-size", "1mb", "--log-segment-size", "1mb", "--flush-log-bytes", "1mb"];
    let server = archiving(dir.path(), &archive, &small);
    let mut client = server.client();
    wait_until("it is noticed", || field_of(&mut client, "archive_state") == "failing");
    let value = "x".repeat(10_000);
    for n in 0..2000 {
        assert_eq!(client.ask(&format!("SET key:{n} {value}")), "+OK\r\n");
    }
    assert!(!field_of(&mut client, "archive_last_failure").is_empty());
    assert!(number(&mut client, "archive_lag_records") >= 2000);
    // The last flush of a stop lets go of nothing either.
    server.stop();
    let server = archiving(dir.path(), &archive, &[&small[..], &["--logfile", "server.log"]].concat());
    let mut client = server.client();
    wait_until("it is noticed again", || field_of(&mut client, "archive_state") == "failing");
    for n in 0..500 {
        assert_eq!(client.ask(&format!("SET key:{n} {value}")), "+OK\r\n");
    }
    std::fs::remove_file(&archive).expect("it is there");
    wait_for_archive(&mut client);
    assert_eq!(field_of(&mut client, "archive_missing_records"), "", "nothing went before it was archived");
    let bytes = number(&mut client, "archive_bytes");
    assert!(bytes > 2500 * 10_000, "{bytes}: no backup needs what came before it, but it was archived");
    let digest_now = digest(&mut client);
    server.stop();
    let told = std::fs::read_to_string(dir.path().join("server.log")).expect("it is written");
    assert_eq!(told.matches("works again").count(), 1, "{told}");
    let listed = succeeds(&["backups", text(&archive)]);
    assert!(listed.contains(" to 2500,"), "{listed}");
    assert!(succeeds(&["check", text(&archive)]).contains(": 0 defects"));
    let (_keep, data) = restored(&archive, &[]);
    assert_eq!(digest_of(&data), digest_now);
}

#[test]
fn beyond_its_bound_the_log_goes_and_the_hole_is_named() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let archive = place.path().join("archive");
    let small = [
        "--memtable-size",
        "1mb",
        "--log-segment-size",
        "1mb",
        "--flush-log-bytes",
        "1mb",
        "--archive-log-size",
        "4mb",
    ];
    let server = archiving(dir.path(), &archive, &small);
    let mut client = server.client();
    fill(&mut client, 0, 100);
    wait_for_archive(&mut client);
    // The archive goes away for a while: a directory cannot be entered where a file is.
    let aside = place.path().join("aside");
    std::fs::rename(&archive, &aside).expect("it is ours");
    std::fs::write(&archive, "in the way").expect("the directory is ours");
    let value = "x".repeat(10_000);
    for n in 0..2000 {
        assert_eq!(client.ask(&format!("SET key:{n} {value}")), "+OK\r\n");
    }
    wait_until("records go", || {
        client.ask("SET more 1");
        field(&mut client, "repl_backlog_first_byte_offset").parse::<u64>().expect("a number") > 300
    });
    std::fs::remove_file(&archive).expect("it is there");
    std::fs::rename(&aside, &archive).expect("it is ours");
    wait_until("it goes on", || !field_of(&mut client, "archive_missing_records").is_empty());
    wait_for_archive(&mut client);
    wait_until("a backup behind the hole is there", || number(&mut client, "archive_backups") >= 2);
    let (now, digest_now) = (last_record(&mut client), digest(&mut client));
    server.stop();
    let hole = field_hole(&archive);
    let checked = refuses(&["check", text(&archive)]);
    assert!(checked.contains("are missing"), "{checked}");
    // The moment behind the hole can be had, and the last one before it; what lies in it is named.
    let (_keep, data) = restored(&archive, &["--to", &now.to_string()]);
    assert_eq!(digest_of(&data), digest_now);
    let (_keep, data) = restored(&archive, &["--to", &(hole.0 - 1).to_string()]);
    succeeds(&["check", text(&data)]);
    let inside = refuses(&["restore", "--from", text(&archive), "--dir", "/nowhere", "--to", &hole.0.to_string()]);
    assert!(inside.contains(&format!("record {} to {}", hole.0, hole.1)) && inside.contains("--to"), "{inside}");
}

/// Returns the first and the last record that an archive lacks.
fn field_hole(archive: &Path) -> (u64, u64) {
    let checked = refuses(&["check", text(archive)]);
    let line = checked.lines().find(|line| line.contains("are missing")).expect("a hole");
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "record").expect("a record");
    (words[at + 1].parse().expect("a number"), words[at + 3].parse().expect("a number"))
}

#[test]
fn a_restored_server_goes_on_in_the_same_archive_as_a_branch() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let server = archiving(dir.path(), place.path(), &[]);
    let mut client = server.client();
    fill(&mut client, 0, 100);
    wait_for_archive(&mut client);
    let (early, digest_early) = (last_record(&mut client), digest(&mut client));
    fill(&mut client, 100, 200);
    wait_for_archive(&mut client);
    let (late, digest_late) = (last_record(&mut client), digest(&mut client));
    let old_history = field(&mut client, "master_replid");
    server.stop();

    let (_keep, data) = restored(place.path(), &["--to", &early.to_string()]);
    let server = archiving(&data, place.path(), &[]);
    let mut client = server.client();
    assert_eq!(digest(&mut client), digest_early);
    assert_eq!(client.ask("SET branch 1"), "+OK\r\n");
    wait_for_archive(&mut client);
    let digest_branch = digest(&mut client);
    server.stop();
    let (_keep, data) = restored(place.path(), &[]);
    assert_eq!(digest_of(&data), digest_branch, "the one that was written to last");
    let (_keep, data) = restored(place.path(), &["--history", &old_history, "--to", &late.to_string()]);
    assert_eq!(digest_of(&data), digest_late, "the one that was left");
    assert!(succeeds(&["check", text(place.path())]).contains(": 0 defects"));

    // Other data do not go to this archive.
    let other = TempDir::new();
    let stranger = archiving(other.path(), place.path(), &[]);
    let mut client = stranger.client();
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    wait_until("it is refused", || field_of(&mut client, "archive_last_failure").contains("that of other data"));
    stranger.stop();
}

#[test]
fn a_replica_that_leads_archives_on_without_a_hole() {
    let (dir, other, place) = (TempDir::new(), TempDir::new(), TempDir::new());
    let small = ["--memtable-size", "1mb", "--log-segment-size", "1mb", "--flush-log-bytes", "1mb"];
    let path = place.path().join("archive");
    let master = archiving(dir.path(), &path, &small);
    let mut client = master.client();
    fill(&mut client, 0, 300);
    let port = master.port.to_string();
    let replica = archiving(other.path(), &path, &[&small[..], &["--replicaof", "127.0.0.1", &port]].concat());
    wait_for_link(&replica);
    wait_for_archive(&mut client);
    let mut own = replica.client();
    wait_until("it watches", || field_of(&mut own, "archive_state") == "watching");
    assert_eq!(number(&mut own, "archive_chunks"), 0);
    let value = "x".repeat(10_000);
    for n in 0..1000 {
        assert_eq!(client.ask(&format!("SET key:{n} {value}")), "+OK\r\n");
    }
    // The archive goes away before the master can write what comes now.
    let aside = place.path().join("aside");
    std::fs::rename(&path, &aside).expect("it is ours");
    std::fs::write(&path, "in the way").expect("the directory is ours");
    for n in 0..1000 {
        assert_eq!(client.ask(&format!("SET late:{n} {value}")), "+OK\r\n");
    }
    is_equal(&master, &replica);
    master.kill();
    std::fs::remove_file(&path).expect("it is there");
    std::fs::rename(&aside, &path).expect("it is ours");
    assert_eq!(own.ask("REPLICAOF NO ONE"), "+OK\r\n");
    wait_until("it leads", || own.ask("SET k of-replica") == "+OK\r\n");
    wait_until("it writes", || field_of(&mut own, "archive_state") == "writing");
    wait_for_archive(&mut own);
    assert_eq!(field_of(&mut own, "archive_missing_records"), "");
    let digest_now = digest(&mut own);
    replica.stop();
    assert!(succeeds(&["check", text(&path)]).contains(": 0 defects"));
    let (_keep, data) = restored(&path, &[]);
    assert_eq!(digest_of(&data), digest_now);
}

#[test]
fn a_replica_begins_from_an_archive_instead_of_a_copy() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let master = archiving(dir.path(), place.path(), &[]);
    let mut client = master.client();
    fill(&mut client, 0, 500);
    wait_for_archive(&mut client);
    let (_keep, data) = restored(place.path(), &[]);
    fill(&mut client, 500, 600);
    let port = master.port.to_string();
    let replica = Server::start(&data, &[&DEBUG[..], &["--replicaof", "127.0.0.1", &port]].concat());
    wait_for_link(&replica);
    is_equal(&master, &replica);
    assert_eq!(client.info("sync_full"), "0", "records were enough");
    replica.stop();
    master.stop();
}

/// Makes an archive of a backup and chunks behind it; returns the digest of its newest data.
fn archive_of_a_backup_and_chunks(place: &TempDir) -> String {
    let dir = TempDir::new();
    let server = archiving(dir.path(), place.path(), &["--memtable-size", "1mb"]);
    let mut client = server.client();
    fill(&mut client, 0, 3000);
    wait_for_archive(&mut client);
    succeeds(&["backup", "--port", &server.port.to_string()]);
    for from in [3000, 3100] {
        fill(&mut client, from, from + 100);
        wait_for_archive(&mut client);
    }
    let digest_now = digest(&mut client);
    server.stop();
    digest_now
}

#[test]
fn damage_in_an_archive_is_noticed_and_named() {
    let place = TempDir::new();
    let digest_now = archive_of_a_backup_and_chunks(&place);
    let restores = || {
        let scratch = TempDir::new();
        haypile(&["restore", "--from", text(place.path()), "--dir", text(&scratch.path().join("data"))])
    };
    assert!(restores().status.success());
    let [.., chunk, last] = &objects(place.path(), "log")[..] else { panic!("there are two at least") };
    let manifest = objects(place.path(), "backups").pop().expect("there are some");
    let text_of_manifest = std::fs::read_to_string(&manifest).expect("it is a text");
    let line = text_of_manifest.lines().find(|line| line.ends_with(".sst")).expect("the data are in tables");
    let words: Vec<&str> = line.split(' ').collect();
    let (table, path_of_table) = (words[1], *words.last().expect("a line has words"));
    let file = place.path().join("files").join(&table[..2]).join(table);
    // The names of the others tell which records are missing.
    let of_name = |path: &Path, at: usize| {
        let name = path.file_name().expect("it is a file").to_string_lossy().into_owned();
        name.split('-').nth(at).and_then(|number| number.parse::<u64>().ok()).expect("the name has numbers")
    };
    let (first, next) = (of_name(chunk, 0), of_name(last, 0));
    assert_eq!(of_name(chunk, 1) + 1, next);
    let hole = format!("record {first} to {} of history", next - 1);
    let name = manifest.file_name().expect("it has a name").to_string_lossy().into_owned();
    let lacks = format!("backup {name} lacks {path_of_table}: files/{}/{table} is missing", &table[..2]);
    for (path, lost) in [(chunk, Some((&hole, &*hole))), (&file, Some((&lacks, table))), (&manifest, None)] {
        let whole = std::fs::read(path).expect("it is there");
        let mut changed = whole.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        for bytes in [changed, whole[..whole.len() - 1].to_vec()] {
            std::fs::write(path, bytes).expect("it is ours");
            let checked = refuses(&["check", text(place.path())]);
            assert!(!checked.contains(": 0 defects") && checked.contains("defects"), "{}: {checked}", path.display());
            let is_manifest = path.starts_with(place.path().join("backups"));
            let refused = restores();
            assert!(is_manifest || !refused.status.success(), "{} is damaged", path.display());
            if path == chunk {
                // As of a lost one it is said how far the data can be restored, and so far they can.
                for said in [checked, String::from_utf8_lossy(&refused.stderr).into_owned()] {
                    let through = said.split_once("(--to ").and_then(|(_, rest)| rest.split_once(')')).expect(&said).0;
                    assert!((first - 1..next).contains(&through.parse().expect("a number")), "{said}");
                    restored(place.path(), &["--to", through]);
                }
            }
        }
        std::fs::remove_file(path).expect("it is ours");
        match lost {
            Some((of_check, of_restore)) => {
                let checked = refuses(&["check", text(place.path())]);
                assert!(checked.contains(of_check) && !checked.contains(": 0 defects"), "{of_check}: {checked}");
                let refused = restores();
                let said = String::from_utf8_lossy(&refused.stderr);
                assert!(!refused.status.success() && said.contains(of_restore), "{of_restore}: {said}");
            }
            // Without its manifest a backup is none, and the one before it leads as far.
            None => {
                assert!(succeeds(&["check", text(place.path())]).contains(": 0 defects"));
                let (_keep, data) = restored(place.path(), &[]);
                assert_eq!(digest_of(&data), digest_now);
            }
        }
        std::fs::write(path, whole).expect("it is ours");
    }
    // Damage that is seen without reading all bounds what is listed.
    let whole = std::fs::read(last).expect("it is there");
    std::fs::write(last, &whole[..10]).expect("it is ours");
    let listed = succeeds(&["backups", text(place.path())]);
    assert!(listed.contains(&format!(", to record {}\n", next - 1)) && listed.contains("strange: log/"), "{listed}");
    std::fs::write(last, whole).expect("it is ours");
    // Before a hole all can be had.
    std::fs::remove_file(chunk).expect("it is ours");
    restored(place.path(), &["--to", &(first - 1).to_string()]);
}

#[test]
fn without_an_archive_there_is_nothing_to_ask_for() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("ARCHIVE.BACKUP"), "-ERR this server has no archive: 'archive-to' is empty\r\n");
    assert_eq!(field_of(&mut client, "archive_state"), "off");
    let place = TempDir::new();
    assert_eq!(client.ask(&format!("CONFIG SET archive-to {} archive-interval 1", text(place.path()))), "+OK\r\n");
    client.ask("SET k v");
    wait_for_archive(&mut client);
    assert_eq!(client.ask("CONFIG SET archive-to \"\""), "+OK\r\n");
    wait_until("it is off", || field_of(&mut client, "archive_state") == "off");
    assert!(!dir.path().join("haypile.archived").exists());
    let refused = refuses(&["backup", "--port", &server.port.to_string()]);
    assert!(refused.contains("this server has no archive"), "{refused}");
    let closed = refuses(&["backup", "--port", &free_port().to_string()]);
    assert!(closed.contains("cannot be reached"), "{closed}");
    server.stop();
}

#[test]
fn a_backup_that_others_have_removed_is_made_anew() {
    let (dir, archive) = (TempDir::new(), TempDir::new());
    let server = archiving(dir.path(), archive.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("SET key value"), "+OK\r\n");
    wait_for_archive(&mut client);
    let lost = field_of(&mut client, "archive_last_backup");
    objects(archive.path(), "backups").into_iter().for_each(|path| std::fs::remove_file(path).expect("it is there"));
    wait_until("another one is made", || field_of(&mut client, "archive_last_backup") != lost);
    let expected = digest(&mut client);
    assert_eq!(digest_of(&restored(archive.path(), &[]).1), expected);
}
