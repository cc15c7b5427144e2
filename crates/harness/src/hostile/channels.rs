//! Channels and patterns: many of them, and patterns that take long to match.

use std::io::Read;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::{Attack, Site, right};
use crate::client::Client;

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "publish-patterns", prepare: super::nothing, attack: publish_patterns },
    Attack { name: "publish-pattern-clients", prepare: super::nothing, attack: publish_pattern_clients },
    Attack { name: "events-patterns", prepare: super::nothing, attack: events_patterns },
    Attack { name: "publish-by-many", prepare: super::nothing, attack: publish_by_many },
    Attack { name: "publish-to-many", prepare: super::nothing, attack: publish_to_many },
    Attack { name: "subscribe-many", prepare: super::nothing, attack: subscribe_many },
];

/// The number of patterns: as many as one client may have within the server's `maxmemory-clients`.
const PATTERNS: usize = 200_000;
const PUBLISHERS: usize = 500;
const LISTENERS: usize = 2000;
const CHANNELS: usize = 100_000;

/// Returns a channel's name that such patterns fail on only after long work.
fn channel() -> Vec<u8> {
    b"abc".repeat(20_000 / 3)
}

fn pattern(number: usize) -> String {
    format!("*a*b*c{number}*{number}")
}

/// Subscribes to patterns, a thousand in each command.
fn psubscribe(client: &mut Client, patterns: std::ops::Range<usize>, pattern: fn(usize) -> String) -> Result<()> {
    const STEP: usize = 1000;
    for first in patterns.clone().step_by(STEP) {
        let step = first..patterns.end.min(first + STEP);
        let words: Vec<String> = ["PSUBSCRIBE".into()].into_iter().chain(step.clone().map(pattern)).collect();
        client.push(&words);
        client.flush()?;
        for _ in step {
            right(client.read()?)?;
        }
    }
    Ok(())
}

fn publish_patterns(site: &Site) -> Result<()> {
    let mut subscriber = site.client()?;
    psubscribe(&mut subscriber, 0..site.count(PATTERNS), pattern)?;
    site.repeat(&[b"PUBLISH".to_vec(), channel(), b"text".to_vec()])
}

fn publish_pattern_clients(site: &Site) -> Result<()> {
    const EACH: usize = 1000;
    let mut subscribers = Vec::new();
    for number in 0..site.count(200) {
        let mut subscriber = site.client()?;
        psubscribe(&mut subscriber, number * EACH..(number + 1) * EACH, pattern)?;
        subscribers.push(subscriber);
    }
    site.repeat(&[b"PUBLISH".to_vec(), channel(), b"text".to_vec()])
}

/// Writes a key with a long name, of which a client hears that has many patterns for what happens to keys.
fn events_patterns(site: &Site) -> Result<()> {
    let mut subscriber = site.client()?;
    right(subscriber.call(&["CONFIG", "SET", "notify-keyspace-events", "KA"])?)?;
    // Many channels end in such a class: each of the patterns is looked at.
    psubscribe(&mut subscriber, 0..site.count(PATTERNS), |number| format!("*a*b*c{number}[a-z]"))?;
    site.repeat(&[b"SET".to_vec(), channel(), b"text".to_vec()])
}

/// Publishes from very many connections at once to one client with many patterns.
fn publish_by_many(site: &Site) -> Result<()> {
    let mut subscriber = site.client()?;
    psubscribe(&mut subscriber, 0..site.count(PATTERNS), pattern)?;
    let mut publishers = (0..site.count(PUBLISHERS)).map(|_| site.client()).collect::<Result<Vec<_>>>()?;
    let publish = [b"PUBLISH".to_vec(), channel(), b"text".to_vec()];
    loop {
        for publisher in &mut publishers {
            publisher.push(&publish);
            publisher.flush()?;
        }
        for publisher in &mut publishers {
            right(publisher.read()?)?;
            if site.is_over() {
                break;
            }
        }
        if !site.again() {
            return Ok(());
        }
    }
}

/// Publishes in pipelines to very many clients, which read.
fn publish_to_many(site: &Site) -> Result<()> {
    const TOGETHER: usize = 100;
    const MESSAGE: &[u8] = b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$4\r\ntext\r\n";
    let listeners = (0..site.count(LISTENERS)).map(|_| {
        let mut listener = site.client()?;
        right(listener.call(&["SUBSCRIBE", "news"])?)?;
        Ok(listener.into_stream())
    });
    let listeners: Vec<TcpStream> = listeners.collect::<Result<_>>()?;
    let expected = AtomicUsize::new(usize::MAX);
    std::thread::scope(|threads| {
        let heard = threads.spawn(|| hear(&listeners, &expected));
        let published = publish_together(site, TOGETHER);
        let bytes = published.as_ref().map_or(0, |count| count * listeners.len() * MESSAGE.len());
        expected.store(bytes, Ordering::Relaxed);
        published?;
        heard.join().expect("it does not panic")
    })
}

/// Publishes so many messages at once again and again; returns how many there were.
fn publish_together(site: &Site, together: usize) -> Result<usize> {
    let mut publisher = site.client()?;
    let mut count = 0;
    loop {
        (0..together).for_each(|_| publisher.push(&["PUBLISH", "news", "text"]));
        publisher.flush()?;
        for _ in 0..together {
            right(publisher.read()?)?;
        }
        count += together;
        if !site.again() {
            return Ok(count);
        }
    }
}

/// Reads what all sockets are sent, until it is as many bytes as are expected.
///
/// # Errors
/// Nothing comes for ten seconds while some are missing.
fn hear(sockets: &[TcpStream], expected: &AtomicUsize) -> Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, socket) in sockets.iter().enumerate() {
        socket.set_nonblocking(true)?;
        epoll::add(&epoll, socket, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
    }
    let (mut events, mut buffer) = (Vec::with_capacity(256), vec![0; 64 << 10]);
    let (mut bytes, mut last) = (0, Instant::now());
    while bytes < expected.load(Ordering::Relaxed) {
        ensure!(last.elapsed() < Duration::from_secs(10), "{bytes} bytes of messages came, and no more");
        events.clear();
        let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        match epoll::wait(&epoll, spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let mut socket = &sockets[event.data.u64() as usize];
            let count = socket.read(&mut buffer)?;
            ensure!(count > 0, "a client that reads was closed");
            (bytes, last) = (bytes + count, Instant::now());
        }
    }
    Ok(())
}

fn subscribe_many(site: &Site) -> Result<()> {
    let count = site.count(CHANNELS);
    let names = || (0..count).map(|number| format!("channel:{number}"));
    let commands = ["SUBSCRIBE", "UNSUBSCRIBE"]
        .map(|command| [command.to_string()].into_iter().chain(names()).collect::<Vec<String>>());
    loop {
        let mut client = site.client()?;
        // The last SUBSCRIBE has no UNSUBSCRIBE: its subscriptions end with the connection.
        for command in commands.iter().chain(&commands[..1]) {
            client.push(command);
            client.flush()?;
            for _ in 0..count {
                right(client.read()?)?;
            }
        }
        if !site.again() {
            return Ok(());
        }
    }
}
