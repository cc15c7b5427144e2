//! SORT and SORT_RO, for `generate`, without forms whose result Redis leaves open: its ALPHA compares up to the first
//! NUL where nothing is stored, and equal texts come in any order.

use super::arguments::Arguments;
use super::sequence::Command;

const PATTERNS: &[&[u8]] = &[b"*", b"k*", b"*->f", b"k*->f", b"a*->", b"*->none", b"{tag}*"];

/// A key that is never a sorted set: Redis changes the encoding of one that it sorts.
const SORTED: &[u8] = b"sorted";

/// A key that is always a list, which has an order without sorting.
pub(super) const SORTED_LIST: &[u8] = b"sorted-list";

pub(super) fn sort(a: &mut Arguments) -> Command {
    let key = if a.random.percent(70) { SORTED } else { SORTED_LIST };
    if a.random.percent(35) {
        let names: &[&str] = if key == SORTED { &["RPUSH", "LPUSH", "SADD", "DEL"] } else { &["RPUSH", "LPUSH"] };
        let name = *a.random.pick(names);
        let mut command = vec![a.word(name), key.to_vec()];
        for _ in 0..a.random.between(1, 12) {
            command.push(if a.random.percent(80) { a.number() } else { a.value() });
        }
        return command;
    }
    let stores = a.random.percent(25);
    let name = if !stores && a.random.percent(30) { "SORT_RO" } else { "SORT" };
    let mut command = vec![a.word(name), key.to_vec()];
    let (by, alpha) = match a.random.below(10) {
        0 => (Some(&b"nosort"[..]), false),
        1..=3 => (Some(*a.random.pick(PATTERNS)), false),
        4..=6 => (None, true),
        _ => (None, false),
    };
    if let Some(pattern) = by {
        command.extend([a.word("BY"), pattern.to_vec()]);
    }
    let is_certain = (by != Some(b"nosort") || key == SORTED_LIST) && (!alpha || stores);
    if is_certain && a.random.percent(40) {
        command.extend([a.word("LIMIT"), a.index(), a.index()]);
    }
    for _ in 0..[0, 0, 0, 1, 2][a.random.below(5) as usize] {
        let pattern = if a.random.percent(40) { b"#" } else { *a.random.pick(PATTERNS) };
        command.extend([a.word("GET"), pattern.to_vec()]);
    }
    if a.random.percent(40) {
        let word = if a.random.percent(70) { "DESC" } else { "ASC" };
        command.push(a.word(word));
    }
    if alpha {
        command.push(a.word("ALPHA"));
    }
    if stores {
        command.extend([a.word("STORE"), a.key()]);
    }
    command
}
