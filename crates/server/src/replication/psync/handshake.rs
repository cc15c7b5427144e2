//! The first words to a Redis that is to be followed, and its answer: it goes on where the data are, or sends all.

use super::invalid;
use crate::remote::Remote;
use crate::replication::attempt::Attempt;
use haypile_replication::psync::{Answer, PsyncError};
use haypile_store::Origin;
use std::io::{self, Error};

/// Asks the master for what comes behind the origin, or for all.
///
/// # Errors
/// The connection broke, or the master does not serve replicas now.
pub fn ask(attempt: &Attempt<'_>, remote: &mut Remote, origin: Option<&Origin>) -> io::Result<Answer> {
    let config = attempt.replication.engine.settings.config();
    let port = attempt.announced_port(&config).to_string();
    // A Redis of today answers all of these; an old one may not know some.
    remote.call(&[b"REPLCONF", b"listening-port", port.as_bytes()])?;
    if !config.replication.announce_ip.is_empty() {
        remote.call(&[b"REPLCONF", b"ip-address", config.replication.announce_ip.as_bytes()])?;
    }
    remote.call(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
    let (stream, next) = match origin {
        Some(origin) => (&origin.stream[..], (origin.offset + 1).to_string()),
        None => (&b"?"[..], "-1".to_owned()),
    };
    remote.send(&[b"PSYNC", stream, next.as_bytes()])?;
    remote.flush()?;
    // While the master prepares, it sends empty lines.
    let line = remote.receive_line()?;
    Answer::parse(&line).map_err(|why| match why {
        PsyncError::Refused(words) => Error::other(format!("it answers PSYNC with {words}")),
        PsyncError::NoText => invalid("its answer to PSYNC is no text"),
        PsyncError::Unknown => invalid("its answer to PSYNC is none"),
    })
}
