//! DEBUG RELOAD and LOADAOF of a server that is in use: the data are closed and opened again.

mod process;

use process::{Client, Ends, Server, TempDir};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

const LOADING: &str = "-LOADING Redis is loading the dataset in memory\r\n";
const CLIENTS: u64 = 6;
const ROUNDS: usize = 12;

/// Asks until the data are there.
fn insist(client: &mut Client<TcpStream>, command: &str) -> String {
    loop {
        let reply = client.ask(command);
        if reply != LOADING {
            return reply;
        }
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Counts for itself and with all others, and reads what it writes; how far it came.
fn count(mut client: Client<TcpStream>, number: u64, start: u64, stop: &AtomicBool) -> u64 {
    let padding = "p".repeat(300);
    let mut count = start;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        assert_eq!(insist(&mut client, &format!("INCR {number}")), format!(":{count}\r\n"));
        assert!(insist(&mut client, "INCR all").starts_with(':'));
        let (key, value) = (format!("{number}:{}", count % 1000), format!("{count}{padding}"));
        assert_eq!(insist(&mut client, &format!("SET {key} {value}")), "+OK\r\n");
        assert_eq!(insist(&mut client, &format!("GET {key}")), bulk(&value));
    }
    count
}

#[test]
fn nothing_is_lost_while_the_data_are_opened_again_and_again() {
    let dir = TempDir::new();
    let small =
        ["--enable-debug-command", "yes", "--memtable-size", "1mb", "--log-segment-size", "1mb", "--workers", "3"];
    let mut counts = vec![0; CLIENTS as usize];
    for durability in ["os", "fsync"] {
        let server = Server::start(dir.path(), &[&small[..], &["--durability", durability]].concat());
        let mut client = server.client();
        let stop = AtomicBool::new(false);
        counts = std::thread::scope(|scope| {
            let (server, stop) = (&server, &stop);
            let clients: Vec<_> = (0..CLIENTS)
                .zip(&counts)
                .map(|(number, start)| scope.spawn(move || count(server.client(), number, *start, stop)))
                .collect();
            let ends = Ends(stop);
            for round in 0..ROUNDS {
                let command = ["DEBUG RELOAD", "DEBUG LOADAOF"][round % 2];
                assert_eq!(client.ask(command), "+OK\r\n", "{command}");
                assert_eq!(client.info("loading"), "0");
            }
            drop(ends);
            clients.into_iter().map(|client| client.join().expect("no assertion failed")).collect()
        });
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        for (number, count) in counts.iter().enumerate() {
            assert_eq!(client.ask(&format!("GET {number}")), bulk(&count.to_string()));
        }
        assert_eq!(client.ask("GET all"), bulk(&counts.iter().sum::<u64>().to_string()));
        server.stop();
    }
}

#[test]
fn the_new_store_has_the_configuration_of_now_and_follows_it() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    assert_eq!(client.ask("CONFIG SET memtable-size 3mb"), "+OK\r\n");
    assert_eq!(client.ask("DEBUG RELOAD"), "+OK\r\n");
    assert_eq!(client.info("memtable_bytes_max"), (3 << 20).to_string());
    assert_eq!(client.ask("CONFIG SET memtable-size 5mb durability fsync"), "+OK\r\n");
    assert_eq!(client.info("memtable_bytes_max"), (5 << 20).to_string());
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
    assert_eq!(client.info("log_unsynced_bytes"), "0", "it was on the disk before the reply");
    assert_eq!(client.ask("SAVE"), "+OK\r\n", "backups are of the new one");
    server.kill();
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.client().ask("GET k"), "$1\r\nv\r\n");
    server.stop();
}
