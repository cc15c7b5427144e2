//! The normal form of what a connection heard, in which two servers are compared: all of it, in its order, but for what
//! Redis leaves to the order of its hash tables, and for what tells servers and connections apart.

use crate::client::Reply;
use crate::diff::sequence::Command;
use std::collections::BTreeSet;

/// The connections of one server, known by their ports.
pub struct Hearing {
    pub ports: Vec<u16>,
}

/// The fields of CLIENT LIST that do not depend on memory, time or the server's other clients.
const FIELDS: &[&str] = &["flags", "db", "name", "sub", "psub", "ssub", "multi", "resp", "cmd", "user", "redir"];
const UNSUBSCRIBED: [&[u8]; 3] = [b"unsubscribe", b"punsubscribe", b"sunsubscribe"];

impl Hearing {
    /// Returns the normal form of what each connection heard in the step of these commands.
    pub fn normal(&self, heard: Vec<Vec<Reply>>, commands: &[Command]) -> Vec<Vec<Reply>> {
        let has = |test: fn(&Command) -> bool| commands.iter().any(test);
        let nameless =
            has(|command| command.len() == 1 && UNSUBSCRIBED.iter().any(|w| command[0].eq_ignore_ascii_case(w)));
        let listed = has(|command| command[0].eq_ignore_ascii_case(b"pubsub"));
        let of_connection = |mut heard: Vec<Reply>| {
            heard.iter_mut().for_each(|reply| self.anonymous(reply, listed));
            if nameless {
                UNSUBSCRIBED.iter().for_each(|word| sort_names(&mut heard, word));
            }
            let mut parts = Parts::default();
            heard.into_iter().for_each(|reply| parts.add(reply));
            sort_patterns(&mut parts.messages);
            parts.replies.append(&mut parts.messages);
            parts.replies.append(&mut parts.monitored);
            if !parts.stale.is_empty() {
                parts.replies.push(Reply::Push(parts.stale.into_iter().collect()));
            }
            parts.replies
        };
        heard.into_iter().map(of_connection).collect()
    }

    /// Takes the details that are each server's own out of a reply.
    fn anonymous(&self, reply: &mut Reply, listed: bool) {
        match reply {
            Reply::Bulk(text) | Reply::Verbatim(text) if contains(text, b" addr=") => {
                let text = self.clients(&String::from_utf8_lossy(text));
                *reply = Reply::Simple(text.into_bytes());
            }
            Reply::Simple(line) if line.first().is_some_and(u8::is_ascii_digit) => {
                *line = self.monitored(&String::from_utf8_lossy(line)).into_bytes();
            }
            Reply::Map(pairs) => hello(pairs.iter_mut().map(|(key, value)| (&*key, value))),
            Reply::Array(items) | Reply::Push(items) => {
                items.iter_mut().for_each(|item| self.anonymous(item, listed));
                if items.first().is_some_and(|first| first.bytes() == Some(b"server")) {
                    hello(items.chunks_exact_mut(2).map(|pair| {
                        let (key, value) = pair.split_at_mut(1);
                        (&key[0], &mut value[0])
                    }));
                }
                if listed && items.iter().all(|item| matches!(item, Reply::Bulk(_))) && !is_message(items) {
                    items.sort();
                }
            }
            _ => {}
        }
    }

    /// Returns the lines of CLIENT LIST that are about our connections, by their numbers.
    fn clients(&self, text: &str) -> String {
        let line = |line: &str| {
            let fields: Vec<(&str, &str)> = line.split(' ').filter_map(|field| field.split_once('=')).collect();
            let (_, address) = fields.iter().find(|(name, _)| *name == "addr")?;
            let number = self.number(address)?;
            let compared = fields.iter().filter(|(name, _)| FIELDS.contains(name));
            Some((number, compared.map(|(name, value)| format!(" {name}={value}")).collect::<String>()))
        };
        let mut lines: Vec<_> = text.lines().filter_map(line).collect();
        lines.sort();
        lines.iter().map(|(number, fields)| format!("{number}:{fields}\n")).collect()
    }

