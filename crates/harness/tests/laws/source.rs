//! The source files of all crates, as the laws look at them: code without comments, texts and tests, or the comments
//! alone.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One file below a crate's `src`.
pub struct Source {
    /// Relative to `src`, with `/` between folders.
    pub path: String,
    /// The code; every line is where it was, comments, texts and tests are blank.
    pub code: String,
    /// The texts with their lines, counted from 1, in order; those of tests are left out.
    pub texts: Vec<(usize, String)>,
}

/// The folder of all crates.
pub fn crates() -> PathBuf {
    let here: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this").into();
    here.parent().expect("the harness is one of the crates").to_owned()
}

/// The names of all crates, sorted.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(crates()).expect("the crates are there");
    let names = entries.map(|entry| entry.expect("it can be read").file_name().into_string().expect("names are text"));
    let mut names: Vec<String> = names.filter(|name| crates().join(name).join("src").is_dir()).collect();
    names.sort();
    names
}

/// The files of a crate's `src`, tests excluded.
pub fn sources(name: &str) -> Vec<Source> {
    let root = crates().join(name).join("src");
    let found: Vec<_> = files(&root).iter().map(|path| read(&root, path)).collect();
    let tests: Vec<String> = found.iter().flat_map(|(_, tests)| tests.clone()).collect();
    let is_test =
        |path: &str| tests.iter().any(|test| path == format!("{test}.rs") || path.starts_with(&format!("{test}/")));
    let mut sources: Vec<Source> = found.into_iter().map(|(source, _)| source).collect();
    sources.retain(|source| !is_test(&source.path));
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    sources
}

/// Returns the paths of all source files below a folder, sorted.
pub fn files(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The file, and the paths without ending of the modules that it declares for tests only.
fn read(root: &Path, path: &Path) -> (Source, Vec<String>) {
    let relative = path.strip_prefix(root).expect("it was found below").to_str().expect("names are text");
    let text = fs::read_to_string(path).expect("sources are text");
    let code = without_texts(&text);
    let (tests, files) = tests(&code);
    let mut texts = Vec::new();
    for (kind, range) in prose(&text) {
        if matches!(kind, Prose::Literal) && !tests.iter().any(|test| test.contains(&range.start)) {
            texts.push((1 + text[..range.start].matches('\n').count(), text[range].to_owned()));
        }
    }
    let folder = folder_of_children(relative);
    let files = files.into_iter().map(|name| if folder.is_empty() { name } else { format!("{folder}/{name}") });
    (Source { path: relative.to_owned(), code: blanked(&code, tests), texts }, files.collect())
}

/// Where the files of a file's child modules are, relative to `src`.
pub fn folder_of_children(path: &str) -> String {
    let stem = path.strip_suffix(".rs").expect("sources end so");
    match stem.rsplit_once('/') {
        Some((folder, "mod")) => folder.to_owned(),
        None if matches!(stem, "lib" | "main") => String::new(),
        _ => stem.to_owned(),
    }
}

/// A part of a source file that is no code.
enum Prose {
    Comment,
    /// A text or a character.
    Literal,
}

/// Blanks comments and the insides of texts and characters.
pub fn without_texts(text: &str) -> String {
    blanked(text, prose(text).into_iter().map(|(_, range)| range))
}

/// Blanks parts of a file; its lines stay where they were.
fn blanked(text: &str, parts: impl IntoIterator<Item = Range<usize>>) -> String {
    let mut code = text.as_bytes().to_vec();
    for range in parts {
        code[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    String::from_utf8(code).expect("whole characters are blanked")
}

/// Returns a file's comments with their lines, counted from 1, in order. A `//` inside a text is none.
pub fn comments(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut line, mut counted) = (1, 0);
    for (kind, range) in prose(text) {
        line += text[counted..range.start].matches('\n').count();
        counted = range.start;
        if matches!(kind, Prose::Comment) {
            found.push((line, &text[range]));
        }
    }
    found
}

/// Finds the comments, texts and characters of a file, in order.
fn prose(text: &str) -> Vec<(Prose, Range<usize>)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (kind, end) = if rest.starts_with(b"//") {
            (Prose::Comment, at + rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len()))
        } else if rest.starts_with(b"/*") {
            (Prose::Comment, at + text[at..].find("*/").map_or(rest.len(), |length| length + 2))
        } else if let Some(hashes) = raw_hashes(rest).filter(|_| at == 0 || !is_word(bytes[at - 1])) {
            let close = format!("\"{}", "#".repeat(hashes));
            let open = text[at..].find('"').map_or(rest.len(), |length| length + 1);
            (Prose::Literal, at + open + text[at + open..].find(&close).map_or(0, |length| length + close.len()))
        } else if rest[0] == b'"' {
            (Prose::Literal, at + end_of_text(rest, b'"'))
        } else if rest[0] == b'\'' && is_character(&text[at..]) {
            (Prose::Literal, at + end_of_text(rest, b'\''))
        } else {
            at += 1;
            continue;
        };
        found.push((kind, at..end));
        at = end;
    }
    found
}

/// How many `#` a raw text begins with, if one begins here.
fn raw_hashes(rest: &[u8]) -> Option<usize> {
    let rest = rest.strip_prefix(b"b").unwrap_or(rest).strip_prefix(b"r")?;
    let hashes = rest.iter().take_while(|&&byte| byte == b'#').count();
    (rest.get(hashes) == Some(&b'"')).then_some(hashes)
}

/// Whether a quotation mark begins a character, and not a lifetime.
fn is_character(rest: &str) -> bool {
    let mut characters = rest.chars().skip(1);
    characters.next() == Some('\\') || characters.next() == Some('\'')
}

fn end_of_text(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Finds the items that are compiled for tests only, and names those modules among them that are files.
fn tests(code: &str) -> (Vec<Range<usize>>, Vec<String>) {
    let (mut items, mut files) = (Vec::new(), Vec::new());
    for (at, _) in code.match_indices("#[cfg(") {
        let attribute = code[at..].lines().next().unwrap_or_default();
        if !attribute.starts_with("#[cfg(test") && !attribute.starts_with("#[cfg(all(test") {
            continue;
        }
        let item = at + attribute.len();
        let opens = code[item..].find(['{', ';']).map_or(code.len(), |length| item + length);
        let end = if code.as_bytes().get(opens) == Some(&b'{') { closing(code, opens) + 1 } else { opens + 1 };
        let words: Vec<&str> = code[item..opens].split_whitespace().collect();
        if let [.., "mod", name] = words[..]
            && code.as_bytes().get(opens) == Some(&b';')
        {
            files.push(name.to_owned());
        }
        items.push(at..end.min(code.len()));
    }
    (items, files)
}

/// Where the brace that opens at `opens` is closed.
pub fn closing(code: &str, opens: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(opens) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len()
}

#[test]
fn what_is_no_code_is_blank() {
    let text = "use a; // use b;\nlet x = \"crate::c \\\" {\"; let y: &'a str = r#\"use d \"\"#; let z = '{';\n";
    let code = without_texts(text);
    assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), "use a; let x = ; let y: &'a str = ; let z = ;");
    let code = "mod a;\n#[cfg(test)]\nmod tests { fn b() {} }\n#[cfg(all(test, unix))]\nmod c;\nfn d() {}";
    let (tests, files) = tests(code);
    let code = blanked(code, tests);
    assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), "mod a; fn d() {}");
    assert_eq!(files, ["c"]);
}
