//! ACL LOG: the calls and logins that were denied lately, the newest first.

use crate::request::Reason;
use std::collections::VecDeque;

/// Entries that a new denial is compared with, from the newest on, and the time in milliseconds within which it is
/// counted with one of them: as in Redis.
const LOOKED_AT: usize = 10;
const WITHIN_MS: u64 = 60_000;

/// Bytes of an argument, and of the name of a user, that an entry keeps. Redis keeps all of them, however long.
const WORD_BYTES_MAX: usize = 1024;

/// The origin of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    Toplevel,
    /// A block between MULTI and EXEC.
    Multi,
    Script,
}

impl Context {
    /// The name in ACL LOG.
    pub fn name(self) -> &'static str {
        match self {
            Context::Toplevel => "toplevel",
            Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

/// A call or a login that was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub reason: Reason,
    pub context: Context,
    /// The command, the key, the channel, or the word of the command that was to log in.
    pub object: Vec<u8>,
    pub user: Vec<u8>,
}

impl Denial {
    /// Notes the beginnings of words that are very long.
    pub fn new(reason: Reason, context: Context, object: &[u8], user: &[u8]) -> Denial {
        let begin = |word: &[u8]| word[..word.len().min(WORD_BYTES_MAX)].to_vec();
        Denial { reason, context, object: begin(object), user: begin(user) }
    }
}

/// An entry of the log.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The number of the entry, which rises by one from entry to entry, from 0 on.
    pub id: u64,
    pub denial: Denial,
    /// The number of times that the call was denied.
    pub count: u64,
    /// The client's line of CLIENT LIST at the last denial.
    pub client: String,
    /// Unix times in milliseconds of the first denial and the last one.
    pub created_ms: u64,
    pub updated_ms: u64,
}

/// The log.
#[derive(Debug, Default)]
pub struct Log {
    /// The entries, the newest first.
    entries: VecDeque<Entry>,
    next_id: u64,
}

impl Log {
    /// Adds a denial that has happened `count` times, and keeps at most `entries_max` entries.
    pub fn add(&mut self, denial: Denial, count: u64, client: String, now_ms: u64, entries_max: usize) {
        let is_same = |entry: &Entry| entry.denial == denial && now_ms.abs_diff(entry.updated_ms) <= WITHIN_MS;
        let entry = match self.entries.iter().take(LOOKED_AT).position(is_same) {
            Some(at) => {
                let entry = self.entries.remove(at).expect("it was found there");
                Entry { count: entry.count + count, client, updated_ms: now_ms, ..entry }
            }
            None => {
                let id = self.next_id;
                self.next_id += 1;
                Entry { id, denial, count, client, created_ms: now_ms, updated_ms: now_ms }
            }
        };
        self.entries.push_front(entry);
        self.entries.truncate(entries_max);
    }

    /// Returns the entries, the newest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub fn reset(&mut self) {
        self.entries.clear();
    }
}
