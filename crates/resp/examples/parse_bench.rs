//! The cost of parsing: nanoseconds per command for pipelines of 16, and bytes per second for a large value.
//!
//! Run with `cargo run --release -p haypile-resp --example parse_bench`. Prints the median of several rounds. The reply
//! encoder is measured beside it.

use std::hint::black_box;
use std::time::Instant;

use haypile_resp::{Limits, Parser, Protocol, Reply};

const PIPELINE: usize = 16;
const ROUNDS: usize = 15;
const REPEATS: usize = 20_000;

/// The median over the rounds of the nanoseconds that one of `items` takes in `work`.
fn measure(items: usize, mut work: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_nanos() as f64 / items as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn command(args: &[&[u8]], out: &mut Vec<u8>) {
    Reply::array(args.iter().map(|arg| Reply::bulk(arg.to_vec()))).encode(Protocol::Resp2, out);
}

fn pipeline(mut make: impl FnMut(usize, &mut Vec<u8>)) -> Vec<u8> {
    let mut buf = Vec::new();
    for i in 0..PIPELINE {
        make(i, &mut buf);
    }
    buf
}

/// Parses all of `buf`; returns how many commands there were.
fn parse(parser: &mut Parser, buf: &[u8], ranges: &mut Vec<std::ops::Range<u32>>) -> usize {
    let (mut at, mut commands) = (0, 0);
    while let Some(request) = parser.next(&buf[at..], ranges).expect("valid requests") {
        black_box(request.args(&buf[at..], ranges).len());
        at += request.bytes();
        commands += 1;
    }
    commands
}

fn main() {
    let value = [b'v'; 128];
    let key = |i: usize| format!("key:{:012}", i * 7919).into_bytes();
    let cases = [
        ("GET", pipeline(|i, out| command(&[b"GET", &key(i)], out))),
        ("SET of 128 bytes", pipeline(|i, out| command(&[b"SET", &key(i), &value], out))),
        ("SET of 128 bytes, EX", pipeline(|i, out| command(&[b"SET", &key(i), &value, b"EX", b"100"], out))),
        (
            "MGET of 10 keys",
            pipeline(|i, out| {
                let keys: Vec<_> = (0..10).map(|k| key(i * 10 + k)).collect();
                let mut args = vec![&b"MGET"[..]];
                args.extend(keys.iter().map(|key| &key[..]));
                command(&args, out);
            }),
        ),
        ("inline GET", pipeline(|i, out| out.extend_from_slice(&[b"GET ", &key(i)[..], b"\r\n"].concat()))),
    ];
    let mut ranges = Vec::new();
    for (name, buf) in &cases {
        let mut parser = Parser::new(Limits::default());
        let ns = measure(REPEATS * PIPELINE, || {
            for _ in 0..REPEATS {
                assert_eq!(parse(&mut parser, black_box(buf), &mut ranges), PIPELINE);
            }
        });
        println!("parse   {name:24} {ns:8.1} ns per command");
    }

    // A large value in the pieces in which a socket delivers it.
    let mut large = Vec::new();
    command(&[b"SET", b"key", &vec![b'v'; 100 << 20]], &mut large);
    let mut parser = Parser::new(Limits::default());
    let ns = measure(1, || {
        let mut arrived = 0;
        loop {
            arrived = large.len().min(arrived + 16 * 1024);
            if parser.next(&large[..arrived], &mut ranges).expect("a valid request").is_some() {
                break;
            }
        }
    });
    println!("parse   100 MiB in reads of 16 KiB   {:8.1} us in all", ns / 1000.0);

    let replies = [
        ("bulk of 128 bytes", Reply::bulk(value.to_vec())),
        ("OK", Reply::ok()),
        ("integer", Reply::Integer(123_456)),
        ("double", Reply::Double(1234.5678)),
    ];
    let mut out = Vec::new();
    for (name, reply) in &replies {
        let ns = measure(REPEATS * PIPELINE, || {
            for _ in 0..REPEATS {
                out.clear();
                for _ in 0..PIPELINE {
                    black_box(reply).encode(Protocol::Resp2, &mut out);
                }
                black_box(&out);
            }
        });
        println!("encode  {name:24} {ns:8.1} ns per reply");
    }
}
