//! The table of all directives: those of Redis 7.2, whether used here or not, and our own.
//!
//! The reader, the typed `Config`, CONFIG GET and SET, the documentation and the tests walk this one table. A directive
//! is one row in the file of its topic; readers of the field of `crate::Config` give it its effect.

mod compatibility;
mod data;
mod network;
mod ours;
pub mod pika;
mod replication;
mod security;
mod server;
mod storage;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::kind::Kind;
use crate::value::{Mode, Value};

/// One directive.
#[derive(Debug)]
pub struct Row {
    /// Lower case, as documented.
    pub name: &'static str,
    /// An older name with the same meaning.
    pub alias: Option<&'static str>,
    /// Pika's name for the same. CONFIG GET answers it by the exact name only, so that no pattern of Redis finds more.
    pub of_pika: Option<&'static str>,
    pub kind: Kind,
    /// The default, as it would stand in a file after the name. Redis's, unless `ours` is set.
    pub default: &'static str,
    pub class: Class,
    /// Whether CONFIG SET refuses the directive.
    pub immutable: bool,
    /// Whether CONFIG SET refuses the directive unless `enable-protected-configs` allows it.
    pub protected: bool,
    /// Whether the value is a secret: never logged.
    pub sensitive: bool,
    /// Whether the value names what counts, as that of a file does: CONFIG SET of the same value is a change.
    pub volatile: bool,
    /// Whether CONFIG GET answers the directive by its exact name only.
    pub hidden: bool,
    /// Whether the directive bounds what Redis holds compactly: it stands in `Config::encoding_limits`.
    pub limits_encoding: bool,
    /// Whether Redis has no such directive.
    pub ours: bool,
    /// The documentation of the directive, one sentence.
    pub doc: &'static str,
}

/// The effect of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The directive does what the documentation says.
    Used,
    /// The directive is accepted and remembered, has no effect here, and is named once in the log if it is set.
    Harmless,
    /// The directive secures, replicates, clusters or extends the server in a way that is not there yet: anything but
    /// this value stops the start.
    NotYet { off: &'static str },
}

/// A line that is no value: CONFIG GET and SET do not know it.
#[derive(Debug)]
pub struct Statement {
    pub name: &'static str,
    pub role: Role,
    /// How many words may follow the name.
    pub words: std::ops::RangeInclusive<usize>,
    pub syntax: &'static str,
    pub doc: &'static str,
}

/// The effect of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Include,
    RenameCommand,
    User,
    LoadModule,
    Sentinel,
    /// Accepted without effect: Redis does the same.
    Obsolete,
}

/// The rows of one topic, in the order of the documentation.
pub struct Topic {
    pub title: &'static str,
    pub rows: &'static [Row],
}

/// All topics.
pub static TOPICS: &[Topic] = &[
    Topic { title: "Network", rows: network::ROWS },
    Topic { title: "Server and log file", rows: server::ROWS },
    Topic { title: "Storage engine", rows: ours::ROWS },
    Topic { title: "Archive", rows: ours::ARCHIVE },
    Topic { title: "Change stream", rows: ours::CHANGES },
    Topic { title: "Memory", rows: storage::MEMORY },
    Topic { title: "Persistence as in Redis", rows: storage::PERSISTENCE },
    Topic { title: "Security", rows: security::ROWS },
    Topic { title: "TLS", rows: security::TLS },
    Topic { title: "Replication", rows: replication::ROWS },
    Topic { title: "Cluster", rows: replication::CLUSTER },
    Topic { title: "Data types and events", rows: data::ROWS },
    Topic { title: "Monitoring", rows: data::MONITORING },
    Topic { title: "Inner workings of Redis", rows: compatibility::ROWS },
];

/// All statements.
pub static STATEMENTS: &[Statement] = &[
    Statement {
        name: "include",
        role: Role::Include,
        words: 1..=1,
        syntax: "include <file or pattern>",
        doc: "Reads another file here; `*`, `?` and `[...]` in it make it a pattern that may match no file.",
    },
    Statement {
        name: "rename-command",
        role: Role::RenameCommand,
        words: 2..=2,
        syntax: "rename-command <command> <new name or \"\">",
        doc: "Renames a command, or removes it when the new name is empty.",
    },
    Statement {
        name: "user",
        role: Role::User,
        words: 1..=usize::MAX,
        syntax: "user <name> [<rule> ...]",
        doc: "A user and its rules, as ACL SETUSER takes them. Not beside `aclfile`.",
    },
    Statement {
        name: "loadmodule",
        role: Role::LoadModule,
        words: 1..=usize::MAX,
        syntax: "loadmodule <path> [<argument> ...]",
        doc: "Not there: Haypile loads no modules.",
    },
    Statement {
        name: "sentinel",
        role: Role::Sentinel,
        words: 0..=usize::MAX,
        syntax: "sentinel <directive> ...",
        doc: "Not there: Haypile is no Sentinel.",
    },
    Statement {
        name: "list-max-ziplist-entries",
        role: Role::Obsolete,
        words: 1..=1,
        syntax: "list-max-ziplist-entries <entries>",
        doc: "Without effect, in Redis too.",
    },
    Statement {
        name: "list-max-ziplist-value",
        role: Role::Obsolete,
        words: 1..=1,
        syntax: "list-max-ziplist-value <bytes>",
        doc: "Without effect, in Redis too.",
    },
    Statement {
        name: "lua-replicate-commands",
        role: Role::Obsolete,
        words: 1..=1,
        syntax: "lua-replicate-commands <yes|no>",
        doc: "Without effect, in Redis too.",
    },
];

