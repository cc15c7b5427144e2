//! Encoded replies decode to themselves, and malformed ones are refused.

use haypile_resp::decode::{DecodeError, NESTING_MAX, decode};
use haypile_resp::{Protocol, Reply};

use crate::random::{Random, cases};
use crate::round_trip_check::{check, decode_all};

const TEXT: &[u8] = b"abc XYZ-09'\":_$*";

fn reply(random: &mut Random, depth: usize) -> Reply {
    let text = |random: &mut Random| String::from_utf8(random.bytes(TEXT, 12)).expect("ASCII");
    let many = |random: &mut Random| -> Vec<Reply> { (0..random.below(5)).map(|_| reply(random, depth - 1)).collect() };
    let pairs = |random: &mut Random| -> Vec<(Reply, Reply)> {
        (0..random.below(4)).map(|_| (reply(random, depth - 1), reply(random, depth - 1))).collect()
    };
    match random.below(if depth == 0 { 12 } else { 18 }) {
        0 => Reply::ok(),
        1 => Reply::Status(text(random)),
        2 => Reply::error(format!("ERR {}x", text(random))),
        3 => Reply::error_bytes(b"ERR \xff\xfe".to_vec()),
        4 => Reply::Integer(random.next() as i64 >> random.below(64)),
        5 => Reply::Double(f64::from_bits(random.next())),
        6 => Reply::Double(random.next() as i16 as f64 / 8.0),
        7 => Reply::BigNumber(format!("-{}{}", random.next(), random.next())),
        8 => Reply::Boolean(random.chance(2)),
        9 => {
            if random.chance(2) {
                Reply::Null
            } else {
                Reply::NullArray
            }
        }
        10 => Reply::Verbatim(random.pick::<&str>(&["txt", "mkd"]), random.bytes(TEXT, 9).into()),
        11 => Reply::bulk(random.bytes(b"\r\n\0\xff$*ab", 300)),
        12 => Reply::Array(many(random)),
        13 => Reply::Set(many(random)),
        14 => Reply::Push(many(random)),
        15 => Reply::Map(pairs(random)),
        16 => Reply::Keyed(pairs(random)),
        _ => Reply::Attribute(pairs(random), Box::new(reply(random, depth - 1))),
    }
}

/// Returns `reply` as a client receives it: RESP2 has fewer types, RESP3 has one null.
fn as_received(reply: &Reply, protocol: Protocol) -> Reply {
    let all = |replies: &[Reply]| replies.iter().map(|reply| as_received(reply, protocol)).collect();
    let both = |pairs: &[(Reply, Reply)]| -> Vec<(Reply, Reply)> {
        pairs.iter().map(|(k, v)| (as_received(k, protocol), as_received(v, protocol))).collect()
    };
    let double = |value: f64| {
        let mut text = Vec::new();
        haypile_resp::number::write_double(&mut text, value);
        Reply::bulk(text)
    };
    match (protocol, reply) {
        (_, Reply::Simple(text)) => Reply::Status(text.to_string()),
        (_, Reply::Status(text)) => Reply::Status(text.clone()),
        (_, Reply::Error(text)) => Reply::Error(text.clone()),
        (_, Reply::ErrorBytes(text)) => Reply::ErrorBytes(text.clone()),
        (_, Reply::Integer(value)) => Reply::Integer(*value),
        (_, Reply::Bulk(bytes)) => Reply::Bulk(bytes.clone()),
        (_, Reply::Null) => Reply::Null,
        (_, Reply::Array(elements)) => Reply::Array(all(elements)),
        (Protocol::Resp2, Reply::NullArray) => Reply::NullArray,
        (Protocol::Resp2, Reply::Double(value)) => double(*value),
        (Protocol::Resp2, Reply::BigNumber(digits) | Reply::Decimal(digits)) => Reply::bulk(digits.clone()),
        (Protocol::Resp2, Reply::Boolean(value)) => Reply::Integer(i64::from(*value)),
        (Protocol::Resp2, Reply::Verbatim(_, bytes)) => Reply::Bulk(bytes.clone()),
        (Protocol::Resp2, Reply::Set(elements) | Reply::Push(elements)) => Reply::Array(all(elements)),
        (Protocol::Resp2, Reply::Map(pairs)) => Reply::array(both(pairs).into_iter().flat_map(|(k, v)| [k, v])),
        (Protocol::Resp2, Reply::Keyed(pairs)) => {
            Reply::array(both(pairs).into_iter().map(|(key, value)| Reply::array([key, value])))
        }
        (Protocol::Resp2, Reply::Attribute(_, reply)) => as_received(reply, protocol),
        (Protocol::Resp3, Reply::NullArray) => Reply::Null,
        (Protocol::Resp3, Reply::Double(value)) => Reply::Double(*value),
        (Protocol::Resp3, Reply::Decimal(digits)) => Reply::Double(digits.parse().expect("a decimal number")),
        (Protocol::Resp3, Reply::BigNumber(digits)) => Reply::BigNumber(digits.clone()),
        (Protocol::Resp3, Reply::Boolean(value)) => Reply::Boolean(*value),
        (Protocol::Resp3, Reply::Verbatim(kind, bytes)) => Reply::Verbatim(kind, bytes.clone()),
        (Protocol::Resp3, Reply::Set(elements)) => Reply::Set(all(elements)),
        (Protocol::Resp3, Reply::Push(elements)) => Reply::Push(all(elements)),
        (Protocol::Resp3, Reply::Map(pairs) | Reply::Keyed(pairs)) => Reply::Map(both(pairs)),
        (Protocol::Resp3, Reply::Attribute(pairs, reply)) => {
            Reply::Attribute(both(pairs), Box::new(as_received(reply, protocol)))
        }
        // The tests of these compare them with the replies that they stand for.
        (_, Reply::Elements(_) | Reply::Scored(_) | Reply::Records(_)) => unreachable!("not generated"),
        (_, Reply::Stream(_) | Reply::Several(_) | Reply::Raw(_) | Reply::None) => unreachable!("not generated"),
    }
}

