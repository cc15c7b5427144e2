//! The words of a Redis to those that follow it before its commands: its answer to PSYNC, and where its data end.
//!
//! Redis's own protocol, as `syncCommand` and `rdbSaveToSlavesSockets` of its replication.c speak it since 4.0. What a
//! master says is checked, not trusted.

use std::fmt;

/// Bytes of the name of a Redis's stream, which it calls its replication ID.
pub const STREAM_BYTES: usize = 40;

/// Bytes of the mark behind data whose length is not told.
pub const MARK_BYTES: usize = 40;

/// The longest line that announces data.
pub const LINE_BYTES_MAX: usize = 128;

/// A master's answer to PSYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The commands behind the asked offset follow; the stream may have another name from here on.
    Continue { stream: Option<[u8; STREAM_BYTES]> },
    /// All data follow, of this moment, and then the commands behind it.
    Load { stream: [u8; STREAM_BYTES], offset: u64 },
}

/// The end of a master's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The data are so many bytes long.
    Length(u64),
    /// The data end with this mark, and nothing comes behind it before the master is told that all has come.
    Mark([u8; MARK_BYTES]),
}

/// A judgement of bytes that have been received, and not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The first bytes are data, as many as this says; zero where more bytes have to tell.
    Data(usize),
    /// The data have ended, and so many bytes of a mark are to be left out.
    Ended { mark: usize },
}

/// The reason why something that a master says cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PsyncError {
    /// The master says itself that it cannot do what it was asked, in these words.
    Refused(String),
    /// The text is missing that has to be there.
    NoText,
    /// The master's words are none of those that are known.
    Unknown,
}

impl fmt::Display for PsyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(words) => write!(f, "it answers {words}"),
            Self::NoText => f.write_str("its answer is no text"),
            Self::Unknown => f.write_str("its answer is none"),
        }
    }
}

impl std::error::Error for PsyncError {}

/// The greatest offset of a stream that is believed: Redis counts with 63 bits, and never comes so far.
const OFFSET_MAX: u64 = 1 << 62;

impl Answer {
    /// Reads an answer to PSYNC, a line without its end.
    ///
    /// # Errors
    /// The master refuses, or it is no answer.
    pub fn parse(line: &[u8]) -> Result<Answer, PsyncError> {
        let text = std::str::from_utf8(line).map_err(|_| PsyncError::NoText)?;
        let mut words = text.split_ascii_whitespace();
        let answer = match words.next() {
            Some("+CONTINUE") => match words.next() {
                None => Some(Answer::Continue { stream: None }),
                Some(stream) => stream_of(stream).map(|stream| Answer::Continue { stream: Some(stream) }),
            },
            Some("+FULLRESYNC") => {
                let stream = words.next().and_then(stream_of);
                let offset = words.next().and_then(|word| word.parse().ok()).filter(|offset| *offset <= OFFSET_MAX);
                stream.zip(offset).map(|(stream, offset)| Answer::Load { stream, offset })
            }
            Some(word) if word.starts_with('-') => return Err(PsyncError::Refused(text.to_owned())),
            _ => None,
        };
        answer.ok_or(PsyncError::Unknown)
    }
}

