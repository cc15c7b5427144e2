//! The directives of the archive.

use std::path::PathBuf;

/// The place where the log and backups are archived, and what is kept there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Archive {
    /// A directory, or the address of an object store; empty archives nothing.
    pub to: String,
    /// Options of an object store.
    pub options: Vec<(String, String)>,
    /// The file with the key that encrypts it.
    pub key_file: Option<PathBuf>,
    pub interval_s: u64,
    /// Seconds from one backup to the next; 0 for none but the first one.
    pub backup_interval_s: u64,
    /// The number of backups that are kept; 0 for all.
    pub backups_keep: u32,
    /// The bound on the log in the archive in bytes; 0 for none.
    pub log_bytes: u64,
}

/// Splits `name=value name=value`; a word without `=` is an option without a value, which no store knows.
pub(crate) fn options_of(text: &str) -> Vec<(String, String)> {
    let pair = |word: &str| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        (name.to_owned(), value.to_owned())
    };
    text.split_ascii_whitespace().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_pairs() {
        let pairs = [("region", "eu"), ("endpoint", "http://a:1/?x=y"), ("odd", "")];
        let expected: Vec<_> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(options_of(" region=eu  endpoint=http://a:1/?x=y odd"), expected);
    }
}
