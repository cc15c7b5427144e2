//! The acts of a run, in order: what its commands ask for beside rows (`commands::host::Act`). CONFIG SET, CLIENT
//! PAUSE, CONFIG RESETSTAT and their like return an act, which is kept in the session's state; when the run has taken
//! effect, its acts are carried out, once.
//!
//! *Invariant:* nothing acts in a run that may be dropped. A run is dropped because it lacks rows or locks, or because
//! its block is discarded, and its state with it. What a command of a block reads of the server takes into account the
//! acts of the commands before it, as far as a reply shows them: CONFIG GET, SLOWLOG, LATENCY and CLIENT KILL do.

use haypile_acl::Users;
use haypile_commands::host::Act;
use haypile_config::{Draft, Settings};
use std::sync::Arc;

/// The acts of a run, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acts {
    /// The command under way, by its place in the block; 0 where there is none.
    command: usize,
    /// Each with the command that asked for it.
    pub acts: Vec<(usize, Act)>,
    /// The configuration as it will be, once some act changes it.
    draft: Option<Box<Draft>>,
    /// The users as they will be, once some act of a block changes them.
    users: Option<Arc<Users>>,
}

impl Acts {
    /// Acts noted from now on are those of a block's command at this place.
    pub fn begin_command(&mut self, at: usize) {
        self.command = at;
    }

    /// Adds an act of the command under way.
    ///
    /// # Errors
    /// CONFIG SET with a wrong value; the text of the reply.
    pub fn add(&mut self, settings: &Settings, act: Act) -> Result<(), String> {
        if let Act::SetConfig(pairs) = &act {
            let mut draft = self.draft.clone().unwrap_or_else(|| Box::new(settings.draft()));
            draft.set(&slices(pairs))?;
            self.draft = Some(draft);
        }
        self.acts.push((self.command, act));
        Ok(())
    }

    /// CONFIG GET, behind the CONFIG SETs of the same block.
    pub fn get_config(&self, settings: &Settings, patterns: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        match &self.draft {
            Some(draft) => draft.get(patterns),
            None => settings.get(patterns),
        }
    }

    /// The text of a script that one of the acts puts into the cache under this name, in digits of either case.
    pub fn loaded_script(&self, wanted: &[u8]) -> Option<&[u8]> {
        self.acts.iter().find_map(|(_, act)| match act {
            Act::LoadScript { name, text } if name.as_bytes().eq_ignore_ascii_case(wanted) => Some(&text[..]),
            _ => None,
        })
    }

    /// The users behind the changes of the same block.
    pub fn users(&self) -> Option<Arc<Users>> {
        self.users.clone()
    }

    pub fn set_users(&mut self, users: Users) {
        self.users = Some(Arc::new(users));
    }

    pub fn resets_denials(&self) -> bool {
        self.acts.iter().any(|(_, act)| matches!(act, Act::ResetDenials))
    }

    /// Whether an act closes this client.
    pub fn closes(&self, client: u64) -> bool {
        self.acts.iter().any(|(_, act)| matches!(act, Act::CloseClients(ids) if ids.contains(&client)))
    }

    pub fn resets_slowlog(&self) -> bool {
        self.acts.iter().any(|(_, act)| matches!(act, Act::ResetSlowlog))
    }

    pub fn resets_latency_of(&self, event: &str) -> bool {
        let resets = |act: &Act| match act {
            Act::ResetLatency(names) => names.is_empty() || names.iter().any(|name| name == event.as_bytes()),
            _ => false,
        };
        self.acts.iter().any(|(_, act)| resets(act))
    }
}

/// Names and values as slices.
pub(crate) fn slices(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<(&[u8], &[u8])> {
    pairs.iter().map(|(name, value)| (&name[..], &value[..])).collect()
}
