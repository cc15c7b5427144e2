//! `haypile log --follow --json`: prints the changes of a server as they come, one record on a line.
//!
//! Where the connection breaks it goes on behind the last record that was printed, as soon as the server is there
//! again. So each record is printed at least once, and in its order.

use crate::remote::{Remote, error_in};
use haypile_config::cli::{Follow, Server};
use haypile_resp::Reply;
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// The longest wait for a message. A server speaks every second, and a long record takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Errors of a server that serves this in a while: it loads, has lost its master, or has not all records yet.
const LATER: [&str; 4] = ["LOADING", "MASTERDOWN", "NOTYET", "BUSY"];

/// The pause before the server is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// The end of an attempt.
enum Ended {
    /// The reader of what is printed has gone.
    Unread,
    /// The server does not serve this, however often it is asked.
    Refused(String),
    /// The connection has broken, or was never there.
    Broken(String),
}

/// Runs the subcommand; ends where it is refused, or nobody reads what is printed.
///
/// # Errors
/// A text for people.
pub fn run(what: &Follow, out: &mut impl Write) -> Result<(), String> {
    let (mut from, mut history) = (what.from.clone(), what.history.clone());
    let mut said = String::new();
    loop {
        match attempt(what, &mut from, &mut history, out) {
            Ended::Unread => return Ok(()),
            Ended::Refused(why) => return Err(why),
            Ended::Broken(why) if what.once => return Err(why),
            Ended::Broken(why) => {
                if why != said {
                    eprintln!("{why} It is tried again.");
                    said = why;
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}

fn attempt(what: &Follow, from: &mut String, history: &mut Option<String>, out: &mut impl Write) -> Ended {
    let Server { host, port, .. } = &what.server;
    let named = format!("{host}:{port}");
    let broken = |error: std::io::Error| Ended::Broken(format!("The connection to {named} has ended: {error}."));
    let mut remote = match Remote::connect_to(&what.server, PATIENCE) {
        Ok(Ok(remote)) => remote,
        Ok(Err(error)) => return Ended::Broken(format!("The server {named} cannot be reached: {error}.")),
        Err(why) => return Ended::Refused(why),
    };
    if let Err(why) = remote.log_in_as(&what.server) {
        // An answer begins with its code; the connection may have broken as well.
        let is_answer = why.split(' ').next().is_some_and(|code| code.bytes().all(|byte| byte.is_ascii_uppercase()));
        return if is_answer { refused(&named, &why) } else { Ended::Broken(format!("{named}: {why}.")) };
    }
    let words = request(what, from, history.as_deref());
    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    if let Err(error) = remote.send(&words).and_then(|()| remote.flush()) {
        return broken(error);
    }
    loop {
        let (kind, json) = match remote.receive() {
            Ok(Reply::Array(parts)) => match &parts[..] {
                [Reply::Bulk(kind), Reply::Bulk(json)] => (kind.to_vec(), json.to_vec()),
                _ => return Ended::Refused(format!("The server {named} says what this version does not know.")),
            },
            Ok(reply) => match error_in(&reply) {
                Some(why) => return refused(&named, &why),
                None => return Ended::Refused(format!("The server {named} says what this version does not know.")),
            },
            Err(error) => return broken(error),
        };
        if kind != b"heartbeat" {
            let printed = out.write_all(&json).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
            match printed {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ended::Unread,
                Err(error) => return Ended::Refused(error.to_string()),
            }
        }
        // Only now: what was not printed is asked for again.
        let Ok(place) = serde_json::from_slice::<serde_json::Value>(&json) else {
            return Ended::Refused(format!("The server {named} sends what is no JSON."));
        };
        if let Some(index) = place["index"].as_u64() {
            *from = index.to_string();
        }
        if let Some(named) = place["history"].as_str() {
            *history = Some(named.to_owned());
        }
    }
}

/// Says what becomes of an error that a server has answered.
fn refused(named: &str, why: &str) -> Ended {
    match LATER.iter().any(|word| why.starts_with(word)) {
        true => Ended::Broken(format!("The server {named} is not ready: {why}.")),
        false => Ended::Refused(format!("The server {named} refuses: {why}")),
    }
}

fn request(what: &Follow, from: &str, history: Option<&str>) -> Vec<String> {
    let mut words = vec!["CHANGES.FOLLOW".to_owned(), from.to_owned()];
    let mut add = |word: &str, value: &str| words.extend([word.to_owned(), value.to_owned()]);
    history.into_iter().for_each(|history| add("HISTORY", history));
    what.database.into_iter().for_each(|database| add("DB", &database.to_string()));
    what.patterns.iter().for_each(|pattern| add("MATCH", pattern));
    if what.before {
        words.push("BEFORE".into());
    }
    words
}
