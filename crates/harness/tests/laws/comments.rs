//! A comment fits its line and names its subject: who reads it has not read the one before.

use crate::source::{comments, crates, files, names};
use std::fs;
use std::path::{Path, PathBuf};

/// The most columns of a line with a comment, as rustfmt has it for code.
const COLUMNS_MAX: usize = 120;

/// Openings of a doc comment that name no subject, or lean on a neighbour that may move.
const VAGUE: &[&str] = &[
    "What",
    "The same",
    "Of those",
    "Who",
    "It",
    "They",
    "Those",
    "This",
    "That",
    "These",
    "Its",
    "Their",
    "As",
    "Also",
    "There",
    "Whose",
    "Another",
    "Other",
    "Others",
    "Both",
    "Not",
    "Only",
    "Same",
    "Anything else",
    "Something else",
    "Held",
    "Whether it",
    "Whether they",
    "When it",
    "Where it",
    "Why it",
    "How it",
    "How often it",
    "By",
    "Since",
    "So",
    "Told",
    "With",
    "Fewer of them",
];

/// Openings of a comment inside of code that name no subject.
const VAGUE_IN_CODE: &[&str] = &["It", "They", "What", "This", "That", "Those", "These", "Its"];

/// Returns the lines of a file at which a comment begins with a vague opening.
fn vague(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut before = (0, false);
    for (line, comment) in comments(text) {
        let doc = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"));
        let Some(prose) = doc.or_else(|| comment.strip_prefix("//")) else { continue };
        let openings = if doc.is_some() { VAGUE } else { VAGUE_IN_CODE };
        if before != (line - 1, doc.is_some()) && begins_with(prose.trim_start(), openings) {
            found.push(line);
        }
        before = (line, doc.is_some());
    }
    found
}

/// Returns whether a text begins with one of these openings, and the last word of it ends there.
fn begins_with(prose: &str, openings: &[&str]) -> bool {
    let is_end =
        |rest: &str| !rest.starts_with(|letter: char| letter.is_alphanumeric() || matches!(letter, '\'' | '-'));
    openings.iter().any(|opening| prose.strip_prefix(opening).is_some_and(is_end))
}

/// Returns the lines of a file that are too wide and hold a comment.
fn wide(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let is_wide = |line: &str| line.chars().count() > COLUMNS_MAX;
    let spans = comments(text).into_iter().flat_map(|(line, comment)| line..line + comment.lines().count());
    spans.filter(|line| is_wide(lines[line - 1])).collect()
}

/// Returns the lines of a file that are too wide and hold a comment behind `#`: of a manifest, a script, the Makefile
/// or a configuration.
fn wide_behind_hash(text: &str) -> Vec<usize> {
    let is_comment = |line: &str| line.trim_start().starts_with('#') || line.contains(" ## ");
    let is_wide = |line: &str| is_comment(line) && line.chars().count() > COLUMNS_MAX;
    text.lines().enumerate().filter(|(_, line)| is_wide(line)).map(|(at, _)| at + 1).collect()
}

/// The files outside of crates that have comments of their own, and the manifests of crates: all that lies right below
/// these folders, and of the others their manifests.
fn files_with_hashes() -> Vec<PathBuf> {
    let root = crates().parent().expect("the crates lie in the repository").to_owned();
    let mut found: Vec<PathBuf> = ["Makefile", "haypile.conf", "Cargo.toml"].map(|name| root.join(name)).into();
    for folder in ["scripts", "deploy", "deploy/raft"] {
        found.extend(entries(&root.join(folder)).into_iter().filter(|path| path.is_file()));
    }
    for folder in ["crates", "fuzz"] {
        found.extend(
            entries(&root.join(folder)).iter().map(|path| path.join("Cargo.toml")).filter(|path| path.is_file()),
        );
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort();
    paths
}

/// Fails if `find` finds a breach in the text of any crate's file.
fn check(find: fn(&str) -> Vec<usize>, advice: &str) {
    let mut found = Vec::new();
    for name in names() {
        let root = crates().join(&name);
        for path in files(&root) {
            let text = fs::read_to_string(&path).expect("sources are text");
            let path = path.strip_prefix(&root).expect("it was found below").display();
            found.extend(find(&text).into_iter().map(|line| format!("{name}/{path}:{line}")));
        }
    }
    assert!(found.is_empty(), "{advice}\n{}", found.join("\n"));
}

#[test]
fn a_comment_begins_with_its_subject() {
    check(vague, "name the subject and a verb (\"Returns\", \"The options of SCAN\"):");
}

#[test]
fn a_comment_fits_its_line() {
    check(wide, "break the line before column 120:");
}

#[test]
fn a_comment_outside_of_crates_fits_its_line() {
    let root = crates().parent().expect("the crates lie in the repository").to_owned();
    let targets = files(&root.join("fuzz"));
    let others = files_with_hashes();
    assert!(targets.len() > 10 && others.len() > 40, "the files are found: {}, {}", targets.len(), others.len());
    let mut found = Vec::new();
    let finds: [(_, fn(&str) -> Vec<usize>); 2] = [(targets, wide), (others, wide_behind_hash)];
    for (paths, find) in finds {
        for path in paths {
            let text = fs::read_to_string(&path).expect("they are texts");
            let path = path.strip_prefix(&root).expect("it was found below").display();
            found.extend(find(&text).into_iter().map(|line| format!("{path}:{line}")));
        }
    }
    assert!(found.is_empty(), "break the line before column 120:\n{}", found.join("\n"));
}

#[test]
fn only_comments_behind_hashes_are_measured() {
    let long = "x".repeat(COLUMNS_MAX);
    let text = format!("# {long}\nrun {long}\n    # {long}\nmade: of ## {long}\necho \"# {long}\"\n");
    assert_eq!(wide_behind_hash(&text), [1, 3, 4]);
}

#[test]
fn openings_are_told_from_words_that_begin_like_them() {
    let text = "//! It is.\n\n/// Items.\n/// What follows a beginning.\nfn f() {}\n/// What.\n/// Who.\nfn g() {}\n// They.\n\
                let x = \"\n/// Those\n\";\n/// \"What\" is quoted.\n/// Whoever.\n\n    ///  The same, indented.\n\
                fn h() {} // This.\n// That follows.\n/// As.\nfn i() {\n    // As in Redis.\n    // It follows.\n}\n";
    assert_eq!(vague(text), [1, 6, 9, 16, 17, 19]);
}

#[test]
fn an_opening_may_have_two_words() {
    let text = "/// Whether it leads.\nfn f() {}\n/// Whether items lead.\nfn g() {}\n/// Only here.\nfn h() {}\n\
                /// Otherwise.\nfn i() {}\n// Whether it leads.\n/// How often it\n/// came.\nfn j() {}\n";
    assert_eq!(vague(text), [1, 5, 10]);
}

#[test]
fn only_comments_are_measured() {
    let long = "x".repeat(COLUMNS_MAX);
    let text =
        format!("// {long}\nlet x = \"// {long}\";\nf(); // {long}\n/* a\n{long}x\n{long} */ // {}\n", "ä".repeat(99));
    assert_eq!(wide(&text), [1, 3, 5, 6, 6]);
}