/// Returns all rows, in the order of the documentation. A value is kept at its row's position.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    TOPICS.iter().flat_map(|topic| topic.rows)
}

/// A directive that was asked for, and the position of its row among all rows.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The name, the alias or Pika's name, in lower case.
    pub name: &'static str,
    pub row: &'static Row,
    pub position: usize,
}

/// Returns the directive of a name or alias, in any case.
pub fn find(name: &[u8]) -> Option<Found> {
    static BY_NAME: LazyLock<HashMap<&'static str, Found>> = LazyLock::new(|| {
        let mut by_name = HashMap::new();
        for (position, row) in rows().enumerate() {
            for name in row.names().chain(row.of_pika) {
                by_name.insert(name, Found { name, row, position });
            }
        }
        by_name
    });
    let name = std::str::from_utf8(name).ok()?;
    BY_NAME.get(name.to_ascii_lowercase().as_str()).copied()
}

/// Returns the statement of a name, in any case.
pub fn statement(name: &[u8]) -> Option<&'static Statement> {
    STATEMENTS.iter().find(|statement| statement.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Row {
    /// Returns the name, and the alias if there is one.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.alias)
    }

    /// Returns the default value. Each row's default is one that its kind takes: a test walks the table.
    pub fn default_value(&self) -> Value {
        let words = crate::words::split(self.default.as_bytes()).expect("defaults have balanced quotes");
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let nothing = Value::Words(Vec::new());
        self.kind.parse(&words, &nothing, Mode::FirstLine).expect("defaults are in range")
    }

    /// Returns the value that a directive which is not there yet may have.
    pub fn off_value(&self) -> Option<Value> {
        let Class::NotYet { off } = self.class else {
            return None;
        };
        let words = crate::words::split(off.as_bytes()).expect("off values have balanced quotes");
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let nothing = Value::Words(Vec::new());
        Some(self.kind.parse(&words, &nothing, Mode::FirstLine).expect("off values are in range"))
    }

    const fn new(name: &'static str, kind: Kind, default: &'static str, class: Class, doc: &'static str) -> Row {
        Row {
            name,
            alias: None,
            of_pika: None,
            kind,
            default,
            class,
            immutable: false,
            protected: false,
            sensitive: false,
            volatile: false,
            hidden: false,
            limits_encoding: false,
            ours: false,
            doc,
        }
    }

    const fn used(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Row {
        Row::new(name, kind, default, Class::Used, doc)
    }

    /// Returns a row of a directive that bounds what Redis holds compactly; its value is a number.
    const fn limit(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Row {
        Row { limits_encoding: true, ..Row::used(name, kind, default, doc) }
    }

    const fn harmless(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Row {
        Row::new(name, kind, default, Class::Harmless, doc)
    }

    /// Returns a row of a directive that is not there yet; `off` is the default.
    const fn not_yet(name: &'static str, kind: Kind, off: &'static str, doc: &'static str) -> Row {
        Row::new(name, kind, off, Class::NotYet { off }, doc)
    }

    const fn alias(self, alias: &'static str) -> Row {
        Row { alias: Some(alias), ..self }
    }

    const fn of_pika(self, name: &'static str) -> Row {
        Row { of_pika: Some(name), ..self }
    }

    const fn immutable(self) -> Row {
        Row { immutable: true, ..self }
    }

    const fn protected(self) -> Row {
        Row { protected: true, ..self }
    }

    const fn sensitive(self) -> Row {
        Row { sensitive: true, ..self }
    }

    const fn volatile(self) -> Row {
        Row { volatile: true, ..self }
    }

    const fn hidden(self) -> Row {
        Row { hidden: true, ..self }
    }

    const fn ours(self) -> Row {
        Row { ours: true, ..self }
    }
}

/// Kinds that several topics use.
pub(crate) mod kinds {
    use crate::kind::{Kind, any_text};

    pub const BOOL: Kind = Kind::Bool;
    pub const TEXT: Kind = Kind::Text(any_text);
    pub const PORT: Kind = int(0, 65535);
    /// A number from 0 to the largest C `int`.
    pub const COUNT: Kind = int(0, INT_MAX);
    /// A number from 0 to the largest C `long`.
    pub const LONG: Kind = int(0, i64::MAX);
    /// Bytes from 0 to the largest C `long`.
    pub const BYTES: Kind = Kind::Bytes { min: 0, max: i64::MAX as u64 };
    pub const SECONDS: Kind = unit(0, INT_MAX, "seconds");

    pub const INT_MIN: i64 = i32::MIN as i64;
    pub const INT_MAX: i64 = i32::MAX as i64;

    pub const fn int(min: i64, max: i64) -> Kind {
        Kind::Int { min, max, unit: "" }
    }

    pub const fn unit(min: i64, max: i64, unit: &'static str) -> Kind {
        Kind::Int { min, max, unit }
    }

    pub const fn bytes(min: u64) -> Kind {
        Kind::Bytes { min, max: i64::MAX as u64 }
    }
}
