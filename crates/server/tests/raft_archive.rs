//! New members of a Raft group that begin with data out of the group's archive, instead of a copy of all data.

mod archives;
mod process;

use archives::{restored, text, wait_for_archive};
use process::following::fill;
use process::group::{Group, QUICK, raft};
use process::{Client, Server, TempDir, free_port, wait_until};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Returns a text that lives as long as the process.
fn kept(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// Starts a member on a directory.
fn member(dir: &Path, (id, port): (u64, u16), peers: &str, more: &[&str]) -> Server {
    let id = id.to_string();
    let own = ["--raft-node-id", &id, "--raft-peers", peers, "--enable-debug-command", "yes"];
    let log = ["--logfile", "server.log"];
    Server::start_at(dir, port, &[&own[..], &log, &QUICK, more].concat())
}

fn log_of(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("server.log")).expect("it is written")
}

/// Returns the version of a member's ballot.
fn ballot_version(dir: &Path) -> u8 {
    std::fs::read(dir.join("raft.ballot")).expect("the member has begun")[8]
}

fn wait_for_fault(server: &Server, part: &str) {
    wait_until(part, || raft(&mut server.client(), "fault").contains(part));
}

fn wait_to_lead(server: &Server) {
    wait_until("it leads", || raft(&mut server.client(), "role") == "leader");
}

/// Adds a member, and waits until it votes.
fn add(leader: &mut Client<TcpStream>, id: u64, port: u16) {
    assert_eq!(leader.ask(&format!("RAFT.NODE ADD {id} 127.0.0.1:{port}")), "+OK\r\n");
    wait_for_voter(leader, id);
}

fn wait_for_voter(leader: &mut Client<TcpStream>, id: u64) {
    let voter = format!(":id={id},");
    wait_until("it votes", || {
        let page = leader.ask("INFO raft");
        page.lines().any(|line| line.contains(&voter) && line.contains(",part=voter,"))
    });
}

/// Waits until a member has all that the leader has, and compares both.
fn wait_to_agree(leader: &Server, member: &Server) {
    let last = |server: &Server| raft(&mut server.client(), "commit_entry");
    wait_until("it has all", || last(leader) == last(member));
    let digest = leader.client().ask("DEBUG DIGEST");
    wait_until("it has applied all", || member.client().ask("DEBUG DIGEST") == digest);
}

#[test]
fn a_member_begins_with_the_archive_while_clients_write() {
    let place = TempDir::new();
    let archive = place.path().join("archive");
    let more = ["--archive-to", kept(text(&archive)), "--archive-interval", "1", "--enable-debug-command", "yes"];
    let mut group = Group::start(&more);
    let leader = group.leader();
    let mut client = group.client(leader);
    fill(&mut client, 0, 500);
    let (ends, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let (_keep, data, port) = std::thread::scope(|scope| {
        let mut writer = group.client(leader);
        let (ends, acknowledged) = (&ends, &acknowledged);
        scope.spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let value = acknowledged.load(Ordering::Relaxed) + 1;
                assert_eq!(writer.ask("INCR counter"), format!(":{value}\r\n"));
                acknowledged.store(value, Ordering::Relaxed);
            }
        });
        wait_for_archive(&mut client);
        let (keep, data) = restored(&archive, &[]);
        let port = free_port();
        let peers: Vec<_> = (1..4).zip(&group.ports).map(|(id, port)| format!("{id}@127.0.0.1:{port}")).collect();
        group.dirs.push(TempDir::new());
        group.servers.push(Some(member(&data, (4, port), &peers.join(","), &[])));
        group.ports.push(port);
        wait_until("it has begun", || data.join("raft.ballot").exists());
        assert_eq!(ballot_version(&data), 3, "nobody has named it");
        add(&mut client, 4, port);
        wait_until("it has begun to count", || ballot_version(&data) == 2);
        ends.store(true, Ordering::Relaxed);
        (keep, data, port)
    });
    group.settle();
    let value = acknowledged.load(Ordering::Relaxed);
    assert_eq!(client.ask("GET counter"), format!("${}\r\n{value}\r\n", value.to_string().len()));
    let digests = group.digests();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    let mut fourth = Client::at(port);
    assert_eq!((raft(&mut fourth, "copies"), raft(&mut fourth, "fault")), ("0".into(), String::new()));
    let log = log_of(&data);
    assert!(log.contains("this member begins with restored data") && !log.contains("fetching a copy"), "{log}");
    // With one of the others gone, a majority of four needs it.
    group.kill((leader + 1) % 3);
    assert_eq!(client.ask("INCR counter"), format!(":{}\r\n", value + 1));
    group.kill(leader);
    group.begin(leader);
    let next = group.leader();
    assert_eq!(group.client(next).ask("INCR counter"), format!(":{}\r\n", value + 2));
}

