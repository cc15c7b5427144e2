//! Rules, the users that they make, and what these may do, over a handful of commands.

use haypile_acl::log::Context;
use haypile_acl::user::{DEFAULT, merge_parentheses};
use haypile_acl::users::WrongLine;
use haypile_acl::{Catalog, Databases, Denial, Denied, Fresh, KeyUse, Log, Named, Reason, Request, User, Users, Wrong};

const READ: u32 = 1;
const WRITE: u32 = 2;
const FAST: u32 = 4;

/// The commands of these tests: name, categories, container.
const COMMANDS: &[(&str, u32, Option<u16>)] = &[
    ("get", READ | FAST, None),
    ("set", WRITE, None),
    ("mget", READ | FAST, None),
    ("select", FAST, None),
    ("publish", FAST, None),
    ("auth", FAST, None),
    ("config", 0, None),
    ("config|get", 0, Some(6)),
    ("config|set", 0, Some(6)),
];

fn catalog() -> Catalog {
    let named = |&(name, categories, container): &(&str, u32, Option<u16>)| Named {
        full_name: name.to_owned(),
        categories,
        container,
        subcommands: if name == "config" { 7..9 } else { 0..0 },
    };
    Catalog::new(COMMANDS.iter().map(named).collect(), vec!["read", "write", "fast"])
}

fn user(rules: &str) -> Result<User, (usize, Wrong)> {
    let words: Vec<&str> = rules.split(' ').filter(|word| !word.is_empty()).collect();
    let rules = merge_parentheses(&words).expect("the parentheses are closed");
    let mut user = User::new(b"u", Fresh::default());
    user.apply_all(&rules, &catalog(), Fresh::default())?;
    Ok(user)
}

/// A call in words: the command, then `r:key`, `w:key`, `rw:key`, `ask:key`, `channel:name`, `pattern:name`,
/// `db:number`, `all-dbs` or plain arguments.
struct Call {
    command: u16,
    words: Vec<String>,
}

impl Call {
    fn new(line: &str) -> Call {
        let mut words = line.split(' ').map(str::to_owned);
        let name = words.next().expect("a call has a command");
        let command = COMMANDS.iter().position(|(of, ..)| *of == name).expect("the command is there") as u16;
        Call { command, words: words.collect() }
    }

    fn each<'a>(&'a self, kinds: &'a [&str]) -> impl Iterator<Item = (usize, &'a str, &'a str)> {
        self.words.iter().zip(1..).filter_map(move |(word, at)| {
            let (kind, value) = word.split_once(':')?;
            kinds.contains(&kind).then_some((at, kind, value))
        })
    }
}

impl Request for Call {
    fn command(&self) -> u16 {
        self.command
    }

    fn is_open(&self) -> bool {
        COMMANDS[self.command as usize].0 == "auth"
    }

    fn first_argument(&self) -> Option<&[u8]> {
        self.words.first().map(|word| word.as_bytes())
    }

    fn keys(&self, visit: &mut dyn FnMut(usize, &[u8], KeyUse) -> bool) {
        _ = self.each(&["r", "w", "rw", "ask"]).all(|(at, kind, key)| {
            visit(at, key.as_bytes(), KeyUse { reads: kind.starts_with('r'), writes: kind.ends_with('w') })
        });
    }

    fn channels(&self, visit: &mut dyn FnMut(usize, &[u8], bool) -> bool) {
        let mut all = self.each(&["channel", "pattern"]);
        _ = all.all(|(at, kind, name)| visit(at, name.as_bytes(), kind == "pattern"));
    }

    fn databases(&self, visit: &mut dyn FnMut(usize, Databases) -> bool) {
        if self.words.iter().any(|word| word == "all-dbs") {
            visit(0, Databases::All);
        }
        let mut all = self.each(&["db"]);
        _ = all.all(|(at, _, index)| visit(at, Databases::One(index.parse().expect("a number"))));
    }
}

/// Checks the line that describes a user with these rules, and which calls it may make.
#[track_caller]
fn check(rule: &str, rules: &str, line: &str, permitted: &[&str], denied: &[(&str, Reason)]) {
    let user = user(rules).expect("the rules are right");
    let described = String::from_utf8(user.line()).expect("tests are in ASCII");
    assert_eq!(described.strip_prefix("user u "), Some(line), "{rule}: {rules}");
    for call in permitted {
        assert_eq!(user.check(&Call::new(call)), Ok(()), "{rule}: {call}");
    }
    for (call, reason) in denied {
        assert_eq!(user.check(&Call::new(call)).map_err(|denied| denied.reason), Err(*reason), "{rule}: {call}");
    }
}

