//! `compact-cron` and `compact-interval`: when full compactions begin by themselves, in Pika's notation.

/// Hours in which full compactions go on: `02-04/60`, or on one day of the week only, `3/02-04/60`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactWindow {
    /// The day on which the hours begin, from 1 for Monday to 7 for Sunday; None for every day.
    pub weekday: Option<u8>,
    /// The first hour, from 0 to 23.
    pub from_hour: u8,
    /// The hour with which it ends; before `from_hour`, it is one of the next day.
    pub until_hour: u8,
    /// The percentage of the disk that has to be free for a compaction to begin.
    pub free_percent: u8,
}

/// The hours between two full compactions: `6/60`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactInterval {
    pub hours: u32,
    /// The percentage of the disk that has to be free for a compaction to begin.
    pub free_percent: u8,
}

impl CompactWindow {
    /// Parses the value of `compact-cron`.
    pub fn parse(text: &str) -> Option<CompactWindow> {
        let (when, free_percent) = text.rsplit_once('/')?;
        let (weekday, hours) = match when.split_once('/') {
            Some((weekday, hours)) => (Some(number(weekday, 1, 7)? as u8), hours),
            None => (None, when),
        };
        let (from, until) = hours.split_once('-')?;
        let (from_hour, until_hour) = (number(from, 0, 23)? as u8, number(until, 0, 23)? as u8);
        let free_percent = number(free_percent, 0, 100)? as u8;
        (from_hour != until_hour).then_some(CompactWindow { weekday, from_hour, until_hour, free_percent })
    }

    /// Returns whether an hour of a day of the week is one of the window's.
    pub fn contains(&self, weekday: u8, hour: u8) -> bool {
        let is_on = |day: u8| self.weekday.is_none_or(|wanted| wanted == day);
        let yesterday = if weekday == 1 { 7 } else { weekday - 1 };
        if self.from_hour < self.until_hour {
            return is_on(weekday) && (self.from_hour..self.until_hour).contains(&hour);
        }
        is_on(weekday) && hour >= self.from_hour || is_on(yesterday) && hour < self.until_hour
    }
}

impl CompactInterval {
    /// Parses the value of `compact-interval`.
    pub fn parse(text: &str) -> Option<CompactInterval> {
        let (hours, free_percent) = text.split_once('/')?;
        Some(CompactInterval { hours: number(hours, 1, HOURS_MAX)?, free_percent: number(free_percent, 0, 100)? as u8 })
    }
}

/// Ten years.
const HOURS_MAX: u32 = 87_600;

fn number(digits: &str, least: u32, most: u32) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && (least..=most).contains(number))
}

/// Checks the value of `compact-cron`; empty is none.
pub(crate) fn check_window(text: &[u8]) -> Result<(), &'static str> {
    let is_right = |text| CompactWindow::parse(text).is_some();
    match std::str::from_utf8(text) {
        Ok(text) if text.is_empty() || is_right(text) => Ok(()),
        _ => Err(
            "argument must be hours and the percentage of the disk that has to be free, like 02-04/60 or 3/02-04/60",
        ),
    }
}

/// Checks the value of `compact-interval`; empty is none.
pub(crate) fn check_interval(text: &[u8]) -> Result<(), &'static str> {
    let is_right = |text| CompactInterval::parse(text).is_some();
    match std::str::from_utf8(text) {
        Ok(text) if text.is_empty() || is_right(text) => Ok(()),
        _ => Err("argument must be a number of hours and the percentage of the disk that has to be free, like 6/60"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_as_pika_writes_them() {
        let window = |weekday, from_hour, until_hour, free_percent| {
            Some(CompactWindow { weekday, from_hour, until_hour, free_percent })
        };
        for (text, expected) in [
            ("02-04/60", window(None, 2, 4, 60)),
            ("3/02-04/60", window(Some(3), 2, 4, 60)),
            ("7/23-1/0", window(Some(7), 23, 1, 0)),
            ("0-23/100", window(None, 0, 23, 100)),
        ] {
            assert_eq!(CompactWindow::parse(text), expected, "{text}");
        }
        for wrong in ["", "02-04", "02-24/60", "02-04/101", "0/02-04/60", "8/02-04/60", "4-4/0", "+2-4/60", "2-4/", "x"]
        {
            assert_eq!(CompactWindow::parse(wrong), None, "{wrong}");
        }
        assert_eq!(CompactInterval::parse("6/60"), Some(CompactInterval { hours: 6, free_percent: 60 }));
        for wrong in ["", "6", "0/60", "6/101", "-6/60", "1/2/3"] {
            assert_eq!(CompactInterval::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_window_has_its_hours_also_across_midnight() {
        let has = |text: &str, weekday, hour| CompactWindow::parse(text).expect("it is one").contains(weekday, hour);
        assert!(has("02-04/60", 1, 2) && has("02-04/60", 7, 3));
        assert!(!has("02-04/60", 1, 4) && !has("02-04/60", 1, 1));
        assert!(has("3/02-04/60", 3, 2) && !has("3/02-04/60", 4, 2));
        assert!(has("22-02/0", 5, 23) && has("22-02/0", 5, 1) && !has("22-02/0", 5, 2));
        assert!(has("7/22-02/0", 7, 22) && has("7/22-02/0", 1, 1), "it goes on into Monday");
        assert!(!has("7/22-02/0", 7, 1) && !has("7/22-02/0", 1, 22));
    }
}
