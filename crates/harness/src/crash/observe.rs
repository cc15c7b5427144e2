//! Reads everything that a restarted server holds, by the commands that a user has, and checks that their replies
//! agree: SCAN, TYPE, GET, PEXPIRETIME, DBSIZE. Collections are read by `inspect`.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::inspect::inspect;
use super::model::{Database, Entry, Place, Seen};
use crate::client::Client;
use crate::clock::now_ms;
use crate::diff::compare::scan_page;
use crate::quoted::abbreviate;

/// The number of keys in one pipeline.
const PIPELINE: usize = 200;
/// The time within which active expiry must have removed the last expired key.
const EXPIRY_MAX: Duration = Duration::from_secs(20);

/// Reads the keys of the given databases.
pub fn observe(client: &mut Client, databases: &[Database]) -> Result<Seen> {
    let mut seen = Seen { keys: BTreeMap::new(), from: now_ms(), until: 0 };
    for &database in databases {
        select(client, database)?;
        let names: Vec<Vec<u8>> = scan(client)?.into_iter().collect();
        for names in names.chunks(PIPELINE) {
            let (strings, collections): (Vec<_>, Vec<_>) =
                types(client, names)?.into_iter().partition(|(_, kind)| kind == b"string");
            observe_strings(client, database, strings.into_iter().map(|(name, _)| name), &mut seen)?;
            for (name, kind) in collections {
                let entry = inspect(client, name, &kind);
                let entry = entry.with_context(|| format!("{} in database {database}", abbreviate(name)))?;
                seen.keys.extend(entry.map(|entry| ((database, name.clone()), entry)));
            }
        }
    }
    seen.until = now_ms();
    Ok(seen)
}

fn types<'a>(client: &mut Client, names: &'a [Vec<u8>]) -> Result<Vec<(&'a Vec<u8>, Vec<u8>)>> {
    names.iter().for_each(|name| client.push(&[&b"TYPE"[..], name]));
    client.flush()?;
    let mut all = Vec::new();
    for name in names {
        let reply = client.read()?;
        let kind = reply.bytes().with_context(|| format!("TYPE {} gave {reply}", abbreviate(name)))?;
        // `none`: its deadline passed since SCAN.
        if kind != b"none" {
            all.push((name, kind.to_vec()));
        }
    }
    Ok(all)
}

fn observe_strings<'a>(
    client: &mut Client,
    database: Database,
    names: impl Iterator<Item = &'a Vec<u8>>,
    seen: &mut Seen,
) -> Result<()> {
    let names: Vec<&Vec<u8>> = names.collect();
    for name in &names {
        client.push(&[&b"GET"[..], name]);
        client.push(&[&b"PEXPIRETIME"[..], name]);
    }
    client.flush()?;
    for name in names {
        let value = client.read()?;
        let deadline = client.read()?;
        let place: Place = (database, name.clone());
        match (value.bytes(), deadline.integer()) {
            (Some(value), Some(-1)) => seen.keys.insert(place, Entry::text(value)),
            (Some(value), Some(at)) if at >= 0 => {
                seen.keys.insert(place, Entry { deadline: Some(at as u64), ..Entry::text(value) })
            }
            // The key's deadline passed between TYPE and GET, or between GET and PEXPIRETIME.
            (None, Some(-2)) if value.is_nil() => None,
            (Some(_), Some(-2)) => None,
            _ => bail!("GET {} gave {value}, PEXPIRETIME {deadline}", abbreviate(name)),
        };
    }
    Ok(())
}

/// Compares DBSIZE with the number of keys that SCAN finds, once expired keys are removed. `expiring` says whether
/// there may be such keys, which may also go between the two commands; if not, the numbers must be equal at once.
pub fn check_sizes(client: &mut Client, databases: &[Database], expiring: bool) -> Result<()> {
    let begin = Instant::now();
    for &database in databases {
        select(client, database)?;
        loop {
            let found = scan(client)?.len() as i64;
            let size = client.command("DBSIZE")?.integer().context("DBSIZE gave no number")?;
            if found == size {
                break;
            }
            let wait = expiring && begin.elapsed() < EXPIRY_MAX;
            let seconds = begin.elapsed().as_secs_f64();
            ensure!(
                wait,
                "database {database}: DBSIZE says {size}, SCAN finds {found} keys, {seconds:.1} s after reading"
            );
            sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

fn select(client: &mut Client, database: Database) -> Result<()> {
    let reply = client.command(&format!("SELECT {database}"))?;
    ensure!(reply.is_ok(), "SELECT {database} was answered by {reply}");
    Ok(())
}

/// Iterates over all keys. Nothing writes meanwhile, so no key may come twice.
fn scan(client: &mut Client) -> Result<BTreeSet<Vec<u8>>> {
    let mut found = BTreeSet::new();
    let mut cursor = 0;
    loop {
        let reply = client.command(&format!("SCAN {cursor} COUNT 1000"))?;
        let (next, keys) = scan_page(&reply).with_context(|| format!("SCAN was answered by {reply}"))?;
        found.extend(keys);
        if next == 0 {
            return Ok(found);
        }
        cursor = next;
    }
}
