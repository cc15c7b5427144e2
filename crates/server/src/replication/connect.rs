//! The first words of a connection to a master, which are commands: see who is there, and whether it can be followed.

use crate::remote::{Remote, error_in};
use crate::replication::state::{Registered, Replication};
use crate::tls::not_configured;
use haypile_engine::Master;
use haypile_replication::{Hello, request};
use haypile_resp::Reply;
use std::io::{self, Error, ErrorKind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The longest time to connect, and of each answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The time between looks whether the connection is still wanted, while nobody answers.
const LOOK: Duration = Duration::from_millis(100);

/// The server at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    Haypile,
    Redis,
}

/// Connects to a master, as a user that may replicate, and sees whether it can be followed. The connection ends when
/// the master is another one.
///
/// # Errors
/// Nobody answers, or somebody else.
pub fn connect<'r>(
    replication: &'r Replication,
    master: &Master,
    version: u64,
) -> io::Result<(Remote, Registered<'r>, Other)> {
    let config = replication.engine.settings.config();
    let mut remote = reach(replication, master, || replication.is_wanted(version))?;
    let registered = replication.register(version, remote.handle())?;
    let answer = remote.call(&[b"REPLCONF", request::HELLO.as_bytes()])?;
    if is_of_redis(&answer) {
        if !replication.engine.group.is_member() {
            replication.set_upstream_nodes(Vec::new());
        }
        return Ok((remote, registered, Other::Redis));
    }
    let hello = match answer {
        Reply::Array(words) => {
            let words: Option<Vec<&[u8]>> = words.iter().map(bulk).collect();
            words.and_then(|words| Hello::parse(&words))
        }
        reply => match error_in(&reply) {
            Some(why) => return Err(Error::other(format!("it answers: {why}"))),
            None => None,
        },
    };
    let hello =
        hello.ok_or_else(|| Error::new(ErrorKind::InvalidData, "it answers as no server that can be followed"))?;
    if let Some(why) = hello.objection(replication.node, config.databases) {
        return Err(Error::new(ErrorKind::Unsupported, format!("it cannot be followed: {why}")));
    }
    // Members of a group copy each other's data by turns.
    if !replication.engine.group.is_member() {
        replication.set_upstream_nodes(hello.nodes);
    }
    Ok((remote, registered, Other::Haypile))
}

/// Asks a server at the other end whether it is a Redis.
///
/// # Errors
/// The connection broke.
pub fn is_redis(remote: &mut Remote) -> io::Result<bool> {
    remote.call(&[b"REPLCONF", request::HELLO.as_bytes()]).map(|answer| is_of_redis(&answer))
}

/// Connects as `connect` does, to a server of which data were copied before or shall be.
///
/// # Errors
/// As of `connect`, or a Redis answers.
pub fn connect_to_haypile<'r>(
    replication: &'r Replication,
    master: &Master,
    version: u64,
) -> io::Result<(Remote, Registered<'r>)> {
    match connect(replication, master, version)? {
        (remote, registered, Other::Haypile) => Ok((remote, registered)),
        (_, _, Other::Redis) => Err(Error::new(ErrorKind::Unsupported, "it is a Redis")),
    }
}

/// Connects to another server, as a user that may replicate, as long as `goes_on` says so.
///
/// # Errors
/// Nobody answers, or the password is refused.
pub fn reach(replication: &Replication, other: &Master, goes_on: impl Fn() -> bool) -> io::Result<Remote> {
    let mut remote = connect_aside(replication, other, goes_on)?;
    let config = replication.engine.settings.config();
    remote.log_in(&config)?;
    Ok(remote)
}

/// Connects by a thread of its own: neither the system's resolver nor its connecting can be ended, and a stop of the
/// server, or a change of the master, waits for nobody. A thread that is not waited for ends by itself.
fn connect_aside(replication: &Replication, other: &Master, goes_on: impl Fn() -> bool) -> io::Result<Remote> {
    let timeout = replication.timeout().min(ANSWER_MAX);
    let (tell, told) = channel();
    let Master { host, port } = other.clone();
    let config = replication.engine.settings.config();
    let is_member = replication.engine.group.is_member();
    let is_encrypted = if is_member { config.tls.cluster } else { config.tls.replication };
    let tls = if is_encrypted { Some(replication.tls.client().ok_or_else(not_configured)?) } else { None };
    std::thread::Builder::new().name("connect".into()).spawn(move || {
        // The connection is dropped if nobody wants it any more.
        let source = &config.replication.source_address;
        let _ = tell.send(Remote::connect_from(source, &host, port, timeout, tls));
    })?;
    while goes_on() {
        match told.recv_timeout(LOOK) {
            Ok(reached) => return reached,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Error::other("the thread that connects has panicked")),
        }
    }
    Err(Error::new(ErrorKind::Interrupted, "the master is another one by now"))
}

fn bulk(reply: &Reply) -> Option<&[u8]> {
    match reply {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}

/// Returns whether an error says that the other end is a Redis: that it does not know the option of this server's own.
fn is_of_redis(reply: &Reply) -> bool {
    error_in(reply).is_some_and(|why| why.contains("Unrecognized REPLCONF") || why.contains("syntax error"))
}
