//! DUMP and RESTORE, for `generate` and for `play`. Payloads are each server's own, so a sequence does not name their
//! bytes: it has words that stand for the payload that this server or the other one answered to the last DUMP of an
//! existing key. Compared are the replies of RESTORE and the contents of the keys then.

use super::arguments::Arguments;
use super::sequence::Command;
use crate::client::Reply;
use crate::values;

/// The word for the payload that the server itself made.
const OWN: &[u8] = b"<own payload";
/// The word for the payload that the other server made.
const EXCHANGED: &[u8] = b"<payload of the other";

/// Payloads that no DUMP of ours makes. Version and checksum are right unless a comment says otherwise.
const MADE: &[&[u8]] = &[
    // The number 10; a string of version 6; a sorted set whose scores are text, one of them infinite.
    b"\x00\xc0\x0a\x0a\x00n\x9fWE\x0e\xaec\xbb",
    b"\x00\x03abc\x06\x00OAX\xbd\xb4'\x9eq",
    b"\x03\x02\x01a\x011\x01b\xff\x0a\x00P*\xef%k\xe8\x12\xfc",
    // A future version, a checksum of zeros, too few bytes for either.
    b"\x00\x03abc\xe7\x03\xb8)\xf3K\xbd\xb4Y\xeb",
    b"\x00\x03abc\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    b"\x00\x03abc\x0a\x00",
    b"",
    // An unknown type; a type and no value; nothing.
    b"c\x01a\x0a\x00S\xc0\xfb\xdf\xba\xb5\xae\x06",
    b"\x00\x0a\x00]\x9b\x5c@\x0f\x7f\xa2\xda",
    b"\x0a\x00]\x9b\x5c@\x0f\x7f\xa2\xda",
    // A list, a set, a hash and a packed hash of no elements.
    b"\x01\x00\x0a\x00[\xf8%\xccl\x17CV",
    b"\x02\x00\x0a\x00:\xce9\x00\x9b\x899\xe8",
    b"\x04\x00\x0a\x00\x931\x96\xc0'\x92\x95\xbf",
    b"\x10\x00\x0a\x00\x0e\xa3\xe1\x1b\xfe\xed$e",
    // A set of two with one member, one with a member twice, a score that is no number.
    b"\x02\x02\x01a\x0a\x00@\xf1\x02\xd2\xd8\xfc\x172",
    b"\x02\x02\x01a\x01a\x0a\x00W\xbev/\xc2\xd6R:",
    b"\x03\x01\x01a\xfd\x0a\x00\xd3\x93gI\xea\xdf>\xd5",
];

/// Returns a key, more often than elsewhere one that a group of commands has for itself.
fn key(a: &mut Arguments) -> Vec<u8> {
    const OF_GROUPS: &[&[u8]] = &[b"geo", b"jobs", b"events", b"pf0", b"pf1", b"broken", b"sorted"];
    if a.random.percent(20) { a.random.pick(OF_GROUPS).to_vec() } else { a.key() }
}

pub(super) fn dump(a: &mut Arguments) -> Command {
    vec![a.word("DUMP"), key(a)]
}

pub(super) fn restore(a: &mut Arguments) -> Command {
    let payload = match a.random.below(20) {
        0 => a.random.pick(MADE).to_vec(),
        1 => a.value(),
        2 => {
            // The byte is any byte of the payload, and most often one of version and checksum.
            let at = 1 + if a.random.percent(50) { a.random.below(10) } else { a.random.below(1 << 16) };
            let word = *a.random.pick(&["cut by ", "changed at -"]);
            [stand_in(a), format!(", {word}{at}").into_bytes()].concat()
        }
        _ => stand_in(a),
    };
    let key = key(a);
    restored(a, key, payload)
}

/// Returns a word for the payload of the last DUMP, or of the last FUNCTION DUMP for FUNCTION RESTORE.
pub(super) fn stand_in(a: &mut Arguments) -> Vec<u8> {
    a.random.pick(&[OWN, EXCHANGED]).to_vec()
}

