//! The memory that a server holds for its clients: messages and replies that they do not read, values that a short
//! payload expands to, requests that never end. A client that makes the server hold too much may be refused or closed;
//! the server stays within its memory.

use std::thread;

use anyhow::Result;

use super::{Attack, SAMPLE, Site, nothing, right};
use crate::client::Client;

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "publish-unread", prepare: nothing, attack: publish_unread },
    Attack { name: "monitor-unread", prepare: nothing, attack: monitor_unread },
    Attack { name: "restore-expanding", prepare: nothing, attack: restore_expanding },
    Attack { name: "dump-unread", prepare: prepare_long, attack: dump_unread },
    Attack { name: "announced-unsent", prepare: nothing, attack: announced_unsent },
    Attack { name: "multi-queued", prepare: nothing, attack: multi_queued },
    Attack { name: "keys-unread", prepare: prepare_names, attack: keys_unread },
    Attack { name: "subscriptions-many", prepare: nothing, attack: subscriptions_many },
    Attack { name: "replies-unread", prepare: prepare_value, attack: replies_unread },
    Attack { name: "collections-unread", prepare: prepare_collections, attack: collections_unread },
    Attack { name: "strings-far-away", prepare: nothing, attack: strings_far_away },
];

const MB: usize = 1 << 20;
/// Arguments of one command of a preparation.
const STEP: usize = 500;

/// Keeps `count` clients that run `say` and do not read. A client that the server closes makes room for the next one.
fn keep_unread(site: &Site, count: usize, say: impl Fn(&mut Client, usize) -> std::io::Result<()>) -> Result<()> {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        clients.retain_mut(|client| !client.is_closed());
        while clients.len() < site.count(count) {
            let mut client = site.client()?;
            if say(&mut client, clients.len()).is_ok() {
                clients.push(client);
            } else if site.is_over() {
                break;
            }
        }
        thread::sleep(SAMPLE);
        if !site.again() {
            return Ok(());
        }
    }
}

/// Sends a command and does not wait for its reply.
fn say(client: &mut Client, words: &[impl AsRef<[u8]>]) -> std::io::Result<()> {
    client.push(words);
    client.flush()
}

/// Publishes messages of a megabyte to two hundred subscribers.
fn publish_unread(site: &Site) -> Result<()> {
    let text = vec![b'x'; MB];
    thread::scope(|scope| {
        let subscribers = scope.spawn(|| keep_unread(site, 200, |client, _| say(client, &["SUBSCRIBE", "unread"])));
        let published = site.repeat(&[b"PUBLISH", &b"unread"[..], &text]);
        subscribers.join().expect("no panic").and(published)
    })
}

fn monitor_unread(site: &Site) -> Result<()> {
    thread::scope(|scope| {
        let monitors = scope.spawn(|| keep_unread(site, 50, |client, _| say(client, &["MONITOR"])));
        let shown = site.repeat(&[&b"ECHO"[..], &vec![b'x'; MB / 10]]);
        monitors.join().expect("no panic").and(shown)
    })
}

