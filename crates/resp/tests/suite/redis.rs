//! Parser and encoder beside a real redis-server: the same bytes, the same commands, the same error, the same end.
//!
//! Nearly every command sent here has a name that no server knows, so that redis-server answers it by quoting what it
//! parsed. The tests start a redis-server of their own, found in PATH, on a unix socket in a fresh directory; they fail
//! if there is none.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use haypile_resp::decode::decode;
use haypile_resp::{Args, Limits, Parser, Protocol, Reply, Request};

use crate::parser_random::{ALPHABET, damage, pipeline};
use crate::random::cases;

/// A redis-server that ends with the test.
struct Redis {
    child: Child,
    dir: PathBuf,
}

impl Redis {
    fn start(arguments: &[&str]) -> Redis {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let dir = env::temp_dir().join(format!("haypile-resp-{}-{number}", process::id()));
        fs::create_dir(&dir).expect("a fresh directory");
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(dir.join("socket"))
            .arg("--dir")
            .arg(&dir)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server is in PATH (apt-get install redis-server, or run `make test`)");
        let mut redis = Redis { child, dir };
        let output = redis.child.stdout.take().expect("a pipe");
        let mut lines = BufReader::new(output).lines().map(|line| line.expect("a readable line"));
        assert!(
            lines.any(|line| line.contains("ready to accept connections")),
            "redis-server ended before it was ready"
        );
        // The pipe is read to its end, so that the server never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        redis
    }

    /// Sends `data`, and if `closes` is false the end of the stream; returns all that comes back until the server
    /// closes.
    fn answer(&self, data: &[u8], closes: bool) -> Vec<u8> {
        let mut stream = UnixStream::connect(self.dir.join("socket")).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        match stream.write_all(data) {
            Ok(()) => {}
            // The server may have closed before it has read everything.
            Err(error) if closes && error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) => panic!("cannot send: {error}"),
        }
        if !closes {
            stream.shutdown(Shutdown::Write).expect("an open connection");
        }
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            // The server closed with some of our bytes unread; its bytes before that have been read.
            Err(error) if closes && error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("no end after {}: {error}", answer.escape_ascii()),
        }
        answer
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Nothing is left to do if either fails: the test has its result.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns redis-server's expected answer to `data` by our parser, and whether it closes the connection then.
fn expected_answer(data: &[u8], limits: Limits) -> (Vec<u8>, bool) {
    let mut parser = Parser::new(limits);
    let (mut at, mut ranges, mut answer) = (0, Vec::new(), Vec::new());
    loop {
        match parser.next(&data[at..], &mut ranges) {
            Ok(None) => return (answer, false),
            Ok(Some(Request::Empty { bytes })) => at += bytes,
            Ok(Some(request)) => {
                answer_unknown_command(request.args(&data[at..], &ranges), &mut answer);
                at += request.bytes();
            }
            Err(error) => {
                error.write_reply(&mut answer);
                return (answer, true);
            }
        }
    }
}

/// Redis's answer to a command that it does not know: name and arguments as C strings, cut at 128 bytes in all.
fn answer_unknown_command(args: Args, answer: &mut Vec<u8>) {
    let c_string = |arg: &[u8], bytes_max: usize| -> Vec<u8> {
        arg.iter().copied().take_while(|&byte| byte != 0).take(bytes_max).collect()
    };
    let mut quoted: Vec<u8> = Vec::new();
    for arg in args.from(1).iter() {
        if quoted.len() >= 128 {
            break;
        }
        let part = c_string(arg, 128 - quoted.len());
        quoted.extend([b"'", &part[..], b"' "].concat());
    }
    let text = [b"ERR unknown command '", &c_string(args.get(0), 128)[..], b"', with args beginning with: ", &quoted];
    Reply::error_bytes(text.concat()).encode(Protocol::Resp2, answer);
}

fn check(redis: &Redis, data: &[u8], limits: Limits) {
    let (expected, closes) = expected_answer(data, limits);
    let answer = redis.answer(data, closes);
    let shown = &data[..data.len().min(300)];
    assert_eq!(
        answer.escape_ascii().to_string(),
        expected.escape_ascii().to_string(),
        "to {} bytes: {}",
        data.len(),
        shown.escape_ascii()
    );
}

