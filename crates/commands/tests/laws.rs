//! Laws of every entry of the command table, and of the pages made from it.

use haypile_commands::compatibility::{self, RedisCommand};
use haypile_commands::table::{Begin, Find, Group, KeySpec};
use haypile_commands::{Access, Body, ElementArgs, Entry, Table, syntax};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Flags that Redis keeps in its table and does not show.
const HIDDEN_FLAGS: &[&str] = &["sentinel", "only_sentinel", "protected", "touches_arbitrary_keys"];

fn entries(table: &Table) -> impl Iterator<Item = &Entry> {
    table.iter().flat_map(|(_, entry)| std::iter::once(entry).chain(table.subcommands(entry)))
}

/// Where this package is: what cargo says now, because a build may be shared by several checkouts.
fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this").into()
}

fn redis_list() -> String {
    let path = package().join("tests/data/redis-commands.txt");
    std::fs::read_to_string(path).expect("the list of Redis's commands is in the repository")
}

fn redis_commands(list: &str) -> Vec<RedisCommand<'_>> {
    compatibility::redis_commands(list).unwrap_or_else(|line| panic!("not a command: {line:?}"))
}

#[test]
fn names_are_unique_and_in_lower_case() {
    let (table, mut seen) = (Table::new(), HashSet::new());
    for entry in entries(&table) {
        assert!(seen.insert(entry.full_name.clone()), "{} is there twice", entry.full_name);
        let name = entry.command.name;
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
        assert!(!name.is_empty() && name.chars().all(allowed), "{name}");
    }
}

#[test]
fn the_readme_names_no_command_that_is_not_there() {
    let page = std::fs::read_to_string(package().join("../../README.md")).expect("the page is there");
    let (_, section) = page.split_once("\n## What works\n").expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or(section);
    let (not_yet, works): (Vec<&str>, Vec<&str>) =
        section.lines().filter(|line| line.starts_with("| ")).partition(|line| line.starts_with("| not yet "));
    let words = |lines: &[&str]| -> HashSet<String> {
        let words = lines.iter().flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c)));
        words.filter(|word| !word.is_empty()).map(str::to_string).collect()
    };
    let (works, not_yet, table) = (words(&works), words(&not_yet), Table::new());
    for (_, entry) in table.iter() {
        let name = entry.command.name.to_uppercase();
        assert!(!not_yet.contains(&name), "{name} works, and README.md says: not yet");
    }
    let list = redis_list();
    for command in redis_commands(&list) {
        let name = command.name.to_uppercase();
        let is_there = table.find(name.as_bytes()).is_some();
        assert!(is_there || !works.contains(&name), "README.md says that {name} works");
    }
}

#[test]
fn every_entry_says_what_it_does() {
    for entry in entries(&Table::new()) {
        let command = entry.command;
        let text = |text: &str| !text.trim().is_empty() && text.trim() == text;
        assert!(text(command.summary) && command.summary.ends_with('.'), "{}: summary", entry.full_name);
        // The commands named here have no complexity in Redis.
        let complexity =
            text(command.complexity) || ["lolwut", "monitor", "psync", "sync"].contains(&&*entry.full_name);
        assert!(text(command.since) && complexity, "{}", entry.full_name);
        if let Err(error) = syntax::parse(command.syntax) {
            panic!("{}: {error}", entry.full_name);
        }
    }
}

#[test]
fn keys_are_inside_the_arity() {
    for entry in entries(&Table::new()) {
        let least = usize::from(entry.command.arity.least);
        for spec in entry.command.keys.of_keys() {
            if let Begin::Index(first) = spec.begin {
                // A run up to the last argument may be empty: PFMERGE of nothing.
                let may_be_empty = matches!(spec.find, Find::Range { last: ..0, .. });
                let end = if may_be_empty { least + 1 } else { least };
                assert!(first >= 1 && usize::from(first) < end, "{}", entry.full_name);
            }
            let (step, last) = match (spec.begin, spec.find) {
                (Begin::Index(first), Find::Range { last: last @ 0.., step, .. }) => {
                    (step, first as usize + last as usize)
                }
                (_, Find::Range { step, .. } | Find::KeyNum { step, .. }) => (step, 0),
            };
            assert!(step >= 1 && last < least, "{}", entry.full_name);
        }
    }
}

