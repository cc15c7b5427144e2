//! `Host` for session commands: a session's state and the engine behind it.
//!
//! Nothing beyond that state changes: a run may be dropped, so what a command does to others is noted there, as an effect or
//! an act. Decides nothing: which state it works on (the session's own, or the copy that a block runs on) is up to who makes it.
//! What INFO shows is in `info`.

use crate::clients::acts::Act;
use crate::clients::blocked::Unblock;
use crate::clients::client::{Asker, USER};
use crate::clients::pubsub::{Audience, Change, Payload, STEPS_AT_ONCE};
use crate::clients::session::{Effect, State};
use crate::run::engine::Engine;
use crate::run::held_back;
use haypile_commands::host::{
    BackupBegun, Channels, ClientFilter, CommandTimes, ConfigError, DebugAccess, Host, InfoSection, LatencyEvent,
    Library, MemoryFacts, Paused, Reload, Replies, Shutdown, SlowCall, Wait,
};
use haypile_commands::{CommandId, Error, Result, Table};
use haypile_config::Protected;
use haypile_resp::{Protocol, Reply};
use haypile_store::{Stop, Txn};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Lines of CLIENT LIST that an event loop makes by itself: each takes some microseconds.
const LINES_AT_ONCE: u64 = 128;

/// Channels that an event loop looks at in one command.
const CHANNELS_AT_ONCE: usize = 4096;

/// A session command's view of its session and the server.
pub(crate) struct Desk<'a, 's> {
    pub engine: &'a Engine,
    pub session: u64,
    pub state: &'a mut State,
    /// The transaction that the command is part of, whose own keys count.
    pub txn: Option<&'a mut Txn<'s>>,
    /// The thread may wait for the disk: it is one of the I/O pool.
    pub may_wait: bool,
}

impl Host for Desk<'_, '_> {
    fn table(&self) -> &Table {
        &self.engine.table
    }

    fn client_id(&self) -> u64 {
        self.session
    }

    fn client_name(&self) -> &[u8] {
        &self.state.names.name
    }

    fn set_client_name(&mut self, name: &[u8]) {
        Arc::make_mut(&mut self.changing().names).name = name.to_vec();
    }

    fn set_library(&mut self, part: Library, value: &[u8]) {
        let names = Arc::make_mut(&mut self.changing().names);
        match part {
            Library::Name => names.library_name = value.to_vec(),
            Library::Version => names.library_version = value.to_vec(),
        }
    }

    fn protocol(&self) -> Protocol {
        self.state.protocol
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.changing().protocol = protocol;
    }

    fn has_password(&self) -> bool {
        !self.engine.settings.config().requirepass.is_empty()
    }

    fn has_user(&self, name: &[u8]) -> bool {
        name == USER.as_bytes()
    }

    fn authenticated(&self) -> bool {
        self.state.authenticated
    }

    fn authenticate(&mut self, user: &[u8], password: &[u8]) -> Result<()> {
        let config = self.engine.settings.config();
        // Where the default user needs no password, any will do, as in Redis.
        if self.has_user(user) && (config.requirepass.is_empty() || is_same(&config.requirepass, password)) {
            self.changing().authenticated = true;
            return Ok(());
        }
        Err(Error::text("WRONGPASS invalid username-password pair or user is disabled."))
    }

