//! The request of a Redis that wants to follow: PSYNC or SYNC, and what it has said of itself by REPLCONF before.

/// See the file's head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The stream's id, and the bytes of it that the replica has; None if it wants all data.
    pub place: Option<(String, u64)>,
    /// The request is SYNC: no word comes before the data, and the replica may acknowledge nothing.
    pub is_old: bool,
    /// The port that the replica listens on; 0 if it said none.
    pub port: u16,
    /// The address that the replica announces.
    pub address: Option<String>,
    /// The data may come without their length before them.
    pub knows_end: bool,
    /// The stream's id may change where it goes on.
    pub knows_ids: bool,
    /// The replica wants the data and no commands.
    pub only_data: bool,
    /// The replica wants of the data the libraries of functions.
    pub only_functions: bool,
}

impl Asked {
    /// Reads the words of a connection that was handed over; None if they are no such request.
    pub fn parse(words: &[Vec<u8>]) -> Option<Asked> {
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let mut asked = Asked::default();
        let said = match words.first().map(Vec::as_slice) {
            Some(b"sync") => {
                asked.is_old = true;
                &words[1..]
            }
            Some(b"psync") => {
                // The number is that of the next byte, from 1 on; a replica that has nothing sends `? -1`.
                let next = text(words.get(2)?).parse::<i64>().ok()?;
                let had = next.checked_sub(1).and_then(|had| u64::try_from(had).ok());
                asked.place = had.map(|had| (text(&words[1]), had));
                &words[3..]
            }
            _ => return None,
        };
        for said in said {
            let said = text(said);
            match said.split_once('=') {
                Some(("listening-port", port)) => asked.port = port.parse().unwrap_or(0),
                Some(("ip-address", address)) => asked.address = Some(address.to_owned()).filter(|at| !at.is_empty()),
                Some(("capa", "eof")) => asked.knows_end = true,
                Some(("capa", "psync2")) => asked.knows_ids = true,
                Some(("rdb-only", on)) => asked.only_data = on != "0",
                Some(("rdb-filter-only", filter)) => asked.only_functions = filter.eq_ignore_ascii_case("functions"),
                _ => {}
            }
        }
        Some(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Option<Asked> {
        Asked::parse(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn a_request_says_what_the_replica_has_and_what_it_knows() {
        let said = ["listening-port=6380", "ip-address=10.0.0.7", "capa=eof", "capa=psync2", "unknown=1", "capa=x"];
        let words: Vec<&str> = ["psync", "abc", "1001"].into_iter().chain(said).collect();
        let asked = Asked {
            place: Some(("abc".into(), 1000)),
            port: 6380,
            address: Some("10.0.0.7".into()),
            knows_end: true,
            knows_ids: true,
            ..Asked::default()
        };
        assert_eq!(parse(&words), Some(asked));
        assert_eq!(parse(&["psync", "?", "-1"]), Some(Asked::default()));
        assert_eq!(parse(&["psync", "abc", "0"]).unwrap().place, None);
        assert_eq!(parse(&["psync", "abc", "-9223372036854775808"]).unwrap().place, None);
        let old = Asked { is_old: true, only_data: true, only_functions: true, ..Asked::default() };
        assert_eq!(parse(&["sync", "rdb-only=1", "rdb-filter-only=FUNCTIONS"]), Some(old));
        for wrong in [&["psync", "abc"][..], &["psync", "abc", "x"], &["haypile-follow", "1"], &[]] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
