//! No function has more than 80 lines, in tests and examples neither: it is one story, and a screen shows it.

use crate::source::{closing, crates, files, is_word, names, sources, without_texts};
use std::fs::read_to_string;

/// The most lines of a function, its signature included.
const LINES_MAX: usize = 80;

/// The most lines of `data`, through which nearly every command goes: it is read more often than any other.
const DATA_LINES_MAX: usize = 50;

/// The name and the lines of each function of some code that has a body.
fn functions(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if at > 0 && is_word(code.as_bytes()[at - 1]) {
            continue;
        }
        let name: String =
            code[at + 3..].chars().take_while(|&letter| letter.is_alphanumeric() || letter == '_').collect();
        // A type or a declaration has a semicolon, a comma or a bracket where a function has its body.
        let Some(opens) = body(code, at + 3 + name.len()).filter(|_| !name.is_empty()) else { continue };
        let lines = code[at..closing(code, opens)].matches('\n').count() + 1;
        found.push((name, lines));
    }
    found
}

/// Where the body of a function begins, whose name ends at `at`.
fn body(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

#[test]
fn no_function_has_more_than_80_lines() {
    let mut wrong = Vec::new();
    for name in names() {
        for path in files(&crates().join(name)) {
            let code = without_texts(&read_to_string(&path).expect("sources are text"));
            for (function, lines) in functions(&code) {
                if lines > LINES_MAX {
                    wrong.push(format!("{}: {function} has {lines} lines of {LINES_MAX}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "cut it where its story turns:\n{}", wrong.join("\n"));
}

#[test]
fn the_way_of_most_commands_is_short() {
    let engine = sources("engine");
    let short = engine.iter().find(|source| source.path == "run/short.rs").expect("the short way");
    let (_, lines) = functions(&short.code).into_iter().find(|(function, _)| function == "data").expect("its story");
    assert!(lines <= DATA_LINES_MAX, "data has {lines} lines of {DATA_LINES_MAX}");
}

#[test]
fn functions_are_told_from_types() {
    let code = "type A = fn (u8) -> u8;\nfn one<T>(x: [u8; 3]) -> T\nwhere\n    T: Fn(u8) -> u8,\n{\n    let f = fn_two();\n}\nfn two();\n";
    assert_eq!(functions(code), [("one".to_owned(), 6)]);
}
