//! Connections that the server ends: those of clients that are idle, that do not read, or whose replies depend on what
//! others have not acknowledged.

use crate::event_loop::connection::{Connection, State, UNLIMITED_BYTES};
use crate::event_loop::{EventLoop, OutputLimits};
use crate::output::Output;
use haypile_log::Index;

/// The last error that a client reads whose replies are given up.
const NOT_ACKNOWLEDGED: &[u8] =
    b"-NOREPLICAS Replicas have not acknowledged this in time. It may have taken effect, and may be lost in a failover.\r\n";

impl Connection {
    /// Marks the connection as lost: the serving task ends when the event that it waits for has come.
    pub(super) fn close(&self, output: &mut Output) {
        self.lost.set(true);
        self.draining.set(false);
        output.discard();
        self.writer.abort();
        self.wake();
    }

    /// Ends the connection if one of its replies waits for a record through `overdue`.
    pub fn give_up_if_overdue(&self, event_loop: &EventLoop, overdue: Index) {
        let mut state = self.state.borrow_mut();
        if !self.lost.get() && state.output.waits_for().is_some_and(|gate| gate <= overdue) {
            self.give_up(event_loop, &mut state);
        }
    }

    /// Ends the connection: whether replies that wait are true for good cannot be known.
    pub(super) fn give_up(&self, event_loop: &EventLoop, state: &mut State) {
        tracing::debug!("client {} is closed: replicas have not acknowledged what its replies depend on", self.id);
        let has_replicas = !event_loop.raft.is_member();
        if has_replicas && state.output.ready().is_empty() && !state.session.is_waiting() {
            // The socket may be full, or gone.
            let _ = self.writer.try_write(NOT_ACKNOWLEDGED);
        }
        self.close(&mut state.output);
        self.show_output(event_loop, state);
    }

    /// Closes the connection if its client has sent nothing for so long; one that waits for us is not idle.
    pub fn close_if_idle(&self, now_us: u64, timeout_us: u64) {
        let mut state = self.state.borrow_mut();
        // The leader says whether one that is handed on is idle.
        let is_idle = now_us.saturating_sub(self.last_active_us.get()) > timeout_us && !self.client.is_handed_on();
        if is_idle && !state.session.is_waiting() && !state.session.listens() {
            self.close(&mut state.output);
        }
    }

    /// Closes the connection if its client has more to read than its limit allows at once.
    pub(super) fn limit(&self, event_loop: &EventLoop, state: &mut State) {
        let bytes_max = event_loop.output_limits().of_client(&state.session).hard_bytes;
        self.close_above(event_loop, bytes_max, state);
    }

    /// Closes the connection if its client has more to read than `bytes_max`, unless that is 0.
    fn close_above(&self, event_loop: &EventLoop, bytes_max: u64, state: &mut State) {
        let unread = state.unread_bytes().saturating_sub(UNLIMITED_BYTES);
        if bytes_max > 0 && unread as u64 > bytes_max {
            tracing::warn!("client {} is closed: it leaves {unread} bytes of replies unread", self.id);
            self.close_at_limit(event_loop, state);
        }
    }

    /// Closes the connection because its client leaves too much unread, and counts it.
    fn close_at_limit(&self, event_loop: &EventLoop, state: &mut State) {
        if !self.lost.get() {
            event_loop.counters().closed_at_output_limit.add(1);
        }
        self.close(&mut state.output);
    }

    /// Closes the connection if its client has left more unread than the limits allow, at once or for as long as the
    /// limits say.
    pub fn close_if_unread(&self, event_loop: &EventLoop, now_us: u64, limits: &OutputLimits) {
        if self.lost.get() {
            return;
        }
        let mut state = self.state.borrow_mut();
        let limit = limits.of_client(&state.session);
        self.close_above(event_loop, limit.hard_bytes, &mut state);
        let unread = state.unread_bytes().saturating_sub(UNLIMITED_BYTES);
        let is_above = limit.soft_bytes > 0 && unread as u64 > limit.soft_bytes;
        match (is_above, self.unread_since_us.get()) {
            (false, _) => self.unread_since_us.set(0),
            (true, 0) => self.unread_since_us.set(now_us),
            (true, since_us) if now_us.saturating_sub(since_us) >= limit.soft_seconds * 1_000_000 => {
                self.close_at_limit(event_loop, &mut state);
            }
            (true, _) => {}
        }
    }

    /// Closes the connection if its client has been reading one reply for longer than `age_max_us`: the base keeps
    /// files for it.
    pub fn close_if_lingering(&self, now_us: u64, age_max_us: u64) {
        let mut state = self.state.borrow_mut();
        if !self.lost.get() && state.session.lingers(now_us, age_max_us) {
            tracing::warn!("client {} is closed: it reads a long reply too slowly", self.id);
            self.close(&mut state.output);
        }
    }
}
