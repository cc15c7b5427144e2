//! Strings near the longest length that they may have: whoever changes them holds what it brings, and never the string.

mod process;

use process::{Client, PATIENCE, Server, TempDir, request};
use std::io::Write;
use std::net::TcpStream;

/// `maxmemory` of the servers of these tests, a quarter of it, and the default of `maxmemory-clients`.
const BUDGET_BYTES: u64 = (128 << 20) / 4 * 5 + (64 << 20);

/// Memory beside the budget: the program, its threads, and what its allocator keeps.
const ALLOWANCE_BYTES: u64 = 96 << 20;

const LENGTH_MAX: usize = 512 << 20;

/// Sends a request as far as the server takes it, which closes clients that need more than all may have.
fn say(client: &mut Client<TcpStream>, words: &[&[u8]]) {
    client.socket.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let _ = client.socket.write_all(&request(words));
}

/// Has each client append so many bytes to a key at the same time; returns the most memory, and the appends that were
/// answered with a length.
fn append(server: &Server, key: &str, clients: usize, bytes: usize) -> (u64, usize) {
    let value = vec![b'a'; bytes];
    let mut appending: Vec<_> = (0..clients).map(|_| server.client()).collect();
    let most = std::thread::scope(|scope| {
        let said: Vec<_> = appending
            .iter_mut()
            .map(|client| {
                let value = &value;
                scope.spawn(move || {
                    say(client, &[b"APPEND", key.as_bytes(), value]);
                    client.socket.peek(&mut [0]).map(|_| ()).unwrap_or_default();
                })
            })
            .collect();
        server.watch_memory(|| said.iter().all(|thread| thread.is_finished())).0
    });
    (most, appending.iter_mut().map(Client::line).filter(|line| line.starts_with(':')).count())
}

#[test]
fn changes_of_long_strings_take_what_they_bring() {
    const LONG: usize = 400 << 20;
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut asker = server.client();
    let is_within = |what: &str, most: u64| {
        println!("{what}: {} MB", most >> 20);
        assert!(most <= BUDGET_BYTES + ALLOWANCE_BYTES, "{what}: {} MB", most >> 20);
    };
    let piece = vec![b'p'; 20 << 20];
    for at in 0..LONG / piece.len() {
        let said = asker.ask_words(&[b"APPEND", b"long", &piece]);
        assert_eq!(said, format!(":{}\r\n", (at + 1) * piece.len()));
    }
    is_within("a string of 400 MB", server.resident_bytes());
    // More than a client may bring, so that all are closed; then as much as some can.
    let (most, taken) = append(&server, "long", 4, 100 << 20);
    is_within("four times 100 MB more", most);
    assert_eq!((taken, asker.ask("STRLEN long")), (0, format!(":{LONG}\r\n")));
    const PIECE: usize = 20 << 20;
    let (most, taken) = append(&server, "long", 4, PIECE);
    is_within("four times 20 MB more", most);
    // A client may be closed for room after its command, before its reply.
    let length: usize = asker.ask("STRLEN long")[1..].trim_end().parse().expect("a number");
    assert!((LONG + taken * PIECE..=LONG + 4 * PIECE).step_by(PIECE).any(|possible| possible == length), "{length}");
    // To the last byte, and no further.
    let last = (LENGTH_MAX - 1).to_string();
    let mut clients: Vec<_> = (0..8).map(|_| server.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let key = if n % 2 == 0 { "long".into() } else { format!("sparse:{n}") };
        client.send(format!("SETRANGE {key} {last} x\r\n").as_bytes());
    }
    let (most, _) = server.watch_memory(|| clients.iter().all(Client::has_reply));
    is_within("SETRANGE at the last byte", most);
    for client in &mut clients {
        assert_eq!(client.reply(), format!(":{LENGTH_MAX}\r\n"));
    }
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
    assert_eq!(asker.ask("APPEND long x"), too_long);
    assert_eq!(asker.ask(&format!("SETRANGE sparse {LENGTH_MAX} x")), too_long);
    assert_eq!(asker.ask("GETRANGE long -2 -1"), "$2\r\n\0x\r\n");
    server.stop();
}