#[test]
fn only_writes_write_keys() {
    for entry in entries(&Table::new()) {
        let specs = entry.command.keys.of_keys();
        let (name, writes_some) = (&entry.full_name, specs.iter().any(KeySpec::writes));
        match entry.command.access {
            // In Redis it only reads its streams; what it writes are their groups.
            Access::Write if name == "xreadgroup" => {
                assert!(specs.iter().all(|spec| entry.command.changes(spec)), "it needs them for itself")
            }
            // In Redis it keeps its count in the value, which tools that read the table have to know.
            Access::Read if name == "pfcount" => {
                assert!(writes_some && !specs.iter().any(|spec| entry.command.changes(spec)))
            }
            Access::Write => assert!(writes_some, "{name}"),
            Access::Exclusive => assert!(specs.is_empty(), "{name}"),
            // WATCH names keys, which it neither reads nor writes.
            // A script may write keys or not: nobody knows before it runs.
            Access::None if matches!(entry.command.body, Body::Script(_)) => {}
            Access::None | Access::Read => assert!(!writes_some, "{name}"),
        }
    }
}

#[test]
fn a_command_has_access_to_rows_if_it_runs_over_them() {
    for entry in entries(&Table::new()) {
        let (command, name) = (entry.command, &entry.full_name);
        let is_over_rows = match command.body {
            Body::Txn(_) | Body::Wait(_) | Body::Migrate(_) => true,
            Body::Host(_) | Body::Act(_) | Body::Engine(_) | Body::Container => false,
            // A script decides by itself whether it touches rows.
            Body::Script(_) => continue,
        };
        assert_eq!(command.access != Access::None, is_over_rows, "{name}");
        assert!(!command.waits() || !entry.command.keys.of_keys().is_empty(), "{name} waits for its keys");
        let has_keys = !command.keys.of_keys().is_empty();
        assert!(!has_keys || is_over_rows || matches!(command.body, Body::Engine(_)), "{name}");
    }
}

#[test]
fn what_a_session_command_says_of_itself_is_what_redis_does() {
    let names = |says: fn(&Entry) -> bool| -> Vec<String> {
        entries(&Table::new()).filter(|entry| says(entry)).map(|entry| entry.full_name.clone()).collect()
    };
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names.join(" ")
    };
    let at_once = sorted(names(|entry| entry.command.runs_in_multi));
    assert_eq!(at_once, "discard exec multi quit reset watch");
    let while_bound = sorted(names(|entry| entry.command.runs_while_bound));
    let subscribing = "psubscribe punsubscribe ssubscribe subscribe sunsubscribe unsubscribe";
    let expected = "ping psubscribe punsubscribe quit reset ssubscribe subscribe sunsubscribe unsubscribe";
    assert_eq!(while_bound, expected);
    assert_eq!(sorted(names(|entry| entry.command.subscribes.is_some())), subscribing);
    assert_eq!(sorted(names(|entry| entry.command.selects.is_some())), "reset select");
}

/// Commands are told apart by the fields of their entries. A name is for clients: it is shown, never compared.
#[test]
fn no_command_is_told_by_its_name() {
    let mut sources = Vec::new();
    for folder in ["src", "../engine/src", "../server/src"] {
        rust_files(&package().join(folder), &mut sources);
    }
    // The table looks names up, the page of compatibility joins two lists by them, secrets are listed by them.
    let exempt = ["lookup.rs", "names.rs", "compatibility/mod.rs", "redact.rs"];
    for path in sources.iter().filter(|path| !exempt.iter().any(|name| path.ends_with(name))) {
        let text = std::fs::read_to_string(path).expect("the file is there");
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            let names = ["full_name", "command.name"].iter().any(|name| line.contains(name));
            let compares = ["match ", " == ", " != ", "matches!(", ".contains(", "starts_with", "ends_with"];
            // A pattern of the client's goes over all names.
            let is_pattern = line.contains("glob::matches(");
            let told = names && !is_pattern && compares.iter().any(|compare| line.contains(compare));
            assert!(!told, "{}:{}: a field of the entry says it better: {line}", path.display(), at + 1);
        }
    }
}

#[test]
fn a_container_holds_subcommands_of_its_group() {
    let table = Table::new();
    for (_, entry) in table.iter() {
        let subcommands = table.subcommands(entry);
        if matches!(entry.command.body, Body::Container) {
            assert!(!subcommands.is_empty(), "{} holds nothing", entry.full_name);
            assert!(!entry.command.arity.allows(1), "{} alone cannot run", entry.full_name);
        }
        for subcommand in subcommands {
            assert_eq!(subcommand.parent, Some(entry.id));
            assert_eq!(subcommand.command.group, entry.command.group, "{}", subcommand.full_name);
            assert!(subcommand.command.arity.least >= 2, "{}", subcommand.full_name);
            assert!(!matches!(subcommand.command.body, Body::Container), "{}", subcommand.full_name);
            assert!(subcommand.command.subcommands.is_empty(), "{}", subcommand.full_name);
        }
    }
}

