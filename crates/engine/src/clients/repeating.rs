//! The facts of the session in which the commands of a master run that is no Haypile: where in its stream each command
//! lies, and which one was refused.

use crate::sync::lock;
use haypile_store::{Origin, Repeated};
use std::sync::Mutex;
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
}

impl Repeating {
    pub fn new(origin: &Origin) -> Repeating {
        Repeating {
            repeated: Repeated::new(origin.stream, origin.offset),
            begins_at: origin.offset,
            done: AtomicU64::new(origin.offset),
            is_asked: AtomicBool::new(false),
            refusal: Mutex::default(),
        }
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

    pub fn take_refusal(&self) -> Option<String> {
        lock(&self.refusal).take()
    }
}
