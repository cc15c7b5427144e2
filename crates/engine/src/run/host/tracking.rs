//! Client-side caching, as the running command's client has asked for it.

use crate::clients::tracking::Caching;
use crate::run::host::SessionHost;
use haypile_commands::host::{Tracking, TrackingOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Tracking for SessionHost<'_, '_> {
    fn tracking(&self) -> Option<&TrackingOptions> {
        self.state.tracker.as_ref().map(|tracker| &tracker.options)
    }

    fn caches_next(&self) -> bool {
        self.state.caching != Caching::No
    }

    fn redirect_is_broken(&self) -> bool {
        self.state.tracker.as_ref().is_some_and(|tracker| tracker.is_broken.load(Ordering::Relaxed))
    }

    fn has_client(&self, id: u64) -> bool {
        self.engine.clients.get(id).is_some()
    }
}

impl SessionHost<'_, '_> {
    /// Begins to track, or goes on by other options, or ends that.
    pub(super) fn track(&mut self, options: Option<TrackingOptions>) {
        let is_block = self.txn.is_some();
        let before = self.state.tracker.take();
        let client = self.engine.clients.get(self.session);
        let tracking = &self.engine.tracking;
        if options.is_none() {
            // A block may begin again before others see that it has ended.
            before.iter().for_each(|before| tracking.on_ended(before));
        }
        let state = self.state.changing();
        // A client that was closed meanwhile needs no messages.
        state.tracker = options
            .zip(client)
            .map(|(options, client)| Arc::new(tracking.tracker(&client, options, is_block, before.as_deref())));
        if state.tracker.is_none() {
            state.caching = Caching::No;
        }
    }
}
