//! The rules by which two replies to a command count as equal: byte for byte, except where Redis promises less (order
//! of KEYS), where time runs (TTL), or where servers describe themselves (INFO). `exceptions` lists the differences
//! that have a reason of ours; it is asked only where these rules find replies unequal.

use std::collections::HashSet;

use super::groups::{timeless, timeless_pending};
use super::scripts;
use super::sequence::{Command, Sequence, Step};
use super::sorting::SORTED_LIST;
use super::users;
use crate::client::Reply;

/// A rule that compares the successful replies of a command. Errors are always compared exactly, with their texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Exact,
    /// A duration in units of so many milliseconds, that has gone on between the two servers.
    Remaining(i64),
    /// A point in time in units of so many milliseconds: exact if the sequence gave it, else near.
    Deadline(i64),
    /// A list without an order.
    Unordered,
    /// Fields and values in turn, without an order of the pairs.
    UnorderedPairs,
    /// Random elements: equally many on both sides.
    Sample,
    /// Any key, or none on both sides.
    AnyKey,
    /// A cursor and some keys: only the form is compared. Full iterations are steps of their own.
    ScanPage,
    /// The type of the reply alone.
    Form,
    /// SAVE and BGSAVE: either may meet a backup in progress.
    Backup,
    /// DBSIZE: exact unless there are keys whose deadline has passed.
    Size,
    /// DEBUG DIGEST: as DBSIZE, unless a HyperLogLog was counted.
    Digest,
    /// HELLO: equal fields in one order, and one protocol and role.
    Hello,
    /// INFO: the form, and the fields of the section keyspace.
    Info,
    /// ACL GETUSER: all but what 7.2 shows differently.
    User,
    /// XINFO: all fields but times, and those that only 7.2 has.
    XInfo,
    /// XPENDING: all but idle times.
    XPending,
    /// FUNCTION LIST: libraries, functions and flags in any order.
    Libraries,
    /// FUNCTION RESTORE: which of several names that are taken is told has no order.
    Restored,
    /// COMMAND INFO: sets of words in any order.
    CommandInfo,
    /// COMMAND DOCS: all but the wording.
    CommandDocs,
}

/// Returns the rule for SORT. Redis compares texts up to the first NUL unless the result is stored, and leaves equal
/// ones in any order; without sorting only a list has an order.
fn rule_of_sort(command: &Command) -> Rule {
    let has = |word: &str| command.iter().any(|argument| argument.eq_ignore_ascii_case(word.as_bytes()));
    let has_order = command.get(1).is_some_and(|key| key == SORTED_LIST);
    let is_open = has("nosort") && !has_order || has("alpha") && (!has("store") || has("by"));
    match (is_open, has("limit")) {
        (true, true) => Rule::Form,
        (true, false) => Rule::Unordered,
        (false, _) => Rule::Exact,
    }
}

