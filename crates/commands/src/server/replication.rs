//! The commands about copies of the data: ROLE, REPLICAOF, FAILOVER, WAIT and WAITAOF.
//!
//! There is no replication yet: this node is a master without replicas, and says so. WAITAOF has a node of its own to
//! wait for: the log, whose progress the engine knows. How a reply is held back is the engine's, behind [`Act::Wait`].

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host, Wait, WaitKind};
use crate::table::{Arity, Body, Category, Command, Deprecated, Flag, Group, Keys};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[ROLE, REPLICAOF, SLAVEOF, FAILOVER, WAIT, WAITAOF];

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

/// Answers: a master, the offset of its replication, which has not begun, and its replicas.
fn role(_host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::Array(vec![Reply::bulk("master"), Reply::Integer(0), Reply::Array(Vec::new())]))
}

const REPLICAOF: Command = Command {
    name: "replicaof",
    since: "5.0.0",
    group: Group::Server,
    arity: Arity::exactly(3),
    keys: Keys::NONE,
    summary: "Makes the server a replica of another one, or a master.",
    syntax: "args=(host-port=(host port:integer) | no-one=(NO ONE))",
    body: Body::Host(replicaof),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Stale, Flag::NoAsyncLoading],
    ..Command::USUAL
};

const SLAVEOF: Command = Command {
    name: "slaveof",
    since: "1.0.0",
    summary: "Makes the server a replica of another one, or a master: the name of REPLICAOF until Redis 5.",
    deprecated: Some(Deprecated { since: "5.0.0", instead: "`REPLICAOF`" }),
    ..REPLICAOF
};

/// The greatest number of a port.
const PORT_MAX: i64 = 65535;

fn replicaof(_host: &mut dyn Host, args: Args) -> Result<Reply> {
    if args.is(1, "no") && args.is(2, "one") {
        // This node is a master already.
        return Ok(Reply::ok());
    }
    match args.int(2) {
        Ok(0..=PORT_MAX) => Err(Error::text("ERR Haypile cannot be a replica yet")),
        _ => Err(Error::text("ERR Invalid master port")),
    }
}

const FAILOVER: Command = Command {
    name: "failover",
    since: "6.2.0",
    group: Group::Server,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Hands the part of the master over to one of its replicas.",
    syntax: "[TO target=(host port:integer [FORCE])] [ABORT] [TIMEOUT milliseconds:integer]",
    body: Body::Host(failover),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Stale],
    ..Command::USUAL
};

/// Refuses a failover, because there is no replica. Wrong arguments are told first, as in Redis.
fn failover(_host: &mut dyn Host, args: Args) -> Result<Reply> {
    let (mut target, mut timeout, mut force) = (false, false, false);
    if args.len() == 2 && args.is(1, "abort") {
        return Err(Error::text("ERR No failover in progress."));
    }
    let mut i = 1;
    while i < args.len() {
        let more = args.len() - i - 1;
        if args.is(i, "timeout") && more >= 1 && !timeout {
            if args.int(i + 1)? <= 0 {
                return Err(Error::text("ERR FAILOVER timeout must be greater than 0"));
            }
            timeout = true;
            i += 1;
        } else if args.is(i, "to") && more >= 2 && !target {
            args.int(i + 2)?;
            target = true;
            i += 2;
        } else if args.is(i, "force") && !force {
            force = true;
        } else {
            return Err(Error::Syntax);
        }
        i += 1;
    }
    Err(Error::text("ERR FAILOVER requires connected replicas."))
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
    let (replicas, timeout_ms) = (args.int(1)?, timeout_ms(host, args, 2)?);
    if replicas <= 0 {
        return Ok(Reply::Integer(0).into());
    }
    Ok(Answer::with(Reply::None, Act::Wait(Wait { kind: WaitKind::Wait, timeout_ms })))
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
    let replicas = args.int(2).ok().filter(|replicas| *replicas >= 0).ok_or_else(out_of_range)? > 0;
    let timeout_ms = timeout_ms(host, args, 3)?;
    if local && !host.has_disk() {
        return Err(Error::text("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."));
    }
    // Nothing to wait for, but what it tells about the log is asked for all the same.
    let timeout_ms = if local || replicas { timeout_ms } else { Some(0) };
    Ok(Answer::with(Reply::None, Act::Wait(Wait { kind: WaitKind::WaitAof { replicas }, timeout_ms })))
}
