//! The manifest of a backup: which files it is made of, and where in the log it stands.

use crate::chain::Chain;
use crate::names::{BACKUPS, Digest, backup_time};
use haypile_log::{History, HistoryStart, Index};
use std::fmt;
use std::fmt::Write;
use std::path::{Component, Path};

/// The first line, with the version of the format.
const TITLE: &str = "haypile backup 1";

/// Files that one backup may have: a hundred terabytes in files of 64 MB.
const FILES_MAX: usize = 2_000_000;

/// A backup in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The time of the backup in milliseconds since 1970: no record in it has a later time.
    pub made_ms: u64,
    /// The last record in the backup.
    pub through: Index,
    /// The base has nothing behind this index: an earlier moment cannot be restored from it.
    pub applied: Index,
    /// The histories that its log went through, the newest of which its last record stands in.
    pub histories: Vec<HistoryStart>,
    pub files: Vec<BackupFile>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// The place in the data directory: `base/000012.sst`.
    pub path: String,
    pub bytes: u64,
    pub digest: Digest,
}

/// Why a text is no manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError(pub String);

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ManifestError {}

impl Manifest {
    /// Returns the name of the backup, with the beginning of its history's: `20261122T084500Z-4711-0f1e2d3c`.
    pub fn name(&self) -> String {
        let history = self.history().to_string();
        format!("{}-{}-{}", backup_time(self.made_ms), self.through, &history[..8])
    }

    /// Returns the name of its object.
    pub fn object(&self) -> String {
        format!("{BACKUPS}{}", self.name())
    }

    /// Returns the bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the history that the backup stands in.
    pub fn history(&self) -> History {
        self.histories.last().expect("a manifest has one at least").history
    }

    /// Returns the histories that its log went through.
    pub fn chain(&self) -> Chain {
        Chain::new(&self.histories)
    }

    /// Returns the reason for which a manifest makes no sense, if it makes none. None of these is written or read.
    pub(crate) fn defect(&self) -> Option<&'static str> {
        let is_chain = self.histories.is_sorted_by_key(HistoryStart::after);
        // Every record has a next one.
        if self.histories.is_empty() || !is_chain || self.applied > self.through || self.through.0 == u64::MAX {
            return Some("its histories or indexes make no sense");
        }
        if self.files.len() > FILES_MAX {
            return Some("it names too many files");
        }
        if self.files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.bytes)).is_none() {
            return Some("its files have more bytes than there are");
        }
        self.files.iter().any(|file| !is_inside(&file.path)).then_some("a file of it leads outside")
    }

    /// Returns the text; its last line has the checksum of those before.
    pub fn text(&self) -> String {
        let Manifest { made_ms, through, applied, histories, files } = self;
        let mut text = format!("{TITLE}\nmade {made_ms}\nthrough {through}\napplied {applied}\n");
        for start in histories {
            text += "history ";
            start.to_bytes().iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
            text.push('\n');
        }
        for BackupFile { path, bytes, digest } in files {
            _ = writeln!(text, "file {digest} {bytes} {path}");
        }
        let sum = digest_of(text.as_bytes());
        text + &format!("end {sum}\n")
    }

    /// Reads a text.
    ///
    /// # Errors
    /// The text is damaged, cut off, of another version, or says what cannot be.
    pub fn parse(text: &str) -> Result<Manifest, ManifestError> {
        let wrong = |why: &str| ManifestError(why.to_owned());
        if !text.starts_with("haypile backup ") {
            return Err(wrong("it is no manifest of a backup"));
        }
        if text.split('\n').next() != Some(TITLE) {
            return Err(wrong("it is of another version"));
        }
        let end = text.rfind("\nend ").ok_or_else(|| wrong("it is cut off"))? + 1;
        let sum = text[end..].strip_prefix("end ").and_then(|rest| rest.strip_suffix('\n')).and_then(Digest::parse);
        if sum != Some(digest_of(&text.as_bytes()[..end])) {
            return Err(wrong("its checksum is wrong, or it is cut off"));
        }
        // `lines` would take a path's last character for a part of the line's end.
        let mut lines = text[..end].split_terminator('\n').skip(1).peekable();
        let mut number = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|number| number.parse::<u64>().ok()).ok_or_else(|| wrong(&format!("it has no line '{name}'")))
        };
        let (made_ms, through, applied) = (number("made")?, Index(number("through")?), Index(number("applied")?));
        let mut histories = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with("history ")) {
            let start = history_start(&line["history ".len()..]).ok_or_else(|| wrong("a history makes no sense"))?;
            histories.push(start);
        }
        let mut files = Vec::new();
        for line in lines {
            let file = backup_file(line).ok_or_else(|| wrong(&format!("the line '{line}' makes no sense")))?;
            files.push(file);
            if files.len() > FILES_MAX {
                return Err(wrong("it names too many files"));
            }
        }
        let manifest = Manifest { made_ms, through, applied, histories, files };
        manifest.defect().map_or(Ok(manifest), |why| Err(wrong(why)))
    }
}

