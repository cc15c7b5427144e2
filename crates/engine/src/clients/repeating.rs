//! The facts of the session in which the commands of a master run that is no Haypile: where in its stream each command
//! lies, and which one was refused.

use crate::sync::{Mutex, lock};
use haypile_commands::{Args, Body, Entry, Selects};
use haypile_config::Selection;
use haypile_store::{Origin, Repeated, Stop, slot_of};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The fate of a command of a master of whose keys only some are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    Runs,
    /// The command is left out: none of its keys is taken.
    LeftOut,
    /// The command would bring together what is taken and what is not.
    Refused(String),
}

/// See the file's head. Shared by the session and the threads that run its commands.
#[derive(Debug)]
pub(crate) struct Repeating {
    pub repeated: Repeated,
    /// The keys that are taken; `None` = all.
    selection: Option<Selection>,
    /// The database that the commands have selected, those of a block included.
    selected: AtomicU32,
    /// The offset in the stream at which the session's input begins.
    begins_at: u64,
    /// The offset behind the last command that has ended, or behind the last block.
    done: AtomicU64,
    /// The master has asked how far its commands have come.
    is_asked: AtomicBool,
    /// The error of the command that was refused: no other one runs.
    refusal: Mutex<Option<String>>,
    /// The store has stopped a command, which may come again.
    is_stopped: AtomicBool,
}