    /// Returns the number of the connection with this address.
    fn number(&self, address: &str) -> Option<usize> {
        let port = address.rsplit(':').next()?.parse::<u16>().ok()?;
        self.ports.iter().position(|known| *known == port)
    }

    /// Returns a line of MONITOR without its time, its client by its number.
    fn monitored(&self, line: &str) -> String {
        let parts = || {
            let (_, rest) = line.split_once(" [")?;
            let (who, what) = rest.split_once("] ")?;
            let (database, address) = who.split_once(' ')?;
            // Redis shows the secrets of a HELLO that it refuses; our server never shows one.
            let is_hello = what.get(..7).is_some_and(|name| name.eq_ignore_ascii_case("\"hello\""));
            let what = if is_hello { "\"hello\"" } else { what };
            Some(format!("[{database} {:?}] {what}", self.number(address)))
        };
        parts().unwrap_or_else(|| line.to_string())
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Removes the version and the connection's number from HELLO's fields: both are each server's own.
fn hello<'a>(fields: impl Iterator<Item = (&'a Reply, &'a mut Reply)>) {
    fields
        .filter(|(key, _)| matches!(key.bytes(), Some(b"version" | b"id")))
        .for_each(|(_, value)| *value = Reply::Null);
}

fn is_message(items: &[Reply]) -> bool {
    items.first().and_then(Reply::bytes).is_some_and(|word| word.ends_with(b"message"))
}

/// The replies and messages of a step, by kind. 7.0 sends a client the messages that it has caused itself before the
/// reply, 7.2 afterwards, and 7.0 even in the middle of an array, whose last elements then stand behind it: arrays are
/// taken apart, so that they compare as they were sent. A line of MONITOR follows the messages of its command in Redis,
/// and precedes them here. Of keys that a client has kept it is told with the commands that change them, or at the end
/// of a round of the event loop, and in one message or in several.
#[derive(Default)]
struct Parts {
    replies: Vec<Reply>,
    messages: Vec<Reply>,
    monitored: Vec<Reply>,
    /// The keys, and null for all of them.
    stale: BTreeSet<Reply>,
}

impl Parts {
    fn add(&mut self, reply: Reply) {
        match reply {
            Reply::Simple(line) if line.starts_with(b"[") => self.monitored.push(Reply::Simple(line)),
            reply if reply.elements().is_some_and(is_message) => self.messages.push(reply),
            Reply::Push(items) if items.first().and_then(Reply::bytes) == Some(b"invalidate") => {
                items.into_iter().skip(1).for_each(|keys| match keys {
                    Reply::Array(keys) => self.stale.extend(keys),
                    all => _ = self.stale.insert(all),
                });
            }
            Reply::Array(items) => {
                self.replies.push(Reply::Simple(format!("*{}", items.len()).into_bytes()));
                items.into_iter().for_each(|item| self.add(item));
            }
            reply => self.replies.push(reply),
        }
    }
}

/// Sorts the messages that several patterns brought of one PUBLISH: their order is not defined.
fn sort_patterns(heard: &mut [Reply]) {
    let message = |reply: &Reply| match reply.elements() {
        Some([word, _, rest @ ..]) if word.bytes() == Some(b"pmessage") => Some(rest.to_vec()),
        _ => None,
    };
    for run in heard.chunk_by_mut(|a, b| message(a).is_some() && message(a) == message(b)) {
        run.sort();
    }
}

/// Sorts the names in the replies to an UNSUBSCRIBE from everything: Redis names the subscriptions in no order. Only
/// names are sorted, the counts stay where they are. In RESP2 a block answers with more elements than it has announced,
/// which then stand beside it: names of all levels are sorted together.
fn sort_names(heard: &mut [Reply], word: &[u8]) {
    let mut names = Vec::new();
    each_name(heard, word, &mut |name| names.push(name.clone()));
    names.sort();
    let mut names = names.into_iter();
    each_name(heard, word, &mut |name| *name = names.next().expect("as many as were found"));
}

fn each_name(replies: &mut [Reply], word: &[u8], visit: &mut impl FnMut(&mut Reply)) {
    for reply in replies {
        let (Reply::Array(items) | Reply::Push(items)) = reply else { continue };
        match &mut items[..] {
            [first, name, Reply::Integer(_)] if first.bytes() == Some(word) => visit(name),
            items => each_name(items, word, visit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::decode;

    fn check(name: &str, commands: &str, theirs: &str, ours: &str, expected: bool) {
        let read = |text: &str| {
            let bytes = text.replace(' ', "\r\n") + "\r\n";
            let mut bytes = bytes.as_bytes();
            let mut heard = Vec::new();
            while !bytes.is_empty() {
                heard.push(decode(&mut bytes).expect("well formed"));
            }
            vec![heard]
        };
        let commands: Vec<Command> =
            commands.split(';').map(|c| c.split_whitespace().map(|w| w.as_bytes().to_vec()).collect()).collect();
        let hearing = Hearing { ports: vec![7001] };
        let equal = hearing.normal(read(theirs), &commands) == hearing.normal(read(ours), &commands);
        assert_eq!(equal, expected, "{name}");
    }

    #[test]
    fn only_what_has_no_order_is_sorted() {
        let both = |word: &str, a: &str, b: &str| {
            let one = |name: &str, count: u32| format!("*3 ${} {word} $1 {name} :{count}", word.len());
            format!("{} {}", one(a, 1), one(b, 0))
        };
        let (ab, ba) = (both("unsubscribe", "a", "b"), both("unsubscribe", "b", "a"));
        check("all at once", "UNSUBSCRIBE", &ab, &ba, true);
        check("one by one", "UNSUBSCRIBE a b", &ab, &ba, false);
        check("in a block", "MULTI;UNSUBSCRIBE;EXEC", &format!("*1 {ab}"), &format!("*1 {ba}"), true);
        let matched = |pattern: &str, text: &str| format!("*4 $8 pmessage $2 {pattern} $1 c $1 {text}");
        let two = |a: String, b: String| format!("{a} {b}");
        let (a, b) = (matched("a*", "1"), matched("b*", "1"));
        check("two patterns", "PUBLISH c 1", &two(a.clone(), b.clone()), &two(b.clone(), a.clone()), true);
        check("one's own", "PUBLISH c 1", &two(a.clone(), ":1".into()), &two(":1".into(), a.clone()), true);
        let (first, then) = (format!("*2 {a} :1 {a} :2"), format!("*2 :1 :2 {a} {a}"));
        check("one's own in a block", "EXEC", &first, &then, true);
        check("one's own in an array", "MGET x", &format!("*1 *1 {a} $-1"), &format!("*1 *1 $-1 {a}"), true);
        let (later, a2) = (matched("b*", "2"), a.clone());
        check("two messages", "PUBLISH c 1", &two(a, later.clone()), &two(later, a2), false);
        check("a list", "PUBSUB CHANNELS", "*2 $1 a $1 b", "*2 $1 b $1 a", true);
        check("values", "MGET a b", "*2 $1 a $1 b", "*2 $1 b $1 a", false);
    }

    #[test]
    fn monitors_are_compared_without_time_and_address() {
        let hearing = Hearing { ports: vec![7001, 7002] };
        let line = "1700000000.123456 [3 127.0.0.1:7002] \"get\" \"] x\"";
        assert_eq!(hearing.monitored(line), "[3 Some(1)] \"get\" \"] x\"");
    }

    #[test]
    fn clients_are_listed_by_their_numbers() {
        let hearing = Hearing { ports: vec![7001, 7002] };
        let text = "id=9 addr=127.0.0.1:7002 laddr=127.0.0.1:1 name=b db=1\nid=3 addr=127.0.0.1:1 db=0\n\
                    id=8 addr=127.0.0.1:7001 name= db=0\n";
        assert_eq!(hearing.clients(text), "0: name= db=0\n1: name=b db=1\n");
    }
}