#[test]
fn commands_are_permitted_by_name_category_and_first_argument() {
    use Reason::Command;
    check("nothing at first", "", "off sanitize-payload resetchannels -@all", &["auth"], &[("get", Command)]);
    check(
        "by name, in any case",
        "on +GET -set",
        "on sanitize-payload resetchannels -@all +get -set",
        &["get"],
        &[("set", Command), ("mget", Command)],
    );
    check(
        "a category, then one less",
        "+@read -mget",
        "off sanitize-payload resetchannels -@all +@read -mget",
        &["get"],
        &[("mget", Command), ("set", Command)],
    );
    check(
        "a container has its subcommands",
        "+config -config|set",
        "off sanitize-payload resetchannels -@all +config -config|set",
        &["config|get"],
        &[("config|set", Command)],
    );
    check(
        "a rule replaces those that it makes void",
        "+config|get +get -config -get +get",
        "off sanitize-payload resetchannels -@all -config +get",
        &["get"],
        &[("config|get", Command)],
    );
    check(
        "first arguments, in any case",
        "+select|0 +select|Eight",
        "off sanitize-payload resetchannels -@all +select|0 +select|eight",
        &["select 0", "select EIGHT"],
        &[("select 1", Command), ("select", Command)],
    );
    check(
        "the whole command takes first arguments away",
        "+select|0 -select",
        "off sanitize-payload resetchannels -@all -select",
        &[],
        &[("select 0", Command)],
    );
    check("all, and all again", "+@all -@all allcommands", "off sanitize-payload resetchannels +@all", &["get"], &[]);
}

#[test]
fn keys_are_permitted_to_be_read_or_written() {
    use Reason::Key;
    check(
        "patterns with what may be done",
        "+@all ~all* %R~read* %W~write*",
        "off sanitize-payload ~all* %R~read* %W~write* resetchannels +@all",
        &["get rw:all1", "get r:read1", "set w:write1", "get ask:write1", "get ask:read1", "get"],
        &[("get r:write1", Key), ("set w:read1", Key), ("set rw:read1", Key), ("get ask:other", Key)],
    );
    check(
        "the same pattern twice has both rights",
        "+@all %R~a %w~a ~a",
        "off sanitize-payload ~a resetchannels +@all",
        &["set rw:a"],
        &[],
    );
    check(
        "all keys in one rule only",
        "+@all %R~a* %W~a*b",
        "off sanitize-payload %R~a* %W~a*b resetchannels +@all",
        &[],
        &[
            // One pattern has to permit all that is done with a key.
            ("set rw:acb", Key),
        ],
    );
    assert_eq!(
        user("+@all ~a").expect("right").check(&Call::new("mget r:a r:b r:c")),
        Err(Denied { reason: Key, argument: 2 }),
        "the first key that is not permitted is told"
    );
}

#[test]
fn channels_and_databases() {
    use Reason::{Channel, Database};
    check(
        "a pattern is permitted only as it stands",
        "+@all &news.* &exact",
        "off sanitize-payload resetchannels &news.* &exact +@all",
        &["publish channel:news.a", "publish pattern:news.*", "publish channel:exact"],
        &[("publish channel:other", Channel), ("publish pattern:news.a*", Channel)],
    );
    check(
        "databases",
        "+@all db=0,2 DB=7",
        "off sanitize-payload resetchannels db=0,2,7 +@all",
        &["get db:0", "get db:2", "get", "get db:7"],
        &[("get db:1", Database), ("get all-dbs", Database), ("get db:0 db:1", Database)],
    );
    check(
        "no database, and all of them again",
        "+@all resetdbs",
        "off sanitize-payload resetchannels resetdbs +@all",
        &["get"],
        &[("get db:0", Database)],
    );
    check("all databases", "+@all db=1 alldbs", "off sanitize-payload resetchannels +@all", &["get all-dbs"], &[]);
}

