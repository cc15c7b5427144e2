//! Full compactions: those that COMPACT asks for, and those that begin by themselves, in the hours of `compact-cron` or
//! every so many hours (`compact-interval`).
//!
//! The store compacts, piece by piece; here is decided when. One that has begun in the hours of `compact-cron` is held
//! when these are over, and goes on when they come again. The hours are those of the system's time zone (`TZ`, else
//! /etc/localtime).

use crate::run::engine::Engine;
use crate::sync::{Mutex, lock};
use haypile_config::{CompactInterval, CompactWindow, Config};
use haypile_log::Index;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time between looks whether one is due.
const INTERVAL: Duration = Duration::from_secs(1);

const HOUR_S: i64 = 3600;
const DAY_S: i64 = 24 * HOUR_S;

#[derive(Default)]
pub(crate) struct Compactions(Mutex<State>);

#[derive(Default)]
struct State {
    looked: Option<Instant>,
    schedule: Schedule,
}

/// The full compactions that have begun by themselves.
#[derive(Default)]
struct Schedule {
    /// Whether the compaction under way has begun by `compact-cron`, and has only its hours.
    has_hours: bool,
    /// The day on which those hours of `compact-cron` began in which the last compaction has begun.
    day: Option<i64>,
    /// The time at which `compact-interval` began the last compaction or was set first, in seconds since 1970.
    since_s: Option<i64>,
    /// The last record of the log when the last compaction began.
    last: Option<Index>,
}

/// The times at which full compactions begin by themselves.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    window: Option<CompactWindow>,
    interval: Option<CompactInterval>,
}

/// A look at the clock, the disk and the store.
struct Look {
    /// Seconds since 1970.
    now_s: i64,
    /// Seconds by which local time is ahead of that.
    ahead_s: i64,
    /// The part of the disk that is free, in percent.
    free_percent: f64,
    /// The last record of the log.
    last: Index,
    is_compacting: bool,
}

/// The decision about the full compaction under way, or the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Begin,
    /// The compaction's hours are over.
    Hold,
    GoOn,
    /// The compaction's hours were taken away.
    GiveUp,
}

impl Schedule {
    fn decide(&mut self, plan: Plan, look: &Look) -> Decision {
        let decision = match plan {
            Plan { interval: Some(interval), .. } => self.by_interval(interval, look),
            Plan { window: Some(window), .. } => self.by_window(window, look),
            _ => Decision::GoOn,
        };
        if plan.interval.is_none() {
            self.since_s = None;
        }
        if decision == Decision::GoOn && self.has_hours && plan.window.is_none() {
            self.has_hours = false;
            return if look.is_compacting { Decision::GiveUp } else { Decision::GoOn };
        }
        if decision == Decision::Begin {
            self.last = Some(look.last);
        }
        decision
    }

    fn by_interval(&mut self, interval: CompactInterval, look: &Look) -> Decision {
        let since_s = *self.since_s.get_or_insert(look.now_s);
        let is_due = look.now_s - since_s >= i64::from(interval.hours) * HOUR_S;
        if !is_due || !self.is_worth_it(interval.free_percent, look) {
            return Decision::GoOn;
        }
        (self.since_s, self.has_hours) = (Some(look.now_s), false);
        Decision::Begin
    }

    fn by_window(&mut self, window: CompactWindow, look: &Look) -> Decision {
        let local_s = look.now_s + look.ahead_s;
        let (day, hour) = (local_s.div_euclid(DAY_S), (local_s.rem_euclid(DAY_S) / HOUR_S) as u8);
        // The first of January 1970 was a Thursday.
        let weekday = ((day + 3).rem_euclid(7) + 1) as u8;
        if !window.contains(weekday, hour) {
            return if self.has_hours && look.is_compacting { Decision::Hold } else { Decision::GoOn };
        }
        let began_on = if hour >= window.from_hour { day } else { day - 1 };
        if self.day == Some(began_on) {
            return Decision::GoOn;
        }
        if look.is_compacting {
            // A compaction that was not finished in the hours of another day goes on now.
            self.day = self.has_hours.then_some(began_on);
            return Decision::GoOn;
        }
        if !self.is_worth_it(window.free_percent, look) {
            return Decision::GoOn;
        }
        (self.day, self.has_hours) = (Some(began_on), true);
        Decision::Begin
    }

    /// Returns whether the disk has room, and something was written since the last one.
    fn is_worth_it(&self, free_percent: u8, look: &Look) -> bool {
        !look.is_compacting && look.free_percent >= f64::from(free_percent) && self.last != Some(look.last)
    }
}

impl Engine {
    /// COMPACT: has all rows of these databases compacted, or of all.
    pub(crate) fn compact(&self, databases: Option<&[u32]>) {
        let Some(store) = self.store() else { return };
        // An operator who asks for one has it now.
        lock(&self.compactions.0).schedule.has_hours = false;
        store.hold_compaction(false);
        store.compact(databases);
    }

    /// Looks whether a full compaction is to begin by itself, to be held, or to go on. May wait for the disk.
    pub(crate) fn look_at_compactions(&self) {
        let Some(store) = self.store() else { return };
        let mut state = lock(&self.compactions.0);
        if state.looked.is_some_and(|looked| looked.elapsed() < INTERVAL) {
            return;
        }
        state.looked = Some(Instant::now());
        let config = self.settings.config();
        let plan = Plan { window: config.compactions.window, interval: config.compactions.interval };
        let is_idle = plan.window.is_none() && plan.interval.is_none() && !state.schedule.has_hours;
        if is_idle || config.engine == haypile_config::Engine::Memory {
            return;
        }
        let Some(free_percent) = free_percent(&config.dir) else { return };
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let ahead_s = if plan.window.is_some() { ahead_of_utc_s(now_s) } else { 0 };
        let (last, is_compacting) = (store.log().last(), store.is_compacting());
        let look = Look { now_s, ahead_s, free_percent, last, is_compacting };
        match state.schedule.decide(plan, &look) {
            Decision::Begin => {
                tracing::info!("a full compaction begins by itself: {}", reason(&config));
                store.hold_compaction(false);
                store.compact(None);
            }
            Decision::Hold => store.hold_compaction(true),
            Decision::GoOn => store.hold_compaction(false),
            Decision::GiveUp => store.give_compaction_up(),
        }
    }
}

