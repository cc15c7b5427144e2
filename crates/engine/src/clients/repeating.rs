//! The facts of the session in which the commands of a master run that is no Haypile: where in its stream each command
//! lies, and which one was refused.

use crate::sync::{Mutex, lock};
use haypile_store::{Origin, Repeated, Stop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the file's head. Shared by the session and the threads that run its commands.
#[derive(Debug)]
pub(crate) struct Repeating {
    pub repeated: Repeated,
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
    pub fn new(origin: &Origin) -> Repeating {
        Repeating {
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

/// The codes of errors that say something of the server, and nothing of the command.
const OF_SERVER: [&str; 8] =
    ["READONLY", "LOADING", "MASTERDOWN", "MISCONF", "OOM", "NOREPLICAS", "CLUSTERDOWN", "BUSY"];

/// Whether an error says that the server takes no command now, and so nothing of the command that it answers.
fn is_of_server(error: &str) -> bool {
    let why = error.strip_prefix("EXECABORT Transaction discarded because of: ").unwrap_or(error);
    let code = why.split(' ').next().unwrap_or_default();
    OF_SERVER.contains(&code) || why.ends_with("the server is stopping")
}

#[cfg(test)]
mod tests {
    use super::*;

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
