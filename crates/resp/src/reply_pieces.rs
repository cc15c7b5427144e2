//! Any reply, written piece by piece: the walk over a reply that contains long parts (the reply of EXEC, for instance).

use crate::pieces::{PIECE_BYTES, Pieces, Weight};
use crate::{Bytes, Protocol, Reply, write};
/// Bytes of a reply's line, of which digits and line ends are the most.
const LINE_BYTES: usize = 16;

/// Writes any reply piece by piece.
pub struct ReplyPieces {
    /// The parts still to be written, the next at the end.
    rest: Vec<Part>,
    /// The weight of the whole reply.
    weight: Weight,
}

enum Part {
    Reply(Reply),
    /// The header of a pair in `Reply::Keyed`.
    Pair,
    /// The content of a bulk string from this offset on, and the line end.
    Content(Bytes, usize),
}

impl Reply {
    /// Turns the reply into pieces of about [`PIECE_BYTES`] each, the only way to write one with a [`Reply::Stream`] in
    /// it.
    pub fn into_pieces(self) -> ReplyPieces {
        let weight = self.weight();
        ReplyPieces { rest: vec![Part::Reply(self)], weight }
    }

    /// Returns the weight of the reply, with all replies in it.
    pub fn weight(&self) -> Weight {
        let mut weight = Weight::default();
        self.add_weight(&mut weight);
        weight
    }

    fn add_weight(&self, weight: &mut Weight) {
        weight.held_bytes += size_of::<Reply>();
        weight.encoded_bytes += LINE_BYTES;
        let mut add_pairs = |pairs: &[(Reply, Reply)]| {
            pairs.iter().for_each(|(key, value)| [key, value].into_iter().for_each(|reply| reply.add_weight(weight)));
        };
        let bytes = match self {
            Reply::Array(replies) | Reply::Set(replies) | Reply::Push(replies) | Reply::Several(replies) => {
                return replies.iter().for_each(|reply| reply.add_weight(weight));
            }
            Reply::Map(pairs) | Reply::Keyed(pairs) => return add_pairs(pairs),
            Reply::Attribute(pairs, reply) => {
                add_pairs(pairs);
                return reply.add_weight(weight);
            }
            Reply::Stream(pieces) => {
                let Weight { held_bytes, encoded_bytes } = pieces.weight();
                weight.held_bytes += held_bytes;
                weight.encoded_bytes += encoded_bytes;
                return;
            }
            Reply::Bulk(bytes) | Reply::Raw(bytes) | Reply::Verbatim(_, bytes) => bytes.len(),
            Reply::Elements(elements) => elements.bytes(),
            Reply::Scored(scored) => scored.bytes(),
            Reply::Records(records) => records.bytes(),
            _ => 0,
        };
        weight.held_bytes += bytes;
        weight.encoded_bytes += bytes;
    }
}

impl ReplyPieces {
    fn add(&mut self, reply: Reply, protocol: Protocol, out: &mut Vec<u8>) -> Result<(), String> {
        match reply {
            Reply::Array(elements) => {
                write::array_len(out, elements.len());
                self.push_all(elements);
            }
            Reply::Set(elements) => {
                write::set_len(protocol, out, elements.len());
                self.push_all(elements);
            }
            Reply::Push(elements) => {
                write::push_len(protocol, out, elements.len());
                self.push_all(elements);
            }
            Reply::Several(replies) => self.push_all(replies),
            Reply::Map(pairs) => {
                write::map_len(protocol, out, pairs.len());
                self.push_pairs(pairs);
            }
            Reply::Keyed(pairs) => {
                write::keyed_len(protocol, out, pairs.len());
                for (key, value) in pairs.into_iter().rev() {
                    self.rest.extend([Part::Reply(value), Part::Reply(key), Part::Pair]);
                }
            }
            Reply::Attribute(pairs, reply) => {
                self.rest.push(Part::Reply(*reply));
                if protocol == Protocol::Resp3 {
                    write::attribute_len(out, pairs.len());
                    self.push_pairs(pairs);
                }
            }
            Reply::Bulk(bytes) => {
                write::bulk_len(out, bytes.len());
                self.rest.push(Part::Content(bytes, 0));
            }
            Reply::Stream(mut pieces) => {
                if pieces.next(protocol, out)? {
                    self.rest.push(Part::Reply(Reply::Stream(pieces)));
                }
            }
            short => short.encode(protocol, out),
        }
        Ok(())
    }

    fn push_all(&mut self, elements: Vec<Reply>) {
        self.rest.extend(elements.into_iter().rev().map(Part::Reply));
    }

    fn push_pairs(&mut self, pairs: Vec<(Reply, Reply)>) {
        for (key, value) in pairs.into_iter().rev() {
            self.rest.push(Part::Reply(value));
            self.rest.push(Part::Reply(key));
        }
    }
}

