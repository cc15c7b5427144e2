//! The commands about the connection: greeting, login, protocol version, the selected database.
//!
//! Owns their options and replies. What a connection is belongs to the engine, behind [`Host`]. CLIENT is in
//! `client.rs`.

use crate::REDIS_VERSION;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host, Role, SessionChange};
use crate::session::client::client_name;
use crate::table::{Arity, Body, Command, Control, Databases, Deprecated, Flag, Group, Keys, Selects};
use haypile_acl::log::Context;
use haypile_acl::{Denial, Reason};
use haypile_resp::{Protocol, Reply, number};

pub(crate) const COMMANDS: &[Command] = &[PING, ECHO, AUTH, HELLO, SELECT, RESET, QUIT];

const PING: Command = Command {
    name: "ping",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Answers PONG, or the given message.",
    syntax: "[message]",
    body: Body::Host(ping),
    flags: &[Flag::Fast],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    runs_while_bound: true,
    ..Command::USUAL
};

/// A RESP2 client that is subscribed gets an answer of the form of its messages.
fn ping(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let text = match args.len() {
        1 => None,
        2 => Some(args.get(1).to_vec()),
        _ => return Err(Error::WrongArity("ping".to_owned())),
    };
    if host.is_bound_to_channels() {
        return Ok(Reply::array([Reply::bulk("pong"), Reply::bulk(text.unwrap_or_default())]));
    }
    Ok(text.map_or(Reply::Simple("PONG"), Reply::bulk))
}

const ECHO: Command = Command {
    name: "echo",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns the given message.",
    syntax: "message",
    body: Body::Host(echo),
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    ..Command::USUAL
};

fn echo(_: &mut dyn Host, args: Args) -> Result<Reply> {
    Ok(Reply::bulk(args.get(1).to_vec()))
}

const AUTH: Command = Command {
    name: "auth",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Logs the connection in.",
    syntax: "[username@6.0.0] password",
    complexity: "O(N) where N is the number of passwords defined for the user",
    body: Body::Act(auth),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth, Flag::AllowBusy],
    history: &[("6.0.0", "Added ACL style (username and password).")],
    ..Command::USUAL
};

fn auth(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let (user, password) = match args.len() {
        2 if host.users().default_user().needs_no_password() => {
            return Err(Error::text(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => (&b"default"[..], args.get(1)),
        3 => (args.get(1), args.get(2)),
        _ => return Err(Error::Syntax),
    };
    match host.login(user, password)? {
        Some(user) => Ok(Answer::ok(SessionChange::Login(user))),
        None => Ok(refused_login(host, args, user)),
    }
}

/// The answer to a login that fails.
fn refused_login(host: &dyn Host, args: Args, user: &[u8]) -> Answer {
    let context = if host.is_in_block() { Context::Multi } else { Context::Toplevel };
    let denial = Denial::new(Reason::Auth, context, args.get(0), user);
    let reply = Reply::error("WRONGPASS invalid username-password pair or user is disabled.");
    Answer::with(reply, Act::NoteDenial(denial, 1))
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
    body: Body::Act(hello),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth, Flag::AllowBusy],
    history: &[(
        "6.2.0",
        "`protover` made optional; when called without arguments the command reports the current \
        connection's context.",
    )],
    ..Command::USUAL
};

/// The reply is in the protocol that was agreed on. If one option is wrong, none has an effect.
fn hello(host: &mut dyn Host, args: Args) -> Result<Answer> {
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
    let mut changes = Vec::new();
    if let Some((user, password)) = login {
        match host.login(user, password)? {
            Some(user) => changes.push(SessionChange::Login(user)),
            None => return Ok(refused_login(host, args, user)),
        }
    } else if !host.authenticated() {
        return Err(Error::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    changes.extend(name.map(|name| SessionChange::Name(name.to_vec())));
    changes.extend(protocol.map(SessionChange::Protocol));
    let is_resp3 = protocol.unwrap_or(host.protocol()) == Protocol::Resp3;
    let role = match host.role() {
        Role::Master { .. } => "master",
        Role::Replica { .. } => "replica",
    };
    let reply = Reply::Map(vec![
        (Reply::bulk("server"), Reply::bulk("redis")),
        (Reply::bulk("version"), Reply::bulk(REDIS_VERSION)),
        (Reply::bulk("proto"), Reply::Integer(if is_resp3 { 3 } else { 2 })),
        (Reply::bulk("id"), Reply::Integer(host.client_id() as i64)),
        (Reply::bulk("mode"), Reply::bulk(if host.cluster().is_some() { "cluster" } else { "standalone" })),
        (Reply::bulk("role"), Reply::bulk(role)),
        (Reply::bulk("modules"), Reply::Array(Vec::new())),
    ]);
    Ok(Answer { reply, acts: changes.into_iter().map(Act::from).collect() })
}

const SELECT: Command = Command {
    name: "select",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Selects the database of this connection.",
    syntax: "index",
    body: Body::Act(select),
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    selects: Some(Selects::Argument(1)),
    databases: Databases::Arguments(&[1]),
    ..Command::USUAL
};

fn select(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let index = i32::try_from(args.int(1)?).map_err(|_| Error::NotInt)?;
    let index = u32::try_from(index).ok().filter(|&index| index < host.databases());
    Ok(Answer::ok(SessionChange::Database(index.ok_or(Error::DatabaseOutOfRange)?)))
}

const RESET: Command = Command {
    name: "reset",
    since: "6.2.0",
    group: Group::Connection,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Makes the connection as it was when it was opened.",
    syntax: "",
    body: Body::Engine(Control::Reset),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth, Flag::AllowBusy],
    runs_in_multi: true,
    runs_while_bound: true,
    selects: Some(Selects::First),
    ..Command::USUAL
};

const QUIT: Command = Command {
    name: "quit",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Closes the connection after the reply.",
    syntax: "",
    body: Body::Act(quit),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth, Flag::AllowBusy],
    deprecated: Some(Deprecated { since: "7.2.0", instead: "just closing the connection" }),
    runs_in_multi: true,
    runs_while_bound: true,
    ..Command::USUAL
};

fn quit(_: &mut dyn Host, _: Args) -> Result<Answer> {
    Ok(Answer::ok(SessionChange::Close))
}
