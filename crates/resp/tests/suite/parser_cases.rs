//! Requests that the parser takes, skips and refuses, one row each.

use haypile_resp::{Limits, OwnedArgs, Parser, ProtocolError, Request};

use crate::parser_check::{Step, expected};

/// Returns the parser's steps over `data`, which must be the model's, too.
fn steps(data: &[u8], limits: Limits) -> Vec<Step> {
    let mut parser = Parser::new(limits);
    let (mut at, mut ranges, mut steps) = (0, Vec::new(), Vec::new());
    loop {
        let step = match parser.next(&data[at..], &mut ranges) {
            Ok(None) => Step::Wait,
            Err(error) => Step::Error(error),
            Ok(Some(Request::Empty { bytes })) => Step::Empty(bytes),
            Ok(Some(request)) => {
                let args = request.args(&data[at..], &ranges);
                Step::Command(request.bytes(), args.iter().map(<[u8]>::to_vec).collect())
            }
        };
        match step {
            Step::Empty(bytes) | Step::Command(bytes, _) => at += bytes,
            Step::Wait | Step::Error(_) => {
                steps.push(step);
                assert_eq!(steps, expected(data, &limits), "{}", data.escape_ascii());
                return steps;
            }
        }
        steps.push(step);
    }
}

/// Returns the commands in `data`, each as its words joined by "|", and the error at the end, if there is one.
fn commands(data: &[u8], limits: Limits) -> (Vec<String>, Option<ProtocolError>) {
    let mut error = None;
    let mut commands = Vec::new();
    for step in steps(data, limits) {
        match step {
            Step::Command(_, args) => commands.push(args.join(&b'|').escape_ascii().to_string()),
            Step::Error(found) => error = Some(found),
            Step::Empty(_) | Step::Wait => {}
        }
    }
    (commands, error)
}

fn accepts(rule: &str, data: &[u8], expected: &[&str]) {
    let (found, error) = commands(data, Limits::default());
    assert_eq!((found, error), (expected.iter().map(|&c| c.to_owned()).collect(), None), "{rule}");
}

fn refuses(rule: &str, data: &[u8], error: ProtocolError) {
    assert_eq!(commands(data, Limits::default()).1, Some(error), "{rule}");
}

