//! HRANDFIELD: random fields of a hash, fair and without reading the hash.

use crate::args::Args;
use crate::elements::{self, DRAWS_MAX, DRAWS_SHARE, Sample};
use crate::error::Result;
use crate::hash::{describe, lookup};
use crate::table::{Access, Arity, Body, Command, Group, Keys};
use haypile_resp::pieces::PIECE_BYTES;
use haypile_resp::{Elements, Pieces, Protocol, Reply, Shape, write};
use haypile_store::{Key, Txn};
use haypile_types::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_types::hash::{self, PackedHash};
use haypile_types::key::Entry;
use haypile_types::walk::{Choice, Dice};
use std::collections::HashSet;
use std::ops::ControlFlow;

pub(crate) const HRANDFIELD: Command = Command {
    name: "hrandfield",
    since: "6.2.0",
    group: Group::Hash,
    arity: Arity::at_least(2),
    keys: Keys::first(1),
    summary: "Returns random fields of a hash.",
    syntax: "key [options=(count [WITHVALUES])]",
    complexity: "O(N) where N is the number of fields returned",
    access: Access::Read,
    body: Body::Txn(hrandfield),
    tips: &["nondeterministic_output"],
    ..Command::USUAL
};

fn hrandfield(txn: &mut Txn, args: Args) -> Result<Reply> {
    if args.len() == 2 {
        return one(txn, args);
    }
    let (sample, with_values) = Sample::parse(args, 2, "withvalues")?;
    let key = args.key(txn, 1);
    let wanted = Wanted { with_values };
    let none = || Ok(Reply::Elements(Elements::new(wanted.shape())));
    let Some(entry) = lookup(txn, &key)? else { return none() };
    let fields = hash::len(txn, &key, &entry)?;
    match sample {
        Sample::Different(0) | Sample::Any(0) => none(),
        Sample::Different(count) => different(txn, &key, &entry, fields, count.min(fields), wanted),
        Sample::Any(count) => any(txn, &key, entry, fields, count, wanted),
    }
}

/// A single field, as a bulk string.
fn one(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(entry) = lookup(txn, &key)? else { return Ok(Reply::Null) };
    let (mut dice, mut reply) = (Dice::new(txn), Reply::Null);
    hash::draw(txn, &key, &entry, &mut dice, |field, _| reply = Reply::bulk(field.to_vec()))?;
    Ok(reply)
}

/// The parts of each field that a reply has.
#[derive(Clone, Copy)]
struct Wanted {
    with_values: bool,
}

impl Wanted {
    fn shape(self) -> Shape {
        if self.with_values { Shape::Pairs } else { Shape::Array }
    }

    /// Elements for each field.
    fn width(self) -> u64 {
        if self.with_values { 2 } else { 1 }
    }

    fn push(self, elements: &mut Elements, field: &[u8], value: &[u8]) {
        elements.push(field);
        if self.with_values {
            elements.push(value);
        }
    }

    fn write(self, protocol: Protocol, out: &mut Vec<u8>, field: &[u8], value: &[u8]) {
        if self.with_values {
            elements::begin_pair(protocol, out);
        }
        write::bulk(out, field);
        if self.with_values {
            write::bulk(out, value);
        }
    }
}

