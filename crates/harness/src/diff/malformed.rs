//! Wrong input on purpose: commands that are spoiled or unknown, and bytes that are no tidy protocol.

use super::arguments::Arguments;
use super::sequence::Command;

/// Loses, doubles, replaces, swaps or adds an argument; not where that might do harm, nor where `hello` says why.
pub(super) fn spoil(a: &mut Arguments, command: &mut Command) {
    let names = |command: &Command| command.iter().any(|word| word.eq_ignore_ascii_case(b"setname"));
    // A spoiled wait may never end, a node may become a replica of another, and a pause may become a long one.
    let dangerous: [&[u8]; 5] = [b"shutdown", b"wait", b"replicaof", b"slaveof", b"client"];
    if dangerous.iter().any(|name| command[0].eq_ignore_ascii_case(name))
        || command[0].eq_ignore_ascii_case(b"hello") && names(command)
    {
        return;
    }
    let at = a.random.below(command.len() as u64) as usize;
    match a.random.below(6) {
        0 if command.len() > 1 => {
            command.remove(at.max(1));
        }
        1 => command.truncate(1),
        2 if at > 0 => {
            command[at] = a.odd();
            // An entry's id of the clock is another one on each server.
            if command[0].eq_ignore_ascii_case(b"xadd") && command[at] == b"*" {
                command[at] = b"1".to_vec();
            }
        }
        3 => command.insert(at.max(1).min(command.len()), command[at].clone()),
        4 if at > 1 => command.swap(at, at - 1),
        _ => command.push(a.number()),
    }
}

pub(super) fn unknown(a: &mut Arguments) -> Command {
    let mut command = vec![a.random.pick(&["NOSUCH", "G ET", "", "get\n", "nosuch'x"]).as_bytes().to_vec()];
    while a.random.percent(60) {
        command.push(if a.random.percent(20) { vec![b'x'; 200] } else { a.value() });
        command.last_mut().expect("one was pushed").truncate(300);
    }
    command
}

/// Bytes that are not tidy RESP arrays: inline commands, and input that parsers must refuse.
pub(super) const RAW: &[&[u8]] = &[
    b"PING\r\n",
    b"PING\n",
    b"\r\n\r\nPING\r\n",
    b"  PING  \r\n",
    b"SET a b\r\nGET a\r\n",
    b"SET \"a b\" 'c d'\r\nGET \"a b\"\r\n",
    b"SET a \"\\x41\\n\\\"\"\r\nGET a\r\n",
    b"SET a 'it\\'s'\r\nGET a\r\n",
    b"SET a \"b\r\nPING\r\n",
    b"SET a \"b\"c\r\nPING\r\n",
    b"GET \"\"\r\n",
    b"NOSUCH 1 2\r\nPING\r\n",
    b"$5\r\nPING\r\n",
    b"*0\r\nPING\r\n",
    b"*-1\r\nPING\r\n",
    b"*-10\r\nPING\r\n",
    b"*x\r\nPING\r\n",
    b"*\r\nPING\r\n",
    b"*1 \r\n$4\r\nPING\r\n",
    b"*2147483648\r\nPING\r\n",
    b"*99999999999999999999\r\n",
    b"*1\r\n+PING\r\n",
    b"*1\r\nPING\r\n",
    b"*1\r\n$-1\r\nPING\r\n",
    b"*1\r\n$x\r\nPING\r\n",
    b"*1\r\n$\r\nPING\r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
    b"*1\r\n$0\r\n\r\nPING\r\n",
    b"*1\r\n$4\r\nPI",
    b"*2\r\n$4\r\nECHO\r\n",
    b"*2\r\n$4\r\necho\r\n$5\r\na\r\nb\x00\r\n*1\r\n$4\r\nping\r\n",
    b"QUIT\r\nPING\r\n",
    b"*1\r\n$4\r\nQUIT\r\nPING\r\n",
    b"quit now\r\n",
    b"MULTI\r\nSET a 1\r\nNOSUCH\r\nEXEC\r\n",
];