#[test]
fn limits_are_rules_too() {
    let shown = |rules: &str| user(rules).map(|user| user.limits().text());
    assert_eq!(shown("on"), Ok(String::new()));
    assert_eq!(shown("RATE=10 memory=1gb bandwidth=5k"), Ok("rate=10 bandwidth=5000 memory=1073741824".into()));
    assert_eq!(shown("rate=10 connections=3 rate=0"), Ok("connections=3".into()));
    assert_eq!(shown("rate=10 reset"), Ok(String::new()));
    for wrong in ["rate=", "rate=1k", "rate=-1", "rate=+1", "memory=1x", "connections=1.5", "bandwidth=mb"] {
        assert_eq!(user(wrong).map(|_| ()), Err((0, Wrong::Limit)), "{wrong}");
    }
    assert_eq!(
        user("(rate=1)").map(|_| ()),
        Err((0, Wrong::Syntax)),
        "they are the user's, not those of a set of rights"
    );
    let made = user("on ~a +@all (+get ~b) rate=7 memory=100").expect("right");
    let line = String::from_utf8(made.line()).expect("text");
    assert_eq!(
        line,
        "user u on sanitize-payload ~a resetchannels +@all (~b resetchannels -@all +get) rate=7 memory=100"
    );
    assert_eq!(user(line.strip_prefix("user u ").expect("it begins so")), Ok(made), "its line makes it again");
}

#[test]
fn what_a_call_needs_is_in_one_selector() {
    let rules = "on +get ~a* (+set %W~b*) (+@read ~c* &x db=1)";
    check(
        "selectors",
        rules,
        "on sanitize-payload ~a* resetchannels -@all +get (%W~b* resetchannels -@all +set) \
         (~c* resetchannels &x db=1 -@all +@read)",
        &["get r:a1", "set w:b1", "mget r:c1 db:1"],
        &[("set w:a1", Reason::Key), ("get r:b1", Reason::Key), ("mget r:c1 db:0", Reason::Database)],
    );
    check("they go as a whole", "(+get) (+set) clearselectors", "off sanitize-payload resetchannels -@all", &[], &[]);
}

#[test]
fn passwords_open_the_way_in() {
    let opens = |rules: &str, password: &[u8]| user(rules).expect("right").accepts(password);
    assert!(opens("on >a >b", b"b") && !opens("on >a >b", b"c"));
    assert!(!opens(">a", b"a"), "a user that is off");
    assert!(opens("on nopass", b"whatever") && !opens("nopass", b"whatever"));
    assert!(!opens("on nopass >a", b"whatever"), "a password takes nopass away");
    assert!(!opens("on >a <a", b"a") && !opens("on nopass resetpass", b""));
    let hash = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
    assert!(opens(&format!("on #{hash}"), b"a") && !opens(&format!("on >a !{hash}"), b"a"));
    assert!(!format!("{:?}", user("on >a").expect("right")).contains(hash), "no hash is printed");
}

#[test]
fn wrong_rules_say_why() {
    use Wrong::*;
    let cases: &[(&str, Wrong)] = &[
        ("+nosuch", Unknown),
        ("-select|0", Unknown),
        ("+config|nosuch", Unknown),
        ("+@nosuch", Unknown),
        ("+", Unknown),
        ("+config|get|x", FirstArgumentOfSubcommand),
        ("+get|", Syntax),
        ("%~a", Syntax),
        ("%RR~a", Syntax),
        ("%X~a", Syntax),
        ("%", Syntax),
        ("nonsense", Syntax),
        ("(on)", Syntax),
        ("(+nosuch)", Unknown),
        (")", Syntax),
        ("~* ~a", KeysBehindAll),
        ("&* &a", ChannelsBehindAll),
        ("<a", NoSuchPassword),
        ("#12", PasswordHash),
        ("!zz", PasswordHash),
        ("db=", Syntax),
        ("db=1,", Syntax),
        ("db=-1", Syntax),
        ("db=x", Syntax),
        ("db=2147483648", DatabaseRange),
    ];
    for (rules, why) in cases {
        assert_eq!(user(rules).map_err(|(_, why)| why), Err(*why), "{rules}");
    }
    let mut named = User::new(b"u", Fresh::default());
    assert_eq!(named.apply(b"~a b", &catalog(), Fresh::default()), Err(Syntax), "a blank inside of a pattern");
    assert_eq!(named.apply(b"", &catalog(), Fresh::default()), Ok(()), "an empty rule is none");
    assert_eq!(merge_parentheses(&["on", "(+get", "~a"]), Err(1));
    let merged = merge_parentheses(&["(", "+get", ")", "on"]).expect("closed");
    assert_eq!(merged, [&b"( +get )"[..], b"on"]);
}

