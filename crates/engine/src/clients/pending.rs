//! A command or block that could not run to its end at once, and what its session hears of it.

use crate::clients::blocked::Unblock;
use crate::clients::client_memory::Counted;
use crate::clients::parted_list::PartedList;
use crate::clients::session::State;
use crate::clients::statistics::{Called, Moment};
use crate::keys::gate::StoreGate;
use crate::keys::locks::Turn;
use crate::keys::waiters::Waiter;
use crate::keys::watch::Watching;
use haypile_commands::CommandId;
use haypile_resp::{OwnedArgs, ReplyPieces};
use haypile_store::{Lacking, Pins};
use std::sync::Arc;
use std::time::Instant;

/// A command that could not run to its end at once, with all it needs to run again.
pub(crate) struct Pending {
    pub work: Work,
    /// Bytes that this takes.
    pub bytes: usize,
    /// The seed of random choices, the same in each run.
    pub seed: u64,
    /// The number of times that rows were loaded for the command.
    pub loads: u32,
    /// The next run is on the I/O pool, under its locks.
    pub long: bool,
    /// The turn of the command among those that want its keys: whether a queue of the key locks called it.
    pub turn: Turn,
    /// The command reads more than one row, or one that is about to be changed together with others.
    pub needs_locks: bool,
    /// The exclusion is held on its behalf.
    pub exclusive: bool,
    /// The command has waited in a write stall once: that is its share.
    pub slowed: bool,
    /// Keys that it needs beyond what its arguments say, as an earlier run has found.
    pub more: Vec<Lacking>,
    /// The next run is exclusive, whatever its arguments say.
    pub needs_exclusion: bool,
    /// Runs on its event loop that lacked keys.
    pub again: u32,
    /// Runs on the I/O pool that lacked keys.
    pub lacked: u32,
}

impl Pending {
    pub fn new(work: Work, seed: u64) -> Box<Self> {
        let (turn, more, bytes) = (Turn::Newcomer, Vec::new(), size_of::<Pending>() + work.bytes());
        Box::new(Pending {
            work,
            bytes,
            seed,
            loads: 0,
            long: false,
            turn,
            needs_locks: false,
            exclusive: false,
            slowed: false,
            more,
            needs_exclusion: false,
            again: 0,
            lacked: 0,
        })
    }
}

/// A command or a block, which runs as one transaction.
pub(crate) enum Work {
    Command(CommandId, OwnedArgs),
    /// A command that has waited for its keys and is run again: until the deadline, if there is one, it waits on.
    Again(CommandId, OwnedArgs, Option<Instant>),
    Block(Box<Block>),
}

/// A command of a block.
pub(crate) struct Queued {
    pub command: CommandId,
    pub args: OwnedArgs,
}

/// The commands between MULTI and EXEC, and the watched keys.
pub(crate) struct Block {
    pub commands: PartedList<Queued>,
    pub watching: Option<Arc<Watching>>,
}

impl Block {
    /// Returns whether the block's commands have more arguments than this, the watched keys included.
    pub fn is_longer_than(&self, arguments: usize) -> bool {
        let watched = self.watching.as_ref().map_or(0, |watching| watching.len());
        let Some(left) = arguments.checked_sub(watched) else { return true };
        self.commands.iter().try_fold(left, |left, queued| left.checked_sub(queued.args.as_args().len())).is_none()
    }
}

/// Something that a waiting session is told, through its event loop's inbox.
pub struct Event {
    /// The session's id.
    pub session: u64,
    pub(crate) what: What,
    /// The moment when the I/O pool began with the event's command, if it was there.
    pub(crate) begun: Option<Moment>,
}

pub(crate) enum What {
    /// Try again: a lock or the way in is free, or the time is over.
    Retry,
    /// The exclusion is held on the command's behalf.
    Granted,
    /// Rows were loaded, or the command is found to take long.
    Loaded(Box<Pending>, Pins),
    /// The pool has run the command.
    Finished(Box<Finished>),
    /// The pool has changed what the session watches.
    Watching(Option<Arc<Watching>>),
    /// A blocked session looks again: the log is further on the disk, or something has ended its wait for keys.
    Look,
    /// A blocked session goes on, because somebody has let it go.
    Unblocked(Unblock),
    /// A piece of a long reply; `None` where it could not be made.
    Piece { bytes: Vec<u8>, rest: Option<Box<ReplyPieces>>, failed: Option<String> },
}

/// The outcome of a command on the I/O pool.
pub(crate) struct Finished {
    /// The session's state after the command.
    pub state: State,
    pub reply: haypile_resp::Reply,
    /// The newest record that the reply depends on.
    pub gate: StoreGate,
    /// The command was EXEC: the session watches nothing any more.
    pub was_block: bool,
    /// The command had waited for a key lock.
    pub was_locked: bool,
    /// The commands that a block has run.
    pub called: Vec<Called>,
    /// The command has found nothing, and waits for its keys.
    pub waiter: Option<Arc<Waiter>>,
    /// The bytes of a long reply, counted until its event loop has taken it.
    pub counted: Option<Counted>,
}

impl Finished {
    /// Makes the outcome of a command that has this reply and nothing else to tell.
    pub fn plain(state: State, reply: haypile_resp::Reply) -> Finished {
        Finished {
            state,
            reply,
            gate: StoreGate::default(),
            was_block: false,
            was_locked: false,
            called: Vec::new(),
            waiter: None,
            counted: None,
        }
    }
}
