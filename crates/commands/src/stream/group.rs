//! XGROUP: the consumer groups of a stream, and who is in them. And XACK, with which a consumer says that it is done.
//!
//! The groups themselves belong to `haypile_types::stream`. Reading as a consumer is in `read_group.rs`; taking over
//! entries that others have left pending is in `claim.rs`.

use crate::args::Args;
use crate::error::{Error, Result, as_text};
use crate::server::introspect::help;
use crate::stream::id;
use crate::stream::stating;
use crate::table::{Access, Arity, Body, Command, Flag, Group as CommandGroup, Keys, TxnFn, Use};
use haypile_resp::Reply;
use haypile_store::{Key, Txn};
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::event;
use haypile_types::stream::{Edit, Group, Place, Stream, StreamId};

pub(crate) const COMMANDS: &[Command] = &[XGROUP, XACK, crate::stream::removal::XACKDEL];

const XGROUP: Command = Command {
    name: "xgroup",
    since: "5.0.0",
    group: CommandGroup::Stream,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for commands about consumer groups.",
    syntax: "",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[
        Command {
            arity: Arity::at_least(5),
            keys: Keys::first(2).rw(&[Use::Insert]),
            flags: &[Flag::Denyoom],
            history: &[("7.0.0", "Added the `entries_read` named argument.")],
            ..about(
                "create",
                "Makes a consumer group of a stream.",
                "key groupname id=(id | '$' new_id:pure-token) [MKSTREAM] [ENTRIESREAD entries_read:integer]",
                create,
            )
        },
        Command {
            since: "6.2.0",
            keys: Keys::first(2).rw(&[Use::Insert]),
            flags: &[Flag::Denyoom],
            ..about("createconsumer", "Makes a consumer of a group.", "key groupname consumername", create_consumer)
        },
        Command {
            keys: Keys::first(2).rw(&[Use::Delete]),
            ..about("delconsumer", "Removes a consumer of a group.", "key groupname consumername", delete_consumer)
        },
        Command {
            arity: Arity::exactly(4),
            keys: Keys::first(2).rw(&[Use::Delete]),
            complexity: "O(N) where N is the number of entries in the group's pending entries list (PEL).",
            ..about("destroy", "Removes a consumer group.", "key groupname", destroy)
        },
        Command {
            name: "help",
            since: "5.0.0",
            group: CommandGroup::Stream,
            arity: Arity::exactly(2),
            keys: Keys::NONE,
            summary: "Lists the subcommands of XGROUP.",
            syntax: "",
            body: Body::Host(help),
            flags: &[Flag::Loading, Flag::Stale],
            ..Command::USUAL
        },
        Command {
            arity: Arity::at_least(5),
            keys: Keys::first(2).rw(&[Use::Update]),
            history: &[("7.0.0", "Added the optional `entries_read` argument.")],
            ..about(
                "setid",
                "Sets the last entry that a group is said to have got.",
                "key groupname id=(id | '$' new_id:pure-token) [ENTRIESREAD entries_read:integer]",
                set_id,
            )
        },
    ],
    ..Command::USUAL
};

const fn about(name: &'static str, summary: &'static str, syntax: &'static str, run: TxnFn) -> Command {
    Command {
        name,
        since: "5.0.0",
        group: CommandGroup::Stream,
        arity: Arity::exactly(5),
        summary,
        syntax,
        access: Access::Write,
        body: Body::Txn(run),
        ..Command::USUAL
    }
}

/// Asks for the I/O pool where so many rows are to be read.
pub(crate) fn long_if(txn: &Txn, rows: usize) -> Result<()> {
    if rows > ROWS_INLINE_MAX {
        txn.long()?;
    }
    Ok(())
}

/// A key that has to hold a stream for XGROUP.
fn existing(txn: &mut Txn, key: &Key) -> Result<Stream> {
    Stream::edit(txn, key)?.ok_or(Error::text(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option \
         to create an empty stream automatically.",
    ))
}

pub(crate) fn no_group_of_key(group: &[u8], key: &[u8]) -> Error {
    let (group, key) = (as_text(group), as_text(key));
    Error::Quoting([b"NOGROUP No such consumer group '", group, b"' for key name '", key, b"'"].concat())
}

/// The stream and the group that arguments 2 and 3 name.
fn existing_group<'a>(txn: &mut Txn, args: Args<'a>) -> Result<Edit<'a>> {
    let key = args.key(txn, 2);
    let stream = existing(txn, &key)?;
    match Group::find(txn, &stream, args.get(3))? {
        Some(group) => Ok(Edit::of(group)),
        None => Err(no_group_of_key(args.get(3), args.get(2))),
    }
}

/// CREATE's and SETID's options, which begin at argument 5.
#[derive(Default)]
struct Options {
    make_stream: bool,
    entries_read: Option<u64>,
}

impl Options {
    fn parse(args: Args, may_make_stream: bool) -> Result<Options> {
        let (mut options, mut i) = (Options::default(), 5);
        while i < args.len() {
            if may_make_stream && args.is(i, "mkstream") {
                options.make_stream = true;
                i += 1;
            } else if args.is(i, "entriesread") && i + 1 < args.len() {
                options.entries_read = match args.int(i + 1)? {
                    -1 => None,
                    read => Some(
                        u64::try_from(read)
                            .map_err(|_| Error::text("ERR value for ENTRIESREAD must be positive or -1"))?,
                    ),
                };
                i += 2;
            } else {
                return Err(args.wrong_subcommand());
            }
        }
        Ok(options)
    }
}

