//! XADD's idempotent IDs, XCFGSET and XIDMPRECORD: what producers call their entries, so that none is added twice. The
//! rows belong to `haypile_types::stream`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::statement;
use crate::stream::id;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::Reply;
use haypile_store::Txn;
use haypile_types::stream::{DURATION_S_MAX, IDS_MAX, Stream};
use std::borrow::Cow;
use xxhash_rust::xxh3::Xxh3;

pub(crate) const COMMANDS: &[Command] = &[XCFGSET, XIDMPRECORD];

const XCFGSET: Command = Command {
    name: "xcfgset",
    since: "8.6.0",
    group: Group::Stream,
    arity: Arity::at_least(2),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Sets how long, and how many, idempotent IDs of producers a stream knows.",
    syntax: "key [IDMP-DURATION duration:integer] [IDMP-MAXSIZE maxsize:integer]",
    complexity: "O(1), and O(N) with N being the number of idempotent IDs that are forgotten where a value changes.",
    access: Access::Write,
    body: Body::Txn(set_bounds),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

const XIDMPRECORD: Command = Command {
    name: "xidmprecord",
    since: "8.6.2",
    group: Group::Stream,
    arity: Arity::exactly(5),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Notes the idempotent ID of an entry that is there, for who makes a copy of a stream.",
    syntax: "key producer-id:string idempotent-id:string stream-id:string",
    access: Access::Write,
    body: Body::Txn(record),
    flags: &[Flag::Denyoom, Flag::Fast],
    ..Command::USUAL
};

/// The name that a producer gives an entry.
pub(crate) struct Named<'a> {
    pub producer: &'a [u8],
    /// The name of the entry; `None` if its content is its name.
    name: Option<&'a [u8]>,
}

impl<'a> Named<'a> {
    /// Reads IDMPAUTO or IDMP, which is argument `i`, and returns how many arguments that takes; `None` if it is
    /// neither of them.
    pub fn parse(args: Args<'a>, i: usize, is_first: bool) -> Result<Option<(Named<'a>, usize)>> {
        let more = args.len() - 1 - i;
        let is_auto = args.is(i, "idmpauto") && more >= 1;
        let is_given = args.is(i, "idmp") && more >= 2;
        if !is_auto && !is_given {
            return Ok(None);
        }
        if !is_first {
            return Err(Error::text("ERR syntax error, IDMP/IDMPAUTO specified multiple times"));
        }
        let producer = args.get(i + 1);
        if producer.is_empty() {
            return Err(Error::text(match is_auto {
                true => "ERR syntax error, IDMPAUTO requires a non-empty producer ID",
                false => "ERR syntax error, IDMP requires a non-empty producer ID",
            }));
        }
        if is_auto {
            return Ok(Some((Named { producer, name: None }, 2)));
        }
        let name = args.get(i + 2);
        if name.is_empty() {
            return Err(Error::text("ERR syntax error, IDMP requires a non-empty idempotent ID"));
        }
        Ok(Some((Named { producer, name: Some(name) }, 3)))
    }

    /// Returns the name of an entry with these fields and values.
    pub fn name(&self, fields: impl Iterator<Item = &'a [u8]>) -> Cow<'a, [u8]> {
        self.name.map_or_else(|| Cow::Owned(name_of(fields).to_vec()), Cow::Borrowed)
    }
}

/// Returns the name that Redis makes of fields and values, which do not depend on their order (`t_stream.c`): a hash of
/// each field with its length and its value, and of these the sums and the exclusive ors, half by half.
fn name_of<'f>(mut fields: impl Iterator<Item = &'f [u8]>) -> [u8; 16] {
    let (mut sum, mut xor) = ([0u64; 2], [0u64; 2]);
    while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
        let mut hash = Xxh3::new();
        hash.update(field);
        hash.update(&(field.len() as u64).to_le_bytes());
        hash.update(value);
        let hash = hash.digest128();
        for (at, half) in [hash as u64, (hash >> 64) as u64].into_iter().enumerate() {
            sum[at] = sum[at].wrapping_add(half);
            xor[at] ^= half;
        }
    }
    let [low, high] = [sum[0] ^ xor[1].rotate_left(1), sum[1] ^ xor[0].rotate_left(1)];
    let mut name = [0; 16];
    name[..8].copy_from_slice(&low.to_le_bytes());
    name[8..].copy_from_slice(&high.to_le_bytes());
    name
}

