//! Sorting of elements that are too many for memory. They go into a spool of the store, under keys that sort as the
//! elements are to be sorted. A spool is a file of this node, so that a command which reads writes no record.

use crate::error::{Error, Result};
use crate::keys::sort::{MEMORY_BYTES_MAX, Weight};
use haypile_resp::pieces::PIECE_BYTES;
use haypile_resp::{Elements, Pieces, Protocol, Reply, Shape, write};
use haypile_store::{Direction, Spool, Spooled, Stop, Txn};
use haypile_types::score;
use std::cmp::Ordering;

/// The memory of an element besides its bytes.
const ITEM_BYTES: usize = 64;

/// The error of a view or a spool that cannot be read on.
pub(crate) fn failed(why: String) -> Error {
    Error::Stop(Stop::Failed(why))
}

pub(crate) struct Item {
    element: Box<[u8]>,
    weight: Weight,
}

/// Elements on their way into order.
pub(crate) struct Sorter {
    descending: bool,
    items: Vec<Item>,
    bytes: usize,
    spool: Option<Spool>,
}

impl Sorter {
    pub fn new(descending: bool) -> Sorter {
        Sorter { descending, items: Vec::new(), bytes: 0, spool: None }
    }

    pub fn push(&mut self, txn: &Txn, element: &[u8], weight: Weight) -> Result<()> {
        if let Some(spool) = &mut self.spool {
            return Ok(spool.put(txn, &sort_key_of(element, &weight), &[element])?);
        }
        let text_bytes = if let Weight::Text(text) = &weight { text.len() } else { 0 };
        self.bytes += element.len() + text_bytes + ITEM_BYTES;
        self.items.push(Item { element: element.into(), weight });
        if self.bytes > MEMORY_BYTES_MAX {
            let mut spool = txn.spool(if self.descending { Direction::Backward } else { Direction::Forward })?;
            for item in std::mem::take(&mut self.items) {
                spool.put(txn, &sort_key_of(&item.element, &item.weight), &[&item.element])?;
            }
            self.spool = Some(spool);
        }
        Ok(())
    }

    pub fn into_sorted(mut self, txn: &Txn) -> Result<Sorted> {
        if let Some(spool) = self.spool {
            return Ok(Sorted::Spooled(spool.into_rows(txn)?));
        }
        let order = |one: &Item, other: &Item| match one.weight.compare(&other.weight) {
            // Numbers that are equal leave it to the elements, so that the order is one.
            Ordering::Equal if !matches!(one.weight, Weight::Text(_)) => one.element.cmp(&other.element),
            order => order,
        };
        match self.descending {
            true => self.items.sort_by(|one, other| order(other, one)),
            false => self.items.sort_by(order),
        }
        Ok(Sorted::Memory(self.items.into_iter()))
    }
}

/// Bytes that sort as the weight does, and the element among equal ones.
fn sort_key_of(element: &[u8], weight: &Weight) -> Vec<u8> {
    let mut sort_key = Vec::new();
    match weight {
        Weight::Text(text) => {
            sort_key.push(1);
            put_escaped(&mut sort_key, text);
        }
        Weight::None | Weight::Number(_) => {
            sort_key.push(0);
            sort_key.extend_from_slice(&score::place(weight.number()));
            put_escaped(&mut sort_key, element);
        }
    }
    sort_key
}

/// Adds bytes with a mark of their end, so that the bytes behind count only among equal ones: a zero becomes `0 255`,
/// the end is `0 0`.
fn put_escaped(sort_key: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        sort_key.push(byte);
        if byte == 0 {
            sort_key.push(u8::MAX);
        }
    }
    sort_key.extend_from_slice(&[0, 0]);
}

/// Elements in order.
pub(crate) enum Sorted {
    Memory(std::vec::IntoIter<Item>),
    Spooled(Spooled),
}

impl Sorted {
    pub fn next(&mut self) -> Result<Option<Box<[u8]>>> {
        match self {
            Sorted::Memory(items) => Ok(items.next().map(|item| item.element)),
            Sorted::Spooled(rows) => Ok(rows.next_row().map_err(failed)?.map(Into::into)),
        }
    }
}

/// The values that a reply or a new list is made of, in order: missing values are `None`.
pub(crate) struct Outputs {
    values: Vec<Option<Box<[u8]>>>,
    bytes: usize,
    spool: Option<Spool>,
    count: u64,
}

/// The first byte of a row's value: whether there is an output, whose bytes follow.
const MISSING: u8 = 0;
const THERE: u8 = 1;

