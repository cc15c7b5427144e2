//! Channels and patterns: many of them, and patterns that take long to match.

use anyhow::Result;

use super::{Attack, Site, right};
use crate::client::Client;

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "publish-patterns", prepare: super::nothing, attack: publish_patterns },
    Attack { name: "publish-pattern-clients", prepare: super::nothing, attack: publish_pattern_clients },
    Attack { name: "events-patterns", prepare: super::nothing, attack: events_patterns },
    Attack { name: "publish-by-many", prepare: super::nothing, attack: publish_by_many },
    Attack { name: "subscribe-many", prepare: super::nothing, attack: subscribe_many },
];

/// The number of patterns: as many as one client may have within the server's `maxmemory-clients`.
const PATTERNS: usize = 200_000;
const PUBLISHERS: usize = 500;
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