#[test]
fn every_entry_is_a_command_of_redis_with_its_facts() {
    let list = redis_list();
    let newer = compatibility::newer_commands(&list).expect("the list parses");
    let commands: Vec<_> = redis_commands(&list).into_iter().chain(newer).collect();
    for entry in entries(&Table::new()) {
        let name = &entry.full_name;
        let redis = commands.iter().find(|command| command.name == name);
        let redis = redis.unwrap_or_else(|| panic!("{name} is not in tests/data/redis-commands.txt"));
        let command = entry.command;
        // COMMAND DOCS spells it with a hyphen.
        assert_eq!(command.group.name(), redis.group.replace('_', "-"), "{name}");
        assert_eq!(command.since, redis.since, "{name}");
        assert_eq!(command.arity.signed(), redis.arity, "{name}");
        assert_eq!(command.deprecated.map_or("", |deprecated| deprecated.since), redis.deprecated_since, "{name}");
        assert_eq!(!command.subcommands.is_empty(), redis.container, "{name}");
        let mut expected: Vec<&str> = redis.flags.iter().copied().filter(|flag| !HIDDEN_FLAGS.contains(flag)).collect();
        // Redis computes it from the keys, as we do; its table does not have it.
        let flags = entry.flags.iter().map(|flag| flag.name()).filter(|flag| *flag != "movablekeys");
        let mut flags: Vec<&str> = flags.collect();
        expected.sort_unstable();
        flags.sort_unstable();
        assert_eq!(flags, expected, "{name}");
    }
}

#[test]
fn groups_have_the_names_of_redis() {
    let list = redis_list();
    let names: HashSet<&str> = redis_commands(&list).iter().map(|command| command.group).collect();
    for group in [
        Group::String,
        Group::Geo,
        Group::Generic,
        Group::Connection,
        Group::Server,
        Group::Transactions,
        Group::Cluster,
    ] {
        assert!(names.contains(group.name()), "{}", group.name());
    }
}

#[test]
fn the_compatibility_page_is_current() {
    let path = package().join("../../docs/compatibility.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let expected = compatibility::page(&redis_commands(&redis_list()));
    assert!(page == expected, "run: make docs");
}

#[test]
fn every_difference_names_its_commands_and_a_test_that_exists() {
    let mut sources = Vec::new();
    rust_files(&package().join(".."), &mut sources);
    let table = Table::new();
    for difference in compatibility::differences() {
        for name in difference.commands {
            assert!(table.find_full(name.as_bytes()).is_some(), "no such command: {name}");
        }
        let found =
            sources.iter().any(|path| std::fs::read_to_string(path).is_ok_and(|text| has_test(&text, difference.test)));
        assert!(found, "no test is called {}", difference.test);
    }
}

/// Returns whether a source has a test of this name: a function below `#[test]` and perhaps other attributes.
fn has_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}()");
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    lines.iter().position(|line| line.starts_with(&head)).is_some_and(|at| {
        lines[..at].iter().rev().take_while(|line| line.starts_with("#[")).any(|line| *line == "#[test]")
    })
}

#[test]
fn a_function_that_is_no_test_is_not_taken_for_one() {
    assert!(has_test("mod tests {\n    #[test]\n    #[ignore]\n    fn is_one() {}\n}", "is_one"));
    assert!(!has_test("#[test]\nfn is_one() {}\n\nfn is_none() {}", "is_none"));
}

/// Every Rust file of the crates, build outputs left out.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the crates are there").flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn elements_that_are_fetched_ahead_stand_behind_one_key_of_a_collection() {
    let table = Table::new();
    let with_elements: Vec<(&Entry, ElementArgs)> =
        entries(&table).filter_map(|entry| Some((entry, entry.command.elements?))).collect();
    assert!(with_elements.len() >= 20, "the commands that name elements");
    for (entry, elements) in with_elements {
        let (name, least) = (&entry.full_name, usize::from(entry.command.arity.least));
        let group = entry.command.group;
        // The shortest call names one element.
        match elements {
            ElementArgs::Names { first, step } => {
                assert!(matches!(group, Group::Hash | Group::Set | Group::SortedSet | Group::Geo), "{name}");
                assert!(first >= 2 && (1..=3).contains(&step), "{name}");
                assert_eq!((least - first).div_ceil(step), 1, "{name}");
            }
            ElementArgs::Index(at) => {
                assert!(matches!(group, Group::List), "{name}");
                assert_eq!(entry.command.syntax.split(' ').nth(at - 1), Some("index"), "{name}");
            }
        }
        let (bytes, ranges) = (vec![b'1'; least], (0..least as u32).map(|at| at..at + 1).collect::<Vec<_>>());
        let args = haypile_resp::Args::new(&bytes, &ranges);
        let keys: Vec<usize> = entry.command.keys(args.into()).map(|(at, _)| at).collect();
        assert_eq!(keys, [1], "{name}");
    }
}
