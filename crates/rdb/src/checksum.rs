//! CRC-64 as Redis takes it, in Jones's polynomial, reflected, beginning at zero.

use crc::{CRC_64_REDIS, Crc, Table};

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// A checksum in the making.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum(u64);

impl Checksum {
    /// Returns the checksum with these bytes added.
    pub fn and(self, bytes: &[u8]) -> Checksum {
        // The CRC begins at zero and xors nothing in at its end, so a digest goes on from a sum.
        let mut digest = CRC.digest_with_initial(self.0.reverse_bits());
        digest.update(bytes);
        Checksum(digest.finalize())
    }

    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_redis_s_whatever_the_pieces() {
        assert_eq!(Checksum::default().and(b"123456789").value(), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(Checksum::default().and(b"1234").and(b"").and(b"56789").value(), 0xe9c6_d914_c4b8_d9ca);
    }
}
