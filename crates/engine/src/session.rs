//! A client's session: what it has chosen, what it has queued, and what it is waiting for.
//!
//! It belongs to one event loop and is no more than data: `execute` runs its commands, `host` lets session commands change
//! it. A session that waits holds the command that waits, so that nothing else of its connection can overtake it.

use crate::blocked::{Held, Unblock};
use crate::locks::Turn;
use crate::statistics::{Called, Moment, Owing, Timed};
use crate::watch::{Mark, Watched};
use haypile_commands::CommandId;
use haypile_commands::host::{Reload, Wait};
use haypile_log::Index;
use haypile_resp::{Limits, OwnedArgs, Parser, Protocol, ReplyPieces};
use haypile_store::Pins;
use std::sync::Arc;
use std::time::Duration;

/// What timers can measure.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// What session commands may change. EXEC runs them on a copy, which becomes the session's with the block's effects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub database: u32,
    pub protocol: Protocol,
    pub name: Vec<u8>,
    pub library_name: Vec<u8>,
    pub library_version: Vec<u8>,
    /// The connection ends after the reply.
    pub closing: bool,
    /// The client is on the same host.
    pub is_local: bool,
    /// The reply of the running command is held back.
    pub wait: Option<Wait>,
    /// The running command has the data opened again.
    pub reload: Option<Reload>,
}

/// One client's session.
pub struct Session {
    /// Unique among all sessions since the server started, rising.
    pub id: u64,
    pub(crate) state: State,
    pub(crate) parser: Parser,
    /// The version of the settings that the parser's limits come from.
    pub(crate) limits_version: u64,
    /// The newest record that a reply made so far depends on: none of them may leave before it is durable.
    pub(crate) gate: Index,
    /// MULTI was called.
    pub(crate) multi: Option<Box<Multi>>,
    pub(crate) watched: Vec<Watched>,
    /// There is one while something is watched.
    pub(crate) mark: Option<Arc<Mark>>,
    pub(crate) waiting: Waiting,
    /// How long the session's writes have still to wait because the flush is behind: many short times become one that a
    /// timer can measure.
    pub(crate) debt: Duration,
    /// What came back for the command that waits.
    pub(crate) event: Option<What>,
    /// When the I/O pool began what has come back, if it was there.
    pub(crate) begun: Option<Moment>,
    /// The times of the command that waits.
    pub(crate) timed: Option<Box<Timed>>,
    /// Commands whose replies wait for the log, in order.
    pub(crate) owing: Vec<Owing>,
    /// The rows that were loaded last, until the requests that came together with the one that lacked them have run.
    pub(crate) pins: Option<Box<Pins>>,
}

/// A transaction that is being queued.
#[derive(Default)]
pub(crate) struct Multi {
    pub commands: Vec<Queued>,
    /// Bytes of all queued arguments.
    pub bytes: usize,
    /// A command was refused when it came: EXEC refuses all.
    pub refused: bool,
}

/// A command of a block.
pub(crate) struct Queued {
    pub command: CommandId,
    pub args: OwnedArgs,
}

/// What the session's connection has to wait for before its next request is looked at.
#[derive(Default)]
pub(crate) enum Waiting {
    #[default]
    Nothing,
    /// A lock, its turn or some time; the command is here.
    Here(Box<Pending>),
    /// The I/O pool, which has the command.
    Pool,
    /// Its time, the log or somebody who lets it go; the reply is held back until then.
    Blocked(Box<Held>),
    /// A long reply: its next piece is to be asked for when the output has room.
    Stream(Box<ReplyPieces>),
    /// A long reply: the I/O pool is making its next piece.
    Piece,
}

/// A command that could not run to its end at once, with all it needs to run again.
pub(crate) struct Pending {
    pub work: Work,
    /// The same for each run.
    pub seed: u64,
    /// How often rows were loaded for it.
    pub loads: u32,
    /// It runs on the I/O pool under its locks next.
    pub long: bool,
    /// Whether it was called from a queue of the key locks.
    pub turn: Turn,
    /// The exclusion is held on its behalf.
    pub alone: bool,
    /// It has waited because of the write pressure once: that is its share.
    pub slowed: bool,
}

