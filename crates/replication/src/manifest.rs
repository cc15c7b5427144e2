//! The manifest of a copy: which files a replica fetches to have its master's data as of one moment.
//!
//! A copy is a data directory, of a backup's form. The manifest is text, a line for each fact and each file, so that it
//! can be read by people. A replica writes to the paths that a master names: they are checked, not trusted.

use haypile_log::Index;
use std::collections::HashSet;
use std::fmt;

/// The first line.
const TITLE: &str = "haypile copy 1";

/// The most files of a copy: those of some hundred terabytes.
const FILES_MAX: usize = 1 << 20;

/// The directories that a copy has files in.
const DIRECTORIES: [&str; 2] = ["base", "log"];

/// The files that a copy has beside its directories.
const SINGLE_FILES: [&str; 1] = ["HAYPILE"];

const NAME_BYTES_MAX: usize = 64;

/// A copy's name, and its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// A random name: who has it may fetch the files, also over other connections and after a break.
    pub token: Token,
    /// The name of the data directory that the copy is of: in two copies of one, tables of the base with one name are
    /// one.
    pub source: Token,
    /// The last record in the copy.
    pub index: Index,
    pub files: Vec<FileEntry>,
}

/// The name of a copy, or of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

/// A file of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// A name, or a directory and a name, with a slash between.
    pub path: String,
    pub bytes: u64,
}

/// The reason why a text is no manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    /// The number of the line, counted from 1.
    pub line: usize,
    pub what: &'static str,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of a copy's list of files: {}", self.line, self.what)
    }
}

impl std::error::Error for ManifestError {}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Token {
    /// Parses 32 hex digits in lower case.
    pub fn parse(text: &str) -> Option<Token> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_hex) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|number| Token(number.to_be_bytes()))
    }
}

impl FileEntry {
    /// Returns whether the file never changes once it has its name: a table of the base.
    pub fn is_table(&self) -> bool {
        self.path.strip_prefix("base/").is_some_and(|name| name.ends_with(".sst") || name.ends_with(".blob"))
    }
}

impl Manifest {
    /// Returns the bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the manifest as text.
    ///
    /// # Panics
    /// A file has a path that a replica would refuse.
    pub fn encode(&self) -> String {
        let mut text = format!("{TITLE}\ntoken {}\nsource {}\nindex {}\n", self.token, self.source, self.index);
        for FileEntry { path, bytes } in &self.files {
            assert!(is_path(path), "no copy has a file {path}");
            text.push_str(&format!("file {bytes} {path}\n"));
        }
        text
    }

    /// Parses the text of a manifest.
    ///
    /// # Errors
    /// The text is not one that `encode` makes.
    pub fn decode(text: &[u8]) -> Result<Manifest, ManifestError> {
        let fails = |line: usize, what| ManifestError { line, what };
        let text = std::str::from_utf8(text).map_err(|_| fails(1, "it is no text"))?;
        let text = text.strip_suffix('\n').ok_or(fails(1, "the last line has no end"))?;
        let mut lines = text.split('\n').zip(1..);
        let mut fact = |name: &str, what| {
            let (line, number) = lines.next().unwrap_or_default();
            line.strip_prefix(name).ok_or(fails(number, what)).map(|rest| (rest, number))
        };
        if !fact(TITLE, "it is none of this version")?.0.is_empty() {
            return Err(fails(1, "it is none of this version"));
        }
        let (token, line) = fact("token ", "the token is missing")?;
        let token = Token::parse(token).ok_or(fails(line, "the token has 32 hex digits"))?;
        let (source, line) = fact("source ", "the source is missing")?;
        let source = Token::parse(source).ok_or(fails(line, "the source has 32 hex digits"))?;
        let (index, line) = fact("index ", "the index is missing")?;
        let index = number(index).map(Index).ok_or(fails(line, "the index is a number"))?;
        let (mut files, mut seen, mut total) = (Vec::new(), HashSet::new(), 0_u64);
        for (line, at) in lines {
            let entry = line.strip_prefix("file ").and_then(|rest| rest.split_once(' '));
            let (bytes, path) = entry.ok_or(fails(at, "a line names no file"))?;
            let bytes = number(bytes).ok_or(fails(at, "a length is a number"))?;
            total = total.checked_add(bytes).ok_or(fails(at, "the files are too long"))?;
            if !is_path(path) || !seen.insert(path) {
                return Err(fails(at, "the path is none of a copy's, or stands twice"));
            }
            if files.len() == FILES_MAX {
                return Err(fails(at, "there are too many files"));
            }
            files.push(FileEntry { path: path.to_owned(), bytes });
        }
        Ok(Manifest { token, source, index, files })
    }
}

/// Parses a number as it is written: without a sign and leading zeros.
fn number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Tells whether a copy may have a file with this path.
pub fn is_path(path: &str) -> bool {
    match path.split_once('/') {
        Some((directory, name)) => DIRECTORIES.contains(&directory) && is_name(name),
        None => SINGLE_FILES.contains(&path),
    }
}

fn is_name(name: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let files = [("HAYPILE", 90), ("base/000012.sst", 1 << 40), ("base/CURRENT", 16), ("log/00000001.log", 0)];
        let files = files.map(|(path, bytes)| FileEntry { path: path.into(), bytes }).to_vec();
        Manifest { token: Token([0xa7; 16]), source: Token([0xb3; 16]), index: Index(42), files }
    }

    #[test]
    fn a_manifest_reads_back() {
        let text = manifest().encode();
        assert_eq!(Manifest::decode(text.as_bytes()), Ok(manifest()));
        assert!(text.starts_with("haypile copy 1\ntoken a7a7a7a7"), "{text}");
        assert_eq!(manifest().bytes(), (1 << 40) + 106);
        for cut in 0..text.len() {
            let cut_text = &text[..cut];
            // At the end of a line there are less files.
            let decoded = Manifest::decode(cut_text.as_bytes());
            let is_shorter = cut_text.ends_with('\n') && cut_text.lines().count() >= 4;
            assert_eq!(decoded.is_ok(), is_shorter, "{cut_text:?}");
        }
    }

    #[test]
    fn paths_stay_inside() {
        for path in [
            "",
            "/",
            "base",
            "base/",
            "/etc/passwd",
            "base/../x",
            "base/..",
            "base/.hidden",
            "base/a/b",
            "../base/x",
            "other/x",
            "haypile.lock",
            "base/a b",
            "base/a\\b",
            "base/ä",
        ] {
            assert!(!is_path(path), "{path}");
        }
        assert!(!is_path(&format!("base/{}", "x".repeat(NAME_BYTES_MAX + 1))));
        assert!(["HAYPILE", "base/OPTIONS-000007", "log/a"].iter().all(|path| is_path(path)));
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_its_line() {
        let text = manifest().encode();
        for (from, to, line) in [
            ("copy 1", "copy 2", 1),
            ("token a7", "token A7", 2),
            ("source b3", "source ", 3),
            ("index 42", "index 042", 4),
            ("index 42", "index -1", 4),
            ("file 90", "file +90", 5),
            ("file 90 HAYPILE", "file 90 haypile.lock", 5),
            ("file 16 base/CURRENT", "file 16 base/000012.sst", 7),
            ("file 16", "file 18446744073709551615", 7),
            ("file 0 ", "", 8),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, text);
            assert_eq!(Manifest::decode(changed.as_bytes()).map_err(|error| error.line), Err(line), "{to}");
        }
        assert_eq!(Manifest::decode(&[0xff, b'\n']).map_err(|error| error.line), Err(1));
    }
}
