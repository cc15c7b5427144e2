//! The commands that a record's statements are: the very bytes that a Redis is sent, whoever it is and whenever.

use haypile_log::{Effect, Index, Kind, effects};
use haypile_resp::write;
use haypile_store::{NOTE, UNSAID};
use std::io::{self, Error, ErrorKind};

/// A place in the stream of commands: behind all that a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub index: Index,
    /// Bytes of the stream up to here.
    pub offset: u64,
    /// The database that the commands are about, if the stream has said one.
    pub database: Option<u32>,
}

impl Point {
    /// Goes on behind the next record, and adds what it says to `out`: of several statements a block, which takes
    /// effect as a whole there, too.
    ///
    /// # Errors
    /// The record cannot be read, or is not the next one.
    pub fn pass(&mut self, index: Index, kind: Kind, body: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if index != self.index.next() {
            return Err(Error::other(format!("record {index} does not follow record {}", self.index)));
        }
        self.index = index;
        if kind != Kind::Effects {
            return Ok(());
        }
        let (from, mut count) = (out.len(), 0);
        for (database, text) in statements(body) {
            if database.is_none() && text == UNSAID {
                return Err(Error::new(ErrorKind::NotFound, format!("record {index} says nothing of what it does")));
            }
            count += 1;
        }
        if count > 1 {
            add(out, &[b"MULTI"]);
        }
        let mut statements = statements(body);
        for (database, text) in &mut statements {
            if let Some(database) = database.filter(|database| self.database != Some(*database)) {
                add(out, &[b"SELECT", database.to_string().as_bytes()]);
                self.database = Some(database);
            }
            out.extend_from_slice(text);
        }
        if count > 1 {
            add(out, &[b"EXEC"]);
        }
        self.offset += (out.len() - from) as u64;
        Ok(())
    }
}

/// Returns whether the error is that of a record which says nothing of what it does.
pub fn is_unsaid(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

/// Returns the statements of a body, each with its database. A body that is damaged has been refused before.
fn statements(body: &[u8]) -> impl Iterator<Item = (Option<u32>, &[u8])> {
    effects(body).filter_map(|effect| match effect {
        // Notes are for others.
        Ok(Effect::Statement { database, text }) if text.first() != Some(&NOTE) => Some((database, text)),
        _ => None,
    })
}

fn add(out: &mut Vec<u8>, words: &[&[u8]]) {
    write::array_len(out, words.len());
    words.iter().for_each(|word| write::bulk(out, word));
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::Body;

    fn body(statements: &[(Option<u32>, &str)]) -> Body {
        let mut body = Body::new();
        for (database, text) in statements {
            body.put(&[b"row"], &[b"value"]);
            body.statement(*database, &[text.as_bytes()]);
        }
        body
    }

    #[test]
    fn records_become_commands_and_blocks() {
        let (mut at, mut out) = (Point { index: Index(7), offset: 100, database: None }, Vec::new());
        let mut pass = |at: &mut Point, statements: &[(Option<u32>, &str)]| {
            out.clear();
            let before = at.offset;
            at.pass(at.index.next(), Kind::Effects, body(statements).bytes(), &mut out).unwrap();
            assert_eq!(at.offset - before, out.len() as u64);
            String::from_utf8(out.clone()).unwrap()
        };
        let select = |database: &str| format!("*2\r\n$6\r\nSELECT\r\n$1\r\n{database}\r\n");
        let (multi, exec) = ("*1\r\n$5\r\nMULTI\r\n", "*1\r\n$4\r\nEXEC\r\n");
        assert_eq!(pass(&mut at, &[]), "");
        assert_eq!(pass(&mut at, &[(None, "<ping>")]), "<ping>", "it is about no database");
        assert_eq!(pass(&mut at, &[(Some(0), "<a>")]), format!("{}<a>", select("0")));
        assert_eq!(pass(&mut at, &[(Some(0), "<b>")]), "<b>");
        let both = format!("{multi}<c>{}<d>{}<e>{exec}", select("3"), select("0"));
        assert_eq!(pass(&mut at, &[(Some(0), "<c>"), (Some(3), "<d>"), (Some(0), "<e>")]), both);
        assert_eq!((at.index, at.database), (Index(12), Some(0)));
        let lease = at.pass(Index(13), Kind::Lease, b"\x07\x01\x01x", &mut out);
        assert!(lease.is_ok() && at.index == Index(13), "the body of a lease is none of effects");
        assert!(at.pass(Index(15), Kind::Effects, b"", &mut out).is_err(), "a record is missing");
        let unsaid = at.pass(Index(14), Kind::Effects, body(&[(Some(0), "<x>"), (None, "")]).bytes(), &mut out);
        assert!(is_unsaid(&unsaid.unwrap_err()));
    }
}
