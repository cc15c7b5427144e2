//! Commands about clients, for cases without other clients: none hears a message, is closed or is unblocked.

use super::arguments::Arguments;
use super::sequence::Command;

fn words(a: &mut Arguments, name: &str, choices: &[&str]) -> Command {
    let rest = *a.random.pick(choices);
    std::iter::once(a.word(name)).chain(rest.split_whitespace().map(|word| word.as_bytes().to_vec())).collect()
}

/// AUTH, on servers without a password and with one user.
pub(super) fn auth(a: &mut Arguments) -> Command {
    words(a, "AUTH", &["secret", "default secret", "nobody secret", "default a b", ""])
}

/// CLIENT, without the subcommands that would end the test's own connection, or block it.
pub(super) fn client(a: &mut Arguments) -> Command {
    if a.random.percent(20) {
        let name = *a.random.pick(&["me", "you", "a b", "", "x\n"]);
        return vec![a.word("CLIENT"), a.word("SETNAME"), name.as_bytes().to_vec()];
    }
    const CHOICES: &[&str] = &[
        "ID",
        "GETNAME",
        "GETNAME",
        "INFO",
        "LIST",
        "LIST TYPE pubsub",
        "LIST TYPE nosuch",
        "LIST ID 0 -1",
        "LIST ID x",
        "LIST ID",
        "LIST NOSUCH",
        "LIST TYPE normal ID 1",
        "KILL 127.0.0.1:1",
        "KILL nosuch",
        "KILL ADDR 127.0.0.1:1",
        "KILL LADDR 127.0.0.1:1",
        "KILL ID 999999999",
        "KILL ID 0",
        "KILL ID -1",
        "KILL ID x",
        "KILL TYPE pubsub",
        "KILL TYPE replica SKIPME no",
        "KILL TYPE slave",
        "KILL TYPE master",
        "KILL TYPE nosuch",
        "KILL USER nosuch",
        "KILL USER default ADDR 127.0.0.1:1",
        "KILL ID 999999999 SKIPME x",
        "KILL ID 999999999 SKIPME",
        "KILL NOSUCH 1",
        "KILL",
        "UNBLOCK 999999999",
        "UNBLOCK 999999999 TIMEOUT",
        "UNBLOCK 999999999 error",
        "UNBLOCK 999999999 x",
        "UNBLOCK -1",
        "UNBLOCK x",
        "UNBLOCK 1 ERROR x",
        "PAUSE 0",
        "PAUSE 0 WRITE",
        "PAUSE 0 all",
        "PAUSE 0 x",
        "PAUSE -1",
        "PAUSE x",
        "PAUSE 0 ALL x",
        "PAUSE",
        "UNPAUSE",
        "UNPAUSE x",
        "NO-EVICT on",
        "NO-EVICT OFF",
        "NO-EVICT x",
        "NO-TOUCH on",
        "NO-TOUCH off",
        "REPLY on",
        "REPLY x",
        "REPLY",
        "GETREDIR",
        "GETREDIR x",
        "TRACKINGINFO",
        // Clients that track hear of keys at any time, which only the sequences of channels can compare.
        "TRACKING",
        "TRACKING x",
        "TRACKING off",
        "TRACKING on OPTIN OPTOUT",
        "TRACKING on PREFIX a",
        "TRACKING on BCAST PREFIX ab PREFIX a",
        "TRACKING on REDIRECT x",
        "CACHING yes",
        "CACHING no",
        "CACHING",
        "NOSUCH",
    ];
    words(a, "CLIENT", CHOICES)
}

pub(super) fn pubsub(a: &mut Arguments) -> Command {
    const CHOICES: &[&str] = &[
        "CHANNELS",
        "CHANNELS a*",
        "CHANNELS a b",
        "SHARDCHANNELS",
        "SHARDCHANNELS a*",
        "SHARDCHANNELS a b",
        "NUMSUB",
        "NUMSUB a b a",
        "SHARDNUMSUB",
        "SHARDNUMSUB a",
        "NUMPAT",
        "NUMPAT x",
        "NOSUCH",
        "",
    ];
    words(a, "PUBSUB", CHOICES)
}

pub(super) fn publish(a: &mut Arguments) -> Command {
    let name = *a.random.pick(&["PUBLISH", "SPUBLISH"]);
    vec![a.word(name), a.key(), a.value()]
}

pub(super) fn ping(a: &mut Arguments) -> Command {
    if a.random.percent(50) { vec![a.word("PING")] } else { vec![a.word("PING"), a.value()] }
}

/// HELLO with at most one error: 7.0 carries out the options before a wrong one, 7.2 checks all of them first.
pub(super) fn hello(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("HELLO")];
    if a.random.percent(15) {
        return command;
    }
    command.push(a.random.pick(&["2", "3", "3", "2", "1", "4", "x", ""]).as_bytes().to_vec());
    let good = [b"default".to_vec(), b"any".to_vec()];
    match a.random.below(10) {
        0 => {
            command.push(a.word("AUTH"));
            command.extend(good);
        }
        1 => {
            command.push(a.word("AUTH"));
            command.extend(good);
            command.extend([a.word("SETNAME"), b"me".to_vec()]);
        }
        2 => command.extend([a.word("SETNAME"), a.random.pick(&["me", "a b", ""]).as_bytes().to_vec()]),
        3 => command.extend([a.word("AUTH"), b"nobody".to_vec(), b"any".to_vec()]),
        4 => command.push(a.random.pick(&["NOSUCH", "AUTH", "SETNAME"]).as_bytes().to_vec()),
        _ => {}
    }
    command
}
