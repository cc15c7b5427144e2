//! The progress of a long piece of work, on standard error: one line that is drawn again and again on a terminal,
//! elsewhere a line now and then. The text of the line is its user's business.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const TERMINAL_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

pub struct ProgressLine {
    begun: Instant,
    is_terminal: bool,
    interval: Duration,
    next: Instant,
}

impl ProgressLine {
    pub fn new() -> ProgressLine {
        let (is_terminal, begun) = (io::stderr().is_terminal(), Instant::now());
        let interval = if is_terminal { TERMINAL_INTERVAL } else { LINE_INTERVAL };
        ProgressLine { begun, is_terminal, interval, next: begun + interval }
    }

    /// Shows the line for the time since the beginning, if it is time to.
    pub fn tell(&mut self, line: impl FnOnce(Duration) -> String) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        let line = line(now.duration_since(self.begun));
        let mut out = io::stderr().lock();
        // A line that cannot be written is not missed.
        let _ = match self.is_terminal {
            true => write!(out, "\r{line}\x1b[K"),
            false => writeln!(out, "{line}"),
        };
        let _ = out.flush();
        self.next = now + self.interval;
    }

    /// Removes the line.
    pub fn end(&mut self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// Returns `, 30 s left` for a piece of work of which this share is done; empty at the beginning.
pub fn time_left(share: f64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    if share > 0.0 { format!(", {:.0} s left", seconds / share - seconds) } else { String::new() }
}
