//! FAILOVER: a master hands its part over to one of its replicas, and no write is lost.
//!
//! The engine's part: who may begin one, and what clients notice. Writes are held until it ends; then they find a
//! replica, or go on. The steps are the server's, which has the connections (`Replicator::on_failover`).

use crate::run::engine::Engine;
use crate::run::replication::facts::{Downstream, DownstreamState, FailoverStep, Failovers, Master};
use crate::sync::lock;
use haypile_commands::host::Failover;
use haypile_commands::{Error, Result};
use haypile_log::Index;

impl Engine {
    /// Begins a failover for FAILOVER, which goes on behind the reply.
    pub(crate) fn begin_failover(&self, wanted: &Failover) -> Result<()> {
        let _changing = lock(&self.replication.changing);
        if self.failover_step() != FailoverStep::None {
            return Err(Error::text("ERR FAILOVER already in progress."));
        }
        if self.is_replica() {
            return Err(Error::text("ERR FAILOVER is not valid when server is a replica."));
        }
        let mut replicas = self.replication.downstream();
        replicas.retain(|replica| !replica.is_redis);
        if replicas.is_empty() {
            return Err(Error::text("ERR FAILOVER requires connected replicas."));
        }
        if wanted.forces && (wanted.timeout.is_none() || wanted.target.is_none()) {
            let text = "ERR FAILOVER with force option requires both a timeout and target HOST and IP.";
            return Err(Error::text(text));
        }
        if wanted.target.is_some() {
            let mut targets = replicas.iter().filter(|replica| replica.is_target(wanted)).peekable();
            if targets.peek().is_none() {
                return Err(Error::text("ERR FAILOVER target HOST and PORT is not a replica."));
            }
            if !targets.any(|replica| replica.state == DownstreamState::Online) {
                return Err(Error::text("ERR FAILOVER target replica is not online."));
            }
        }
        let Some(replicator) = self.replication.replicator.get() else {
            return Err(Error::text("ERR this server has no connections to replicas"));
        };
        self.replication.state().failover = Failovers { step: FailoverStep::WaitForSync, ..Failovers::default() };
        self.checks.set_failing_over(true);
        tracing::info!("FAILOVER requested to {}", target_name(wanted));
        if let Err(error) = replicator.on_failover(wanted.clone()) {
            self.end_failover();
            return Err(Error::text(format!("ERR a failover cannot begin: {error}")));
        }
        Ok(())
    }

    /// Gives the failover up for FAILOVER ABORT.
    pub(crate) fn abort_failover(&self) -> Result<()> {
        let mut state = self.replication.state();
        if state.failover.step == FailoverStep::None {
            return Err(Error::text("ERR No failover in progress."));
        }
        state.failover.is_aborted = true;
        Ok(())
    }

    /// Returns the step that the failover is in.
    pub fn failover_step(&self) -> FailoverStep {
        self.replication.state().failover.step
    }

    /// Whether somebody has given the failover up.
    pub fn failover_is_aborted(&self) -> bool {
        self.replication.state().failover.is_aborted
    }

    /// Refuses all writes, those too that were not held because they had begun, and waits for these. Returns the last
    /// record, behind which there will be none until `take_writes`. Blocks.
    ///
    /// # Errors
    /// A text for people: there are no data.
    pub fn stop_writes(&self) -> std::result::Result<Index, String> {
        self.replication.state().failover.stops_writes = true;
        let store = self.store_arc().ok_or("the data are not loaded")?;
        store.set_hands_over(true);
        // Runs that begin behind the exclusion see that, and those before it have ended.
        drop(self.hold_exclusion());
        Ok(store.log().last())
    }

    /// Takes writes again after `stop_writes`.
    pub fn take_writes(&self) {
        self.replication.state().failover.stops_writes = false;
        if let Some(store) = self.store() {
            store.set_hands_over(false);
        }
    }

    /// The replica is told to lead now.
    pub fn hand_over_now(&self) {
        self.replication.state().failover.step = FailoverStep::InProgress;
    }

    /// Ends the failover, after the master was set, or because it is given up: held writes go on, to be taken or
    /// refused.
    pub fn end_failover(&self) {
        self.take_writes();
        self.replication.state().failover = Failovers::default();
        self.checks.set_failing_over(false);
        self.wake_held();
    }

    /// Becomes a master because this one asks for it; false if the server follows another one by now.
    pub fn take_over(&self, from: &Master) -> bool {
        self.change_master(None, |now| now == Some(from))
    }
}

impl Downstream {
    /// Whether a failover may go to this replica.
    pub fn is_target(&self, wanted: &Failover) -> bool {
        let is = |(host, port): &(String, i64)| *host == self.host && *port == i64::from(self.port);
        !self.is_redis && wanted.target.as_ref().is_none_or(is)
    }
}

fn target_name(wanted: &Failover) -> String {
    wanted.target.as_ref().map_or_else(|| "any replica".into(), |(host, port)| format!("{host}:{port}"))
}
