//! CLIENT: what clients tell about themselves, and what they may know of and do to each other.
//!
//! Owns the options, the filters and the replies. Who is connected, and how one of them is closed, paused or woken,
//! belongs to the engine, behind [`Host`]. HELP of any container is in `introspect.rs`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, ClientFilter, ClientType, Host, Library, Paused, Replies, SessionChange};
use crate::server::introspect::help;
use crate::session::tracking;
use crate::table::{Arity, Body, Command, Flag, Group, Keys};
use haypile_resp::{Reply, number};

pub(crate) const COMMANDS: &[Command] = &[CLIENT];

const CLIENT: Command = Command {
    name: "client",
    since: "2.4.0",
    group: Group::Connection,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for commands about client connections.",
    syntax: "",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[
        CLIENT_ID,
        CLIENT_INFO,
        CLIENT_LIST,
        CLIENT_KILL,
        CLIENT_GETNAME,
        CLIENT_SETNAME,
        CLIENT_SETINFO,
        CLIENT_REPLY,
        CLIENT_PAUSE,
        CLIENT_UNPAUSE,
        CLIENT_UNBLOCK,
        CLIENT_NO_EVICT,
        CLIENT_NO_TOUCH,
        tracking::TRACKING,
        tracking::CACHING,
        tracking::GETREDIR,
        tracking::TRACKINGINFO,
        CLIENT_HELP,
    ],
    keeps_caching: true,
    ..Command::USUAL
};

