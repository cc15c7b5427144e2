//! SUBSCRIBE and its relatives with very many names, and RESET with as many subscriptions: what is left to do
//! (`run::subscribing`).

use crate::clients::session::Session;
use haypile_commands::host::Channels;
use haypile_commands::table::Subscribes;
use haypile_commands::{CommandId, Entry};
use haypile_resp::{self as resp, OwnedArgs};
use std::time::Duration;

/// Names that are subscribed to, or not any more, in one turn: a tenth of a millisecond, and up to one where there are
/// hundreds of thousands.
pub(crate) const NAMES_AT_ONCE: usize = 256;

/// Subscriptions of a client that has gone, or of a RESET, that end at once at most.
pub(crate) const ENDED_AT_ONCE: usize = 64;

/// The time after which a step stops, of subscriptions that end and of messages that are delivered, however few there
/// were: their memory may not have been touched for long, and is slow then on virtual machines.
pub(crate) const STEP_TIME_MAX: Duration = Duration::from_millis(1);

/// The number of subscriptions that end between two looks at the clock.
pub(crate) const ENDED_BETWEEN_LOOKS: usize = 8;

/// A command whose names are not all done with.
pub(crate) enum Steps {
    /// SUBSCRIBE or a relative of it, with names.
    Names {
        command: CommandId,
        /// The command's name, then all others.
        words: OwnedArgs,
        /// The first name that is not done with.
        next: usize,
    },
    /// UNSUBSCRIBE or a relative of it, without names: all subscriptions of this kind end.
    All {
        command: CommandId,
        /// The command's name, as the client has written it.
        word: OwnedArgs,
        kind: Channels,
    },
    /// RESET: all subscriptions end, and then the rest is done.
    Reset,
}

impl Steps {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Steps::Names { words, .. } => words.memory_bytes(),
            Steps::All { word, .. } => word.memory_bytes(),
            Steps::Reset => 0,
        }
    }

    /// Returns the work of a command that takes several turns; `None` if one turn is enough.
    pub fn of(entry: &Entry, session: &Session, args: resp::Args<'_>) -> Option<Box<Steps>> {
        let names = args.len() - 1;
        // Few commands come so far.
        if names > 0 && names <= NAMES_AT_ONCE {
            return None;
        }
        let Subscribes { kind, ends } = entry.command.subscribes?;
        if names > 0 {
            return Some(Box::new(Steps::Names { command: entry.id, words: args.to_owned_args(), next: 1 }));
        }
        if !ends || session.state.subscriptions.of(kind).len() <= NAMES_AT_ONCE {
            return None;
        }
        let mut word = OwnedArgs::default();
        word.push(args.get(0));
        Some(Box::new(Steps::All { command: entry.id, word, kind }))
    }
}
