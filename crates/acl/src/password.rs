//! Passwords, of which only the SHA-256 is kept.

use sha2::{Digest, Sha256};
use std::fmt;

/// The SHA-256 of a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PasswordHash([u8; 32]);

impl PasswordHash {
    pub fn of(password: &[u8]) -> PasswordHash {
        PasswordHash(Sha256::digest(password).into())
    }

    /// The hash that 64 hexadecimal digits in lower case stand for.
    pub fn parse(digits: &[u8]) -> Option<PasswordHash> {
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(PasswordHash(bytes))
    }

    /// Compares in a time that does not tell where the two differ.
    pub(crate) fn is_same(&self, other: &PasswordHash) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |bits, (a, b)| bits | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(hash of a password)")
    }
}
