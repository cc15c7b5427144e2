//! The encoding of each reply in both protocols.

use std::sync::Arc;

use haypile_resp::{Bytes, Protocol, Reply};

fn check(reply: Reply, resp2: &str, resp3: &str) {
    for (protocol, expected) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
        let mut out = Vec::new();
        reply.encode(protocol, &mut out);
        let found = String::from_utf8_lossy(&out).replace("\r\n", ".");
        assert_eq!(found, expected, "{reply:?} in {protocol:?}");
    }
}

#[test]
fn simple_replies() {
    check(Reply::ok(), "+OK.", "+OK.");
    check(Reply::Status("none".into()), "+none.", "+none.");
    check(Reply::error("ERR syntax error"), "-ERR syntax error.", "-ERR syntax error.");
    check(Reply::Integer(-42), ":-42.", ":-42.");
    check(Reply::bulk(""), "$0..", "$0..");
    check(Reply::bulk("hay"), "$3.hay.", "$3.hay.");
    check(Reply::bulk(Bytes::shared(Arc::from(&b"a hay pile"[..]), 2..5)), "$3.hay.", "$3.hay.");
    check(Reply::Raw("+PONG\r\n".into()), "+PONG.", "+PONG.");
    check(Reply::None, "", "");
}

#[test]
fn replies_that_resp2_does_not_have() {
    check(Reply::Null, "$-1.", "_.");
    check(Reply::NullArray, "*-1.", "_.");
    check(Reply::Boolean(true), ":1.", "#t.");
    check(Reply::Boolean(false), ":0.", "#f.");
    check(Reply::Double(0.1), "$3.0.1.", ",0.1.");
    check(Reply::Double(f64::INFINITY), "$3.inf.", ",inf.");
    check(Reply::Double(f64::NEG_INFINITY), "$4.-inf.", ",-inf.");
    check(Reply::Double(f64::NAN), "$3.nan.", ",nan.");
    check(Reply::BigNumber("-123".into()), "$4.-123.", "(-123.");
    check(Reply::Verbatim("txt", "hay".into()), "$3.hay.", "=7.txt:hay.");
}

#[test]
fn aggregates() {
    let two = || vec![Reply::Integer(1), Reply::bulk("x")];
    check(Reply::Array(vec![]), "*0.", "*0.");
    check(Reply::Array(two()), "*2.:1.$1.x.", "*2.:1.$1.x.");
    check(Reply::Set(two()), "*2.:1.$1.x.", "~2.:1.$1.x.");
    check(Reply::Push(two()), "*2.:1.$1.x.", ">2.:1.$1.x.");
    check(Reply::Map(vec![(Reply::bulk("k"), Reply::Null)]), "*2.$1.k.$-1.", "%1.$1.k._.");
    check(Reply::Attribute(vec![(Reply::bulk("k"), Reply::Null)], Box::new(Reply::ok())), "+OK.", "|1.$1.k._.+OK.");
    check(
        Reply::Array(vec![Reply::Array(vec![Reply::Set(vec![])]), Reply::Map(vec![])]),
        "*2.*1.*0.*0.",
        "*2.*1.~0.%0.",
    );
}

#[test]
fn a_line_end_in_a_text_cannot_end_the_reply() {
    check(Reply::error("ERR bad 'a\r\n+OK'\r\n"), "-ERR bad 'a  +OK'.", "-ERR bad 'a  +OK'.");
    check(Reply::Status("a\nb\r".into()), "+a b .", "+a b .");
    let mut out = Vec::new();
    Reply::error_bytes(b"ERR unknown '\xff\n'".to_vec()).encode(Protocol::Resp2, &mut out);
    assert_eq!(out, b"-ERR unknown '\xff '\r\n");
}
