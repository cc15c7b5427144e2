//! A warning for a log whose newest record is ahead of the clock: later records carry the time that the clock had
//! reached, so that a restore to a time cannot tell them apart.

use super::latest::now_ms;
use haypile_archive::backup_time;
use haypile_log::Log;

/// How far the newest record may be ahead of the clock before that is said.
const AHEAD_MS: u64 = 60_000;

/// Says where the newest record of a log that was opened is ahead of the clock.
pub fn compare(log: &Log) {
    if let Some(warning) = warning(log.time_ms(), now_ms()) {
        tracing::warn!("{warning}");
    }
}

fn warning(newest_ms: u64, now_ms: u64) -> Option<String> {
    (newest_ms.saturating_sub(now_ms) > AHEAD_MS).then(|| {
        format!(
            "the newest record of the log is of {}, which is ahead of this clock: records carry that time until then, \
             and `haypile restore --to TIME` cannot tell them apart: use an index",
            backup_time(newest_ms)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_ahead_of_the_clock_is_told() {
        let now_ms = 1_795_337_100_000;
        for (newest_ms, expected) in [
            (0, false),
            (now_ms - 1, false),
            (now_ms + AHEAD_MS, false),
            (now_ms + AHEAD_MS + 1, true),
            (now_ms + 3_600_000, true),
        ] {
            assert_eq!(warning(newest_ms, now_ms).is_some(), expected, "{newest_ms}");
        }
        let told = warning(now_ms + 3_600_000, now_ms).expect("it is an hour");
        assert!(told.contains(&backup_time(now_ms + 3_600_000)), "{told}");
    }
}
