//! An attempt to follow a master, whichever protocol it speaks: whether it is wanted still, and what INFO tells of it.

use crate::check;
use crate::replication::state::Replication;
use haypile_config::Config;
use haypile_engine::{Link, Master, Upstream};
use haypile_log::Index;
use haypile_store::check::Looked;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// One connection to a master.
pub struct Attempt<'a> {
    pub replication: &'a Replication,
    pub master: &'a Master,
    pub version: u64,
    /// Whether the master is asked with the newest history of the data, not with the oldest one in which they stand.
    pub asks_plainly: bool,
    /// Whether the master has turned out to be in a history that the data have left.
    pub is_elsewhere: AtomicBool,
}

impl Attempt<'_> {
    /// Whether the master is wanted still.
    pub fn goes_on(&self) -> bool {
        self.replication.is_wanted(self.version)
    }

    /// Waits, unless the master changes before.
    pub fn wait(&self, time: Duration) {
        self.replication.wait_for_change(self.version, time);
    }

    /// Returns the port at which a master's other replicas and tools find this server.
    pub fn announced_port(&self, config: &Config) -> u16 {
        match config.replication.announce_port {
            0 if config.tls.replication && config.tls.port > 0 => config.tls.port,
            0 => config.port,
            port => port,
        }
    }

    /// Returns how long the master's records have been coming; None if they do not.
    pub fn stood(&self) -> Option<Duration> {
        let upstream = self.replication.engine.replication.upstream()?;
        upstream.up_since.filter(|_| upstream.link == Link::Connected).map(|since| since.elapsed())
    }

    /// Returns the last record of the data; 0 while they are not open.
    pub fn last(&self) -> Index {
        self.replication.engine.store().map_or(Index(0), |store| store.log().last())
    }

    /// Whether a copy of the master's data is to come first, whatever these data are.
    pub fn wants_copy(&self) -> bool {
        self.replication.engine.replication.upstream().is_some_and(|upstream| upstream.wants_copy)
    }

    /// Notes that no copy is to come first, as where one is in place, if no later one was asked for.
    pub fn forgo_copy(&self) {
        if self.goes_on() {
            self.note(|upstream| upstream.wants_copy = false);
        }
    }

    /// Notes something about the master, if it is the one that is wanted.
    pub fn note(&self, note: impl FnOnce(&mut Upstream)) {
        self.replication.engine.replication.note_upstream(self.master, note);
        self.replication.engine.look_at_link();
    }
}

/// Looks whether a start would take data that are to be put in place, and how far these go: until that is known, the
/// own data stay where they are.
///
/// # Errors
/// A text for people: the data cannot be used.
pub fn look(incoming: &Path) -> Result<Looked, String> {
    check::look(incoming)
}
