//! Replies of scripts, as redis-server 7.0 gives them: each row is a script and its reply.

mod host;

use haypile_resp::Protocol;
use host::{Fake, check, check_as, interpreter, run_on, shown};

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
    ]);
}

#[test]
fn errors_of_the_table_redis_say_what_they_want() {
    check(&[
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
