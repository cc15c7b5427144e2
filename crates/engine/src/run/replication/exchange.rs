//! Changes of the store that replication asks for: it begins to follow, takes a master's copy in, or leads.

use crate::run::engine::Engine;
use crate::sync::lock;
use haypile_commands::host::Reload;
use haypile_store::Store;

impl Engine {
    /// Has the data follow a master, if they do not yet. Blocks for as long as it takes.
    ///
    /// # Errors
    /// A text for people. Either nothing has changed, or the server is told to stop.
    pub fn follow_master(&self) -> Result<(), String> {
        let _data = lock(&self.replication.data);
        if self.store().is_some_and(|store| store.follows()) {
            return Ok(());
        }
        self.open_again(Reload::Base, true, &mut || Ok(()))
    }

    /// Puts a copy of a master's data in the place of these. `put` does so where they lie, while nothing has them open.
    /// Blocks for as long as it takes.
    ///
    /// # Errors
    /// A text for people. Either nothing has changed, or the server is told to stop.
    pub fn put_copy(&self, put: &mut dyn FnMut() -> Result<(), String>) -> Result<(), String> {
        let _data = lock(&self.replication.data);
        self.open_again(Reload::Log, true, &mut || {
            put()?;
            self.watches.on_replaced();
            Ok(())
        })
    }

    /// Sees to it that a store which leads, and is not in place yet, takes no client's write while it has an origin: it
    /// forgets that, or repeats a master's commands until `lead` is called.
    pub(crate) fn settle_origin(&self, store: &Store) {
        if store.follows() {
            return;
        }
        let has_none = match self.is_replica() {
            true => store.origin().map(|origin| origin.is_none()),
            false => store.forget_origin().map(|()| true),
        };
        if has_none != Ok(true) {
            has_none.err().into_iter().for_each(|why| tracing::warn!("the data have a master's origin still: {why}"));
            store.begin_to_repeat();
        }
    }

    /// Returns whether the data take the commands of a master that is no Haypile.
    pub(crate) fn repeats(&self) -> bool {
        self.store().is_some_and(|store| store.repeats() && !store.is_about_to_follow())
    }

    /// Has the data take the commands of a master that is no Haypile, and nobody else's writes, if they do not yet.
    /// Blocks for as long as it takes.
    ///
    /// # Errors
    /// A text for people. Nothing has changed, or the next call goes on.
    pub fn repeat_commands(&self) -> Result<(), String> {
        let _data = lock(&self.replication.data);
        let store = self.store_arc().ok_or("the data are not loaded")?;
        if store.repeats() && !store.follows() && !store.is_about_to_follow() {
            return Ok(());
        }
        let _exclusion = self.hold_exclusion();
        store.begin_to_repeat();
        if store.follows() {
            let start = store.lead().map_err(|error| error.to_string())?;
            tracing::info!("a history begins behind record {}: {}", start.after(), start.history);
        }
        store.stay_leader();
        self.look_at_confirmations();
        Ok(())
    }

    /// Has the data lead, if they do not yet: in a history of their own, from which on clients' writes are taken.
    ///
    /// # Errors
    /// A text for people. The data follow still, or are not open.
    pub fn lead(&self) -> Result<(), String> {
        let _data = lock(&self.replication.data);
        if self.group.is_member() {
            return Ok(());
        }
        let store = self.store_arc().ok_or("the data are not loaded")?;
        if !store.follows() {
            if !store.takes_no_writes() {
                return Ok(());
            }
            if store.is_about_to_follow() {
                drop(store);
                return self.open_again(Reload::Base, false, &mut || Ok(()));
            }
            let _exclusion = self.hold_exclusion();
            store.forget_origin()?;
            self.begin_to_lead(&store);
            tracing::info!("the data lead: no master's commands are repeated any more");
            return Ok(());
        }
        let _exclusion = self.hold_exclusion();
        // No client's write comes before the origin is forgotten: behind one no master's commands go on.
        store.begin_to_repeat();
        let start = store.lead().map_err(|error| error.to_string())?;
        store.forget_origin()?;
        self.begin_to_lead(&store);
        self.look_at_confirmations();
        tracing::info!("the data lead from record {} on, in history {}", start.after().next(), start.history);
        Ok(())
    }

    /// Has a store that leads take clients' writes, unless there are fewer replicas than these need, or the server is
    /// to follow again.
    fn begin_to_lead(&self, store: &Store) {
        self.look_at_replicas();
        store.end_to_repeat();
        self.refuse_writes_of_replica();
        self.blocked.look_again();
    }
}
