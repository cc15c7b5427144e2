//! XREADGROUP: reading a stream as a consumer of a group, new entries or those that the consumer has not acknowledged.
//!
//! With CLAIM it first takes over what others have left pending for long; such entries come with how long that was, and
//! how often each was delivered.
//!
//! XREADGROUP waits as other blocking commands do (`blocking.rs`): where it finds nothing new it says so, and runs
//! again once there may be something, also something to claim, or once the stream or the group has gone, which is an
//! error.

use crate::args::Args;
use crate::error::{Error, Result, as_text};
use crate::statement;
use crate::stream::group::see;
use crate::stream::id;
use crate::stream::range::write_entry;
use crate::stream::read::{Reading, Room};
use crate::stream::stating;
use crate::table::{
    Access, Arity, Begin, Body, Command, Find, Group as CommandGroup, Hidden, KeySpec, Keys, Mode, Tried, Use,
};
use haypile_resp::{Bytes, Elements, Reply, Shape, write};
use haypile_store::{Key, Txn};
use haypile_types::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_types::key;
use haypile_types::stream::{Claimable, Delivery, Edit, Fields, Group, Place, Stream, StreamId};
use smallvec::SmallVec;
use std::ops::ControlFlow;

pub(crate) const COMMANDS: &[Command] = &[XREADGROUP];

const XREADGROUP: Command = Command {
    name: "xreadgroup",
    since: "5.0.0",
    group: CommandGroup::Stream,
    arity: Arity::at_least(7),
    keys: Keys::One(KeySpec {
        begin: Begin::Nearly(&Begin::Keyword { word: "STREAMS", from: 4 }, Hidden::StreamsOfGroup),
        find: Find::Range { last: -1, step: 1, limit: 2 },
        ..KeySpec::at(1).with(Mode::Ro, &[Use::Access])
    }),
    summary: "Returns entries of streams to a consumer of a group, which has to acknowledge them, or waits for some.",
    syntax: "GROUP group_consumer=(group consumer) [COUNT count] [MAXCOUNT maxcount:integer@8.10.0] \
             [MAXSIZE maxsize:integer@8.10.0] [BLOCK milliseconds] [CLAIM min-idle-time:integer@8.4.0] [NOACK] STREAMS streams=(key... id...)",
    complexity: "For each stream mentioned: O(M) with M being the number of elements returned. If M is constant (e.g. always \
                 asking for the first 10 elements with COUNT), you can consider it O(1). On the other side when XREADGROUP \
                 blocks, XADD will pay the O(N) time in order to serve the N clients blocked on the stream getting new data.",
    access: Access::Write,
    body: Body::Wait(xreadgroup),
    history: &[("8.4.0", "Added the `CLAIM` option."), ("8.10.0", "Added the `MAXCOUNT` and `MAXSIZE` options.")],
    ..Command::USUAL
};

/// The least time until a client looks again for entries to claim, where none is getting old.
const LOOK_AGAIN_MS: u64 = 50;

/// The request to one stream.
struct Asked<'a> {
    key: Key<'a>,
    stream: Stream,
    group: Group<'a>,
    /// The ID after which the consumer's pending entries are asked for; `None` asks for new entries.
    after: Option<StreamId>,
}

fn no_group(key: &[u8], group: &[u8]) -> Error {
    let (key, group) = (as_text(key), as_text(group));
    let parts = [b"NOGROUP No such key '", key, b"' or consumer group '", group, b"' in XREADGROUP with GROUP option"];
    Error::Quoting(parts.concat())
}