impl Pieces for ReplyPieces {
    fn next(&mut self, protocol: Protocol, out: &mut Vec<u8>) -> Result<bool, String> {
        let end = out.len() + PIECE_BYTES;
        while out.len() < end {
            match self.rest.pop() {
                None => return Ok(false),
                Some(Part::Reply(reply)) => self.add(reply, protocol, out)?,
                Some(Part::Pair) => write::keyed_pair(protocol, out),
                Some(Part::Content(bytes, from)) => {
                    let until = bytes.len().min(from + (end - out.len()));
                    out.extend_from_slice(&bytes[from..until]);
                    if until == bytes.len() {
                        out.extend_from_slice(b"\r\n");
                    } else {
                        self.rest.push(Part::Content(bytes, until));
                    }
                }
            }
        }
        Ok(!self.rest.is_empty())
    }

    /// Returns the weight of the whole reply, however much of it has been written.
    fn weight(&self) -> Weight {
        self.weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bulk string of `len` times "x", in pieces of 1000.
    struct Run {
        len: usize,
        written: Option<usize>,
    }

    impl Run {
        fn reply(len: usize) -> Reply {
            Reply::Stream(Box::new(Run { len, written: None }))
        }
    }

    impl Pieces for Run {
        fn next(&mut self, _: Protocol, out: &mut Vec<u8>) -> Result<bool, String> {
            let Some(written) = self.written else {
                write::bulk_len(out, self.len);
                self.written = Some(0);
                return Ok(true);
            };
            let piece = (self.len - written).min(1000);
            out.resize(out.len() + piece, b'x');
            self.written = Some(written + piece);
            if written + piece == self.len {
                out.extend_from_slice(b"\r\n");
            }
            Ok(written + piece < self.len)
        }

        fn weight(&self) -> Weight {
            Weight { held_bytes: 7, encoded_bytes: self.len }
        }
    }

    fn in_pieces(reply: Reply, protocol: Protocol) -> Vec<u8> {
        let mut pieces = reply.into_pieces();
        let mut all = Vec::new();
        loop {
            let mut piece = Vec::new();
            let more = pieces.next(protocol, &mut piece).unwrap();
            assert!(piece.len() <= PIECE_BYTES + 1002, "{}", piece.len());
            all.extend(piece);
            if !more {
                return all;
            }
        }
    }

    #[test]
    fn a_reply_in_pieces_is_the_reply_encoded_at_once() {
        let long = |byte: u8, len: usize| Reply::bulk(vec![byte; len]);
        let replies = || {
            vec![
                Reply::ok(),
                long(b'a', 300_000),
                Reply::Map(vec![
                    (Reply::Integer(1), long(b'b', PIECE_BYTES)),
                    (Reply::Boolean(true), Reply::Set(vec![Reply::Null])),
                ]),
                Reply::Attribute(
                    vec![(Reply::bulk("ttl"), Reply::Double(1.5))],
                    Box::new(Reply::Push(vec![Reply::bulk("x"), Reply::Array(vec![])])),
                ),
                Reply::None,
                Reply::Keyed(vec![
                    (Reply::bulk("k"), long(b'c', PIECE_BYTES)),
                    (Reply::bulk("l"), Reply::array([Reply::Null])),
                ]),
                Reply::bulk(""),
            ]
        };
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut at_once = Vec::new();
            Reply::Array(replies()).encode(protocol, &mut at_once);
            assert_eq!(in_pieces(Reply::Array(replies()), protocol), at_once);
        }
    }

    #[test]
    fn a_stream_inside_an_array_stands_at_its_place() {
        let reply = || Reply::Array(vec![Reply::ok(), Run::reply(200_000), Reply::Integer(7)]);
        assert!(reply().has_stream());
        let mut expected = b"*3\r\n+OK\r\n$200000\r\n".to_vec();
        expected.resize(expected.len() + 200_000, b'x');
        expected.extend_from_slice(b"\r\n:7\r\n");
        assert_eq!(in_pieces(reply(), Protocol::Resp3), expected);
    }

    #[test]
    fn a_reply_weighs_what_is_in_it() {
        let weight = Reply::Array(vec![Reply::bulk(vec![0; 1000]), Run::reply(200_000)]).into_pieces().weight();
        let around = |bytes: usize, expected: usize| (expected..expected + 400).contains(&bytes);
        assert!(around(weight.encoded_bytes, 201_000) && around(weight.held_bytes, 1007), "{weight:?}");
    }

    #[test]
    #[should_panic(expected = "piece by piece")]
    fn a_stream_is_not_encoded_at_once() {
        Run::reply(1).encode(Protocol::Resp2, &mut Vec::new());
    }
}
