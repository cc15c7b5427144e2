//! Hashes that are made as a whole, of fields that come one after the other. They may have any size: fields beyond a
//! meta row go to the rows of an object that nothing names until it is complete, so that it is written ahead.

use super::change::encoding_for;
use super::packing::{Deadline, Packing};
use super::rows::Rows;
use crate::Result;
use crate::value::encoding::HASH_LISTPACK;
use haypile_store::{Key, Txn};
use std::iter::once;

/// A new hash.
pub struct Maker(Form);

enum Form {
    Packed(Packing),
    Rows(Box<Rows>),
}

impl Maker {
    pub fn new() -> Maker {
        Maker(Form::Packed(Packing::empty(HASH_LISTPACK)))
    }

    /// Adds a field, with a deadline that has not passed if it has one; returns whether there was none of the name.
    pub fn add(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        field: &[u8],
        value: &[u8],
        deadline_ms: Option<u64>,
    ) -> Result<bool> {
        if let Form::Packed(packing) = &mut self.0 {
            packing.encoding = encoding_for(txn, packing.encoding, once((field, value)), 0);
            let is_new = packing.set(field, value, Deadline::Is(deadline_ms))?;
            if !packing.fits() {
                let packing = std::mem::replace(packing, Packing::empty(HASH_LISTPACK));
                self.0 = Form::Rows(Box::new(packing.into_rows(txn, key)?));
            }
            return Ok(is_new);
        }
        let Form::Rows(rows) = &mut self.0 else { unreachable!("it is not packed") };
        rows.head.encoding = encoding_for(txn, rows.head.encoding, once((field, value)), 0);
        rows.set(txn, key, field, value, Deadline::Is(deadline_ms))
    }

    /// Gives the hash, without deadline, to a key that is absent. Without fields the key stays absent.
    pub fn finish(self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        match self.0 {
            Form::Packed(packing) => packing.finish(txn, key),
            Form::Rows(rows) => rows.finish(txn, key),
        }
    }
}

impl Default for Maker {
    fn default() -> Maker {
        Maker::new()
    }
}
