//! Clients that see each other: messages to subscribers that come and go, short use of MONITOR, and clients that are
//! closed at random. A thread also hears the messages that it publishes, whole and in order, among those of others.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{Load, pause};
use crate::client::{Client, Reply};
use crate::random::Random;
use crate::server::REPLY_TIMEOUT;

/// The name of clients that may be closed at any time.
const PREY: &str = "prey";
/// Channels that all threads share.
const ROOMS: u64 = 8;

/// Connects; some clients take RESP3, and some the name of those that may be closed. Returns whether this one may be
/// closed.
pub(super) fn connect(load: &Load, random: &mut Random, port: u16) -> Result<(Client, bool)> {
    loop {
        let mut client = Client::connect(port, REPLY_TIMEOUT).context("connecting")?;
        load.connections.fetch_add(1, Ordering::Relaxed);
        if random.percent(50) {
            let hello = client.command("HELLO 3")?;
            ensure!(hello.error().is_none(), "HELLO 3 was answered by {hello}");
        }
        if !random.percent(25) {
            return Ok((client, false));
        }
        match client.command(&format!("CLIENT SETNAME {PREY}")) {
            Ok(named) if named.is_ok() => return Ok((client, true)),
            Ok(named) => bail!("CLIENT SETNAME was answered by {named}"),
            // A client with this name may be closed at once.
            Err(error) => end(load, true, Err(error.into()))?,
        }
    }
}

