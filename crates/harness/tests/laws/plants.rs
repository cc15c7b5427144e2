//! The bugs that `scripts/plants` plants fit the code as it is.

use crate::source::{crates, names};
use std::fs::read_to_string;

/// The lines of a file that a patch changes, one list for each place, as they are before.
fn places(patch: &str) -> Vec<(String, Vec<String>)> {
    let (mut file, mut places) = (String::new(), Vec::new());
    for line in patch.lines() {
        match (line.strip_prefix("--- a/"), line.get(..1), line.get(1..)) {
            (Some(path), ..) => file = path.to_owned(),
            _ if line.starts_with("@@") => places.push((file.clone(), Vec::new())),
            (_, Some(" " | "-"), Some(text)) => {
                if let Some((_, lines)) = places.last_mut() {
                    lines.push(text.to_owned());
                }
            }
            _ => {}
        }
    }
    places
}

fn has(text: &str, wanted: &[String]) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    lines.windows(wanted.len().max(1)).any(|window| window == wanted)
}

#[test]
fn each_planted_bug_fits_the_code() {
    let root = crates().parent().unwrap().to_owned();
    let of_crate = |name: &String| std::fs::read_dir(crates().join(name).join("tests/simulation/plants")).ok();
    let plants = names().iter().filter_map(of_crate).flatten().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut count = 0;
    for path in plants {
        let found = places(&read_to_string(&path).unwrap());
        assert!(!found.is_empty(), "{} changes nothing", path.display());
        for (file, lines) in found {
            let text = read_to_string(root.join(&file)).unwrap();
            assert!(has(&text, &lines), "{} does not fit {file}: make it anew", path.display());
        }
        count += 1;
    }
    assert!(count >= 35, "{count} bugs");
}

#[test]
fn a_patch_that_does_not_fit_is_noticed() {
    let found = places("--- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n");
    assert_eq!(found, [("x.rs".to_owned(), vec!["one".to_owned(), "two".to_owned()])]);
    assert!(has("zero\none\ntwo\n", &found[0].1));
    assert!(!has("one\nzero\ntwo\n", &found[0].1));
}
