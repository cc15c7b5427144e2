//! Acts: what session commands do to the server beside rows. CONFIG SET, CLIENT PAUSE, CONFIG RESETSTAT and their like note
//! an act in the session's state; whoever ends the run carries the acts out, once.
//!
//! *Invariant:* nothing acts in a run that may be dropped. A run is dropped because it lacks rows or locks, or because its
//! block is discarded, and its state with it. What a command of a block reads of the server takes into account the acts of
//! the commands before it, as far as a reply shows them: CONFIG GET, SLOWLOG and LATENCY do.

use haypile_commands::host::Paused;
use haypile_config::{Draft, Settings};

/// One change of the server that a command asks for.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    SetConfig(Vec<(Vec<u8>, Vec<u8>)>),
    /// Writes the configuration file: on the I/O pool.
    RewriteConfig,
    Pause {
        until_ms: u64,
        what: Paused,
    },
    Unpause,
    ResetStatistics,
    ResetSlowlog,
    /// Forgets the events of these names, or all if none is named.
    ResetLatency(Vec<Vec<u8>>),
    SetActiveExpire(bool),
    /// DEBUG LOG.
    LogLine(Vec<u8>),
    /// DEBUG SEGFAULT, PANIC and their like.
    Crash(String),
    ScheduleBackup,
    /// Has the allocator give back memory: on the I/O pool.
    PurgeMemory,
}

/// The acts of a run, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acts {
    /// The command under way, by its place in the block; 0 where there is none.
    command: usize,
    /// Each with the command that asked for it.
    pub acts: Vec<(usize, Act)>,
    /// The configuration as it will be, once some act changes it.
    draft: Option<Box<Draft>>,
}

impl Acts {
    /// Acts noted from now on are those of a block's command at this place.
    pub fn begin_command(&mut self, at: usize) {
        self.command = at;
    }

    pub fn add(&mut self, act: Act) {
        self.acts.push((self.command, act));
    }

    /// Notes a CONFIG SET, if its values are right.
    ///
    /// # Errors
    /// The text of the reply.
    pub fn set_config(&mut self, settings: &Settings, pairs: &[(&[u8], &[u8])]) -> Result<(), String> {
        let mut draft = self.draft.clone().unwrap_or_else(|| Box::new(settings.draft()));
        draft.set(pairs)?;
        self.draft = Some(draft);
        self.add(Act::SetConfig(pairs.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()));
        Ok(())
    }

    /// CONFIG GET, behind the CONFIG SETs of the same block.
    pub fn get_config(&self, settings: &Settings, patterns: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        match &self.draft {
            Some(draft) => draft.get(patterns),
            None => settings.get(patterns),
        }
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
