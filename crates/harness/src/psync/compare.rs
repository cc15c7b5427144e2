//! The comparison of what a master and its replica hold: all keys, by the fingerprints that DEBUG has, and the groups
//! of streams.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::of_master;
use crate::client::{Client, Reply};
use crate::quoted::quote_short;
use crate::repl::cluster::digest_of;

const DATABASES: u32 = 16;

/// The most keys that are named.
const NAMED_MAX: usize = 10;

/// Compares until all is the same, or the time is over; returns the number of keys. A master does not tell all: keys
/// that BITFIELD makes and then leaves as they are, and some of what streams know of their groups. So keys may be as a
/// replica of Redis's own has them, the `peer`, with which groups are compared, if there is one. Where one of the two
/// has `loaded` the master's data later than the other, it knows more.
pub fn compare(
    master: &mut Client,
    mut peer: Option<&mut Client>,
    replica: &mut Client,
    loaded: bool,
    time: Duration,
) -> Result<u64> {
    let begin = Instant::now();
    loop {
        let theirs = digest_of(&of_master(master.call(&["DEBUG", "DIGEST"]))?)?;
        let ours = digest_of(&replica.call(&["DEBUG", "DIGEST"])?)?;
        let differing = if theirs == ours { Vec::new() } else { find(master, peer.as_deref_mut(), replica)? };
        if differing.is_empty() {
            break;
        }
        if begin.elapsed() > time {
            bail!("master and replica differ:\n{}", differing.join("\n"));
        }
        // Keys expire on the master when it looks at them.
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut keys = 0;
    for database in 0..DATABASES {
        select(database, master, peer.as_deref_mut(), replica)?;
        let names = names(of_master(master.call(&ALL))?)?;
        keys += names.len() as u64;
        for name in &names {
            let about: [&[&[u8]]; 2] = [&[b"PEXPIRETIME", name], &[b"XINFO", b"STREAM", name, b"FULL", b"COUNT", b"0"]];
            for command in about {
                let theirs = match &mut peer {
                    Some(peer) => peer.call(command)?,
                    None => of_master(master.call(command))?,
                };
                let ours = replica.call(command)?;
                // A key that has expired by now is no difference.
                if !same_about(&theirs, &ours, loaded) && has(master, name)? {
                    let command = quote_short(&command.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
                    bail!("database {database}: {command}\n  other:   {theirs}\n  replica: {ours}");
                }
            }
        }
    }
    Ok(keys)
}

/// Whether two answers about a key say the same, but for how a stream lies in memory, what 7.0 does not tell, and when
/// consumers were seen.
fn same_about(theirs: &Reply, ours: &Reply, loaded: bool) -> bool {
    if theirs.integer().is_some() {
        return theirs == ours;
    }
    // Errors of different versions need not read alike.
    theirs.error().is_some() && ours.error().is_some() || facts(theirs, loaded) == facts(ours, loaded)
}

/// The facts of a stream that are told of it alone, or in some versions only.
const OF_MEMORY: [&[u8]; 10] = [
    b"radix-tree-keys",
    b"radix-tree-nodes",
    b"seen-time",
    b"active-time",
    b"idmp-duration",
    b"idmp-maxsize",
    b"pids-tracked",
    b"iids-tracked",
    b"iids-added",
    b"iids-duplicates",
];

/// The facts of a group that a master does not always tell, but has in its data.
const UNTOLD: [&[u8]; 2] = [b"entries-read", b"lag"];

/// Returns what an answer says, in its order. Of numbers that a master does not always tell there are times and counts
/// of deliveries, too: those of entries that a consumer reads again.
fn facts(reply: &Reply, loaded: bool) -> Vec<&Reply> {
    if loaded && reply.integer().is_some() {
        return Vec::new();
    }
    let Some(elements) = reply.elements() else { return vec![reply] };
    if loaded && is_idle_consumer(elements) {
        return Vec::new();
    }
    let (mut found, mut at) = (Vec::new(), 0);
    while at < elements.len() {
        let is = |names: &[&[u8]]| elements[at].bytes().is_some_and(|name| names.contains(&name));
        if is(&OF_MEMORY) || loaded && is(&UNTOLD) {
            at += 2;
            continue;
        }
        found.extend(facts(&elements[at], loaded));
        at += 1;
    }
    found
}

/// Whether an answer's part is a consumer that has nothing pending.
fn is_idle_consumer(elements: &[Reply]) -> bool {
    let has = |name: &[u8]| elements.iter().any(|element| element.bytes() == Some(name));
    let is_idle = |pair: &[Reply]| pair[0].bytes() == Some(b"pel-count") && pair[1].integer() == Some(0);
    has(b"seen-time") && elements.windows(2).any(is_idle)
}

/// Returns what differs, a line for each key.
fn find(master: &mut Client, mut peer: Option<&mut Client>, replica: &mut Client) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for database in 0..DATABASES {
        select(database, master, peer.as_deref_mut(), replica)?;
        let mut all = names(of_master(master.call(&ALL))?)?;
        all.extend(names(replica.call(&ALL)?)?);
        all.sort();
        all.dedup();
        for name in all {
            let digest: [&[u8]; 3] = [b"DEBUG", b"DIGEST-VALUE", &name];
            let (theirs, ours) = (of_master(master.call(&digest))?, replica.call(&digest)?);
            ensure!(ours.elements().is_some(), "DEBUG DIGEST-VALUE was answered by {ours}");
            let of_peer = match &mut peer {
                Some(peer) if theirs != ours => Some(peer.call(&digest)?),
                _ => None,
            };
            let is_excused = of_peer.as_ref() == Some(&ours);
            if theirs != ours && found.len() < NAMED_MAX && !is_excused && !is_same_hyperloglog(master, replica, &name)?
            {
                let about = |client: &mut Client| -> io::Result<String> {
                    let kind = client.call(&[b"TYPE", &name[..]])?;
                    let dump = client.call(&[b"DUMP", &name[..]])?;
                    Ok(format!("{kind}, {}, {dump}", client.call(&[b"PEXPIRETIME", &name[..]])?))
                };
                let (theirs, ours) = (of_master(about(master))?, about(replica)?);
                let name = quote_short(std::slice::from_ref(&name));
                found.push(format!("database {database}, key {name}\n  master:  {theirs}\n  replica: {ours}"));
            }
        }
    }
    Ok(found)
}

/// Whether a key holds the same HyperLogLog on both sides, but for the count that Redis keeps in it when it is read.
fn is_same_hyperloglog(master: &mut Client, replica: &mut Client, name: &[u8]) -> Result<bool> {
    const COUNT: std::ops::Range<usize> = 8..16;
    let without_count = |client: &mut Client| -> io::Result<Option<Vec<u8>>> {
        let value = client.call(&[b"GET", name])?;
        let value = value.bytes().filter(|bytes| bytes.starts_with(b"HYLL") && bytes.len() > COUNT.end);
        Ok(value.map(|bytes| [&bytes[..COUNT.start], &bytes[COUNT.end..]].concat()))
    };
    let (theirs, ours) = (of_master(without_count(master))?, without_count(replica)?);
    Ok(theirs.is_some() && theirs == ours)
}

fn has(master: &mut Client, name: &[u8]) -> Result<bool> {
    Ok(of_master(master.call(&[b"EXISTS", name]))?.integer() == Some(1))
}

fn select(database: u32, master: &mut Client, peer: Option<&mut Client>, replica: &mut Client) -> Result<()> {
    let command = ["SELECT", &database.to_string()];
    of_master(master.call(&command))?;
    replica.call(&command)?;
    peer.map_or(Ok(()), |peer| peer.call(&command).map(drop)).context("selecting a database beside")
}

/// The command whose reply is `names`.
const ALL: [&str; 2] = ["KEYS", "*"];

fn names(reply: Reply) -> Result<Vec<Vec<u8>>> {
    let Some(elements) = reply.elements() else { bail!("KEYS was answered by {reply}") };
    Ok(elements.iter().filter_map(Reply::bytes).map(<[u8]>::to_vec).collect())
}
