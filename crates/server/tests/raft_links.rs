//! A Raft group whose members are far from each other: slow connections, and what is long to send over them.

mod process;

use process::free_port;
use process::group::{Group, raft};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

/// Bytes a second in each direction of a connection.
const RATE: usize = 256 << 10;

/// Hands on what comes, at the rate of a slow connection, until either side ends.
fn hand_on(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        // The sleep is the connection's slowness; nothing waits for it.
        std::thread::sleep(Duration::from_secs_f64(bytes as f64 / RATE as f64));
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
}

/// Returns a port whose connections lead to another one, slowly.
fn slow(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    // The threads end with the process of this test.
    std::thread::spawn(move || {
        for from in listener.incoming().flatten() {
            let Ok(to) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            let clone = |stream: &TcpStream| stream.try_clone().expect("there are descriptors");
            let (back_from, back_to) = (clone(&to), clone(&from));
            std::thread::spawn(move || hand_on(from, to));
            std::thread::spawn(move || hand_on(back_from, back_to));
        }
    });
    port
}

#[test]
fn an_entry_that_takes_longer_than_an_election_timeout_ends_no_term() {
    let ports: Vec<_> = (0..3).map(|_| free_port()).collect();
    let known_by = ports.iter().map(|port| slow(*port)).collect();
    let group = Group::start_behind(ports, known_by, &[]);
    let leader = group.leader();
    group.settle();
    let mut client = group.client(leader);
    let term = raft(&mut client, "term");
    // Entries of a megabyte, each of which takes four seconds, or longer than any member waits before it campaigns.
    let value = vec![b'x'; 8 * RATE];
    assert_eq!(client.ask_words(&[b"SET", b"key", &value]), "+OK\r\n");
    assert_eq!(client.ask("STRLEN key"), format!(":{}\r\n", value.len()));
    assert_eq!([raft(&mut client, "role"), raft(&mut client, "term")], ["leader".to_owned(), term]);
}
