//! A disk that gets full: writes are refused, reads and deletions go on, and deleted data make room.

mod process;

use haypile_harness::small_disk::SmallDisk;
use process::following::{field, is_equal, replica_of};
use process::group::{QUICK, raft};
use process::{Server, TempDir, free_port, wait_until};
use std::net::TcpStream;

type Client = process::Client<TcpStream>;

/// Bytes that do not compress.
struct Noise(u64);

impl Noise {
    fn megabyte(&mut self) -> Vec<u8> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            (self.0 >> 56) as u8
        };
        (0..1 << 20).map(|_| next()).collect()
    }
}

/// Writes keys of a megabyte until that is refused; returns how many there are.
fn fill_with_keys(client: &mut Client) -> usize {
    let mut noise = Noise(1);
    for n in 0.. {
        let reply = client.ask_words(&[b"SET", format!("k{n}").as_bytes(), &noise.megabyte()]);
        if reply != "+OK\r\n" {
            assert!(reply.starts_with("-MISCONF Haypile cannot write: "), "{reply}");
            return n;
        }
    }
    unreachable!("the disk is small")
}

#[test]
fn a_replica_whose_disk_is_full_serves_what_it_has_and_goes_on_when_there_is_room() {
    let (dir, of_master) = (TempDir::new(), TempDir::new());
    let Some(disk) = SmallDisk::mount(dir.path(), "size=200m") else { return };
    let more = ["--enable-debug-command", "yes"];
    let master = Server::start(of_master.path(), &[&more[..], &["--replica-log-size", "64mb"]].concat());
    let replica = replica_of(&master, &disk.0, &[&more[..], &["--disk-free-min", "8mb"]].concat());
    let (mut client, mut noise) = (master.client(), Noise(1));
    for n in 0..300 {
        let reply = client.ask_words(&[b"SET", format!("k{n}").as_bytes(), &noise.megabyte()]);
        assert_eq!(reply, "+OK\r\n", "its replica's disk is no concern of the master");
    }
    let mut reader = replica.client();
    wait_until("it says so", || field(&mut reader, "master_link_error").contains("disk"));
    assert_eq!(reader.ask("STRLEN k0"), format!(":{}\r\n", 1 << 20));
    assert_eq!(client.ask("SET after 1"), "+OK\r\n");
    // The master has let its replica go by now, so that the replica needs room for a copy as well.
    disk.resize("size=1500m");
    wait_until("it has all", || reader.ask("GET after") == "$1\r\n1\r\n");
    is_equal(&master, &replica);
    assert_eq!(field(&mut reader, "master_link_error"), "");
    replica.stop();
    master.stop();
}

#[test]
fn a_leader_whose_disk_is_full_has_another_member_lead() {
    let dir = TempDir::new();
    let Some(disk) = SmallDisk::mount(dir.path(), "size=200m") else { return };
    let (others, ports) = ([TempDir::new(), TempDir::new()], [free_port(), free_port(), free_port()]);
    let peers = [1, 2, 3].map(|id| format!("{id}@127.0.0.1:{}", ports[id - 1])).join(",");
    let dirs = [&disk.0, others[0].path(), others[1].path()];
    let start = |at: usize| {
        let id = (at + 1).to_string();
        let small = ["--disk-free-min", "8mb", "--raft-node-id", &id, "--raft-peers", &peers];
        Server::start_at(dirs[at], ports[at], &[&small[..], &QUICK].concat())
    };
    let servers = [0, 1, 2].map(start);
    let leader = || servers.iter().position(|server| raft(&mut server.client(), "role") == "leader");
    wait_until("one leads", || leader().is_some());
    let ok = Some("+OK\r\n".to_owned());
    wait_until("the one with the small disk leads", || {
        leader() == Some(0) || leader().is_some_and(|at| servers[at].client().try_ask("RAFT.TRANSFER-LEADER 1") == ok)
    });
    let mut first = servers[0].client();
    wait_until("it serves", || first.ask("PING") == "+PONG\r\n" && raft(&mut first, "role") == "leader");
    disk.leave(0).expect("it can be filled");
    let mut noise = Noise(1);
    wait_until("writes are refused, or another one leads", || {
        let reply = first.try_ask_words(&[b"SET", b"key", &noise.megabyte()]);
        reply.is_none_or(|reply| reply.starts_with('-'))
    });
    wait_until("another one leads", || leader().is_some_and(|at| at != 0));
    let next = leader().expect("it leads");
    wait_until("writes go on", || servers[next].client().try_ask("SET after value") == ok);
}

