//! Replies of scripts, as redis-server 7.0 gives them: each row is a script and its reply.

use haypile_resp::{Args, Protocol, Reply};
use haypile_script::{
    Bounds, Halted, Interpreter, LibraryHead, LogLevel, Outcome, Program, Run, Server, functions_of, sha1_hex,
};
use std::sync::Arc;

/// A server that knows a handful of commands.
#[derive(Default)]
struct Fake {
    /// Calls after which the run is ended.
    calls_max: Option<u32>,
    /// Instructions, in some thousands, after which the run is ended.
    steps_max: Option<u32>,
    calls: u32,
    asked: u32,
    steps: u32,
    logged: Vec<String>,
}

impl Server for Fake {
    fn call(&mut self, args: Args<'_>) -> Result<Reply, Halted> {
        self.calls += 1;
        if self.calls_max.is_some_and(|max| self.calls > max) {
            return Err(Halted::Dropped);
        }
        Ok(match args.get(0) {
            b"echo" => Reply::bulk(args.get(1).to_vec()),
            b"ping" => Reply::Simple("PONG"),
            b"null" => Reply::Null,
            b"count" => Reply::Integer(7),
            b"list" => Reply::array([Reply::bulk(&b"a"[..]), Reply::Null, Reply::Integer(3)]),
            b"map" => Reply::Map(vec![(Reply::bulk(&b"k"[..]), Reply::bulk(&b"v"[..]))]),
            b"set" => Reply::Set(vec![Reply::bulk(&b"m"[..])]),
            b"double" => Reply::Double(1.5),
            b"big" => Reply::BigNumber("123".to_owned()),
            b"text" => Reply::Verbatim("txt", haypile_resp::Bytes::from(b"abc".to_vec())),
            b"boolean" => Reply::Boolean(true),
            b"nested" => Reply::array([Reply::error("ERR inner"), Reply::array([Reply::Simple("OK")])]),
            _ => Reply::error("ERR Unknown Redis command called from script"),
        })
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn permits(&mut self, args: Args<'_>) -> Option<bool> {
        (args.get(0) == b"get").then_some(true)
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        self.logged.push(format!("{level:?} {}", String::from_utf8_lossy(text)));
    }

    fn takes_long(&mut self) -> Result<(), Halted> {
        self.asked += 1;
        Ok(())
    }

    fn goes_on(&mut self) -> Result<(), Halted> {
        self.steps += 1;
        match self.steps_max {
            Some(max) if self.steps > max => Err(Halted::Failed("ERR too long".to_owned())),
            _ => Ok(()),
        }
    }
}

fn interpreter() -> Interpreter {
    Interpreter::new("7.2.0", Bounds { memory_bytes: 16 << 20 }).expect("an interpreter")
}

fn run_on(interpreter: &mut Interpreter, text: &[u8], server: &mut Fake) -> Outcome {
    let name = sha1_hex(text);
    let run = Run {
        name: &name,
        program: Program::Script { text, head_bytes: 0 },
        keys: &[b"key"],
        args: &[b"one", b"two"],
        seed: 9,
        memory_bytes: 16 << 20,
    };
    interpreter.run(&run, server)
}

fn shown(outcome: Outcome, protocol: Protocol) -> String {
    match outcome {
        Outcome::Halted(why) => format!("{why:?}"),
        Outcome::Reply(reply) => {
            let mut bytes = Vec::new();
            reply.encode(protocol, &mut bytes);
            bytes
                .escape_ascii()
                .to_string()
                .replace("\\r\\n", " ")
                .replace("\\\"", "\"")
                .replace("\\'", "'")
                .trim_end()
                .to_owned()
        }
    }
}

/// Runs each script, twice in one interpreter, and compares the reply. `SHA` stands for the script's name.
fn check_as(protocol: Protocol, rows: &[(&str, &str)]) {
    let mut interpreter = interpreter();
    let mut wrong = Vec::new();
    for (text, expected) in rows {
        for _ in 0..2 {
            let reply = shown(run_on(&mut interpreter, text.as_bytes(), &mut Fake::default()), protocol);
            let reply = reply.replace(&sha1_hex(text.as_bytes()), "SHA");
            if reply != *expected {
                wrong.push(format!("{text}\n  expected {expected}\n  answered {reply}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn check(rows: &[(&str, &str)]) {
    check_as(Protocol::Resp2, rows);
}

#[test]
fn what_a_script_returns_becomes_a_reply() {
    check(&[
        ("return 3.99", ":3"),
        ("return -3.99", ":-3"),
        ("return 1e300", ":-9223372036854775808"),
        ("return 0/0", ":-9223372036854775808"),
        ("return true", ":1"),
        ("return false", "$-1"),
        ("return nil", "$-1"),
        ("return", "$-1"),
        ("return function() end", "$-1"),
        ("return {1,2.9,-2.9,'x',true,false,{3}}", "*7 :1 :2 :-2 $1 x :1 $-1 *1 :3"),
        ("return {1,2,nil,4}", "*2 :1 :2"),
        ("return {err='boo', ok='x'}", "-boo"),
        ("return {err=1}", "*0"),
        ("return {ok='line\\r\\nother'}", "+line  other"),
        ("return {double=3.5}", "$3 3.5"),
        ("return {{double=3}, {double=-0.0}}", "*2 $1 3 $2 -0"),
        ("return {map={a=1}}", "*2 $1 a :1"),
        ("return {set={a=true}}", "*1 $1 a"),
        ("return {big_number='123'}", "$3 123"),
        ("return {verbatim_string={string='abc',format='txt'}}", "$3 abc"),
        ("return {double='x'}", "*0"),
        ("return {KEYS[1], ARGV[2], #KEYS, #ARGV}", "*4 $3 key $3 two :1 :2"),
        ("redis.setresp(3) return true", ":1"),
        ("redis.setresp(3) return false", ":0"),
        ("return {ok='x',1,2}", "+x"),
    ]);
    check_as(
        Protocol::Resp3,
        &[
            ("return true", ":1"),
            ("return false", "_"),
            ("redis.setresp(3) return true", "#t"),
            ("redis.setresp(3) return false", "#f"),
            ("return {map={a=1}}", "%1 $1 a :1"),
            ("return {double=1.5}", ",1.5"),
            ("return {big_number='12\\r3'}", "(12 3"),
            ("return {verbatim_string={string='abc',format='mkd'}}", "=7 mkd:abc"),
            ("redis.setresp(3) return redis.call('map')", "%1 $1 k $1 v"),
        ],
    );
}

#[test]
fn replies_become_values_of_lua() {
    check(&[
        ("return redis.call('echo', 'x')", "$1 x"),
        ("return redis.call('echo', 1.5)", "$3 1.5"),
        ("return redis.call('echo', 0.1)", "$3 0.1"),
        ("return redis.call('echo', 1e100)", "$6 1e+100"),
        ("return redis.call('echo', 12345678901234567)", "$17 12345678901234568"),
        ("return redis.call('ping').ok", "$4 PONG"),
        ("return tostring(redis.call('null'))", "$5 false"),
        ("return redis.call('count') + 1", ":8"),
        ("local l = redis.call('list') return {l[1], tostring(l[2]), l[3], #l}", "*4 $1 a $5 false :3 :3"),
        ("local m = redis.call('map') return {m[1], m[2]}", "*2 $1 k $1 v"),
        ("return redis.call('double')", "$3 1.5"),
        ("return redis.call('boolean')", ":1"),
        ("local n = redis.call('nested') return {n[1].err, n[2][1].ok}", "*2 $9 ERR inner $2 OK"),
        ("redis.setresp(3) return tostring(redis.call('null'))", "$3 nil"),
        ("redis.setresp(3) return redis.call('map').map.k", "$1 v"),
        ("redis.setresp(3) return tostring(redis.call('set').set.m)", "$4 true"),
        ("redis.setresp(3) return tostring(redis.call('double').double)", "$3 1.5"),
        ("redis.setresp(3) return redis.call('big').big_number", "$3 123"),
        ("redis.setresp(3) local t = redis.call('text').verbatim_string return t.format .. t.string", "$6 txtabc"),
        ("redis.setresp(3) return tostring(redis.call('boolean'))", "$4 true"),
        (
            "local co = coroutine.create(function() return redis.call('ping') end) \
          local ok, v = coroutine.resume(co) return {tostring(ok), v}",
            "*2 $4 true +PONG",
        ),
    ]);
}

#[test]
fn errors_say_what_and_where() {
    const UNKNOWN: &str = "-ERR Unknown Redis command called from script script: SHA, on @user_script:1.";
    check(&[
        ("return redis.call('nosuch')", UNKNOWN),
        ("local x = redis.call('nosuch') return x", UNKNOWN),
        ("local co = coroutine.wrap(function() return redis.call('nosuch') end) return co()", UNKNOWN),
        (
            "\n\nreturn redis.call('nosuch')",
            "-ERR Unknown Redis command called from script script: SHA, on @user_script:3.",
        ),
        (
            "local function f()\nreturn redis.call('nosuch')\nend\nreturn f()",
            "-ERR Unknown Redis command called from script script: SHA, on @user_script:2.",
        ),
        ("return redis.pcall('nosuch')", "-ERR Unknown Redis command called from script"),
        (
            "return redis.call()",
            "-ERR Please specify at least one argument for this redis lib call script: SHA, on @user_script:1.",
        ),
        (
            "return redis.call('set', {})",
            "-ERR Lua redis lib command arguments must be strings or integers script: SHA, on @user_script:1.",
        ),
        ("x x", "-ERR Error compiling script (new function): user_script:1: '=' expected near 'x'"),
        ("error('x')", "-ERR user_script:1: x script: SHA, on @user_script:1."),
        ("error('x', 0)", "-ERR x script: SHA, on @user_script:1."),
        ("error('x', 2)", "-ERR x script: SHA, on @user_script:1."),
        ("error({err='X y', source='z', line=7})", "-X y script: SHA, on @user_script:1."),
        ("error(5)", "-ERR user_script:1: 5 script: SHA, on @user_script:1."),
        ("error(nil)", "-ERR nil script: SHA, on @user_script:1."),
        ("error(true)", "-ERR true script: SHA, on @user_script:1."),
        (
            "local t = {} return t.x.y",
            "-ERR user_script:1: attempt to index field 'x' (a nil value) script: SHA, on @user_script:1.",
        ),
        ("return {1}..2", "-ERR user_script:1: attempt to concatenate a table value script: SHA, on @user_script:1."),
        (
            "local function f() return 1 + f() end return f()",
            "-ERR user_script:1: stack overflow script: SHA, on @user_script:1.",
        ),
        (
            "local x = string.rep()",
            "-ERR user_script:1: bad argument #1 to 'rep' (string expected, got no value) script: SHA, on @user_script:1.",
        ),
        (
            "local p = pairs(nil) return p",
            "-ERR user_script:1: bad argument #1 to 'pairs' (table expected, got nil) script: SHA, on @user_script:1.",
        ),
        (
            "return {tostring(xpcall(function() error('a') end))}",
            "-ERR user_script:1: bad argument #2 to 'xpcall' (value expected) script: SHA, on @user_script:1.",
        ),
        (
            "return loadstring('x=1')()",
            "-ERR [string \"x=1\"]:1: Attempt to modify a readonly table script: SHA, on x=1:1.",
        ),
        ("return loadstring('error([[b]])', '@foo')()", "-ERR foo:1: b script: SHA, on @foo:1."),
        ("return redis.sha1hex()", "-ERR wrong number of arguments script: SHA, on @user_script:1."),
        ("return redis.log(1)", "-ERR redis.log() requires two arguments or more. script: SHA, on @user_script:1."),
        ("return redis.log(9,'a')", "-ERR Invalid debug level. script: SHA, on @user_script:1."),
        (
            "return redis.log('x','a')",
            "-ERR First argument must be a number (log level). script: SHA, on @user_script:1.",
        ),
        ("redis.setresp(4)", "-ERR RESP version must be 2 or 3. script: SHA, on @user_script:1."),
        ("redis.setresp()", "-ERR redis.setresp() requires one argument. script: SHA, on @user_script:1."),
        (
            "return redis.set_repl(9)",
            "-ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE. script: SHA, on @user_script:1.",
        ),
        (
            "return redis.acl_check_cmd('nosuch')",
            "-ERR Invalid command passed to redis.acl_check_cmd() script: SHA, on @user_script:1.",
        ),
        ("return redis.error_reply()", "-ERR wrong number or type of arguments"),
        ("return redis.error_reply('My Err')", "-My Err"),
        ("return redis.error_reply('-My Err')", "-My Err"),
        ("return redis.error_reply('x')", "-ERR x"),
        ("return redis.error_reply('')", "-ERR"),
        ("return redis.status_reply('fine')", "+fine"),
        ("return redis.sha1hex('')", "$40 da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("return redis.sha1hex(1)", "$40 356a192b7913b04c54574d18c28d46e6395428ab"),
        ("return redis.replicate_commands()", ":1"),
        ("return redis.REDIS_VERSION_NUM", ":459264"),
    ]);
}

#[test]
fn what_a_script_catches_is_what_redis_raises() {
    check(&[
        (
            "local ok, e = pcall(redis.call, 'nosuch') return {tostring(ok), e}",
            "*2 $5 false $44 ERR Unknown Redis command called from script",
        ),
        (
            "local ok, e = pcall(function() local x = nil + 1 end) return {type(e), e}",
            "*2 $6 string $59 user_script:1: attempt to perform arithmetic on a nil value",
        ),
        ("local ok, e = pcall(error, {1}) return {type(e), e[1]}", "*2 $5 table :1"),
        ("local ok, e = pcall(error, 'x') return e", "$1 x"),
        ("return tostring(pcall())", "$4 true"),
        ("return tostring(pcall(pcall))", "$4 true"),
        (
            "return {xpcall(function() return redis.call('nosuch') end, function(e) return type(e) .. e.err end)}",
            "*2 $-1 $49 tableERR Unknown Redis command called from script",
        ),
        (
            "local co = coroutine.create(function() return redis.call('nosuch') end) \
          local ok, e = coroutine.resume(co) return {type(e), e.err}",
            "*2 $5 table $44 ERR Unknown Redis command called from script",
        ),
        (
            "local ok, e = pcall(cjson.decode, '') return e",
            "$60 user_script:1: Expected value but found T_END at character 1",
        ),
    ]);
}

#[test]
fn globals_cannot_be_written_to() {
    const AT: &str = "-ERR user_script:1: Attempt to modify a readonly table script: SHA, on @user_script:1.";
    check(&[
        ("x = 1", AT),
        ("function f() end", AT),
        ("_G.x = 1", AT),
        ("KEYS = 1", AT),
        ("redis.x = 1", AT),
        ("redis.call = nil", AT),
        ("string.upper = nil", AT),
        ("math.pi = 3", AT),
        ("cjson.null = 1", AT),
        ("getmetatable('').__index = 1", AT),
        ("getmetatable(_G).__index = 1", AT),
        ("rawset(_G, 'a', 1)", "-ERR Attempt to modify a readonly table script: SHA, on @user_script:1."),
        (
            "return x",
            "-ERR user_script:1: Script attempted to access nonexistent global variable 'x' script: SHA, on @user_script:1.",
        ),
        (
            "return _G.x",
            "-ERR user_script:1: Script attempted to access nonexistent global variable 'x' script: SHA, on @user_script:1.",
        ),
        ("return tostring(rawget(_G, 'x'))", "$3 nil"),
        ("return tostring(rawget(_G, 'type') == type)", "$4 true"),
        ("return tostring(_G.redis == redis)", "$4 true"),
        ("KEYS[1] = 'z' return KEYS[1]", "$1 z"),
        ("table.insert(_G, 1)", "-ERR Attempt to modify a readonly table script: SHA, on @user_script:1."),
        ("return loadstring('return ...')(4)", ":4"),
        (
            "return loadstring(string.dump(function() return 7 end))()",
            "-ERR user_script:1: attempt to call a nil value script: SHA, on @user_script:1.",
        ),
        ("return load(function() return nil end)", "$-1"),
        ("return type(getmetatable('').__index)", "$5 table"),
        ("return ('x'):upper()", "$1 X"),
        ("return tostring(_VERSION)", "$7 Lua 5.1"),
    ]);
}

#[test]
fn the_server_is_asked_before_what_nothing_interrupts() {
    let mut interpreter = interpreter();
    let mut asks = |text: &str, expected: &str, asked: u32| {
        let mut server = Fake::default();
        let reply = shown(run_on(&mut interpreter, text.as_bytes(), &mut server), Protocol::Resp2);
        assert_eq!((reply.as_str(), server.asked), (expected, asked), "{text}");
    };
    asks("return string.find('a short text', '(.-) (.-)$')", ":1", 0);
    asks("return string.find(string.rep('a', 25), string.rep('a?', 25))", ":1", 1);
    asks("return (('x'):rep(1200):match('^(.-)y'))", "$-1", 1);
    asks("return #string.rep('x', 2e6)", ":2000000", 1);
    asks("return #cjson.decode('\"' .. string.rep('x', 1e5) .. '\"')", ":100000", 1);
    asks("return cmsgpack.unpack(cmsgpack.pack(string.rep('x', 10)))", "$10 xxxxxxxxxx", 0);
    asks("return string.gsub('abc', 'b', '%1')", "$3 abc", 0);
    asks("return string.find('192.168.100.200', '^(%d+)%.(%d+)%.(%d+)%.(%d+)$')", ":1", 0);
    asks("return string.find('2024-01-15', '(%d+)-(%d+)-(%d+)')", ":1", 0);
    asks("return string.find('some_key-of:16+1', '^[]a-zA-Z0-9_:%]*?+-]+$')", ":1", 0);
    asks("return string.find('a-*b', '^()a[^%-]?*+(-+)')", "$-1", 0);
    asks("return string.find(string.rep('(', 2000), '%b()')", "$-1", 1);
    asks("return string.find(string.rep('a', 2e4), '^[' .. string.rep('b', 1e4) .. ']')", "$-1", 1);
    asks("return string.find(string.rep('a', 16), string.rep('a?', 16) .. string.rep('a', 16))", ":1", 1);
    asks("return string.find(string.rep('-', 100), string.rep('-', 50), 1, true)", ":1", 0);
    let started = std::time::Instant::now();
    asks("return #string.rep('', 2147483647)", ":0", 0);
    assert!(started.elapsed().as_secs() < 1, "empty texts are not put together one by one");
}

#[test]
fn no_pattern_overflows_the_stack_of_a_thread() {
    check(&[
        ("return {pcall(string.find, '', string.rep('a*', 200000))}", "*2 $-1 $19 pattern too complex"),
        (
            "local x = string.gsub('', string.rep('a-', 501), '')",
            "-ERR user_script:1: pattern too complex script: SHA, on @user_script:1.",
        ),
        ("return string.find(string.rep('-', 2000), string.rep('-', 1000), 1, true)", ":1"),
        ("return string.find('', string.rep('%-', 1000))", "$-1"),
    ]);
    // The most quantifiers at every depth of calls out of each other.
    const NESTED: &str = "local deep, text, pattern = 0, string.rep('ab', 250), string.rep('@', 250) \
        local function nest(depth) \
            deep = depth \
            string.find(text, pattern) string.find('', pattern) \
            string.gsub('a', 'a', function() nest(depth + 1) end) \
        end \
        local ok, why = pcall(nest, 0) \
        assert(why:find('stack overflow', 1, true), why) \
        return tostring(deep > 150)";
    for pair in ["a*b*", "a?b?", "a-b-", "a+b+"] {
        let run = move || {
            let text = NESTED.replace('@', pair);
            shown(run_on(&mut interpreter(), text.as_bytes(), &mut Fake::default()), Protocol::Resp2)
        };
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).expect("a thread");
        assert_eq!(thread.join().expect("it ends"), "$4 true", "{pair}");
    }
}

#[test]
fn lines_of_the_log_are_cut() {
    let mut server = Fake::default();
    let text =
        b"redis.log(2, string.rep('x', 5000), 'y') redis.log(2, string.rep('x', 1000), string.rep('y', 1000), 'z')";
    assert_eq!(shown(run_on(&mut interpreter(), text, &mut server), Protocol::Resp2), "$-1");
    let second = format!("Notice {} {}", "x".repeat(1000), "y".repeat(23));
    assert_eq!(server.logged, [format!("Notice {}", "x".repeat(1024)), second]);
}

#[test]
fn functions_that_are_guarded_fail_as_their_own() {
    const AT: &str = "script: SHA, on @user_script:1.";
    for (text, expected) in [
        ("local x = string.find('a', '%')", "-ERR user_script:1: malformed pattern (ends with '%') "),
        (
            "local x = string.find(nil, 'a')",
            "-ERR user_script:1: bad argument #1 to 'find' (string expected, got nil) ",
        ),
        ("local x = ('a'):match()", "-ERR user_script:1: bad argument #2 to 'match' (string expected, got no value) "),
        ("local x = string.rep('a')", "-ERR user_script:1: bad argument #2 to 'rep' (number expected, got no value) "),
    ] {
        check(&[(text, &format!("{expected}{AT}"))]);
    }
    check(&[
        ("local ok, e = pcall(string.find, 'a', '%') return e", "$33 malformed pattern (ends with '%')"),
        ("return {string.find('a.b', '.', 1, true)}", "*2 :2 :2"),
        ("return {(string.gsub('hello', 'l', function(x) return x .. x end))}", "*1 $7 hellllo"),
        ("local t = {} for w in string.gmatch('a b', '%a') do t[#t + 1] = w end return t", "*2 $1 a $1 b"),
        ("return string.find(123, 2)", ":2"),
    ]);
}

#[test]
fn a_run_that_was_ended_stays_ended_whatever_a_script_catches() {
    let mut interpreter = interpreter();
    let mut ends = |text: &str, server: &mut Fake, expected: &str| {
        assert_eq!(shown(run_on(&mut interpreter, text.as_bytes(), server), Protocol::Resp2), expected, "{text}");
    };
    let calls = || Fake { calls_max: Some(3), ..Fake::default() };
    let steps = || Fake { steps_max: Some(5), ..Fake::default() };
    for body in [
        "redis.call('ping')",
        "pcall(redis.call, 'ping')",
        "xpcall(function() redis.call('ping') end, function() redis.call('ping') end)",
        "coroutine.resume(coroutine.create(function() redis.call('ping') end))",
        "load(function() redis.call('ping') end)",
        "pcall(coroutine.wrap(function() redis.pcall('ping') end))",
        "pcall(string.gsub, 'a', 'a', function() redis.call('ping') end)",
        "pcall(table.sort, {1, 2}, function() redis.call('ping') end)",
        "pcall(setmetatable({}, {__index = function() redis.call('ping') end}).x)",
    ] {
        ends(&format!("while true do {body} end"), &mut calls(), "Dropped");
    }
    for body in [
        "",
        "pcall(function() while true do end end)",
        "local co = coroutine.wrap(function() while true do end end) co()",
    ] {
        ends(&format!("while true do {body} end"), &mut steps(), "Failed(\"ERR too long\")");
    }
    ends("return redis.call('ping')", &mut Fake::default(), "+PONG");
}

#[test]
fn what_the_host_does_for_a_script_is_bounded() {
    let mut interpreter = interpreter();
    let mut answers = |text: &str, expected: &str| {
        let reply = shown(run_on(&mut interpreter, text.as_bytes(), &mut Fake::default()), Protocol::Resp2);
        assert!(reply.contains(expected), "{text}: {}", &reply[..reply.len().min(300)]);
    };
    answers(
        "cjson.encode_max_depth(2147483647) local t = {} t[1] = t return cjson.encode(t)",
        "excessive nesting (1001)",
    );
    answers("local t = {} for i = 1, 40 do t = {t, t} end return t", "would be too long");
    answers(
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 1000 do t[i] = s end return t",
        "would be too long",
    );
    for library in ["cjson.encode", "cmsgpack.pack"] {
        let many = "local t = {string.rep('x', 1000)} for i = 1, 15 do t = {t, t, t, t, t, t, t, t, t, t} end";
        answers(&format!("{many} return #{library}(t)"), "would be too long");
        let long = "local s = string.rep('x', 1e6) local t = {} for i = 1, 1000 do t[i] = s end";
        answers(&format!("{long} return #{library}(t)"), "would be too long");
    }
    for call in ["redis.call", "redis.acl_check_cmd"] {
        let long = "local s = string.rep('x', 1e6) local t = {} for i = 1, 600 do t[i] = s end";
        answers(&format!("{long} return {call}('get', unpack(t))"), "arguments of the call are longer than 512 MB");
    }
    answers("local s = string.rep('x', 1e6) return #redis.call('echo', s, s, s)", ":1000000");
    answers("cjson.encode_sparse_array(false, 0) return cjson.encode({[2^50] = 1})", "would be too long");
    // On an event loop much of it is left to the I/O pool.
    struct OnLoop;
    impl Server for OnLoop {
        fn call(&mut self, _: Args<'_>) -> Result<Reply, Halted> {
            Ok(Reply::ok())
        }
        fn set_protocol(&mut self, _: Protocol) {}
        fn permits(&mut self, _: Args<'_>) -> Option<bool> {
            None
        }
        fn log(&mut self, _: LogLevel, _: &[u8]) {}
        fn takes_long(&mut self) -> Result<(), Halted> {
            Err(Halted::Dropped)
        }
        fn goes_on(&mut self) -> Result<(), Halted> {
            Ok(())
        }
    }
    for text in [
        "local t = {} for i = 1, 20 do t = {t, t} end return t",
        "local t = {} for i = 1, 20000 do t[i] = i end return cjson.encode(t)",
        "local t = {} for i = 1, 20000 do t[i] = i end table.sort(t)",
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "local t = {1} for i = 1, 15 do t = {t, t, t, t, t, t, t, t, t, t} end return #cmsgpack.pack(t)",
        "local s, t = string.rep('x', 1e6), {} for i = 1, 500 do t[i] = s end return #cmsgpack.pack(t)",
        "local s, t = string.rep('x', 1e6), {} for i = 1, 500 do t[i] = s end return #cjson.encode(t)",
        "local s = string.rep('x', 1e6) redis.call('echo', s, s)",
        "local s = string.rep('x', 1e6) redis.pcall('echo', s, s)",
        "local s = string.rep('x', 1e6) return redis.acl_check_cmd('echo', s, s)",
        "local ok = pcall(function() local t = {} for i = 1, 1e9 do t[i] = {} end end) return 1",
        "local s = '[' .. string.rep('[],', 1000) .. '1]' local t = {} for i = 1, 1e6 do t[i] = cjson.decode(s) end",
    ] {
        let run = Run {
            name: "x",
            program: Program::Script { text: text.as_bytes(), head_bytes: 0 },
            keys: &[],
            args: &[],
            seed: 1,
            memory_bytes: 4 << 20,
        };
        let mut interpreter = Interpreter::new("7.2.0", Bounds { memory_bytes: 64 << 20 }).expect("an interpreter");
        assert_eq!(shown(interpreter.run(&run, &mut OnLoop), Protocol::Resp2), "Dropped", "{text}");
    }
}

/// Loads a library; the names of its functions, or the error.
fn loaded(body: &str) -> String {
    let text = format!("#!lua name=a\n{body}");
    let head = LibraryHead::of_library(text.as_bytes()).expect("its first line is right");
    match functions_of("7.2.0", text.as_bytes(), head.bytes, &mut |_, _| {}) {
        Ok(functions) => {
            functions.iter().map(|f| String::from_utf8_lossy(&f.name).into_owned()).collect::<Vec<_>>().join(" ")
        }
        Err(why) => String::from_utf8_lossy(&why).into_owned(),
    }
}

#[test]
fn libraries_register_functions_and_see_nothing_else_meanwhile() {
    const F: &str = "callback = function() end";
    const REGISTERING: &str = "ERR Error registering functions: ERR ";
    for (body, expected) in [
        (
            "redis.register_function('f', function() end) redis.register_function{function_name='G_1', callback=print2}",
            "f G_1",
        ),
        ("redis.register_function(1, function() end)", "1"),
        ("return 1", "ERR No functions registered"),
        ("x(", "ERR Error compiling function: user_function:2: unexpected symbol near '<eof>'"),
    ] {
        let body = body.replace("print2", "function() end");
        assert_eq!(loaded(&body), expected, "{body}");
    }
    for (body, expected) in [
        ("x = 1", "user_function:2: Attempt to modify a readonly table"),
        ("redis.foo = 1", "user_function:2: Attempt to modify a readonly table"),
        ("print(1)", "user_function:2: Script attempted to access nonexistent global variable 'print'"),
        ("local x = math", "user_function:2: Script attempted to access nonexistent global variable 'math'"),
        ("redis.call('PING')", "user_function:2: Script attempted to access nonexistent global variable 'call'"),
        ("local x = nil x.y = 1", "user_function:2: attempt to index local 'x' (a nil value)"),
        ("for i = 1, 1e12 do end", "FUNCTION LOAD timeout"),
        ("redis.register_function()", "wrong number of arguments to redis.register_function"),
        ("redis.register_function(1, 2, 3)", "wrong number of arguments to redis.register_function"),
        (
            "redis.register_function('f')",
            "calling redis.register_function with a single argument is only applicable to Lua table (representing named \
             arguments).",
        ),
        ("redis.register_function('f', 1)", "second argument to redis.register_function must be a function"),
        ("redis.register_function({}, {})", "first argument to redis.register_function must be a string"),
        ("redis.register_function{function_name='f'}", "redis.register_function must get a callback argument"),
        ("redis.register_function{@}", "redis.register_function must get a function name argument"),
        (
            "redis.register_function{function_name='f', callback=1}",
            "callback argument given to redis.register_function must be a function",
        ),
        ("redis.register_function{function_name='f', @, foo=1}", "unknown argument given to redis.register_function"),
        (
            "redis.register_function{function_name='f', @, [true]=1}",
            "named argument key given to redis.register_function is not a string",
        ),
        (
            "redis.register_function{function_name='f', @, flags='x'}",
            "flags argument to redis.register_function must be a table representing function flags",
        ),
        ("redis.register_function{function_name='f', @, flags={'x'}}", "unknown flag given"),
        (
            "redis.register_function('f', function() end) redis.register_function('f', function() end)",
            "Function already exists in the library",
        ),
        (
            "redis.register_function('f-g', function() end)",
            "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ),
    ] {
        let body = body.replace('@', F);
        assert_eq!(loaded(&body), format!("{REGISTERING}{expected}"), "{body}");
    }
    assert!(loaded("local t = {} for i = 1, 1e9 do t[i] = {} end").contains("not enough memory"));
}

#[test]
fn functions_get_keys_and_arguments_and_keep_their_locals() {
    let text = b"#!lua name=a\nlocal n = 0 local r = redis\n\
        redis.register_function('count', function() n = n + 1 return n end)\n\
        redis.register_function('both', function(keys, args) return {keys, args, KEYS == nil} end)\n\
        redis.register_function('inputs', function(keys, args) return {keys, args} end)\n\
        redis.register_function('call', function() return redis.call('echo', 'x') end)\n\
        redis.register_function('early', function() return r.call('echo', 'x') end)\n\
        redis.register_function('fails', function()\nerror('boo') end)\n\
        redis.register_function('late', function() r.register_function('g', function() end) end)\n\
        redis.register_function('libraries', function() return cjson.encode({math.abs(-1)}) .. type(pairs) end)\n\
        redis.log(redis.LOG_NOTICE, 'loaded')";
    let identity: Arc<[u8]> = text[..].into();
    let head = LibraryHead::of_library(text).expect("right");
    assert_eq!(head, LibraryHead { name: b"a".to_vec(), bytes: 12 });
    let mut logged = 0;
    assert_eq!(functions_of("7.2.0", text, head.bytes, &mut |_, _| logged += 1).expect("it loads").len(), 8);
    assert_eq!(logged, 1);
    let mut interpreter = interpreter();
    let mut call = |name: &str| {
        let mut server = Fake::default();
        let program = Program::Function { identity: &identity, text, head_bytes: head.bytes };
        let run = Run { name, program, keys: &[b"k"], args: &[b"one", b"two"], seed: 1, memory_bytes: 8 << 20 };
        let outcome = interpreter.run(&run, &mut server);
        assert!(server.logged.is_empty(), "it was written when the library was loaded first");
        shown(outcome, Protocol::Resp2)
    };
    for (name, expected) in [
        ("count", ":1"),
        ("COUNT", ":2"),
        ("inputs", "*2 *1 $1 k *2 $3 one $3 two"),
        (
            "both",
            "-ERR user_function:4: Script attempted to access nonexistent global variable 'KEYS' script: both, on \
             @user_function:4.",
        ),
        ("call", "$1 x"),
        (
            "early",
            "-ERR user_function:7: Script attempted to access nonexistent global variable 'call' script: early, on \
             @user_function:7.",
        ),
        ("fails", "-ERR user_function:9: boo script: fails, on @user_function:9."),
        (
            "late",
            "-ERR redis.register_function can only be called on FUNCTION LOAD command script: late, on @user_function:10.",
        ),
        ("libraries", "$11 [1]function"),
    ] {
        assert_eq!(call(name), expected, "{name}");
    }
}

#[test]
fn the_first_line_of_a_library_is_read_as_redis_does() {
    let name = |text: &str| match LibraryHead::of_library(text.as_bytes()) {
        Ok(head) => String::from_utf8_lossy(&head.name).into_owned(),
        Err(why) => String::from_utf8_lossy(&why).into_owned(),
    };
    for (text, expected) in [
        ("#!lua name=a\n", "a"),
        ("#!LUA  NAME='b' \r\n", "b"),
        ("#!lua \"name=e\"\n", "e"),
        ("return 1", "ERR Missing library metadata"),
        ("", "ERR Missing library metadata"),
        ("#!lua name=a", "ERR Invalid library metadata"),
        ("#!lua \"name=e\n", "ERR Invalid library metadata"),
        ("#!lua\n", "ERR Library name was not given"),
        ("#!\nx", "ERR Library name was not given"),
        ("#! name=e\n", "ERR Engine '' not found"),
        ("#!foo name=a\n", "ERR Engine 'foo' not found"),
        ("#!lua name=a name=b\n", "ERR Invalid metadata value, name argument was given multiple times"),
        ("#!lua foo=b name=a\n", "ERR Invalid metadata value given: foo=b"),
        (
            "#!lua name=a-b\n",
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ),
    ] {
        assert_eq!(name(text), expected, "{text}");
    }
}

/// The names of everything that a script can reach from its globals, tables within tables and metatables, sorted.
const WALK: &str = "local seen, names = {}, {} \
    local function walk(value, name) \
        if type(value) == 'function' then names[#names + 1] = name return end \
        if type(value) ~= 'table' or seen[value] then return end \
        seen[value] = true \
        for key, inner in pairs(value) do walk(inner, name .. '.' .. tostring(key)) end \
        local meta = getmetatable(value) \
        if meta then walk(meta, name .. '<meta>') end \
    end \
    walk(_G, '_G') walk(getmetatable(''), 'string<meta>') table.sort(names) return table.concat(names, ' ')";

#[test]
fn a_walk_over_all_that_a_script_can_reach_finds_what_is_meant_to_be_there() {
    let base = "assert collectgarbage error gcinfo getmetatable ipairs load loadstring next pairs pcall rawequal rawget rawset \
                select setmetatable tonumber tostring type unpack xpcall";
    let libraries = [
        ("bit", "arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex"),
        (
            "cjson",
            "decode decode_invalid_numbers decode_max_depth encode encode_invalid_numbers encode_keep_buffer \
             encode_max_depth encode_number_precision encode_sparse_array new",
        ),
        ("cmsgpack", "pack unpack unpack_limit unpack_one"),
        ("coroutine", "create resume running status wrap yield"),
        (
            "math",
            "abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp ldexp log log10 max min mod modf pow rad random \
             randomseed sin sinh sqrt tan tanh",
        ),
        ("os", "clock"),
        (
            "redis",
            "acl_check_cmd breakpoint call debug error_reply log pcall replicate_commands set_repl setresp sha1hex \
             status_reply",
        ),
        ("string", "byte char dump find format gfind gmatch gsub len lower match rep reverse sub upper"),
        ("struct", "pack size unpack"),
        ("table", "concat foreach foreachi getn insert maxn remove setn sort"),
    ];
    let mut expected: Vec<String> = base.split_whitespace().map(|name| format!("_G.{name}")).collect();
    for (library, names) in libraries {
        expected.extend(names.split_whitespace().map(|name| format!("_G.{library}.{name}")));
    }
    let seen = shown(run_on(&mut interpreter(), WALK.as_bytes(), &mut Fake::default()), Protocol::Resp2);
    let mut seen: Vec<&str> = seen.split_whitespace().skip(1).collect();
    // The function that refuses globals that are not there, and the metatable of strings, which reads through to the
    // same functions.
    expected.push("_G<meta>.__index".to_owned());
    seen.retain(|name| !name.starts_with("string<meta>"));
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}

#[test]
fn libraries_read_any_bytes() {
    use haypile_script::testing::{Reads, check_reading, interpreter};
    const PIECES: &[(Reads, &[&[u8]])] = &[
        (
            Reads::Cjson,
            &[
                b"{",
                b"}",
                b"[",
                b"]",
                b",",
                b":",
                b"\"a\"",
                b"\"",
                b"\\u00e9",
                b"\\ud83d\\ude00",
                b"\\",
                b"1",
                b"-1.5e300",
                b"1e999",
                b"0x10",
                b"nan",
                b"-infinity",
                b"null",
                b"true",
                b"fals",
                b" ",
                b"\n",
                b"\0",
                b"\xff",
            ],
        ),
        (
            Reads::Cmsgpack,
            &[
                b"\x00",
                b"\x7f",
                b"\x81",
                b"\x93",
                b"\xa3abc",
                b"\xc0",
                b"\xc2",
                b"\xc3",
                b"\xca\x7f\x80\0\0",
                b"\xcb",
                b"\xcc\xff",
                b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
                b"\xd0\x80",
                b"\xd3",
                b"\xd9\x03xyz",
                b"\xdb\x7f\xff\xff\xff",
                b"\xdc\xff\xff",
                b"\xdd\xff\xff\xff\xff",
                b"\xde\x00\x02",
                b"\xdf\0\0\0\x01",
                b"\xc4\x02ab",
                b"\xc1",
                b"\xd4\x01a",
                b"\xe0",
            ],
        ),
        (
            Reads::Struct,
            &[
                b"b",
                b"B",
                b"h",
                b"H",
                b"l",
                b"L",
                b"T",
                b"f",
                b"d",
                b"s",
                b"x",
                b" ",
                b"!",
                b"!8",
                b"<",
                b">",
                b"=",
                b"i3",
                b"I8",
                b"i33",
                b"c",
                b"c0",
                b"c4",
                b"Bc0",
                b"c99999999999",
                b"!3",
                b"\0",
                b"\x01\x02\x03\x04\x05\x06\x07\x08",
                b"abc\0",
                b"\xff\xff\xff\xff",
            ],
        ),
    ];
    let mut seed: u64 = 20_261_126;
    let mut below = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    let mut interpreter = interpreter();
    for (reads, pieces) in PIECES {
        for _ in 0..2_000 {
            let bytes: Vec<u8> = (0..below(14)).flat_map(|_| pieces[below(pieces.len())].iter().copied()).collect();
            check_reading(&mut interpreter, *reads, &bytes);
        }
    }
}
