//! The commands about the connection: greeting, protocol version, names, the selected database.
//!
//! Owns their options and replies. What a connection is belongs to the engine, behind [`Host`]. HELP of any container is in
//! `introspect.rs`.

use crate::REDIS_VERSION;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Host, Library};
use crate::introspect::help;
use crate::table::{Arity, Command, Deprecated, Flag, Group, Keys, Run};
use haypile_resp::{Protocol, Reply, number};

pub(crate) const COMMANDS: &[Command] = &[PING, ECHO, HELLO, SELECT, QUIT, CLIENT];

const PING: Command = Command {
    name: "ping",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Answers PONG, or the given message.",
    syntax: "[message]",
    run: Run::Session(ping),
    flags: &[Flag::Fast],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    ..Command::USUAL
};

fn ping(_: &mut dyn Host, args: Args) -> Result<Reply> {
    match args.len() {
        1 => Ok(Reply::Simple("PONG")),
        2 => Ok(Reply::bulk(args.get(1).to_vec())),
        _ => Err(Error::WrongArity("ping".to_owned())),
    }
}

const ECHO: Command = Command {
    name: "echo",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns the given message.",
    syntax: "message",
    run: Run::Session(echo),
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    ..Command::USUAL
};

fn echo(_: &mut dyn Host, args: Args) -> Result<Reply> {
    Ok(Reply::bulk(args.get(1).to_vec()))
}

const HELLO: Command = Command {
    name: "hello",
    since: "6.0.0",
    group: Group::Connection,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Agrees on the protocol version, with options to log in and to name the connection.",
    syntax: "[arguments=(protover:integer [AUTH username_password=(username password)] [SETNAME \
            clientname])]",
    run: Run::Session(hello),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth, Flag::AllowBusy],
    history: &[(
        "6.2.0",
        "`protover` made optional; when called without arguments the command reports the current \
        connection's context.",
    )],
    ..Command::USUAL
};

/// All options are checked before the first of them takes effect.
fn hello(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let protocol = match args.opt(1).map(number::parse_i64) {
        None => None,
        Some(Some(2)) => Some(Protocol::Resp2),
        Some(Some(3)) => Some(Protocol::Resp3),
        Some(Some(_)) => return Err(Error::text("NOPROTO unsupported protocol version")),
        Some(None) => return Err(Error::text("ERR Protocol version is not an integer or out of range")),
    };
    let (mut login, mut name) = (None, None);
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "AUTH") && at + 2 < args.len() {
            login = Some((args.get(at + 1), args.get(at + 2)));
            at += 3;
        } else if args.is(at, "SETNAME") && at + 1 < args.len() {
            name = Some(client_name(args.get(at + 1))?);
            at += 2;
        } else {
            return Err(Error::quoting("ERR Syntax error in HELLO option '", args.get(at), "'"));
        }
    }
    if let Some((user, password)) = login {
        host.authenticate(user, password)?;
    }
    if !host.authenticated() {
        return Err(Error::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        host.set_client_name(name);
    }
    if let Some(protocol) = protocol {
        host.set_protocol(protocol);
    }
    Ok(Reply::Map(vec![
        (Reply::bulk("server"), Reply::bulk("redis")),
        (Reply::bulk("version"), Reply::bulk(REDIS_VERSION)),
        (Reply::bulk("proto"), Reply::Integer(if host.protocol() == Protocol::Resp3 { 3 } else { 2 })),
        (Reply::bulk("id"), Reply::Integer(host.client_id() as i64)),
        (Reply::bulk("mode"), Reply::bulk("standalone")),
        (Reply::bulk("role"), Reply::bulk("master")),
        (Reply::bulk("modules"), Reply::Array(Vec::new())),
    ]))
}

const SELECT: Command = Command {
    name: "select",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Selects the database of this connection.",
    syntax: "index",
    run: Run::Session(select),
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    ..Command::USUAL
};

fn select(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let index = i32::try_from(args.int(1)?).map_err(|_| Error::NotInt)?;
    let index = u32::try_from(index).ok().filter(|&index| index < host.databases());
    host.select(index.ok_or(Error::DatabaseOutOfRange)?);
    Ok(Reply::ok())
}

const QUIT: Command = Command {
    name: "quit",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Closes the connection after the reply.",
    syntax: "",
    run: Run::Session(quit),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth, Flag::AllowBusy],
    deprecated: Some(Deprecated { since: "7.2.0", instead: "just closing the connection" }),
    ..Command::USUAL
};

fn quit(host: &mut dyn Host, _: Args) -> Result<Reply> {
    host.close_after_reply();
    Ok(Reply::ok())
}

const CLIENT: Command = Command {
    name: "client",
    since: "2.4.0",
    group: Group::Connection,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for commands about the client connection.",
    syntax: "",
    complexity: "Depends on subcommand.",
    run: Run::Container,
    subcommands: &[CLIENT_ID, CLIENT_GETNAME, CLIENT_SETNAME, CLIENT_SETINFO, CLIENT_HELP],
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
    run: Run::Session(client_id),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn client_id(host: &mut dyn Host, _: Args) -> Result<Reply> {
    Ok(Reply::Integer(host.client_id() as i64))
}

const CLIENT_GETNAME: Command = Command {
    name: "getname",
    since: "2.6.9",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns the name of the connection.",
    syntax: "",
    run: Run::Session(client_getname),
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
    run: Run::Session(client_setname),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn client_setname(host: &mut dyn Host, args: Args) -> Result<Reply> {
    host.set_client_name(client_name(args.get(2))?);
    Ok(Reply::ok())
}

/// A name that may stand in CLIENT LIST without breaking its format; empty takes the name away.
fn client_name(name: &[u8]) -> Result<&[u8]> {
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
    run: Run::Session(client_setinfo),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn client_setinfo(host: &mut dyn Host, args: Args) -> Result<Reply> {
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
    host.set_library(part, value);
    Ok(Reply::ok())
}

const CLIENT_HELP: Command = Command {
    name: "help",
    since: "5.0.0",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Lists the subcommands of CLIENT.",
    syntax: "",
    run: Run::Session(help),
    flags: &[Flag::Loading, Flag::Stale],
    ..Command::USUAL
};
