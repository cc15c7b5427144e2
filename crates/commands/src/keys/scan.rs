//! The commands that walk over the keys of a database.
//!
//! Owns cursors and filters. Never holds state between calls: a cursor is a position. Single keys are in `keys/mod.rs`.

use crate::args::Args;
use crate::elements::{Collected, STEP_KEYS, STEP_KEYS_MAX, parse_cursor};
use crate::error::{Error, Result};
use crate::table::{Access, Arity, Body, Category, Command, Group, Keys};
use haypile_config::glob;
use haypile_resp::Reply;
use haypile_store::row::{self, SLOTS};
use haypile_store::{Key, ScanPosition, Slot, Txn, Value};
use haypile_types::key;

pub(crate) const COMMANDS: &[Command] = &[SCAN, KEYS, RANDOMKEY];

const SCAN: Command = Command {
    name: "scan",
    since: "2.8.0",
    group: Group::Generic,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Iterates over the keys of the database, a bounded step at a time.",
    syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type@6.0.0]",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for \
        the cursor to return back to 0. N is the number of elements inside the collection.",
    access: Access::Read,
    body: Body::Txn(scan),
    tips: &["nondeterministic_output", "request_policy:special"],
    history: &[("6.0.0", "Added the `TYPE` subcommand.")],
    ..Command::USUAL
};

fn scan(txn: &mut Txn, args: Args) -> Result<Reply> {
    let cursor = parse_cursor(args.get(1)).ok_or(Error::InvalidCursor)?;
    let filter = Filter::parse(args)?;
    let (mut names, mut next) = (Vec::new(), None);
    if let Some(from) = ScanPosition::from_cursor(cursor) {
        let space = txn.space(txn.database());
        let (keys, after) = txn.scan_keys(space, from, filter.count)?;
        for (name, row) in keys {
            if filter.passes(&name, row, txn.now_ms())? {
                names.push(Reply::bulk(name));
            }
        }
        next = after;
    }
    let cursor = next.map_or(0, ScanPosition::cursor).to_string();
    Ok(Reply::Array(vec![Reply::bulk(cursor), Reply::Array(names)]))
}

/// The options of SCAN.
struct Filter<'a> {
    /// The pattern that names have to match; `None` lets every name pass.
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    count: usize,
}

