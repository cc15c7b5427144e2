//! The refusal of a directory that holds other files than those of a data directory: it names some of them, and says
//! what to do about a directory of this kind.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The file of a directory that `haypile restore` fills.
pub(super) const RESTORING_FILE: &str = "haypile.restoring";

/// The state of a directory in which there is this file, and what to do.
pub(super) const BROKEN_OFF: &str =
    "`haypile restore` was broken off in it: run it again, with the same arguments, and it goes on where it was.";

/// Names that a refusal shows.
const NAMES_MAX: usize = 3;

/// The kind of a directory: the last of those that its files say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Other,
    /// Redis's data directory.
    Redis,
    /// A data directory without its format file.
    Partial,
    /// A restore was broken off.
    Restoring,
}

impl Kind {
    fn of(name: &OsStr) -> Kind {
        match name.as_encoded_bytes() {
            name if name == RESTORING_FILE.as_bytes() => Kind::Restoring,
            b"haypile.end" => Kind::Partial,
            b"appendonlydir" | b"appendonly.aof" => Kind::Redis,
            name if name.ends_with(b".rdb") => Kind::Redis,
            _ => Kind::Other,
        }
    }

    fn advice(self) -> String {
        match self {
            Kind::Other => "Choose an empty one with --dir, for Haypile's data alone; other files (users, keys, \
                            certificates) belong elsewhere."
                .to_owned(),
            Kind::Redis => {
                "These are data of a Redis. Choose an empty one with --dir, and fill it with `haypile import`: \
                            it takes the file that the Redis's BGSAVE writes (dump.rdb), and no append-only file."
                    .to_owned()
            }
            Kind::Partial => "Its file HAYPILE is missing: it is damaged, or the copy of a data directory that was \
                              broken off. Copy it as a whole, or restore a backup."
                .to_owned(),
            Kind::Restoring => format!("{BROKEN_OFF} Choose an empty one with --dir to begin without data."),
        }
    }
}

/// Returns an error if the directory holds a file that is not one of ours.
pub(super) fn refuse(dir: &Path, is_ours: impl Fn(&Path) -> bool) -> Result<(), String> {
    let fails = |error: std::io::Error| format!("Can't read the data directory {}: {error}", dir.display());
    let (mut names, mut more, mut kind) = (BTreeSet::<OsString>::new(), 0, Kind::Other);
    for entry in std::fs::read_dir(dir).map_err(fails)? {
        let entry = entry.map_err(fails)?;
        if is_ours(&entry.path()) {
            continue;
        }
        kind = kind.max(Kind::of(&entry.file_name()));
        names.insert(entry.file_name());
        if names.len() > NAMES_MAX {
            names.pop_last();
            more += 1;
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    let verb = if names.len() == 1 { "is" } else { "are" };
    let names: Vec<String> = names.iter().map(|name| name.to_string_lossy().escape_debug().to_string()).collect();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Err(format!(
        "The directory {} is not a data directory of Haypile and not empty (there {verb} {}{more}). {}",
        dir.display(),
        names.join(", "),
        kind.advice()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_files_and_what_to_do() {
        let dir = std::env::temp_dir().join(format!("haypile-foreign-{}", std::process::id()));
        let says = |names: &[&str], parts: &[&str]| {
            std::fs::create_dir_all(&dir).expect("a temporary directory can be made");
            for name in names {
                std::fs::write(dir.join(name), "").expect("it is writable");
            }
            let why = refuse(&dir, |path| path.ends_with("ours")).expect_err("there are others");
            for part in parts.iter().copied().chain([dir.to_str().expect("the path is text")]) {
                assert!(why.contains(part), "{names:?}: {why}");
            }
            std::fs::remove_dir_all(&dir).expect("it is ours");
        };
        says(&["ours", "users.acl"], &["(there is users.acl)", "belong elsewhere"]);
        says(&["a", "b", "line\nbreak"], &["(there are a, b, line\\nbreak)"]);
        says(&["tls.key", "a", "tls.crt", "ca.crt", "b"], &["(there are a, b, ca.crt and 2 more)"]);
        says(&["dump.rdb", "a"], &["(there are a, dump.rdb)", "`haypile import`"]);
        says(&["appendonlydir"], &["`haypile import`"]);
        says(&["haypile.end", "log"], &["HAYPILE is missing", "restore a backup"]);
        says(&["base", "log", RESTORING_FILE], &["`haypile restore` was broken off in it: run it again"]);
        std::fs::create_dir_all(&dir).expect("a temporary directory can be made");
        std::fs::write(dir.join("ours"), "").expect("it is writable");
        assert_eq!(refuse(&dir, |path| path.ends_with("ours")), Ok(()));
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }
}
