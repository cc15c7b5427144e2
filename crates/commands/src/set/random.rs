//! The commands that choose members of a set at random.
//!
//! Owns their replies. How a member is drawn fairly without reading the set belongs to `haypile-types`.

use crate::args::Args;
use crate::elements;
use crate::error::{Error, Result};
use crate::set::{members, on_removed};
use crate::statement;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::{Elements, Reply, Shape, number, write};
use haypile_store::Txn;
use haypile_types::event;
use haypile_types::key;
use haypile_types::set::Set;
use haypile_types::set::draw::{self, Selected};

pub(crate) const COMMANDS: &[Command] = &[SPOP, SRANDMEMBER];

const SPOP: Command = Command {
    name: "spop",
    since: "1.0.0",
    group: Group::Set,
    arity: Arity::at_least(2),
    keys: Keys::first(1).rw(&[Use::Access, Use::Delete]),
    summary: "Removes random members from a set and returns them; the key goes with the last one.",
    syntax: "key [count@3.2.0]",
    complexity: "Without the count argument O(1), otherwise O(N) where N is the value of the passed count.",
    access: Access::Write,
    body: Body::Txn(spop),
    flags: &[Flag::Fast],
    tips: &["nondeterministic_output"],
    history: &[("3.2.0", "Added the `count` argument.")],
    ..Command::USUAL
};

fn spop(txn: &mut Txn, args: Args) -> Result<Reply> {
    match args.len() {
        2 => {}
        3 => return spop_many(txn, args),
        _ => return Err(Error::Syntax),
    }
    let key = args.key(txn, 1);
    let Some(entry) = key::lookup_write(txn, &key)? else { return Ok(Reply::Null) };
    let set = Set::of(&key, entry)?;
    let (member, left) = draw::pop(txn, &key, set)?;
    txn.on_event(event::SET, "spop", &key);
    on_removed(txn, &key, left);
    statement::state(txn, &[b"SREM", key.name, &member]);
    Ok(Reply::bulk(member.into_parts()))
}

fn spop_many(txn: &mut Txn, args: Args) -> Result<Reply> {
    let count = number::parse_i64(args.get(2)).and_then(|count| u64::try_from(count).ok());
    let count = count.ok_or(Error::text("ERR value is out of range, must be positive"))?;
    let key = args.key(txn, 1);
    let mut popped = Elements::new(Shape::Set);
    let Some(entry) = key::lookup_write(txn, &key)? else { return Ok(Reply::Elements(popped)) };
    let set = Set::of(&key, entry)?;
    if count == 0 {
        return Ok(Reply::Elements(popped));
    }
    let reply = if count >= set.count() {
        let all = members(txn, &key, &set, Shape::Set)?;
        key::remove(txn, &key, set.header())?;
        statement::state_deletion(txn, key.name);
        all
    } else {
        let (states, mut stated) = (txn.states(), Vec::new());
        let selected = draw::pop_sample(txn, &key, &set, count, |member| {
            popped.push(member);
            if states {
                stated.push(member.to_vec());
            }
        })?;
        match selected {
            Some(selected) => {
                statement::state_value(txn, &key)?;
                long_selected(Shape::Set, count, selected)
            }
            None => {
                let members = stated.iter().map(Vec::as_slice);
                let words: Vec<&[u8]> = [&b"SREM"[..], key.name].into_iter().chain(members).collect();
                statement::state(txn, &words);
                Reply::Elements(popped)
            }
        }
    };
    txn.on_event(event::SET, "spop", &key);
    on_removed(txn, &key, set.count().saturating_sub(count));
    Ok(reply)
}

/// A reply of `count` members that were selected, sent piece by piece.
fn long_selected(shape: Shape, count: u64, mut selected: Selected) -> Reply {
    elements::stream_of(shape, count, move |out| {
        let more = selected.advance()?;
        if more {
            write::bulk(out, selected.member());
        }
        Ok(more)
    })
}

const SRANDMEMBER: Command = Command {
    name: "srandmember",
    since: "1.0.0",
    group: Group::Set,
    arity: Arity::at_least(2),
    keys: Keys::first(1),
    summary: "Returns random members of a set: different ones, or, with a negative count, any.",
    syntax: "key [count@2.6.0]",
    complexity: "Without the count argument O(1), otherwise O(N) where N is the absolute value of the passed count.",
    access: Access::Read,
    body: Body::Txn(srandmember),
    tips: &["nondeterministic_output"],
    history: &[("2.6.0", "Added the optional `count` argument.")],
    ..Command::USUAL
};

fn srandmember(txn: &mut Txn, args: Args) -> Result<Reply> {
    match args.len() {
        2 => {}
        3 => return srandmember_many(txn, args),
        _ => return Err(Error::Syntax),
    }
    let key = args.key(txn, 1);
    let Some(set) = Set::lookup(txn, &key)? else { return Ok(Reply::Null) };
    Ok(Reply::bulk(draw::draw(txn, set)?.into_parts()))
}

fn srandmember_many(txn: &mut Txn, args: Args) -> Result<Reply> {
    let count = args.int(2)?;
    if count == i64::MIN {
        return Err(Error::text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let key = args.key(txn, 1);
    let mut drawn = Elements::new(Shape::Array);
    let Some(set) = Set::lookup(txn, &key)? else { return Ok(Reply::Elements(drawn)) };
    let wanted = count.unsigned_abs();
    if wanted == 0 {
        return Ok(Reply::Elements(drawn));
    }
    if count < 0 {
        return repeated(txn, &set, wanted);
    }
    if wanted >= set.count() {
        return members(txn, &key, &set, Shape::Array);
    }
    match draw::sample(txn, &key, &set, wanted, |member| drawn.push(member))? {
        Some(selected) => Ok(long_selected(Shape::Array, wanted, selected)),
        None => Ok(Reply::Elements(drawn)),
    }
}

/// Draws beyond which a reply is made piece by piece.
const REPEATED_AT_ONCE: u64 = 1024;

/// Members that are drawn again and again from a large set are held in memory up to this bound.
const DRAWN_BYTES_MAX: usize = 512 << 20;

/// Members that are drawn one after the other from all of them.
fn repeated(txn: &mut Txn, set: &Set, wanted: u64) -> Result<Reply> {
    let mut drawn = Elements::new(Shape::Array);
    let Some(mut from) = draw::sample_repeated(txn, set, wanted, DRAWN_BYTES_MAX, |member| drawn.push(member))? else {
        return Ok(Reply::Elements(drawn));
    };
    if wanted <= REPEATED_AT_ONCE {
        (0..wanted).for_each(|_| drawn.push(from.draw()));
        return Ok(Reply::Elements(drawn));
    }
    Ok(elements::stream_of(Shape::Array, wanted, move |out| {
        write::bulk(out, from.draw());
        Ok(true)
    }))
}
