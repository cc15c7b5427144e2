//! The way to a copy of another member's data: a thread that fetches it while the member goes on.

use crate::check;
use crate::datadir;
use crate::raft::peers::address_of;
use crate::raft::{Raft, lock};
use crate::replication::connect::connect_to_haypile;
use crate::replication::fetch::Fetch;
use crate::replication::wire::Incoming;
use haypile_engine::Master;
use haypile_replication::frame::Frame;
use haypile_replication::{Manifest, Request};
use std::io::{self, Error, ErrorKind};
use std::time::{Duration, Instant};

/// The time between looks whether a copy is still wanted.
const LOOK: Duration = Duration::from_millis(200);

/// Fetches a copy of the data of the member at this address; returns term and number of its last entry. The copy is on
/// the disk then, ready to be put in place.
///
/// # Errors
/// The connection broke, or what came cannot be used.
pub fn fetch(raft: &Raft, address: &str) -> io::Result<(u64, u64)> {
    let replication = &*raft.replication;
    let group = lock(&raft.member).as_ref().map(|place| place.group);
    let group = group.ok_or_else(|| Error::other("this server is in no group any more"))?;
    let (host, port) = address_of(address)?;
    let master = Master { host: host.to_owned(), port };
    let dir = replication.engine.settings.config().dir.clone();
    datadir::check_exchange(&dir).map_err(Error::other)?;
    let (_, version) = replication.wanted();
    let (mut remote, _registered) = connect_to_haypile(replication, &master, version)?;
    let words = Request::Copy { group }.words();
    let words: Vec<&[u8]> = std::iter::once(&b"REPLCONF"[..]).chain(words.iter().map(|word| word.as_bytes())).collect();
    remote.send(&words)?;
    remote.flush()?;
    let (stream, read) = remote.into_parts();
    stream.set_read_timeout(Some(LOOK))?;
    let manifest = hear_manifest(raft, &mut Incoming::new(stream.clone(), read))?;
    let (files, bytes) = (manifest.files.len(), manifest.bytes());
    tracing::info!("fetching a copy of the data of {address}: {files} files, {bytes} bytes");
    let since = Instant::now();
    Fetch::new(replication, &master, version, &manifest).run(&|| !raft.inbox.is_closing())?;
    let incoming = datadir::incoming_dir(&dir);
    let end = check::look(&incoming).and_then(|looked| {
        let end = looked.end;
        let is_whole = end.last == manifest.index && end.entry != (0, 0);
        if is_whole { Ok(end) } else { Err(format!("it ends with record {}, not with {}", end.last, manifest.index)) }
    });
    let end = match end {
        Ok(end) => end,
        Err(why) => {
            // No file of the copy is kept for the next attempt.
            std::fs::remove_dir_all(&incoming)?;
            return Err(Error::new(ErrorKind::InvalidData, format!("the copy cannot be used: {why}")));
        }
    };
    tracing::info!("the copy is here after {:.1} s: all through entry {}", since.elapsed().as_secs_f64(), end.entry.1);
    Ok(end.entry)
}

/// Waits for the list of the copy's files.
fn hear_manifest(raft: &Raft, incoming: &mut Incoming) -> io::Result<Manifest> {
    let mut heard = Instant::now();
    loop {
        while let Some(frame) = incoming.next()? {
            heard = Instant::now();
            match frame {
                Frame::Copy { manifest, .. } => {
                    return Manifest::decode(manifest).map_err(|error| Error::new(ErrorKind::InvalidData, error));
                }
                Frame::Heartbeat { .. } => {}
                Frame::Refused(why) => return Err(Error::other(format!("it says: {why}"))),
                other => return Err(Error::new(ErrorKind::InvalidData, format!("a frame of kind {}", other.kind()))),
            }
        }
        if raft.inbox.is_closing() {
            return Err(Error::new(ErrorKind::Interrupted, "the server stops"));
        }
        if !incoming.receive()? && heard.elapsed() > raft.replication.timeout() {
            return Err(Error::new(ErrorKind::TimedOut, "it does not answer"));
        }
    }
}
