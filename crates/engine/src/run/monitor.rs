//! MONITOR: the line that shows a command, and its way to the clients that asked for it.

use crate::clients::inbox::Notice;
use crate::clients::pubsub::Payload;
use crate::clients::session::Session;
use crate::run::engine::Engine;
use haypile_commands::{Body, Entry, Flag, Selects, redact};
use haypile_resp::{Args, number};
use std::time::{SystemTime, UNIX_EPOCH};

/// Whether clients in MONITOR see a command. Redis does not show administration, and what says so; it shows scripts,
/// whose flag only says that they are shown by themselves.
pub(crate) fn is_shown(entry: &Entry) -> bool {
    let is_script = matches!(entry.command.body, Body::Script(_));
    !entry.flags.has(Flag::Admin) && (!entry.flags.has(Flag::SkipMonitor) || is_script)
}

/// The database that a client is in after a command: Redis shows that one.
pub(crate) fn database_after(engine: &Engine, entry: &Entry, args: Args<'_>, database: u32) -> u32 {
    match entry.command.selects {
        Some(Selects::Argument(at)) => {
            let chosen = number::parse_i64(args.get(at)).and_then(|index| u32::try_from(index).ok());
            chosen.filter(|&index| index < engine.databases).unwrap_or(database)
        }
        Some(Selects::First) => 0,
        None => database,
    }
}

/// Shows a command to all clients in MONITOR.
pub(crate) fn show(engine: &Engine, session: &Session, database: u32, entry: &Entry, args: Args<'_>) {
    if !is_shown(entry) {
        return;
    }
    let peer = &session.client.peer;
    let unix = if peer.is_unix { "unix:" } else { "" };
    let address = if peer.is_unix { peer.address.trim_end_matches(":0") } else { &peer.address };
    send(engine, line(database, &format!("{unix}{address}"), entry, args));
}

/// Makes the line of a command that `who` runs: a client's address, or the word `lua`.
pub(crate) fn line(database: u32, who: &str, entry: &Entry, args: Args<'_>) -> Vec<u8> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let head = format!("+{}.{:06} [{database} {who}]", since.as_secs(), since.subsec_micros());
    let mut line = head.into_bytes();
    for arg in redact::shown(entry, args) {
        line.push(b' ');
        quote(arg, &mut line);
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// Sends a line to all clients in MONITOR.
pub(crate) fn send(engine: &Engine, line: Vec<u8>) {
    let line = Payload::new(line, &engine.client_memory);
    for worker in 0..engine.workers() {
        if engine.monitors_of(worker) > 0 {
            engine.notify(worker, Notice::Line(line.clone()));
        }
    }
}

/// Writes bytes in double quotes, with the escapes that Redis uses.
fn quote(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            7 => out.extend(b"\\a"),
            8 => out.extend(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    #[test]
    fn arguments_are_quoted_as_redis_does() {
        let mut out = Vec::new();
        super::quote(b"a\"b\\c\r\n\t\x07\x08\x00\xff", &mut out);
        assert_eq!(out, br#""a\"b\\c\r\n\t\a\b\x00\xff""#);
    }
}