#[test]
fn what_is_encoded_decodes_to_itself_in_any_pieces() {
    cases(5_000, |random| {
        let replies: Vec<Reply> = (0..1 + random.below(4)).map(|_| reply(random, 3)).collect();
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut encoded = Vec::new();
            for reply in &replies {
                reply.encode(protocol, &mut encoded);
            }
            let piece_max = if random.chance(2) { 7 } else { 300 };
            let piece = 1 + random.below(piece_max);
            let (decoded, error) = decode_all(&encoded, piece);
            assert_eq!(error, None, "{}", encoded.escape_ascii());
            let expected: Vec<Reply> = replies.iter().map(|reply| as_received(reply, protocol)).collect();
            assert_eq!(decoded, expected);
        }
    });
}

#[test]
fn the_decoder_keeps_its_promises_on_damaged_replies() {
    cases(20_000, |random| {
        let mut input = vec![random.next() as u8];
        reply(random, 3).encode(Protocol::Resp3, &mut input);
        crate::parser_random::damage(random, &mut input);
        check(&input);
    });
}

#[test]
fn malformed_replies_are_refused() {
    let check = |input: &str, error: DecodeError| {
        assert_eq!(decode(input.as_bytes()), Err(error), "{input:?}");
    };
    for input in [
        ":\r\n",
        ":1a\r\n",
        ":01\r\n",
        ",x\r\n",
        ",infinity\r\n",
        "(1.5\r\n",
        "(\r\n",
        "#x\r\n",
        "_x\r\n",
        "$-2\r\n",
        "$x\r\n",
        "$1\r\nabc",
        "$99999999999\r\n",
        "*-2\r\n",
        "*x\r\n",
        "%-1\r\n",
        "=3\r\nabc\r\n",
        "=4\r\nbin:\r\n",
        "+OK\n",
        "+\n",
    ] {
        check(input, DecodeError::Malformed(input.as_bytes()[0]));
    }
    check("OK\r\n", DecodeError::UnknownType(b'O'));
    check("\r\n", DecodeError::Malformed(b'\r'));
    check(&"*1\r\n".repeat(NESTING_MAX + 1), DecodeError::TooDeep);
}

#[test]
fn what_a_peer_claims_is_not_allocated() {
    assert_eq!(decode(b"*4294967295\r\n:1\r\n"), Ok(None));
    assert_eq!(decode(b"$4294967295\r\nabc"), Ok(None));
}

#[test]
fn an_error_of_any_bytes_has_a_text() {
    use haypile_resp::decode::error_text;
    let (reply, _) = decode(b"-ERR \xff\r\n").unwrap().unwrap();
    assert_eq!(error_text(&reply).unwrap(), "ERR \u{fffd}");
    let (reply, _) = decode(b"!5\r\nERR x\r\n").unwrap().unwrap();
    assert_eq!(error_text(&reply).unwrap(), "ERR x");
    assert_eq!(error_text(&Reply::ok()), None);
}
