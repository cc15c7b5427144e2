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
