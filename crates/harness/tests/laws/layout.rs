//! A module that has children is the `mod.rs` of their folder, and a program does not keep where it was compiled.

use crate::source::{crates, files};
use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Returns the source files that lie beside the folder of their children, given all source files.
fn beside_their_folder(files: &[PathBuf]) -> Vec<&Path> {
    let folders: BTreeSet<&Path> = files.iter().flat_map(|file| file.ancestors().skip(1)).collect();
    files.iter().map(PathBuf::as_path).filter(|file| folders.contains(file.with_extension("").as_path())).collect()
}

#[test]
fn a_module_with_children_is_the_mod_of_their_folder() {
    let all = files(&crates());
    let wrong = beside_their_folder(&all);
    assert!(wrong.is_empty(), "`git mv foo.rs foo/mod.rs`: {wrong:?}");
}

#[test]
fn no_program_keeps_the_checkout_that_it_was_compiled_in() {
    let kept = concat!("env!(\"CARGO_MANIFEST_", "DIR\")");
    let wrong: Vec<_> =
        files(&crates()).into_iter().filter(|file| read_to_string(file).unwrap().contains(kept)).collect();
    assert!(wrong.is_empty(), "a build may be shared by several checkouts, so ask std::env::var_os: {wrong:?}");
}

#[test]
fn a_file_beside_the_folder_of_its_children_is_found() {
    let files = ["src/a/b/c.rs", "src/a.rs", "src/d/mod.rs", "src/d/e.rs", "src/f.rs"].map(PathBuf::from);
    assert_eq!(beside_their_folder(&files), [Path::new("src/a.rs")]);
}