pub fn rule_of(command: &Command) -> Rule {
    let word = |at: usize| command.get(at).map(|w| w.to_ascii_lowercase()).unwrap_or_default();
    match (word(0).as_slice(), word(1).as_slice()) {
        (b"ttl", _) => Rule::Remaining(1000),
        (b"pttl", _) => Rule::Remaining(1),
        (b"expiretime", _) => Rule::Deadline(1000),
        (b"pexpiretime", _) => Rule::Deadline(1),
        (b"smembers" | b"sinter" | b"sunion" | b"sdiff", _) => Rule::Unordered,
        // Any other count empties the set.
        (b"spop", b"popped") if command.len() == 2 => Rule::AnyKey,
        (b"spop", b"popped") => Rule::Sample,
        (b"spop", _) => Rule::Unordered,
        (b"srandmember", _) if command.len() == 2 => Rule::AnyKey,
        (b"srandmember", _) => Rule::Sample,
        (b"keys" | b"hkeys" | b"hvals", _) => Rule::Unordered,
        // Payloads are each server's own; the value that RESTORE makes of one is compared.
        (b"dump", _) => Rule::Form,
        (b"hgetall", _) => Rule::UnorderedPairs,
        (b"hrandfield" | b"zrandmember", _) if command.len() == 2 => Rule::AnyKey,
        (b"hrandfield" | b"zrandmember", _) => Rule::Sample,
        (b"sort" | b"sort_ro", _) => rule_of_sort(command),
        (b"randomkey", _) => Rule::AnyKey,
        (b"scan" | b"hscan" | b"sscan" | b"zscan", _) => Rule::ScanPage,
        // Redis counts keys whose deadline has passed until they are removed.
        (b"dbsize", _) => Rule::Size,
        (b"debug", b"digest" | b"digest-value") => Rule::Digest,
        (b"function", b"list") => Rule::Libraries,
        // Payloads are each server's own, as those of DUMP.
        (b"function", b"dump") => Rule::Form,
        (b"function", b"restore") => Rule::Restored,
        (b"xinfo", _) => Rule::XInfo,
        (b"xpending", _) => Rule::XPending,
        (b"debug", b"object" | b"htstats" | b"htstats-key") => Rule::Form,
        (b"hello", _) => Rule::Hello,
        (b"info", _) => Rule::Info,
        (b"save" | b"bgsave", _) => Rule::Backup,
        (b"lastsave", _) => Rule::Form,
        (b"client", b"id" | b"list" | b"info") | (b"command", b"count") => Rule::Form,
        (b"acl", b"getuser") => Rule::User,
        (b"acl", b"genpass" | b"cat" | b"log" | b"list") | (b"lolwut", _) => Rule::Form,
        // Redis's figures depend on the spare room of its objects, and so on what was done to them.
        (b"memory", b"usage" | b"stats" | b"doctor" | b"malloc-stats") | (b"object", b"idletime") => Rule::Form,
        (b"command", b"list") => Rule::Form,
        // Slow commands are each server's own.
        (b"slowlog", b"get" | b"len") | (b"latency", b"latest" | b"histogram" | b"doctor") => Rule::Form,
        // Without names these list every command that there is.
        (b"command", b"" | b"info" | b"docs") if command.len() <= 2 => Rule::Form,
        (b"command", b"info") => Rule::CommandInfo,
        (b"command", b"docs") => Rule::CommandDocs,
        // A pattern names settings that only one of the servers has.
        (b"config", b"get") if command.iter().any(|a| a.contains(&b'*')) => Rule::Form,
        (b"config", b"get") => Rule::Unordered,
        _ => Rule::Exact,
    }
}

/// The facts about a sequence that the rules for its commands need.
pub struct Context {
    /// The integers that the sequence names, in milliseconds and seconds: the deadlines among them come back exactly.
    literals: HashSet<i64>,
    /// Whether keys exist whose deadline has passed: they count in a database's size until they are removed, at a time
    /// that is each server's own.
    pub expired_keys: bool,
    /// Whether a HyperLogLog is counted: Redis keeps its count in the value, which is part of a digest.
    counts: bool,
}

impl Context {
    pub fn of(sequence: &Sequence) -> Context {
        let expired_keys = sequence.iter().any(|step| match step {
            Step::Wait { .. } => true,
            Step::Send { commands, .. } => commands.iter().any(may_set_expired),
            _ => false,
        });
        let counts = sequence.iter().any(|step| match step {
            Step::Send { commands, .. } => {
                commands.iter().flat_map(scripts::calls).any(|call| call[0].eq_ignore_ascii_case(b"pfcount"))
            }
            _ => false,
        });
        Context { literals: literals(sequence), expired_keys, counts }
    }
}

/// Returns whether a command is a SET to a deadline that may be in the past: Redis stores the key all the same.
pub(super) fn may_set_expired(command: &Command) -> bool {
    let is_deadline = |a: &Vec<u8>| a.eq_ignore_ascii_case(b"exat") || a.eq_ignore_ascii_case(b"pxat");
    let calls = scripts::calls(command);
    calls.iter().any(|call| call[0].eq_ignore_ascii_case(b"set") && call.iter().any(is_deadline))
}