    fn now_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_micros() as u64)
    }

    fn databases(&self) -> u32 {
        self.engine.databases
    }

    fn wait(&mut self, wait: Wait) -> Reply {
        if self.txn.is_some() {
            return held_back::reply_at_once(self.engine, wait);
        }
        self.state.wait = Some(wait);
        Reply::None
    }

    fn debug_access(&self) -> DebugAccess {
        match self.engine.settings.config().debug_command {
            Protected::No => DebugAccess::No,
            Protected::Yes => DebugAccess::Yes,
            Protected::Local => DebugAccess::Local,
        }
    }

    fn is_local(&self) -> bool {
        self.state.is_local
    }

    fn in_transaction(&mut self, run: &mut dyn FnMut(&mut Txn<'_>) -> Result<Reply>) -> Result<Reply> {
        match &mut self.txn {
            Some(txn) => run(txn),
            None => Err(Error::Stop(Stop::Long)),
        }
    }

    fn set_active_expire(&mut self, is_on: bool) {
        self.state.acts.add(Act::SetActiveExpire(is_on));
    }

    fn log_line(&mut self, text: &[u8]) {
        self.state.acts.add(Act::LogLine(text.to_vec()));
    }

    fn crash(&mut self, why: &str) {
        self.state.acts.add(Act::Crash(why.into()));
    }

    fn fill_secret(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("a running system has random numbers");
    }

    fn has_disk(&self) -> bool {
        self.engine.settings.config().engine != haypile_config::Engine::Memory
    }

    fn select(&mut self, index: u32) {
        self.state.database = index;
        if let Some(txn) = &mut self.txn {
            txn.select(index);
        }
    }

    fn close_after_reply(&mut self) {
        self.state.closing = true;
    }

    fn set_replies(&mut self, replies: Replies) {
        let now = self.state.replies;
        // Who gets no replies at all skips none.
        if !(replies == Replies::SkipNext && now == Replies::Off) {
            self.state.replies = replies;
        }
    }

    fn set_no_evict(&mut self, on: bool) {
        self.state.no_evict = on;
    }

    fn set_no_touch(&mut self, on: bool) {
        self.state.no_touch = on;
        if let Some(txn) = &mut self.txn {
            txn.set_touching(!on);
        }
    }

    fn monitor(&mut self) -> Result<bool> {
        if self.txn.is_some() {
            return Err(Error::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
        }
        Ok(!std::mem::replace(&mut self.changing().monitors, true))
    }

    fn clients(&mut self, filter: &ClientFilter) -> Result<String> {
        let engine = self.engine;
        // Without data there is no I/O pool yet.
        let is_long = filter.ids.is_none() && engine.connected() > LINES_AT_ONCE && engine.store().is_some();
        if is_long && !self.may_wait {
            return Err(Error::Stop(Stop::Long));
        }
        let asker = Asker { id: self.session, names: &self.state.names };
        Ok(engine.clients.list(filter, asker, &engine.table, engine.now_ms()))
    }

    fn kill_clients(&mut self, filter: &ClientFilter) -> usize {
        let mut clients = self.engine.clients.find(filter, self.session);
        // Who is closed by an earlier command of the same block is not found again.
        let closed = |effect: &Effect| if let Effect::Close(closed) = effect { Some(closed.id) } else { None };
        let closed: HashSet<u64> = self.state.effects.iter().filter_map(closed).collect();
        clients.retain(|client| !closed.contains(&client.id));
        let count = clients.len();
        for client in clients {
            match client.id == self.session {
                true => self.state.closing = true,
                false => self.changing().effects.push(Effect::Close(client)),
            }
        }
        count
    }

    fn pause(&mut self, until_ms: u64, what: Paused) {
        self.state.acts.add(Act::Pause { until_ms, what });
    }

    fn unpause(&mut self) {
        self.state.acts.add(Act::Unpause);
    }

    fn unblock(&mut self, client: u64, with_error: bool) -> bool {
        let how = if with_error { Unblock::Error } else { Unblock::Timeout };
        if self.txn.is_none() {
            return self.engine.unblock(client, how);
        }
        // A block may have to run again, and is to answer the same.
        let is_blocked = self.engine.is_blocked(client);
        if is_blocked {
            self.changing().effects.push(Effect::Unblock(client, how));
        }
        is_blocked
    }

    fn is_bound_to_channels(&self) -> bool {
        self.state.is_bound()
    }

    fn is_in_block(&self) -> bool {
        self.txn.is_some()
    }

    fn subscriptions(&self, kind: Channels) -> Vec<Arc<[u8]>> {
        self.state.subscriptions.of(kind).iter().cloned().collect()
    }

    fn subscription_count(&self, kind: Channels) -> usize {
        self.state.subscriptions.count(kind)
    }

    fn subscribe(&mut self, kind: Channels, name: &[u8]) -> usize {
        if !self.state.subscriptions.of(kind).contains(name) {
            let (name, state) = (Arc::<[u8]>::from(name), self.changing());
            Arc::make_mut(&mut state.subscriptions).insert(kind, name.clone());
            state.effects.push(Effect::Subscription(Change { kind, name, subscribed: true }));
        }
        self.state.subscriptions.count(kind)
    }

    fn unsubscribe(&mut self, kind: Channels, name: &[u8]) -> usize {
        if self.state.subscriptions.of(kind).contains(name) {
            let state = self.changing();
            Arc::make_mut(&mut state.subscriptions).remove(kind, name);
            let change = Change { kind, name: name.into(), subscribed: false };
            state.effects.push(Effect::Subscription(change));
        }
        self.state.subscriptions.count(kind)
    }

    fn publish(&mut self, kind: Channels, channel: &[u8], message: &[u8]) -> Result<usize> {
        // Without data there is no I/O pool yet.
        let may_take_long = self.may_wait || self.engine.store().is_none();
        let steps = if may_take_long { u64::MAX } else { STEPS_AT_ONCE };
        let Some(mut audience) = self.engine.pubsub.audience(kind, channel, steps) else {
            return Err(Error::Stop(Stop::Long));
        };
        let count = self.add_own(kind, channel, &mut audience);
        let (channel, payload) = (channel.into(), Payload::bulk(message, &self.engine.client_memory));
        self.changing().effects.push(Effect::Publish { kind, channel, payload, audience });
        Ok(count)
    }

    fn channels(&self, kind: Channels) -> Result<Vec<Arc<[u8]>>> {
        let is_long = self.engine.pubsub.count(kind) > CHANNELS_AT_ONCE && self.engine.store().is_some();
        if is_long && !self.may_wait {
            return Err(Error::Stop(Stop::Long));
        }
        Ok(self.engine.pubsub.channels(kind))
    }

    fn subscribers(&self, kind: Channels, name: &[u8]) -> usize {
        self.engine.pubsub.subscribers(kind, name)
    }

    fn patterns(&self) -> usize {
        self.engine.pubsub.count(Channels::Pattern)
    }

    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, String)> {
        let found = self.state.acts.get_config(&self.engine.settings, patterns).into_iter();
        found.map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned())).collect()
    }

    fn config_set(&mut self, pairs: &[(&[u8], &[u8])]) -> std::result::Result<(), ConfigError> {
        self.state.acts.set_config(&self.engine.settings, pairs).map_err(config_error)
    }

    fn config_rewrite(&mut self) -> Result<()> {
        if self.engine.process.config_file.is_none() {
            return Err(without_file());
        }
        if !self.may_wait {
            return Err(Error::Stop(Stop::Long));
        }
        self.state.acts.add(Act::RewriteConfig);
        Ok(())
    }

    fn memory(&self) -> MemoryFacts {
        self.engine.memory_facts(self.txn.as_deref())
    }

    fn allocator_report(&self) -> String {
        (self.engine.process.allocator.report)()
    }

    fn purge_memory(&mut self) -> Result<()> {
        if !self.may_wait {
            return Err(Error::Stop(Stop::Long));
        }
        self.state.acts.add(Act::PurgeMemory);
        Ok(())
    }

    fn reset_statistics(&mut self) {
        self.state.acts.add(Act::ResetStatistics);
    }

    fn reload(&mut self, how: Reload) -> Result<()> {
        if self.txn.is_some() {
            return Err(Error::text("ERR data cannot be opened again inside a transaction"));
        }
        self.state.reload = Some(how);
        Ok(())
    }

    fn begin_backup(&mut self) -> Result<BackupBegun> {
        if self.txn.is_none() {
            return self.engine.begin_backup();
        }
        self.engine.can_begin_backup()?;
        self.state.acts.add(Act::ScheduleBackup);
        Ok(BackupBegun::Later)
    }

    fn last_backup_s(&self) -> u64 {
        self.engine.backups.last_s()
    }

    fn slowlog(&self, count: usize) -> Vec<SlowCall> {
        if self.state.acts.resets_slowlog() { Vec::new() } else { self.engine.statistics.slowlog.newest(count) }
    }

    fn slowlog_len(&self) -> usize {
        if self.state.acts.resets_slowlog() { 0 } else { self.engine.statistics.slowlog.len() }
    }

    fn reset_slowlog(&mut self) {
        self.state.acts.add(Act::ResetSlowlog);
    }

    fn latency_events(&self) -> Vec<LatencyEvent> {
        let mut events = self.engine.statistics.monitor.events();
        events.retain(|event| !self.state.acts.resets_latency_of(event.name));
        events
    }

    fn reset_latency(&mut self, names: &[&[u8]]) -> usize {
        let is_named = |event: &LatencyEvent| names.is_empty() || names.contains(&event.name.as_bytes());
        let count = self.latency_events().into_iter().filter(is_named).count();
        self.state.acts.add(Act::ResetLatency(names.iter().map(|name| name.to_vec()).collect()));
        count
    }

    fn command_times(&self, id: CommandId) -> Option<CommandTimes> {
        (self.engine.pages.command_times)(self.engine, id)
    }

    fn info_sections(&self) -> &'static [InfoSection] {
        self.engine.pages.sections
    }

    fn info(&self, section: &str, out: &mut String) {
        (self.engine.pages.write)(self.engine, self.txn.as_deref(), section, out);
    }

    fn shutdown(&mut self, how: Shutdown) -> Result<()> {
        self.engine.request_shutdown(how)
    }

    fn abort_shutdown(&mut self) -> Result<()> {
        Err(Error::text("ERR No shutdown in progress."))
    }
}