fn reason(config: &Config) -> &'static str {
    if config.compactions.interval.is_some() { "compact-interval" } else { "compact-cron" }
}

/// Returns the part of a directory's disk that is free, in percent.
fn free_percent(dir: &Path) -> Option<f64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_bavail as f64 * 100.0 / disk.f_blocks.max(1) as f64)
}

/// Returns the seconds by which local time is ahead of UTC; 0 where the system's time zone is not known.
fn ahead_of_utc_s(now_s: i64) -> i64 {
    let zone = tz::TimeZone::local().unwrap_or_else(|_| tz::TimeZone::utc());
    zone.find_local_time_type(now_s).map_or(0, |kind| i64::from(kind.ut_offset()))
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::Decision::{Begin, GiveUp, GoOn, Hold};
    use super::*;

    /// Wednesday, the second of January 2030, at midnight UTC.
    const WEDNESDAY_S: i64 = 1_893_542_400;

    struct Test {
        schedule: Schedule,
        plan: Plan,
        ahead_s: i64,
        free_percent: f64,
        last: u64,
    }

    impl Test {
        fn new(window: Option<&str>, interval: Option<&str>) -> Test {
            let window = window.map(|text| CompactWindow::parse(text).expect("it is one"));
            let interval = interval.map(|text| CompactInterval::parse(text).expect("it is one"));
            let plan = Plan { window, interval };
            Test { schedule: Schedule::default(), plan, ahead_s: 0, free_percent: 70.0, last: 1 }
        }

        /// The decision so many hours behind that Wednesday; something is written each time.
        fn at(&mut self, hours: f64, is_compacting: bool) -> Decision {
            self.last += 1;
            self.look(hours, is_compacting)
        }

        fn look(&mut self, hours: f64, is_compacting: bool) -> Decision {
            let now_s = WEDNESDAY_S + (hours * HOUR_S as f64) as i64;
            let Test { ahead_s, free_percent, last, .. } = *self;
            self.schedule.decide(self.plan, &Look { now_s, ahead_s, free_percent, last: Index(last), is_compacting })
        }
    }

    #[test]
    fn one_begins_each_day_in_its_hours_and_has_these_alone() {
        let mut test = Test::new(Some("02-04/60"), None);
        assert_eq!(test.at(1.99, false), GoOn);
        assert_eq!(test.at(2.0, false), Begin);
        assert_eq!(test.at(2.1, true), GoOn);
        assert_eq!(test.at(3.99, true), GoOn);
        assert_eq!(test.at(4.0, true), Hold);
        assert_eq!(test.at(25.0, true), Hold);
        assert_eq!(test.at(26.0, true), GoOn, "the next night it goes on");
        assert_eq!(test.at(27.0, false), GoOn, "and is that night's");
        assert_eq!(test.at(50.0, false), Begin);
        assert_eq!(test.at(50.5, false), GoOn, "once in a night");
    }

    #[test]
    fn the_day_the_time_zone_and_the_disk_count() {
        let mut test = Test::new(Some("3/22-02/60"), None);
        assert_eq!(test.at(1.0, false), GoOn, "these hours began on Tuesday");
        test.free_percent = 59.9;
        assert_eq!(test.at(22.0, false), GoOn, "there is no room");
        test.free_percent = 60.0;
        assert_eq!(test.at(25.0, false), Begin, "there is room now, an hour behind midnight");
        assert_eq!(test.at(46.0, false), GoOn, "it is Thursday");
        assert_eq!(test.at(7.0 * 24.0 + 22.0, false), Begin, "a week later");
        let mut test = Test::new(Some("02-04/60"), None);
        test.ahead_s = 8 * HOUR_S;
        assert_eq!(test.at(2.0, false), GoOn, "it is ten o'clock in Shanghai");
        assert_eq!(test.at(18.0, false), Begin);
    }

    #[test]
    fn nothing_is_compacted_twice_and_what_an_operator_has_begun_is_not_held() {
        let mut test = Test::new(Some("02-04/60"), None);
        assert_eq!(test.at(2.0, true), GoOn, "one goes on already");
        assert_eq!(test.at(4.0, true), GoOn, "which is not held");
        assert_eq!(test.at(26.0, false), Begin);
        assert_eq!(test.look(50.0, false), GoOn, "nothing was written");
        assert_eq!(test.at(51.0, false), Begin);
        test.plan.window = None;
        assert_eq!(test.at(53.0, true), GiveUp);
        assert_eq!(test.at(53.0, false), GoOn);
    }

    #[test]
    fn one_begins_every_so_many_hours() {
        let mut test = Test::new(Some("02-04/60"), Some("6/60"));
        assert_eq!(test.at(2.0, false), GoOn, "the interval wins");
        assert_eq!(test.at(7.9, false), GoOn);
        assert_eq!(test.at(8.0, false), Begin);
        assert_eq!(test.at(13.0, true), GoOn);
        assert_eq!(test.at(14.0, true), GoOn, "one goes on");
        assert_eq!(test.at(14.5, false), Begin);
    }
}