/// Requests, sound and unsound ones, up to the bytes at which something changes.
const REQUESTS: &[&[u8]] = &[
    // Requests as they should be.
    b"*2\r\n$2\r\nzq\r\n$1\r\nk\r\n",
    b"*1\r\n$2\r\nzq\r\n*1\r\n$2\r\nzz\r\n",
    b"*2\r\n$2\r\nzq\r\n$0\r\n\r\n",
    b"*1\r\n$0\r\n\r\n",
    b"*2\r\n$2\r\nzq\r\n$4\r\n\r\n\r\n\r\n",
    b"zq a b\r\n",
    b"zq a b\n",
    b"  zq\ta \x0b b \r\n",
    b"zq\ra\x0bb\r\n",
    b"zq\r\n*1\r\n$2\r\nzq\r\nzq\n",
    // Requests that are none, and are passed over.
    b"\r\n\r\n\n \t\r\nzq\r\n",
    b"*0\r\n*-1\r\n*-9\r\nzq\r\n",
    b"\r\r\nzq\r\n",
    b"\x0b\x0c\r\nzq\r\n",
    // Requests that are not whole.
    b"*",
    b"*1",
    b"*1\r",
    b"*1\r\n",
    b"*1\r\n$",
    b"*1\r\n$2\r",
    b"*1\r\n$2\r\nzq",
    b"*1\r\n$2\r\nzq\r",
    b"*2147483647\r\n$2\r\nzq\r\n",
    b"zq a b",
    b"zq a b\r",
    // Bytes that are not looked at.
    b"*1\rX$2\rYzqZZ",
    b"*1\r\n$2\r\nzqxxzq\r\n",
    b"zq\0a\r\nzq\r\n",
    b"*1\0\r\n$2\r\nzq\r\n",
    b"*1\r\n$2\0\r\nzq\r\n",
    b"*1\r\n\0$2\r\nzq\r\n",
    b"\0zq\r\n",
    // Counts.
    b"*\r\n",
    b"*a\r\n",
    b"*1a\r\n",
    b"* 1\r\n",
    b"*+1\r\n",
    b"*01\r\n",
    b"*00\r\n",
    b"*-\r\n",
    b"*-0\r\n",
    b"*2147483648\r\n",
    b"*-2147483649\r\nzq\r\n",
    b"*-9223372036854775808\r\nzq\r\n",
    b"*-9223372036854775809\r\n",
    b"*99999999999999999999999\r\n",
    b"*1\n$2\nzq\n\r\n",
    // Lengths.
    b"*1\r\n$\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$-0\r\n",
    b"*1\r\n$x\r\n",
    b"*1\r\n$02\r\nzq\r\n",
    b"*1\r\n$2 \r\nzq\r\n",
    b"*1\r\n$536870912\r\nzq\r\n",
    b"*1\r\n$536870913\r\nzq\r\n",
    b"*1\r\n$4294967298\r\nzq\r\n",
    b"*1\r\n$18446744073709551618\r\nzq\r\n",
    // Something else instead of an argument.
    b"*1\r\n:2\r\n",
    b"*1\r\n*1\r\n$2\r\nzq\r\n",
    b"*1\r\n\r\n$2\r\nzq\r\n",
    b"*1\r\n\n\r\n",
    b"*1\r\n\x80\r\n",
    b"*1\r\n'\r\n",
    b"*2\r\n$2\r\nzq\r\nzq\r\n",
    b"*1\r\n2\r\nzq\r\n",
    // Quotes.
    br#"zq "a b" 'c d'"#,
    b"zq \"a b\" 'c d' \"\" ''\r\n",
    b"\"zq\" \"\\x41\\n\\r\\t\\b\\a\\q\\\\\\\"\\xg1\\x4\" '\\'\\n'\r\n",
    b"\"\"\r\n",
    b"zq a\"b c\" d'e f'\r\n",
    b"zq \"a\"\x0b'b'\x0c\r\n",
    b"zq \\n \\\"a\\\"\r\n",
    b"zq \"\\x00\\xff\"\r\n",
    b"zq \"\r\n",
    b"zq '\r\n",
    b"zq \"a\\\"\r\n",
    b"zq 'a\\'\r\n",
    b"zq \"a\"b\r\n",
    b"zq 'a'\"b\"\r\n",
    b"zq a\r\nzq \"a\r\nzq b\r\n",
    // An error ends it all.
    b"*1\r\n$2\r\nzq\r\n*x\r\n*1\r\n$2\r\nzq\r\n",
];

