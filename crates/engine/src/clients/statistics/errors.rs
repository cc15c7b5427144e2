//! `# Errorstats`: how often which kind of error was answered, by the first word of its text.

use crate::clients::statistics::counters::Count;
use haypile_resp::Reply;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// Redis's bound: kinds beyond it are counted together only, in `total_error_replies`, until CONFIG RESETSTAT.
/// Otherwise whoever makes up errors would make INFO as long as they like.
const KINDS_MAX: usize = 128;

/// Words of the server's own errors, which are counted however many others there are.
const OWN_KINDS: &[&str] = &[
    "ASK",
    "BADLAYOUT",
    "BUSY",
    "BUSYGROUP",
    "BUSYKEY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "DENIED",
    "ERR",
    "EXECABORT",
    "GONE",
    "INPROG",
    "INVALIDOBJ",
    "IOERR",
    "LIMIT",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOADDR",
    "NOAUTH",
    "NOGOODSLAVE",
    "NOGROUP",
    "NOMASTERLINK",
    "NOPERM",
    "NOPROTO",
    "NOREPLICAS",
    "NOSCRIPT",
    "NOTBUSY",
    "NOTREADY",
    "NOTYET",
    "OOM",
    "READONLY",
    "SYNTAX",
    "TRYAGAIN",
    "UNBLOCKED",
    "UNKILLABLE",
    "WRONGPASS",
    "WRONGTYPE",
];

/// Words that begin an error are shown up to here.
const KIND_BYTES_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct Errors(RwLock<BTreeMap<Box<str>, Count>>);

impl Errors {
    /// The first word of an error.
    pub fn kind(reply: &Reply) -> Option<&[u8]> {
        let text = match reply {
            Reply::Error(text) => text.as_bytes(),
            Reply::ErrorBytes(text) => text,
            _ => return None,
        };
        let kind = text.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
        Some(&kind[..kind.len().min(KIND_BYTES_MAX)])
    }

    /// Counts a reply if it is an error.
    pub fn add(&self, reply: &Reply) {
        if let Some(kind) = Errors::kind(reply) {
            self.add_kind(kind);
        }
    }

    pub fn add_kind(&self, kind: &[u8]) {
        self.add_kinds(kind, 1);
    }

    /// Counts several errors of one kind.
    #[cold]
    pub fn add_kinds(&self, kind: &[u8], errors: u64) {
        let kind = String::from_utf8_lossy(kind);
        if let Some(count) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&*kind) {
            return count.add_shared(errors);
        }
        let mut kinds = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Redis 7.0 counts all kinds, and 8.0 none from its bound on.
        if kinds.len() < KINDS_MAX || OWN_KINDS.contains(&&*kind) || kinds.contains_key(&*kind) {
            kinds.entry(kind.into()).or_default().add_shared(errors);
        }
    }

    /// Each kind with its count, by name.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let kinds = self.0.read().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().map(|(kind, count)| (kind.to_string(), count.get())).collect()
    }

    pub fn reset(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_first_word() {
        let errors = Errors::default();
        errors.add(&Reply::error("ERR syntax error"));
        errors.add(&Reply::error("ERR no such key"));
        errors.add(&Reply::error("WRONGTYPE Operation against"));
        errors.add(&Reply::error_bytes(b"ERR unknown command '\xff'".to_vec()));
        assert_eq!(errors.counts(), [("ERR".to_owned(), 3), ("WRONGTYPE".to_owned(), 1)]);
        errors.reset();
        assert_eq!(errors.counts(), []);
    }

    #[test]
    fn the_number_of_kinds_is_bounded() {
        let errors = Errors::default();
        (0..2 * KINDS_MAX).for_each(|kind| errors.add(&Reply::error(format!("E{kind:03} made up"))));
        assert_eq!(errors.counts().len(), KINDS_MAX);
        errors.add(&Reply::error("E000 again"));
        assert_eq!(errors.counts()[0], ("E000".to_owned(), 2));
        OWN_KINDS.iter().for_each(|kind| errors.add(&Reply::error(format!("{kind} after all these"))));
        assert_eq!(errors.counts().len(), KINDS_MAX + OWN_KINDS.len(), "those of the server are counted all the same");
    }
}
