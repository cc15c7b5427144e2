//! `Host` for session commands: a session's state and the engine behind it.
//!
//! Decides nothing: which state it works on (the session's own, or the copy that a block runs on) is up to who makes it.
//! What INFO shows is in `info`.

use crate::blocked;
use crate::engine::Engine;
use crate::info;
use crate::session::State;
use haypile_commands::host::{
    BackupBegun, CommandTimes, ConfigError, DebugAccess, Host, InfoSection, LatencyEvent, Library, MemoryFacts, Reload,
    Shutdown, SlowCall, Wait,
};
use haypile_commands::table::DataFn;
use haypile_commands::{Args, CommandId, Error, Result, Table};
use haypile_config::Protected;
use haypile_resp::{Protocol, Reply};
use haypile_store::{Stop, Txn};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// A session command's view of its session and the server.
pub(crate) struct Desk<'a, 's> {
    pub engine: &'a Engine,
    pub session: u64,
    pub state: &'a mut State,
    /// The transaction that the command is part of, whose own keys count.
    pub txn: Option<&'a mut Txn<'s>>,
    /// A run that only finds out which rows a block needs: nothing beyond `state` may change.
    pub rehearsal: bool,
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
        &self.state.name
    }

    fn set_client_name(&mut self, name: &[u8]) {
        self.state.name = name.to_vec();
    }

    fn set_library(&mut self, part: Library, value: &[u8]) {
        match part {
            Library::Name => self.state.library_name = value.to_vec(),
            Library::Version => self.state.library_version = value.to_vec(),
        }
    }

    fn protocol(&self) -> Protocol {
        self.state.protocol
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.state.protocol = protocol;
    }

    /// There are no passwords yet, and directives that ask for one stop the start.
    fn authenticated(&self) -> bool {
        true
    }

    fn authenticate(&mut self, user: &[u8], _password: &[u8]) -> Result<()> {
        // The default user needs no password, so that any will do, as in Redis.
        if user == b"default" {
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
            return blocked::reply_at_once(self.engine, wait);
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

    fn in_transaction(&mut self, run: DataFn, args: Args<'_>) -> Result<Reply> {
        match &mut self.txn {
            Some(txn) => run(txn, args),
            None => Err(Error::Stop(Stop::Long)),
        }
    }

    fn set_active_expire(&mut self, is_on: bool) {
        if !self.rehearsal {
            self.engine.active_expire.store(is_on, Ordering::Relaxed);
        }
    }

    fn log_line(&mut self, text: &[u8]) {
        if !self.rehearsal {
            tracing::warn!("DEBUG LOG: {}", text.escape_ascii());
        }
    }

    fn crash(&mut self, why: &str) {
        if !self.rehearsal {
            panic!("DEBUG {why}: as asked for");
        }
    }

    fn fill_secret(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("a running system has random numbers");
    }

    fn has_disk(&self) -> bool {
        self.engine.settings.config().engine != haypile_config::Engine::Memory
    }

    fn select(&mut self, index: u32) {
        self.state.database = index;
    }

    fn close_after_reply(&mut self) {
        self.state.closing = true;
    }

    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, String)> {
        let found = self.engine.settings.get(patterns).into_iter();
        found.map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned())).collect()
    }

    fn config_set(&mut self, pairs: &[(&[u8], &[u8])]) -> std::result::Result<(), ConfigError> {
        if self.rehearsal {
            return Ok(());
        }
        let changed = self.engine.settings.set(pairs).map_err(config_error)?;
        self.engine.log_changes(&changed);
        Ok(())
    }

    fn config_rewrite(&mut self) -> Result<()> {
        let Some(file) = &self.engine.process.config_file else {
            return Err(Error::text("ERR The server is running without a config file"));
        };
        if !self.may_wait {
            return Err(Error::Stop(Stop::Long));
        }
        match self.engine.settings.rewrite(file) {
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
        (self.engine.process.allocator.purge)()
            .map_err(|why| Error::text(format!("ERR Error purging dirty pages: {why}")))
    }

    fn reset_statistics(&mut self) {
        if !self.rehearsal {
            self.engine.reset_statistics();
        }
    }

    fn reload(&mut self, how: Reload) -> Result<()> {
        if self.txn.is_some() {
            return Err(Error::text("ERR data cannot be opened again inside a transaction"));
        }
        self.state.reload = Some(how);
        Ok(())
    }

    fn begin_backup(&mut self) -> Result<BackupBegun> {
        if self.rehearsal {
            return Ok(BackupBegun::Later);
        }
        self.engine.begin_backup(self.txn.is_some())
    }

    fn last_backup_s(&self) -> u64 {
        self.engine.backups.last_s()
    }

    fn slowlog(&self, count: usize) -> Vec<SlowCall> {
        self.engine.statistics.slowlog.newest(count)
    }

    fn slowlog_len(&self) -> usize {
        self.engine.statistics.slowlog.len()
    }

    fn reset_slowlog(&mut self) {
        if !self.rehearsal {
            self.engine.statistics.slowlog.reset();
        }
    }

    fn latency_events(&self) -> Vec<LatencyEvent> {
        self.engine.statistics.monitor.events()
    }

    fn reset_latency(&mut self, names: &[&[u8]]) -> usize {
        if self.rehearsal {
            return 0;
        }
        self.engine.statistics.monitor.reset(names)
    }

    fn command_times(&self, id: CommandId) -> Option<CommandTimes> {
        info::commands::times(self.engine, id)
    }

    fn info_sections(&self) -> &'static [InfoSection] {
        info::SECTIONS
    }

    fn info(&self, section: &str, out: &mut String) {
        info::write(self.engine, self.txn.as_deref(), section, out);
    }

    fn shutdown(&mut self, how: Shutdown) -> Result<()> {
        self.engine.request_shutdown(how)
    }

    fn abort_shutdown(&mut self) -> Result<()> {
        Err(Error::text("ERR No shutdown in progress."))
    }
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
