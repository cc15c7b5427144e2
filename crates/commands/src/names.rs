//! The names by which the clients of one server call its commands.
//!
//! Owns the index from a name in any case to a command, built for the one look-up that every request makes. Never knows
//! what a command is; that is in `table/lookup.rs`.

use crate::command_id::CommandId;

/// Whether a name begins a request of HTTP, or one of its headers that no client leaves out: no command is ever called
/// so, and a connection that sends it as one is closed.
pub fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Names in lower case, each with its command.
pub(crate) struct Names {
    names: Vec<(Box<[u8]>, CommandId)>,
    /// An open-addressed index; an empty slot ends a probe. At most a quarter is in use, so that probes are short.
    slots: Box<[Slot]>,
}

/// A name's place in the index, with enough of the name to tell most others apart without looking at it.
#[derive(Clone, Copy)]
struct Slot {
    /// The name as a word, which [`folded`] makes.
    word: u64,
    /// The length of the name in bytes; 0 for an empty slot.
    length: u16,
    /// Equal words of equal length mean equal names: at most eight letters, for which folding is exact.
    exact: bool,
    /// The index in `names`.
    at: u16,
}

const EMPTY: Slot = Slot { word: 0, length: 0, exact: false, at: 0 };

impl Names {
    pub(crate) fn new(names: impl IntoIterator<Item = (&'static str, CommandId)>) -> Self {
        let names = names.into_iter().map(|(name, id)| (name.to_ascii_lowercase().into_bytes().into(), id)).collect();
        let mut index = Self { names, slots: Box::default() };
        index.build();
        index
    }

    /// The command of this name, in any case.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<CommandId> {
        self.position(name).map(|at| self.names[at].1)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], CommandId)> {
        self.names.iter().map(|(name, id)| (&**name, *id))
    }

    /// Calls the command `from` only `to` from now on; an empty `to` takes its name away. Fails with a sentence that
    /// says why.
    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), String> {
        let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let Some(at) = self.position(from) else {
            return Err(format!("no such command: '{}'", shown(from)));
        };
        if to.is_empty() {
            self.names.remove(at);
        } else if self.position(to).is_some_and(|taken| taken != at) {
            return Err(format!("the name '{}' is taken by another command", shown(to)));
        } else if is_http(to) {
            return Err(format!("a connection that sends '{}' is closed: it would be a request of HTTP", shown(to)));
        } else if to.len() > usize::from(u16::MAX) {
            return Err(format!("a name of {} bytes is too long", to.len()));
        } else {
            self.names[at].0 = to.to_ascii_lowercase().into();
        }
        self.build();
        Ok(())
    }

    #[inline]
    fn position(&self, name: &[u8]) -> Option<usize> {
        let (word, mask) = (folded(name), self.slots.len() - 1);
        let mut place = spread(word, name.len()) & mask;
        loop {
            let slot = &self.slots[place];
            if slot.length == 0 {
                return None;
            }
            let alike = slot.word == word && usize::from(slot.length) == name.len();
            if alike && (slot.exact || self.names[slot.at as usize].0.eq_ignore_ascii_case(name)) {
                return Some(slot.at as usize);
            }
            place = (place + 1) & mask;
        }
    }

    fn build(&mut self) {
        let size = (self.names.len() * 4).next_power_of_two().max(16);
        let mut slots = vec![EMPTY; size].into_boxed_slice();
        for (at, (name, _)) in self.names.iter().enumerate() {
            let word = folded(name);
            let mut place = spread(word, name.len()) & (size - 1);
            while slots[place].length != 0 {
                place = (place + 1) & (size - 1);
            }
            let exact = name.len() <= 8 && name.iter().all(u8::is_ascii_lowercase);
            slots[place] = Slot { word, length: name.len() as u16, exact, at: at as u16 };
        }
        self.slots = slots;
    }
}

/// Returns up to eight bytes as they are, of longer names the first and last eight mixed; without the bit that tells
/// the case of a letter. So two spellings of a name have the same word, and for short names of letters no other bytes
/// have it.
#[inline]
fn folded(name: &[u8]) -> u64 {
    const CASE: u64 = 0x2020_2020_2020_2020;
    match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) if name.len() > 8 => {
            (u64::from_le_bytes(*first) | CASE) ^ (u64::from_le_bytes(*last) | CASE).rotate_left(29)
        }
        (Some(only), _) => u64::from_le_bytes(*only) | CASE,
        _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32 | CASE
            }
            _ => name.iter().fold(0, |word, &byte| word << 8 | u64::from(byte | 0x20)),
        },
    }
}

/// The names are the server's own, so nobody can make them collide.
#[inline]
fn spread(word: u64, length: usize) -> usize {
    ((word ^ length as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [&str; 9] =
        ["a", "get", "mget", "incrby", "expireat", "bitfield_ro", "expiretime", "pexpiretime", "x-y"];

    fn names() -> Names {
        Names::new(WORDS.into_iter().enumerate().map(|(id, name)| (name, CommandId(id as u16))))
    }

    #[test]
    fn a_name_is_found_in_any_case_and_nothing_else_is() {
        let names = names();
        for (id, name) in WORDS.iter().enumerate() {
            let name = name.as_bytes();
            for at in 0..name.len() {
                let mut spelling = name.to_vec();
                spelling[at] = spelling[at].to_ascii_uppercase();
                assert_eq!(names.find(&spelling), Some(CommandId(id as u16)), "{}", spelling.escape_ascii());
                // Every other byte in this place, those that fold to the same word among them.
                for byte in 0..=u8::MAX {
                    spelling[at] = byte;
                    let same = byte.eq_ignore_ascii_case(&name[at]) || spelling == b"A" || spelling == b"a";
                    assert_eq!(names.find(&spelling).is_some(), same, "{}", spelling.escape_ascii());
                }
            }
            assert_eq!(names.find(&[name, b"x"].concat()), None);
            assert_eq!(names.find(&name[..name.len() - 1]), None);
        }
        assert_eq!(names.find(b""), None);
    }

    #[test]
    fn the_words_of_http_are_known_in_any_case_and_no_others() {
        for name in ["POST", "post", "Host:", "hOST:"] {
            assert!(is_http(name.as_bytes()), "{name}");
        }
        for name in ["", "GET", "Host", "host::", "posts", "PUT", " post"] {
            assert!(!is_http(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_renamed_command_has_only_its_new_name() {
        let mut names = names();
        names.rename(b"GET", b"Fetch").expect("the name is free");
        assert_eq!((names.find(b"get"), names.find(b"fetch")), (None, Some(CommandId(1))));
        names.rename(b"fetch", b"FETCH").expect("its own name is free");
        names.rename(b"mget", b"").expect("an empty name takes it away");
        assert_eq!((names.find(b"mget"), names.iter().len()), (None, WORDS.len() - 1));
        assert_eq!(names.rename(b"mget", b"m"), Err("no such command: 'mget'".to_owned()));
        assert_eq!(names.rename(b"a", b"Fetch"), Err("the name 'Fetch' is taken by another command".to_owned()));
        assert!(names.rename(b"a", &[b'x'; 70_000]).is_err());
        assert!(names.rename(b"a", b"Post").is_err_and(|why| why.contains("request of HTTP")));
    }
}
