//! Sorted sets: docs/format/zset.md.

use super::collection::{self, Distinct};
use super::objects::ObjectRows;
use super::place::Report;
use crate::value::encoding::ZSET_SKIPLIST;
use haypile_store::base::BaseError;

pub(super) fn check_packed(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    let mut members = Distinct::default();
    collection::check_packed(payload, ZSET_SKIPLIST, report, |reader| {
        let member = reader.string()?;
        reader.fixed::<8>()?;
        Ok(members.check(member))
    });
}

pub(super) fn check_head(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    collection::check_head(payload, 4, ZSET_SKIPLIST, report);
}

pub(super) fn check_rows(_: &[u8], _: &mut ObjectRows<'_, '_>, _: &mut Report<'_, '_, '_>) -> Result<(), BaseError> {
    Ok(())
}
