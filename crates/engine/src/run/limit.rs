//! Holds clients to the limits of their users (`clients::usage`): calls wait or are refused, as `user-limit-policy`
//! says, and connections that take too much memory are closed.

use crate::clients::client::Client;
use crate::clients::client_memory::BOUND_BYTES_MIN;
use crate::clients::session::{Session, State, Waiting};
use crate::clients::usage::{Seat, UsedUp};
use crate::run::check::Checked;
use crate::run::engine::Engine;
use crate::run::worker::{Next, WorkerState};
use crate::sync::lock;
use haypile_acl::User;
use haypile_commands::host::ClientFilter;
use haypile_commands::{Entry, Flag};
use haypile_resp::Args;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// The least and the longest time that a call waits before it looks again: the limits may have changed meanwhile.
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Returns the error for clients of a user that has as many connections as it may.
pub(crate) fn no_seat(user: &User) -> String {
    let (limit, name) = (user.limits().connections, user.name().escape_ascii());
    format!("ERR max number of connections of user '{name}' reached: {limit}")
}

impl WorkerState {
    /// Looks whether a call is within the limits of its client's user, also one of a command that is not there.
    ///
    /// # Errors
    /// The call waits, or is answered with this error.
    pub(crate) fn check_limits(
        &self,
        engine: &Engine,
        session: &mut Session,
        entry: Option<&Entry>,
        args: Args<'_>,
    ) -> Result<(), Result<Checked, String>> {
        if entry.is_some_and(|entry| entry.flags.has(Flag::NoAuth)) {
            // Whoever logs in may be about to be somebody else, and pays for the call all the same.
            if let Some(seat) = &session.state.seat {
                seat.usage.charge_call(session.state.user.limits(), args.bytes_len());
            }
            return Ok(());
        }
        let user = session.state.user.clone();
        if session.state.seat.is_none() {
            session.state.seat = engine.accounts.seat(&user, None);
        }
        let Some(seat) = &session.state.seat else { return Err(Err(no_seat(&user))) };
        let Err(UsedUp { what, wait }) = seat.usage.take_call(user.limits(), args.bytes_len()) else { return Ok(()) };
        if engine.settings.config().refuses_beyond_limits {
            seat.usage.refused.add_shared(1);
            let (name, wait_ms) = (user.name().escape_ascii(), wait.as_millis() + 1);
            return Err(Err(format!("LIMIT the {what} of user '{name}' is used up, try again in {wait_ms} ms")));
        }
        let wait = wait.clamp(WAIT_MIN, WAIT_MAX);
        seat.usage.delayed.add_shared(1);
        seat.usage.delayed_us.add_shared(wait.as_micros() as u64);
        session.waiting = Waiting::Paused;
        Err(Ok(Checked::Held(Next::Block(Some(wait)))))
    }
}

impl Session {
    /// Charges bytes that the client is sent to its user.
    #[cold]
    pub(crate) fn charge(&self, bytes: usize) {
        if let Some(seat) = &self.state.seat {
            seat.usage.charge(self.state.user.limits(), bytes);
        }
    }
}

impl State {
    /// Whether the user's rules limit what its clients take.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        !self.user.limits().is_none()
    }
}

impl Engine {
    /// Counts the bytes of a client for its user; closes those with most if they have more than they may together.
    #[cold]
    pub(crate) fn count_for_user(&self, session: &Session, bytes: usize) {
        let bytes_max = session.state.user.limits().memory;
        let Some(seat) = &session.state.seat else { return };
        let is_counted = bytes_max > 0 && !session.state.no_evict;
        let together = seat.set_bytes(if is_counted { bytes } else { 0 });
        if is_counted && together > bytes_max.max(BOUND_BYTES_MIN) {
            self.close_largest_of(seat, bytes_max.max(BOUND_BYTES_MIN));
        }
    }

    fn close_largest_of(&self, seat: &Seat, bytes_max: u64) {
        let filter = ClientFilter { user: Some(seat.usage.user.to_vec()), ..ClientFilter::default() };
        let _one = lock(&seat.usage.closing);
        // Clients that were closed before are not found any more.
        let mut clients = self.clients.find(&filter, 0, self.now_ms());
        clients.retain(|client| client.footprint.may_be_closed());
        clients.sort_by_key(|client| Reverse(client.footprint.bytes()));
        let mut bytes: u64 = clients.iter().map(|client| client.footprint.bytes()).sum();
        for client in clients {
            if bytes <= bytes_max {
                break;
            }
            bytes -= client.footprint.bytes().min(bytes);
            seat.usage.closed.add_shared(1);
            self.evict(&client);
        }
    }

    /// Closes a client for want of memory.
    pub(crate) fn evict(&self, client: &Arc<Client>) {
        let mut line = String::new();
        client.line(&mut line, &client.names(), &self.table, self.now_ms());
        tracing::info!("Evicting client: {line}");
        self.client_memory.closed.add_shared(1);
        self.close_client(client);
    }
}