impl<'a> Filter<'a> {
    fn parse(args: Args<'a>) -> Result<Filter<'a>> {
        let mut filter = Filter { pattern: None, kind: None, count: STEP_KEYS };
        for i in (2..args.len()).step_by(2) {
            let Some(value) = args.opt(i + 1) else { return Err(Error::Syntax) };
            if args.is(i, "count") {
                let count = args.int(i + 1)?;
                if count < 1 {
                    return Err(Error::Syntax);
                }
                filter.count = usize::try_from(count).unwrap_or(usize::MAX).min(STEP_KEYS_MAX);
            } else if args.is(i, "match") {
                filter.pattern = (value != b"*").then_some(value);
            } else if args.is(i, "type") {
                filter.kind = Some(value);
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(filter)
    }

    /// Whether a key passes the filter. An expired key never does, nor does any key if the type does not exist.
    fn passes(&self, name: &[u8], row: Value, now_ms: u64) -> Result<bool> {
        if self.pattern.is_some_and(|pattern| !glob::matches(pattern, name, false)) {
            return Ok(false);
        }
        let header = key::Entry::parse(row)?.header;
        let kind = header.type_of().name().as_bytes();
        Ok(!header.is_expired(now_ms) && self.kind.is_none_or(|asked| asked.eq_ignore_ascii_case(kind)))
    }
}

const KEYS: Command = Command {
    name: "keys",
    since: "1.0.0",
    group: Group::Generic,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns all keys whose names match a pattern.",
    syntax: "pattern",
    complexity: "O(N) with N being the number of keys in the database, under the assumption that the key \
        names in the database and the given pattern have limited length.",
    access: Access::Read,
    body: Body::Txn(keys),
    categories: &[Category::Dangerous],
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    ..Command::USUAL
};

/// Lists the keys that match. A list of more than one step is made on the I/O pool, where it keeps no client waiting.
fn keys(txn: &mut Txn, args: Args) -> Result<Reply> {
    let pattern = args.get(1);
    if !glob::is_pattern(pattern) && !pattern.contains(&b'\\') {
        // Only one key can have this name.
        let key = txn.key(pattern);
        let found = key::peek(txn, &key)?.map(|_| Reply::bulk(pattern.to_vec()));
        return Ok(Reply::array(found));
    }
    let filter = Filter { pattern: (pattern != b"*").then_some(pattern), kind: None, count: STEP_KEYS_MAX };
    let space = txn.space(txn.database());
    let (mut names, mut next) = (Collected::new(txn), Some(ScanPosition::START));
    while let Some(from) = next {
        let (keys, after) = txn.scan_keys(space, from, filter.count)?;
        for (name, row) in keys {
            if filter.passes(&name, row, txn.now_ms())? {
                names.push(&name)?;
            }
        }
        if after.is_some() {
            txn.long()?;
        }
        next = after;
    }
    Ok(names.into_reply())
}

const RANDOMKEY: Command = Command {
    name: "randomkey",
    since: "1.0.0",
    group: Group::Generic,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Returns the name of a random key.",
    syntax: "",
    access: Access::Read,
    body: Body::Txn(randomkey),
    tips: &["request_policy:all_shards", "nondeterministic_output"],
    ..Command::USUAL
};

/// A key drawn from a few around a random place of the scan order, so that a key after a long gap is not drawn much
/// more often than others. All keys are equally likely where there are no more than those few; else a slot with many
/// keys comes up as often as one with few, because nothing counts the keys of a slot.
fn randomkey(txn: &mut Txn, _args: Args) -> Result<Reply> {
    let random = txn.random();
    // A slot that has keys first: keys of one hash tag are all in one.
    let Some(slot) = slot_with_keys(txn, Slot((random % SLOTS as u64) as u16))? else { return Ok(Reply::Null) };
    let (first, place) = (ScanPosition { slot, hash: 0 }, ScanPosition { slot, hash: (random >> 32) as u32 });
    let following = ScanPosition { slot, hash: u32::MAX }.next();
    // From there to the slot's end, the slot's beginning, then on to the following slots and around.
    let ranges =
        [(Some(place), following), (Some(first), Some(place)), (following, None), (Some(ScanPosition::START), None)];
    let mut drawn = Vec::new();
    for (from, until) in ranges {
        draw(txn, from, until, &mut drawn)?;
    }
    let count = drawn.len() as u64;
    Ok(if count == 0 { Reply::Null } else { Reply::bulk(drawn.swap_remove((txn.random() % count) as usize)) })
}

/// The first slot with keys from `slot` on and around.
fn slot_with_keys(txn: &mut Txn, slot: Slot) -> Result<Option<Slot>> {
    let space = txn.space(txn.database());
    for from in [ScanPosition { slot, hash: 0 }, ScanPosition::START] {
        if let Some((name, _)) = txn.scan_keys(space, from, 1)?.0.first() {
            return Ok(Some(row::slot_of(name)));
        }
    }
    Ok(None)
}

/// Adds names of live keys between two positions until there are enough, each once.
fn draw(
    txn: &mut Txn,
    from: Option<ScanPosition>,
    until: Option<ScanPosition>,
    drawn: &mut Vec<Vec<u8>>,
) -> Result<()> {
    let space = txn.space(txn.database());
    let mut next = from;
    while let Some(from) = next.filter(|from| drawn.len() < RANDOM_SAMPLE && until.is_none_or(|until| *from < until)) {
        let (keys, after) = txn.scan_keys(space, from, RANDOM_SAMPLE)?;
        for (name, row) in keys {
            let Key { slot, hash, .. } = txn.key(&name);
            if until.is_some_and(|until| ScanPosition { slot, hash } >= until) {
                return Ok(());
            }
            if !key::Entry::parse(row)?.header.is_expired(txn.now_ms()) && !drawn.contains(&name) {
                drawn.push(name);
            }
        }
        if after.is_some() && drawn.is_empty() {
            // Expired keys only, so far.
            txn.long()?;
        }
        next = after;
    }
    Ok(())
}

/// Keys that RANDOMKEY draws from.
const RANDOM_SAMPLE: usize = 16;
