//! DUMP and RESTORE of values that are far larger than the server's memory: whatever a payload expands to, and whether
//! clients read the payloads that they ask for or not, the process stays within its budget.

mod process;

use haypile_rdb::testing::sealed;
use process::{Client, Server, TempDir, compressed, request};
use std::time::{Duration, Instant};

/// `maxmemory` of the servers of these tests.
const BUDGET_BYTES: u64 = 128 << 20;

/// Memory beside the budget and a quarter of it: the program, its threads, the requests, records that the log has not
/// synced, and memory that allocators keep.
const ALLOWANCE_BYTES: u64 = 128 << 20;

const BOUND_BYTES: u64 = BUDGET_BYTES + BUDGET_BYTES / 4 + ALLOWANCE_BYTES;

/// A listpack of many strings of 100 bytes.
fn listpack(strings: usize) -> Vec<u8> {
    let element = [&[0xe0, 100][..], &[b'l'; 100], &[102]].concat();
    let mut bytes = vec![0, 0, 0, 0, 0xff, 0xff];
    bytes.extend(element.repeat(strings));
    bytes.push(0xff);
    let total = (bytes.len() as u32).to_le_bytes();
    bytes[..4].copy_from_slice(&total);
    bytes
}

#[test]
fn payloads_that_expand_take_no_more_memory_than_there_is() {
    const CLIENTS: usize = 16;
    const BYTES: usize = 64 << 20;
    let string = sealed(&[&[0][..], &compressed(&vec![b's'; BYTES])].concat());
    // A list of one node, which has its elements packed.
    let list = sealed(&[&[18, 1, 2][..], &compressed(&listpack(BYTES / 103))].concat());
    for (what, payload, question, answer) in
        [("a string", string, "STRLEN", BYTES), ("a list", list, "LLEN", BYTES / 103)]
    {
        let dir = TempDir::new();
        let server = Server::start(dir.path(), &[]);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
        for (n, client) in clients.iter_mut().enumerate() {
            client.send(&request(&[b"RESTORE", format!("k{n}").as_bytes(), b"0", &payload]));
        }
        let (most, longest) = server.watch_memory(|| clients.iter().all(Client::has_reply));
        println!("{CLIENTS} times {what}: {} MB, SET within {longest:?}", most >> 20);
        for (n, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.reply(), "+OK\r\n");
            assert_eq!(client.ask(&format!("{question} k{n}")), format!(":{answer}\r\n"));
        }
        assert!(most <= BOUND_BYTES, "{what}: {} MB", most >> 20);
        server.stop();
    }
}

#[test]
fn payloads_that_nobody_reads_take_no_memory() {
    const CLIENTS: usize = 6;
    const PIECES: usize = 160;
    let dir = TempDir::new();
    // The value that is sent back is a request of its length.
    let server = Server::start(dir.path(), &["--maxmemory-clients", "512mb"]);
    let mut other = server.client();
    let mut state = 7u64;
    for n in 0..PIECES {
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state.to_le_bytes()
        };
        let piece: Vec<u8> = (0..(1 << 20) / 8).flat_map(|_| next()).collect();
        assert_eq!(other.ask_words(&[b"APPEND", b"string", &piece]), format!(":{}\r\n", (n + 1) << 20));
        for fields in piece.chunks(1 << 16) {
            let name = n.to_string().into_bytes();
            let pairs = fields.chunks(1 << 10).enumerate();
            let pairs: Vec<(Vec<u8>, &[u8])> = pairs
                .map(|(at, value)| ([&name, &b":"[..], &value[..8], at.to_string().as_bytes()].concat(), value))
                .collect();
            let words = pairs.iter().flat_map(|(field, value)| [&field[..], value]);
            let words: Vec<&[u8]> = [&b"HSET"[..], b"hash"].into_iter().chain(words).collect();
            assert!(other.ask_words(&words).starts_with(':'));
        }
    }
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(if n % 2 == 0 { b"DUMP string\r\n" } else { b"DUMP hash\r\n" });
    }
    let since = Instant::now();
    let (most, longest) =
        server.watch_memory(|| clients.iter().all(Client::has_reply) && since.elapsed() > Duration::from_secs(3));
    println!("{CLIENTS} payloads of 160 MB unread: {} MB, SET within {longest:?}", most >> 20);
    assert!(most <= BOUND_BYTES, "{} MB", most >> 20);
    drop(clients);
    // All of one goes out, and comes in again.
    let mut reader = server.client();
    for key in ["string", "hash"] {
        use std::io::{Read, Write};
        reader.send(format!("DUMP {key}\r\n").as_bytes());
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") {
            reader.socket.read_exact(&mut byte).expect("the reply begins");
            line.push(byte[0]);
        }
        let bytes: usize = std::str::from_utf8(&line[1..line.len() - 2]).expect("digits").parse().expect("a length");
        let mut payload = vec![0; bytes + 2];
        reader.socket.read_exact(&mut payload).expect("the reply goes on to its end");
        let again = format!("{key}-again");
        let head = format!("*4\r\n$7\r\nRESTORE\r\n${}\r\n{again}\r\n$1\r\n0\r\n${bytes}\r\n", again.len());
        reader.socket.write_all(head.as_bytes()).expect("it is taken");
        reader.socket.write_all(&payload).expect("it is taken");
        assert_eq!(reader.reply(), "+OK\r\n");
    }
    assert_eq!(other.ask("STRLEN string-again"), format!(":{}\r\n", PIECES << 20));
    assert_eq!(other.ask("HLEN hash-again"), other.ask("HLEN hash"));
    server.stop();
}