fn without_file() -> Error {
    Error::text("ERR The server is running without a config file")
}

impl Engine {
    /// CONFIG REWRITE, on a thread that may wait for the disk.
    pub(crate) fn rewrite_config(&self) -> Result<()> {
        let file = self.process.config_file.as_ref().ok_or_else(without_file)?;
        match self.settings.rewrite(file) {
            Ok(()) => {
                tracing::info!("CONFIG REWRITE has written {}", file.display());
                Ok(())
            }
            Err(why) => {
                tracing::warn!("CONFIG REWRITE failed: {why}");
                Err(Error::text(format!("ERR Rewriting config file: {why}")))
            }
        }
    }
}

impl Desk<'_, '_> {
    /// The state, for a change that others are to see.
    fn changing(&mut self) -> &mut State {
        self.state.changed = true;
        self.state
    }

    /// Adds to an audience what the client has subscribed to and ended in the block under way; how many get the message.
    fn add_own(&self, kind: Channels, channel: &[u8], audience: &mut Audience) -> usize {
        let mut ended = 0;
        for effect in &self.state.effects {
            let Effect::Subscription(Change { kind: of, name, subscribed }) = effect else { continue };
            let gets = match (kind, of) {
                (Channels::Plain, Channels::Pattern) => haypile_config::glob::matches(name, channel, false),
                _ => kind == *of && **name == *channel,
            };
            match (gets, subscribed, self.engine.clients.get(self.session)) {
                (true, true, Some(client)) => audience.add_new(*of, name, client.worker),
                (true, false, _) => ended += 1,
                _ => {}
            }
        }
        audience.count.saturating_sub(ended)
    }
}

/// Compares in a time that does not tell where they differ.
fn is_same(right: &[u8], given: &[u8]) -> bool {
    let differing = right.iter().zip(given).fold(0, |bits, (a, b)| bits | (a ^ b));
    right.len() == given.len() && std::hint::black_box(differing) == 0
}

/// The settings answer with the whole text of the reply; the command makes it from its parts.
fn config_error(text: String) -> ConfigError {
    let parts = text
        .strip_prefix("ERR CONFIG SET failed (possibly related to argument '")
        .and_then(|rest| rest.split_once("') - "));
    match parts {
        Some((name, reason)) => ConfigError::Refused { name: name.into(), reason: reason.into() },
        None => {
            ConfigError::Unknown(text.rsplit_once("- '").map_or("", |(_, name)| name.trim_end_matches('\'')).into())
        }
    }
}