/// What runs as one transaction.
pub(crate) enum Work {
    Command(CommandId, OwnedArgs),
    Block(Box<Block>),
}

/// The commands between MULTI and EXEC, and the watched keys.
pub(crate) struct Block {
    pub commands: Vec<Queued>,
    pub watched: Vec<Watched>,
    pub mark: Option<Arc<Mark>>,
}

/// Something that a waiting session is told, through its event loop's inbox.
pub struct Event {
    /// The session's id.
    pub session: u64,
    pub(crate) what: What,
    /// When the I/O pool began with it, if it was there.
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
    /// To a blocked session: the log is further on the disk.
    Synced,
    /// To a blocked session: somebody has let it go.
    Unblocked(Unblock),
    /// A piece of a long reply; `None` where it could not be made.
    Piece { bytes: Vec<u8>, rest: Option<Box<ReplyPieces>>, failed: Option<String> },
}

/// What became of a command on the pool.
pub(crate) struct Finished {
    /// As the session's is to be.
    pub state: State,
    pub reply: haypile_resp::Reply,
    /// The newest record that the reply depends on.
    pub gate: Index,
    /// It was EXEC: the session watches nothing any more.
    pub was_block: bool,
    /// It had waited for a key lock.
    pub was_locked: bool,
    /// What a block has run.
    pub called: Vec<Called>,
}

impl Session {
    pub fn new(id: u64, limits: Limits, limits_version: u64) -> Self {
        Session {
            id,
            state: State::default(),
            parser: Parser::new(limits),
            limits_version,
            gate: Index(0),
            multi: None,
            watched: Vec::new(),
            mark: None,
            waiting: Waiting::Nothing,
            debt: Duration::ZERO,
            event: None,
            begun: None,
            timed: None,
            owing: Vec::new(),
            pins: None,
        }
    }

    /// Tells whether the client is on the same host.
    pub fn set_local(&mut self, is_local: bool) {
        self.state.is_local = is_local;
    }

    /// The newest record that a reply made so far depends on.
    #[inline]
    pub fn gate(&self) -> Index {
        self.gate
    }

    /// Hands over what the session waits for; `Worker::turn` goes on with it.
    pub fn deliver(&mut self, event: Event) {
        debug_assert_eq!(event.session, self.id);
        // The log speaks to whom it may concern: a session that has had its reply has no use for it, and must not lose
        // what it waits for now.
        let concerns_blocked = matches!(event.what, What::Synced);
        if !concerns_blocked || matches!(self.waiting, Waiting::Blocked(_)) && self.event.is_none() {
            (self.event, self.begun) = (Some(event.what), event.begun);
        }
    }

    /// The time that a slowed write had to wait is over.
    pub fn wake(&mut self) {
        self.event = Some(What::Retry);
    }

    /// Adds to what the session's writes have to wait; the whole of it, to be waited now, once it is worth a timer.
    pub(crate) fn owe(&mut self, wait: Duration) -> Option<Duration> {
        self.debt += wait;
        (self.debt >= SLEEP_MIN).then(|| std::mem::take(&mut self.debt))
    }

    /// Whether a command is under way elsewhere; its effects may still come.
    pub fn is_waiting(&self) -> bool {
        !matches!(self.waiting, Waiting::Nothing)
    }

    /// Whether there are commands that end when their replies leave: tell `Worker::on_left`.
    #[inline]
    pub fn is_owing(&self) -> bool {
        !self.owing.is_empty()
    }

    /// Where the client is, as SLOWLOG shows it.
    pub(crate) fn address(&self) -> &str {
        ""
    }

    /// Whether something was delivered that the next turn goes on with.
    pub fn has_event(&self) -> bool {
        self.event.is_some()
    }

    /// Whether its next requests are queued for EXEC.
    pub fn in_multi(&self) -> bool {
        self.multi.is_some()
    }

    /// How many bytes the rest of the request under way has at least, as its client claims.
    pub fn needed_bytes(&self) -> usize {
        self.parser.needed()
    }
}

impl Pending {
    pub fn new(work: Work, seed: u64) -> Box<Self> {
        Box::new(Pending { work, seed, loads: 0, long: false, turn: Turn::Newcomer, alone: false, slowed: false })
    }
}
