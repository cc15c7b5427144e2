//! The time of day, as servers count deadlines by it.

use std::time::{SystemTime, UNIX_EPOCH};

use time::error::ComponentRange;
use time::{Date, OffsetDateTime};

/// Returns the milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Returns the day in UTC.
///
/// # Errors
/// The clock shows a year that a date cannot have.
pub fn today() -> Result<Date, ComponentRange> {
    Ok(OffsetDateTime::from_unix_timestamp((now_ms() / 1000) as i64)?.date())
}
