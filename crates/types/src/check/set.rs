//! Sets: docs/format/set.md.

use super::collection::{self, Distinct};
use super::objects::ObjectRows;
use super::place::{Report, Shown};
use crate::integer;
use crate::packed::Packed;
use crate::value::encoding::{MASK, SET_INTSET, SET_TABLE};
use haypile_store::base::BaseError;

pub(super) fn check_packed(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    let (mut members, mut last) = (Distinct::default(), None);
    let is_intset = Packed::parse(payload).is_ok_and(|packed| packed.encoding & MASK == SET_INTSET);
    collection::check_packed(payload, SET_TABLE, report, |reader| {
        let member = reader.string()?;
        Ok(members.check(member).and_then(|()| if is_intset { check_ascent(&mut last, member) } else { Ok(()) }))
    });
}

/// Notes a member of an intset that is no integer, or not above the one before it.
fn check_ascent(last: &mut Option<i64>, member: &[u8]) -> Result<(), String> {
    let number = check_integer(member)?;
    match last.replace(number) {
        Some(last) if last >= number => Err(format!("{number} stands behind {last} in an intset")),
        _ => Ok(()),
    }
}

fn check_integer(member: &[u8]) -> Result<i64, String> {
    integer::parse(member).ok_or_else(|| format!("{} is in an intset, and no integer", Shown(member)))
}

pub(super) fn check_head(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    collection::check_head(payload, 0, SET_TABLE, report);
}

pub(super) fn check_rows(
    payload: &[u8],
    rows: &mut ObjectRows<'_, '_>,
    report: &mut Report<'_, '_, '_>,
) -> Result<(), BaseError> {
    let is_intset = collection::head(payload, 0).is_some_and(|(head, _)| head.encoding & MASK == SET_INTSET);
    collection::check_hashed(payload, 0, rows, report, |member, value| match value {
        [] if is_intset => check_integer(member).map(|_| ()),
        [] => Ok(()),
        _ => Err("its row has a value".into()),
    })?;
    rows.expect_no_scores(report)
}
