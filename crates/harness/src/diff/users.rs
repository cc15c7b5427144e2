//! Users with random rules: the other connections of a case log in as one of them, and the commands that follow meet
//! its rights. The default user keeps all of its own: the connections of this program are its.
//!
//! Of the texts about rights 7.2 has others than 7.0; `normal` makes one of both. What rules permit is compared by the
//! commands, and by ACL DRYRUN, rather than by the rules that ACL LIST shows: 7.0 derives those from what they permit.

use super::arguments::Arguments;
use super::sequence::Command;
use crate::client::{Client, Reply};
use anyhow::Result;

/// The users of cases. The last one is nobody's login, so that it can be removed.
pub const USERS: [&str; 4] = ["u1", "u2", "u3", "gone"];

/// Rules, most of which are right. Keys are those of `Arguments::key`, channels those of the cases.
const RULES: &[&str] = &[
    "~*",
    "~a",
    "~k*",
    "~[abc]",
    "~a-b*",
    "~{tag}?",
    "%R~*",
    "%W~*",
    "%R~k*",
    "%W~a",
    "%RW~b*",
    "~",
    "resetkeys",
    "allkeys",
    "+@all",
    "-@all",
    "+@all",
    "allcommands",
    "+@read",
    "+@write",
    "-@write",
    "+@string",
    "+@hash",
    "-@hash",
    "+@list",
    "+@set",
    "+@sortedset",
    "+@stream",
    "+@geo",
    "+@bitmap",
    "+@hyperloglog",
    "+@keyspace",
    "-@keyspace",
    "+@connection",
    "-@connection",
    "+@transaction",
    "-@transaction",
    "+@scripting",
    "-@scripting",
    "+@pubsub",
    "+@admin",
    "-@admin",
    "+@dangerous",
    "-@dangerous",
    "-@slow",
    "+@fast",
    "-@fast",
    "+@blocking",
    "-@blocking",
    "+get",
    "-get",
    "+set",
    "-set",
    "+config|get",
    "-config",
    "+config",
    "-config|set",
    "+client",
    "-client|info",
    "+client|info",
    "+select|1",
    "+select|0",
    "-select",
    "+object|encoding",
    "-debug",
    "+eval",
    "-eval",
    "+fcall",
    "-multi",
    "-exec",
    "+sort",
    "-sort",
    "&*",
    "&a",
    "&news*",
    "resetchannels",
    "allchannels",
    "(+get ~k*)",
    "(+@read %R~a*)",
    "(+@all ~b)",
    "(+@write %W~c &*)",
    "clearselectors",
    "+nosuch",
    "-@nosuch",
    "+config|nosuch",
    "%~a",
    "nonsense",
    "+get|x",
    "-get|x",
    "on",
    "nopass",
    "sanitize-payload",
    "skip-sanitize-payload",
    "NOCOMMANDS",
    "+@READ",
    "+GET",
    "",
];

/// Returns the commands that make the users, before the others log in.
pub(super) fn beginning(a: &mut Arguments) -> Vec<Command> {
    let mut commands = Vec::new();
    for user in USERS {
        let mut command = words(&["ACL", "SETUSER", user, "reset", "on", "nopass"]);
        // Few may do little: then every command would only be refused.
        if a.random.percent(70) {
            command.extend(words(&["+@all", "~*", "&*"]));
        }
        commands.push(command);
        (0..a.random.between(1, 6))
            .for_each(|_| commands.push(words(&["ACL", "SETUSER", user, *a.random.pick(RULES)])));
    }
    commands
}

/// Removes all users but the default one.
pub(super) fn forget(admin: &mut Client) -> Result<()> {
    let users = admin.command("ACL USERS")?;
    for user in users.elements().unwrap_or_default().iter().filter_map(Reply::bytes).filter(|name| *name != b"default")
    {
        admin.call(&[&b"ACL"[..], b"DELUSER", user])?;
    }
    Ok(())
}

/// Returns the login of a connection.
pub(super) fn login(a: &mut Arguments) -> Command {
    let user = USERS[a.random.below(3) as usize];
    match a.random.below(3) {
        0 => words(&["HELLO", "3", "AUTH", user, "x"]),
        _ => words(&["AUTH", user, "x"]),
    }
}

/// Returns a command about users; `other` is one whose rights may be asked for.
pub(super) fn users(a: &mut Arguments, other: Command) -> Command {
    let user = *a.random.pick(&USERS);
    match a.random.below(100) {
        0..=39 => {
            let mut command = words(&["ACL", "SETUSER", user]);
            (0..a.random.between(1, 3)).for_each(|_| command.push(a.random.pick(RULES).as_bytes().to_vec()));
            command
        }
        40..=79 => [words(&["ACL", "DRYRUN", user]), other].concat(),
        80..=84 => words(&["ACL", "GETUSER", user]),
        85..=89 => words(&["ACL", "USERS"]),
        90..=92 => words(&["ACL", "WHOAMI"]),
        93..=94 => words(&["ACL", "LOG", *a.random.pick(&["RESET", "0", "x", "-1"])]),
        95..=96 => words(&["ACL", "DELUSER", *a.random.pick(&["gone", "nobody", "default"])]),
        97 => words(&["ACL", "SETUSER", *a.random.pick(&["a b", "u1"]), *a.random.pick(&["(+get", "(", ")", "()"])]),
        _ => login(a),
    }
}

