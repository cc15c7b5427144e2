//! SAVE and BGSAVE: the contents of `backups` then, a server that starts on one, and the end of old ones and of
//! failures.

mod process;

use haypile_harness::small_disk::SmallDisk;
use process::{Client, Server, TempDir, fails, free_port, wait_until};
use std::fs;
use std::net::TcpStream;
use std::path::Path;

/// Returns the visible names in `backups`, oldest first.
fn backups(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = all_names(dir).into_iter().filter(|name| !name.starts_with('.')).collect();
    names.sort_by_key(|name| (name[..16].to_owned(), name[17..].parse::<u64>().expect("an index")));
    names
}

fn all_names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("backups")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Runs BGSAVE to its end.
fn bgsave(client: &mut Client<TcpStream>) {
    let before: u64 = client.info("rdb_saves").parse().expect("a number");
    assert_eq!(client.ask("BGSAVE"), "+Background saving started\r\n");
    wait_for_end(client, before + 1);
}

fn wait_for_end(client: &mut Client<TcpStream>, begun: u64) {
    wait_until("the backup has ended", || {
        client.info("rdb_saves") == begun.to_string() && client.info("rdb_bgsave_in_progress") == "0"
    });
}

fn set_many(client: &mut Client<TcpStream>, from: u64, until: u64) {
    let mut requests = Vec::new();
    for n in from..until {
        requests.extend_from_slice(format!("SET key{n} {n}\r\n").as_bytes());
    }
    client.send(&requests);
    for _ in from..until {
        assert_eq!(client.reply(), "+OK\r\n");
    }
}

#[test]
fn a_server_starts_on_a_backup_and_holds_what_was_there_when_it_was_made() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--memtable-size", "1mb", "--log-segment-size", "1mb"]);
    let mut client = server.client();
    let started = client.ask("LASTSAVE");
    assert_eq!(client.info("rdb_last_bgsave_time_sec"), "-1");
    set_many(&mut client, 0, 20_000);
    assert_eq!(client.ask("DEL key0"), ":1\r\n");
    assert_eq!(client.ask("SETEX later 1999 x"), "+OK\r\n");
    assert!(client.info("rdb_changes_since_last_save").parse::<u64>().expect("a number") >= 20_002);
    assert_eq!(client.ask("SAVE"), "+OK\r\n");
    assert_eq!(client.info("rdb_changes_since_last_save"), "0");
    assert!(client.ask("LASTSAVE") >= started);
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
    set_many(&mut client, 20_000, 40_000);
    assert_eq!(client.ask("SET key1 changed"), "+OK\r\n");
    bgsave(&mut client);
    let names = backups(dir.path());
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(client.info("backup_last_name"), names[1]);
    assert!(names[1].ends_with(&format!("-{}", client.info("backup_last_index"))), "{names:?}");
    assert!(client.info("backup_last_bytes").parse::<u64>().expect("a number") > 100_000);
    assert_eq!(client.ask("FLUSHALL"), "+OK\r\n");

    // Each backup is a server of its own, also while the first one goes on and lets go of the files that they share.
    let first = dir.path().join("backups").join(&names[0]);
    let copy = Server::start(&first, &["--memtable-size", "1mb"]);
    let mut other = copy.client();
    assert_eq!(other.ask("DBSIZE"), ":20000\r\n");
    assert_eq!(other.ask("MGET key0 key1 key19999 key20000"), "*4\r\n$-1\r\n$1\r\n1\r\n$5\r\n19999\r\n$-1\r\n");
    assert!(other.ask("TTL later").starts_with(":199"));
    assert_ne!(other.info("master_replid"), client.info("master_replid"), "it goes its own way");
    assert_eq!(other.ask("FLUSHALL"), "+OK\r\n");
    set_many(&mut other, 50_000, 80_000);
    copy.stop();
    let second = Server::start(&dir.path().join("backups").join(&names[1]), &[]);
    let mut other = second.client();
    assert_eq!(other.ask("DBSIZE"), ":40000\r\n");
    assert_eq!(other.ask("MGET key1 key39999"), "*2\r\n$7\r\nchanged\r\n$5\r\n39999\r\n");
    second.kill();
    let copy = Server::start(&first, &[]);
    assert_eq!(copy.client().ask("DBSIZE"), ":30000\r\n", "it kept what was written to it");
    copy.stop();
    assert_eq!(client.ask("DBSIZE"), ":0\r\n");
    server.stop();
}

