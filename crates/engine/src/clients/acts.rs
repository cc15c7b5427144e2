//! The acts of a run, in order: what its commands ask for beside rows (`commands::host::Act`). CONFIG SET, CLIENT
//! PAUSE, CONFIG RESETSTAT and their like return an act, which is kept in the session's state; when the run has taken
//! effect, its acts are carried out, once.
//!
//! *Invariant:* nothing acts in a run that may be dropped. A run is dropped because it lacks rows or locks, or because
//! its block is discarded, and its state with it. What a command of a block reads of the server takes into account the
//! acts of the commands before it, as far as a reply shows them: CONFIG GET, SLOWLOG, LATENCY and CLIENT KILL do.

use haypile_acl::{Denial, Users};
use haypile_commands::host::{Act, CommandLog};
use haypile_config::{Draft, Settings};
use std::sync::Arc;

/// Denials of a run from which on they are only counted: more than ACL LOG keeps, by default.
const DENIALS_MAX: usize = 1024;

/// The acts of a run, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acts {
    /// The command under way, by its place in the block; 0 where there is none.
    command: usize,
    /// The acts, each with the number of the command that asked for it.
    pub acts: Vec<(usize, Act)>,
    /// The configuration as it will be, once some act changes it.
    draft: Option<Box<Draft>>,
    /// The users as they will be, once some act of a block changes them.
    users: Option<Arc<Users>>,
    /// Calls of scripts that were denied.
    denials: usize,
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

    /// Adds a denial. Those that are the same as the last one are counted with it, and so are those of a run that has
    /// very many.
    pub fn add_denial(&mut self, denial: Denial) {
        self.denials += 1;
        if let Some((_, Act::NoteDenial(last, count))) = self.acts.last_mut()
            && (*last == denial || self.denials > DENIALS_MAX)
        {
            *count += 1;
            return;
        }
        self.acts.push((self.command, Act::NoteDenial(denial, 1)));
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

    pub fn resets_log(&self, log: CommandLog) -> bool {
        self.acts.iter().any(|(_, act)| matches!(act, Act::ResetLog(other) if *other == log))
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

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use haypile_acl::Reason;
    use haypile_acl::log::Context;

    #[test]
    fn the_denials_of_a_run_are_bounded_and_all_are_counted() {
        let mut acts = Acts::default();
        let denial = |key: &str| Denial::new(Reason::Key, Context::Script, key.as_bytes(), b"u");
        let counts = |acts: &Acts| -> Vec<u64> {
            let count = |(_, act): &(usize, Act)| match act {
                Act::NoteDenial(_, count) => *count,
                act => unreachable!("{act:?}"),
            };
            acts.acts.iter().map(count).collect()
        };
        for key in ["a", "a", "b", "a"] {
            acts.add_denial(denial(key));
        }
        assert_eq!(counts(&acts), [2, 1, 1]);
        (0..10_000).for_each(|number| acts.add_denial(denial(&number.to_string())));
        assert!(acts.acts.len() <= DENIALS_MAX);
        assert_eq!(counts(&acts).iter().sum::<u64>(), 10_004);
    }
}
