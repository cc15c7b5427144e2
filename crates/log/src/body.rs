//! The body of a record: effects, in exactly the bytes that the log keeps.
//!
//! The store writes effects into a [`Body`] as a transaction runs, so nothing is encoded twice; replay and
//! replicas take them apart with [`effects`]. This file never looks at what a key or a value means.
//! The grammar is in `docs/format/log.md`; the record around a body is in `format.rs`.

use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

/// Permanent numbers of the effects: retire them, never reuse one.
const PUT: u8 = 1;
const DELETE: u8 = 2;
const PATCH: u8 = 3;
const COUNT: u8 = 4;
const SPLICE: u8 = 5;
const TOUCH: u8 = 6;
const STATEMENT: u8 = 7;

/// The effects of one transaction, encoded. The buffer is reused: `clear` keeps its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    bytes: Vec<u8>,
}

/// The places of the key and the value (or the bytes of a patch or a splice) of an effect in [`Body::bytes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub key: Range<u32>,
    /// The place of the value; for a delete it is empty, at the end of the key.
    pub value: Range<u32>,
}

impl Body {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Length in bytes; also a savepoint for [`truncate`](Self::truncate).
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes back everything added since `len()` was `to`.
    pub fn truncate(&mut self, to: usize) {
        self.bytes.truncate(to);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds all effects of `other` behind these. Their places move by this body's length before.
    pub fn append(&mut self, other: &Body) {
        self.bytes.extend_from_slice(&other.bytes);
        assert!(u32::try_from(self.bytes.len()).is_ok(), "a body is shorter than 4 GiB");
    }

    /// Adds effects that were taken from the end of this body.
    pub fn extend(&mut self, effects: &[u8]) {
        self.bytes.extend_from_slice(effects);
    }

    /// Bytes of memory that the buffer holds, used or not.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Makes room for `bytes` more.
    pub fn reserve_exact(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes);
    }

    /// Gives back memory beyond `bytes_max`, after an unusually long body.
    pub fn shrink_to(&mut self, bytes_max: usize) {
        self.bytes.shrink_to(bytes_max);
    }

    /// The row `key` becomes `value`. The parts of each are concatenated.
    pub fn put(&mut self, key: &[&[u8]], value: &[&[u8]]) -> Placed {
        let (key_bytes, value_bytes) = (total(key), total(value));
        self.bytes.reserve(11 + key_bytes as usize + value_bytes as usize);
        self.bytes.push(PUT);
        self.varint(key_bytes.into());
        self.varint(value_bytes.into());
        let key = self.parts(key);
        let value = self.parts(value);
        Placed { key, value }
    }

    /// The row `key` is gone.
    pub fn delete(&mut self, key: &[&[u8]]) -> Placed {
        self.bytes.push(DELETE);
        self.varint(total(key).into());
        let key = self.parts(key);
        let value = key.end..key.end;
        Placed { key, value }
    }

    /// The row `key` (empty if it is missing) is cut or extended with zeros to `len_after` bytes, then `bytes` are
    /// written at `offset`.
    pub fn patch(&mut self, key: &[&[u8]], offset: u32, bytes: &[u8], len_after: u32) -> Placed {
        let patch_bytes = total(&[bytes]);
        assert!(
            u64::from(offset) + u64::from(patch_bytes) <= u64::from(len_after),
            "a patch lies inside the row as it is afterwards"
        );
        self.bytes.push(PATCH);
        self.varint(total(key).into());
        self.varint(offset.into());
        self.varint(patch_bytes.into());
        self.varint(len_after.into());
        let key = self.parts(key);
        let value = self.parts(&[bytes]);
        Placed { key, value }
    }