#[test]
fn a_server_that_was_killed_on_a_disk_it_had_filled_answers_and_makes_room() {
    let dir = TempDir::new();
    let Some(disk) = SmallDisk::mount(dir.path(), "size=200m") else { return };
    // A segment of the log has the default size: eight times what shall stay free.
    let small = ["--disk-free-min", "8mb"];
    let server = Server::start(&disk.0, &small);
    let keys = fill_with_keys(&mut server.client());
    server.kill();
    for deletes in [&["DEL k0", "UNLINK k1 k2", "PEXPIRE k3 -1", "GETDEL k4"][..], &["FLUSHALL"]] {
        let server = Server::start(&disk.0, &small);
        let mut client = server.client();
        assert_eq!(client.ask("STRLEN k5"), format!(":{}\r\n", 1 << 20));
        assert_eq!(client.ask("DBSIZE"), format!(":{}\r\n", if deletes.len() > 1 { keys } else { keys - 5 }));
        for delete in deletes {
            let reply = client.ask(delete);
            assert!(!reply.starts_with('-'), "{delete}: {reply}");
        }
        wait_until("writes go on", || client.ask("SET after 1") == "+OK\r\n");
        assert_eq!(client.ask("DEL after"), ":1\r\n");
        if deletes.len() > 1 {
            server.kill();
        } else {
            wait_until("the room comes back", || disk.free_bytes() > 40 << 20);
            server.stop();
        }
    }
    let server = Server::start(&disk.0, &small);
    assert_eq!(server.client().ask("DBSIZE"), ":0\r\n");
    server.stop();
}

#[test]
fn where_others_have_filled_the_disk_what_makes_room_goes_on_before_and_after_a_restart() {
    let dir = TempDir::new();
    let Some(disk) = SmallDisk::mount(dir.path(), "size=400m") else { return };
    let small = ["--disk-free-min", "64mb"];
    let server = Server::start(&disk.0, &small);
    let mut client = server.client();
    let mut noise = Noise(1);
    for n in 0..20 {
        assert_eq!(client.ask_words(&[b"SET", format!("k{n}").as_bytes(), &noise.megabyte()]), "+OK\r\n");
    }
    wait_until("the reserve is kept", || client.info("disk_reserve_bytes") == (16 << 20).to_string());
    disk.leave(0).expect("the disk can be filled");
    for (delete, reply) in [("DEL k0", ":1"), ("UNLINK k1 k2", ":2"), ("PEXPIRE k3 -1", ":1")] {
        assert_eq!(client.ask(delete), format!("{reply}\r\n"), "{delete}");
    }
    wait_until("writes are refused", || client.ask("SET k4 v NX").starts_with("-MISCONF "));
    // The freed room is for the server only.
    disk.leave(1 << 20).expect("the disk can be filled");
    server.kill();
    disk.clear();
    disk.leave(1 << 20).expect("the disk can be filled");

    let server = Server::start(&disk.0, &small);
    let mut client = server.client();
    assert_eq!(client.ask("DBSIZE"), ":16\r\n");
    assert_eq!(client.ask("DEL k5"), ":1\r\n");
    assert_eq!(client.ask("FLUSHALL"), "+OK\r\n");
    wait_until("the server lowers its demand", || client.ask("CONFIG SET disk-free-min 1kb") == "+OK\r\n");
    wait_until("writes go on", || client.ask("SET after 1") == "+OK\r\n");
    server.stop();
    disk.clear();
    let server = Server::start(&disk.0, &small);
    let mut client = server.client();
    assert_eq!(client.ask("KEYS *"), "*1\r\n$5\r\nafter\r\n");
    wait_until("the reserve is taken again", || client.info("disk_reserve_bytes") == (16 << 20).to_string());
    server.stop();
}