/// Reads argument `i` as a bound that was not given before.
fn bound(args: Args, i: usize, before: Option<u32>, max: u32, [twice, out]: [&'static str; 2]) -> Result<Option<u32>> {
    if before.is_some() {
        return Err(Error::text(twice));
    }
    let value = u32::try_from(args.int(i)?).ok().filter(|value| (1..=max).contains(value));
    value.map(Some).ok_or(Error::text(out))
}

fn set_bounds(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let stream = Stream::edit(txn, &key)?.ok_or(Error::NoSuchKey)?;
    let (mut duration_s, mut ids_max, mut i) = (None, None, 2);
    while i < args.len() {
        let has_more = i + 1 < args.len();
        if args.is(i, "idmp-duration") && has_more {
            let texts =
                ["ERR IDMP-DURATION specified multiple times", "ERR IDMP-DURATION must be between 1 and 86400 seconds"];
            duration_s = bound(args, i + 1, duration_s, DURATION_S_MAX, texts)?;
        } else if args.is(i, "idmp-maxsize") && has_more {
            let texts =
                ["ERR IDMP-MAXSIZE specified multiple times", "ERR IDMP-MAXSIZE must be between 1 and 10000 entries"];
            ids_max = bound(args, i + 1, ids_max, IDS_MAX, texts)?;
        } else {
            return Err(Error::Syntax);
        }
        i += 2;
    }
    if duration_s.is_none() && ids_max.is_none() {
        return Err(Error::text("ERR At least one parameter must be specified"));
    }
    let mut producers = stream.edit_producers(txn)?;
    let state = producers.state;
    if producers.set_bounds(txn, duration_s.unwrap_or(state.duration_s), ids_max.unwrap_or(state.ids_max))? {
        producers.save(txn, &key)?;
        statement::state_nothing(txn);
    }
    Ok(Reply::ok())
}

fn record(txn: &mut Txn, args: Args) -> Result<Reply> {
    let id = id::strict(args, 4, 0)?;
    let (producer, name) = (args.get(2), args.get(3));
    if producer.is_empty() {
        return Err(Error::text("ERR producer ID must be non-empty"));
    }
    if name.is_empty() {
        return Err(Error::text("ERR idempotent ID must be non-empty"));
    }
    let key = args.key(txn, 1);
    let stream = Stream::edit(txn, &key)?.ok_or(Error::NoSuchKey)?;
    if !stream.has(txn, id)? {
        return Err(Error::text("ERR No such message in stream"));
    }
    let mut producers = stream.edit_producers(txn)?;
    match producers.find(txn, producer, name)? {
        Some(other) if other == id => {}
        Some(_) => {
            return Err(Error::text("ERR IID already exists for this producer with a different stream ID"));
        }
        None => {
            producers.add(txn, producer, name, id)?;
            producers.save(txn, &key)?;
            statement::state_nothing(txn);
        }
    }
    Ok(Reply::ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_fields_does_not_depend_on_their_order() {
        let name = |words: &[&str]| name_of(words.iter().map(|word| word.as_bytes()));
        assert_eq!(name(&["a", "1", "b", "2"]), name(&["b", "2", "a", "1"]));
        assert_ne!(name(&["a", "1", "b", "2"]), name(&["a", "2", "b", "1"]));
        assert_ne!(name(&["a", "12"]), name(&["a1", "2"]), "the length of the field counts");
        assert_ne!(name(&["a", "1"]), name(&["a", "1", "a", "1"]), "pairs that are there twice count twice");
    }
}