    /// Replaces `removed` bytes at `offset` of the row `key` (empty if it is missing) by `bytes`. The row is
    /// `len_after` bytes long then, which says how long it has to be before.
    pub fn splice(&mut self, key: &[&[u8]], offset: u32, removed: u32, bytes: &[u8], len_after: u32) -> Placed {
        let inserted = total(&[bytes]);
        assert!(is_splice(offset, removed, inserted, len_after), "a splice lies inside the row, before and afterwards");
        self.bytes.push(SPLICE);
        self.varint(total(key).into());
        self.varint(offset.into());
        self.varint(removed.into());
        self.varint(inserted.into());
        self.varint(len_after.into());
        let key = self.parts(key);
        let value = self.parts(&[bytes]);
        Placed { key, value }
    }

    /// Names the meta row `key`, which stays, because rows that belong to it change in this record.
    pub fn touch(&mut self, key: &[u8]) {
        self.bytes.push(TOUCH);
        self.varint(total(&[key]).into());
        self.parts(&[key]);
    }

    /// Says in words of the writer's own what the other effects do, for readers of the log. `database` is where it is
    /// said of; `None` is nowhere.
    pub fn statement(&mut self, database: Option<u32>, text: &[&[u8]]) {
        self.statement_of(database, total(text), |bytes| text.iter().for_each(|part| bytes.extend_from_slice(part)));
    }

    /// Says in words of the writer's own what the other effects do: in `text_bytes` bytes, which `add` adds to the
    /// body.
    ///
    /// # Panics
    /// The bytes are not as many.
    pub fn statement_of(&mut self, database: Option<u32>, text_bytes: u32, add: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.reserve(11 + text_bytes as usize);
        self.bytes.push(STATEMENT);
        self.varint(database.map_or(0, |database| u64::from(database) + 1));
        self.varint(text_bytes.into());
        let end = self.bytes.len() + text_bytes as usize;
        add(&mut self.bytes);
        assert_eq!(self.bytes.len(), end, "a statement has as many bytes as it says");
        assert!(u32::try_from(end).is_ok(), "a body is shorter than 4 GiB");
    }

    /// The counter changes by `delta`: fixed at commit and never derived again.
    pub fn count(&mut self, space: u32, counter: u8, delta: i64) {
        self.bytes.push(COUNT);
        self.varint(space.into());
        self.bytes.push(counter);
        self.varint(((delta << 1) ^ (delta >> 63)) as u64);
    }

    fn parts(&mut self, parts: &[&[u8]]) -> Range<u32> {
        let start = self.bytes.len() as u32;
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        assert!(u32::try_from(self.bytes.len()).is_ok(), "a body is shorter than 4 GiB");
        start..self.bytes.len() as u32
    }

    /// Writes a number as LEB128: seven bits a byte, the lowest first, the top bit set on all but the last.
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }
}

/// Whether a splice lies inside the row as it is afterwards, and the row before is no longer than rows are.
fn is_splice(offset: u32, removed: u32, inserted: u32, len_after: u32) -> bool {
    u64::from(offset) + u64::from(inserted) <= u64::from(len_after)
        && u64::from(len_after) - u64::from(inserted) + u64::from(removed) <= u64::from(u32::MAX)
}

fn total(parts: &[&[u8]]) -> u32 {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    u32::try_from(bytes).expect("the caller bounds a row far below 4 GiB")
}

/// The CRC-32 that [`Log::append`](crate::Log::append) wants: computed outside of its lock.
pub fn body_crc(body: &[u8]) -> u32 {
    // A new hasher asks what the CPU can do, which takes as long as the checksum of a short body.
    static NEW: LazyLock<crc32fast::Hasher> = LazyLock::new(crc32fast::Hasher::new);
    let mut hasher = NEW.clone();
    hasher.update(body);
    hasher.finalize()
}

/// One effect, borrowed from a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    Put {
        key: &'a [u8],
        value: &'a [u8],
    },
    Delete {
        key: &'a [u8],
    },
    /// `offset + bytes.len() <= len_after`.
    Patch {
        key: &'a [u8],
        offset: u32,
        bytes: &'a [u8],
        len_after: u32,
    },
    /// `offset + bytes.len() <= len_after`, and `len_after - bytes.len() + removed`, the length before, fits 32 bits.
    Splice {
        key: &'a [u8],
        offset: u32,
        removed: u32,
        bytes: &'a [u8],
        len_after: u32,
    },
    Count {
        space: u32,
        counter: u8,
        delta: i64,
    },
    Touch {
        key: &'a [u8],
    },
    Statement {
        database: Option<u32>,
        text: &'a [u8],
    },
}