const CLIENT_ID: Command = Command {
    name: "id",
    since: "5.0.0",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns the unique number of the connection.",
    syntax: "",
    body: Body::Host(client_id),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn client_id(host: &mut dyn Host, _: Args) -> Result<Reply> {
    Ok(Reply::Integer(host.client_id() as i64))
}

const CLIENT_INFO: Command = Command {
    name: "info",
    since: "6.2.0",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Describes the connection, as a line of CLIENT LIST.",
    syntax: "",
    body: Body::Host(client_info),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    tips: &["nondeterministic_output"],
    ..Command::USUAL
};

fn client_info(host: &mut dyn Host, _: Args) -> Result<Reply> {
    let own = ClientFilter { ids: Some(vec![host.client_id()]), ..ClientFilter::default() };
    Ok(text(host.clients(&own)?))
}

fn text(lines: String) -> Reply {
    Reply::Verbatim("txt", lines.into())
}

const CLIENT_LIST: Command = Command {
    name: "list",
    since: "2.4.0",
    group: Group::Connection,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Describes open connections, a line for each.",
    syntax: "[TYPE normal_master_replica_pubsub@5.0.0=(NORMAL | MASTER | REPLICA | PUBSUB)] [ID \
            id@6.2.0=(client-id:integer...)]",
    complexity: "O(N) where N is the number of client connections",
    body: Body::Host(client_list),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    tips: &["nondeterministic_output"],
    history: &[
        ("2.8.12", "Added unique client `id` field."),
        ("5.0.0", "Added optional `TYPE` filter."),
        ("6.0.0", "Added `user` field."),
        ("6.2.0", "Added `argv-mem`, `tot-mem`, `laddr` and `redir` fields and the optional `ID` filter."),
        ("7.0.0", "Added `resp`, `multi-mem`, `rbs` and `rbp` fields."),
        ("7.0.3", "Added `ssub` field."),
    ],
    ..Command::USUAL
};

fn client_list(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let mut filter = ClientFilter::default();
    if args.len() == 4 && args.is(2, "TYPE") {
        filter.kind = Some(client_type(args.get(3))?);
    } else if args.len() > 3 && args.is(2, "ID") {
        let id = |arg| number::parse_i64(arg).ok_or(Error::text("ERR Invalid client ID"));
        // Redis looks for each number in turn; one that no client can have finds none.
        let ids: Vec<i64> = args.iter_from(3).map(id).collect::<Result<_>>()?;
        filter.ids = Some(ids.into_iter().filter_map(|id| u64::try_from(id).ok()).collect());
    } else if args.len() != 2 {
        return Err(Error::Syntax);
    }
    Ok(text(host.clients(&filter)?))
}

fn client_type(word: &[u8]) -> Result<ClientType> {
    ClientType::named(word).ok_or_else(|| Error::quoting("ERR Unknown client type '", word, "'"))
}

const CLIENT_KILL: Command = Command {
    name: "kill",
    since: "2.4.0",
    group: Group::Connection,
    arity: Arity::at_least(3),
    keys: Keys::NONE,
    summary: "Closes connections.",
    syntax: "filter=(old-format | new-format=([ID client-id:integer@2.8.12] | [TYPE client-type@2.8.12=(NORMAL | \
            MASTER@3.2.0 | SLAVE | REPLICA@5.0.0 | PUBSUB)] | [USER username] | [ADDR addr] | [LADDR laddr@6.2.0] | \
            [SKIPME skipme=(YES | NO)])...)",
    complexity: "O(N) where N is the number of client connections",
    body: Body::Act(client_kill),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    history: &[
        ("2.8.12", "Added new filter format."),
        ("2.8.12", "`ID` option."),
        ("3.2.0", "Added `master` type in for `TYPE` option."),
        ("5.0.0", "Replaced `slave` `TYPE` with `replica`. `slave` still supported for backward compatibility."),
        ("6.2.0", "`LADDR` option."),
    ],
    ..Command::USUAL
};

/// Closes the client of an address, or all clients that every filter lets through; then answers how many these were.
fn client_kill(host: &mut dyn Host, args: Args) -> Result<Answer> {
    if args.len() == 3 && args.is(2, "ALL") {
        return Ok(kill_all(host));
    }
    if args.len() == 3 {
        let there = ClientFilter { address: Some(args.get(2).to_vec()), ..ClientFilter::default() };
        return match close(host, &there) {
            (0, _) => Err(Error::text("ERR No such client")),
            (_, acts) => Ok(Answer { reply: Reply::ok(), acts }),
        };
    }
    let mut filter = ClientFilter { skip_me: true, ..ClientFilter::default() };
    for i in (2..args.len()).step_by(2) {
        let value = args.opt(i + 1).ok_or(Error::Syntax)?;
        if args.is(i, "ID") {
            let id = number::parse_i64(value).filter(|&id| id > 0);
            let id = id.ok_or(Error::text("ERR client-id should be greater than 0"))?;
            filter.ids = Some(vec![id as u64]);
        } else if args.is(i, "TYPE") {
            filter.kind = Some(client_type(value)?);
        } else if args.is(i, "ADDR") {
            filter.address = Some(value.to_vec());
        } else if args.is(i, "LADDR") {
            filter.local_address = Some(value.to_vec());
        } else if args.is(i, "USER") {
            if host.users().get(value).is_none() {
                return Err(Error::quoting("ERR No such user '", value, "'"));
            }
            filter.user = Some(value.to_vec());
        } else if args.is(i, "MAXAGE") {
            let age = number::parse_i64(value).ok_or(Error::text("ERR maxage is not an integer or out of range"))?;
            let age = u64::try_from(age).ok().filter(|&age| age > 0);
            filter.age_min_s = Some(age.ok_or(Error::text("ERR maxage should be greater than 0"))?);
        } else if args.is(i, "SKIPME") {
            filter.skip_me = yes_or_no(args, i + 1, "yes", "no")?;
        } else {
            return Err(Error::Syntax);
        }
    }
    let (count, acts) = close(host, &filter);
    Ok(Answer { reply: Reply::Integer(count as i64), acts })
}

/// Closes all clients, the asking one after its reply, as Pika does; connections of replication are none.
fn kill_all(host: &mut dyn Host) -> Answer {
    let kinds = [ClientType::Normal, ClientType::PubSub];
    let closed = kinds.map(|kind| close(host, &ClientFilter { kind: Some(kind), ..ClientFilter::default() }));
    Answer { reply: Reply::ok(), acts: closed.into_iter().flat_map(|(_, acts)| acts).collect() }
}

/// Finds the clients that the filter lets through. Returns their number and the acts that close them, the running
/// command's own client after its reply.
fn close(host: &mut dyn Host, filter: &ClientFilter) -> (usize, Vec<Act>) {
    let (own, mut others) = (host.client_id(), host.find_clients(filter));
    let count = others.len();
    others.retain(|id| *id != own);
    let mut acts = Vec::new();
    if others.len() < count {
        acts.push(SessionChange::Close.into());
    }
    if !others.is_empty() {
        acts.push(Act::CloseClients(others));
    }
    (count, acts)
}

fn yes_or_no(args: Args, i: usize, yes: &str, no: &str) -> Result<bool> {
    if args.is(i, yes) {
        Ok(true)
    } else if args.is(i, no) {
        Ok(false)
    } else {
        Err(Error::Syntax)
    }
}

const CLIENT_GETNAME: Command = Command {
    name: "getname",
    since: "2.6.9",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns the name of the connection.",
    syntax: "",
    body: Body::Host(client_getname),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn client_getname(host: &mut dyn Host, _: Args) -> Result<Reply> {
    Ok(match host.client_name() {
        [] => Reply::Null,
        name => Reply::bulk(name.to_vec()),
    })
}

const CLIENT_SETNAME: Command = Command {
    name: "setname",
    since: "2.6.9",
    group: Group::Connection,
    arity: Arity::exactly(3),
    keys: Keys::NONE,
    summary: "Names the connection.",
    syntax: "connection-name",
    body: Body::Act(client_setname),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn client_setname(_: &mut dyn Host, args: Args) -> Result<Answer> {
    Ok(Answer::ok(SessionChange::Name(client_name(args.get(2))?.to_vec())))
}

/// A name that may stand in CLIENT LIST without breaking its format; empty takes the name away.
pub(crate) fn client_name(name: &[u8]) -> Result<&[u8]> {
    if name.iter().all(u8::is_ascii_graphic) {
        Ok(name)
    } else {
        Err(Error::text("ERR Client names cannot contain spaces, newlines or special characters."))
    }
}

const CLIENT_SETINFO: Command = Command {
    name: "setinfo",
    since: "7.2.0",
    group: Group::Connection,
    arity: Arity::exactly(4),
    keys: Keys::NONE,
    summary: "Tells the server the name or version of the client library.",
    syntax: "attr=('lib-name' libname | 'lib-ver' libver)",
    body: Body::Act(client_setinfo),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn client_setinfo(_: &mut dyn Host, args: Args) -> Result<Answer> {
    let (attribute, value) = (args.get(2), args.get(3));
    let part = if args.is(2, "lib-name") {
        Library::Name
    } else if args.is(2, "lib-ver") {
        Library::Version
    } else {
        return Err(Error::quoting("ERR Unrecognized option '", attribute, "'"));
    };
    if !value.iter().all(u8::is_ascii_graphic) {
        return Err(Error::quoting("ERR ", attribute, " cannot contain spaces, newlines or special characters."));
    }
    Ok(Answer::ok(SessionChange::Library(part, value.to_vec())))
}

const CLIENT_REPLY: Command = Command {
    name: "reply",
    since: "3.2.0",
    group: Group::Connection,
    arity: Arity::exactly(3),
    keys: Keys::NONE,
    summary: "Says whether the connection wants replies.",
    syntax: "on_off_skip=(ON | OFF | SKIP)",
    body: Body::Act(client_reply),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

/// Sets whether replies are sent. Only ON is answered.
fn client_reply(_: &mut dyn Host, args: Args) -> Result<Answer> {
    let replies = if args.is(2, "on") {
        Replies::On
    } else if args.is(2, "off") {
        Replies::Off
    } else if args.is(2, "skip") {
        Replies::SkipNext
    } else {
        return Err(Error::Syntax);
    };
    let reply = if replies == Replies::On { Reply::ok() } else { Reply::None };
    Ok(Answer::with(reply, SessionChange::Replies(replies)))
}

const CLIENT_PAUSE: Command = Command {
    name: "pause",
    since: "3.0.0",
    group: Group::Connection,
    arity: Arity::at_least(3),
    keys: Keys::NONE,
    summary: "Holds the commands of all clients for a while.",
    syntax: "timeout:integer [mode@6.2.0=(WRITE | ALL)]",
    body: Body::Act(client_pause),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    history: &[("6.2.0", "`CLIENT PAUSE WRITE` mode added along with the `mode` option.")],
    ..Command::USUAL
};

fn client_pause(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let what = match args.len() {
        3 => Paused::All,
        4 if args.is(3, "WRITE") => Paused::Writes,
        4 if args.is(3, "ALL") => Paused::All,
        4 => return Err(Error::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(args.wrong_subcommand()),
    };
    let until_ms = timeout_ms(host, args, 2)?;
    Ok(Answer::ok(Act::Pause { until_ms, what }))
}

/// The end of a time in milliseconds from now on, as a Unix time in milliseconds.
fn timeout_ms(host: &dyn Host, args: Args, i: usize) -> Result<u64> {
    let ms = number::parse_i64(args.get(i)).ok_or(Error::text("ERR timeout is not an integer or out of range"))?;
    let ms = u64::try_from(ms).map_err(|_| Error::text("ERR timeout is negative"))?;
    let end = (host.now_us() / 1000).checked_add(ms).filter(|&end| end <= i64::MAX as u64);
    end.ok_or(Error::text("ERR timeout is out of range"))
}

const CLIENT_UNPAUSE: Command = Command {
    name: "unpause",
    since: "6.2.0",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Ends CLIENT PAUSE.",
    syntax: "",
    complexity: "O(N) Where N is the number of paused clients",
    body: Body::Act(client_unpause),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn client_unpause(_: &mut dyn Host, _: Args) -> Result<Answer> {
    Ok(Answer::ok(Act::Unpause))
}

const CLIENT_UNBLOCK: Command = Command {
    name: "unblock",
    since: "5.0.0",
    group: Group::Connection,
    arity: Arity::at_least(3),
    keys: Keys::NONE,
    summary: "Ends the wait of another connection's blocking command.",
    syntax: "client-id:integer [timeout_error=(TIMEOUT | ERROR)]",
    complexity: "O(log N) where N is the number of client connections",
    body: Body::Act(client_unblock),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

/// Ends the wait of a client. Answers whether it was waiting.
fn client_unblock(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let with_error = match args.len() {
        3 => false,
        4 if args.is(3, "timeout") => false,
        4 if args.is(3, "error") => true,
        4 => return Err(Error::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        _ => return Err(args.wrong_subcommand()),
    };
    let id = u64::try_from(args.int(2)?).ok();
    Ok(match id.filter(|&id| host.is_blocked(id)) {
        Some(client) => Answer::with(Reply::Integer(1), Act::Unblock { client, with_error }),
        None => Reply::Integer(0).into(),
    })
}

const CLIENT_NO_EVICT: Command = Command {
    name: "no-evict",
    since: "7.0.0",
    group: Group::Connection,
    arity: Arity::exactly(3),
    keys: Keys::NONE,
    summary: "Keeps the connection when clients are closed for want of memory.",
    syntax: "enabled=(ON | OFF)",
    body: Body::Act(client_no_evict),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn client_no_evict(_: &mut dyn Host, args: Args) -> Result<Answer> {
    Ok(Answer::ok(SessionChange::NoEvict(yes_or_no(args, 2, "on", "off")?)))
}

const CLIENT_NO_TOUCH: Command = Command {
    name: "no-touch",
    since: "7.2.0",
    group: Group::Connection,
    arity: Arity::exactly(3),
    keys: Keys::NONE,
    summary: "Lets the connection's reads leave no trace in the age of keys.",
    syntax: "enabled=(ON | OFF)",
    body: Body::Act(client_no_touch),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn client_no_touch(_: &mut dyn Host, args: Args) -> Result<Answer> {
    Ok(Answer::ok(SessionChange::NoTouch(yes_or_no(args, 2, "on", "off")?)))
}

const CLIENT_HELP: Command = Command {
    name: "help",
    since: "5.0.0",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Lists the subcommands of CLIENT.",
    syntax: "",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    ..Command::USUAL
};
