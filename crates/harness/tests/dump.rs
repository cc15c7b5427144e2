//! DUMP and RESTORE beside a real redis-server, in both directions: what either dumps, the other restores to the same
//! value, whatever forms it has for it.

use haypile_harness::client::{Client, Reply};
use haypile_harness::random::Random;
use haypile_harness::server::{Server, Template, Workplace, haypile_binary};
use haypile_harness::values::value;

const ROUNDS: usize = 300;

fn start(template: anyhow::Result<Template>, name: &str) -> (Server, Workplace) {
    let place = Workplace::new(name, None).expect("there is a disk");
    (Server::start(&template.expect("a command line"), &place).expect("the server starts").0, place)
}

fn ask(client: &mut Client, words: &[Vec<u8>]) -> Reply {
    client.call(words).expect("the server answers")
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn payloads_go_both_ways() {
    let binary = haypile_binary().expect("it is built");
    let debug = "--enable-debug-command yes";
    let (ours, _place) = start(Template::haypile(&binary, debug), "dump-ours");
    // Small bounds, so that all forms come up at all sizes.
    let forms = "--list-max-listpack-size 16 --list-compress-depth 1 --hash-max-listpack-entries 50 --zset-max-listpack-entries 50 \
                 --stream-node-max-entries 7";
    let (theirs, _their_place) = start(Template::redis(&format!("{debug} {forms}")), "dump-theirs");
    let servers = [ours, theirs];
    let mut clients = servers.each_ref().map(|server| server.client().expect("it accepts clients"));
    let mut random = Random::of_part(5, 0);
    for round in 0..ROUNDS {
        let key = format!("k{}", random.below(20)).into_bytes();
        let from = usize::from(random.percent(50));
        let deadline = random.percent(30).then(|| 4_102_444_800_000 + random.below(1 << 30));
        let [our, their] = &mut clients;
        let (giver, taker) = if from == 0 { (our, their) } else { (their, our) };
        ask(giver, &[b"DEL".to_vec(), key.clone()]);
        for command in value(&mut random, &key) {
            assert!(ask(giver, &command).error().is_none(), "round {round}: {command:?}");
        }
        if let Some(deadline) = deadline {
            ask(giver, &[b"PEXPIREAT".to_vec(), key.clone(), deadline.to_string().into_bytes()]);
        }
        let payload = ask(giver, &[b"DUMP".to_vec(), key.clone()]);
        let payload = payload.bytes().expect("there is a value").to_vec();
        let ttl = deadline.unwrap_or(0).to_string().into_bytes();
        let restore = [b"RESTORE".to_vec(), key.clone(), ttl, payload.clone(), b"ABSTTL".into(), b"REPLACE".into()];
        assert!(ask(taker, &restore).is_ok(), "round {round}: {}: {:02x?}", key.escape_ascii(), payload);
        for question in ["DEBUG DIGEST-VALUE", "TYPE", "PEXPIRETIME"] {
            let question = [words(question), vec![key.clone()]].concat();
            assert_eq!(ask(giver, &question), ask(taker, &question), "round {round}: {question:?}, from {from}");
        }
        let groups = [words("XINFO GROUPS"), vec![key.clone()]].concat();
        assert_eq!(ask(giver, &groups), ask(taker, &groups), "round {round}, from {from}");
        for group in 0..3 {
            let pending = [b"XPENDING".to_vec(), key.clone(), format!("group {group}").into_bytes()];
            assert_eq!(ask(giver, &pending), ask(taker, &pending), "round {round}, from {from}");
        }
        // The way back gives the same again.
        let back = ask(taker, &[b"DUMP".to_vec(), key.clone()]);
        let again = [
            b"RESTORE".to_vec(),
            b"again".into(),
            b"0".into(),
            back.bytes().expect("there is one").to_vec(),
            b"REPLACE".into(),
        ];
        assert!(ask(giver, &again).is_ok(), "round {round}");
        for client in [&mut *giver, &mut *taker] {
            ask(client, &[b"PERSIST".to_vec(), key.clone()]);
        }
        let digests = ask(giver, &[words("DEBUG DIGEST-VALUE"), vec![key.clone(), b"again".into()]].concat());
        let digests = digests.elements().expect("two digests");
        assert_eq!(digests[0], digests[1], "round {round}");
    }
    drop(clients);
    for server in servers {
        server.stop().expect("it stops");
    }
}
