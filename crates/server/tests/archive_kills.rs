//! Servers that are killed while they archive, and groups: nothing that was acknowledged and archived is lost, and no
//! backup is half there.

mod process;

use process::group::Group;
use process::{Client, Server, TempDir, wait_until};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

fn haypile(words: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_haypile")).args(words).output().expect("the program can be run");
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is a text")
}

fn field_of(client: &mut Client<TcpStream>, name: &str) -> String {
    let info = client.ask("INFO archive");
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned));
    value.unwrap_or_else(|| panic!("no {name} in {info}"))
}

fn wait_for_archive(client: &mut Client<TcpStream>) {
    let last: u64 = client.info("master_repl_offset").parse().expect("a number");
    wait_until("all is archived", || {
        field_of(client, "archive_last_record").parse::<u64>().expect("a number") >= last
            && !field_of(client, "archive_last_backup").is_empty()
            && field_of(client, "archive_backup_in_progress") == "0"
    });
}

/// Restores all that an archive has, which is sound; returns the digest.
fn restored(archive: &Path) -> String {
    let (is_sound, said) = haypile(&["check", text(archive)]);
    assert!(is_sound && said.contains(": 0 defects"), "{said}");
    let dir = TempDir::new();
    let data = dir.path().join("restored");
    let (is_restored, said) = haypile(&["restore", "--from", text(archive), "--dir", text(&data)]);
    assert!(is_restored, "{said}");
    let (is_sound, said) = haypile(&["check", text(&data)]);
    assert!(is_sound, "{said}");
    let server = Server::start(&data, &["--enable-debug-command", "yes"]);
    let digest = server.client().ask("DEBUG DIGEST");
    server.stop();
    digest
}

#[test]
fn a_server_is_killed_at_any_moment_of_its_archiving() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let more = [
        "--archive-to",
        text(place.path()),
        "--archive-interval",
        "1",
        "--enable-debug-command",
        "yes",
        "--memtable-size",
        "1mb",
        "--log-segment-size",
        "1mb",
        "--flush-log-bytes",
        "1mb",
        "--archive-backups-keep",
        "3",
    ];
    let value = "x".repeat(2000);
    for round in 0..8 {
        let server = Server::start(dir.path(), &more);
        let mut client = server.client();
        for n in 0..400 + 300 * round {
            assert_eq!(client.ask(&format!("SET key:{round}:{n} {value}")), "+OK\r\n");
            // The kill comes while the log, a backup, or both are on their way.
            if n == 300 {
                client.ask("ARCHIVE.BACKUP");
            }
        }
        assert_eq!(client.ask("INCR rounds"), format!(":{}\r\n", round + 1));
        server.kill();
    }
    let server = Server::start(dir.path(), &more);
    let mut client = server.client();
    assert_eq!(client.ask("INCR rounds"), ":9\r\n");
    wait_for_archive(&mut client);
    assert_eq!(field_of(&mut client, "archive_missing_records"), "");
    let digest = client.ask("DEBUG DIGEST");
    server.kill();
    assert_eq!(restored(place.path()), digest);
    assert!(!dir.path().join("archiving").exists() || dir.path().join("haypile.lock").exists());
}

#[test]
fn whoever_leads_a_group_archives_what_it_has_agreed_on() {
    let place = TempDir::new();
    let archive: &'static str = Box::leak(text(place.path()).to_owned().into_boxed_str());
    let mut group = Group::start(&[
        "--archive-to",
        archive,
        "--archive-interval",
        "1",
        "--enable-debug-command",
        "yes",
        "--memtable-size",
        "1mb",
    ]);
    for round in 0..3 {
        let leader = group.leader();
        let mut client = group.client(leader);
        for n in 0..300 {
            assert_eq!(client.ask(&format!("SET key:{round}:{n} value")), "+OK\r\n");
        }
        if round == 1 {
            wait_for_archive(&mut client);
        }
        group.kill(leader);
        let next = group.leader();
        assert_eq!(group.client(next).ask(&format!("SET after:{round} value")), "+OK\r\n");
        group.begin(leader);
        group.settle();
    }
    let leader = group.leader();
    let mut client = group.client(leader);
    wait_until("it writes", || field_of(&mut client, "archive_state") == "writing");
    wait_for_archive(&mut client);
    let other = (leader + 1) % 3;
    wait_until("the others look on", || field_of(&mut group.client(other), "archive_state") == "watching");
    assert_eq!(field_of(&mut client, "archive_missing_records"), "");
    let digest = client.ask("DEBUG DIGEST");
    drop(group);
    assert_eq!(restored(place.path()), digest);
}
