//! Readers of streams that wait for entries: all of them get each.

use super::{Socket, block, start};
use std::time::{Duration, Instant};

/// Returns the reply of XREAD of one entry with field f.
fn read(key: &str, id: &str, value: &str) -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    format!("*1\r\n*2\r\n{}*1\r\n*2\r\n{}*2\r\n{}{}", bulk(key), bulk(id), bulk("f"), bulk(value))
}

#[test]
fn an_entry_is_read_by_all_who_wait_for_it_across_event_loops() {
    let (_dir, server) = start(&["--workers", "3"]);
    let mut adder = server.client();
    assert_eq!(adder.ask("XADD s 1-1 f first"), "$3\r\n1-1\r\n");
    let mut waiters: Vec<Socket> = (0..6).map(|_| server.client()).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        let ids = if number % 2 == 0 { "$ $" } else { "5 1-1" };
        block(waiter, &format!("XREAD BLOCK 0 STREAMS none s {ids}"), &mut adder, number + 1);
    }
    let mut from_two = server.client();
    block(&mut from_two, "XREAD BLOCK 0 STREAMS s 2-1", &mut adder, 7);
    // `$` is settled when the wait begins, not when the entry has come.
    assert_eq!(adder.ask("XADD s 2-1 f v"), "$3\r\n2-1\r\n");
    for waiter in &mut waiters {
        assert_eq!(waiter.reply(), read("s", "2-1", "v"));
    }
    assert_eq!(adder.info("blocked_clients"), "1", "who waits for what comes behind it goes on");
    assert_eq!(adder.ask("XADD s 3-1 f w"), "$3\r\n3-1\r\n");
    assert_eq!(from_two.reply(), read("s", "3-1", "w"));
    assert_eq!(adder.ask("XLEN s"), ":3\r\n", "nobody takes anything");
    server.stop();
}

#[test]
fn a_reader_waits_as_long_as_it_says_and_sees_what_a_block_leaves() {
    let (_dir, server) = start(&[]);
    let (mut adder, mut reader) = (server.client(), server.client());
    let begun = Instant::now();
    assert_eq!(reader.ask("XREAD BLOCK 200 STREAMS s $"), "*-1\r\n");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(reader.ask("XREAD STREAMS s $"), "*-1\r\n", "without BLOCK nothing waits");

    block(&mut reader, "XREAD BLOCK 0 STREAMS s $", &mut adder, 1);
    adder.send(b"MULTI\r\nXADD s 1-1 f a\r\nXDEL s 1-1\r\nXREAD BLOCK 0 STREAMS s 0\r\nEXEC\r\n");
    (0..4).for_each(|_| assert!(adder.reply().starts_with('+')));
    assert_eq!(adder.reply(), "*3\r\n$3\r\n1-1\r\n:1\r\n*-1\r\n");
    assert_eq!(adder.info("blocked_clients"), "1", "the entry was never there to it");
    adder.send(b"MULTI\r\nXADD s 1-2 f a\r\nXADD s 1-3 f b\r\nXTRIM s MAXLEN 1\r\nEXEC\r\n");
    (0..4).for_each(|_| assert!(adder.reply().starts_with('+')));
    assert_eq!(adder.reply(), "*3\r\n$3\r\n1-2\r\n$3\r\n1-3\r\n:1\r\n");
    assert_eq!(reader.reply(), read("s", "1-3", "b"));

    // In RESP3 streams and their entries are a map.
    assert!(reader.ask("HELLO 3").starts_with('%'));
    block(&mut reader, "XREAD BLOCK 0 STREAMS s $", &mut adder, 1);
    assert_eq!(adder.ask("XADD s 2-1 f c"), "$3\r\n2-1\r\n");
    assert!(reader.reply().starts_with("%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n2-1\r\n"));
    server.stop();
}