fn literals(sequence: &Sequence) -> HashSet<i64> {
    let mut found = HashSet::new();
    for step in sequence {
        let Step::Send { commands, .. } = step else { continue };
        for argument in commands.iter().flatten().filter(|a| a.len() <= 20) {
            if let Some(number) = std::str::from_utf8(argument).ok().and_then(|t| t.parse::<i64>().ok()) {
                found.extend([number, number.saturating_mul(1000), number.saturating_add(500) / 1000]);
            }
        }
    }
    found
}

/// The clock difference that is attributed to scheduling.
const TOLERANCE_MS: i64 = 10_000;

pub fn same(rule: Rule, theirs: &Reply, ours: &Reply, context: &Context) -> bool {
    if theirs == ours || users::normal(theirs) == users::normal(ours) {
        return true;
    }
    if rule == Rule::Backup {
        return tells_of_backup(theirs) && tells_of_backup(ours);
    }
    if rule == Rule::Restored {
        return taken(theirs).is_some() && taken(theirs) == taken(ours);
    }
    if theirs.error().is_some() || ours.error().is_some() {
        return false;
    }
    let near = |unit_ms: i64| match (theirs, ours) {
        (Reply::Integer(a), Reply::Integer(b)) => {
            *a >= 0 && *b >= 0 && a.abs_diff(*b) <= (TOLERANCE_MS / unit_ms) as u64
        }
        _ => false,
    };
    match rule {
        Rule::Exact | Rule::Backup | Rule::Restored => false,
        Rule::Remaining(unit_ms) => near(unit_ms),
        Rule::Deadline(unit_ms) => !theirs.integer().is_some_and(|t| context.literals.contains(&t)) && near(unit_ms),
        Rule::Unordered => sorted(theirs) == sorted(ours),
        Rule::UnorderedPairs => sorted_pairs(theirs) == sorted_pairs(ours),
        Rule::Sample => theirs.elements().map(<[Reply]>::len) == ours.elements().map(<[Reply]>::len),
        Rule::AnyKey => matches!((theirs, ours), (Reply::Bulk(_), Reply::Bulk(_))),
        Rule::ScanPage => scan_page(theirs).is_some() && scan_page(ours).is_some(),
        Rule::Size if !context.expired_keys => false,
        Rule::Digest if !context.expired_keys && !context.counts => false,
        Rule::Form | Rule::Size | Rule::Digest => std::mem::discriminant(theirs) == std::mem::discriminant(ours),
        Rule::Hello => hello(theirs) == hello(ours),
        Rule::Info => {
            std::mem::discriminant(theirs) == std::mem::discriminant(ours)
                && (context.expired_keys || keyspace(theirs) == keyspace(ours))
        }
        Rule::User => users::is_same_user(theirs, ours),
        Rule::XInfo => timeless(theirs) == timeless(ours),
        Rule::XPending => timeless_pending(theirs) == timeless_pending(ours),
        Rule::Libraries => libraries(theirs) == libraries(ours),
        Rule::CommandInfo => normal(theirs) == normal(ours),
        Rule::CommandDocs => docs(theirs) == docs(ours),
    }
}

/// Returns whether a backup was made or begun, or could not be because of another one.
fn tells_of_backup(reply: &Reply) -> bool {
    match reply {
        Reply::Simple(text) => {
            matches!(&text[..], b"OK" | b"Background saving started" | b"Background saving scheduled")
        }
        other => other.error().is_some_and(|text| text == "ERR Background save already in progress"),
    }
}

/// Returns the kind of name that is taken, if a reply says that one is: `ERR Library` or `ERR Function`.
fn taken(reply: &Reply) -> Option<String> {
    let text = reply.error()?;
    let (kind, _) = text.strip_suffix(" already exists")?.rsplit_once(' ')?;
    Some(kind.to_owned())
}

/// Returns FUNCTION LIST with the libraries, their functions and the flags of these sorted. The fields of a library or
/// a function begin with a text, and stay in their order.
fn libraries(reply: &Reply) -> Reply {
    match reply {
        Reply::Array(items) | Reply::Set(items) => {
            let mut items: Vec<Reply> = items.iter().map(libraries).collect();
            if !items.iter().any(|item| matches!(item, Reply::Bulk(_))) {
                items.sort();
            }
            if matches!(reply, Reply::Set(_)) { Reply::Set(items) } else { Reply::Array(items) }
        }
        Reply::Map(pairs) => Reply::Map(pairs.iter().map(|(name, value)| (name.clone(), libraries(value))).collect()),
        other => other.clone(),
    }
}

