//! Keyspace events: what `notify-keyspace-events` can ask for. A class is a bit, so that a transaction notes only the
//! classes that have listeners (`Txn::on_event`).
//!
//! The letters, and which event is of which class, are Redis's.

pub const KEYSPACE: u32 = 1;
pub const KEYEVENT: u32 = 1 << 1;
pub const GENERIC: u32 = 1 << 2;
pub const STRING: u32 = 1 << 3;
pub const LIST: u32 = 1 << 4;
pub const SET: u32 = 1 << 5;
pub const HASH: u32 = 1 << 6;
pub const ZSET: u32 = 1 << 7;
pub const EXPIRED: u32 = 1 << 8;
pub const EVICTED: u32 = 1 << 9;
pub const STREAM: u32 = 1 << 10;
pub const KEY_MISS: u32 = 1 << 11;
pub const MODULE: u32 = 1 << 12;
pub const NEW: u32 = 1 << 13;

const LETTERS: [(u8, u32); 14] = [
    (b'K', KEYSPACE),
    (b'E', KEYEVENT),
    (b'g', GENERIC),
    (b'$', STRING),
    (b'l', LIST),
    (b's', SET),
    (b'h', HASH),
    (b'z', ZSET),
    (b'x', EXPIRED),
    (b'e', EVICTED),
    (b't', STREAM),
    (b'm', KEY_MISS),
    (b'd', MODULE),
    (b'n', NEW),
];

/// The classes that `A` stands for.
const ALL: u32 = GENERIC | STRING | LIST | SET | HASH | ZSET | EXPIRED | EVICTED | STREAM | MODULE;

/// Returns the classes of a value of `notify-keyspace-events`; none if the value names no channel to tell them by.
pub fn classes(letters: &[u8]) -> u32 {
    let class = |letter: &u8| match letter {
        b'A' => ALL,
        letter => LETTERS.iter().find(|(known, _)| known == letter).map_or(0, |(_, class)| *class),
    };
    let classes = letters.iter().fold(0, |classes, letter| classes | class(letter));
    if classes & (KEYSPACE | KEYEVENT) == 0 { 0 } else { classes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_classes() {
        assert_eq!(classes(b"KA"), KEYSPACE | ALL);
        assert_eq!(classes(b"Eg$"), KEYEVENT | GENERIC | STRING);
        assert_eq!(classes(b"A"), 0, "nobody could hear of it");
        assert_eq!(classes(b"KEnm") & (NEW | KEY_MISS), NEW | KEY_MISS, "beside A");
    }
}