/// `count` different fields.
fn different(txn: &mut Txn, key: &Key, entry: &Entry, fields: u64, count: u64, wanted: Wanted) -> Result<Reply> {
    let (mut dice, now_ms) = (Dice::new(txn), txn.expiry_ms());
    if count <= DRAWS_MAX
        && count.saturating_mul(DRAWS_SHARE) < fields
        && let Some(drawn) = draw_different(txn, key, entry, count, wanted, &mut dice)?
    {
        return Ok(drawn);
    }
    let mut choice = Choice { total: fields, count };
    if fields <= ROWS_INLINE_MAX as u64 {
        let mut found = Elements::new(wanted.shape());
        hash::visit(txn, key, entry, |field, value| {
            if choice.takes_next(&mut dice) {
                wanted.push(&mut found, field, value);
            }
            if found.bytes() > REPLY_INLINE_BYTES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if found.bytes() <= REPLY_INLINE_BYTES_MAX {
            return Ok(Reply::Elements(found));
        }
        choice = Choice { total: fields, count };
    }
    let Some(view) = hash::view(txn, key, entry)? else { unreachable!("a packed hash makes a short reply") };
    Ok(elements::stream(view, wanted.shape(), count * wanted.width(), move |row, value, protocol, out| {
        let stored = hash::stored_in_row(value).map_err(describe)?;
        if !stored.is_live(now_ms) || !choice.takes_next(&mut dice) {
            return Ok(0);
        }
        wanted.write(protocol, out, hash::field_of_row(row).map_err(describe)?, stored.value);
        Ok(wanted.width())
    }))
}

/// Draws a few different fields of many, each again until it is a new one. Returns nothing where it takes too many
/// draws: a dry run, whose rows may be of two moments, or a damaged hash.
fn draw_different(
    txn: &mut Txn,
    key: &Key,
    entry: &Entry,
    count: u64,
    wanted: Wanted,
    dice: &mut Dice,
) -> Result<Option<Reply>> {
    if count > DRAWS_INLINE_MAX {
        txn.long()?;
    }
    let mut found = Elements::new(wanted.shape());
    let mut drawn = HashSet::new();
    let mut draws = 0;
    while (drawn.len() as u64) < count {
        draws += 1;
        if draws > DRAWS_PER_FIELD * (count + 1) {
            return Ok(None);
        }
        hash::draw(txn, key, entry, dice, |field, value| {
            if drawn.insert(field.to_vec()) {
                wanted.push(&mut found, field, value);
            }
        })?;
        if found.bytes() > REPLY_INLINE_BYTES_MAX {
            txn.long()?;
        }
    }
    Ok(Some(Reply::Elements(found)))
}

/// Draws that an event loop makes: each looks at some dozens of rows.
const DRAWS_INLINE_MAX: u64 = 32;

/// Draws for each field that is wanted, and for one more: few fields are drawn twice.
const DRAWS_PER_FIELD: u64 = 64;

/// Exactly `count` fields, each drawn by itself.
fn any(txn: &mut Txn, key: &Key, entry: Entry, fields: u64, count: u64, wanted: Wanted) -> Result<Reply> {
    let mut dice = Dice::new(txn);
    if let Some(packed) = hash::packed(txn, entry.clone())? {
        // However many there are: they are drawn as they are sent.
        return Ok(Reply::Stream(Box::new(Draws { packed, fields, dice, wanted, count, left: None })));
    }
    if count > DRAWS_INLINE_MAX {
        txn.long()?;
    }
    let mut found = Elements::new(wanted.shape());
    for _ in 0..count {
        hash::draw(txn, key, &entry, &mut dice, |field, value| wanted.push(&mut found, field, value))?;
        if found.bytes() > REPLY_INLINE_BYTES_MAX {
            txn.long()?;
        }
        if found.bytes() > DRAWN_BYTES_MAX {
            return Err(crate::Error::text("ERR the reply would be longer than 512 MB"));
        }
    }
    Ok(Reply::Elements(found))
}

/// Fields that are drawn by themselves from a hash in rows are put together in memory.
const DRAWN_BYTES_MAX: usize = 512 << 20;

/// Draws from a packed hash, one after the other.
struct Draws {
    packed: PackedHash,
    fields: u64,
    dice: Dice,
    wanted: Wanted,
    count: u64,
    /// The number of draws still to come; `None` until the length has been written.
    left: Option<u64>,
}

impl Pieces for Draws {
    fn next(&mut self, protocol: Protocol, out: &mut Vec<u8>) -> std::result::Result<bool, String> {
        let full = out.len() + PIECE_BYTES;
        let mut left = match self.left {
            Some(left) => left,
            None => {
                elements::write_len(self.wanted.shape(), protocol, (self.count * self.wanted.width()) as usize, out);
                self.count
            }
        };
        while left > 0 && out.len() < full {
            let (field, value) = self.packed.nth(self.dice.below(self.fields)).map_err(describe)?;
            self.wanted.write(protocol, out, field, value);
            left -= 1;
        }
        self.left = Some(left);
        Ok(left > 0)
    }
}