/// Starts a group of one with an archive, and waits until it has archived something.
fn group_of_one(dir: &Path, port: u16, archive: &Path, from: usize) -> Server {
    let peers = format!("1@127.0.0.1:{port}");
    let own = ["--archive-to", text(archive), "--archive-interval", "1"];
    let server = member(dir, (1, port), &peers, &own);
    wait_to_lead(&server);
    let mut client = server.client();
    fill(&mut client, from, from + 100);
    wait_for_archive(&mut client);
    server
}

#[test]
fn a_restored_member_goes_on_after_kills_at_any_moment() {
    let (dir, place, port) = (TempDir::new(), TempDir::new(), free_port());
    let archive = place.path().join("archive");
    let first = group_of_one(dir.path(), port, &archive, 0);
    let (peers, own) = (format!("1@127.0.0.1:{port}"), free_port());
    let (_keep, data) = restored(&archive, &[]);
    let start = || member(&data, (2, own), &peers, &[]);
    first.kill();
    let second = start();
    wait_for_fault(&second, "waits for the word of a leader about them: 127.0.0.1:");
    assert!(!data.join("raft.ballot").exists() && !data.join("raft.member").exists(), "it is no member yet");
    second.kill();
    let first = member(dir.path(), (1, port), &peers, &[]);
    wait_to_lead(&first);
    let mut client = first.client();
    fill(&mut client, 100, 200);
    for _ in 0..2 {
        let second = start();
        wait_until("it has begun", || raft(&mut second.client(), "role") == "follower");
        assert_eq!((ballot_version(&data), raft(&mut second.client(), "fault")), (3, String::new()));
        second.kill();
    }
    assert_eq!(client.ask(&format!("RAFT.NODE ADD 2 127.0.0.1:{own}")), "+OK\r\n");
    let second = start();
    wait_for_voter(&mut client, 2);
    assert_eq!(ballot_version(&data), 2);
    wait_to_agree(&first, &second);
    second.kill();
    let second = start();
    fill(&mut client, 200, 300);
    wait_to_agree(&first, &second);
    assert_eq!(raft(&mut second.client(), "copies"), "0");
    // The order may come before the start: the member is a learner that nobody has heard of.
    let (_keep, data) = restored(&archive, &[]);
    let third = free_port();
    assert_eq!(client.ask(&format!("RAFT.NODE ADD 3 127.0.0.1:{third}")), "+OK\r\n");
    let third = member(&data, (3, third), &peers, &[]);
    wait_for_voter(&mut client, 3);
    wait_to_agree(&first, &third);
    assert_eq!((raft(&mut third.client(), "copies"), ballot_version(&data)), ("0".into(), 2));
    // A member that has lost its ballot since is no new one.
    third.kill();
    std::fs::remove_file(data.join("raft.ballot")).expect("it was there");
    let third = member(&data, (3, free_port()), &peers, &[]);
    wait_for_fault(&third, "it is missing, and the log has entries");
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the directory is ours");
    for entry in std::fs::read_dir(from).expect("it is there").flatten() {
        let (path, fresh) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() { copy_dir(&path, &fresh) } else { _ = std::fs::copy(&path, &fresh).expect("there is room") }
    }
}

#[test]
fn what_is_not_of_the_groups_past_is_refused() {
    let (dir, apart, place, port) = (TempDir::new(), TempDir::new(), TempDir::new(), free_port());
    let (archive, of_apart) = (place.path().join("archive"), place.path().join("apart"));
    let peers = format!("1@127.0.0.1:{port}");
    group_of_one(dir.path(), port, &archive, 0).stop();
    // The group goes on twice from here.
    copy_dir(dir.path(), apart.path());
    group_of_one(apart.path(), port, &of_apart, 100).stop();
    let first = member(dir.path(), (1, port), &peers, &[]);
    wait_to_lead(&first);
    let mut client = first.client();

    let (_keep, data) = restored(&archive, &[]);
    let old = member(&data, (1, free_port()), &peers, &[]);
    wait_for_fault(&old, "the group has a member 1, which may have voted");
    old.stop();
    assert!(!data.join("raft.member").exists() && !data.join("raft.ballot").exists(), "it may have another number");

    let (_other, forked) = restored(&of_apart, &[]);
    let own = free_port();
    let second = member(&forked, (2, own), &peers, &[]);
    wait_for_fault(&second, "is beyond the group's, which end with");
    fill(&mut client, 1000, 1300);
    wait_for_fault(&second, "is not the group's record");
    assert_eq!(raft(&mut second.client(), "role"), "stopped");
    second.stop();

    let (strange, place) = (TempDir::new(), TempDir::new());
    let elsewhere = Server::start(strange.path(), &["--archive-to", text(place.path()), "--archive-interval", "1"]);
    fill(&mut elsewhere.client(), 0, 20);
    wait_for_archive(&mut elsewhere.client());
    elsewhere.stop();
    let (_third, strange) = restored(place.path(), &[]);
    let third = member(&strange, (3, free_port()), &peers, &[]);
    wait_for_fault(&third, "the data are of history");
    third.stop();

    // The directory that was refused for its number goes on with another one.
    let second = member(&data, (2, own), &peers, &[]);
    add(&mut client, 2, own);
    wait_to_agree(&first, &second);
}
