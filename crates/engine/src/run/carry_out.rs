//! Acts are carried out when the run that asked for them has taken effect (`clients::acts`).

use crate::clients::acts::slices;
use crate::clients::blocked::Unblock;
use crate::clients::session::State;
use crate::run::engine::Engine;
use crate::run::replication::facts::Master;
use crate::run::scripts::running::Kind;
use crate::run::users::fresh_rights;
use haypile_commands::Error;
use haypile_commands::host::Act;
use haypile_commands::wrong_rule;
use haypile_resp::Reply;
use std::sync::atomic::Ordering;

impl Engine {
    /// Carries out what a run that has taken effect asked for. An act whose outcome differs from what its command
    /// answered puts another reply in that one's place, in a block in the place of its command's.
    #[inline]
    pub(crate) fn carry_out(&self, client: u64, state: &mut State, reply: Reply, is_block: bool) -> Reply {
        if state.acts.acts.is_empty() { reply } else { self.carry_out_all(client, state, reply, is_block) }
    }

    #[cold]
    fn carry_out_all(&self, client: u64, state: &mut State, mut reply: Reply, is_block: bool) -> Reply {
        for (command, act) in std::mem::take(&mut state.acts).acts {
            let promotes = matches!(act, Act::Follow(None));
            let outcome = match act {
                act if act.is_about_users() => self.carry_out_for_users(act, client, state).map(|()| None),
                act => self.carry_out_one(act, is_block),
            };
            if let Some(other) = outcome.unwrap_or_else(|error| Some(error.into_reply())) {
                let place = match &mut reply {
                    Reply::Array(replies) if is_block => replies.get_mut(command),
                    reply => Some(reply),
                };
                *place.expect("a block has a reply for each of its commands") = other;
            } else if promotes && !reply.has_stream() {
                // The data may have to be opened again for it, which waits for the end of such a reply.
                state.wait = self.promotion();
            }
        }
        reply
    }

    /// Carries out one act. Returns the reply of its command where the outcome differs from what the command answered.
    ///
    /// # Errors
    /// The act has no effect; the error is the reply of its command.
    fn carry_out_one(&self, act: Act, is_block: bool) -> Result<Option<Reply>, Error> {
        match act {
            Act::SetConfig(pairs) => {
                self.log_changes(&self.settings.set(&slices(&pairs)).map_err(Error::text)?);
                // Directives about a lost master and missing replicas hold at once.
                self.look_at_link();
                self.look_at_replicas();
            }
            Act::RewriteConfig => self.rewrite_config()?,
            Act::Pause { until_ms, what } => self.checks.pause(until_ms, what, self.now_ms()),
            Act::Unpause => self.unpause(),
            Act::Unblock { client, with_error } => {
                let how = if with_error { Unblock::Error } else { Unblock::Timeout };
                return Ok((!self.unblock(client, how)).then_some(Reply::Integer(0)));
            }
            Act::CloseClients(ids) => {
                let clients = ids.into_iter().filter_map(|id| self.clients.get(id));
                clients.for_each(|client| self.close_client(&client));
            }
            Act::ResetStatistics => self.reset_statistics(),
            Act::ResetLog(log) => self.statistics.log(log).reset(),
            Act::ResetLatency(names) => {
                let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                self.statistics.monitor.reset(&names);
            }
            Act::SetActiveExpire(is_on) => self.active_expire.store(is_on, Ordering::Relaxed),
            Act::SetReplyAge(age_max) => {
                if let Some(store) = self.store() {
                    store.set_view_age_max(age_max);
                }
            }
            Act::LogLine(text) => tracing::warn!("DEBUG LOG: {}", text.escape_ascii()),
            Act::Crash(why) => panic!("DEBUG {why}: as asked for"),
            Act::BeginBackup if is_block => self.schedule_backup(),
            Act::BeginBackup => self.begin_backup()?,
            Act::BeginArchiveBackup => self.archiving.begin_backup()?,
            Act::Compact(databases) => self.compact(databases.as_deref()),
            Act::PurgeMemory => (self.process.allocator.purge)()
                .map_err(|why| Error::text(format!("ERR Error purging dirty pages: {why}")))?,
            Act::Follow(master) => return self.follow(master.map(|(host, port)| Master { host, port })),
            Act::FollowAnew { host, port } => self.follow_anew(Master { host, port })?,
            Act::LoadScript { text, .. } => self.scripts.load(&text),
            Act::FlushScripts => self.scripts.flush(),
            Act::KillScripts => self.scripts.running.kill(Kind::Script)?,
            Act::KillFunctions => self.scripts.running.kill(Kind::Function)?,
            Act::Failover(wanted) => self.begin_failover(&wanted)?,
            Act::AbortFailover => self.abort_failover()?,
            Act::Shutdown(how) => self.request_shutdown(how)?,
            Act::AbortShutdown => return Err(Error::text("ERR No shutdown in progress.")),
            Act::Session(_) | Act::Publish { .. } => unreachable!("the session's state has these"),
            Act::Reload(_) | Act::Order(_) | Act::Wait(_) => unreachable!("the session waits for these itself"),
            act => unreachable!("{act:?} is about users"),
        }
        Ok(None)
    }

    /// Carries out one act about users.
    ///
    /// # Errors
    /// The act has no effect; the error is the reply of its command.
    fn carry_out_for_users(&self, act: Act, client: u64, state: &mut State) -> Result<(), Error> {
        match act {
            Act::SetUser { name, rules } => self.change_users(Some((client, state)), |users| {
                let fresh = fresh_rights(&self.settings.config());
                let user = users
                    .with_rules(&name, &rules, self.accounts.catalog(), fresh)
                    .map_err(|(at, wrong)| wrong_rule(&rules[at], wrong))?;
                users.put(user);
                Ok(())
            }),
            Act::DeleteUsers(names) => self.change_users(Some((client, state)), |users| {
                names.iter().for_each(|name| _ = users.remove(name));
                Ok(())
            }),
            Act::LoadUsers => self.load_users(client, state),
            Act::SaveUsers => self.save_users(),
            Act::NoteDenial(denial, count) => {
                self.note_denial(client, state, denial, count);
                Ok(())
            }
            Act::ResetDenials => {
                self.accounts.reset_denials();
                Ok(())
            }
            act => unreachable!("{act:?} is not about users"),
        }
    }
}
