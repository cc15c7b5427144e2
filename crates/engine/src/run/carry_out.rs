//! Acts are carried out when the run that noted them has taken effect (`clients::acts`).

use crate::clients::acts::Act;
use crate::clients::session::State;
use crate::run::engine::Engine;
use haypile_commands::Error;
use haypile_resp::Reply;
use std::sync::atomic::Ordering;

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
