//! Checks that hashes, sets, lists and sorted sets share: docs/format/collections.md.

use super::objects::ObjectRows;
use super::place::{Report, Shown};
use crate::element::{HASH_BYTES, Head, RESERVED_HASH};
use crate::key::Object;
use crate::packed::{Packed, Reader};
use crate::value::encoding;
use haypile_store::base::BaseError;
use haypile_store::row;

/// Takes a packed collection apart and has `entry` read each entry; `entry` returns the defect, if there is one.
pub(super) fn check_packed<'p>(
    payload: &'p [u8],
    encoding_max: u8,
    report: &mut Report<'_, '_, '_>,
    mut entry: impl FnMut(&mut Reader<'p>) -> crate::Result<Result<(), String>>,
) {
    let Ok(packed) = Packed::parse(payload) else {
        return report.add(format_args!("its packed row does not parse: {}", Shown(payload)));
    };
    check_encoding(packed.encoding, encoding_max, report);
    if packed.count == 0 {
        report.add("it is empty, and should not be there");
    }
    let mut reader = packed.reader();
    for at in 0..packed.count {
        match entry(&mut reader) {
            Ok(Ok(())) => {}
            Ok(Err(what)) => report.add(format_args!("entry {at}: {what}")),
            Err(_) => {
                return report.add(format_args!("it states {} entries, and entry {at} does not parse", packed.count));
            }
        }
    }
    if !reader.is_at_end() {
        let rest = packed.entries.len() - reader.position();
        report.add(format_args!("it states {} entries, and {rest} bytes follow them", packed.count));
    }
}

/// Notes an element that is there twice. A packed collection has so few that a walk is quicker than a set.
#[derive(Default)]
pub(super) struct Distinct<'p>(Vec<&'p [u8]>);

impl<'p> Distinct<'p> {
    pub fn check(&mut self, element: &'p [u8]) -> Result<(), String> {
        if self.0.contains(&element) {
            return Err(format!("{} is there twice", Shown(element)));
        }
        self.0.push(element);
        Ok(())
    }
}

/// Checks an encoding against the highest number of its type and the type's own bits, which `max` has, too.
pub(super) fn check_encoding(number: u8, max: u8, report: &mut Report<'_, '_, '_>) {
    let own_bits = max & !encoding::MASK;
    if number & !own_bits > max & encoding::MASK {
        report.add(format_args!("its encoding {number} is none of its type"));
    }
}

/// Returns the head of a collection in rows, and the type's own part of so many bytes.
pub(super) fn head(payload: &[u8], own_bytes: usize) -> Option<(Head, &[u8])> {
    let object = Object::parse(payload)?;
    if payload.len() != Head::BYTES + own_bytes {
        return None;
    }
    let count = payload[Object::BYTES + 1..].first_chunk().expect("the length was compared");
    let head = Head { object, encoding: payload[Object::BYTES], count: u64::from_be_bytes(*count) };
    Some((head, &payload[Head::BYTES..]))
}

/// Checks the rules that a head has to meet by itself.
pub(super) fn check_head(payload: &[u8], own_bytes: usize, encoding_max: u8, report: &mut Report<'_, '_, '_>) {
    match head(payload, own_bytes) {
        None => report.add(format_args!("its payload has {} bytes, not {}", payload.len(), Head::BYTES + own_bytes)),
        Some((head, _)) => {
            check_encoding(head.encoding, encoding_max, report);
            if head.count == 0 {
                report.add("it is empty, and should not be there");
            }
        }
    }
}

/// Returns the hash and the element in the key of an element's row; `None` for rows that belong to the type, at the
/// reserved hash.
pub(super) fn hashed<'e>(
    element: &'e [u8],
    hash_seed: Option<u64>,
    report: &mut Report<'_, '_, '_>,
) -> Option<&'e [u8]> {
    let Some((hash, name)) = element.split_first_chunk::<HASH_BYTES>() else {
        report.add(format_args!("an element's row has a key of {} bytes behind the object", element.len()));
        return None;
    };
    let hash = u32::from_be_bytes(*hash);
    if hash == RESERVED_HASH {
        return None;
    }
    if let Some(right) = hash_seed.map(|seed| row::element_hash_of(name, seed))
        && hash != right
    {
        report.add(format_args!("element {} stands at hash {hash:08x}, and has {right:08x}", Shown(name)));
    }
    Some(name)
}

pub(super) fn check_count(stated: u64, counted: u64, report: &mut Report<'_, '_, '_>) {
    if stated != counted {
        report.add(format_args!("its count is {stated}, there are {counted}"));
    }
}

/// Checks the rows of a collection whose elements are found by their hashes; `value` returns the defect of an element's
/// value. Returns nothing where the head does not parse, which has been told.
pub(super) fn check_hashed(
    payload: &[u8],
    own_bytes: usize,
    rows: &mut ObjectRows<'_, '_>,
    report: &mut Report<'_, '_, '_>,
    mut value: impl FnMut(&[u8], &[u8]) -> Result<(), String>,
) -> Result<(), BaseError> {
    let Some((head, _)) = head(payload, own_bytes) else { return Ok(()) };
    let mut count = 0;
    let hash_seed = rows.hash_seed;
    while let Some((element, bytes)) = rows.data.next()? {
        if let Some(name) = hashed(element, hash_seed, report) {
            count += 1;
            if let Err(what) = value(name, bytes) {
                report.add(format_args!("element {}: {what}", Shown(name)));
            }
        }
    }
    check_count(head.count, count, report);
    Ok(())
}