fn history_start(digits: &str) -> Option<HistoryStart> {
    let bytes = digits.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = bytes.chunks(2).map(pair).collect::<Option<Vec<u8>>>()?;
    (bytes.len() == 56).then(|| HistoryStart::from_bytes(&bytes)).flatten()
}

fn backup_file(line: &str) -> Option<BackupFile> {
    let mut words = line.strip_prefix("file ")?.splitn(3, ' ');
    let (digest, bytes, path) = (Digest::parse(words.next()?)?, words.next()?.parse().ok()?, words.next()?);
    is_inside(path).then(|| BackupFile { path: path.to_owned(), bytes, digest })
}

/// Whether a path stays below the directory that it is put into, in `base` or `log`, and has its place in a line.
pub(crate) fn is_inside(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    let below = matches!(parts.next(), Some(Component::Normal(first)) if first == "base" || first == "log");
    let rest: Vec<_> = parts.collect();
    let is_below = below && !rest.is_empty() && rest.iter().all(|part| matches!(part, Component::Normal(_)));
    is_below && !path.ends_with('/') && !path.contains(char::is_control)
}

pub(crate) fn digest_of(bytes: &[u8]) -> Digest {
    let mut digest = Digest([0; 32]);
    digest.0.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::Origin;

    fn manifest() -> Manifest {
        let first = HistoryStart { history: History([1; 20]), origin: Origin::Nothing };
        let second = HistoryStart { history: History([2; 20]), origin: Origin::Fork(first.history, Index(40)) };
        let file = |path: &str, bytes| BackupFile { path: path.into(), bytes, digest: digest_of(path.as_bytes()) };
        Manifest {
            made_ms: 1_795_337_100_123,
            through: Index(4711),
            applied: Index(4000),
            histories: vec![first, second],
            files: vec![file("base/000012.sst", 67_108_864), file("base/CURRENT", 16), file("log/1.log", 4096)],
        }
    }

    #[test]
    fn a_manifest_reads_back_and_no_part_of_it_does() {
        let manifest = manifest();
        let text = manifest.text();
        assert_eq!(Manifest::parse(&text), Ok(manifest.clone()));
        assert_eq!(manifest.object(), "backups/20261122T084500Z-4711-02020202");
        for cut in 0..text.len() {
            assert!(Manifest::parse(&text[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'7' { b'8' } else { b'7' };
            let changed = String::from_utf8(changed).expect("it is ASCII");
            assert!(Manifest::parse(&changed).is_err(), "byte {at}: {changed}");
        }
    }

    #[test]
    fn no_file_of_a_manifest_lies_outside_or_has_a_name_that_ends_its_line() {
        let outside = ["/etc/passwd", "base/../../x", "base", "base/", "../base/x", "log//../x", "HAYPILE", ""];
        for path in outside.into_iter().chain(["base/x\r", "base/x\n", "base/\0"]) {
            let mut manifest = manifest();
            manifest.files[0].path = path.into();
            assert!(Manifest::parse(&manifest.text()).is_err(), "{path}");
        }
    }
}