fn xreadgroup(txn: &mut Txn, args: Args) -> Result<Tried> {
    let reading = Reading::parse(txn, args, true)?;
    let (group_name, consumer_name) = reading.group.expect("it was asked for");
    let mut asked: SmallVec<[Asked<'_>; 1]> = SmallVec::new();
    for at in reading.keys.clone() {
        let key = args.key(txn, at);
        let stream = Stream::lookup(txn, &key)?;
        let group = match &stream {
            Some(stream) => Group::find(txn, stream, group_name)?,
            None => None,
        };
        let (Some(stream), Some(group)) = (stream, group) else {
            return Err(no_group(key.name, group_name));
        };
        let after = match args.get(reading.id_at(at)) {
            b"$" => {
                return Err(Error::text(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                     consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return \
                     an empty result set.",
                ));
            }
            b">" => None,
            // The highest one is what Redis takes > for.
            id => Some(id::parse_strict(id, 0)?).filter(|id| *id != StreamId::MAX),
        };
        asked.push(Asked { key, stream, group, after });
    }
    let (mut found, mut room, mut claimable_in_ms) = (Vec::new(), reading.room, None);
    let is_only = asked.len() == 1;
    for Asked { key, stream, group, after } in asked {
        if !room.begin(key.name) {
            break;
        }
        // Redis looks again, and counts again.
        key::count_lookup(txn, &key, true);
        // A key may be named twice: its group is what the first one has left.
        let group = if is_only { Some(group) } else { Group::find(txn, &stream, group_name)? };
        let Some(group) = group else { continue };
        let mut edit = Edit::of(group);
        let place = see(txn, &mut edit, &key, consumer_name)?;
        let mut entries = Elements::new(Shape::Array);
        let is_served = match after {
            Some(after) => {
                history(txn, &mut edit, &key, &stream, place, after, reading.limit, &mut entries, &mut room)?;
                true
            }
            None => {
                let served = next(txn, &mut edit, &key, &stream, place, &reading, &mut entries, &mut room)?;
                if let (Some(idle_min_ms), Some(oldest_ms)) = (reading.claim_ms, edit.group.state.oldest_ms) {
                    let ms = claimable_in(idle_min_ms, oldest_ms, txn.now_ms());
                    claimable_in_ms = Some(claimable_in_ms.map_or(ms, |earlier: u64| earlier.min(ms)));
                }
                served > 0
            }
        };
        edit.save(txn, &key)?;
        if is_served {
            found.push((Reply::Bulk(Bytes::Owned(key.name.to_vec())), Reply::Elements(entries)));
        }
    }
    // A Redis is not told when a consumer was seen; `see` has stated a new one.
    statement::state_nothing(txn);
    if !found.is_empty() {
        return Ok(Tried::Got(Reply::Keyed(found)));
    }
    let mut tried = reading.nothing(Vec::new(), true);
    if let Tried::Nothing(awaited) = &mut tried {
        awaited.again_ms = claimable_in_ms;
    }
    Ok(tried)
}

/// Returns the milliseconds after which an entry may be claimed, where there is none now and none was delivered before
/// `oldest_ms`. Where it is this moment, no entry is on the way: one that another consumer gets meanwhile may be.
fn claimable_in(idle_min_ms: u64, oldest_ms: u64, now_ms: u64) -> u64 {
    match oldest_ms.saturating_add(idle_min_ms).saturating_sub(now_ms) {
        left_ms if oldest_ms < now_ms => left_ms.max(1),
        left_ms => left_ms.max(LOOK_AGAIN_MS),
    }
}

/// Claims entries, if that is asked for, and delivers new ones; returns how many there were.
#[allow(clippy::too_many_arguments, reason = "the pieces of one read, handed on as they are")]
fn next(
    txn: &mut Txn,
    edit: &mut Edit,
    key: &Key,
    stream: &Stream,
    place: Place,
    reading: &Reading,
    entries: &mut Elements,
    room: &mut Room,
) -> Result<u64> {
    let mut limit = room.limit(reading.limit);
    let how = |limit| Delivery { limit, acknowledged: reading.noack };
    let (now_ms, states) = (txn.now_ms(), txn.states());
    let mut given = Vec::new();
    let Some(idle_min_ms) = reading.claim_ms else {
        let delivered = edit.deliver(txn, stream, place, how(limit), |id, fields| {
            let taken = room.push(entries, |entries| entries.push_with(|out| write_entry(out, id, fields)));
            // One that has no room is not given.
            if states && taken.is_some() {
                given.push((id, 1));
            }
            taken
        })?;
        state_delivered(txn, edit, key, place, &given, reading.noack);
        return Ok(delivered);
    };
    let what = Claimable { idle_min_ms, limit };
    let claimed = edit.claim(txn, stream, place, what, |id, fields, held| {
        let (idle_ms, deliveries) = (held.idle_ms(now_ms), held.deliveries);
        let write = |out: &mut Vec<u8>| write_claimed(out, id, fields, idle_ms, deliveries);
        let taken = room.push(entries, |entries| entries.push_with(write));
        if states && taken.is_some() {
            given.push((id, held.delivered_again()));
        }
        taken
    })?;
    let consumer = edit.consumer(place).name.clone();
    stating::state_given(txn, key, &edit.group, &consumer, &given, now_ms);
    given.clear();
    limit -= claimed;
    if limit == 0 {
        return Ok(claimed);
    }
    let delivered = edit.deliver(txn, stream, place, how(limit), |id, fields| {
        let taken = room.push(entries, |entries| entries.push_with(|out| write_claimed(out, id, fields, 0, 0)));
        if states && taken.is_some() {
            given.push((id, 1));
        }
        taken
    })?;
    state_delivered(txn, edit, key, place, &given, reading.noack);
    Ok(claimed + delivered)
}

/// States that new entries were delivered: to a consumer that has to acknowledge them, unless it need not.
fn state_delivered(txn: &mut Txn, edit: &Edit, key: &Key, place: Place, given: &[stating::Given], noack: bool) {
    if given.is_empty() {
        return;
    }
    if !noack {
        let (consumer, now_ms) = (edit.consumer(place).name.clone(), txn.now_ms());
        stating::state_given(txn, key, &edit.group, &consumer, given, now_ms);
    }
    stating::state_read(txn, key, &edit.group);
}

/// An entry as CLAIM answers it: also the milliseconds since its last delivery, and the number of deliveries, before
/// this one.
fn write_claimed(out: &mut Vec<u8>, id: StreamId, fields: Fields, idle_ms: u64, deliveries: u64) {
    write::array_len(out, 4);
    id::write(out, id);
    write::array_len(out, fields.len());
    fields.for_each(|field| write::bulk(out, field));
    write::integer(out, idle_ms as i64);
    write::integer(out, deliveries as i64);
}

/// Reads the entries behind an id that a consumer has not acknowledged, which counts as another delivery.
#[allow(clippy::too_many_arguments, reason = "the pieces of one read, handed on as they are")]
fn history(
    txn: &mut Txn,
    edit: &mut Edit,
    key: &Key,
    stream: &Stream,
    place: Place,
    after: StreamId,
    limit: u64,
    entries: &mut Elements,
    room: &mut Room,
) -> Result<()> {
    room.take(0);
    let Some(from) = after.next() else { return Ok(()) };
    let consumer = edit.consumer(place).clone();
    let mut ids = Vec::new();
    let want = usize::try_from(room.limit(limit).min(consumer.state.pending)).unwrap_or(usize::MAX);
    edit.group.visit_ids_of(txn, &consumer, from..=StreamId::MAX, want, |id| {
        ids.push(id);
        if ids.len() < want { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if ids.len() > ROWS_INLINE_MAX {
        txn.long()?;
    }
    let (now_ms, mut given) = (txn.now_ms(), Vec::new());
    for id in ids {
        if !room.takes_more() {
            break;
        }
        match stream.get(txn, id)? {
            Some(value) => {
                let fields = Fields::read(&value)?;
                room.push(entries, |entries| entries.push_with(|out| write_entry(out, id, fields)));
                if let Some(held) = edit.pending(txn, id)? {
                    edit.give(txn, id, Some(&held), place, now_ms, held.delivered_again())?;
                    given.push((id, held.delivered_again()));
                }
            }
            // The entry was removed since: only its id is left.
            None => {
                let write = |out: &mut Vec<u8>| {
                    write::array_len(out, 2);
                    id::write(out, id);
                };
                room.push(entries, |entries| entries.push_with_null_array(write));
            }
        }
        if entries.bytes() > REPLY_INLINE_BYTES_MAX {
            txn.long()?;
        }
    }
    stating::state_given(txn, key, &edit.group, &consumer.name, &given, now_ms);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_looks_again_when_an_entry_may_be_old_enough() {
        for (idle_min_ms, oldest_ms, now_ms, ms) in [
            (100, 950, 1000, 50),
            (100, 901, 1000, 1),
            (100, 1000, 1000, 100),
            (0, 1000, 1000, LOOK_AGAIN_MS),
            (5, 1000, 1000, LOOK_AGAIN_MS),
            (5, 999, 1000, 4),
            (0, 900, 1000, 1),
        ] {
            assert_eq!(claimable_in(idle_min_ms, oldest_ms, now_ms), ms, "{idle_min_ms} from {oldest_ms} at {now_ms}");
        }
    }
}
