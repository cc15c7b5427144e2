//! Writes that a replica has before their reply: `replicas-to-ack 1` beside redis-server with WAIT 1 behind each write.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::pair::Pair;
use super::{Options, Row, median};
use crate::client::encode;
use crate::server::Template;

const CONNECTIONS: u64 = 50;

/// The longest wait for any reply.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

struct Done {
    rate: f64,
    p50_us: f64,
}

pub fn run(options: &Options) -> Result<Vec<Row>> {
    let ours = options.server.with("--workers 1 --maxmemory 512mb --replicas-to-ack 1 --replicas-to-ack-timeout 0")?;
    let (mut rates, mut times, mut shown) = (vec![], vec![], [vec![], vec![], vec![], vec![]]);
    for _ in 0..options.rounds {
        let own = measure(options, &ours, false)?;
        let base = measure(options, &options.base, true)?;
        rates.push(base.rate / own.rate);
        times.push(own.p50_us / base.p50_us);
        for (all, figure) in shown.iter_mut().zip([own.rate, base.rate, own.p50_us, base.p50_us]) {
            all.push(figure);
        }
    }
    let [own_rate, base_rate, own_us, base_us] = shown.map(median);
    Ok(vec![
        Row {
            name: "`replicas-to-ack 1`, 50 connections: time of redis-server with WAIT 1, p50",
            found: format!("{own_us:.0} µs of {base_us:.0}"),
            value: median(times),
            at_most: Some(0.5),
        },
        Row {
            name: "the same: writes a second of redis-server, of ours",
            found: format!("{base_rate:.0} of {own_rate:.0}"),
            value: median(rates),
            at_most: Some(0.5),
        },
    ])
}

fn measure(options: &Options, template: &Template, waits: bool) -> Result<Done> {
    let pair = Pair::start(template, &options.dir, true)?;
    let mut all = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    let mut writers = (0..CONNECTIONS)
        .map(|number| Writer::connect(pair.master.port(), number, waits))
        .collect::<Result<Vec<_>>>()?;
    writers.iter_mut().try_for_each(Writer::send)?;
    let begin = Instant::now();
    while begin.elapsed() < options.window {
        let mut looked_at: Vec<_> = writers.iter().map(|writer| PollFd::new(&writer.stream, PollFlags::IN)).collect();
        poll(&mut looked_at, Some(&PATIENCE))?;
        let ready: Vec<bool> = looked_at.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (writer, _) in writers.iter_mut().zip(ready).filter(|(_, is_ready)| *is_ready) {
            if let Some(took) = writer.take()? {
                all.record(took.as_micros() as u64)?;
                writer.send()?;
            }
        }
    }
    Ok(Done { rate: all.len() as f64 / begin.elapsed().as_secs_f64(), p50_us: all.value_at_quantile(0.5) as f64 })
}

/// A connection with one write on its way. One thread serves all, so that the client takes little of the machine.
struct Writer {
    stream: TcpStream,
    number: u64,
    count: u64,
    waits: bool,
    sent: Instant,
    /// The part of the reply that has come.
    got: Vec<u8>,
}

impl Writer {
    fn connect(port: u16, number: u64, waits: bool) -> Result<Writer> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Writer { stream, number, count: 0, waits, sent: Instant::now(), got: Vec::new() })
    }

    fn send(&mut self) -> Result<()> {
        self.count += 1;
        let (mut out, value) = (Vec::new(), [b'x'; 128]);
        let key = format!("key:{}:{}", self.number, self.count % 1000);
        encode(&[&b"SET"[..], key.as_bytes(), &value], &mut out);
        if self.waits {
            encode(&["WAIT", "1", "0"], &mut out);
        }
        self.sent = Instant::now();
        Ok(self.stream.write_all(&out)?)
    }

    /// Reads what has come; returns how long the write took if that is all.
    fn take(&mut self) -> Result<Option<Duration>> {
        let expected: &[u8] = if self.waits { b"+OK\r\n:1\r\n" } else { b"+OK\r\n" };
        let mut piece = [0; 64];
        let count = self.stream.read(&mut piece)?;
        self.got.extend_from_slice(&piece[..count]);
        ensure!(count > 0 && expected.starts_with(&self.got), "it was answered by {}", self.got.escape_ascii());
        if self.got.len() < expected.len() {
            return Ok(None);
        }
        self.got.clear();
        Ok(Some(self.sent.elapsed()))
    }
}
