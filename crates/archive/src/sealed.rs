//! Encrypted objects: pieces of 64 KiB, each sealed with AES-256-GCM under the object's own key.
//!
//! The order of pieces, the end, and the object's name are part of what is authenticated, so that a piece that is
//! moved, left out or taken from elsewhere is noticed. The construction is STREAM (Hoang, Reyhanitabar, Rogaway and
//! Vizár, 2015): the nonce is the number of the piece and whether it is the last one.

use crate::key::Key;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

const MAGIC: [u8; 8] = *b"haypsea1";
const SALT_BYTES: usize = 32;
/// Bytes before the first piece.
pub const HEADER_BYTES: usize = MAGIC.len() + SALT_BYTES;
/// Bytes of a piece before it is sealed.
pub const PIECE_BYTES: usize = 64 << 10;
const TAG_BYTES: usize = 16;

/// Seals the pieces of an object.
pub struct Sealer(Pieces);

/// Opens the pieces of an object, whose bytes come as they come.
pub struct Opener {
    key: Key,
    name: String,
    pieces: Option<Pieces>,
    /// Bytes that are no whole piece yet, or may be the last one.
    held: Vec<u8>,
}

struct Pieces {
    key: LessSafeKey,
    name: String,
    number: u64,
}

impl Pieces {
    fn new(key: &Key, salt: &[u8], name: &str) -> Pieces {
        let key = UnboundKey::new(&AES_256_GCM, &key.of_object(salt)).expect("the key has the algorithm's length");
        Pieces { key: LessSafeKey::new(key), name: name.to_owned(), number: 0 }
    }

    fn nonce(&mut self, is_last: bool) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.number.to_be_bytes());
        nonce[11] = u8::from(is_last);
        self.number += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Sealer {
    /// Begins an object of this name; returns its first bytes, too.
    pub fn begin(key: &Key, name: &str) -> (Sealer, Vec<u8>) {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new().fill(&mut salt).expect("the kernel's random source always gives bytes");
        (Sealer(Pieces::new(key, &salt, name)), [&MAGIC[..], &salt].concat())
    }

    /// Appends a piece, which has `PIECE_BYTES` unless it is the last one, sealed, to `out`.
    pub fn seal(&mut self, piece: &[u8], is_last: bool, out: &mut Vec<u8>) {
        assert!(piece.len() == PIECE_BYTES || is_last && piece.len() < PIECE_BYTES, "pieces are whole, but the last");
        let nonce = self.0.nonce(is_last);
        let at = out.len();
        out.extend_from_slice(piece);
        let aad = Aad::from(self.0.name.as_bytes());
        let sealed = self.0.key.seal_in_place_separate_tag(nonce, aad, &mut out[at..]);
        out.extend_from_slice(sealed.expect("a piece is shorter than what the algorithm takes").as_ref());
    }

    /// Seals a whole object.
    pub fn whole(key: &Key, name: &str, bytes: &[u8]) -> Vec<u8> {
        let (mut sealer, mut out) = Sealer::begin(key, name);
        let mut rest = bytes;
        while rest.len() >= PIECE_BYTES {
            let (piece, behind) = rest.split_at(PIECE_BYTES);
            sealer.seal(piece, false, &mut out);
            rest = behind;
        }
        sealer.seal(rest, true, &mut out);
        out
    }
}

impl Opener {
    pub fn new(key: &Key, name: &str) -> Opener {
        Opener { key: key.clone(), name: name.to_owned(), pieces: None, held: Vec::new() }
    }