#[test]
fn a_block_that_asks_for_a_backup_is_in_it() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    for command in ["MULTI", "BGSAVE", "SET in-block 1", "BGSAVE SCHEDULE"] {
        client.ask(command);
    }
    let scheduled = "+Background saving scheduled\r\n";
    assert_eq!(client.ask("EXEC"), format!("*3\r\n{scheduled}+OK\r\n{scheduled}"));
    wait_for_end(&mut client, 1);
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(client.ask("SAVE"), "-ERR Command not allowed inside a transaction\r\n");
    assert_eq!(client.ask("DISCARD"), "+OK\r\n");
    server.stop();
    let names = backups(dir.path());
    assert_eq!(names.len(), 1, "{names:?}");
    let copy = Server::start(&dir.path().join("backups").join(&names[0]), &[]);
    assert_eq!(copy.client().ask("GET in-block"), "$1\r\n1\r\n");
    copy.stop();
}

#[test]
fn the_newest_backups_are_kept_and_those_that_a_server_was_started_on() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--backups-keep", "0"]);
    let mut client = server.client();
    for n in 0..4 {
        assert_eq!(client.ask(&format!("SET n {n}")), "+OK\r\n");
        assert_eq!(client.ask("SAVE"), "+OK\r\n");
    }
    assert_eq!(client.ask("SAVE"), "+OK\r\n", "another one of the same index");
    let all = backups(dir.path());
    assert_eq!(all.len(), 5, "0 keeps all: {all:?}");
    let path = |name: &str| dir.path().join("backups").join(name);
    Server::start(&path(&all[1]), &[]).stop();
    assert_eq!(client.ask("CONFIG SET backups-keep 2"), "+OK\r\n");
    bgsave(&mut client);
    let left = backups(dir.path());
    assert_eq!(left[..2], [all[1].clone(), all[4].clone()]);
    assert_eq!(left.len(), 3, "{left:?}");
    wait_until("the others are gone", || all_names(dir.path()).len() == 3);
    server.kill();
    // Remains of a crash are removed at the next start.
    for name in [".new-1-2", ".gone-x"] {
        fs::create_dir_all(path(name).join("base")).expect("a directory can be made");
        fs::write(path(name).join("base/000001.sst"), "rest").expect("it is writable");
    }
    let server = Server::start(dir.path(), &[]);
    wait_until("what was left is gone", || all_names(dir.path()).len() == 3);
    assert_eq!(backups(dir.path()), left);
    server.stop();
}

#[test]
fn remains_that_cannot_be_removed_keep_no_others() {
    const EACH: usize = 8;
    let dir = TempDir::new();
    Server::start(dir.path(), &[]).stop();
    let remains = dir.path().join("backups");
    for n in 0..EACH {
        fs::create_dir_all(remains.join(format!(".gone-{n}/base"))).expect("a directory can be made");
        // Nothing is removed below what is no directory.
        fs::write(remains.join(format!(".new-{n}")), "no directory").expect("it is writable");
    }
    let server = Server::start(dir.path(), &[]);
    wait_until("the directories are gone", || all_names(dir.path()).len() == EACH);
    assert!(all_names(dir.path()).iter().all(|name| name.starts_with(".new-")));
    let mut client = server.client();
    assert_eq!(client.ask("SAVE"), "+OK\r\n");
    server.stop();
}

#[test]
fn a_backup_that_fails_says_why_and_the_server_goes_on() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    fs::write(dir.path().join("backups"), "in the way").expect("it is writable");
    let reply = client.ask("SAVE");
    assert!(reply.starts_with("-ERR the backup failed: ") && reply.contains("backups"), "{reply}");
    assert_eq!(client.info("rdb_last_bgsave_status"), "err");
    assert!(client.info("backup_last_error").contains("backups"));
    assert_eq!(
        client.ask("CONFIG GET stop-writes-on-bgsave-error"),
        "*2\r\n$27\r\nstop-writes-on-bgsave-error\r\n$3\r\nyes\r\n"
    );
    assert_eq!(client.ask("SET k w"), "+OK\r\n", "what is durable needs no backup");
    let before = client.ask("LASTSAVE");
    bgsave(&mut client);
    assert_eq!(client.info("rdb_last_bgsave_status"), "err");
    assert_eq!(client.ask("LASTSAVE"), before);
    fs::remove_file(dir.path().join("backups")).expect("it is ours");
    bgsave(&mut client);
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
    assert_eq!(client.info("backup_last_error"), "");
    server.stop();

    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--engine", "memory"]);
    let reply = server.client().ask("SAVE");
    assert!(reply.contains("nothing on disk to back up"), "{reply}");
    assert_eq!(all_names(dir.path()), Vec::<String>::new());
    server.stop();
}