impl Repeating {
    pub fn new(origin: &Origin, selection: &Selection) -> Repeating {
        Repeating {
            selection: (!selection.is_all()).then(|| selection.clone()),
            selected: AtomicU32::new(origin.database),
            repeated: Repeated::new(origin.stream, origin.offset),
            begins_at: origin.offset,
            done: AtomicU64::new(origin.offset),
            is_asked: AtomicBool::new(false),
            refusal: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Notes why the store has stopped a command.
    pub fn note_stop(&self, stop: &Stop) {
        if matches!(stop, Stop::Failed(_) | Stop::Refused(_)) {
            self.is_stopped.store(true, Ordering::Release);
        }
    }

    /// Whether the error that was noted says something of the server, and not of the command.
    pub fn is_refused_by_server(&self, error: &str) -> bool {
        self.is_stopped.load(Ordering::Acquire) || is_of_server(error)
    }

    /// Notes that a command begins which lies between these positions of the session's input. All before it has ended,
    /// unless it was `queued` in a block that this command belongs to.
    pub fn begin(&self, from: u64, through: u64, is_queued: bool) {
        if !is_queued {
            self.end(from);
        }
        self.repeated.begin(self.begins_at + through);
    }

    /// Notes that all has ended before this position of the session's input.
    pub fn end(&self, through: u64) {
        let before = self.done.swap(self.begins_at + through, Ordering::AcqRel);
        assert!(before <= self.begins_at + through, "what has ended never begins again");
    }

    /// Returns whether a command is to run. Commands are given in their order.
    pub fn select(&self, entry: &Entry, args: Args<'_>) -> Selected {
        match &self.selection {
            None => Selected::Runs,
            Some(selection) => select(selection, &self.selected, entry, args),
        }
    }

    /// Returns whether a command that is unknown here is to be refused.
    pub fn select_unknown(&self) -> Selected {
        let is_taken = |selection: &Selection| selection.has_database(self.selected.load(Ordering::Relaxed));
        if self.selection.as_ref().is_none_or(is_taken) { Selected::Runs } else { Selected::LeftOut }
    }

    /// Returns the offset in the stream through which all has ended.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    pub fn ask(&self) {
        self.is_asked.store(true, Ordering::Release);
    }

    /// Returns whether the master has asked since the last time.
    pub fn take_question(&self) -> bool {
        self.is_asked.swap(false, Ordering::AcqRel)
    }

    /// Notes the error of a command. The first one counts.
    pub fn refuse(&self, error: String) {
        lock(&self.refusal).get_or_insert(error);
    }

    /// Returns the error that was noted.
    pub fn take_refusal(&self) -> Option<String> {
        lock(&self.refusal).take()
    }
}

#[cold]
fn select(selection: &Selection, selected: &AtomicU32, entry: &Entry, args: Args<'_>) -> Selected {
    let (name, command) = (&*entry.full_name, entry.command);
    let in_database = selected.load(Ordering::Relaxed);
    // The command itself speaks of wrong numbers.
    let mut named = command.named_databases(args).map(|(_, database)| database);
    let (other, second) = (named.next(), named.next());
    if command.selects.is_some() {
        let first = (command.selects == Some(Selects::First)).then_some(0);
        if let Some(database) = first.or(other) {
            selected.store(database, Ordering::Relaxed);
        }
        return Selected::Runs;
    }
    if let (Some(one), Some(other)) = (other, second) {
        return across(selection, name, one, other);
    }
    let mut keys = command.keys(args).map(|(at, _)| selection.has_slot(slot_of(args.get(at)).0)).peekable();
    let Some(&first) = keys.peek() else {
        let is_of_database = command.touches_selected(args) || matches!(command.body, Body::Script(_));
        return if is_of_database && !selection.has_database(in_database) { Selected::LeftOut } else { Selected::Runs };
    };
    if let Some(other) = other.filter(|other| *other != in_database) {
        let across = across(selection, name, in_database, other);
        if across != Selected::Runs {
            return across;
        }
    }
    if !selection.has_database(in_database) {
        return Selected::LeftOut;
    }
    match (first, keys.all(|taken| taken == first)) {
        (true, true) => Selected::Runs,
        (false, true) => Selected::LeftOut,
        // Keys that are not taken are not there.
        _ if command.keys(args).all(|(_, spec)| spec.removes()) => Selected::Runs,
        _ => Selected::Refused(format!("{name} has keys of slots that `replicaof-slots` takes, and of others")),
    }
}

/// Returns what becomes of a command that moves keys from one database to another.
fn across(selection: &Selection, name: &str, one: u32, other: u32) -> Selected {
    match (selection.has_database(one), selection.has_database(other)) {
        (true, true) => Selected::Runs,
        (false, false) => Selected::LeftOut,
        _ => Selected::Refused(format!(
            "{name} is about databases {one} and {other}, of which `replicaof-databases` takes only one"
        )),
    }
}

/// The codes of errors that say something of the server, and nothing of the command.
const OF_SERVER: [&str; 8] =
    ["READONLY", "LOADING", "MASTERDOWN", "MISCONF", "OOM", "NOREPLICAS", "CLUSTERDOWN", "BUSY"];

/// Whether an error says that the server takes no command now, and so nothing of the command that it answers.
fn is_of_server(error: &str) -> bool {
    let why = error.strip_prefix("EXECABORT Transaction discarded because of: ").unwrap_or(error);
    let code = why.split(' ').next().unwrap_or_default();
    OF_SERVER.contains(&code) || why.ends_with("the server is stopping")
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use haypile_commands::Table;
    use haypile_resp::OwnedArgs;

    /// Returns what becomes of a line of words, behind the lines before.
    fn of(repeating: &Repeating, line: &str) -> Selected {
        let words: OwnedArgs = line.split(' ').map(str::as_bytes).collect();
        let table = Table::new();
        let args = Args::from(words.as_args());
        match table.lookup(args) {
            Some(entry) => repeating.select(entry, args),
            None => repeating.select_unknown(),
        }
    }

    #[test]
    fn commands_run_where_their_database_and_slots_are_taken() {
        let origin = Origin { stream: [0; 40], offset: 0, database: 3 };
        let selecting = |databases, slots| Repeating::new(&origin, &Selection::read(databases, slots));
        let some = selecting("0,3", "");
        for line in [
            "SET a 1",
            "SELECT 1",
            "PUBLISH c m",
            "FLUSHALL",
            "SELECT 0",
            "FLUSHDB",
            "COPY a b DB 3",
            "COPY db 2",
            "UNKNOWN a",
        ] {
            assert_eq!(of(&some, line), Selected::Runs, "{line}");
        }
        of(&some, "SELECT 1");
        for line in ["SET a 1", "FLUSHDB", "UNKNOWN a", "EVAL text 0", "MOVE a 2", "SWAPDB 2 1", "COPY a b DB 2"] {
            assert_eq!(of(&some, line), Selected::LeftOut, "{line}");
        }
        // Functions belong to no database.
        for line in ["SWAPDB x 1", "SWAPDB 1 x", "MOVE a x", "FLUSHALL", "FUNCTION FLUSH", "PING"] {
            assert_eq!(of(&some, line) == Selected::Runs, !line.starts_with("MOVE"), "{line}");
        }
        for line in ["SWAPDB 0 1", "MOVE a 3", "COPY a b REPLACE DB 0"] {
            assert!(matches!(of(&some, line), Selected::Refused(_)), "{line}");
        }
        // Slot 15495 is that of `a`, and 3300 that of `b`.
        let some = selecting("", "15495");
        for (line, expected) in
            [("SET a 1", true), ("SET b 1", false), ("MSET a 1 {a}b 2", true), ("DEL b a", true), ("UNLINK a b", true)]
        {
            assert_eq!(of(&some, line) == Selected::Runs, expected, "{line}");
        }
        assert!(matches!(of(&some, "MSET a 1 b 2"), Selected::Refused(_)));
        assert_eq!(of(&selecting("", ""), "MSET a 1 b 2"), Selected::Runs);
    }

    #[test]
    fn errors_of_the_server_are_told_from_those_of_a_command() {
        let full = "MISCONF Haypile cannot write: the disk is too far behind. Reads go on.";
        assert!(is_of_server(full) && is_of_server("READONLY You can't write against a read only replica."));
        assert!(is_of_server(&format!("EXECABORT Transaction discarded because of: {full}")));
        assert!(!is_of_server("WRONGTYPE Operation against a key holding the wrong kind of value"));
        assert!(!is_of_server("EXECABORT Transaction discarded because of previous errors."));
        assert!(!is_of_server("ERR unknown command 'x', with args beginning with: "));
    }
}