    /// Takes the next bytes; hands what they open to `take`.
    ///
    /// # Errors
    /// A text for people, or what `take` says: the bytes were not sealed under this key and name.
    pub fn add<E: From<String>>(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.held.extend_from_slice(bytes);
        let mut at = 0;
        if self.pieces.is_none() {
            if self.held.len() < HEADER_BYTES {
                return Ok(());
            }
            if self.held[..MAGIC.len()] != MAGIC {
                return Err(E::from(format!("{} is not encrypted", self.name)));
            }
            self.pieces = Some(Pieces::new(&self.key, &self.held[MAGIC.len()..HEADER_BYTES], &self.name));
            at = HEADER_BYTES;
        }
        // A piece with something behind it is not the last one: whoever sealed it left the last one shorter.
        while self.held.len() - at >= PIECE_BYTES + TAG_BYTES {
            let end = at + PIECE_BYTES + TAG_BYTES;
            let opened = self.open(at..end, false)?;
            take(&self.held[opened])?;
            at = end;
        }
        self.held.drain(..at);
        Ok(())
    }

    /// Ends the object: hands what is left to `take`.
    ///
    /// # Errors
    /// A text for people, or what `take` says: the object is cut off, or was not sealed under this key and name.
    pub fn end<E: From<String>>(mut self, take: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.pieces.is_none() {
            return Err(E::from(format!("{} is cut off", self.name)));
        }
        let opened = self.open(0..self.held.len(), true)?;
        take(&self.held[opened])
    }

    fn open<E: From<String>>(
        &mut self,
        piece: std::ops::Range<usize>,
        is_last: bool,
    ) -> Result<std::ops::Range<usize>, E> {
        let pieces = self.pieces.as_mut().expect("the header was read");
        let (start, nonce) = (piece.start, pieces.nonce(is_last));
        let aad = Aad::from(pieces.name.as_bytes());
        match pieces.key.open_in_place(nonce, aad, &mut self.held[piece]) {
            Ok(plain) => Ok(start..start + plain.len()),
            Err(_) => Err(E::from(format!("{} is damaged, cut off, or encrypted with another key", self.name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::parse(&format!("{byte:02x}").repeat(32)).expect("64 digits")
    }

    fn open(key: &Key, name: &str, sealed: &[u8], step: usize) -> Result<Vec<u8>, String> {
        let mut plain = Vec::new();
        let mut opener = Opener::new(key, name);
        let mut take = |bytes: &[u8]| {
            plain.extend_from_slice(bytes);
            Ok::<_, String>(())
        };
        for part in sealed.chunks(step) {
            opener.add(part, &mut take)?;
        }
        opener.end(&mut take)?;
        Ok(plain)
    }

    #[test]
    fn whatever_was_sealed_is_opened_by_its_key_and_name_alone() {
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let plain: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            let sealed = Sealer::whole(&key(1), "log/a", &plain);
            for step in [1000, PIECE_BYTES, sealed.len()] {
                assert_eq!(open(&key(1), "log/a", &sealed, step).as_ref(), Ok(&plain), "{length} bytes by {step}");
            }
            assert!(open(&key(2), "log/a", &sealed, 4096).is_err(), "another key");
            assert!(open(&key(1), "log/b", &sealed, 4096).is_err(), "another name");
        }
    }

    #[test]
    fn no_byte_may_be_changed_moved_or_left_out() {
        let plain = vec![7; 2 * PIECE_BYTES + 100];
        let sealed = Sealer::whole(&key(1), "a", &plain);
        for at in (0..sealed.len()).step_by(997).chain([0, 8, HEADER_BYTES, sealed.len() - 1]) {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&key(1), "a", &changed, 5000).is_err(), "byte {at}");
        }
        let sealed_piece = PIECE_BYTES + TAG_BYTES;
        for cut in [0, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + sealed_piece, HEADER_BYTES + 2 * sealed_piece] {
            assert!(open(&key(1), "a", &sealed[..cut], 5000).is_err(), "cut at {cut}");
        }
        let (header, rest) = sealed.split_at(HEADER_BYTES);
        let swapped = [header, &rest[sealed_piece..2 * sealed_piece], &rest[..sealed_piece], &rest[2 * sealed_piece..]];
        assert!(open(&key(1), "a", &swapped.concat(), 5000).is_err(), "pieces exchanged");
        assert!(open(&key(1), "a", &plain, 5000).is_err(), "never sealed");
    }
}
