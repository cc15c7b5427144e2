//! The commands about copies of the data: ROLE, REPLICAOF, REPLCONF, FAILOVER, WAIT and WAITAOF.
//!
//! These commands only ask and say: connections to masters and replicas are the server's, behind [`Act::Follow`] and
//! [`SessionChange::HandOver`]. How a reply is held back until replicas or the log have what a client has seen is the
//! engine's, behind [`Act::Wait`].

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Failover, Host, Library, Role, SessionChange, Wait, WaitKind};
use crate::session::client::client_name;
use crate::table::{Arity, Body, Category, Command, Deprecated, Flag, Group, Keys};
use haypile_resp::{Protocol, Reply};
use std::time::Duration;

pub(crate) const COMMANDS: &[Command] = &[ROLE, REPLICAOF, SLAVEOF, REPLCONF, PSYNC, SYNC, FAILOVER, WAIT, WAITAOF];

const ROLE: Command = Command {
    name: "role",
    since: "2.8.12",
    group: Group::Server,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Returns the part that the server has in replication.",
    syntax: "",
    body: Body::Host(role),
    flags: &[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &[Category::Admin, Category::Dangerous],
    ..Command::USUAL
};

/// Answers of a master: the last record of the log, and the replicas; of a replica: its master and how far it is.
fn role(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(match host.role() {
        Role::Master { offset, replicas } => {
            let replica = |(host, port, offset): (String, u16, u64)| {
                Reply::array([host, port.to_string(), offset.to_string()].map(Reply::bulk))
            };
            let replicas = replicas.into_iter().map(replica).collect();
            Reply::array([Reply::bulk("master"), Reply::Integer(offset as i64), Reply::Array(replicas)])
        }
        Role::Replica { host, port, state, offset } => Reply::array([
            Reply::bulk("slave"),
            Reply::bulk(host),
            Reply::Integer(i64::from(port)),
            Reply::bulk(state),
            Reply::Integer(offset as i64),
        ]),
    })
}

const REPLICAOF: Command = Command {
    name: "replicaof",
    since: "5.0.0",
    group: Group::Server,
    arity: Arity::exactly(3),
    keys: Keys::NONE,
    summary: "Makes the server a replica of another one, or a master.",
    syntax: "args=(host-port=(host port:integer) | no-one=(NO ONE))",
    body: Body::Act(replicaof),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Stale, Flag::NoAsyncLoading],
    ..Command::USUAL
};

const SLAVEOF: Command = Command {
    name: "slaveof",
    since: "1.0.0",
    summary: "Makes the server a replica of another one, or a master: the name of REPLICAOF until Redis 5.",
    deprecated: Some(Deprecated { since: "5.0.0", instead: "`REPLICAOF`" }),
    arity: Arity::exactly_or_more(3, 1),
    body: Body::Act(slaveof),
    ..REPLICAOF
};

/// The greatest number of a port.
const PORT_MAX: i64 = 65535;

fn replicaof(host: &mut dyn Host, args: Args) -> Result<Answer> {
    if args.is(1, "no") && args.is(2, "one") {
        return Ok(Answer::ok(Act::Follow(None)));
    }
    let (host, port) = master(host, args)?;
    Ok(Answer::ok(Act::Follow(Some((host, port)))))
}

/// Follows a master, or none, like REPLICAOF. With FORCE, as in Pika, the master's copy takes the place of all data
/// here.
fn slaveof(host: &mut dyn Host, args: Args) -> Result<Answer> {
    if args.len() == 3 {
        return replicaof(host, args);
    }
    if !args.is(3, "force") || args.is(1, "no") && args.is(2, "one") {
        return Err(Error::WrongArity("slaveof".to_owned()));
    }
    let (host, port) = master(host, args)?;
    Ok(Answer::ok(Act::FollowAnew { host, port }))
}

/// The host and the port of the master that is asked for.
fn master(host: &mut dyn Host, args: Args) -> Result<(String, u16)> {
    let port = match args.int(2) {
        Ok(port @ 0..=PORT_MAX) => port as u16,
        _ => return Err(Error::text("ERR Invalid master port")),
    };
    if !host.has_disk() {
        return Err(Error::text("ERR a server with 'engine memory' cannot follow another one"));
    }
    let name = String::from_utf8(args.get(1).to_vec()).map_err(|_| Error::text("ERR Invalid master host"))?;
    Ok((name, port))
}

const REPLCONF: Command = Command {
    name: "replconf",
    since: "3.0.0",
    group: Group::Server,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "An internal command for configuring the replication stream.",
    syntax: "",
    body: Body::Act(replconf),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale, Flag::AllowBusy],
    syscmd: true,
    ..Command::USUAL
};

/// The options that a replica of Redis sends before it asks for the data.
const OF_REDIS: [&str; 5] = ["listening-port", "ip-address", "capa", "rdb-only", "rdb-filter-only"];

/// Bytes of what a replica says of itself at most.
const SAID_BYTES_MAX: usize = 255;

