//! The progress of an export: keys and bytes of the file.

use crate::progress::{ProgressLine, time_left};
use std::time::Duration;

pub struct Progress {
    /// Keys that exist, or existed at the beginning.
    total: u64,
    /// The line that shows the progress; None shows nothing.
    line: Option<ProgressLine>,
}

impl Progress {
    pub fn new(total: u64) -> Progress {
        Progress { total, line: Some(ProgressLine::new()) }
    }

    /// Returns one that shows nothing.
    pub fn hidden() -> Progress {
        Progress { total: 0, line: None }
    }

    /// Shows the progress, if it is time to: keys that are done with, and bytes of the file.
    pub fn tell(&mut self, keys: u64, bytes: u64) {
        let total = self.total;
        if let Some(shown) = &mut self.line {
            shown.tell(|elapsed| line(keys, total, bytes, elapsed));
        }
    }

    /// Removes the line.
    pub fn end(&mut self) {
        self.line.iter_mut().for_each(ProgressLine::end);
    }
}

/// Returns `exporting: 250000 of 1000000 keys (25 %), 120.0 MB, 25000 keys/s, 30 s left`.
fn line(keys: u64, total: u64, bytes: u64, elapsed: Duration) -> String {
    let (mb, seconds) = (bytes as f64 / 1e6, elapsed.as_secs_f64().max(1e-9));
    let keys_per_s = keys as f64 / seconds;
    // Keys may be added meanwhile.
    if total < keys || total == 0 {
        return format!("exporting: {keys} keys, {mb:.1} MB, {keys_per_s:.0} keys/s");
    }
    let share = keys as f64 / total as f64;
    let left = time_left(share, elapsed);
    format!("exporting: {keys} of {total} keys ({:.0} %), {mb:.1} MB, {keys_per_s:.0} keys/s{left}", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let after = Duration::from_secs(10);
        let expected = "exporting: 250000 of 1000000 keys (25 %), 120.0 MB, 25000 keys/s, 30 s left";
        assert_eq!(line(250_000, 1_000_000, 120_000_000, after), expected);
        assert_eq!(line(20, 10, 1_000_000, after), "exporting: 20 keys, 1.0 MB, 2 keys/s");
        assert_eq!(line(0, 10, 0, after), "exporting: 0 of 10 keys (0 %), 0.0 MB, 0 keys/s");
    }
}
