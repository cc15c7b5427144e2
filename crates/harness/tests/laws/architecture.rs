//! Crates do not know what ARCHITECTURE.md keeps from them: each law is about words that a crate's code lacks, and
//! about packages that it is not built from.

use crate::source::{crates, sources};
use std::fs::read_to_string;

/// Clocks, and sources of random numbers.
const CLOCKS_AND_DICE: [&str; 11] = [
    "SystemTime",
    "Instant",
    "quanta",
    "rand",
    "fastrand",
    "getrandom",
    "OsRng",
    "SystemRandom",
    "RandomState",
    "DefaultHasher",
    "thread_rng",
];

/// Types and packages by which a process reaches others.
const SOCKETS: [&str; 11] = [
    "TcpStream",
    "TcpListener",
    "TcpSocket",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
    "tokio",
    "mio",
    "socket2",
    "haypile_server",
];

/// Changes of rows by a transaction. A key comes, goes or changes by one of these.
const ROW_CHANGES: [&str; 10] = [
    "put_meta",
    "delete_meta",
    "patch_meta",
    "put_row",
    "patch_row",
    "patch_read_row",
    "splice_row",
    "splice_read_row",
    "delete_row",
    "new_object",
];

/// Returns the places at which code has one of these words, as `line: word`.
fn places(code: &str, words: &[&str]) -> Vec<String> {
    let words_of = |line: &str| {
        let all = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').map(str::to_owned);
        all.filter(|word| words.contains(&word.as_str())).collect::<Vec<_>>()
    };
    (1..)
        .zip(code.lines())
        .flat_map(|(at, line)| words_of(line).into_iter().map(move |w| format!("{at}: {w}")))
        .collect()
}

/// Fails if the code of a crate, tests left out, has one of these words.
#[track_caller]
fn lacks(name: &str, words: &[&str], instead: &str) {
    let all = sources(name);
    assert!(!all.is_empty(), "{name} has code");
    let found: Vec<String> = all
        .iter()
        .flat_map(|source| places(&source.code, words).into_iter().map(|place| format!("{}:{place}", source.path)))
        .collect();
    assert!(found.is_empty(), "{instead}: {name} has\n{}", found.join("\n"));
}

/// Returns the packages that a manifest names for the crate itself, those of its tests left out.
fn packages(manifest: &str) -> Vec<&str> {
    let own = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let own = own.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    own.filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty()).collect()
}

/// Fails if a crate is built from one of these packages.
#[track_caller]
fn is_built_without(name: &str, others: &[&str]) {
    let manifest = read_to_string(crates().join(name).join("Cargo.toml")).expect("each crate has one");
    let found: Vec<&str> = packages(&manifest).into_iter().filter(|package| others.contains(package)).collect();
    assert!(found.is_empty(), "{name} is built from {found:?}");
}

#[test]
fn handlers_have_time_and_randomness_as_values() {
    for name in ["commands", "types"] {
        lacks(name, &CLOCKS_AND_DICE, "ask the call (`Txn::now_ms`, `Txn::random`), or the host's `Clock`");
    }
}

#[test]
fn the_engine_has_no_socket() {
    lacks("engine", &SOCKETS, "the server has the sockets: let it hand over what is needed (`Targets`)");
    is_built_without("engine", &["tokio", "mio", "socket2", "rustls", "haypile-server"]);
}

#[test]
fn types_make_no_reply() {
    lacks("types", &["Reply", "haypile_resp", "haypile_commands"], "return a value or a cause: `commands` words it");
    is_built_without("types", &["haypile-resp", "haypile-commands", "haypile-engine"]);
}

#[test]
fn keys_come_and_go_within_types() {
    for name in ["commands", "engine", "server"] {
        lacks(name, &ROW_CHANGES, "only `types` changes rows, so that counters, deadlines and owners agree");
    }
    let types = sources("types");
    let is_used = |word: &&str| types.iter().any(|source| !places(&source.code, &[word]).is_empty());
    assert!(["put_meta", "delete_meta", "put_row", "new_object"].iter().all(is_used), "they are called so");
}

#[test]
fn words_and_packages_are_told_from_longer_ones() {
    assert_eq!(places("let x = operand;\nlet y = rand();\n", &["rand"]), ["2: rand"]);
    let manifest = "[package]\nname = \"a\"\n[dependencies]\n# Not tokio.\nmio = \"1\"\nhaypile-log.workspace = true\n\n\
                    [dev-dependencies]\ntokio = \"1\"\n";
    assert_eq!(packages(manifest), ["mio", "haypile-log"]);
}