#[test]
fn commands_are_found() {
    accepts("a multibulk request", b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", &["GET|k"]);
    accepts("two in a row", b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n", &["PING", "QUIT"]);
    accepts("an inline request", b"GET k\r\n", &["GET|k"]);
    accepts("an inline request that ends with LF alone", b"GET k\n", &["GET|k"]);
    accepts("both kinds in turn", b"PING\r\n*1\r\n$4\r\nPING\r\nPING\n", &["PING", "PING", "PING"]);
    accepts("arguments of any bytes", b"*2\r\n$2\r\n\r\n\r\n$3\r\n\0\xff*\r\n", &["\\r\\n|\\x00\\xff*"]);
    accepts("an empty argument", b"*2\r\n$0\r\n\r\n$1\r\nx\r\n", &["|x"]);
    accepts("quoted arguments", b"SET \"a b\" 'c\\'d' \"\\x41\\n\"\r\n", &["SET|a b|c\\'d|A\\n"]);
    accepts("no end yet", b"*2\r\n$3\r\nGET\r\n$1\r\nk\r", &[]);
}

#[test]
fn nothing_is_skipped_in_silence() {
    let limits = Limits::default();
    for data in [&b"\r\n"[..], b"\n", b"   \t\r\n", b"\r\r\n", b"*0\r\n", b"*-1\r\n", b"*-77\r\n"] {
        assert_eq!(steps(data, limits), [Step::Empty(data.len()), Step::Wait]);
    }
    accepts("empty requests between others", b"\r\n*0\r\nPING\r\n\n*-1\r\nPING\r\n", &["PING", "PING"]);
}

#[test]
fn what_redis_does_not_look_at_is_not_looked_at() {
    accepts("the byte behind CR", b"*1\rX$4\rYPING\r\n", &["PING"]);
    accepts("the two bytes behind an argument", b"*1\r\n$4\r\nPINGxx", &["PING"]);
    accepts("a NUL hides the end of an inline request", b"PING\0\r\nPING\r\n", &[]);
    accepts("a NUL hides the end of a count", b"*1\0\r\n$4\r\nPING\r\n", &[]);
}

#[test]
fn the_protocol_errors_are_those_of_redis() {
    use ProtocolError::*;
    for count in ["", "a", "1a", " 1", "+1", "01", "-", "-0", "2147483648", "99999999999999999999"] {
        refuses("a count that is none", format!("*{count}\r\n").as_bytes(), InvalidCount);
    }
    for len in ["", "-1", "a", "03", "+3", "3 ", "536870913", "4294967297", "99999999999999999999"] {
        let data = format!("*1\r\n${len}\r\nabc\r\n");
        refuses("a length that is none", data.as_bytes(), InvalidLength);
    }
    for byte in [b'*', b':', b'x', b' ', 0x80, b'\r'] {
        let data = [b"*1\r\n", &[byte][..], b"4\r\nPING\r\n"].concat();
        refuses("an argument without $", &data, ExpectedDollar(byte));
    }
    for line in ["\"", "GET \"k", "GET 'k", "GET \"k\"x", "GET 'k'\"x\""] {
        refuses("unbalanced quotes", format!("{line}\r\n").as_bytes(), UnbalancedQuotes);
    }
    refuses("too long an inline request", &[b'x'; 65537], InlineTooLong);
    refuses("too long a count", &[b'*'; 65537], CountLineTooLong);
    refuses("too long a length", &[&b"*1\r\n"[..], &[b'$'; 65537]].concat(), LengthLineTooLong);
    accepts("as long as they may be", &[b'x'; 65536], &[]);
    accepts("as long as they may be", &[b'*'; 65536], &[]);
    accepts("as long as they may be", &[&b"*1\r\n"[..], &[b'$'; 65536]].concat(), &[]);
}

#[test]
fn an_error_reads_as_redis_writes_it() {
    use ProtocolError::*;
    let check = |error: ProtocolError, reply: &[u8]| {
        let mut out = Vec::new();
        error.write_reply(&mut out);
        assert_eq!(out.escape_ascii().to_string(), reply.escape_ascii().to_string());
    };
    check(InlineTooLong, b"-ERR Protocol error: too big inline request\r\n");
    check(UnbalancedQuotes, b"-ERR Protocol error: unbalanced quotes in request\r\n");
    check(CountLineTooLong, b"-ERR Protocol error: too big mbulk count string\r\n");
    check(InvalidCount, b"-ERR Protocol error: invalid multibulk length\r\n");
    check(UnauthenticatedCount, b"-ERR Protocol error: unauthenticated multibulk length\r\n");
    check(LengthLineTooLong, b"-ERR Protocol error: too big bulk count string\r\n");
    check(ExpectedDollar(b'x'), b"-ERR Protocol error: expected '$', got 'x'\r\n");
    check(ExpectedDollar(0xff), b"-ERR Protocol error: expected '$', got '\xff'\r\n");
    check(ExpectedDollar(b'\r'), b"-ERR Protocol error: expected '$', got ' '\r\n");
    check(InvalidLength, b"-ERR Protocol error: invalid bulk length\r\n");
    check(UnauthenticatedLength, b"-ERR Protocol error: unauthenticated bulk length\r\n");
    assert_eq!(ExpectedDollar(b'x').to_string(), "Protocol error: expected '$', got 'x'");
    assert_eq!(ExpectedDollar(0).to_string(), "Protocol error: expected '$', got '\\x00'");
}

#[test]
fn a_client_that_has_not_authenticated_may_claim_little() {
    let limits = Limits { authenticated: false, ..Limits::default() };
    let args = |count: usize| [format!("*{count}\r\n").into_bytes(), b"$1\r\nx\r\n".repeat(count)].concat();
    let bulk = |len: usize| [format!("*1\r\n${len}\r\n").into_bytes(), vec![b'x'; len + 2]].concat();
    assert_eq!(commands(&args(10), limits).1, None);
    assert_eq!(commands(&args(11), limits).1, Some(ProtocolError::UnauthenticatedCount));
    assert_eq!(commands(&bulk(16384), limits).1, None);
    assert_eq!(commands(&bulk(16385), limits).1, Some(ProtocolError::UnauthenticatedLength));
}

#[test]
fn limits_change_with_the_next_request() {
    let data = b"*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n*11\r\n";
    let mut parser = Parser::new(Limits { authenticated: false, ..Limits::default() });
    let mut ranges = Vec::new();
    let auth = parser.next(data, &mut ranges).unwrap().unwrap();
    parser.set_limits(Limits::default());
    assert_eq!(parser.next(&data[auth.bytes()..], &mut ranges), Ok(None));
    assert!(parser.is_inside_request());
}

#[test]
fn a_request_beyond_the_buffer_is_refused_when_it_is_announced() {
    let limits = Limits { request_bytes_max: 100, ..Limits::default() };
    let error = |data: &[u8]| commands(data, limits).1;
    assert_eq!(error(b"*1\r\n$90\r\n"), Some(ProtocolError::RequestTooLarge));
    assert_eq!(error(b"*1\r\n$89\r\n"), None);
    assert_eq!(error(&[b'x'; 99]), None);
    assert_eq!(error(&[b'x'; 100]), Some(ProtocolError::RequestTooLarge));
    let limits = Limits { bulk_bytes_max: u64::MAX, request_bytes_max: u32::MAX, ..Limits::default() };
    let huge = b"*1\r\n$4294967296\r\n";
    assert_eq!(commands(huge, limits).1, Some(ProtocolError::RequestTooLarge));
}

#[test]
fn a_limit_lowered_in_the_middle_of_a_request_ends_it() {
    for arrived in [&b"*2\r\n$300\r\nabc"[..], &[&b"*2\r\n$50\r\n"[..], &[b'x'; 52], b"$5"].concat()] {
        let mut parser = Parser::new(Limits::default());
        let mut ranges = Vec::new();
        assert_eq!(parser.next(arrived, &mut ranges), Ok(None));
        parser.set_limits(Limits { request_bytes_max: 30, ..Limits::default() });
        assert_eq!(parser.next(arrived, &mut ranges), Err(ProtocolError::RequestTooLarge));
    }
}

#[test]
fn what_a_client_claims_is_not_allocated() {
    let mut parser = Parser::new(Limits::default());
    let mut ranges = Vec::new();
    let data = b"*2147483647\r\n$536870912\r\nabc";
    assert_eq!(parser.next(data, &mut ranges), Ok(None));
    assert_eq!(ranges.capacity(), 0);
    assert_eq!(parser.needed(), 536_870_912 + 2 - 3);
}

#[test]
fn needed_counts_down_while_an_argument_arrives() {
    let mut data = b"*2\r\n$3\r\nSET\r\n$100000\r\n".to_vec();
    let start = data.len();
    data.resize(start + 100_002, b'v');
    let mut parser = Parser::new(Limits::default());
    let mut ranges = Vec::new();
    assert_eq!(parser.next(&data[..start - 1], &mut ranges), Ok(None));
    assert_eq!(parser.needed(), 1);
    for arrived in [0, 1, 50_000, 100_001] {
        assert_eq!(parser.next(&data[..start + arrived], &mut ranges), Ok(None));
        assert_eq!(parser.needed(), 100_002 - arrived);
    }
    let request = parser.next(&data, &mut ranges).unwrap().unwrap();
    assert_eq!(request, Request::Ranges { bytes: data.len() });
    assert_eq!(ranges, [8..11, start as u32..start as u32 + 100_000]);
}

#[test]
fn the_callers_ranges_may_be_shared_between_connections() {
    let mut ranges = Vec::new();
    let mut slow = Parser::new(Limits::default());
    let mut other = Parser::new(Limits::default());
    let data = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    assert_eq!(slow.next(&data[..15], &mut ranges), Ok(None));
    assert!(other.next(b"PING a b c d e f\r\n", &mut ranges).unwrap().is_some());
    let request = slow.next(data, &mut ranges).unwrap().unwrap();
    let expected: OwnedArgs = ["GET", "k"].into_iter().collect();
    assert_eq!(request.args(data, &ranges).to_owned_args(), expected);
}

/// A line that was searched in part must not make the parser skip the beginning of the next one.
#[test]
fn a_line_that_arrives_in_two_parts_does_not_hide_the_next_one() {
    let data = b"*2\r\n$3\r\nGET\r\nx\r\n";
    let mut parser = Parser::new(Limits::default());
    let mut ranges = Vec::new();
    for arrived in [2, 6] {
        assert_eq!(parser.next(&data[..arrived], &mut ranges), Ok(None));
    }
    assert_eq!(parser.next(data, &mut ranges), Err(ProtocolError::ExpectedDollar(b'x')));
}

/// A request whose arguments were looked at again with each piece would make this look at 200 GB.
#[test]
fn a_request_of_many_arguments_in_small_pieces_is_parsed_once() {
    let mut data = b"*200000\r\n".to_vec();
    data.extend(b"$3\r\nabc\r\n".repeat(200_000));
    let mut parser = Parser::new(Limits::default());
    let mut ranges = Vec::new();
    for arrived in (0..data.len()).step_by(7) {
        assert_eq!(parser.next(&data[..arrived], &mut ranges), Ok(None));
    }
    assert_eq!(parser.next(&data, &mut ranges), Ok(Some(Request::Ranges { bytes: data.len() })));
    assert_eq!(ranges.len(), 200_000);
}