fn restored(a: &mut Arguments, key: Vec<u8>, payload: Vec<u8>) -> Command {
    let is_absolute = a.random.percent(30);
    let ttl = match a.random.below(10) {
        0..=5 => b"0".to_vec(),
        6 => a.random.pick(&["-1", "-1000", "-9223372036854775808", "x", ""]).as_bytes().to_vec(),
        _ if is_absolute => a.deadline(1),
        _ => a.ttl(1),
    };
    let mut command = vec![a.word("RESTORE"), key, ttl, payload];
    if is_absolute {
        command.push(a.word("ABSTTL"));
    }
    if a.random.percent(60) {
        command.push(a.word("REPLACE"));
    }
    while a.random.percent(20) {
        match a.random.below(8) {
            0 => command.push(a.word("REPLACE")),
            1 => command.push(a.odd()),
            2..=4 => command.extend([a.word("IDLETIME"), seldom_wrong(a, 100_000)]),
            _ => command.extend([a.word("FREQ"), seldom_wrong(a, 256)]),
        }
    }
    command
}

fn seldom_wrong(a: &mut Arguments, below: u64) -> Vec<u8> {
    if a.random.percent(30) { a.number() } else { a.random.below(below).to_string().into_bytes() }
}

/// The prefix of keys with values of any size: neither they nor their payloads meet other commands. GEOSEARCH returns
/// any of several equally distant members, and many of these scores are equally distant.
const MOVED: &[u8] = b"moved";

fn is_moved(command: &Command) -> bool {
    command.get(1).is_some_and(|key| key.starts_with(MOVED))
}

/// Moves a value of any size and type from one key to another through the payload of either server, and then changes
/// it.
pub(super) fn transferred(a: &mut Arguments) -> Vec<Vec<Command>> {
    let [from, to] = [(); 2].map(|()| [MOVED, a.random.below(4).to_string().as_bytes()].concat());
    let mut made = vec![vec![b"DEL".to_vec(), from.clone()]];
    made.extend(values::value(&mut a.random, &from));
    let dump = vec![b"DUMP".to_vec(), from];
    let payload = stand_in(a);
    let restored = restored(a, to.clone(), payload);
    // Changes that do not fit the type are refused.
    let changes: &[&[&str]] = &[
        &["APPEND", "x"],
        &["LPUSH", "x"],
        &["RPOP"],
        &["SADD", "x", "7"],
        &["HSET", "x", "7"],
        &["ZADD", "7", "x"],
        &["XADD", "99999999999999-1", "x", "y"],
        &["XPENDING", "group 0"],
        &["DUMP"],
    ];
    let change = |words: &&[&str]| {
        let mut command: Command = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        command.insert(1, to.clone());
        command
    };
    vec![made, vec![dump], vec![restored], changes.iter().map(change).collect()]
}

/// The payloads of both servers' last dump of each origin.
#[derive(Default)]
pub(super) struct Payloads([Option<[Vec<u8>; 2]>; 3]);

/// The origins of payloads, as indexes of `Payloads`.
const OF_KEYS: usize = 0;
/// Keys with values of any size.
const OF_MOVED: usize = 1;
const OF_FUNCTIONS: usize = 2;

/// Returns the origin of what a command dumps, or restores if `word` is `restore`.
fn origin(command: &Command, word: &str) -> Option<usize> {
    let is = |at: usize, word: &str| command.get(at).is_some_and(|own| own.eq_ignore_ascii_case(word.as_bytes()));
    let of_keys = if is_moved(command) { OF_MOVED } else { OF_KEYS };
    match (is(0, word), is(0, "function") && is(1, word)) {
        (true, _) => Some(of_keys),
        (_, true) => Some(OF_FUNCTIONS),
        _ => None,
    }
}

impl Payloads {
    /// Keeps the payloads that a command was answered with, theirs and ours.
    pub(super) fn note(&mut self, command: &Command, theirs: &Reply, ours: &Reply) {
        if let Some(origin) = origin(command, "dump")
            && let (Reply::Bulk(theirs), Reply::Bulk(ours)) = (theirs, ours)
        {
            self.0[origin] = Some([theirs.to_vec(), ours.to_vec()]);
        }
    }

