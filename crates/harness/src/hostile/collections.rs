//! Commands that go through all of large collections, and write as much.

use anyhow::Result;

use super::{Attack, Site};

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "zunionstore-many", prepare: prepare_sets, attack: zunionstore_many },
    Attack { name: "zinterstore-many", prepare: prepare_sets, attack: zinterstore_many },
    Attack { name: "geosearch-world", prepare: prepare_places, attack: geosearch_world },
    Attack { name: "lrem-many", prepare: prepare_list, attack: lrem_many },
];

const MEMBERS: usize = 1_000_000;
/// Members of one command while they are prepared.
const STEP: usize = 500;

fn numbers(step: usize, count: usize) -> std::ops::Range<usize> {
    (step * STEP)..((step + 1) * STEP).min(count)
}

/// Makes two sorted sets, half of whose members are the same.
fn prepare_sets(site: &Site) -> Result<()> {
    let count = site.count(MEMBERS / 2);
    for (name, first) in [("zset:0", 0), ("zset:1", count / 2)] {
        site.fill(count.div_ceil(STEP), |step| {
            let members = numbers(step, count).flat_map(|number| [number.to_string(), format!("m{}", first + number)]);
            ["ZADD".into(), name.into()].into_iter().chain(members).collect()
        })?;
    }
    Ok(())
}

fn zunionstore_many(site: &Site) -> Result<()> {
    site.repeat(&["ZUNIONSTORE", "union", "2", "zset:0", "zset:1"])
}

fn zinterstore_many(site: &Site) -> Result<()> {
    site.repeat(&["ZINTERSTORE", "inter", "2", "zset:0", "zset:1"])
}

fn prepare_places(site: &Site) -> Result<()> {
    let count = site.count(MEMBERS / 2);
    site.fill(count.div_ceil(STEP), |step| {
        let places = numbers(step, count).flat_map(|number| {
            let (longitude, latitude) = (number * 7919 % 360_000, number * 104_729 % 170_000);
            let [longitude, latitude] = [longitude as f64 / 1000.0 - 180.0, latitude as f64 / 1000.0 - 85.0];
            [longitude.to_string(), latitude.to_string(), format!("p{number}")]
        });
        ["GEOADD".into(), "world".into()].into_iter().chain(places).collect()
    })
}

fn geosearch_world(site: &Site) -> Result<()> {
    site.repeat(&["GEOSEARCH", "world", "FROMLONLAT", "0", "0", "BYRADIUS", "22000", "km", "ASC", "WITHDIST"])
}

fn prepare_list(site: &Site) -> Result<()> {
    let count = site.count(MEMBERS);
    site.fill(count.div_ceil(STEP), |step| {
        ["RPUSH".into(), "list".into()]
            .into_iter()
            .chain(numbers(step, count).map(|number| number.to_string()))
            .collect()
    })
}

/// Looks for what is in no place of a long list.
fn lrem_many(site: &Site) -> Result<()> {
    site.repeat(&["LREM", "list", "0", "absent"])
}
