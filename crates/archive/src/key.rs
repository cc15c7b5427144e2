//! A key of the user's, with which an archive's objects are encrypted.

use ring::{hkdf, hmac};

/// 256 secret bits.
#[derive(Clone)]
pub struct Key([u8; 32]);

/// The length of the keys that are derived.
struct Bytes32;

impl hkdf::KeyType for Bytes32 {
    fn len(&self) -> usize {
        32
    }
}

impl Key {
    /// Reads a key file: 64 hexadecimal digits, and white space around them.
    ///
    /// # Errors
    /// A text for people.
    pub fn parse(text: &str) -> Result<Key, String> {
        let digits = text.trim().as_bytes();
        let wrong = || "a key is 64 hexadecimal digits, as `openssl rand -hex 32` prints them".to_owned();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Key(key))
    }

    /// Derives the key of one object from its salt.
    pub(crate) fn of_object(&self, salt: &[u8]) -> [u8; 32] {
        self.derive(salt, b"haypile archive: object")
    }

    /// Returns the name of a content whose checksum is this: without the key nobody can tell which content it is.
    pub(crate) fn name_of(&self, digest: &[u8; 32]) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.derive(b"", b"haypile archive: names"));
        let mut name = [0; 32];
        name.copy_from_slice(hmac::sign(&key, digest).as_ref());
        name
    }

    fn derive(&self, salt: &[u8], purpose: &[u8]) -> [u8; 32] {
        let mut derived = [0; 32];
        let pseudorandom = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0);
        let purpose = [purpose];
        let material = pseudorandom.expand(&purpose, Bytes32).expect("32 bytes are no more than HKDF gives");
        material.fill(&mut derived).expect("the length is the one that was asked for");
        derived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_64_digits() {
        let text = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
        let key = Key::parse(&format!(" {text}\n")).expect("it is one");
        assert_eq!(key.0[..4], [0, 1, 2, 3]);
        for wrong in [
            "",
            &text[1..],
            &text.replace('0', "g"),
            &format!("{text}0"),
            &text.replacen("00", "é", 1),
            &text.replacen("00", "+0", 1),
        ] {
            assert!(Key::parse(wrong).is_err(), "{wrong}");
        }
        assert_ne!(key.of_object(b"a"), key.of_object(b"b"));
    }
}