    /// Returns the command as it is sent to the base and to our server, with payloads in place of the words for them.
    pub(super) fn fill(&self, command: &Command) -> [Command; 2] {
        let mut filled = [command.clone(), command.clone()];
        let Some(origin) = origin(command, "restore") else { return filled };
        let at = if origin == OF_FUNCTIONS { 2 } else { 3 };
        let (Some(payloads), Some(word)) = (&self.0[origin], command.get(at)) else { return filled };
        let (damage, is_own) = match (word.strip_prefix(OWN), word.strip_prefix(EXCHANGED)) {
            (Some(damage), _) => (damage, true),
            (_, Some(damage)) => (damage, false),
            _ => return filled,
        };
        for (side, command) in filled.iter_mut().enumerate() {
            let payload = &payloads[if is_own { side } else { 1 - side }];
            command[at] = damaged(payload.clone(), damage);
        }
        filled
    }
}

/// Returns a payload with a byte changed, counted from its end, or cut by some bytes.
fn damaged(mut payload: Vec<u8>, damage: &[u8]) -> Vec<u8> {
    let number =
        |word: &str| damage.strip_prefix(word.as_bytes()).and_then(|n| std::str::from_utf8(n).ok()?.parse().ok());
    let cut: Option<usize> = number(", cut by ");
    let changed: Option<usize> = number(", changed at -");
    if let Some(count) = cut {
        payload.truncate(payload.len().saturating_sub(count));
    }
    if let Some(at) = changed {
        let at = payload.len() - 1 - (at - 1) % payload.len();
        payload[at] ^= 0x20;
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_gets_the_payload_that_the_word_stands_for() {
        let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Command>();
        let mut payloads = Payloads::default();
        let restore = |payload: &[u8]| words(&[b"RESTORE", b"a", b"0", payload]);
        let own = restore(OWN);
        assert_eq!(payloads.fill(&own), [own.clone(), own.clone()], "there is none yet");
        payloads.note(&words(&[b"DUMP", b"a"]), &Reply::bulk("theirs"), &Reply::bulk("ours"));
        payloads.note(&words(&[b"DUMP", b"b"]), &Reply::Null, &Reply::Null);
        payloads.note(&words(&[b"GET", b"b"]), &Reply::bulk("x"), &Reply::bulk("x"));
        let queued = Reply::Simple(b"QUEUED".to_vec());
        payloads.note(&words(&[b"DUMP", b"c"]), &queued, &queued);
        let check = |word: &[u8], to_them: &[u8], to_us: &[u8]| {
            assert_eq!(payloads.fill(&restore(word)), [restore(to_them), restore(to_us)], "{}", word.escape_ascii());
        };
        check(b"<own payload", b"theirs", b"ours");
        check(b"<payload of the other", b"ours", b"theirs");
        check(b"<own payload, cut by 2", b"thei", b"ou");
        check(b"<payload of the other, changed at -1", b"ourS", b"theirS");
        check(b"<own payload, changed at -6", b"Theirs", b"ouRs");
        let restore = |payload: &[u8]| words(&[b"FUNCTION", b"RESTORE", payload, b"FLUSH"]);
        assert_eq!(payloads.fill(&restore(OWN)), [restore(OWN), restore(OWN)], "of libraries there is none yet");
        payloads.note(&words(&[b"function", b"dump"]), &Reply::bulk("their own"), &Reply::bulk("our own"));
        assert_eq!(payloads.fill(&restore(OWN)), [restore(b"their own"), restore(b"our own")]);
        assert_eq!(payloads.fill(&restore(EXCHANGED)), [restore(b"our own"), restore(b"their own")]);
        let set = words(&[b"SET", b"a", b"0", OWN]);
        assert_eq!(payloads.fill(&set), [set.clone(), set]);
        let moved = words(&[b"RESTORE", b"moved1", b"0", OWN]);
        assert_eq!(payloads.fill(&moved), [moved.clone(), moved], "of these there is none");
    }
}