#[test]
fn a_stream_that_comes_from_elsewhere_is_read_too() {
    let (_dir, server) = start(&[]);
    let (mut other, mut reader) = (server.client(), server.client());
    for moving in ["RENAME t s", "COPY t s"] {
        block(&mut reader, "XREAD BLOCK 0 STREAMS s 0", &mut other, 1);
        assert_eq!(other.ask("XADD t 1-1 f v"), "$3\r\n1-1\r\n");
        other.ask(moving);
        assert_eq!(reader.reply(), read("s", "1-1", "v"), "{moving}");
        assert_eq!(other.ask("FLUSHALL"), "+OK\r\n");
    }
    // Readers of a stream that takes the place of another one are served, too.
    assert_eq!(other.ask("XADD s 1-1 f v"), "$3\r\n1-1\r\n");
    assert_eq!(other.ask("XADD t 2-1 f w"), "$3\r\n2-1\r\n");
    block(&mut reader, "XREAD BLOCK 0 STREAMS s 1-1", &mut other, 1);
    assert_eq!(other.ask("RENAME t s"), "+OK\r\n");
    assert_eq!(reader.reply(), read("s", "2-1", "w"));
    // A key of another type serves no reader.
    block(&mut reader, "XREAD BLOCK 0 STREAMS s $", &mut other, 1);
    assert_eq!(other.ask("SET s text"), "+OK\r\n");
    assert_eq!(other.info("blocked_clients"), "1");
    assert_eq!(other.ask("DEL s"), ":1\r\n");
    assert_eq!(other.ask("XADD s 9-1 f x"), "$3\r\n9-1\r\n");
    assert_eq!(reader.reply(), read("s", "9-1", "x"));
    server.stop();
}

#[test]
fn entries_that_are_added_at_once_are_read_in_order_and_none_is_missed() {
    const WRITERS: usize = 3;
    const ENTRIES: usize = 300;
    let (_dir, server) = start(&["--workers", "3"]);
    let mut readers: Vec<Socket> = (0..3).map(|_| server.client()).collect();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let mut client = server.client();
            scope.spawn(move || {
                for number in 0..ENTRIES {
                    assert!(client.ask(&format!("XADD s * f {writer}:{number}")).starts_with('$'));
                }
            });
        }
        for reader in &mut readers {
            scope.spawn(move || {
                let (mut last, mut next) = (String::from("0-0"), [0; WRITERS]);
                while next.iter().sum::<usize>() < WRITERS * ENTRIES {
                    let reply = reader.ask(&format!("XREAD COUNT 7 BLOCK 20000 STREAMS s {last}"));
                    let lines: Vec<&str> = reply.split("\r\n").collect();
                    assert_ne!(lines[0], "*-1", "an entry was missed behind {last}");
                    for line in &lines {
                        if let Some((writer, number)) = line.split_once(':').filter(|(writer, _)| !writer.is_empty()) {
                            let writer: usize = writer.parse().expect("a writer's number");
                            assert_eq!(number.parse(), Ok(next[writer]), "of writer {writer}");
                            next[writer] += 1;
                        } else if line.contains('-') && !line.starts_with(['*', '$', ':']) {
                            last = line.to_string();
                        }
                    }
                }
            });
        }
    });
    server.stop();
}

/// Waits for the removal of a key are counted as in Redis 7.2: those of XREADGROUP, which end with the stream.
#[test]
fn keys_whose_end_is_waited_for_are_counted() {
    let (_dir, server) = start(&[]);
    let (mut one, mut two, mut popper, mut admin) =
        (server.client(), server.client(), server.client(), server.client());
    for stream in ["s", "t"] {
        assert_eq!(admin.ask(&format!("XGROUP CREATE {stream} g $ MKSTREAM")), "+OK\r\n");
    }
    // A name may come twice.
    block(&mut one, "XREADGROUP GROUP g c BLOCK 0 STREAMS s t s > > >", &mut admin, 1);
    block(&mut two, "XREADGROUP GROUP g d BLOCK 0 STREAMS s >", &mut admin, 2);
    block(&mut popper, "BLPOP l 0", &mut admin, 3);
    let counts = |admin: &mut Socket| (admin.info("total_blocking_keys"), admin.info("total_blocking_keys_on_nokey"));
    assert_eq!(counts(&mut admin), ("3".into(), "2".into()));
    assert_eq!(admin.ask("XADD s 1-1 f v"), "$3\r\n1-1\r\n");
    assert!(one.reply().contains("1-1"));
    assert_eq!(counts(&mut admin), ("2".into(), "1".into()), "one has left both, and another waits for s");
    assert_eq!(admin.ask("DEL s"), ":1\r\n");
    assert!(two.reply().starts_with("-NOGROUP"));
    assert_eq!(counts(&mut admin), ("1".into(), "0".into()));
    server.stop();
}
