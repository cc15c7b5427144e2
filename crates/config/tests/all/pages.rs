//! The files that go with the table: docs/configuration.md and haypile.conf.

use std::ffi::OsString;
use std::path::PathBuf;

use haypile_config::{CommandLine, docs, load, table, words};

/// Returns where this package is: by cargo's variable of this run, because a build may be shared by several checkouts.
fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this").into()
}

fn repository(path: &str) -> PathBuf {
    package().join("../..").join(path)
}

#[test]
fn docs_configuration_md_is_what_the_table_makes() {
    let written = std::fs::read_to_string(repository("docs/configuration.md")).unwrap_or_default();
    assert!(written == docs::page(), "run: make docs");
}

#[test]
fn the_sample_is_good_and_what_it_comments_out_is_the_default() {
    let path = repository("haypile.conf");
    let command_line = CommandLine::parse(&[OsString::from(&path)]);
    let loaded = load(&command_line, &mut std::io::empty()).expect("the sample can be used");
    assert!(loaded.notes.is_empty());
    let text = std::fs::read_to_string(path).unwrap();
    let mut defaults = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("# ")) {
        let words = words::split(line.as_bytes()).unwrap_or_default();
        let [name, value] = words.as_slice() else { continue };
        let found = table::find(name).unwrap_or_else(|| panic!("{line}"));
        let default = words::split(found.row.default.as_bytes()).unwrap();
        assert_eq!(default, std::slice::from_ref(value), "{line}");
        defaults += 1;
    }
    assert!(defaults > 8, "{defaults}");
}

/// Returns the rows of the tables of a page, each as its names in the first cell and the text of the second.
fn rows(page: &str) -> Vec<(Vec<&str>, &str)> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    rows.map(|(first, second)| (first.split('`').skip(1).step_by(2).collect(), second)).collect()
}

#[test]
fn docs_pika_md_says_what_takes_the_place_of_each_setting() {
    let page = std::fs::read_to_string(repository("docs/pika.md")).unwrap_or_default();
    let rows = rows(&page);
    for (name, instead) in table::pika::INSTEAD {
        let is_there = rows.iter().any(|(names, text)| names.contains(name) && text == instead);
        assert!(is_there, "| `{name}` | {instead} |");
    }
    for row in table::rows() {
        let Some(name) = row.of_pika else { continue };
        let is_there =
            rows.iter().any(|(names, text)| names == &[name] && text.starts_with(&format!("`{}`", row.name)));
        assert!(is_there, "| `{name}` | `{}` |", row.name);
    }
    // Each name that the page gives as a setting of Redis or of ours is one.
    for (_, text) in table::pika::INSTEAD {
        let named = text.split('`').skip(1).step_by(2).filter_map(|code| code.split(' ').next());
        for name in named.filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')) {
            let is_directive = table::find(name.as_bytes()).is_some() || table::statement(name.as_bytes()).is_some();
            assert!(is_directive || ["backups", "ulimit"].contains(&name), "{name} is no directive");
        }
    }
}