#[test]
fn a_stop_on_a_disk_without_any_room_loses_nothing_and_says_so() {
    let dir = TempDir::new();
    let Some(disk) = SmallDisk::mount(dir.path(), "size=200m") else { return };
    // Nothing is reserved.
    let small = ["--disk-free-min", "0"];
    let server = Server::start(&disk.0, &small);
    let mut noise = Noise(1);
    let mut client = server.client();
    for n in 0..5 {
        assert_eq!(client.ask_words(&[b"SET", format!("k{n}").as_bytes(), &noise.megabyte()]), "+OK\r\n");
    }
    disk.leave(0).expect("the disk can be filled");
    server.stop();
    disk.clear();
    let server = Server::start(&disk.0, &small);
    assert_eq!(server.client().ask("DBSIZE"), ":5\r\n");
    server.stop();
}

#[test]
fn deletions_go_on_while_the_disk_is_short_and_make_room() {
    let dir = TempDir::new();
    let Some(disk) = SmallDisk::mount(dir.path(), "size=256m") else { return };
    let small = ["--disk-free-min", "80mb", "--log-segment-size", "1mb", "--memtable-size", "4mb"];
    let server = Server::start(&disk.0, &small);
    let mut client = server.client();
    let mut noise = Noise(1);
    for n in 0..60 {
        assert_eq!(client.ask_words(&[b"SET", format!("k{n}").as_bytes(), &noise.megabyte()]), "+OK\r\n");
    }
    assert_eq!(client.ask("PFADD hll a b c"), ":1\r\n");
    // Beside the reserve of 20 MB.
    disk.leave(35 << 20).expect("the disk can be filled");
    let mut reply = String::new();
    wait_until("writes are refused", || {
        reply = client.ask("SET k0 v NX");
        reply.starts_with("-MISCONF Haypile cannot write: the disk has ")
    });
    assert!(reply.ends_with("less than disk-free-min. Reads and deletions go on.\r\n"), "{reply}");
    assert_eq!(["writes_refused", "aof_last_write_status"].map(|field| client.info(field)), ["1", "err"]);
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(client.ask("DEL k0"), "+QUEUED\r\n");
    assert_eq!(client.ask("SET k0 v"), "+QUEUED\r\n");
    let reply = client.ask("EXEC");
    assert!(
        reply.starts_with("-EXECABORT Transaction discarded because of: MISCONF "),
        "{reply}: a block is as what writes in it"
    );
    assert_eq!(client.ask("STRLEN k0"), format!(":{}\r\n", 1 << 20));
    assert_eq!(client.ask("PFCOUNT hll"), ":3\r\n", "a count that cannot be kept is told");
    // A compaction may take, for a moment, more than what is left to deletions.
    wait_until("keys are deleted", || client.ask("DEL k0 k1") == ":2\r\n");
    wait_until("deadlines count", || client.ask("PEXPIRE k2 -1") == ":1\r\n");
    assert_eq!(client.ask("DBSIZE"), ":58\r\n");
    wait_until("databases are emptied", || client.ask("FLUSHDB") == "+OK\r\n");
    wait_until("writes go on", || client.ask("SET after 1") == "+OK\r\n");
    assert_eq!(client.ask("DBSIZE"), ":1\r\n");
    assert_eq!(["writes_refused", "aof_last_write_status"].map(|field| client.info(field)), ["0", "ok"]);
    server.kill();
    let server = Server::start(&disk.0, &small);
    assert_eq!(server.client().ask("KEYS *"), "*1\r\n$5\r\nafter\r\n");
    server.stop();
}
