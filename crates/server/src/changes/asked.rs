//! The request of somebody who follows the changes: the words that CHANGES.FOLLOW hands over.

use super::record::Wanted;
use haypile_commands::changes::WORD;
use haypile_log::{History, Index};

/// The place behind which the stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The oldest record that the log has.
    Oldest,
    /// Whatever comes from now on.
    Now,
    /// The record that was taken last.
    Behind(Index),
}

/// See the file's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub from: From,
    /// The history of the record that was taken last, if it is to be the log's.
    pub history: Option<History>,
    pub wanted: Wanted,
    /// The client speaks RESP3.
    pub pushes: bool,
}

impl Asked {
    /// Reads the words of a connection that was handed over; None if they are no such request.
    pub fn parse(words: &[Vec<u8>]) -> Option<Asked> {
        let [word, from, history, database, before, pushes, patterns @ ..] = words else { return None };
        if word != WORD.as_bytes() {
            return None;
        }
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let from = match from.as_slice() {
            b"-" => From::Oldest,
            b"$" => From::Now,
            index => From::Behind(Index(text(index).parse().ok()?)),
        };
        let history = match history.as_slice() {
            b"" => None,
            history => Some(History::parse(&text(history))?),
        };
        let database = match database.as_slice() {
            b"" => None,
            database => Some(text(database).parse().ok()?),
        };
        let wanted = Wanted { database, patterns: patterns.to_vec(), before: before == b"1" };
        Some(Asked { from, history, wanted, pushes: pushes == b"1" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Option<Asked> {
        Asked::parse(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn a_request_says_from_where_and_what() {
        let all = Wanted { database: None, patterns: Vec::new(), before: false };
        let asked = |from| Asked { from, history: None, wanted: all.clone(), pushes: false };
        assert_eq!(parse(&[WORD, "-", "", "", "0", "0"]), Some(asked(From::Oldest)));
        assert_eq!(parse(&[WORD, "$", "", "", "0", "0"]), Some(asked(From::Now)));
        let history = "0123456789abcdef0123456789abcdef01234567";
        let some = Asked {
            from: From::Behind(Index(17)),
            history: History::parse(history),
            wanted: Wanted { database: Some(3), patterns: vec![b"user:*".to_vec(), b"x".to_vec()], before: true },
            pushes: true,
        };
        assert_eq!(parse(&[WORD, "17", history, "3", "1", "1", "user:*", "x"]), Some(some));
        for wrong in [&["psync", "?", "-1"][..], &[WORD, "-"], &[WORD, "x", "", "", "0", "0"], &[]] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