fn replconf(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let option = args.get(1.min(args.len() - 1)).to_ascii_lowercase();
    match &option[..] {
        b"haypile-hello" => {
            let words = host.hello().ok_or(Error::text("ERR this server cannot be followed"))?;
            return Ok(Reply::Array(words.into_iter().map(Reply::bulk).collect()).into());
        }
        b"haypile-follow" | b"haypile-copy" | b"haypile-fetch" | b"haypile-member" if !host.is_in_block() => {
            let words = (1..args.len()).map(|at| args.get(at).to_vec()).collect();
            return Ok(Answer::with(Reply::None, SessionChange::HandOver(words)));
        }
        b"haypile-proxy" if !host.is_in_block() => return proxy(host, args),
        _ => {}
    }
    if args.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let mut said = Vec::new();
    for at in (1..args.len()).step_by(2) {
        if args.is(at, "ack") || args.is(at, "getack") {
            // Only the connection of a replica or of a master means something by it, and those are not read here.
            return Ok(Reply::None.into());
        }
        let Some(option) = OF_REDIS.iter().find(|known| args.is(at, known)) else {
            let option = String::from_utf8_lossy(args.get(at));
            return Err(Error::text(format!("ERR Unrecognized REPLCONF option: {option}")));
        };
        let value = args.get(at + 1);
        match *option {
            "listening-port" | "rdb-only" => drop(args.int(at + 1)?),
            "ip-address" if value.len() > SAID_BYTES_MAX => {
                let length = value.len();
                return Err(Error::text(format!(
                    "ERR REPLCONF ip-address provided by replica instance is too long: {length} bytes"
                )));
            }
            "ip-address" if value.iter().any(|byte| !byte.is_ascii_graphic() || *byte == b',') => {
                return Err(Error::text("ERR REPLCONF ip-address provided by replica instance is no address"));
            }
            "rdb-filter-only" if !value.is_empty() && !value.eq_ignore_ascii_case(b"functions") => {
                return Err(Error::quoting("ERR Unsupported rdb-filter-only option: ", value, ""));
            }
            _ if value.len() > SAID_BYTES_MAX => continue,
            _ => {}
        }
        said.push(format!("{option}={}", String::from_utf8_lossy(value)).into_bytes());
    }
    Ok(Answer::with(Reply::ok(), SessionChange::ReplicaSays(said)))
}

const PSYNC: Command = Command {
    name: "psync",
    since: "2.8.0",
    group: Group::Server,
    arity: Arity::at_least(3),
    keys: Keys::NONE,
    summary: "An internal command used in replication.",
    syntax: "replicationid:string offset:integer",
    complexity: "",
    body: Body::Act(psync),
    flags: &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading, Flag::NoMulti],
    ..Command::USUAL
};

const SYNC: Command = Command {
    name: "sync",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "An internal command used in replication.",
    syntax: "",
    complexity: "",
    body: Body::Act(sync),
    flags: &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading, Flag::NoMulti],
    ..Command::USUAL
};

/// Hands the connection of a Redis that is to follow over to threads, with what it has said by REPLCONF.
fn psync(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    args.int(2)?;
    let words = [b"psync".to_vec(), args.get(1).to_vec(), args.get(2).to_vec()];
    Ok(Answer::with(Reply::None, SessionChange::Synchronize(words.into())))
}

fn sync(_host: &mut dyn Host, _args: Args) -> Result<Answer> {
    Ok(Answer::with(Reply::None, SessionChange::Synchronize(vec![b"sync".to_vec()])))
}

/// Makes the connection that of a client which has come by another member of the group that this server leads:
/// `REPLCONF haypile-proxy group user database protocol name library version no-evict no-touch has-password`.
fn proxy(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let text = |at: usize| String::from_utf8_lossy(args.get(at)).into_owned();
    if args.len() != 12 {
        return Err(Error::Syntax);
    }
    if !host.user().is_unrestricted() {
        return Err(Error::text("NOPERM a member that hands clients on needs a user with all rights"));
    }
    if host.led_group() != Some(text(2)) {
        return Err(Error::text("CLUSTERDOWN this server does not lead the group"));
    }
    let user = host.let_in(args.get(3))?;
    let user = user.ok_or_else(|| Error::text(format!("WRONGPASS the leader has no user '{}'", text(3))))?;
    if !args.is(11, "yes") && !user.is_open() {
        return Err(Error::text("NOAUTH Authentication required."));
    }
    let names = [client_name(args.get(6))?, client_name(args.get(7))?, client_name(args.get(8))?];
    let database = text(4).parse().ok().filter(|index| *index < host.databases()).ok_or(Error::Syntax)?;
    let protocol = if args.is(5, "3") { Protocol::Resp3 } else { Protocol::Resp2 };
    let changes = [
        SessionChange::Login(user),
        SessionChange::Database(database),
        SessionChange::Protocol(protocol),
        SessionChange::Name(names[0].to_vec()),
        SessionChange::Library(Library::Name, names[1].to_vec()),
        SessionChange::Library(Library::Version, names[2].to_vec()),
        SessionChange::NoEvict(args.is(9, "yes")),
        SessionChange::NoTouch(args.is(10, "yes")),
        SessionChange::Proxied,
    ];
    Ok(Answer { reply: Reply::ok(), acts: changes.map(Into::into).into() })
}