fn create(txn: &mut Txn, args: Args) -> Result<Reply> {
    let options = Options::parse(args, true)?;
    let key = args.key(txn, 2);
    let found = match options.make_stream {
        true => Stream::edit(txn, &key)?,
        false => Some(existing(txn, &key)?),
    };
    // Options may be given twice, but not so often.
    if args.len() > 8 {
        return Err(args.wrong_subcommand());
    }
    let last = match args.get(4) {
        b"$" => found.as_ref().map_or(StreamId::MIN, |stream| stream.head.last),
        id => id::parse_strict(id, 0)?,
    };
    let stream = match found {
        Some(stream) => stream,
        None => {
            let mut stream = Stream::create(txn, &key)?;
            stream.save(txn, &key)?;
            stream
        }
    };
    if !Group::create(txn, &key, &stream, args.get(3), last, options.entries_read)? {
        return Err(Error::text("BUSYGROUP Consumer Group name already exists"));
    }
    txn.on_event(event::STREAM, "xgroup-create", &key);
    Ok(Reply::ok())
}

fn set_id(txn: &mut Txn, args: Args) -> Result<Reply> {
    let options = Options::parse(args, false)?;
    let key = args.key(txn, 2);
    let stream = existing(txn, &key)?;
    let Some(mut group) = Group::find(txn, &stream, args.get(3))? else {
        return Err(no_group_of_key(args.get(3), args.get(2)));
    };
    if args.len() > 7 {
        return Err(args.wrong_subcommand());
    }
    group.state.last = match args.get(4) {
        b"$" => stream.head.last,
        b"-" => StreamId::MIN,
        b"+" => StreamId::MAX,
        id => id::parse_strict(id, 0)?,
    };
    group.state.entries_read = options.entries_read;
    group.save(txn, &key)?;
    txn.on_event(event::STREAM, "xgroup-setid", &key);
    Ok(Reply::ok())
}

fn destroy(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 2);
    let stream = existing(txn, &key)?;
    let Some(group) = Group::find(txn, &stream, args.get(3))? else { return Ok(Reply::Integer(0)) };
    group.destroy(txn, &key)?;
    txn.on_event(event::STREAM, "xgroup-destroy", &key);
    // Clients that wait to read as consumers of the group learn that it has gone.
    txn.on_ready(&key);
    Ok(Reply::Integer(1))
}

fn create_consumer(txn: &mut Txn, args: Args) -> Result<Reply> {
    let mut edit = existing_group(txn, args)?;
    if edit.find(txn, args.get(4))?.is_some() {
        return Ok(Reply::Integer(0));
    }
    let key = args.key(txn, 2);
    see(txn, &mut edit, &key, args.get(4))?;
    edit.save(txn, &key)?;
    Ok(Reply::Integer(1))
}

/// The consumer of this name, which comes to be if there is none.
pub(crate) fn see(txn: &mut Txn, edit: &mut Edit, key: &Key, name: &[u8]) -> Result<Place> {
    let (place, is_new) = edit.see(txn, name)?;
    if is_new {
        txn.on_event(event::STREAM, "xgroup-createconsumer", key);
        stating::state_consumer(txn, key, &edit.group, name);
    }
    Ok(place)
}

fn delete_consumer(txn: &mut Txn, args: Args) -> Result<Reply> {
    let mut group = existing_group(txn, args)?.group;
    let Some(consumer) = group.consumer(txn, args.get(4))? else { return Ok(Reply::Integer(0)) };
    group.remove_consumer(txn, &consumer)?;
    let key = args.key(txn, 2);
    group.save(txn, &key)?;
    txn.on_event(event::STREAM, "xgroup-delconsumer", &key);
    Ok(Reply::Integer(consumer.state.pending as i64))
}

const XACK: Command = Command {
    name: "xack",
    since: "5.0.0",
    group: CommandGroup::Stream,
    arity: Arity::at_least(4),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Says that a consumer group is done with entries, and returns how many of them were pending.",
    syntax: "key group id...",
    complexity: "O(1) for each message ID processed.",
    access: Access::Write,
    body: Body::Txn(ack),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn ack(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(stream) = Stream::lookup(txn, &key)? else { return Ok(Reply::Integer(0)) };
    let Some(group) = Group::find(txn, &stream, args.get(2))? else { return Ok(Reply::Integer(0)) };
    long_if(txn, args.len())?;
    let mut edit = Edit::of(group);
    // All of them are read before any counts.
    for id in args.iter_from(3) {
        id::parse_strict(id, 0)?;
    }
    let mut acknowledged = 0;
    for id in args.iter_from(3) {
        let id = id::parse_strict(id, 0)?;
        if let Some(held) = edit.pending(txn, id)? {
            edit.release(txn, id, &held)?;
            acknowledged += 1;
        }
    }
    edit.save(txn, &key)?;
    Ok(Reply::Integer(acknowledged))
}
