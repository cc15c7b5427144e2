//! FAILOVER: a master hands its part over to a replica while clients write.

mod process;

use process::following::{DEBUG, READONLY, field, fill, is_equal, print_log, replica_of, wait_for_link, wait_for_only};
use process::{Server, TempDir, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends those who write, whichever way the test ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn a_master_hands_over_and_follows_without_a_lost_write() {
    let dirs = [TempDir::new(), TempDir::new(), TempDir::new()];
    let master = Server::start(dirs[0].path(), &DEBUG);
    fill(&mut master.client(), 0, 100);
    let replica = replica_of(&master, &dirs[1], &DEBUG);
    let other = replica_of(&master, &dirs[2], &DEBUG);
    let mut nodes = [&master, &replica];
    let writes_on = AtomicBool::new(true);
    let (acknowledged, refused) = std::thread::scope(|threads| {
        // Each adds to its own counter, on whichever node takes writes.
        let writers: Vec<_> = (0..4)
            .map(|number| {
                let (mut clients, writes_on) = (nodes.map(Server::client), &writes_on);
                threads.spawn(move || {
                    let (mut acknowledged, mut refused, mut at) = (0_u64, 0_u64, 0);
                    while writes_on.load(Ordering::Relaxed) {
                        match &*clients[at].ask(&format!("INCR counter:{number}")) {
                            reply if reply.starts_with(':') => {
                                acknowledged += 1;
                                assert_eq!(reply, format!(":{acknowledged}\r\n"), "none was lost, none came twice");
                            }
                            reply => {
                                assert!(reply == READONLY || reply.starts_with("-LOADING"), "{reply}");
                                refused += 1;
                                at = 1 - at;
                            }
                        }
                    }
                    (acknowledged, refused)
                })
            })
            .collect();
        let _ends = Ends(&writes_on);
        for _ in 0..8 {
            let [leads, follows] = nodes;
            wait_for_link(follows);
            let mut client = leads.client();
            assert_eq!(client.ask(&format!("FAILOVER TO 127.0.0.1 {}", follows.port)), "+OK\r\n");
            wait_until("it follows", || client.ask("ROLE").contains("slave"));
            assert_eq!(field(&mut client, "master_port"), follows.port.to_string());
            wait_until("it has ended", || field(&mut client, "master_failover_state") == "no-failover");
            wait_until("the other one leads", || follows.client().ask("SET leads x") == "+OK\r\n");
            nodes.swap(0, 1);
        }
        writes_on.store(false, Ordering::Relaxed);
        let counts = writers.into_iter().map(|writer| writer.join().expect("no write was lost"));
        counts.fold((0, 0), |(all, refused), (own, own_refused)| (all + own, refused + own_refused))
    });
    let [leads, follows] = nodes;
    wait_for_link(follows);
    wait_for_link(&other);
    is_equal(leads, follows);
    is_equal(leads, &other);
    let mut client = leads.client();
    let counters = (0..4).map(|number| client.ask(&format!("GET counter:{number}")));
    let sum: u64 =
        counters.map(|reply| reply.lines().nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)).sum();
    assert_eq!(sum, acknowledged);
    assert!(acknowledged > 100 && refused > 0, "{acknowledged} acknowledged, {refused} refused");
    [other, replica, master].into_iter().for_each(Server::stop);
    for (number, dir) in dirs.iter().enumerate() {
        if let Ok(tails) = std::fs::read_dir(dir.path().join("tails")) {
            let tails = tails.map(|tail| print_log(&tail.expect("readable").path()));
            panic!("server {number} has given up records: {:?}", tails.collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_replica_that_does_not_answer_leads_as_soon_as_it_does_and_its_master_waits_for_that() {
    for breaks in [false, true] {
        let dirs = [TempDir::new(), TempDir::new()];
        let master = Server::start(dirs[0].path(), &DEBUG);
        let mut client = master.client();
        let replica = replica_of(&master, &dirs[1], &DEBUG);
        is_equal(&master, &replica);
        wait_for_only(&master);
        replica.halt();
        assert_eq!(client.ask("SET k behind"), "+OK\r\n");
        let forced = format!("FAILOVER TO 127.0.0.1 {} FORCE TIMEOUT 50", replica.port);
        assert_eq!(client.ask(&forced), "+OK\r\n");
        wait_until("it is told", || field(&mut client, "master_failover_state") == "failover-in-progress");
        if breaks {
            // The replica may have been told: until that is known nothing is written.
            assert_eq!(client.ask("CLIENT KILL TYPE replica"), ":1\r\n");
            wait_until("it has gone", || field(&mut client, "connected_slaves") == "0");
        }
        let mut writer = master.client();
        writer.send(b"SET k held\r\n");
        wait_until("it waits", || client.ask("INFO clients").contains("blocked_clients:1"));
        assert_eq!(field(&mut client, "master_failover_state"), "failover-in-progress");
        replica.signal("CONT");
        // Whichever of the two leads in the end, the other follows, and the write is on both or on none.
        wait_until("it has ended", || field(&mut client, "master_failover_state") == "no-failover");
        let answer = writer.reply();
        let has_moved = answer == READONLY || answer.starts_with("-LOADING");
        assert!(has_moved || breaks && answer == "+OK\r\n", "{answer}");
        let (leads, follows) = if has_moved { (&replica, &master) } else { (&master, &replica) };
        wait_until("it leads", || leads.client().ask("ROLE").contains("master"));
        wait_for_link(follows);
        is_equal(leads, follows);
        let value = if has_moved { "$6\r\nbehind\r\n" } else { "$4\r\nheld\r\n" };
        assert_eq!(leads.client().ask("GET k"), value);
        assert!(dirs.iter().all(|dir| !dir.path().join("tails").exists()), "nothing was given up");
        replica.stop();
        master.stop();
    }
}

#[test]
fn a_failover_that_cannot_be_is_refused_or_ends() {
    let dirs = [TempDir::new(), TempDir::new()];
    let master = Server::start(dirs[0].path(), &DEBUG);
    let mut client = master.client();
    client.ask("SET k v");
    assert_eq!(client.ask("FAILOVER"), "-ERR FAILOVER requires connected replicas.\r\n");
    let replica = replica_of(&master, &dirs[1], &DEBUG);
    is_equal(&master, &replica);
    let port = replica.port;
    for (command, answer) in [
        ("FAILOVER ABORT".to_owned(), "No failover in progress."),
        (
            format!("FAILOVER TO 127.0.0.1 {port} FORCE"),
            "FAILOVER with force option requires both a timeout and target HOST and IP.",
        ),
        (
            "FAILOVER FORCE TIMEOUT 10".to_owned(),
            "FAILOVER with force option requires both a timeout and target HOST and IP.",
        ),
        ("FAILOVER TO 127.0.0.1 1".to_owned(), "FAILOVER target HOST and PORT is not a replica."),
    ] {
        assert_eq!(client.ask(&command), format!("-ERR {answer}\r\n"), "{command}");
    }
    let refused = replica.client().ask("FAILOVER");
    assert_eq!(refused, "-ERR FAILOVER is not valid when server is a replica.\r\n");
    // A replica that does not read gets nothing more: writes wait, until somebody gives up or the time is over.
    replica.halt();
    let mut writer = master.client();
    assert_eq!(writer.ask("SET k behind"), "+OK\r\n");
    for gives_up in ["FAILOVER ABORT", "PING"] {
        let command = if gives_up == "PING" { "FAILOVER TIMEOUT 300" } else { "FAILOVER" };
        assert_eq!(client.ask(command), "+OK\r\n");
        assert_eq!(field(&mut client, "master_failover_state"), "waiting-for-sync");
        assert_eq!(client.ask("FAILOVER"), "-ERR FAILOVER already in progress.\r\n");
        assert_eq!(client.ask("REPLICAOF NO ONE"), "-ERR REPLICAOF not allowed while failing over.\r\n");
        assert_eq!(client.ask("GET k"), "$6\r\nbehind\r\n");
        writer.send(b"SET k held\r\n");
        wait_until("it waits", || client.ask("INFO clients").contains("blocked_clients:1"));
        assert_eq!(client.ask("CLIENT UNPAUSE"), "+OK\r\n");
        assert_eq!(client.ask("GET k"), "$6\r\nbehind\r\n");
        client.ask(gives_up);
        assert_eq!(writer.reply(), "+OK\r\n");
        wait_until("it has ended", || field(&mut client, "master_failover_state") == "no-failover");
        assert_eq!(writer.ask("SET k behind"), "+OK\r\n");
    }
    replica.signal("CONT");
    is_equal(&master, &replica);
    assert!(client.ask("ROLE").contains("master"));
    replica.stop();
    master.stop();
}