impl<'a> Effect<'a> {
    /// Returns the key of the row that the effect is about.
    pub fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Effect::Put { key, .. }
            | Effect::Delete { key }
            | Effect::Patch { key, .. }
            | Effect::Splice { key, .. }
            | Effect::Touch { key } => Some(key),
            Effect::Count { .. } | Effect::Statement { .. } => None,
        }
    }
}

/// A body that is not a sequence of effects: a defect of its writer, as its CRC was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyError {
    /// Offset in the body of the effect that could not be read.
    pub offset: usize,
    pub reason: &'static str,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "effect at byte {} of the record's body: {}", self.offset, self.reason)
    }
}

impl std::error::Error for BodyError {}

/// The effects of a body in order. Never panics and never allocates, whatever the bytes; ends after an error.
pub fn effects(body: &[u8]) -> Effects<'_> {
    Effects { body, at: 0 }
}

#[derive(Clone, Debug)]
pub struct Effects<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Effects<'a> {
    /// Offset in the body of the effect that comes next.
    pub fn offset(&self) -> usize {
        self.at
    }

    fn effect(&mut self) -> Result<Effect<'a>, &'static str> {
        match self.byte()? {
            PUT => {
                let (key_bytes, value_bytes) = (self.length()?, self.length()?);
                Ok(Effect::Put { key: self.take(key_bytes)?, value: self.take(value_bytes)? })
            }
            DELETE => {
                let key_bytes = self.length()?;
                Ok(Effect::Delete { key: self.take(key_bytes)? })
            }
            PATCH => {
                let key_bytes = self.length()?;
                let offset = self.length()?;
                let patch_bytes = self.length()?;
                let len_after = self.length()?;
                if u64::from(offset) + u64::from(patch_bytes) > u64::from(len_after) {
                    return Err("a patch beyond the end of its row");
                }
                let key = self.take(key_bytes)?;
                let bytes = self.take(patch_bytes)?;
                Ok(Effect::Patch { key, offset, bytes, len_after })
            }
            SPLICE => {
                let key_bytes = self.length()?;
                let (offset, removed) = (self.length()?, self.length()?);
                let (inserted, len_after) = (self.length()?, self.length()?);
                if !is_splice(offset, removed, inserted, len_after) {
                    return Err("a splice beyond the end of its row");
                }
                let (key, bytes) = (self.take(key_bytes)?, self.take(inserted)?);
                Ok(Effect::Splice { key, offset, removed, bytes, len_after })
            }
            COUNT => {
                let space = self.length()?;
                let counter = self.byte()?;
                let zigzag = self.varint()?;
                let delta = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
                Ok(Effect::Count { space, counter, delta })
            }
            TOUCH => {
                let key_bytes = self.length()?;
                Ok(Effect::Touch { key: self.take(key_bytes)? })
            }
            STATEMENT => {
                let (database, bytes) = (self.length()?.checked_sub(1), self.length()?);
                Ok(Effect::Statement { database, text: self.take(bytes)? })
            }
            _ => Err("an unknown kind of effect"),
        }
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        let byte = *self.body.get(self.at).ok_or("it is cut off")?;
        self.at += 1;
        Ok(byte)
    }

    fn take(&mut self, bytes: u32) -> Result<&'a [u8], &'static str> {
        let rest = &self.body[self.at..];
        let taken = rest.get(..bytes as usize).ok_or("it is cut off")?;
        self.at += taken.len();
        Ok(taken)
    }

    fn length(&mut self) -> Result<u32, &'static str> {
        u32::try_from(self.varint()?).map_err(|_| "a length above 32 bits")
    }

    fn varint(&mut self) -> Result<u64, &'static str> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err("a number above 64 bits");
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number above 64 bits")
    }
}