impl Outputs {
    pub fn new() -> Outputs {
        Outputs { values: Vec::new(), bytes: 0, spool: None, count: 0 }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn push(&mut self, txn: &Txn, value: Option<&[u8]>) -> Result<()> {
        self.count += 1;
        if let Some(spool) = &mut self.spool {
            return put_output(spool, txn, value);
        }
        self.bytes += value.map_or(0, <[u8]>::len) + ITEM_BYTES;
        self.values.push(value.map(Into::into));
        if self.bytes > MEMORY_BYTES_MAX {
            let mut spool = txn.spool(Direction::Forward)?;
            for value in std::mem::take(&mut self.values) {
                put_output(&mut spool, txn, value.as_deref())?;
            }
            self.spool = Some(spool);
        }
        Ok(())
    }

    pub fn into_iter(self, txn: &Txn) -> Result<OutputIter> {
        match self.spool {
            Some(spool) => Ok(OutputIter::Spooled(spool.into_rows(txn)?)),
            None => Ok(OutputIter::Memory(self.values.into_iter())),
        }
    }

    pub fn into_reply(self, txn: &Txn) -> Result<Reply> {
        const AT_ONCE_BYTES_MAX: usize = 1 << 20;
        let (count, at_once) = (self.count, self.bytes <= AT_ONCE_BYTES_MAX);
        let mut values = self.into_iter(txn)?;
        if !at_once {
            return Ok(Reply::Stream(Box::new(LongReply { values, count, begun: false })));
        }
        let mut elements = Elements::new(Shape::Array);
        while let Some(value) = values.next().map_err(failed)? {
            match value {
                Some(value) => elements.push(&value),
                None => elements.push_null(),
            }
        }
        Ok(Reply::Elements(elements))
    }
}

/// Puts a value behind those before: all have one sort key.
fn put_output(spool: &mut Spool, txn: &Txn, value: Option<&[u8]>) -> Result<()> {
    match value {
        Some(value) => spool.put(txn, &[], &[&[THERE], value])?,
        None => spool.put(txn, &[], &[&[MISSING]])?,
    }
    Ok(())
}

/// Outputs, one by one.
pub(crate) enum OutputIter {
    Memory(std::vec::IntoIter<Option<Box<[u8]>>>),
    Spooled(Spooled),
}

impl OutputIter {
    /// Returns the next output; `None` at the end.
    pub fn next(&mut self) -> std::result::Result<Option<Option<Box<[u8]>>>, String> {
        match self {
            OutputIter::Memory(values) => Ok(values.next()),
            OutputIter::Spooled(rows) => {
                let value = rows.next_row()?;
                Ok(value.map(|value| (value.first() == Some(&THERE)).then(|| (&value[1..]).into())))
            }
        }
    }
}

/// A reply that is sent piece by piece.
struct LongReply {
    values: OutputIter,
    count: u64,
    /// The length is out.
    begun: bool,
}

impl Pieces for LongReply {
    fn next(&mut self, protocol: Protocol, out: &mut Vec<u8>) -> std::result::Result<bool, String> {
        if !self.begun {
            self.begun = true;
            write::array_len(out, self.count as usize);
        }
        let full = out.len() + PIECE_BYTES;
        while out.len() < full {
            match self.values.next()? {
                Some(Some(value)) => write::bulk(out, &value),
                Some(None) => write::null(protocol, out),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn weight(&self) -> haypile_resp::Weight {
        let bytes = match &self.values {
            OutputIter::Memory(values) => {
                let of_value =
                    |value: &Option<Box<[u8]>>| size_of::<Box<[u8]>>() + value.as_ref().map_or(0, |value| value.len());
                values.as_slice().iter().map(of_value).sum()
            }
            OutputIter::Spooled(rows) => rows.bytes() as usize,
        };
        haypile_resp::Weight { held_bytes: bytes, encoded_bytes: bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_compared_by_all_their_bytes() {
        let text = |text: &[u8]| Weight::Text(text.into());
        assert_eq!(text(b"a\0b").compare(&text(b"a\0c")), Ordering::Less);
        assert_eq!(text(b"B").compare(&text(b"a")), Ordering::Less);
        assert_eq!(text("\u{e4}".as_bytes()).compare(&text(b"z")), Ordering::Greater);
    }

    #[test]
    fn sort_keys_sort_as_weights_and_elements_do() {
        let text = |text: &[u8]| Weight::Text(text.into());
        let mut sorted: Vec<(&[u8], Weight)> = vec![
            (b"z", Weight::Number(f64::NEG_INFINITY)),
            (b"", Weight::Number(-1.5)),
            (b"", Weight::None),
            (b"a", Weight::Number(0.0)),
            (b"a\0", Weight::Number(-0.0)),
            (b"a\0b", Weight::None),
            (b"aa", Weight::None),
            (b"", Weight::Number(1e300)),
        ];
        let sort_keys: Vec<Vec<u8>> = sorted.iter().map(|(element, weight)| sort_key_of(element, weight)).collect();
        assert!(sort_keys.is_sorted(), "{sort_keys:?}");
        sorted = vec![
            (b"x", Weight::None),
            (b"x", text(b"")),
            (b"x", text(b"a")),
            (b"x", text(b"a\0")),
            (b"x", text(b"ab")),
        ];
        let sort_keys: Vec<Vec<u8>> = sorted.iter().map(|(element, weight)| sort_key_of(element, weight)).collect();
        assert!(sort_keys.is_sorted(), "{sort_keys:?}");
    }
}
