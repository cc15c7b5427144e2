//! SORT by the values of other keys, over many elements.

use anyhow::Result;

use super::{Attack, Site};

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "sort-by-get", prepare: prepare_sort, attack: sort_by_get },
    Attack { name: "sort-nosort-get", prepare: prepare_sort, attack: sort_nosort_get },
];

const ELEMENTS: usize = 1_000_000;

fn prepare_sort(site: &Site) -> Result<()> {
    const STEP: usize = 500;
    let count = site.count(ELEMENTS);
    let numbers = |step: usize| (step * STEP)..((step + 1) * STEP).min(count);
    site.fill(count.div_ceil(STEP), |step| {
        ["RPUSH".into(), "list".into()].into_iter().chain(numbers(step).map(|number| number.to_string())).collect()
    })?;
    site.fill(count.div_ceil(STEP), |step| {
        let pairs = numbers(step).flat_map(|number| [format!("w_{number}"), (number * 7919 % 104_729).to_string()]);
        ["MSET".into()].into_iter().chain(pairs).collect()
    })
}

fn sort_by_get(site: &Site) -> Result<()> {
    site.repeat(&["SORT", "list", "BY", "w_*", "GET", "w_*", "LIMIT", "0", "10"])
}

fn sort_nosort_get(site: &Site) -> Result<()> {
    site.repeat(&["SORT", "list", "BY", "nosort", "GET", "w_*"])
}
