//! The first words to a Redis that is to be followed, and its answer: it goes on where the data are, or sends all.

use super::invalid;
use crate::remote::Remote;
use crate::replication::attempt::Attempt;
use haypile_store::{Origin, STREAM_BYTES};
use std::io::{self, Error};

/// A master's answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The commands behind the origin follow; the stream may have another name from here on.
    Continue { stream: Option<[u8; STREAM_BYTES]> },
    /// All data follow, of this moment, and then the commands behind it.
    Load { origin: Origin },
}

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
    parse(&line)
}

fn parse(line: &[u8]) -> io::Result<Answer> {
    let text = std::str::from_utf8(line).map_err(|_| invalid("its answer to PSYNC is no text"))?;
    let mut words = text.split_ascii_whitespace();
    let answer = match words.next() {
        Some("+CONTINUE") => match words.next() {
            None => Some(Answer::Continue { stream: None }),
            Some(stream) => stream_of(stream).map(|stream| Answer::Continue { stream: Some(stream) }),
        },
        Some("+FULLRESYNC") => {
            let (stream, offset) = (words.next().and_then(stream_of), words.next().and_then(|word| word.parse().ok()));
            stream.zip(offset).map(|(stream, offset)| Answer::Load { origin: Origin { stream, offset, database: 0 } })
        }
        Some(word) if word.starts_with('-') => return Err(Error::other(format!("it answers PSYNC with {text}"))),
        _ => None,
    };
    answer.ok_or_else(|| invalid("its answer to PSYNC is none"))
}

fn stream_of(word: &str) -> Option<[u8; STREAM_BYTES]> {
    word.as_bytes().try_into().ok().filter(|_| word.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart_and_lies_are_none() {
        let name = "0123456789abcdef0123456789abcdef01234567";
        let stream: [u8; STREAM_BYTES] = name.as_bytes().try_into().unwrap();
        assert_eq!(parse(b"+CONTINUE").unwrap(), Answer::Continue { stream: None });
        assert_eq!(parse(format!("+CONTINUE {name}").as_bytes()).unwrap(), Answer::Continue { stream: Some(stream) });
        let origin = Origin { stream, offset: 77, database: 0 };
        assert_eq!(parse(format!("+FULLRESYNC {name} 77").as_bytes()).unwrap(), Answer::Load { origin });
        for wrong in ["+CONTINUE x", "+FULLRESYNC", "+FULLRESYNC short 1", "+OK", "", "$12", "HTTP/1.1 400"] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        for wrong in [format!("+FULLRESYNC {name}"), format!("+FULLRESYNC {name} -1")] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let told = parse(b"-NOMASTERLINK Can't SYNC while not connected with my master").unwrap_err();
        assert!(told.to_string().contains("NOMASTERLINK"), "{told}");
        assert!(parse(b"+\xff\xfe").is_err());
    }
}
