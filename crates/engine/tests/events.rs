//! Keyspace events: what is told of which command, when, and in which order. `events: command => reply | what was
//! told`.

mod server;

use server::Server;

/// Runs commands by one client and shows what the others were told of: `set k` for the event of a key in database 0.
struct Told(Server);

impl Told {
    fn new(classes: &str) -> Told {
        let mut server = Server::new();
        assert_eq!(server.ask(0, &format!("CONFIG SET notify-keyspace-events {classes}")), "+OK");
        server.ask(1, "PSUBSCRIBE __key*");
        Told(server)
    }

    fn told(&mut self) -> Vec<String> {
        let text = self.0.ask(1, "PING");
        let pushes = text.split("*4 $8 pmessage ").skip(1);
        pushes
            .map(|push| {
                let words: Vec<&str> = push.split_whitespace().filter(|word| !word.starts_with(['$', '*'])).collect();
                let [_, channel, payload] = words[..3] else { panic!("{push}") };
                format!("{} {payload}", channel.trim_start_matches("__key"))
            })
            .map(|told| told.split(" pong").next().expect("there is a first part").to_owned())
            .collect()
    }

    #[track_caller]
    fn check(&mut self, command: &str, expected: &[&str]) {
        let reply = self.0.ask(0, command);
        assert_eq!(self.told(), expected, "{command}: {reply}");
    }
}

#[test]
fn the_classes_are_shown_in_the_order_of_redis() {
    let mut server = Server::new();
    for (given, shown) in [
        ("gn", "gn"),
        ("KEng", "gnKE"),
        ("KEnmg$", "g$nKEm"),
        ("AKEm", "AKEm"),
        // Redis 7.2 leaves it out, and has forgotten it at the next start.
        ("nAKE", "AnKE"),
    ] {
        assert_eq!(server.ask(0, &format!("CONFIG SET notify-keyspace-events {given}")), "+OK");
        let expected = format!("*2 $22 notify-keyspace-events ${} {shown}", shown.len());
        assert_eq!(server.ask(0, "CONFIG GET notify-keyspace-events"), expected);
    }
}

#[test]
fn each_command_tells_what_it_did() {
    let mut told = Told::new("EAn");
    told.check("SET k v EX 100", &["event@0__:new k", "event@0__:set k", "event@0__:expire k"]);
    told.check("SET k v", &["event@0__:set k"]);
    told.check("SET k v NX", &[]);
    told.check("APPEND k w", &["event@0__:append k"]);
    told.check("SETRANGE k 1 xyz", &["event@0__:setrange k"]);
    told.check("GET k", &[]);
    told.check("INCR k", &[]);
    told.check("INCRBYFLOAT n 1.5", &["event@0__:new n", "event@0__:incrbyfloat n"]);
    told.check("MSET a 1 b 2", &["event@0__:new a", "event@0__:set a", "event@0__:new b", "event@0__:set b"]);
    told.check("DECR a", &["event@0__:incrby a"]);
    told.check("EXPIRE a 100", &["event@0__:expire a"]);
    told.check("PERSIST a", &["event@0__:persist a"]);
    told.check("GETEX a EX 5", &["event@0__:expire a"]);
    told.check("EXPIRE a -1", &["event@0__:del a"]);
    told.check("RENAME b c", &["event@0__:new c", "event@0__:rename_from b", "event@0__:rename_to c"]);
    told.check("COPY c d", &["event@0__:new d", "event@0__:copy_to d"]);
    told.check("MOVE d 3", &["event@3__:new d", "event@0__:move_from d", "event@3__:move_to d"]);
    told.check("DEL c nosuch k", &["event@0__:del c", "event@0__:del k"]);
    told.check("GETDEL n", &["event@0__:del n"]);
}

#[test]
fn classes_choose() {
    let mut told = Told::new("K$");
    told.check("SET k v EX 100", &["space@0__:k set"]);
    told.0.ask(0, "CONFIG SET notify-keyspace-events KEg");
    told.check("SET k v EX 100", &["space@0__:k expire", "event@0__:expire k"]);
    told.0.ask(0, "CONFIG SET notify-keyspace-events Em");
    told.check("GET k", &[]);
    told.check("GET nosuch", &["event@0__:keymiss nosuch"]);
    told.check("OBJECT ENCODING nosuch", &[]);
    told.0.ask(0, "CONFIG SET notify-keyspace-events A");
    told.check("SET k v", &[]);
}

