//! BLMOVEM: who waits for how many elements, and what wakes it (redis.io/docs/latest/commands/blmovem, Redis 8.10).

mod server;

use server::{Server, check};

#[test]
fn it_waits_until_there_are_as_many_elements_as_it_has_to_have() {
    for (grows, rest) in [
        ("RPUSH s c", "*0"),
        ("LPUSHX s c", "*0"),
        ("LINSERT s BEFORE b c", "*0"),
        ("RPUSH s c d", "*1 $1 d"),
        ("LMOVE t s LEFT RIGHT", "*0"),
        ("LMOVEM t s LEFT RIGHT COUNT 2 BULK", "*1 $1 y"),
        ("SORT u ALPHA STORE s", "*1 $1 4"),
        ("COPY u s REPLACE", "*1 $1 4"),
        ("RENAME u s", "*1 $1 4"),
        ("MULTI", "*0"),
    ] {
        let mut server = Server::new();
        for command in ["RPUSH t x y", "RPUSH u 1 2 3 4", "RPUSH s a"] {
            server.ask(0, command);
        }
        server.send(1, "BLMOVEM s d LEFT RIGHT 0 EXACTLY 3 BULK");
        assert!(server.waits(1));
        server.ask(0, "RPUSH s b");
        assert!(server.waits(1), "two are not three");
        assert_eq!(server.ask(2, "LRANGE s 0 -1"), "*2 $1 a $1 b", "nothing is taken meanwhile");
        if grows == "MULTI" {
            for command in ["MULTI", "RPUSH s x", "RPOP s", "RPUSH s c"] {
                server.ask(0, command);
            }
            server.ask(0, "EXEC");
        } else {
            assert!(!server.ask(0, grows).starts_with('-'), "{grows}");
        }
        let reply = server.reply(1);
        assert!(reply.starts_with("*3 $1 "), "{grows}: {reply}");
        assert_eq!(server.ask(2, "LRANGE d 0 -1"), reply, "{grows}");
        assert_eq!(server.ask(2, "LRANGE s 0 -1"), rest, "{grows}");
    }
}

#[test]
fn others_may_take_elements_before_there_are_enough() {
    let mut server = Server::new();
    server.send(1, "BLMOVEM s d LEFT RIGHT 0 EXACTLY 2 OBO");
    server.send(2, "BLPOP s 0");
    assert!(server.waits(1) && server.waits(2));
    server.ask(0, "RPUSH s a");
    assert_eq!(server.reply(2), "*2 $1 s $1 a", "one is enough for it");
    assert!(server.waits(1));
    server.send(2, "BLPOP s 0");
    server.ask(0, "RPUSH s b c d");
    assert_eq!(server.reply(1), "*2 $1 b $1 c", "it has waited for longer");
    assert_eq!(server.reply(2), "*2 $1 s $1 d");
}

#[test]
fn it_does_not_wait_in_a_block_and_not_for_ever() {
    check(
        "null at once, and nothing is moved",
        "
        0: RPUSH s a => :1
        0: MULTI => +OK
        0: BLMOVEM s d LEFT RIGHT 0 EXACTLY 2 OBO => +QUEUED
        0: BLMOVEM none d LEFT RIGHT 0 => +QUEUED
        0: BLMOVEM s d LEFT RIGHT 0 COUNT 2 OBO => +QUEUED
        0: EXEC => *3 *-1 *-1 *1 $1 a
        0: EVAL return␣redis.call('BLMOVEM','d','e','LEFT','LEFT',0,'EXACTLY',2,'OBO') 0 => $-1
        ",
    );
    let mut server = Server::new();
    let id = server.ask(1, "CLIENT ID").replace(':', "");
    server.send(1, "BLMOVEM s d LEFT LEFT 100 EXACTLY 2 OBO");
    assert!(server.is_blocked(1));
    server.ask(0, &format!("CLIENT UNBLOCK {id}"));
    assert_eq!(server.reply(1), "*-1", "as when its time is over");
}

#[test]
fn events_and_watchers_are_told_once_however_many_are_moved() {
    check(
        "a push and a pop, and the end of the key",
        "
        0: CONFIG SET notify-keyspace-events Elg => +OK
        1: SUBSCRIBE __keyevent@0__:lpop __keyevent@0__:rpush __keyevent@0__:del => *3 $9 subscribe $19 \
         __keyevent@0__:lpop :1 *3 $9 subscribe $20 __keyevent@0__:rpush :2 *3 $9 subscribe $18 __keyevent@0__:del :3
        0: RPUSH s a b c => :3
        1: PING => *3 $7 message $20 __keyevent@0__:rpush $1 s *2 $4 pong $0
        0: LMOVEM s d LEFT RIGHT COUNT 3 BULK => *3 $1 a $1 b $1 c
        1: PING => *3 $7 message $20 __keyevent@0__:rpush $1 d *3 $7 message $19 __keyevent@0__:lpop $1 s *3 $7 message \
         $18 __keyevent@0__:del $1 s *2 $4 pong $0
        0: LMOVEM d d LEFT RIGHT COUNT 3 BULK => *3 $1 a $1 b $1 c
        1: PING => *3 $7 message $19 __keyevent@0__:lpop $1 d *3 $7 message $20 __keyevent@0__:rpush $1 d *2 $4 pong $0
        ",
    );
}
