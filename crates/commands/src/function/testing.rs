//! Payloads of FUNCTION RESTORE of any bytes, and what they may not do. For a seeded test and for a fuzz target.

use super::restore::{codes_of, payload};
use haypile_rdb::payload::Seal;
use haypile_script::LibraryHead;

/// Reads bytes as the libraries of a payload, to which the version and the checksum are added. What was read can be
/// written and read again as the same.
///
/// # Panics
/// Something happened that may not.
pub fn check_payload(bytes: &[u8]) {
    let mut seal = Seal::default();
    seal.add(bytes);
    let sealed = [bytes, &seal.end(10)].concat();
    let Ok(codes) = codes_of(&sealed) else { return };
    for code in &codes {
        _ = LibraryHead::of_library(code);
    }
    let again = payload(codes.iter().map(Vec::as_slice)).expect("it is not too long");
    assert_eq!(codes_of(&again).expect("it was written for this"), codes);
}
