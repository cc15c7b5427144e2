//! Acts: what session commands do to the server beside rows. CONFIG SET, CLIENT PAUSE, CONFIG RESETSTAT and their like note
//! an act in the session's state; whoever ends the run carries the acts out, once.
//!
//! *Invariant:* nothing acts in a run that may be dropped. A run is dropped because it lacks rows or locks, or because its
//! block is discarded, and its state with it. What a command of a block reads of the server takes into account the acts of
//! the commands before it, as far as a reply shows them: CONFIG GET, SLOWLOG and LATENCY do.

use crate::clients::session::State;
use crate::engine::Engine;
use haypile_commands::Error;
use haypile_commands::host::Paused;
use haypile_config::{Draft, Settings};
use haypile_resp::Reply;
use std::sync::atomic::Ordering;

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
    acts: Vec<(usize, Act)>,
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

impl Act {
    /// # Errors
    /// The act has no effect; the error is the reply of its command.
    fn carry_out(self, engine: &Engine) -> Result<(), Error> {
        match self {
            Act::SetConfig(pairs) => {
                let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
                engine.log_changes(&engine.settings.set(&pairs).map_err(Error::text)?);
            }
            Act::RewriteConfig => return engine.rewrite_config(),
            Act::Pause { until_ms, what } => engine.attention.pause(until_ms, what, engine.now_ms()),
            Act::Unpause => engine.unpause(),
            Act::ResetStatistics => engine.reset_statistics(),
            Act::ResetSlowlog => engine.statistics.slowlog.reset(),
            Act::ResetLatency(names) => {
                let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                engine.statistics.monitor.reset(&names);
            }
            Act::SetActiveExpire(is_on) => engine.active_expire.store(is_on, Ordering::Relaxed),
            Act::LogLine(text) => tracing::warn!("DEBUG LOG: {}", text.escape_ascii()),
            Act::Crash(why) => panic!("DEBUG {why}: as asked for"),
            Act::ScheduleBackup => engine.schedule_backup(),
            Act::PurgeMemory => {
                let purged = (engine.process.allocator.purge)();
                return purged.map_err(|why| Error::text(format!("ERR Error purging dirty pages: {why}")));
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Carries out what a run that has taken effect asked for. An act that fails puts its error in the place of the reply, of
    /// a block in the place of its command's.
    #[inline]
    pub(crate) fn carry_out(&self, state: &mut State, reply: Reply, is_block: bool) -> Reply {
        if state.acts.acts.is_empty() { reply } else { self.carry_out_all(state, reply, is_block) }
    }

    #[cold]
    fn carry_out_all(&self, state: &mut State, mut reply: Reply, is_block: bool) -> Reply {
        for (command, act) in std::mem::take(&mut state.acts).acts {
            if let Err(error) = act.carry_out(self) {
                let failed = match &mut reply {
                    Reply::Array(replies) if is_block => replies.get_mut(command),
                    reply => Some(reply),
                };
                *failed.expect("a block has a reply for each of its commands") = error.into_reply();
            }
        }
        reply
    }
}
