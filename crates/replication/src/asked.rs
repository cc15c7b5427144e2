//! The words of a Redis that follows: its request, PSYNC or SYNC, with what it has said of itself by REPLCONF before,
//! and how far it has come.

/// The request of a Redis that wants to follow.
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
    /// Returns the commands in which a server asks its own master in the place of this replica, which connects from
    /// `host`: what the replica is first, and the request last.
    pub fn commands(&self, host: &str) -> Vec<Vec<String>> {
        let replconf = |words: [&str; 2]| ["REPLCONF", words[0], words[1]].map(str::to_owned).to_vec();
        let (port, address) = (self.port.to_string(), self.address.as_deref().unwrap_or(host));
        let mut commands = vec![replconf(["listening-port", &port]), replconf(["ip-address", address])];
        let flags = [
            (self.knows_end, ["capa", "eof"]),
            (self.knows_ids, ["capa", "psync2"]),
            (self.only_data, ["rdb-only", "1"]),
            (self.only_functions, ["rdb-filter-only", "functions"]),
        ];
        commands.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, words)| replconf(words)));
        commands.push(match &self.place {
            _ if self.is_old => vec!["SYNC".to_owned()],
            Some((id, had)) => vec!["PSYNC".to_owned(), id.clone(), (had + 1).to_string()],
            None => ["PSYNC", "?", "-1"].map(str::to_owned).into(),
        });
        commands
    }
}

/// A number of bytes was to come, and something else has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoNumber;

/// Returns how many bytes of the stream the replica has, where these words of its acknowledge some.
///
/// # Errors
/// The words acknowledge what is no number.
pub fn acknowledged(words: &[&[u8]]) -> Result<Option<u64>, NoNumber> {
    match words {
        [name, option, has, ..] if name.eq_ignore_ascii_case(b"replconf") && option.eq_ignore_ascii_case(b"ack") => {
            let has = std::str::from_utf8(has).ok().and_then(|has| has.parse().ok());
            has.map(Some).ok_or(NoNumber)
        }
        _ => Ok(None),
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

    #[test]
    fn a_request_goes_on_to_the_master_as_it_came() {
        let said = |words: &[&str]| parse(words).expect("it is a request").commands("10.0.0.9");
        let joined = |words: &[&str]| said(words).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
        let new = ["REPLCONF listening-port 0", "REPLCONF ip-address 10.0.0.9", "PSYNC ? -1"];
        assert_eq!(joined(&["psync", "?", "-1"]), new);
        let old = ["REPLCONF listening-port 6380", "REPLCONF ip-address here", "REPLCONF rdb-only 1", "SYNC"];
        assert_eq!(joined(&["sync", "listening-port=6380", "ip-address=here", "rdb-only=1"]), old);
        let known = said(&["psync", "abc", "1001", "capa=eof", "capa=psync2", "rdb-filter-only=functions"]);
        assert_eq!((known.len(), &known[5][..]), (6, &["PSYNC", "abc", "1001"].map(str::to_owned)[..]));
    }

    #[test]
    fn an_acknowledgement_has_a_number() {
        assert_eq!(acknowledged(&[b"REPLCONF", b"ACK", b"77", b"FACK", b"70"]), Ok(Some(77)));
        assert_eq!(acknowledged(&[b"replconf", b"ack", b"x"]), Err(NoNumber));
        for other in [&[&b"REPLCONF"[..], b"ACK"][..], &[b"REPLCONF", b"GETACK", b"*"], &[b"PING"], &[]] {
            assert_eq!(acknowledged(other), Ok(None));
        }
    }
}
