//! Reads everything that a restarted server holds, by the commands a user has for that, and checks that they agree with
//! each other: SCAN, GET, PEXPIRETIME, DBSIZE.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::model::{Database, Entry, Place, Seen};
use super::writer::now_ms;
use crate::client::Client;
use crate::diff::compare::scan_page;
use crate::quoted::abbreviate;

/// How many keys are asked for in one pipeline.
const PIPELINE: usize = 200;
/// The time within which active expiry must have removed the last expired key.
const EXPIRY_MAX: Duration = Duration::from_secs(20);

/// The keys of the given databases.
pub fn observe(client: &mut Client, databases: &[Database]) -> Result<Seen> {
    let mut seen = Seen { keys: BTreeMap::new(), from: now_ms(), until: 0 };
    for &database in databases {
        select(client, database)?;
        let names: Vec<Vec<u8>> = scan(client)?.into_iter().collect();
        for names in names.chunks(PIPELINE) {
            for name in names {
                client.push(&[&b"GET"[..], name]);
                client.push(&[&b"PEXPIRETIME"[..], name]);
            }
            client.flush()?;
            for name in names {
                let value = client.read()?;
                let deadline = client.read()?;
                let place: Place = (database, name.clone());
                match (value.bytes(), deadline.integer()) {
                    (Some(value), Some(-1)) => seen.keys.insert(place, Entry::new(value)),
                    (Some(value), Some(at)) if at >= 0 => {
                        seen.keys.insert(place, Entry { value: value.into(), deadline: Some(at as u64) })
                    }
                    // Its deadline passed between SCAN and GET, or between GET and PEXPIRETIME.
                    (None, Some(-2)) if value.is_nil() => None,
                    (Some(_), Some(-2)) => None,
                    _ => bail!("GET {} gave {value}, PEXPIRETIME {deadline}", abbreviate(name)),
                };
            }
        }
    }
    seen.until = now_ms();
    Ok(seen)
}

/// DBSIZE must be the number of keys that SCAN finds, once expired keys are removed. `expiring` says whether there may be
/// any, which may also go between the two questions; if not, it must be so at once.
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

/// A full iteration. Nothing writes meanwhile, so no key may come twice.
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
