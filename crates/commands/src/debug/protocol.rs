//! DEBUG PROTOCOL: a value of each type that the protocol has, for the tests of clients.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::Host;
use haypile_resp::{Bytes, Protocol, Reply};

/// Redis's example of a double.
#[allow(clippy::approx_constant, reason = "it is no more than a number")]
const DOUBLE: f64 = 3.141;

pub(crate) fn protocol(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let numbers = || (0..3).map(Reply::Integer).collect::<Vec<_>>();
    let word = args.get(2).to_ascii_lowercase();
    Ok(match &word[..] {
        b"string" => Reply::bulk("Hello World"),
        b"integer" => Reply::Integer(12345),
        b"double" => Reply::Double(DOUBLE),
        b"null" => Reply::Null,
        b"array" => Reply::Array(numbers()),
        b"set" => Reply::Set(numbers()),
        b"map" => Reply::Map((0..3).map(|i| (Reply::Integer(i), Reply::Boolean(i == 1))).collect()),
        b"attrib" => {
            let popularity = Reply::Array(vec![Reply::bulk("key:123"), Reply::Integer(90)]);
            let attributes = vec![(Reply::bulk("key-popularity"), popularity)];
            Reply::Attribute(attributes, Box::new(Reply::bulk("Some real reply following the attribute")))
        }
        b"push" => push(host)?,
        b"true" => Reply::Boolean(true),
        b"false" => Reply::Boolean(false),
        b"verbatim" => Reply::Verbatim("txt", "This is a verbatim\nstring".into()),
        b"bignum" => Reply::BigNumber("1234567999999999999999999999999999999".to_owned()),
        _ => {
            return Err(Error::text(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    })
}

/// A push is a reply to nothing: what answers the command comes behind it, in the same piece.
fn push(host: &dyn Host) -> Result<Reply> {
    if host.protocol() == Protocol::Resp2 {
        return Err(Error::text("ERR RESP2 is not supported by this command"));
    }
    let mut bytes = Vec::new();
    Reply::Push(vec![Reply::bulk("server-cpu-usage"), Reply::Integer(42)]).encode(Protocol::Resp3, &mut bytes);
    Reply::bulk("Some real reply following the push reply").encode(Protocol::Resp3, &mut bytes);
    Ok(Reply::Raw(Bytes::from(bytes)))
}
