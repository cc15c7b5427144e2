//! Requests of HTTP: a web page can make a browser on this host send one to any port, and what looks like a header to
//! the browser may be a command here. Redis therefore closes a connection that sends `POST` or `Host:` as a command,
//! and runs nothing that comes behind it; so does this server. `haypile_commands::is_http` knows the words.

use crate::clients::session::Session;
use crate::clients::statistics::Outcome;
use crate::run::engine::Engine;
use crate::run::worker::{Next, WorkerState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Seconds for which no second warning is logged: an attack must not fill the disk with lines about it.
const QUIET_S: u64 = 60;

/// The time of the last logged warning, in seconds since 1970; 0 is never.
#[derive(Default)]
pub(crate) struct Warned(AtomicU64);

impl Warned {
    /// Whether a warning is due; of several threads that ask at once, one is told so.
    fn is_due(&self, now_s: u64) -> bool {
        let due = |last: u64| (last == 0 || now_s.abs_diff(last) > QUIET_S).then_some(now_s);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }
}

impl WorkerState {
    /// Has the connection closed at once, whatever it has still to be sent, as Redis does.
    #[cold]
    pub(crate) fn turn_away(&mut self, engine: &Engine, session: &Session) -> Next {
        if engine.http_warned.is_due(self.now_ms / 1000) {
            tracing::warn!(
                "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to Redis. \
                 This is likely due to an attacker attempting to use Cross Protocol Scripting to compromise your \
                 server. Connection from {} aborted.",
                session.address()
            );
        }
        self.outcome = Outcome::Done;
        Next::Abort
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_logged_once_a_minute() {
        let warned = Warned::default();
        let due: Vec<u64> =
            [1000, 1000, 1001, 1060, 1061, 1062, 1200].into_iter().filter(|&now| warned.is_due(now)).collect();
        assert_eq!(due, [1000, 1061, 1200]);
        assert!(warned.is_due(1), "a clock that was set back does not silence it");
    }
}