fn stream_of(word: &str) -> Option<[u8; STREAM_BYTES]> {
    word.as_bytes().try_into().ok().filter(|_| word.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

impl End {
    /// Reads the line that announces data, without its end.
    ///
    /// # Errors
    /// The master cannot send them, or announces none.
    pub fn parse(line: &[u8]) -> Result<End, PsyncError> {
        let text = line.strip_prefix(b"$").ok_or_else(|| match line.first() {
            Some(b'-') => PsyncError::Refused(String::from_utf8_lossy(line).into_owned()),
            _ => PsyncError::Unknown,
        })?;
        let end = match text.strip_prefix(b"EOF:") {
            Some(mark) => mark.try_into().ok().map(End::Mark),
            None => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).map(End::Length),
        };
        end.ok_or(PsyncError::Unknown)
    }

    /// Tells what `there` is, the bytes behind the `read` bytes of data that were read.
    pub fn look(&self, read: u64, there: &[u8]) -> Known {
        match self {
            End::Length(length) if *length <= read => Known::Ended { mark: 0 },
            End::Length(length) => {
                Known::Data(usize::try_from(length - read).map_or(there.len(), |left| left.min(there.len())))
            }
            End::Mark(mark) if there == mark => Known::Ended { mark: MARK_BYTES },
            End::Mark(mark) if there.ends_with(mark) => Known::Data(there.len() - MARK_BYTES),
            // The last bytes may be the beginning of the mark.
            End::Mark(_) => Known::Data(there.len().saturating_sub(MARK_BYTES - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart_and_lies_are_none() {
        let name = "0123456789abcdef0123456789abcdef01234567";
        let stream: [u8; STREAM_BYTES] = name.as_bytes().try_into().unwrap();
        let parse = |text: &str| Answer::parse(text.as_bytes());
        assert_eq!(parse("+CONTINUE"), Ok(Answer::Continue { stream: None }));
        assert_eq!(parse(&format!("+CONTINUE {name}")), Ok(Answer::Continue { stream: Some(stream) }));
        assert_eq!(parse(&format!("+FULLRESYNC {name} 77")), Ok(Answer::Load { stream, offset: 77 }));
        for wrong in ["+CONTINUE x", "+FULLRESYNC", "+FULLRESYNC short 1", "+OK", "", "$12", "HTTP/1.1 400"] {
            assert_eq!(parse(wrong), Err(PsyncError::Unknown), "{wrong}");
        }
        let too_far = format!("+FULLRESYNC {name} {}", u64::MAX);
        for wrong in [format!("+FULLRESYNC {name}"), format!("+FULLRESYNC {name} -1"), too_far] {
            assert_eq!(parse(&wrong), Err(PsyncError::Unknown), "{wrong}");
        }
        let told = parse("-NOMASTERLINK Can't SYNC while not connected with my master").unwrap_err();
        assert!(told.to_string().contains("NOMASTERLINK"), "{told}");
        assert_eq!(Answer::parse(b"+\xff\xfe"), Err(PsyncError::NoText));
    }

    #[test]
    fn data_are_announced_by_a_length_or_a_mark() {
        let mark = *b"abcdefghijabcdefghijabcdefghijabcdefghij";
        assert_eq!(End::parse(b"$0"), Ok(End::Length(0)));
        assert_eq!(End::parse(b"$18446744073709551615"), Ok(End::Length(u64::MAX)));
        assert_eq!(End::parse(&[&b"$EOF:"[..], &mark].concat()), Ok(End::Mark(mark)));
        for wrong in ["hello", "$", "$EOF:short", "$-1", "$EOF:", "$18446744073709551616", ""] {
            assert_eq!(End::parse(wrong.as_bytes()), Err(PsyncError::Unknown), "{wrong}");
        }
        assert_eq!(End::parse(b"-ERR no disk"), Err(PsyncError::Refused("-ERR no disk".to_owned())));
    }

    #[test]
    fn a_mark_is_no_data_even_where_it_comes_in_parts() {
        let mark = *b"abcdefghijabcdefghijabcdefghijabcdefghij";
        let end = End::Mark(mark);
        assert_eq!(end.look(0, b"data"), Known::Data(0));
        assert_eq!(end.look(0, &[7; 50]), Known::Data(11));
        assert_eq!(end.look(11, &[&[7; 39][..], &mark].concat()), Known::Data(39));
        assert_eq!(end.look(50, &mark), Known::Ended { mark: MARK_BYTES });
        assert_eq!(End::Length(9).look(5, b"12345"), Known::Data(4));
        assert_eq!(End::Length(9).look(9, b"5"), Known::Ended { mark: 0 });
    }
}
