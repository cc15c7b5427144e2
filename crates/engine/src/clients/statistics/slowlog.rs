//! The logs of calls that stand out: those that made their users wait for long, as SLOWLOG GET shows them, and those
//! with large requests or replies (COMMANDLOG).
//!
//! An entry has Redis's six fields. Where the time went is told beside it, by id, in `INFO slowlog`: a seventh field
//! would break clients that read six.

use super::spent::Spent;
use haypile_commands::host::LoggedCall;
use haypile_commands::{Entry, redact};
use haypile_resp::Args;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Arguments of an entry, the last of which tells how many more there are.
const ARGS_MAX: usize = 32;

/// Bytes of an argument; what follows tells how many more there are.
const ARG_BYTES_MAX: usize = 128;

/// The arguments of a call as they are kept: cut to a bounded size, without secrets.
#[derive(Clone)]
pub(crate) struct Shown(Vec<Vec<u8>>);

impl Shown {
    #[cold]
    pub fn new(entry: &Entry, args: Args<'_>) -> Shown {
        let all = redact::shown(entry, args);
        let count = all.len();
        let kept = if count > ARGS_MAX { ARGS_MAX - 1 } else { count };
        let mut shown: Vec<Vec<u8>> = all.take(kept).map(cut).collect();
        if kept < count {
            shown.push(format!("... ({} more arguments)", count - kept).into_bytes());
        }
        Shown(shown)
    }

    /// A command without arguments.
    pub fn name(name: &str) -> Shown {
        Shown(vec![name.as_bytes().to_vec()])
    }
}

fn cut(arg: &[u8]) -> Vec<u8> {
    match arg.get(..ARG_BYTES_MAX) {
        Some(begin) if arg.len() > ARG_BYTES_MAX => {
            [begin, format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX).as_bytes()].concat()
        }
        _ => arg.to_vec(),
    }
}

/// The client that called.
pub(crate) struct Caller<'a> {
    pub address: &'a str,
    pub name: &'a [u8],
}

#[derive(Default)]
pub(crate) struct Slowlog(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// The calls, the newest first.
    calls: VecDeque<(LoggedCall, Spent)>,
    next_id: u64,
}

impl Slowlog {
    #[cold]
    pub fn push(&self, shown: Shown, value: u64, spent: &Spent, caller: &Caller<'_>, time_s: u64, entries_max: usize) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let call = LoggedCall {
            id: entries.next_id,
            time_s,
            value,
            args: shown.0,
            address: caller.address.to_owned(),
            name: caller.name.to_vec(),
        };
        entries.next_id += 1;
        entries.calls.push_front((call, *spent));
        entries.calls.truncate(entries_max);
    }

    /// Returns the newest `count` calls, the newest first.
    pub fn newest(&self, count: usize) -> Vec<LoggedCall> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.calls.iter().take(count).map(|(call, _)| call.clone()).collect()
    }

    /// Id, time and what was waited for, of the newest `count`.
    pub fn waits(&self, count: usize) -> Vec<(u64, u64, Spent)> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.calls.iter().take(count).map(|(call, spent)| (call.id, call.value, *spent)).collect()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).calls.len()
    }

    /// Ids go on, as in Redis.
    pub fn reset(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).calls.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_commands::Table;
    use haypile_resp::OwnedArgs;

    fn shown(name: &str, args: &[&[u8]]) -> Vec<Vec<u8>> {
        let (table, mut owned) = (Table::new(), OwnedArgs::default());
        args.iter().for_each(|arg| owned.push(arg));
        Shown::new(table.find_full(name.as_bytes()).expect("there is such a command"), owned.as_args()).0
    }

    #[test]
    fn arguments_are_cut_as_in_redis() {
        let long = [b'x'; 130];
        assert_eq!(shown("set", &[b"SET", &long[..128], &long])[2], [&long[..128], b"... (2 more bytes)"].concat());
        assert_eq!(shown("set", &[b"SET", &long[..128], &long])[1], &long[..128]);
        let many: Vec<&[u8]> = vec![b"k"; 34];
        let cut = shown("mget", &many);
        assert_eq!((cut.len(), cut[31].as_slice()), (32, &b"... (3 more arguments)"[..]));
        assert_eq!(shown("mget", &many[..32]).len(), 32);
    }

    #[test]
    fn secrets_are_not_kept() {
        assert_eq!(shown("hello", &[b"HELLO", b"3", b"AUTH", b"me", b"secret"])[4], b"(redacted)");
    }

    #[test]
    fn the_newest_stay() {
        let log = Slowlog::default();
        let caller = Caller { address: "127.0.0.1:1", name: b"me" };
        (0..5).for_each(|_| log.push(Shown::name("exec"), 5, &Spent::default(), &caller, 7, 3));
        let ids = || log.newest(10).iter().map(|call| call.id).collect::<Vec<_>>();
        assert_eq!((ids(), log.len()), (vec![4, 3, 2], 3));
        assert_eq!(log.newest(1)[0].value, 5);
        log.reset();
        log.push(Shown::name("exec"), 0, &Spent::default(), &caller, 7, 3);
        assert_eq!(ids(), [5]);
    }
}
