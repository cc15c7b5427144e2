//! Commands about keys of any type, and the iterations over them.

use super::arguments::Arguments;
use super::sequence::Command;

/// Returns a command over several keys, each with a value if `pairs`.
pub(super) fn many(a: &mut Arguments, name: &str, pairs: bool) -> Command {
    let mut command = vec![a.word(name)];
    for _ in 0..a.random.between(1, 4) {
        command.push(a.key());
        if pairs {
            command.push(a.value());
        }
    }
    command
}

pub(super) fn copy(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("COPY"), a.key(), a.key()];
    while a.random.percent(40) {
        match a.random.below(2) {
            0 => command.push(a.word("REPLACE")),
            _ => command.extend([a.word("DB"), a.database()]),
        }
    }
    command
}

pub(super) fn expire(a: &mut Arguments, name: &str, when: fn(&mut Arguments, i64) -> Vec<u8>, unit_ms: i64) -> Command {
    let mut command = vec![a.word(name), a.key(), when(a, unit_ms)];
    while a.random.percent(30) {
        let option = *a.random.pick(&["NX", "XX", "GT", "LT", "ZZ"]);
        command.push(a.word(option));
    }
    command
}

pub(super) fn scan(a: &mut Arguments) -> Command {
    let cursor = match a.random.below(4) {
        0 => a.odd(),
        _ => b"0".to_vec(),
    };
    let mut command = vec![a.word("SCAN"), cursor];
    scan_options(a, &mut command, false);
    command
}

/// Adds MATCH, COUNT and TYPE; only valid ones if `right`.
pub(super) fn scan_options(a: &mut Arguments, command: &mut Command, right: bool) {
    while a.random.percent(45) {
        let (word, value) = match a.random.below(7) {
            0..=2 => ("MATCH", a.pattern()),
            3..=4 if right => ("COUNT", a.random.between(1, 20).to_string().into_bytes()),
            3..=4 => ("COUNT", a.number()),
            _ => {
                ("TYPE", a.random.pick(&["string", "STRING", "list", "hash", "stream", "nothing"]).as_bytes().to_vec())
            }
        };
        command.extend([a.word(word), value]);
    }
}

pub(super) fn flush(a: &mut Arguments, name: &str) -> Command {
    let mut command = vec![a.word(name)];
    match a.random.below(6) {
        0 => command.push(a.word("ASYNC")),
        1 => command.push(a.word("SYNC")),
        2 => command.push(a.odd()),
        _ => {}
    }
    command
}

pub(super) fn object(a: &mut Arguments) -> Command {
    let subcommand = *a.random.pick(&["ENCODING", "ENCODING", "REFCOUNT", "IDLETIME", "FREQ", "NOSUCH"]);
    vec![a.word("OBJECT"), a.word(subcommand), a.key()]
}
