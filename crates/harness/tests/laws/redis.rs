//! The log and the store speak no Redis: what a client reads, how commands are called and how Redis would hold a value
//! is known to the crates above.

use crate::source::{Source, is_word, sources};

/// The crates that know nothing of Redis.
const CRATES: [&str; 2] = ["log", "store"];

/// Encodings of Redis and parts of their names, in lower case.
const ENCODINGS: [&str; 11] = [
    "listpack",
    "ziplist",
    "quicklist",
    "intset",
    "skiplist",
    "hashtable",
    "embstr",
    "hyperloglog",
    "encoding",
    "plain_string",
    "plainstring",
];

/// Returns a text's words of capitals: names of commands, and the codes of errors. Leaves out what a format puts in.
fn shouted(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let length = text.as_bytes()[at..].iter().take_while(|byte| is_word(**byte)).count();
        let word = &text.as_bytes()[at..at + length];
        match text.as_bytes()[at] {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ if depth == 0 && length > 1 && word.iter().all(u8::is_ascii_uppercase) => {
                found.push(&text[at..at + length]);
            }
            _ => {}
        }
        at += length.max(1);
    }
    found
}

/// Returns the encodings that code or a text names.
fn encodings(code: &str) -> Vec<&'static str> {
    // A table of hashes is a type of the language's, too.
    let code = code.replace("HashTable", "").to_lowercase();
    ENCODINGS.into_iter().filter(|name| code.contains(name)).collect()
}

/// Returns the places at which `find` finds something in a line of code or in a text.
fn places<T: std::fmt::Debug>(find: fn(&str) -> Vec<T>, is_code_read: bool) -> Vec<String> {
    let mut places = Vec::new();
    for name in CRATES {
        for Source { path, code, texts } in sources(name) {
            let lines = code.lines().zip(1..).map(|(code, line)| (line, code)).filter(|_| is_code_read);
            let texts = texts.iter().map(|(line, text)| (*line, text.as_str()));
            for (line, text) in lines.chain(texts) {
                places.extend(find(text).into_iter().map(|found| format!("{name}/src/{path}:{line}: {found:?}")));
            }
        }
    }
    places
}

#[test]
fn no_text_of_the_store_is_a_clients() {
    let places = places(|text| shouted(text).into_iter().map(str::to_owned).collect(), false);
    assert!(
        places.is_empty(),
        "codes of errors and names of commands belong to `commands`: return a cause (`Refusal`), and word it in \
         `commands::error`:\n{}",
        places.join("\n")
    );
}

#[test]
fn the_store_names_no_encoding() {
    let places = places(encodings, true);
    assert!(
        places.is_empty(),
        "tags and encodings belong to `types`, their limits to `types::limits`:\n{}",
        places.join("\n")
    );
}

#[test]
fn words_of_capitals_are_told_from_others() {
    assert_eq!(shouted("MISCONF Haypile cannot write: {why}. {ADVICE}"), ["MISCONF"]);
    assert_eq!(shouted("after FLUSHALL, -OOM: I/O of `SET`"), ["FLUSHALL", "OOM", "SET"]);
    assert_eq!(shouted("GETs of A_B and U64, {:?}"), [""; 0]);
    assert_eq!(encodings("fn ListPack() -> \"embstr\""), ["listpack", "embstr"]);
}

#[test]
fn the_texts_of_the_store_are_read() {
    let texts: Vec<String> =
        sources("store").into_iter().flat_map(|source| source.texts).map(|(_, text)| text).collect();
    assert!(texts.iter().any(|text| text.contains("the disk is too far behind")), "that of a refusal");
    assert!(!texts.iter().any(|text| text.contains("abXYc")), "tests are left out");
}
