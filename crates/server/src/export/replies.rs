//! The replies of a server as values: numbers, times, texts of errors.

use haypile_resp::Reply;

/// Returns a number that is not negative.
pub fn number_of(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Integer(number) => u64::try_from(*number).ok(),
        Reply::Bulk(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

pub fn text_of(error: &Reply) -> String {
    match error {
        Reply::Error(text) => text.clone().into_owned(),
        Reply::ErrorBytes(text) => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    }
}

/// Returns whether a reply says that a server does not know a command.
pub fn is_unknown(reply: &Reply) -> bool {
    reply.is_error() && text_of(reply).contains("unknown")
}

/// Returns the time that TIME tells, in milliseconds.
pub fn time_ms(time: &Reply) -> Option<u64> {
    let Reply::Array(time) = time else { return None };
    let [seconds, us] = &time[..] else { return None };
    number_of(seconds)?.checked_mul(1000)?.checked_add(number_of(us)? / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_all_times_is_none() {
        let time = |seconds: u64, us: u64| time_ms(&Reply::array([seconds, us].map(|n| Reply::bulk(n.to_string()))));
        assert_eq!(time(1_700_000_000, 123_999), Some(1_700_000_000_123));
        assert_eq!(time(u64::MAX, 0), None);
        assert_eq!(time(u64::MAX / 1000, u64::MAX), None);
    }
}
