//! REPLICAOF: a server that follows another one, and leads again.

use crate::keys::waiters::End;
use crate::run::engine::Engine;
use crate::run::replication::facts::{FailoverStep, Link, Master, Replicator, Upstream};
use crate::sync::lock;
use haypile_commands::host::{Wait, WaitKind};
use haypile_commands::{Error, Result};
use haypile_resp::Reply;
use haypile_store::Store;
use std::time::Duration;

/// How long the reply of REPLICAOF NO ONE waits at most for the server to take writes.
const PROMOTION_MS_MAX: u64 = 5_000;

impl Engine {
    /// Gives the way to masters; before `serve`.
    pub fn replicate_by(&self, replicator: Box<dyn Replicator>) {
        let is_first = self.replication.replicator.set(replicator).is_ok();
        assert!(is_first, "an engine has one way to masters");
    }

    /// REPLICAOF: follows another master, or none. Returns another reply than OK, if there is one.
    pub(crate) fn follow(&self, master: Option<Master>) -> Result<Option<Reply>> {
        self.can_follow()?;
        let has_master = master.is_some();
        let changes = self.set_master(master);
        Ok((!changes && has_master).then_some(Reply::Simple("OK Already connected to specified master")))
    }

    /// SLAVEOF with FORCE: follows a master, which may be that of now, and has a copy of its data take the place of
    /// these first.
    pub(crate) fn follow_anew(&self, master: Master) -> Result<()> {
        self.can_follow()?;
        let upstream = Upstream { wants_copy: true, ..Upstream::new(master) };
        self.change_upstream(Some(upstream), |_| true);
        Ok(())
    }

    /// Returns what the reply of REPLICAOF NO ONE waits for: as in Redis, it comes when the server takes writes.
    pub(crate) fn promotion(&self) -> Option<Wait> {
        let wait = Wait { kind: WaitKind::Promotion, timeout_ms: Some(PROMOTION_MS_MAX) };
        (!self.has_role(self.store().as_deref())).then_some(wait)
    }

    /// Returns whether the server takes writes, or is a replica: it is not about to lead.
    pub(crate) fn has_role(&self, store: Option<&Store>) -> bool {
        self.is_replica() || store.is_some_and(|store| !store.takes_no_writes())
    }

    fn can_follow(&self) -> Result<()> {
        if self.group.is_member() {
            return Err(Error::text("ERR REPLICAOF not allowed in cluster mode."));
        }
        if self.failover_step() != FailoverStep::None {
            return Err(Error::text("ERR REPLICAOF not allowed while failing over."));
        }
        Ok(())
    }

    /// Follows another master, or none. Writes are refused from now on, or will be taken as soon as the data lead
    /// again. Returns whether that is a change.
    pub fn set_master(&self, master: Option<Master>) -> bool {
        self.change_master(master, |_| true)
    }

    /// Follows another master, or none, if the present one meets the condition; else nothing happens. Returns whether
    /// that is a change.
    pub(crate) fn change_master(&self, master: Option<Master>, condition: impl Fn(Option<&Master>) -> bool) -> bool {
        self.change_upstream(master.map(Upstream::new), condition)
    }

    fn change_upstream(&self, upstream: Option<Upstream>, condition: impl Fn(Option<&Master>) -> bool) -> bool {
        let _changing = lock(&self.replication.changing);
        let mut state = self.replication.state();
        let master = upstream.as_ref().map(|upstream| upstream.master.clone());
        let wants_copy = upstream.as_ref().is_some_and(|upstream| upstream.wants_copy);
        let now = state.upstream.as_ref().map(|upstream| &upstream.master);
        if now == master.as_ref() && !wants_copy || !condition(now) {
            return false;
        }
        state.upstream = upstream;
        drop(state);
        self.settings.set_replicaof(master.as_ref().map(|master| (&*master.host, master.port)));
        self.refuse_writes_of_replica();
        if master.is_some() {
            // Keys are the master's from now on: as in Redis, clients that wait for some are sent away.
            self.waiters.sessions().into_iter().for_each(|session| _ = self.end_wait(session, End::Follows));
        }
        if let Some(replicator) = self.replication.replicator.get() {
            replicator.on_master(master);
        }
        self.look_at_link();
        self.blocked.look_again();
        true
    }

    /// Has the store take no writes if the server is a replica, or about to be one: to be called when either begins.
    ///
    /// Invariant: whoever sets the master, and whoever puts a store in place or has it lead, calls this afterwards. So
    /// the later of the two sees the other.
    pub(crate) fn refuse_writes_of_replica(&self) {
        if self.is_replica()
            && let Some(store) = self.store()
        {
            store.stop_leading();
        }
    }

    /// Looks whether what the server has may be served: to be called when the link to the master changes, and about
    /// once a second.
    pub fn look_at_link(&self) {
        let is_down = self.replication.upstream().is_some_and(|upstream| upstream.link != Link::Connected);
        self.checks.set_stale(is_down && !self.settings.config().replication.serves_stale_data);
    }

    /// Looks whether there are as many good replicas as writes need: to be called when one comes or goes, and about
    /// once a second.
    pub fn look_at_replicas(&self) {
        if let Some(store) = self.store() {
            store.set_lacks_replicas(self.lacks_replicas());
        }
    }

    /// Returns whether there are less good replicas than writes need, or replicas are late with what they are to have.
    pub(crate) fn lacks_replicas(&self) -> bool {
        self.refuses_for_late_replicas() || self.lacks_good_replicas()
    }

    fn lacks_good_replicas(&self) -> bool {
        let config = self.settings.config();
        let (least, lag_max_s) = (config.replication.min_replicas as usize, config.replication.max_lag_s);
        let good = || self.replication.good_replicas(Duration::from_secs(lag_max_s.into()));
        least > 0 && lag_max_s > 0 && !self.is_replica() && good() < least
    }

    /// Returns whether the server is a replica, or about to be one.
    pub(crate) fn is_replica(&self) -> bool {
        self.replication.state().upstream.is_some()
    }

    /// Returns what is known of the master, also before the data are there that will follow it.
    pub(crate) fn upstream(&self) -> Option<Upstream> {
        let configured = || {
            let (host, port) = self.settings.config().replication.replicaof.clone()?;
            self.store().is_none().then(|| Upstream::new(Master { host, port }))
        };
        self.replication.upstream().or_else(configured)
    }
}
