//! SUBSCRIBE and its relatives with very many names: what is left to do (`run::subscribing`).

use crate::clients::session::Session;
use haypile_commands::table::Subscribes;
use haypile_commands::{CommandId, Entry};
use haypile_resp::{self as resp, OwnedArgs};

/// Names that are subscribed to, or not any more, in one turn: a tenth of a millisecond, and up to one where there are
/// hundreds of thousands.
pub(crate) const NAMES_AT_ONCE: usize = 256;

/// A command whose names are not all done with.
pub(crate) struct Steps {
    pub command: CommandId,
    /// The command's name, then all others.
    pub words: OwnedArgs,
    /// The first name that is not done with.
    pub next: usize,
}

impl Steps {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.words.memory_bytes()
    }

    /// Returns the work of a command that takes several turns; `None` if one turn is enough.
    pub fn of(entry: &Entry, session: &Session, args: resp::Args<'_>) -> Option<Box<Steps>> {
        let names = args.len() - 1;
        // Few commands come so far.
        if names > 0 && names <= NAMES_AT_ONCE {
            return None;
        }
        let Subscribes { kind, ends } = entry.command.subscribes?;
        let words = if names > 0 {
            args.to_owned_args()
        } else {
            let all = session.state.subscriptions.of(kind);
            if !ends || all.len() <= NAMES_AT_ONCE {
                return None;
            }
            let mut words = OwnedArgs::default();
            words.push(args.get(0));
            all.iter().for_each(|name| words.push(name));
            words
        };
        Some(Box::new(Steps { command: entry.id, words, next: 1 }))
    }
}