/// Returns the reply with its top level sorted; pairs stay together in RESP2 too.
fn sorted(reply: &Reply) -> Reply {
    match reply {
        Reply::Set(items) => {
            let mut items = items.clone();
            items.sort();
            Reply::Set(items)
        }
        Reply::Array(items) => {
            let mut items = items.clone();
            items.sort();
            Reply::Array(items)
        }
        Reply::Map(pairs) => {
            let mut pairs = pairs.clone();
            pairs.sort();
            Reply::Map(pairs)
        }
        other => other.clone(),
    }
}

/// Returns a map, or the array that it is in RESP2, as sorted pairs.
fn sorted_pairs(reply: &Reply) -> (bool, Vec<(Reply, Reply)>) {
    let mut pairs = pairs(reply);
    pairs.sort();
    (matches!(reply, Reply::Map(_)), pairs)
}

/// Returns the cursor and the keys of a SCAN reply, if it is one.
pub fn scan_page(reply: &Reply) -> Option<(u64, Vec<Vec<u8>>)> {
    let [cursor, keys] = reply.elements()? else { return None };
    let cursor = std::str::from_utf8(cursor.bytes()?).ok()?.parse().ok()?;
    let keys = keys.elements()?.iter().map(|key| key.bytes().map(<[u8]>::to_vec)).collect::<Option<_>>()?;
    Some((cursor, keys))
}

/// Returns the fields of a map in either protocol.
fn pairs(reply: &Reply) -> Vec<(Reply, Reply)> {
    match reply {
        Reply::Map(pairs) => pairs.clone(),
        Reply::Array(flat) => flat.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
        _ => Vec::new(),
    }
}

/// Returns HELLO's fields, without the values that tell servers and connections apart.
fn hello(reply: &Reply) -> Vec<(Reply, Option<Reply>)> {
    let compared = |key: &Reply| matches!(key.bytes(), Some(b"proto" | b"mode" | b"role" | b"modules"));
    pairs(reply).into_iter().map(|(key, value)| if compared(&key) { (key, Some(value)) } else { (key, None) }).collect()
}

/// Returns the lines of INFO's section keyspace, without the mean time to live.
fn keyspace(reply: &Reply) -> Vec<String> {
    let text = String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned();
    let lines = text.lines().filter(|line| line.starts_with("db") && line.contains(":keys="));
    lines.map(|line| line.split(",avg_ttl").next().unwrap_or(line).to_string()).collect()
}

/// Returns the reply with arrays of plain words (flags, categories) sorted at every level.
fn normal(reply: &Reply) -> Reply {
    match reply {
        Reply::Array(items) | Reply::Set(items) => {
            let mut items: Vec<Reply> = items.iter().map(normal).collect();
            if items.iter().all(|item| matches!(item, Reply::Simple(_)) || is_subcommand(item)) {
                items.sort();
            }
            if matches!(reply, Reply::Set(_)) { Reply::Set(items) } else { Reply::Array(items) }
        }
        Reply::Map(pairs) => Reply::Map(pairs.iter().map(|(k, v)| (normal(k), normal(v))).collect()),
        other => other.clone(),
    }
}

/// Returns whether an item is an entry of the list of subcommands, which has no order.
fn is_subcommand(item: &Reply) -> bool {
    item.elements().and_then(<[Reply]>::first).is_some_and(is_subcommand_name)
}

fn is_subcommand_name(name: &Reply) -> bool {
    name.bytes().is_some_and(|name| name.contains(&b'|'))
}

