//! The bounds of scripts: what ends a run, and what is refused before it takes the time, the stack or the memory of the
//! process.

mod host;

use haypile_resp::{Args, Protocol, Reply};
use haypile_script::{Bounds, Halted, Interpreter, LogLevel, Program, Run, Server, sha1_hex};
use host::{Fake, check, interpreter, run_on, shown};

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
fn the_error_of_a_run_that_lacks_memory_names_its_bound() {
    const BOUND: &str = "not enough memory: a script may take 16 MB (of a test) script: SHA";
    let rows = [
        ("local t = {} for i = 1, 1e9 do t[i] = {} end", format!("-ERR {BOUND}")),
        ("local s = 'x' while true do s = s .. s end", format!("-ERR {BOUND}")),
        (
            "local ok, why = pcall(function() local s = 'x' while true do s = s .. s end end) error(why)",
            format!("-ERR user_script:1: {BOUND}, on @user_script:1."),
        ),
        (
            "return {pcall(function() local s = 'x' while true do s = s .. s end end)}",
            "*2 $-1 $17 not enough memory".to_owned(),
        ),
        (
            "error('the shop has not enough memory')",
            "-ERR user_script:1: the shop has not enough memory script: SHA, on @user_script:1.".to_owned(),
        ),
    ];
    for (text, expected) in rows {
        // As on a server, where one that has taken much is not used again.
        let reply = shown(run_on(&mut interpreter(), text.as_bytes(), &mut Fake::default()), Protocol::Resp2);
        assert_eq!(reply.replace(&sha1_hex(text.as_bytes()), "SHA"), expected, "{text}");
    }
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
            memory_rule: "of a test",
        };
        let mut interpreter = Interpreter::new("7.2.0", Bounds { memory_bytes: 64 << 20 }).expect("an interpreter");
        assert_eq!(shown(interpreter.run(&run, &mut OnLoop), Protocol::Resp2), "Dropped", "{text}");
    }
}