const FAILOVER: Command = Command {
    name: "failover",
    since: "6.2.0",
    group: Group::Server,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Hands the part of the master over to one of its replicas.",
    syntax: "[TO target=(host port:integer [FORCE])] [ABORT] [TIMEOUT milliseconds:integer]",
    body: Body::Act(failover),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Stale],
    ..Command::USUAL
};

/// Begins a failover or gives it up. Wrong arguments are told first, as in Redis.
fn failover(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    let (mut target, mut timeout, mut forces) = (None, None, false);
    if args.len() == 2 && args.is(1, "abort") {
        return Ok(Answer::ok(Act::AbortFailover));
    }
    let mut i = 1;
    while i < args.len() {
        let more = args.len() - i - 1;
        if args.is(i, "timeout") && more >= 1 && timeout.is_none() {
            let time_ms = args.int(i + 1)?;
            if time_ms <= 0 {
                return Err(Error::text("ERR FAILOVER timeout must be greater than 0"));
            }
            timeout = Some(Duration::from_millis(time_ms.unsigned_abs()));
            i += 1;
        } else if args.is(i, "to") && more >= 2 && target.is_none() {
            target = Some((String::from_utf8_lossy(args.get(i + 1)).into_owned(), args.int(i + 2)?));
            i += 2;
        } else if args.is(i, "force") && !forces {
            forces = true;
        } else {
            return Err(Error::Syntax);
        }
        i += 1;
    }
    Ok(Answer::ok(Act::Failover(Failover { target, timeout, forces })))
}

const WAIT: Command = Command {
    name: "wait",
    since: "3.0.0",
    group: Group::Generic,
    arity: Arity::exactly(3),
    keys: Keys::NONE,
    summary: "Waits until replicas have what the client has written, and returns how many have.",
    syntax: "numreplicas:integer timeout:integer",
    body: Body::Act(wait),
    flags: &[Flag::Blocking],
    categories: &[Category::Connection],
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    ..Command::USUAL
};

fn wait(host: &mut dyn Host, args: Args) -> Result<Answer> {
    if matches!(host.role(), Role::Replica { .. }) {
        return Err(Error::text(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be \
             writable (which is not the default) writes to replicas are just local and are not propagated.",
        ));
    }
    let (replicas, timeout_ms) = (args.int(1)?, timeout_ms(host, args, 2)?);
    // Nobody waits for no replica, but how many have it is asked for all the same.
    let timeout_ms = if replicas <= 0 { Some(0) } else { timeout_ms };
    let kind = WaitKind::Wait { replicas: usize::try_from(replicas).unwrap_or(0) };
    Ok(Answer::with(Reply::None, Act::Wait(Wait { kind, timeout_ms })))
}

/// A timeout in milliseconds from now on; nothing for 0, which is for ever.
fn timeout_ms(host: &dyn Host, args: Args, i: usize) -> Result<Option<u64>> {
    let not_integer = |_| Error::text("ERR timeout is not an integer or out of range");
    match args.int(i).map_err(not_integer)? {
        ..0 => Err(Error::text("ERR timeout is negative")),
        0 => Ok(None),
        // The end of the wait has to be a time.
        ms if ms > i64::MAX - (host.now_us() / 1000) as i64 => Err(Error::text("ERR timeout is out of range")),
        ms => Ok(Some(ms as u64)),
    }
}

const WAITAOF: Command = Command {
    name: "waitaof",
    since: "7.2.0",
    group: Group::Generic,
    arity: Arity::exactly(4),
    keys: Keys::NONE,
    summary: "Waits until what the client has written is on the disk, here and on replicas.",
    syntax: "numlocal:integer numreplicas:integer timeout:integer",
    body: Body::Act(waitaof),
    flags: &[Flag::Blocking],
    categories: &[Category::Connection],
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    ..Command::USUAL
};

fn waitaof(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let local = match args.int(1)? {
        local @ 0..=1 => local == 1,
        _ => return Err(Error::text("ERR value is out of range, value must between 0 and 1")),
    };
    let out_of_range = || Error::text("ERR value is out of range, must be positive");
    let replicas = args.int(2).ok().and_then(|replicas| usize::try_from(replicas).ok()).ok_or_else(out_of_range)?;
    let timeout_ms = timeout_ms(host, args, 3)?;
    if matches!(host.role(), Role::Replica { .. }) {
        return Err(Error::text(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local and are not \
             propagated.",
        ));
    }
    if local && !host.has_disk() {
        return Err(Error::text("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."));
    }
    // Nothing to wait for, but what it tells about the log is asked for all the same.
    let timeout_ms = if local || replicas > 0 { timeout_ms } else { Some(0) };
    Ok(Answer::with(Reply::None, Act::Wait(Wait { kind: WaitKind::WaitAof { local, replicas }, timeout_ms })))
}