/// Returns COMMAND DOCS without the fields that are prose, or that came with 7.2, and with the others sorted, at every
/// level.
fn docs(reply: &Reply) -> Reply {
    let pairs = match reply {
        Reply::Map(pairs) => pairs.clone(),
        // In RESP2 a map is a flat array that begins with a word.
        Reply::Array(items) if items.len().is_multiple_of(2) && items.first().is_some_and(|k| k.bytes().is_some()) => {
            pairs(reply)
        }
        Reply::Array(items) => return Reply::Array(items.iter().map(docs).collect()),
        other => return normal(other),
    };
    const PROSE: &[&[u8]] = &[b"summary", b"complexity", b"display_text", b"history"];
    let fields = pairs.iter().filter(|(key, _)| !key.bytes().is_some_and(|key| PROSE.contains(&key)));
    let mut fields: Vec<(Reply, Reply)> = fields.map(|(key, value)| (key.clone(), docs(value))).collect();
    fields.sort();
    match reply {
        Reply::Map(_) => Reply::Map(fields),
        _ => Reply::Array(fields.into_iter().flat_map(|(key, value)| [key, value]).collect()),
    }
}

/// Compares the replies inside an EXEC, each by the rule of its own command.
pub fn same_transaction(queued: &[Command], theirs: &Reply, ours: &Reply, context: &Context) -> bool {
    match (theirs, ours) {
        (Reply::Array(a), Reply::Array(b)) => {
            a.len() == b.len()
                && a.len() == queued.len()
                && queued.iter().zip(a.iter().zip(b)).all(|(c, (a, b))| same(rule_of(c), a, b, context))
        }
        _ => theirs == ours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, command: &str, theirs: Reply, ours: Reply, expected: bool) {
        let command = command.split(' ').map(|w| w.as_bytes().to_vec()).collect();
        let context = Context { literals: HashSet::from([4_102_444_800_000]), expired_keys: false, counts: false };
        assert_eq!(same(rule_of(&command), &theirs, &ours, &context), expected, "{name}");
    }

    #[test]
    fn rules() {
        use Reply::{Array, Integer, Null, NullBulk};
        let words = |words: &[&str]| Array(words.iter().map(|w| Reply::bulk(*w)).collect());
        let error = |text: &str| Reply::Error(text.as_bytes().to_vec());
        check("values are exact", "GET a", Reply::bulk("1"), Integer(1), false);
        check("nulls differ by protocol", "GET a", NullBulk, Null, false);
        check("error texts are exact", "TTL a", error("ERR a"), error("ERR b"), false);
        check("time has gone on", "TTL a", Integer(100), Integer(99), true);
        check("no time is no duration", "TTL a", Integer(-1), Integer(0), false);
        check(
            "a given deadline is exact",
            "PEXPIRETIME a",
            Integer(4_102_444_800_000),
            Integer(4_102_444_800_001),
            false,
        );
        check(
            "a computed deadline is near",
            "PEXPIRETIME a",
            Integer(4_000_000_000_000),
            Integer(4_000_000_000_001),
            true,
        );
        let started = || Reply::Simple(b"Background saving started".to_vec());
        let busy = || error("ERR Background save already in progress");
        check("one is under way on one side", "BGSAVE", started(), busy(), true);
        check("other errors are exact", "BGSAVE x", error("ERR syntax error"), busy(), false);
        check("KEYS has no order", "keys *", words(&["a", "b"]), words(&["b", "a"]), true);
        let function = |name: &str| Array(vec![Reply::bulk("name"), Reply::bulk(name)]);
        let library = |names: [&str; 2]| Array(vec![Reply::bulk("functions"), Array(names.map(function).to_vec())]);
        let [one, two] = [library(["f", "g"]), library(["g", "f"])];
        check("functions have no order", "FUNCTION LIST", Array(vec![one.clone()]), Array(vec![two.clone()]), true);
        check("functions have names", "FUNCTION LIST", one, library(["f", "h"]), false);
        let taken = |name: &str| error(&format!("ERR Library {name} already exists"));
        check("one of several names is told", "FUNCTION RESTORE x", taken("one"), taken("two"), true);
        check("a library has one name", "FUNCTION LOAD x", taken("one"), taken("two"), false);
        check("a name is taken", "FUNCTION RESTORE x", taken("one"), error("ERR Function f already exists"), false);
        check("KEYS has no duplicates", "KEYS *", words(&["a", "b"]), words(&["a", "b", "b"]), false);
    }
}
