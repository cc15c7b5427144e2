//! Commands that would wait, in blocks and in scripts, where nothing may wait: replies and effects are those of a real
//! redis-server 7.0. `haypile-harness diff` compares both servers by generated commands.

mod process;

use process::redis::redis;
use process::{Client, Server, TempDir};
use std::net::TcpStream;

type Tcp = Client<TcpStream>;

/// Our server and a redis-server, with their directories.
struct Pair {
    _dirs: [TempDir; 2],
    servers: [Server; 2],
}

impl Pair {
    fn start(more: &[&str]) -> Pair {
        let dirs = [TempDir::new(), TempDir::new()];
        let servers = [Server::start(dirs[0].path(), more), redis(&dirs[1], more)];
        Pair { _dirs: dirs, servers }
    }

    fn clients(&self) -> [Tcp; 2] {
        [self.servers[0].client(), self.servers[1].client()]
    }

    fn stop(self) {
        self.servers.into_iter().for_each(Server::stop);
    }
}

fn words(command: &str) -> Vec<&[u8]> {
    command.split(' ').map(str::as_bytes).collect()
}

/// Commands that may wait for keys or replicas, on what `READY` makes.
const WAITING: &str = "
    XREAD BLOCK 0 STREAMS s $|XREAD BLOCK 0 STREAMS s 0|XREAD COUNT 1 BLOCK 100 STREAMS s t 0 $|XREAD BLOCK 0 STREAMS none 0|XREAD BLOCK -1 STREAMS s 0
    XREAD BLOCK x STREAMS s 0|XREAD STREAMS none 0|XREAD BLOCK 0 STREAMS str 0|XREAD BLOCK 0 STREAMS|XREAD COUNT 1 BLOCK|XREAD block 5 COUNT x STREAMS s 0
    XREAD STREAMS BLOCK 0|XREAD STREAMS s 0 BLOCK 0|XREADGROUP GROUP g c BLOCK 0 STREAMS s >|XREADGROUP GROUP g c BLOCK 0 NOACK STREAMS s >
    XREADGROUP GROUP g c BLOCK 0 STREAMS s 0|XREADGROUP GROUP g c BLOCK 0 STREAMS none >|XREADGROUP BLOCK 0 GROUP g c STREAMS s t > >
    XREADGROUP GROUP g c STREAMS s >|XREADGROUP GROUP none c BLOCK 0 STREAMS s >|XREADGROUP GROUP g c BLOCK 0 STREAMS str >|XREADGROUP GROUP e c BLOCK 0 STREAMS s >
    XREADGROUP GROUP e c BLOCK 10 STREAMS s $|BLPOP l 0|BLPOP none 0|BLPOP none l 0|BRPOP l 0|BRPOP none 0|BLPOP str 0|BLPOP none str 0|BLPOP none -1
    BLPOP none x|BLPOP l -1|BLPOP none 0.01|BLPOP none nan|BLPOP|BLMOVE l m LEFT RIGHT 0|BLMOVE none m LEFT RIGHT 0
    BLMOVE l str LEFT RIGHT 0|BLMOVE none str LEFT RIGHT 0|BLMOVE l m X RIGHT 0|BRPOPLPUSH l m 0|BRPOPLPUSH none m 0|BRPOPLPUSH l m x
    BLMPOP 0 1 l LEFT|BLMPOP 0 2 none l RIGHT COUNT 2|BLMPOP 0 1 none LEFT|BLMPOP -1 1 none LEFT|BLMPOP 0 0 none LEFT|BLMPOP 0 1 str LEFT
    BZPOPMIN z 0|BZPOPMIN none 0|BZPOPMAX z 0|BZPOPMAX none 0|BZPOPMIN str 0|BZMPOP 0 1 z MIN|BZMPOP 0 1 none MAX|BZMPOP 0 2 none z MAX COUNT 5
    BZPOPMIN none -1|WAIT 0 0|WAIT 1 0|WAIT 1 100|WAIT -1 0|WAIT x 0|WAIT 1 -1|WAIT 0 x|WAIT 1
";

const READY: &str = "FLUSHALL|XADD s 1-1 f v|XADD s 2-1 f w|XADD t 1-1 f v|XGROUP CREATE s g 0|XGROUP CREATE t g 0|XGROUP CREATE s e $|SET str x|\
                     RPUSH l a b c|ZADD z 1 a 2 b";

/// Reads of all that a command may have changed.
const LOOK: &str = "LRANGE l 0 -1|LRANGE m 0 -1|ZRANGE z 0 -1 WITHSCORES|XPENDING s g|XPENDING t g|EXISTS none q";

/// The ways to run a command where it cannot wait: the first one is a block of it alone.
fn places(command: &str) -> Vec<Vec<Vec<Vec<u8>>>> {
    let plain = |command: &str| words(command).into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>();
    let arguments: Vec<String> = command.split(' ').map(|word| format!("'{word}'")).collect();
    let script = |name: &str, before: &str, call: &str| {
        let text = format!("{before}return redis.{call}({})", arguments.join(","));
        vec![name.into(), text.into_bytes(), b"0".to_vec()]
    };
    let block = |middle: Vec<Vec<Vec<u8>>>| [vec![plain("MULTI")], middle, vec![plain("EXEC")]].concat();
    vec![
        block(vec![plain(command)]),
        block(vec![plain("SET q 1"), plain(command), plain("RPUSH none x"), plain(command)]),
        vec![script("EVAL", "", "call")],
        vec![script("EVAL", "", "pcall")],
        vec![script("EVAL_RO", "", "call")],
        vec![script("EVAL", "#!lua flags=no-writes\n", "call")],
        block(vec![script("EVAL", "", "call")]),
    ]
}

/// Runs commands on what `READY` makes; returns the replies, and what they have changed.
fn run(client: &mut Tcp, commands: &[Vec<Vec<u8>>]) -> (Vec<String>, Vec<String>) {
    READY.split('|').for_each(|command| _ = client.ask(command));
    let mut ask = |words: &Vec<Vec<u8>>| client.ask_words(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let ran = commands.iter().map(&mut ask).collect();
    (ran, LOOK.split('|').map(|command| client.ask(command)).collect())
}

#[test]
fn commands_that_would_wait_answer_as_redis_does_in_blocks_and_scripts() {
    let pair = Pair::start(&[]);
    for hello in ["HELLO 2", "HELLO 3"] {
        let [mut ours, mut theirs] = pair.clients();
        [&mut ours, &mut theirs].into_iter().for_each(|client| assert!(client.ask(hello).contains("proto")));
        for command in WAITING.split(['\n', '|']).map(str::trim).filter(|command| !command.is_empty()) {
            let places = places(command);
            for place in &places {
                let (we, they) = (run(&mut ours, place), run(&mut theirs, place));
                let shown: Vec<_> =
                    place.concat().iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
                if !they.0.concat().contains("This Redis command is not allowed from script") {
                    assert_eq!(we, they, "{hello}: {shown:?}");
                } else if we.0.concat().contains("Write commands are not allowed from read-only scripts") {
                    assert_eq!(we.1, they.1, "{hello}: {shown:?}");
                } else {
                    // Redis 7.2 allows in scripts what 7.0 did not: it does what it does in a block.
                    assert_eq!(we.1, run(&mut theirs, &places[0]).1, "{hello}: {shown:?}");
                }
            }
        }
    }
    pair.stop();
}
