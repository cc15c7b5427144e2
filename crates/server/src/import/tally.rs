//! The counts of an import for its summary: keys imported and left out.

use haypile_rdb::Kind;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

/// The most names that are shown, and the bytes of each.
const NAMES_MAX: usize = 20;
const SHOWN_BYTES: usize = 100;

/// The field of a file in which KeyDB names a member that has a deadline, behind the member's key.
pub const DEADLINE_OF_MEMBER: &[u8] = b"keydb-subexpire-key";

const TYPES: [&str; 6] = ["strings", "lists", "sets", "sorted sets", "hashes", "streams"];

pub struct Tally {
    /// Keys by database and type.
    databases: BTreeMap<u64, [u64; TYPES.len()]>,
    imported: u64,
    /// Keys whose deadlines had passed.
    pub expired: u64,
    /// Collections without elements, which Redis skips, too.
    pub empty: u64,
    /// Keys that existed already.
    pub kept: u64,
    /// Libraries of functions that were imported, and those that were there already.
    pub libraries: u64,
    pub kept_libraries: u64,
    functions: Named,
    modules: Named,
    /// Deadlines of members, by key.
    deadlines: Named,
    begun: Instant,
    /// Bytes of the file that were read.
    pub bytes: u64,
}

/// Counts by name.
#[derive(Default)]
struct Named {
    count: u64,
    names: BTreeMap<String, u64>,
}

impl Tally {
    pub fn new() -> Tally {
        Tally {
            databases: BTreeMap::new(),
            imported: 0,
            expired: 0,
            empty: 0,
            kept: 0,
            libraries: 0,
            kept_libraries: 0,
            functions: Named::default(),
            modules: Named::default(),
            deadlines: Named::default(),
            begun: Instant::now(),
            bytes: 0,
        }
    }

    /// Counts keys of a type that were imported into a database.
    pub fn add(&mut self, database: u64, kind: Kind, keys: u64) {
        if keys == 0 {
            return;
        }
        let at = match kind {
            Kind::String => 0,
            Kind::List => 1,
            Kind::Set => 2,
            Kind::Zset => 3,
            Kind::Hash | Kind::TimedHash => 4,
            Kind::Stream | Kind::IdempotentStream | Kind::NackedStream => 5,
        };
        self.databases.entry(database).or_default()[at] += keys;
        self.imported += keys;
    }

    /// Returns the number of keys that were imported.
    pub fn imported(&self) -> u64 {
        self.imported
    }

    /// Returns the number of keys of the file that are done with.
    pub fn passed(&self) -> u64 {
        self.imported + self.expired + self.empty + self.kept
    }
    /// Returns what was left out because nothing here can hold it.
    pub fn left_out(&self) -> Option<String> {
        let left_out = [
            (&self.functions, "libraries of functions"),
            (&self.modules, "keys of modules"),
            (&self.deadlines, "deadlines of members, as KeyDB has them, of the keys"),
        ];
        let of = |(named, what): (&Named, &str)| {
            let names: Vec<&str> = named.names.keys().take(NAMES_MAX).map(String::as_str).collect();
            (named.count > 0).then(|| format!("{} {what} ({})", named.count, names.join(", ")))
        };
        let left_out: Vec<String> = left_out.into_iter().filter_map(of).collect();
        (!left_out.is_empty()).then(|| left_out.join(", "))
    }

    /// Counts a library of functions that cannot be loaded.
    pub fn skip_function(&mut self, source: &[u8]) {
        self.functions.add(&library_name(source));
    }

    /// Counts data of a module, of a key or not.
    pub fn skip_module(&mut self, name: &str) {
        self.modules.add(name);
    }

    /// Counts a deadline of a member of a key, as KeyDB writes it behind the key: only fields of hashes have some here,
    /// in another form.
    pub fn skip_deadline(&mut self, key: &[u8]) {
        self.deadlines.add(&key[..key.len().min(SHOWN_BYTES)].escape_ascii().to_string());
    }
}

