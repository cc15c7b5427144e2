//! Runs with very many keys beside others that want some of them: all are whole, on the master and on a replica.

mod process;

use process::following::{replica_of, wait_for_link};
use process::{Client, Server, TempDir};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// More than an event loop takes by their stripes.
const ACCOUNTS: usize = 400;
const EACH: usize = 100;

fn sum_of(client: &mut Client<TcpStream>, reads: &str) -> String {
    let script = "local sum = 0 for i = 1, ARGV[1] do sum = sum + redis.call('GET', 'account:' .. i) end return sum";
    let count = ACCOUNTS.to_string();
    let words: [&[u8]; 4] = [reads.as_bytes(), script.as_bytes(), b"0", count.as_bytes()];
    client.send(&process::request(&words));
    client.reply()
}

/// Moves from account to account in blocks, and sets all accounts at once; scripts that name none of the accounts see
/// the same sum at any time.
#[test]
fn runs_with_many_keys_are_whole_beside_runs_with_few() {
    let (dir, of_replica) = (TempDir::new(), TempDir::new());
    let master = Server::start(dir.path(), &["--workers", "3", "--maxmemory", "64mb"]);
    let replica = replica_of(&master, of_replica.path(), &[]);
    wait_for_link(&replica);
    let set_all: Vec<String> = (1..=ACCOUNTS).flat_map(|i| [format!("account:{i}"), EACH.to_string()]).collect();
    let set_all = process::request(
        &["MSET"].into_iter().chain(set_all.iter().map(String::as_str)).map(str::as_bytes).collect::<Vec<_>>(),
    );
    let mut client = master.client();
    client.send(&set_all);
    assert_eq!(client.reply(), "+OK\r\n");
    assert_eq!(client.ask("WAIT 1 10000"), ":1\r\n");
    let expected = format!(":{}\r\n", ACCOUNTS * EACH);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let (stop, master, replica, set_all) = (&stop, &master, &replica, &set_all);
        for mover in 0..2 {
            threads.spawn(move || {
                let mut client = master.client();
                for step in 0.. {
                    let (from, to) = (1 + (step * 7 + mover) % ACCOUNTS, 1 + (step * 11 + 5) % ACCOUNTS);
                    client.ask("MULTI");
                    client.ask(&format!("DECR account:{from}"));
                    client.ask(&format!("INCR account:{to}"));
                    let reply = client.ask("EXEC");
                    assert!(reply.starts_with("*2\r\n:"), "{reply}");
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        threads.spawn(move || {
            let mut client = master.client();
            while !stop.load(Ordering::Relaxed) {
                client.send(set_all);
                assert_eq!(client.reply(), "+OK\r\n");
            }
        });
        let readers = [(master, "EVAL"), (master, "EVAL_RO"), (replica, "EVAL_RO")].map(|(server, reads)| {
            let expected = &expected;
            threads.spawn(move || {
                let mut client = server.client();
                (0..100).for_each(|_| assert_eq!(sum_of(&mut client, reads), *expected));
            })
        });
        let ended = readers.map(|reader| reader.join());
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.expect("each sum was right"));
    });
    assert_eq!(sum_of(&mut client, "EVAL"), expected);
    replica.stop();
    master.stop();
}