impl<'a> Iterator for Effects<'a> {
    type Item = Result<Effect<'a>, BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.body.len() {
            return None;
        }
        let offset = self.at;
        Some(self.effect().map_err(|reason| {
            self.at = self.body.len();
            BodyError { offset, reason }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_come_back_as_they_were_put() {
        let mut body = Body::new();
        let placed = body.put(&[b"ke", b"y"], &[b"", b"val", b"ue"]);
        assert_eq!(&body.bytes()[placed.key.start as usize..placed.key.end as usize], b"key");
        assert_eq!(&body.bytes()[placed.value.start as usize..placed.value.end as usize], b"value");
        let placed = body.delete(&[b"gone"]);
        assert!(placed.value.is_empty());
        let kept = body.len();
        body.put(&[b"rolled"], &[b"back"]);
        body.truncate(kept);
        body.patch(&[b"row"], 300, b"xyz", 70_000);
        body.splice(&[b"ro", b"w"], 300, 2, b"xyz", 70_000);
        body.splice(&[b"row"], 0, u32::MAX, b"", 0);
        body.count(7, 2, i64::MIN);
        body.count(u32::MAX, 255, i64::MAX);
        body.touch(b"key");
        body.statement(Some(0), &[b"set ", b"key"]);
        body.statement(None, &[]);
        let found: Vec<_> = effects(body.bytes()).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            found,
            [
                Effect::Put { key: b"key", value: b"value" },
                Effect::Delete { key: b"gone" },
                Effect::Patch { key: b"row", offset: 300, bytes: b"xyz", len_after: 70_000 },
                Effect::Splice { key: b"row", offset: 300, removed: 2, bytes: b"xyz", len_after: 70_000 },
                Effect::Splice { key: b"row", offset: 0, removed: u32::MAX, bytes: b"", len_after: 0 },
                Effect::Count { space: 7, counter: 2, delta: i64::MIN },
                Effect::Count { space: u32::MAX, counter: 255, delta: i64::MAX },
                Effect::Touch { key: b"key" },
                Effect::Statement { database: Some(0), text: b"set key" },
                Effect::Statement { database: None, text: b"" },
            ]
        );
    }

    #[test]
    fn a_broken_body_is_an_error_and_ends_the_iteration() {
        let check = |name: &str, body: &[u8], reason: &str| {
            let mut found = effects(body);
            assert_eq!(found.next().unwrap().unwrap_err().reason, reason, "{name}");
            assert_eq!(found.next(), None, "{name}");
        };
        check("no such effect", &[9], "an unknown kind of effect");
        check("a put without lengths", &[PUT], "it is cut off");
        check("a claimed key longer than the body", &[DELETE, 0xff, 0xff, 3, b'a'], "it is cut off");
        check("a touched key cut off", &[TOUCH, 2, b'a'], "it is cut off");
        check("a statement cut off", &[STATEMENT, 1, 2, b'a'], "it is cut off");
        check("a length of 33 bits", &[DELETE, 0x80, 0x80, 0x80, 0x80, 0x10], "a length above 32 bits");
        check(
            "eleven bytes of number",
            &[COUNT, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2],
            "a number above 64 bits",
        );
        check("a patch past its row", &[PATCH, 0, 4, 1, 4, b'x'], "a patch beyond the end of its row");
        let past = "a splice beyond the end of its row";
        check("a splice past its row", &[SPLICE, 0, 4, 0, 1, 4, b'x'], past);
        let longest = [0xff, 0xff, 0xff, 0xff, 0xf];
        check("a row that was too long", &[&[SPLICE, 0, 0][..], &longest, &[1, 2, b'x']].concat(), past);
        check("an offset beyond all rows", &[&[SPLICE, 0][..], &longest, &[0, 1], &longest, b"x"].concat(), past);
        check("a splice cut off", &[SPLICE, 0, 0, 0, 2, 2, b'x'], "it is cut off");
    }
}
