//! Libraries: those of functions, which scripts have loaded, and those of Lua that all scripts find.

mod host;

use haypile_resp::Protocol;
use haypile_script::testing::{self, Reads};
use haypile_script::{LibraryHead, Outcome, Program, Run, functions_of};
use host::{Fake, check, interpreter, run_on, shown};
use std::sync::Arc;

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
    let why = loaded("local t = {} for i = 1, 1e9 do t[i] = {} end");
    let bound = "not enough memory: a script may take 32 MB (while it is loaded, whatever 'maxmemory' is)";
    assert!(why.starts_with("ERR Error registering functions: ") && why.ends_with(bound), "{why}");
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
        let run = Run {
            name,
            program,
            keys: &[b"k"],
            args: &[b"one", b"two"],
            seed: 1,
            memory_bytes: 8 << 20,
            memory_rule: "of a test",
        };
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

/// The functions of the table `redis` that functions of libraries have, and scripts as well.
const REDIS: &str = "acl_check_cmd call error_reply log pcall set_repl setresp sha1hex status_reply";

/// The names that a walk is meant to find, `redis` being those of the table of this name.
fn meant(redis: &str) -> Vec<String> {
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
        ("redis", redis),
        ("string", "byte char dump find format gfind gmatch gsub len lower match rep reverse sub upper"),
        ("struct", "pack size unpack"),
        ("table", "concat foreach foreachi getn insert maxn remove setn sort"),
    ];
    let mut names: Vec<String> = base.split_whitespace().map(|name| format!("_G.{name}")).collect();
    for (library, functions) in libraries {
        names.extend(functions.split_whitespace().map(|name| format!("_G.{library}.{name}")));
    }
    // The function that refuses globals that are not there.
    names.push("_G<meta>.__index".to_owned());
    names.sort_unstable();
    names
}

/// The names that a walk has found. The metatable of strings reads through to functions that are found anyway.
fn found(outcome: Outcome) -> Vec<String> {
    let shown = shown(outcome, Protocol::Resp2);
    let names = shown.split_whitespace().skip(1).filter(|name| !name.starts_with("string<meta>"));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_walk_over_all_that_a_script_can_reach_finds_what_is_meant_to_be_there() {
    let seen = run_on(&mut interpreter(), WALK.as_bytes(), &mut Fake::default());
    assert_eq!(found(seen), meant(&format!("{REDIS} breakpoint debug replicate_commands")));
}

#[test]
fn a_walk_over_all_that_a_function_of_a_library_can_reach_finds_no_more() {
    let text = format!("#!lua name=a\nredis.register_function('walk', function() {WALK} end)");
    let identity: Arc<[u8]> = text.as_bytes().into();
    let head = LibraryHead::of_library(text.as_bytes()).expect("its first line is right");
    let program = Program::Function { identity: &identity, text: text.as_bytes(), head_bytes: head.bytes };
    let run = Run {
        name: "walk",
        program,
        keys: &[b"k"],
        args: &[b"a"],
        seed: 1,
        memory_bytes: 8 << 20,
        memory_rule: "of a test",
    };
    let mut interpreter = interpreter();
    assert_eq!(found(interpreter.run(&run, &mut Fake::default())), meant(REDIS));
    // A script that has run before leaves it nothing.
    run_on(&mut interpreter, b"local x = KEYS return redis.call('ping')", &mut Fake::default());
    assert_eq!(found(interpreter.run(&run, &mut Fake::default())), meant(REDIS));
}

#[test]
fn the_clock_of_a_process_is_all_that_scripts_have_of_its_system() {
    check(&[
        ("return type(os.clock())", "$6 number"),
        ("local before = os.clock() return tostring(before >= 0 and os.clock() >= before)", "$4 true"),
        (
            "local before, sum = os.clock(), 0 while os.clock() <= before do sum = sum + 1 end return 'it goes on'",
            "$10 it goes on",
        ),
        ("return tostring(os.time)", "$3 nil"),
        ("local names = {} for name in pairs(os) do names[#names + 1] = name end return names", "*1 $5 clock"),
    ]);
}

/// The pieces of what each library reads, of which random bytes are made.
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

#[test]
fn libraries_read_any_bytes() {
    let mut seed: u64 = 20_261_126;
    let mut below = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    let mut interpreter = testing::interpreter();
    for (reads, pieces) in PIECES {
        for _ in 0..2_000 {
            let bytes: Vec<u8> = (0..below(14)).flat_map(|_| pieces[below(pieces.len())].iter().copied()).collect();
            testing::check_reading(&mut interpreter, *reads, &bytes);
        }
    }
}
