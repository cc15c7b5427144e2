//! The summary of an export: keys written and left out.

use haypile_rdb::{Kind, VERSION};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

const TYPES: [&str; 7] = ["strings", "lists", "sets", "sorted sets", "hashes", "streams", "values of modules"];
const MODULE: usize = 6;

/// Keys that are named; there may be more.
const NAMES_MAX: usize = 20;

/// Bytes of a name that are shown.
const NAME_BYTES_MAX: usize = 100;

pub struct Summary {
    /// The version of the format in the file's head.
    pub version: u16,
    /// Keys by database and type.
    databases: BTreeMap<u64, [u64; TYPES.len()]>,
    database: u64,
    exported: u64,
    /// Libraries of functions.
    pub libraries: u64,
    /// Keys whose time had passed.
    pub expired: u64,
    /// Keys that were gone before they were read.
    pub gone: u64,
    missing: Vec<String>,
    /// Keys that should be in the file and are not.
    missing_count: u64,
    /// Further lines of the summary.
    notes: Vec<String>,
    begun: Instant,
    bytes: u64,
}

impl Summary {
    pub fn new(version: u16) -> Summary {
        Summary {
            version,
            databases: BTreeMap::new(),
            database: 0,
            exported: 0,
            libraries: 0,
            expired: 0,
            gone: 0,
            missing: Vec::new(),
            missing_count: 0,
            notes: Vec::new(),
            begun: Instant::now(),
            bytes: 0,
        }
    }

    /// Begins a database, to which the keys that follow belong.
    pub fn database(&mut self, database: u64) {
        self.database = database;
    }

    /// Counts a key in the file; `None` is the data of a module.
    pub fn add(&mut self, kind: Option<Kind>) {
        let at = match kind {
            Some(Kind::String) => 0,
            Some(Kind::List) => 1,
            Some(Kind::Set) => 2,
            Some(Kind::Zset) => 3,
            Some(Kind::Hash | Kind::TimedHash) => 4,
            Some(Kind::Stream | Kind::IdempotentStream | Kind::NackedStream) => 5,
            None => MODULE,
        };
        self.databases.entry(self.database).or_default()[at] += 1;
        self.exported += 1;
    }

    /// Notes a key that is not in the file, and should be.
    pub fn miss(&mut self, name: &[u8], why: &str) {
        self.missing_count += 1;
        if self.missing.len() < NAMES_MAX {
            let name = name[..name.len().min(NAME_BYTES_MAX)].escape_ascii();
            self.missing.push(format!("{name} in database {}: {why}", self.database));
        }
    }

    /// Adds a line to the summary.
    pub fn note(&mut self, line: String) {
        self.notes.push(line);
    }

    /// Returns the number of keys that are done with.
    pub fn passed(&self) -> u64 {
        self.exported + self.expired + self.gone + self.missing_count
    }

    /// Notes that the file is complete, and has so many bytes.
    pub fn end(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// Returns why keys are missing in the file; `None` if none is.
    pub fn missing(&self) -> Option<String> {
        let more = self.missing_count - self.missing.len() as u64;
        let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
        let names = self.missing.join("\n");
        (self.missing_count > 0).then(|| format!("{} keys are not in the file:\n{names}{more}", self.missing_count))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.libraries > 0 {
            writeln!(out, "libraries of functions: {}", self.libraries)?;
        }
        for (database, counts) in &self.databases {
            let types = counts.iter().zip(TYPES).filter(|(count, _)| **count > 0);
            let types: Vec<String> = types.map(|(count, name)| format!("{count} {name}")).collect();
            writeln!(out, "database {database}: {}", types.join(", "))?;
        }
        let left_out = [(self.expired, "keys whose time had passed"), (self.gone, "keys that went meanwhile")];
        for (count, what) in left_out.iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "left out: {count} {what}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
        if self.version > VERSION {
            let version = self.version;
            let (what, since) = match version {
                ..=12 => ("fields of hashes have deadlines", "7.4"),
                13 => ("streams know idempotent IDs", "8.6"),
                _ => ("streams have pending entries without consumer", "8.8"),
            };
            writeln!(out, "{what}: Redis before {since} does not load this file (RDB version {version})")?;
        }
        let (seconds, mb) = (self.begun.elapsed().as_secs_f64(), self.bytes as f64 / 1e6);
        let per_s = |amount: f64| amount / seconds.max(1e-9);
        let (keys_per_s, mb_per_s) = (per_s(self.exported as f64), per_s(mb));
        writeln!(
            out,
            "{} keys exported in {seconds:.1} s ({keys_per_s:.0} keys/s), {mb:.1} MB written ({mb_per_s:.1} MB/s)",
            self.exported
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_what_there_is_and_what_is_not() {
        let mut summary = Summary::new(VERSION);
        summary.add(Some(Kind::String));
        summary.database(9);
        summary.add(Some(Kind::TimedHash));
        summary.add(None);
        (summary.expired, summary.gone) = (2, 1);
        summary.note("a line".into());
        let text = summary.to_string();
        for line in [
            "database 0: 1 strings\n",
            "database 9: 1 hashes, 1 values of modules\n",
            "left out: 2 keys whose time had passed\nleft out: 1 keys that went meanwhile\na line\n3 keys exported in 0.0 s",
        ] {
            assert!(text.contains(line), "{line:?} is not in {text}");
        }
        assert!(!text.contains("7.4"));
        assert_eq!(summary.missing(), None);
        (0..30).for_each(|n| summary.miss(format!("key{n}\n").as_bytes(), "why"));
        let missing = summary.missing().unwrap();
        assert!(missing.starts_with("30 keys are not in the file:\nkey0\\n in database 9: why\n"), "{missing}");
        assert!(missing.ends_with("\nand 10 more"), "{missing}");
        assert_eq!(summary.passed(), 36);
    }
}
