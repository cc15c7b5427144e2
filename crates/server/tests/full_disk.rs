//! A disk that gets full: writes are refused, reads and deletions go on, and what is deleted makes room.

mod process;

use process::{Server, SmallDisk, TempDir, wait_until};

#[test]
fn deletions_go_on_while_the_disk_is_short_and_make_room() {
    let dir = TempDir::new();
    let Some(disk) = SmallDisk::mount(dir.path(), "size=256m") else { return };
    let small = ["--disk-free-min", "80mb", "--log-segment-size", "1mb", "--memtable-size", "4mb"];
    let server = Server::start(&disk.0, &small);
    let mut client = server.client();
    // Nothing that compresses.
    let mut state = 1u64;
    let mut noise = || {
        state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        (state >> 56) as u8
    };
    for n in 0..60 {
        let value: Vec<u8> = (0..1 << 20).map(|_| noise()).collect();
        assert_eq!(client.ask_words(&[b"SET", format!("k{n}").as_bytes(), &value]), "+OK\r\n");
    }
    assert_eq!(client.ask("PFADD sketch a b c"), ":1\r\n");
    let disk_now = rustix::fs::statvfs(&disk.0).expect("it is mounted");
    let free = (disk_now.f_bavail * disk_now.f_frsize) as usize;
    std::fs::write(disk.0.join("filler.conf"), vec![0; free - (60 << 20)]).expect("there is room");
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
    assert_eq!(client.ask("PFCOUNT sketch"), ":3\r\n", "a count that cannot be kept is told");
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