#[test]
fn redis_takes_and_refuses_the_same() {
    let redis = Redis::start(&[]);
    for data in REQUESTS {
        check(&redis, data, Limits::default());
    }
    // Lines of the greatest length, and one byte more.
    for start in [&b"zq"[..], b"*", b"*1\r\n$", b"*1\r\nx"] {
        let line_start = start.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        for len in [65535, 65536, 65537, 65538, 70000] {
            let mut data = start.to_vec();
            data.resize(line_start + len, b'1');
            check(&redis, &data, Limits::default());
        }
    }
    let hidden = [&b"zq\0\r\n"[..], &[b'z'; 65536]].concat();
    check(&redis, &hidden, Limits::default());
}

#[test]
fn redis_asks_for_authentication_at_the_same_point() {
    let redis = Redis::start(&["--requirepass", "secret"]);
    let limits = Limits { authenticated: false, ..Limits::default() };
    for count in [1, 10, 11, 12] {
        let args = b"$2\r\nzq\r\n".repeat(count);
        check(&redis, &[format!("*{count}\r\n").as_bytes(), &args].concat(), limits);
    }
    for len in [16383, 16384, 16385, 536870913] {
        check(&redis, format!("*2\r\n$2\r\nzq\r\n${len}\r\nabc").as_bytes(), limits);
    }
    let arg = vec![b'x'; 16384];
    check(&redis, &[b"*2\r\n$2\r\nzq\r\n$16384\r\n", &arg[..], b"\r\nzq\r\n"].concat(), limits);
    check(&redis, b"zq 1 2 3 4 5 6 7 8 9 10 11 12\r\n", limits);
    check(&redis, b"*2147483648\r\n", limits);
}

#[test]
fn redis_agrees_on_damaged_pipelines() {
    let redis = Redis::start(&[]);
    cases(4_000, |random| {
        let mut data = pipeline(random, 4);
        damage(random, &mut data);
        check(&redis, &data, Limits::default());
    });
}

#[test]
fn redis_agrees_on_noise() {
    let redis = Redis::start(&[]);
    cases(2_000, |random| {
        let noise = random.bytes(ALPHABET, 60);
        check(&redis, &noise, Limits::default());
    });
}

#[test]
fn redis_encodes_its_replies_the_same() {
    let redis = Redis::start(&["--enable-debug-command", "yes"]);
    let integers = || [0, 1, 2].map(Reply::Integer);
    let check = |name: &str, protocol: Protocol, replies: &[Reply]| {
        let version = if protocol == Protocol::Resp2 { 2 } else { 3 };
        let answer = redis.answer(format!("HELLO {version}\r\nDEBUG PROTOCOL {name}\r\n").as_bytes(), false);
        let (_, hello_bytes) = decode(&answer).expect("a reply").expect("a whole reply");
        let mut expected = Vec::new();
        replies.iter().for_each(|reply| reply.encode(protocol, &mut expected));
        let found = answer[hello_bytes..].escape_ascii().to_string();
        assert_eq!(expected.escape_ascii().to_string(), found, "{name} in {protocol:?}");
    };
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let check = |name: &str, reply: Reply| check(name, protocol, &[reply]);
        check("string", Reply::bulk("Hello World"));
        check("integer", Reply::Integer(12345));
        check("double", Reply::Double("3.141".parse().expect("a number")));
        check("null", Reply::Null);
        check("array", Reply::array(integers()));
        check("set", Reply::Set(integers().into()));
        check("map", Reply::Map(integers().into_iter().zip([false, true, false].map(Reply::Boolean)).collect()));
        check("true", Reply::Boolean(true));
        check("false", Reply::Boolean(false));
        check("verbatim", Reply::Verbatim("txt", "This is a verbatim\nstring".into()));
        check("bignum", Reply::BigNumber("1234567999999999999999999999999999999".into()));
        let popularity = Reply::array([Reply::bulk("key:123"), Reply::Integer(90)]);
        let after = Reply::bulk("Some real reply following the attribute");
        check("attrib", Reply::Attribute(vec![(Reply::bulk("key-popularity"), popularity)], Box::new(after)));
    }
    let push = Reply::Push(vec![Reply::bulk("server-cpu-usage"), Reply::Integer(42)]);
    check("push", Protocol::Resp3, &[push, Reply::bulk("Some real reply following the push reply")]);
}