impl Named {
    fn add(&mut self, name: &str) {
        self.count += 1;
        if let Some(count) = self.names.get_mut(name) {
            *count += 1;
        } else if self.names.len() < NAMES_MAX {
            self.names.insert(name.to_owned(), 1);
        }
    }
}

/// Prints `name (count), ...`.
impl fmt::Display for Named {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: u64 = self.names.values().sum();
        let each = self.names.iter().map(|(name, count)| match count {
            1 => name.clone(),
            count => format!("{name} ({count})"),
        });
        let more = (named < self.count).then(|| format!("and {} of other names", self.count - named));
        out.write_str(&each.chain(more).collect::<Vec<_>>().join(", "))
    }
}

/// Returns the name in the first line of a library: `#!lua name=NAME`.
fn library_name(source: &[u8]) -> String {
    let line = source.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(u8::is_ascii_whitespace);
    let name = words.find_map(|word| word.strip_prefix(b"name=")).unwrap_or(b"(unnamed)");
    name[..name.len().min(SHOWN_BYTES)].escape_ascii().to_string()
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (database, counts) in &self.databases {
            let types = counts.iter().zip(TYPES).filter(|(count, _)| **count > 0);
            let types: Vec<String> = types.map(|(count, name)| format!("{count} {name}")).collect();
            writeln!(out, "database {database}: {}", types.join(", "))?;
        }
        let skipped = [
            (self.kept, "keys that were there already"),
            (self.expired, "keys whose time had passed"),
            (self.empty, "collections without elements"),
            (self.kept_libraries, "libraries of functions that were there already"),
        ];
        if self.libraries > 0 {
            writeln!(out, "libraries of functions: {}", self.libraries)?;
        }
        for (count, what) in skipped.iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "left out: {count} {what}")?;
        }
        for (named, what, why) in [
            (&self.functions, "libraries of functions", "they cannot be loaded"),
            (&self.modules, "keys or records of modules", "there is no place for them"),
            (&self.deadlines, "deadlines of members (KeyDB), of the keys", "these members do not expire"),
        ] {
            if named.count > 0 {
                writeln!(out, "NOT IMPORTED, {why}: {} {what}: {named}", named.count)?;
            }
        }
        let (seconds, mb) = (self.begun.elapsed().as_secs_f64(), self.bytes as f64 / 1e6);
        let per_s = |amount: f64| amount / seconds.max(1e-9);
        let (keys_per_s, mb_per_s) = (per_s(self.imported as f64), per_s(mb));
        writeln!(
            out,
            "{} keys imported in {seconds:.1} s ({keys_per_s:.0} keys/s), {mb:.1} MB read ({mb_per_s:.1} MB/s)",
            self.imported
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_what_there_is() {
        let mut tally = Tally::new();
        tally.add(0, Kind::String, 3);
        tally.add(0, Kind::TimedHash, 1);
        tally.add(9, Kind::Zset, 1);
        tally.expired = 2;
        tally.libraries = 3;
        tally.skip_function(b"#!lua name=mylib\nreturn 1");
        tally.skip_function(b"?");
        (0..3).for_each(|_| tally.skip_module("ReJSON-RL"));
        (0..2).for_each(|_| tally.skip_deadline(b"set\n"));
        (0..30).for_each(|n| tally.skip_module(&format!("other{n:04}")));
        let text = tally.to_string();
        for line in [
            "database 0: 3 strings, 1 hashes\n",
            "database 9: 1 sorted sets\n",
            "left out: 2 keys whose time had passed\n",
            "libraries of functions: 3\n",
            "NOT IMPORTED, they cannot be loaded: 2 libraries of functions: (unnamed), mylib\n",
            "33 keys or records of modules: ReJSON-RL (3), other0000, ",
            "other0018, and 11 of other names\n",
            "NOT IMPORTED, these members do not expire: 2 deadlines of members (KeyDB), of the keys: set\\n (2)\n",
            "5 keys imported in 0.0 s",
        ] {
            assert!(text.contains(line), "{line:?} is not in {text}");
        }
        assert!(!text.contains("without elements"));
    }
}
