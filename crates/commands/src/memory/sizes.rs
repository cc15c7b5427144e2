//! The sizes of strings and numbers in Redis's memory and in an RDB file.

use haypile_types::listpack;

/// Redis's entry of a key in its table.
pub(crate) const DICT_ENTRY_BYTES: u64 = 24;

/// A string with its header, whose size is that of the length, and the zero at its end. Only the name of a key has the
/// smallest one.
pub(crate) fn sds_bytes(length: u64, is_name: bool) -> u64 {
    let header = match length {
        1..32 if is_name => 1,
        0..256 => 3,
        256..0x1_0000 => 5,
        0x1_0000..0x1_0000_0000 => 9,
        _ => 17,
    };
    allocated(header + length + 1)
}

/// The size class of jemalloc that an allocation falls into: four to each power of two, sixteen bytes apart below.
pub(crate) fn allocated(bytes: u64) -> u64 {
    match bytes {
        0..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        _ => {
            let step = ((bytes - 1).ilog2() - 2).max(4);
            bytes.next_multiple_of(1 << step)
        }
    }
}

/// A string among others in a listpack.
pub(crate) fn listpack_bytes(string: &[u8]) -> u64 {
    listpack::entry_bytes(string) as u64
}

/// The bytes of `count` elements, if `seen` of them take `bytes`.
pub(crate) fn extrapolated(bytes: u64, seen: u64, count: u64) -> u64 {
    (u128::from(bytes) * u128::from(count) / u128::from(seen.max(1))) as u64
}

/// Bytes of a string in an RDB file that is not compressed, with its length.
pub(crate) fn rdb_bytes(length: u64) -> u64 {
    rdb_number_bytes(length) + length
}

/// Bytes of a length, or of another number, in an RDB file.
pub(crate) fn rdb_number_bytes(number: u64) -> u64 {
    match number {
        0..64 => 1,
        64..16_384 => 2,
        16_384..0x1_0000_0000 => 5,
        _ => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes() {
        let classes =
            [(1, 8), (9, 16), (17, 32), (128, 128), (129, 160), (161, 192), (257, 320), (1025, 1280), (4097, 5120)];
        for (bytes, class) in classes {
            assert_eq!(allocated(bytes), class, "{bytes}");
        }
    }
}