#[test]
fn points_of_save_make_no_backups() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--save", "1 1"]);
    let mut client = server.client();
    assert_eq!(client.ask("CONFIG GET save"), "*2\r\n$4\r\nsave\r\n$3\r\n1 1\r\n");
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    wait_until("Redis would have made one", || client.info("uptime_in_seconds").parse::<u64>().expect("a number") >= 3);
    assert_eq!(client.info("rdb_saves"), "0");
    assert_eq!(all_names(dir.path()), Vec::<String>::new());
    server.stop();
}

#[test]
fn a_full_disk_fails_the_backup_and_nothing_else() {
    let dir = TempDir::new();
    let Some(disk) = SmallDisk::mount(dir.path(), "size=256m") else { return };
    let small = ["--disk-free-min", "20mb", "--log-segment-size", "1mb", "--memtable-size", "64mb"];
    let server = Server::start(&disk.0, &small);
    let mut client = server.client();
    let value = "v".repeat(1 << 20);
    for n in 0..40 {
        assert_eq!(client.ask_words(&[b"SET", format!("k{n}").as_bytes(), value.as_bytes()]), "+OK\r\n");
    }
    let free = || rustix::fs::statvfs(&disk.0).map(|disk| disk.f_bavail * disk.f_frsize).expect("it is mounted");
    let filler = disk.0.join("filler.conf");
    fs::write(&filler, vec![0; (free() - (40 << 20)) as usize]).expect("there is room");
    let reply = client.ask("SAVE");
    assert!(reply.starts_with("-ERR the backup failed: the disk is full: it has "), "{reply}");
    assert_eq!(client.info("rdb_last_bgsave_status"), "err");
    assert_eq!(all_names(&disk.0), Vec::<String>::new(), "nothing was begun");
    // Data in memory need the same room until they are flushed.
    wait_until("a backup does not take the room that writes need", || client.ask("SET after 1") == "+OK\r\n");
    fs::remove_file(&filler).expect("it is ours");
    // The room is there when it is looked for, and gone then.
    let tiny = SmallDisk::mount(&disk.0.join("backups"), "size=8m").expect("the first one could be mounted");
    let reply = client.ask("SAVE");
    assert!(reply.starts_with("-ERR the backup failed: ") && reply.contains("No space left"), "{reply}");
    assert_eq!(all_names(&disk.0), Vec::<String>::new(), "nothing is left of it");
    drop(tiny);
    wait_until("the server has looked at the disk again", || client.ask("SET after 2") == "+OK\r\n");
    assert_eq!(client.ask("SAVE"), "+OK\r\n");
    server.kill();
    let names = backups(&disk.0);
    let copy = Server::start(&disk.0.join("backups").join(&names[0]), &small);
    assert_eq!(copy.client().ask("DBSIZE"), ":41\r\n");
    assert_eq!(copy.client().ask("STRLEN k39"), format!(":{}\r\n", 1 << 20));
    copy.kill();
}

#[test]
fn a_backup_with_damage_is_refused() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    set_many(&mut client, 0, 1000);
    assert_eq!(client.ask("SAVE"), "+OK\r\n");
    server.stop();
    let backup = dir.path().join("backups").join(&backups(dir.path())[0]);
    let log = fs::read_dir(backup.join("log")).expect("a directory").flatten().next().expect("a segment").path();
    let bytes = fs::read(&log).expect("it is readable");
    // A log that a crash has left would end here.
    fs::write(&log, &bytes[..bytes.len() - 1]).expect("it is writable");
    let why = fails(&backup, free_port(), &[]);
    assert!(why.contains("the log is damaged") && why.contains("was synced"), "{why}");
    fs::write(&log, &bytes).expect("it is writable");
    let copy = Server::start(&backup, &[]);
    assert_eq!(copy.client().ask("DBSIZE"), ":1000\r\n");
    copy.stop();
}
