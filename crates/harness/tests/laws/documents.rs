//! The pages about the code name only code and files that are there, and their lines are not too long to read.

use crate::source::{crates, files, is_word, names};
use std::fs;
use std::path::{Path, PathBuf};

/// The most columns of a line in a design page, tables left out.
const COLUMNS_MAX: usize = 140;

/// A page's path from the root of the repository, and its text.
struct Page {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    crates().parent().expect("the crates are in the repository").to_owned()
}

/// Returns ARCHITECTURE.md and the pages of docs/design, sorted.
fn pages() -> Vec<Page> {
    let design = fs::read_dir(root().join("docs/design")).expect("the pages are there");
    let design = design.map(|entry| entry.expect("it can be read").file_name().into_string().expect("names are text"));
    let mut paths: Vec<String> = design.map(|name| format!("docs/design/{name}")).collect();
    paths.push("ARCHITECTURE.md".to_owned());
    paths.sort();
    let read = |path: String| Page { text: fs::read_to_string(root().join(&path)).expect("pages are text"), path };
    paths.into_iter().map(read).collect()
}

/// Returns the parts of a page between back quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|quoted| !quoted.contains(char::is_whitespace))
}

/// Whether a path like `store::apply::staged` leads to a module, or to a word in the module that its beginning names.
/// Paths of other crates lead nowhere, and pass.
fn leads_somewhere(path: &str) -> bool {
    let mut parts = path.split("::");
    let name = parts.next().unwrap_or_default().replace('_', "-");
    if !names().contains(&name) {
        return true;
    }
    let mut module = crates().join(name).join("src");
    for part in parts {
        match [module.join(part), module.join(format!("{part}.rs"))].into_iter().find(|path| path.exists()) {
            Some(child) => module = child.with_extension(""),
            None => return has_word(&module, part),
        }
    }
    true
}

/// Whether a module's files, or those of its children, have a word.
fn has_word(module: &Path, word: &str) -> bool {
    let mut paths = if module.is_dir() { files(module) } else { Vec::new() };
    paths.push(module.with_extension("rs"));
    paths.iter().filter_map(|path| fs::read_to_string(path).ok()).any(|text| {
        let is_whole = |at: usize| {
            let around = [at.checked_sub(1), Some(at + word.len())];
            around.into_iter().flatten().all(|at| text.as_bytes().get(at).is_none_or(|&byte| !is_word(byte)))
        };
        text.match_indices(word).any(|(at, _)| is_whole(at))
    })
}

/// Returns the files that a page links to, relative to its folder.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.contains("://")).map(|target| target.split('#').next().unwrap_or(target))
}

#[test]
fn pages_name_code_that_is_there() {
    let mut wrong = Vec::new();
    for Page { path, text } in pages() {
        for name in quoted(&text) {
            let is_there = match name {
                _ if name.contains("::") => leads_somewhere(name),
                _ if name.ends_with(".rs") => {
                    crates().join(name).exists() || crates().join("engine/src").join(name).exists()
                }
                _ => true,
            };
            if !is_there {
                wrong.push(format!("{path}: {name}"));
            }
        }
        let folder = root().join(&path);
        let folder = folder.parent().expect("a page is in a folder");
        wrong.extend(links(&text).filter(|link| !folder.join(link).exists()).map(|link| format!("{path}: {link}")));
    }
    assert!(wrong.is_empty(), "name what took its place:\n{}", wrong.join("\n"));
}

#[test]
fn lines_of_pages_can_be_read() {
    let mut wrong = Vec::new();
    for Page { path, text } in pages() {
        let is_wide = |line: &str| !line.starts_with('|') && line.chars().count() > COLUMNS_MAX;
        let wide = text.lines().enumerate().filter(|(_, line)| is_wide(line));
        wrong.extend(wide.map(|(at, _)| format!("{path}:{}", at + 1)));
    }
    assert!(wrong.is_empty(), "break the line before column {COLUMNS_MAX}:\n{}", wrong.join("\n"));
}

#[test]
fn names_are_looked_up() {
    for path in ["store", "store::apply::staged", "store::Call", "store_rocks::removal", "std::nothing"] {
        assert!(leads_somewhere(path), "{path}");
    }
    for path in ["store::nothing_like_it", "store::apply::nothing_like_it", "types::stag"] {
        assert!(!leads_somewhere(path), "{path}");
    }
    assert_eq!(quoted("a `b::c` and `d e` or `f`.").collect::<Vec<_>>(), ["b::c", "f"]);
    assert_eq!(links("[a](b.md#c), [d](https://e) and [f](g/)").collect::<Vec<_>>(), ["b.md", "g/"]);
}
