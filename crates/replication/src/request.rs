//! A replica's requests, as the words of the command that it sends: behind it the connection speaks frames.

use crate::manifest::Token;
use crate::resync::Position;
use haypile_log::{History, Index};

/// The version of the protocol: of the requests, the frames and the manifest.
pub const PROTOCOL_VERSION: u32 = 2;

/// The words of REPLCONF with which a connection of replication begins. Redis refuses them.
pub const HELLO: &str = "haypile-hello";
pub const FOLLOW: &str = "haypile-follow";
pub const FETCH: &str = "haypile-fetch";
pub const COPY: &str = "haypile-copy";

/// A replica's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The records behind the replica's last one, or a copy. With the port that the replica listens on, and the address
    /// that it announces, if it does.
    Follow { port: u16, address: Option<String>, at: Position },
    /// A new copy of the data of a member of this Raft group, all of it agreed on by the group.
    Copy { group: History },
    /// Files of a copy.
    Fetch(Token),
}

impl Request {
    /// Returns the words behind REPLCONF.
    pub fn words(&self) -> Vec<String> {
        match self {
            Request::Follow { port, address, at } => {
                let (history, index) = (at.history.to_string(), at.index.to_string());
                let address = address.clone().unwrap_or_default();
                vec![FOLLOW.into(), port.to_string(), address, history, index]
            }
            Request::Copy { group } => vec![COPY.into(), group.to_string()],
            Request::Fetch(token) => vec![FETCH.into(), token.to_string()],
        }
    }

    /// Parses what `words` returns; None of anything else.
    pub fn parse(words: &[Vec<u8>]) -> Option<Request> {
        let words: Vec<&str> = words.iter().map(|word| std::str::from_utf8(word)).collect::<Result<_, _>>().ok()?;
        match words[..] {
            [FOLLOW, port, address, history, index] => {
                let address = Some(address).filter(|address| !address.is_empty()).map(str::to_owned);
                let at = Position { history: History::parse(history)?, index: Index(index.parse().ok()?) };
                Some(Request::Follow { port: port.parse().ok()?, address, at })
            }
            [COPY, group] => Some(Request::Copy { group: History::parse(group)? }),
            [FETCH, token] => Some(Request::Fetch(Token::parse(token)?)),
            _ => None,
        }
    }
}

/// The facts that a master tells of itself before a replica asks for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub protocol: u32,
    /// The version of the log's format.
    pub log_format: u32,
    pub databases: u32,
    /// The names of the nodes that the master's records come from, its own first: a node that finds its own among them
    /// would follow itself.
    pub nodes: Vec<Token>,
}

impl Hello {
    /// Returns the reply's words.
    pub fn words(&self) -> Vec<String> {
        let numbers = [self.protocol, self.log_format, self.databases].map(|number| number.to_string());
        let nodes = self.nodes.iter().map(Token::to_string);
        std::iter::once("haypile".to_owned()).chain(numbers).chain(nodes).collect()
    }

    /// Parses what `words` returns, and what later versions add to their numbers; None of anything else.
    pub fn parse(words: &[&[u8]]) -> Option<Hello> {
        let words: Vec<&str> = words.iter().map(|word| std::str::from_utf8(word)).collect::<Result<_, _>>().ok()?;
        let [title, protocol, log_format, databases, nodes @ ..] = &words[..] else { return None };
        let number = |text: &str| text.parse::<u32>().ok();
        let nodes = nodes.iter().map(|node| Token::parse(node)).collect::<Option<Vec<_>>>()?;
        let (protocol, log_format, databases) = (number(protocol)?, number(log_format)?, number(databases)?);
        (*title == "haypile").then_some(Hello { protocol, log_format, databases, nodes })
    }

    /// Says why a node of this name with so many databases cannot follow the master, if it cannot.
    pub fn objection(&self, node: Token, databases: u32) -> Option<String> {
        let ours = haypile_log::FORMAT_VERSION;
        if self.protocol != PROTOCOL_VERSION {
            let theirs = self.protocol;
            return Some(format!(
                "it speaks version {theirs} of the replication protocol, and this server {PROTOCOL_VERSION}"
            ));
        }
        if self.log_format != ours {
            return Some(format!("its log has format {}, and this server's {ours}", self.log_format));
        }
        if self.databases != databases {
            return Some(format!("it has {} databases, and this server {databases}", self.databases));
        }
        match self.nodes.iter().position(|other| *other == node) {
            Some(0) => Some("it is this server itself".into()),
            Some(_) => Some("it follows this server, in a circle".into()),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[String]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn requests_read_back() {
        let at = Position { history: History([0xab; 20]), index: Index(u64::MAX) };
        for request in [
            Request::Follow { port: 6380, address: None, at },
            Request::Follow { port: 0, address: Some("10.0.0.1".into()), at },
            Request::Copy { group: History([7; 20]) },
            Request::Fetch(Token([1; 16])),
        ] {
            assert_eq!(Request::parse(&bytes(&request.words())), Some(request));
        }
        for words in [
            &["haypile-follow"][..],
            &["haypile-follow", "1", "", "x", "0"],
            &["haypile-fetch", "12"],
            &["haypile-copy"],
            &["ack"],
        ] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(Request::parse(&bytes(&words)), None, "{words:?}");
        }
        assert_eq!(Request::parse(&[vec![0xff]]), None);
    }

    #[test]
    fn a_master_that_cannot_be_followed_is_told_from_others() {
        let (node, other) = (Token([1; 16]), Token([2; 16]));
        let hello = Hello {
            protocol: PROTOCOL_VERSION,
            log_format: haypile_log::FORMAT_VERSION,
            databases: 16,
            nodes: vec![other],
        };
        let words = bytes(&hello.words());
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        assert_eq!(Hello::parse(&words), Some(hello.clone()));
        assert_eq!(Hello::parse(&words[1..]), None);
        assert_eq!(hello.objection(node, 16), None);
        let objects = |hello: Hello, databases| hello.objection(node, databases).unwrap_or_default();
        assert!(objects(hello.clone(), 8).contains("16 databases"));
        assert!(objects(Hello { protocol: 3, ..hello.clone() }, 16).contains("version 3"));
        assert!(objects(Hello { log_format: 1, ..hello.clone() }, 16).contains("format 1"));
        assert!(objects(Hello { nodes: vec![node], ..hello.clone() }, 16).contains("itself"));
        assert!(objects(Hello { nodes: vec![other, node], ..hello }, 16).contains("circle"));
    }
}