fn words(words: &[&str]) -> Command {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns a reply with the texts about rights that both versions share, at any depth.
pub(super) fn normal(reply: &Reply) -> Reply {
    let all = |replies: &[Reply]| replies.iter().map(normal).collect();
    match reply {
        Reply::Error(text) => Reply::Error(normal_text(text)),
        Reply::Bulk(text) => Reply::Bulk(normal_text(text)),
        Reply::Array(replies) => Reply::Array(all(replies)),
        Reply::Set(replies) => Reply::Set(all(replies)),
        Reply::Map(pairs) => Reply::Map(pairs.iter().map(|(name, value)| (normal(name), normal(value))).collect()),
        other => other.clone(),
    }
}

/// The texts of 7.0, each by its beginning and its end, and what stands for them and for those of 7.2.
const TEXTS: &[(&str, &str, &str)] = &[
    ("NOPERM this user has no permissions to run the '", "' command", "NOPERM command"),
    ("NOPERM User ", "' command", "NOPERM command"),
    ("NOPERM this user has no permissions to access one of the keys", "", "NOPERM key"),
    ("NOPERM No permissions to access a key", "", "NOPERM key"),
    ("NOPERM this user has no permissions to access one of the channels", "", "NOPERM channel"),
    ("NOPERM No permissions to access a channel", "", "NOPERM channel"),
    ("This user has no permissions to ", "", "DRYRUN"),
    ("User u", "", "DRYRUN"),
    ("User gone has no permissions", "", "DRYRUN"),
    ("ERR The user executing the script can't ", "", "ERR script"),
    ("ERR ACL failure in script: ", "", "ERR script"),
];

fn normal_text(text: &[u8]) -> Vec<u8> {
    let aborted: &[u8] = b"EXECABORT Transaction discarded because of: ";
    if let Some(why) = text.strip_prefix(aborted) {
        return [aborted, &normal_text(why)].concat();
    }
    let is =
        |(begin, end, _): &&(&str, &str, &str)| text.starts_with(begin.as_bytes()) && text.ends_with(end.as_bytes());
    match TEXTS.iter().find(is) {
        // A denial of a dry run names the key, channel or command behind its own words.
        Some((_, _, "DRYRUN")) => {
            let begin = text.windows(4).position(|window| window == b" to ").unwrap_or(0);
            let (what, kind) = split_at_last_quote(&text[begin..]);
            // 7.0 prints a name up to its first NUL.
            let what = what.split(|&byte| byte == 0).next().unwrap_or_default();
            [b"DRYRUN", what, kind].concat()
        }
        Some((_, _, shared)) => shared.as_bytes().to_vec(),
        None => text.to_vec(),
    }
}

fn split_at_last_quote(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().rposition(|&byte| byte == b'\'').unwrap_or(text.len()))
}

/// Returns whether replies to ACL GETUSER agree but for what 7.2 shows differently: the flag `sanitize-payload`, which
/// new users of 7.2 have, and the order and choice of the rules for commands.
pub(super) fn is_same_user(theirs: &Reply, ours: &Reply) -> bool {
    shown(theirs).is_some() && shown(theirs) == shown(ours)
}

fn shown(reply: &Reply) -> Option<Vec<Reply>> {
    let fields: Vec<Reply> = match reply {
        Reply::Array(fields) => fields.clone(),
        Reply::Map(pairs) => pairs.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect(),
        _ => return None,
    };
    let mut kept = Vec::new();
    for pair in fields.chunks(2) {
        let [name, value] = pair else { return None };
        match (name.bytes()?, value) {
            (b"commands", _) => {}
            (b"flags", Reply::Array(flags) | Reply::Set(flags)) => {
                let is_shared = |flag: &&Reply| flag.bytes().is_some_and(|flag| !flag.ends_with(b"sanitize-payload"));
                kept.push(Reply::Array(flags.iter().filter(is_shared).cloned().collect()));
            }
            (b"selectors", Reply::Array(selectors)) => {
                let selectors: Option<Vec<Reply>> = selectors.iter().map(|one| shown(one).map(Reply::Array)).collect();
                kept.push(Reply::Array(selectors?));
            }
            (_, value) => kept.push(value.clone()),
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_both_versions_are_one() {
        let check = |theirs: &str, ours: &str| {
            assert_eq!(normal_text(theirs.as_bytes()), normal_text(ours.as_bytes()), "{theirs}");
        };
        check(
            "NOPERM this user has no permissions to run the 'get' command",
            "NOPERM User u1 has no permissions to run the 'get' command",
        );
        check(
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
        );
        check("This user has no permissions to access the 'a' key", "User u2 has no permissions to access the 'a' key");
        let other = normal_text(b"User u2 has no permissions to access the 'b' key");
        assert_ne!(normal_text(b"This user has no permissions to access the 'a' key"), other);
    }
}