#[test]
fn what_expires_is_told_once() {
    let mut told = Told::new("Ex");
    told.0.ask(0, "SET a v PX 10");
    told.0.ask(0, "SET b v PX 10");
    told.0.ask(0, "SET c v PX 10");
    told.0.now_ms += 11;
    told.check("SET a w", &["event@0__:expired a"]);
    told.check("APPEND b w", &["event@0__:expired b"]);
    let now_ms = told.0.now_ms;
    told.0.worker.expire(now_ms);
    assert_eq!(told.told(), ["event@0__:expired c"]);
    told.check("GET c", &[]);
}

#[test]
fn a_transaction_tells_when_it_has_committed() {
    let mut told = Told::new("E$");
    told.0.ask(0, "SET cold 5");
    told.told();
    told.0.freeze();
    told.0.ask(0, "MULTI");
    told.0.ask(0, "SET k 1");
    told.0.ask(0, "INCR cold");
    told.0.ask(0, "LCS k cold IDX LEN");
    told.check("EXEC", &["event@0__:set k", "event@0__:incrby cold"]);
}

#[test]
fn a_block_tells_of_keys_first_and_then_publishes_and_subscribes() {
    let mut told = Told::new("E$");
    told.0.ask(1, "SUBSCRIBE news");
    for command in ["MULTI", "PUBLISH news 1", "SET k v", "SUBSCRIBE __keyevent@0__:set", "EXEC"] {
        told.0.ask(0, command);
    }
    let heard = told.0.ask(1, "PING");
    let (event, message) = (heard.find("__keyevent@0__:set"), heard.find("$7 message $4 news"));
    assert!(event.is_some() && event < message, "{heard}");
    assert!(!told.0.ask(0, "PING").contains("$7 message"), "its subscription begins with the end of the block");
}

#[test]
fn geospatial_indexes_tell_as_sorted_sets_do() {
    let mut told = Told::new("Ezg");
    told.check("GEOADD g 13 38 a 15 37 b", &["event@0__:zadd g"]);
    told.check("GEOADD g 13 38 a", &[]);
    told.check("GEOADD g XX 14 38 a", &["event@0__:zadd g"]);
    told.check("GEOSEARCH g FROMMEMBER a BYRADIUS 1 km", &[]);
    told.check("GEOSEARCHSTORE d g FROMMEMBER a BYRADIUS 1 km", &["event@0__:geosearchstore d"]);
    told.check("GEOSEARCHSTORE d g FROMLONLAT 0 0 BYRADIUS 1 km", &["event@0__:del d"]);
    told.check("GEOSEARCHSTORE d g FROMLONLAT 0 0 BYRADIUS 1 km", &[]);
    told.check("GEORADIUS g 15 37 1 km STORE d", &["event@0__:georadiusstore d"]);
    told.check("GEORADIUSBYMEMBER g a 1 km STOREDIST d", &["event@0__:georadiusstore d"]);
    told.check("GEORADIUS none 15 37 1 km STORE d", &["event@0__:del d"]);
    // Of several keys to store to, the locks know the first one only.
    told.check("GEORADIUS g 15 37 1 km STORE d STORE e", &["event@0__:georadiusstore e"]);
}

/// Redis removes it when a read comes upon it; here who reads changes nothing, and what fails has no effect.
#[test]
fn reads_and_writes_that_fail_leave_an_expired_key_to_the_expiry() {
    let mut told = Told::new("EA");
    told.check("SET k v PX 50", &["event@0__:set k", "event@0__:expire k"]);
    told.0.now_ms += 100;
    let now_ms = told.0.now_ms;
    for read in ["GET k", "EXISTS k", "TYPE k", "TTL k", "MGET k", "STRLEN k", "TOUCH k", "SCAN 0", "KEYS *"] {
        told.check(read, &[]);
    }
    for refused in ["RENAME k other", "LSET k 0 v", "XGROUP DESTROY k g"] {
        assert!(told.0.ask(0, refused).starts_with('-'), "{refused}");
        assert_eq!(told.told(), [""; 0], "{refused}");
    }
    assert_eq!((told.0.ask(0, "DBSIZE"), told.0.info(0, "expired_keys")), (":1".into(), "0".into()));
    while told.0.worker.expire(now_ms) {}
    assert_eq!(told.told(), ["event@0__:expired k"]);
    assert_eq!((told.0.ask(0, "DBSIZE"), told.0.info(0, "expired_keys")), (":0".into(), "1".into()));
}