/// Ends a client; a lost connection is right if the client may have been closed.
pub(super) fn end(load: &Load, is_prey: bool, result: Result<()>) -> Result<()> {
    let Err(error) = result else { return Ok(()) };
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    match kind {
        Some(ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) if is_prey => {
            load.losses.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        _ => Err(error),
    }
}

/// Runs subscribers one after the other, each with a client of its own that publishes.
pub(super) fn publish_and_hear(load: &Load, mut random: Random, port: u16, number: u64) -> Result<()> {
    while !load.stopped() {
        let (subscriber, is_prey) = connect(load, &mut random, port)?;
        let heard = hear(load, &mut random, port, subscriber, number);
        end(load, is_prey, heard)?;
    }
    Ok(())
}

fn hear(load: &Load, random: &mut Random, port: u16, mut subscriber: Client, number: u64) -> Result<()> {
    let mut publisher = Client::connect(port, REPLY_TIMEOUT).context("connecting to publish")?;
    let (room, seats) = (random.below(ROOMS), random.below(100));
    let names: Vec<String> = (0..seats).map(|seat| format!(" seat:{number}:{seat}")).collect();
    let lines = [
        format!("SUBSCRIBE room:{room}{}", names.concat()),
        "PSUBSCRIBE room:*".to_string(),
        format!("SSUBSCRIBE shard:{room}"),
    ];
    for line in &lines {
        subscriber.push(&line.split(' ').collect::<Vec<_>>());
    }
    subscriber.flush()?;
    // Messages of others come in between.
    let mut answers = 0;
    while answers < 3 + seats {
        let heard = subscriber.read()?;
        answers += u64::from(kind(&heard)?.ends_with(b"subscribe"));
    }
    for batch in 0..random.between(1, 50) {
        let mut expected: Vec<(&[u8], Vec<u8>)> = Vec::new();
        for message in 0..random.between(1, 100) {
            let length = if random.percent(5) { random.below(20_000) } else { random.below(200) } as usize;
            let payload = format!("{number}:{batch}:{message}:{}", "m".repeat(length)).into_bytes();
            if random.percent(30) {
                publisher.push(&[b"SPUBLISH", format!("shard:{room}").as_bytes(), &payload]);
                expected.push((b"smessage", payload));
            } else {
                publisher.push(&[b"PUBLISH", format!("room:{room}").as_bytes(), &payload]);
                expected.push((b"message", payload.clone()));
                expected.push((b"pmessage", payload));
            }
        }
        publisher.flush()?;
        for _ in expected.iter().filter(|(kind, _)| *kind != b"pmessage") {
            let reply = publisher.read()?;
            // The number of receivers is not checked: the subscriber may have been closed meanwhile.
            ensure!(reply.integer().is_some(), "a message was answered by {reply}");
        }
        if random.percent(2) {
            // The subscriber leaves with all messages unread.
            return Ok(());
        }
        let own = format!("{number}:").into_bytes();
        for (kind_due, payload_due) in expected {
            loop {
                let heard = subscriber.read()?;
                let payload = heard.elements().and_then(|parts| parts.last()).and_then(Reply::bytes);
                let payload = payload.with_context(|| format!("{heard} instead of a message"))?;
                load.messages.fetch_add(1, Ordering::Relaxed);
                if payload.starts_with(&own) {
                    ensure!(kind(&heard)? == kind_due && payload == payload_due, "another message was due: {heard}");
                    break;
                }
            }
        }
        if load.stopped() {
            break;
        }
        // The pause leaves room for other commands than messages.
        sleep(Duration::from_millis(random.below(30)));
    }
    if random.percent(50) {
        for line in ["UNSUBSCRIBE", "PUNSUBSCRIBE room:*", "SUNSUBSCRIBE"] {
            subscriber.push(&line.split(' ').collect::<Vec<_>>());
        }
        subscriber.push(&["PING"]);
        subscriber.flush()?;
        while subscriber.read()? != Reply::Simple(b"PONG".to_vec()) {}
    }
    Ok(())
}

/// Returns the kind of a message to a subscriber.
fn kind(heard: &Reply) -> Result<&[u8]> {
    let kind = heard.elements().and_then(|parts| parts.first()).and_then(Reply::bytes);
    kind.with_context(|| format!("{heard} is not for a subscriber"))
}

/// Runs MONITOR now and then, until the lines of its own speaker have come by.
pub(super) fn look_at_everything(load: &Load, port: u16) -> Result<()> {
    let mut speaker = Client::connect(port, REPLY_TIMEOUT).context("connecting to be looked at")?;
    for round in 0.. {
        if load.stopped() {
            break;
        }
        let mut monitor = Client::connect(port, REPLY_TIMEOUT).context("connecting to look")?;
        let begun = monitor.command("MONITOR")?;
        ensure!(begun.is_ok(), "MONITOR was answered by {begun}");
        for word in 0..20 {
            let words = format!("round:{round}:word:{word}");
            speaker.call(&["ECHO", &words])?;
            loop {
                let line = monitor.read()?;
                let Reply::Simple(line) = line else { bail!("MONITOR shows {line}") };
                load.monitored.fetch_add(1, Ordering::Relaxed);
                if line.ends_with(format!("\"ECHO\" \"{words}\"").as_bytes()) {
                    break;
                }
            }
        }
        pause(load, Duration::from_secs(3));
    }
    Ok(())
}

/// Closes one client after the other, of those with the name for it.
pub(super) fn close_clients(load: &Load, mut random: Random, port: u16) -> Result<()> {
    let mut client = Client::connect(port, REPLY_TIMEOUT).context("connecting to close others")?;
    while !load.stopped() {
        let list = client.command("CLIENT LIST")?;
        let text = String::from_utf8_lossy(list.bytes().with_context(|| format!("CLIENT LIST: {list}"))?).into_owned();
        let name = format!(" name={PREY} ");
        let ids: Vec<&str> = text
            .lines()
            .filter(|line| line.contains(&name))
            .filter_map(|line| line.strip_prefix("id=")?.split(' ').next())
            .collect();
        if !ids.is_empty() {
            let id = ids[random.below(ids.len() as u64) as usize];
            let closed = client.command(&format!("CLIENT KILL ID {id}"))?;
            let closed = closed.integer().with_context(|| format!("CLIENT KILL was answered by {closed}"))?;
            load.kills.fetch_add(closed as u64, Ordering::Relaxed);
        }
        pause(load, Duration::from_millis(200));
    }
    Ok(())
}