#[test]
fn who_may_do_everything_is_known() {
    let is = |rules: &str| user(rules).expect("right").is_unrestricted();
    assert!(is("+@all ~* &*") && is("(~* +@all allchannels)") && is("+@all -get +get ~* &*"));
    assert!(!is("+@all -get ~* &*") && !is("+@all ~a* &*") && !is("+@all ~*") && !is("+@all ~* &* db=0"));
    assert!(!is("(~* &*) +@all"), "rights of two selectors do not add up");
    assert!(!is("+@all ~* &* reset"));
    let default = User::default_user(&catalog());
    assert!(default.is_unrestricted() && default.is_open() && **default.name() == *DEFAULT);
    assert!(!default.with_only_password(b"x").is_open() && default.with_only_password(b"x").accepts(b"x"));
}

#[test]
fn a_file_of_users_is_read_and_written() {
    let text = b"user default on >pw +@all ~*\n\n  user bob  on\t nopass (+get  ~a) ( +set ~b )\r\nuser off off\n";
    let users = Users::parse(text, &catalog(), Fresh::default()).expect("right");
    let file = users.file();
    assert_eq!(Users::parse(&file, &catalog(), Fresh::default()), Ok(users.clone()));
    assert_eq!(users.count(), 3);
    assert!(users.get(b"bob").expect("there").check(&Call::new("set w:b")).is_ok());
    let without = Users::parse(b"user bob on\n", &catalog(), Fresh::default()).expect("right");
    assert!(without.default_user().is_unrestricted(), "a file without the default user leaves it all rights");
    let wrong = b"usr a\nuser\nuser a on\nuser a off\nuser b +nosuch\nuser c (+get\n# x\n";
    let faults = Users::parse(wrong, &catalog(), Fresh::default()).expect_err("all but one line are wrong");
    let expected = [
        (1, WrongLine::NoUser),
        (2, WrongLine::NoUser),
        (4, WrongLine::Duplicate(b"a".to_vec())),
        (5, WrongLine::Rule(b"b".to_vec(), Wrong::Unknown)),
        (6, WrongLine::Parenthesis),
        (7, WrongLine::NoUser),
    ];
    assert_eq!(faults, expected);
}

#[test]
fn a_user_whose_name_is_empty_is_kept_in_a_file() {
    let (catalog, fresh) = (catalog(), Fresh::default());
    let mut users = Users::new(&catalog);
    users.put(users.with_rules(b"", &["on", "nopass", "+get", "~a"], &catalog, fresh).expect("right"));
    let read = Users::parse(&users.file(), &catalog, fresh).expect("right");
    assert_eq!(read, users);
    assert!(read.get(b"").expect("there").check(&Call::new("get r:a")).is_ok());
    // As Redis, which cuts a line at single blanks, too.
    let faults = Users::parse(b"user  bob on\nuser\ta on\nuser a\tb on\nuser \n", &catalog, fresh).expect_err("wrong");
    let expected = [
        (1, WrongLine::Rule(Vec::new(), Wrong::Syntax)),
        (2, WrongLine::NoUser),
        (3, WrongLine::Name(b"a\tb".to_vec())),
        (4, WrongLine::NoUser),
    ];
    assert_eq!(faults, expected);
}

/// Random numbers of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }

    fn rule(&mut self) -> &'static str {
        const RULES: &[&str] = &[
            "on",
            "off",
            "nopass",
            "resetpass",
            ">a",
            ">b",
            "<a",
            "~*",
            "~a*",
            "%R~a*",
            "%W~b",
            "resetkeys",
            "&*",
            "&a",
            "resetchannels",
            "+@all",
            "-@all",
            "+@read",
            "-@read",
            "+@fast",
            "-@fast",
            "-@write",
            "+get",
            "-get",
            "+set",
            "-set",
            "+config",
            "-config",
            "+config|get",
            "-config|get",
            "+config|set",
            "+select|0",
            "+select|1",
            "-select",
            "db=0",
            "db=1,2",
            "alldbs",
            "resetdbs",
            "reset",
            "clearselectors",
            "(+get ~a*)",
            "(+@read %R~*)",
            "(-get db=1)",
            "skip-sanitize-payload",
        ];
        RULES[self.below(RULES.len())]
    }
}

