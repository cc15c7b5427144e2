//! Commands with very many keys, or over all of them.

use anyhow::Result;

use super::{Attack, Site, nothing, right};

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "del-many", prepare: nothing, attack: del_many },
    Attack { name: "unlink-hashes", prepare: nothing, attack: unlink_hashes },
    Attack { name: "unlink-large-hashes", prepare: nothing, attack: unlink_large_hashes },
    Attack { name: "mset-many", prepare: nothing, attack: mset_many },
    Attack { name: "mget-many", prepare: prepare_keys, attack: mget_many },
    Attack { name: "exists-touch-many", prepare: prepare_keys, attack: exists_touch_many },
    Attack { name: "keys-all", prepare: prepare_keys, attack: keys_all },
    Attack { name: "keys-nasty-pattern", prepare: prepare_keys, attack: keys_nasty_pattern },
    Attack { name: "scan-huge-count", prepare: prepare_keys, attack: scan_huge_count },
    Attack { name: "pipelines-of-slow", prepare: prepare_sets, attack: pipelines_of_slow },
    Attack { name: "block-of-many", prepare: nothing, attack: block_of_many },
];

const KEYS: usize = 1_000_000;
/// Arguments of one MSET while keys are prepared.
const STEP: usize = 500;

fn prepare_keys(site: &Site) -> Result<()> {
    let count = site.count(KEYS);
    site.fill(count.div_ceil(STEP), |step| {
        let numbers = (step * STEP)..((step + 1) * STEP).min(count);
        let pairs = numbers.flat_map(|number| [key(number), number.to_string()]);
        ["MSET".into()].into_iter().chain(pairs).collect()
    })
}

fn key(number: usize) -> String {
    format!("key:{number}")
}

/// Returns a command with all keys.
fn all(site: &Site, command: &str) -> Vec<String> {
    [command.to_string()].into_iter().chain((0..site.count(KEYS)).map(key)).collect()
}

fn del_many(site: &Site) -> Result<()> {
    let del = all(site, "DEL");
    let mut client = site.client()?;
    loop {
        prepare_keys(site)?;
        right(client.call(&del)?)?;
        if !site.again() {
            return Ok(());
        }
    }
}

fn unlink_hashes(site: &Site) -> Result<()> {
    let unlink = all(site, "UNLINK");
    let mut client = site.client()?;
    loop {
        site.fill(site.count(KEYS), |number| vec!["HSET".into(), key(number), "field".into(), "value".into()])?;
        right(client.call(&unlink)?)?;
        if !site.again() {
            return Ok(());
        }
    }
}

/// Makes hashes of tens of thousands of fields, and removes all of them in one command.
fn unlink_large_hashes(site: &Site) -> Result<()> {
    const HASHES: usize = 10;
    let name = |number: usize| format!("hash:{number}");
    let unlink: Vec<String> = ["UNLINK".into()].into_iter().chain((0..HASHES).map(name)).collect();
    let mut client = site.client()?;
    loop {
        site.fill(site.count(KEYS).div_ceil(STEP), |step| {
            let fields = (0..STEP).flat_map(|at| [format!("field:{step}:{at}"), at.to_string()]);
            ["HSET".into(), name(step % HASHES)].into_iter().chain(fields).collect()
        })?;
        right(client.call(&unlink)?)?;
        if !site.again() {
            return Ok(());
        }
    }
}

fn mset_many(site: &Site) -> Result<()> {
    let pairs = (0..site.count(KEYS) / 2).flat_map(|number| [key(number), number.to_string()]);
    site.repeat(&["MSET".to_string()].into_iter().chain(pairs).collect::<Vec<_>>())
}

fn mget_many(site: &Site) -> Result<()> {
    site.repeat(&all(site, "MGET"))
}

fn exists_touch_many(site: &Site) -> Result<()> {
    let commands = [all(site, "EXISTS"), all(site, "TOUCH")];
    let mut client = site.client()?;
    loop {
        for command in &commands {
            right(client.call(command)?)?;
        }
        if !site.again() {
            return Ok(());
        }
    }
}

fn keys_all(site: &Site) -> Result<()> {
    site.repeat(&["KEYS", "*"])
}

fn keys_nasty_pattern(site: &Site) -> Result<()> {
    site.repeat(&["KEYS", "*e*y*1*2*3*4*5*6*7*8*9*x"])
}

fn scan_huge_count(site: &Site) -> Result<()> {
    site.repeat(&["SCAN", "0", "COUNT", "100000000", "MATCH", "*5*x*"])
}

fn prepare_sets(site: &Site) -> Result<()> {
    let set = |number: usize| {
        let members = (0..1000).map(|member| (member * (number + 2)).to_string());
        ["SADD".into(), format!("set:{number}")].into_iter().chain(members).collect()
    };
    site.fill(2, set)
}

/// Sends long pipelines of commands that are each short enough for an event loop.
fn pipelines_of_slow(site: &Site) -> Result<()> {
    loop {
        site.fill(1000, |_| ["SINTERCARD", "2", "set:0", "set:1"].map(String::from).to_vec())?;
        if !site.again() {
            return Ok(());
        }
    }
}

fn block_of_many(site: &Site) -> Result<()> {
    let mut client = site.client()?;
    loop {
        right(client.call(&["MULTI"])?)?;
        site.fill_with(&mut client, site.count(KEYS) / 5, |number| vec!["SET".into(), key(number), "x".into()])?;
        right(client.call(&["EXEC"])?)?;
        if !site.again() {
            return Ok(());
        }
    }
}