#[test]
fn long_payloads_come_and_go_inside_a_transaction() {
    const BYTES: usize = 5 << 20;
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    let string = sealed(&[&[0][..], &compressed(&vec![b's'; BYTES])].concat());
    let damaged = sealed(&[&[0][..], &compressed(&vec![b's'; BYTES])[..BYTES / 264]].concat());
    let said = "-ERR Bad data format\r\n";
    assert_eq!(client.ask_words(&[b"RESTORE", b"k", b"0", &damaged]), said);
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    for words in [
        &[&b"RESTORE"[..], b"k", b"0", &string][..],
        &[b"RESTORE", b"k", b"0", &damaged, b"REPLACE"],
        &[b"RESTORE", b"k", b"90000", &string, b"REPLACE", b"IDLETIME", b"77"],
        &[b"DUMP", b"k"],
        &[b"APPEND", b"k", b"more"],
    ] {
        assert_eq!(client.ask_words(words), "+QUEUED\r\n");
    }
    let replies = client.ask("EXEC");
    let begin = format!("*5\r\n+OK\r\n{said}+OK\r\n${}\r\n", BYTES + 16);
    assert!(replies.starts_with(&begin), "{:?}", &replies[..100]);
    assert!(replies.ends_with(&format!("\r\n:{}\r\n", BYTES + 4)));
    assert!(client.ask("PTTL k").starts_with(":8"));
    // The part that was read is of the time before.
    assert_eq!(client.ask("STRLEN k"), format!(":{}\r\n", BYTES + 4));
    server.stop();
}

/// A string of so many equal bytes in the form of a file: a byte, and copies of 264.
fn repeated(copies: usize) -> (Vec<u8>, usize) {
    let bytes = [&[0, b'e'][..], &[0xe0, 0xff, 0].repeat(copies)].concat();
    let lengths = [bytes.len(), 1 + copies * 264].map(|length| (length as u32).to_be_bytes());
    ([&[0xc3, 0x80][..], &lengths[0], &[0x80], &lengths[1], &bytes].concat(), 1 + copies * 264)
}

/// The payload of a list of one element.
fn list_of(element: &[u8]) -> Vec<u8> {
    sealed(&[&[1, 1][..], element].concat())
}

const REFUSED: &str = "-OOM the command would take more memory than 'maxmemory-clients' leaves\r\n";

/// An element cannot be expanded piece by piece: it is refused where it would take more than commands may have at a
/// time, and so are those for which others leave no room.
#[test]
fn elements_that_expand_take_no_more_memory_than_there_is() {
    const CLIENTS: usize = 16;
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    // 150 MB each, of which none can be had; then 10 MB each, of which one can at a time.
    for (copies, is_possible) in [(600_000, false), (40_000, true)] {
        let (element, bytes) = repeated(copies);
        let payload = list_of(&element);
        let mut waiting: Vec<usize> = (0..CLIENTS).collect();
        let mut most = 0;
        while !waiting.is_empty() {
            for n in &waiting {
                let key = format!("{copies}:{n}");
                clients[*n].send(&request(&[b"RESTORE", key.as_bytes(), b"0", &payload]));
            }
            most = most.max(server.watch_memory(|| waiting.iter().all(|n| clients[*n].has_reply())).0);
            let before = waiting.len();
            waiting.retain(|n| match &*clients[*n].reply() {
                "+OK\r\n" => {
                    assert!(is_possible);
                    false
                }
                reply => {
                    assert_eq!(reply, REFUSED);
                    is_possible
                }
            });
            assert!(waiting.len() < before, "nobody has got room");
        }
        println!("{CLIENTS} elements of {bytes} bytes: {} MB", most >> 20);
        assert!(most <= BOUND_BYTES, "{bytes} bytes: {} MB", most >> 20);
        let mut asker = server.client();
        let there = (0..CLIENTS).filter(|n| asker.ask(&format!("LLEN {copies}:{n}")) == ":1\r\n").count();
        assert_eq!(there, if is_possible { CLIENTS } else { 0 });
    }
    server.stop();
}

/// A payload of a long element holds its row and nothing else of its size, whether its client reads or not.
#[test]
fn elements_that_nobody_reads_take_their_row() {
    const CLIENTS: usize = 16;
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--enable-debug-command", "yes"]);
    let mut asker = server.client();
    let (element, bytes) = repeated(40_000);
    for n in 0..4 {
        let key = format!("k{n}");
        assert_eq!(asker.ask_words(&[b"RESTORE", key.as_bytes(), b"0", &list_of(&element)]), "+OK\r\n");
    }
    // From the base.
    assert_eq!(asker.ask("DEBUG RELOAD"), "+OK\r\n");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.deaf_client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(format!("DUMP k{}\r\n", n % 4).as_bytes());
    }
    let (most, _) = server.watch_memory(|| clients.iter().all(Client::has_reply));
    println!("{CLIENTS} payloads of an element of {bytes} bytes unread: {} MB", most >> 20);
    assert!(most <= BOUND_BYTES, "{} MB", most >> 20);
    server.stop();
}