/// The line that describes a user makes one that judges every call the same, whatever rules the user was given.
#[test]
fn a_line_makes_the_user_that_it_describes() {
    let catalog = catalog();
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let mut user = User::new(b"u", Fresh::default());
        let mut given = Vec::new();
        for _ in 0..random.below(12) {
            let rule = random.rule();
            if user.apply(rule.as_bytes(), &catalog, Fresh::default()).is_ok() {
                given.push(rule);
            }
        }
        let line = user.line();
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').skip(2).collect();
        let mut again = User::new(b"u", Fresh::default());
        let rules = merge_parentheses(&words).expect("closed");
        again.apply_all(&rules, &catalog, Fresh::default()).expect("a line is made of right rules");
        let shown = String::from_utf8_lossy(&line);
        assert_eq!(again.line(), line, "seed {seed}: {given:?}: {shown}");
        assert_eq!(again.is_unrestricted(), user.is_unrestricted(), "seed {seed}: {given:?}: {shown}");
        for call in
            ["get r:a", "set w:b", "mget r:a r:b", "select 0", "select 1", "config|get", "config|set", "get db:1"]
        {
            let (call, of) = (Call::new(call), call);
            assert_eq!(again.check(&call), user.check(&call), "seed {seed}: {of}: {given:?}: {shown}");
        }
    }
}

#[test]
fn the_log_counts_what_is_repeated() {
    let denial = |object: &str| Denial::new(Reason::Key, Context::Toplevel, object.as_bytes(), b"u");
    let mut log = Log::default();
    for (object, now_ms) in [("a", 0), ("b", 1), ("a", 2), ("a", 60_002), ("a", 120_003)] {
        log.add(denial(object), 1, format!("id={now_ms}"), now_ms, 3);
    }
    let shown: Vec<(u64, String, u64, u64, u64)> = log
        .entries()
        .map(|entry| {
            let object = String::from_utf8_lossy(&entry.denial.object).into_owned();
            (entry.id, object, entry.count, entry.created_ms, entry.updated_ms)
        })
        .collect();
    let expected = [(2, "a", 1, 120_003, 120_003), (0, "a", 3, 0, 60_002), (1, "b", 1, 1, 1)];
    assert_eq!(shown, expected.map(|(id, object, count, from, to)| (id, object.to_owned(), count, from, to)));
    log.add(denial(&"x".repeat(5000)), 7, String::new(), 200_000, 3);
    assert_eq!(log.entries().next().map(|entry| entry.count), Some(7));
    let long = [b'x'; 5000];
    assert_eq!(Denial::new(Reason::Auth, Context::Toplevel, b"AUTH", &long).user.len(), 1024);
    assert_eq!(log.entries().map(|entry| entry.denial.object.len()).collect::<Vec<_>>(), [1024, 1, 1]);
    log.add(denial("c"), 1, String::new(), 200_001, 0);
    assert_eq!(log.entries().count(), 0);
}

#[test]
fn rules_of_any_bytes_do_no_harm() {
    const PIECES: &[&str] = &[
        "on",
        "off",
        "nopass",
        "reset",
        "resetkeys",
        "+get",
        "-set",
        "+@read",
        "-@write",
        "+@all",
        "-@all",
        "+config|get",
        "-config",
        "+get|x",
        "~*",
        "~a*",
        "%R~b",
        "%W~c",
        "%RW~d",
        "&*",
        "&ch",
        "resetchannels",
        "db=0,2",
        "alldbs",
        "resetdbs",
        ">pw",
        "<pw",
        "#",
        "!",
        "(",
        ")",
        "(+get ~x",
        "~y)",
        "(~z)",
        "rate=5",
        "memory=1mb",
        "rate=",
        "connections=0",
        " ",
        "  ",
        "\n",
        "user a",
        "user default",
        "\nuser b ",
        "\0",
        "é",
        "=",
        "%",
        "+",
        "-",
        "~",
        "&",
        "|",
    ];
    let catalog = haypile_acl::testing::catalog();
    let mut seed: u64 = 20_261_126;
    let mut below = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    for _ in 0..20_000 {
        let mut bytes = Vec::new();
        for _ in 0..below(12) {
            bytes.extend(PIECES[below(PIECES.len())].as_bytes());
            if below(4) > 0 {
                bytes.push(b' ');
            }
            if below(20) == 0 {
                bytes.push(below(256) as u8);
            }
        }
        haypile_acl::testing::check_rules(&catalog, &bytes);
    }
}