/// Restores strings of hundreds of megabytes over sixteen clients, from payloads of a ninetieth of that.
fn restore_expanding(site: &Site) -> Result<()> {
    let payload = expanding(site.count(400) * MB);
    let restore = |number: usize| -> Result<()> {
        let key = format!("restored:{number}");
        let mut client = site.client()?;
        loop {
            // A refusal and a closed connection are both right.
            if client.call(&[b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"]).is_err() {
                client = site.client()?;
            }
            if !site.again() {
                return Ok(());
            }
        }
    };
    thread::scope(|scope| {
        let restore = &restore;
        let many: Vec<_> = (0..16).map(|number| scope.spawn(move || restore(number))).collect();
        many.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

/// Returns a payload of RESTORE for a string of at least so many equal bytes: the first byte as it is, the others as
/// copies of the byte before, 264 at a time, as LZF encodes them.
pub fn expanding(bytes: usize) -> Vec<u8> {
    const COPY: usize = 264;
    let copies = bytes.div_ceil(COPY);
    let compressed = [&[0, b'x'][..], &[0xe0, 255, 0].repeat(copies)].concat();
    let lengths = [compressed.len(), 1 + copies * COPY].map(|length| (length as u32).to_be_bytes());
    let mut payload = [&[0, 0xc3, 0x80][..], &lengths[0], &[0x80], &lengths[1], &compressed, &[10, 0]].concat();
    payload.extend(crc64(&payload).to_le_bytes());
    payload
}

/// Returns the checksum of a payload: CRC-64 by Jones.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x95ac_9329_ac4b_c9b5 } else { 0 })
    })
}

fn prepare_long(site: &Site) -> Result<()> {
    let last = (site.count(400) * MB - 1).to_string();
    right(site.client()?.call(&["SETRANGE", "long", &last, "x"])?).map(drop)
}

fn dump_unread(site: &Site) -> Result<()> {
    keep_unread(site, 6, |client, _| say(client, &["DUMP", "long"]))
}

/// Keeps thousands of clients that announce half a gigabyte and send a megabyte of it.
fn announced_unsent(site: &Site) -> Result<()> {
    let sent = [&b"*3\r\n$3\r\nSET\r\n$9\r\nannounced\r\n$536870912\r\n"[..], &vec![b'x'; MB]].concat();
    keep_unread(site, 2000, |client, _| client.send_raw(&sent))
}

/// Keeps blocks of eighty megabytes that never end.
fn multi_queued(site: &Site) -> Result<()> {
    let value = vec![b'x'; MB];
    keep_unread(site, 20, |client, _| {
        client.push(&["MULTI"]);
        for _ in 0..80 {
            say(client, &[b"SET", &b"queued"[..], &value])?;
        }
        Ok(())
    })
}

fn prepare_names(site: &Site) -> Result<()> {
    site.fill(site.count(1_000_000) / STEP, |step| {
        let pairs = (0..STEP).flat_map(|at| [format!("name:{step}:{at}"), "x".into()]);
        ["MSET".to_string()].into_iter().chain(pairs).collect()
    })
}

fn keys_unread(site: &Site) -> Result<()> {
    keep_unread(site, 20, |client, _| say(client, &["KEYS", "*"]))
}

/// Connects clients that subscribe, and read the replies, until there are a million subscriptions.
fn subscriptions_many(site: &Site) -> Result<()> {
    const EACH: usize = 10_000;
    let mut clients: Vec<Client> = Vec::new();
    loop {
        if clients.len() < site.count(100) {
            let first = clients.len() * EACH;
            let names = (first..first + EACH).map(|number| format!("a-channel-of-some-length:{number}"));
            let words: Vec<String> = ["SUBSCRIBE".to_string()].into_iter().chain(names).collect();
            let mut client = site.client()?;
            if say(&mut client, &words).and_then(|()| (0..EACH).try_for_each(|_| client.read().map(drop))).is_ok() {
                clients.push(client);
            }
        } else {
            thread::sleep(SAMPLE);
        }
        clients.retain_mut(|client| !client.is_closed());
        if !site.again() {
            return Ok(());
        }
    }
}

fn prepare_value(site: &Site) -> Result<()> {
    right(site.client()?.call(&[&b"SET"[..], b"value", &vec![b'x'; MB]])?).map(drop)
}

/// Requests a hundred thousand replies of a megabyte each.
fn replies_unread(site: &Site) -> Result<()> {
    keep_unread(site, 100, |client, _| {
        (0..1000).for_each(|_| client.push(&["GET", "value"]));
        client.flush()
    })
}

fn prepare_collections(site: &Site) -> Result<()> {
    let steps = site.count(1_000_000) / STEP;
    for (command, key) in [("HSET", "hash"), ("SADD", "set"), ("RPUSH", "list"), ("ZADD", "zset")] {
        site.fill(steps, |step| {
            let elements = (0..STEP).flat_map(|at| {
                let element = (step * STEP + at).to_string();
                if matches!(command, "HSET" | "ZADD") { vec![element.clone(), element] } else { vec![element] }
            });
            [command.to_string(), key.to_string()].into_iter().chain(elements).collect()
        })?;
    }
    Ok(())
}

fn collections_unread(site: &Site) -> Result<()> {
    const ALL: [&[&str]; 4] =
        [&["HGETALL", "hash"], &["SMEMBERS", "set"], &["LRANGE", "list", "0", "-1"], &["ZRANGE", "zset", "0", "-1"]];
    keep_unread(site, 50, |client, number| say(client, ALL[number % ALL.len()]))
}

/// Makes strings of half a gigabyte by their last byte or bit, copies, combines and reads them.
fn strings_far_away(site: &Site) -> Result<()> {
    let last = site.count(512) * MB - 1;
    let (byte, bit) = (last.to_string(), (last * 8).to_string());
    let commands: [&[&str]; 8] = [
        &["SETRANGE", "far", &byte, "x"],
        &["SETBIT", "bits", &bit, "1"],
        &["STRLEN", "far"],
        &["BITCOUNT", "bits"],
        &["BITOP", "OR", "both", "far", "bits"],
        &["COPY", "far", "copied", "REPLACE"],
        &["GETRANGE", "both", "0", "10"],
        &["DEL", "far", "bits", "both", "copied"],
    ];
    let mut client = site.client()?;
    loop {
        for words in commands {
            right(client.call(words)?)?;
        }
        if !site.again() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis() {
        // Redis's own test has this value.
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }
}
