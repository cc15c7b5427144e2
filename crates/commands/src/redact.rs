//! Secrets among the arguments of a call: which of them nobody may read afterwards, in the slow log or through MONITOR.
//!
//! Owns the rules, Redis's, by the full name that a command has in the table, whatever a server calls it. What a
//! directive of the configuration keeps secret is said by its row there. Of a call that makes no sense nothing is
//! shown: nobody can tell where in it the secret stands. There Redis shows more.

use crate::lookup::Entry;
use haypile_config::table as directives;
use haypile_resp::{Args, number};
use smallvec::SmallVec;

/// The text that replaces a secret.
pub const REDACTED: &[u8] = b"(redacted)";

/// Finds the arguments of a call that are secret.
type Rule = fn(Args<'_>, &mut Secrets);

/// Positions of arguments, in rising order.
type Secrets = SmallVec<[usize; 4]>;

const RULES: &[(&str, Rule)] = &[
    // Whatever their number: a call that is wrong may hold a password all the same.
    ("auth", |args, secrets| secrets.extend(1..args.len())),
    ("hello", |args, secrets| only_values(args, 1, hello(args), secrets)),
    ("config|set", |args, secrets| only_values(args, 2, config_set(args), secrets)),
    // Rights are secrets as well as passwords, and so are the names of users.
    ("acl|setuser", |args, secrets| secrets.extend(2..args.len())),
    ("acl|deluser", |args, secrets| secrets.extend(2..args.len())),
    ("acl|getuser", |args, secrets| secrets.extend(2..args.len())),
    ("migrate", |args, secrets| only_values(args, 1, migrate(args), secrets)),
];

/// The arguments of a call as they may be shown, the command's name first.
pub fn shown<'a>(entry: &Entry, args: Args<'a>) -> impl ExactSizeIterator<Item = &'a [u8]> {
    let secrets = secrets(&entry.full_name, args);
    (0..args.len()).map(move |at| if secrets.contains(&at) { REDACTED } else { args.get(at) })
}

fn secrets(full_name: &str, args: Args<'_>) -> Secrets {
    let mut secrets = Secrets::new();
    if let Some((_, rule)) = RULES.iter().find(|(name, _)| *name == full_name) {
        rule(args, &mut secrets);
    }
    secrets
}

/// Adds the secrets that were found in a call, or all arguments from `first` on where the call makes no sense.
fn only_values(args: Args<'_>, first: usize, found: Option<Secrets>, secrets: &mut Secrets) {
    match found {
        Some(found) => secrets.extend(found),
        None => secrets.extend(first..args.len()),
    }
}

/// HELLO [protover [AUTH user password] [SETNAME name]]
fn hello(args: Args<'_>) -> Option<Secrets> {
    let mut secrets = Secrets::new();
    if args.len() > 1 {
        number::parse_i64(args.get(1))?;
        options(args, 2, &[("auth", 2), ("setname", 1)], &mut secrets)?;
    }
    Some(secrets)
}

/// MIGRATE host port key database timeout [COPY] [REPLACE] [AUTH password] [AUTH2 user password] [KEYS key ...]
fn migrate(args: Args<'_>) -> Option<Secrets> {
    let mut secrets = Secrets::new();
    for at in [2, 4, 5] {
        number::parse_i64(args.opt(at)?)?;
    }
    options(args, 6, &[("copy", 0), ("replace", 0), ("auth", 1), ("auth2", 2), ("keys", usize::MAX)], &mut secrets)?;
    Some(secrets)
}

/// CONFIG SET directive value [directive value ...]
fn config_set(args: Args<'_>) -> Option<Secrets> {
    let mut secrets = Secrets::new();
    for name_at in (2..args.len()).step_by(2) {
        args.opt(name_at + 1)?;
        if directives::find(args.get(name_at))?.row.sensitive {
            secrets.push(name_at + 1);
        }
    }
    Some(secrets)
}

/// Reads the options from `at` to the end, each a word and so many values, `usize::MAX` for all that follow. Values of
/// AUTH and AUTH2 are secret. Nothing if they are no such options.
fn options(args: Args<'_>, mut at: usize, known: &[(&str, usize)], secrets: &mut Secrets) -> Option<()> {
    while at < args.len() {
        let word = args.get(at);
        let (name, values) = *known.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))?;
        let end = (at + 1).saturating_add(values);
        if values != usize::MAX && end > args.len() {
            return None;
        }
        if name.starts_with("auth") {
            secrets.extend(at + 1..end);
        }
        at = end;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_resp::OwnedArgs;

    /// Compares the arguments that are shown of a call, whose words are separated by blanks.
    #[track_caller]
    fn check(full_name: &str, call: &str, expected: &str) {
        let mut args = OwnedArgs::default();
        call.split(' ').for_each(|word| args.push(word.as_bytes()));
        let secrets = secrets(full_name, args.as_args());
        let shown: Vec<&str> =
            call.split(' ').enumerate().map(|(at, word)| if secrets.contains(&at) { "*" } else { word }).collect();
        assert_eq!(shown.join(" "), expected, "{call}");
    }

    #[test]
    fn passwords_are_not_shown() {
        check("auth", "AUTH secret", "AUTH *");
        check("auth", "AUTH user secret", "AUTH * *");
        check("auth", "AUTH user secret more", "AUTH * * *");
        check("hello", "HELLO 3 AUTH user secret SETNAME me", "HELLO 3 AUTH * * SETNAME me");
        check("hello", "HELLO 3 setname me auth user", "HELLO * * * * *");
        check("migrate", "MIGRATE host 6379 k 0 5000 COPY AUTH secret", "MIGRATE host 6379 k 0 5000 COPY AUTH *");
        check(
            "migrate",
            "MIGRATE host 6379 k 0 5000 auth2 user secret KEYS a",
            "MIGRATE host 6379 k 0 5000 auth2 * * KEYS a",
        );
    }

    #[test]
    fn users_and_their_rights_are_not_shown() {
        check("acl|setuser", "ACL SETUSER bob on >secret", "ACL SETUSER * * *");
        check("acl|deluser", "ACL DELUSER bob", "ACL DELUSER *");
        check("acl|getuser", "ACL GETUSER bob", "ACL GETUSER *");
    }

    #[test]
    fn directives_that_hold_secrets_are_not_shown() {
        check("config|set", "CONFIG SET maxmemory 1gb requirepass secret", "CONFIG SET maxmemory 1gb requirepass *");
        check("config|set", "CONFIG SET MasterAuth secret timeout 5", "CONFIG SET MasterAuth * timeout 5");
        check("config|set", "CONFIG SET requirepass", "CONFIG SET *");
        check("config|set", "CONFIG SET requirepas secret", "CONFIG SET * *");
    }

    /// Calls with a password that somebody has mistyped: a word left out, doubled, out of its place, or one too many.
    #[test]
    fn a_password_is_not_shown_whatever_is_wrong_with_its_call() {
        let calls = [
            ("auth", "AUTH s3cret"),
            ("auth", "AUTH user s3cret"),
            ("hello", "HELLO 3 AUTH user s3cret SETNAME me"),
            ("hello", "HELLO 3 SETNAME me AUTH user s3cret"),
            ("config|set", "CONFIG SET maxmemory 1gb requirepass s3cret"),
            ("config|set", "CONFIG SET masterauth s3cret timeout 5"),
            ("acl|setuser", "ACL SETUSER bob on >s3cret"),
            ("migrate", "MIGRATE host 6379 k 0 5000 COPY AUTH s3cret"),
            ("migrate", "MIGRATE host 6379 k 0 5000 AUTH2 user s3cret REPLACE"),
        ];
        for (full_name, call) in calls {
            let words: Vec<&str> = call.split(' ').collect();
            let name_words = 1 + usize::from(full_name.contains('|'));
            let mut wrong = vec![words.clone()];
            for at in name_words..words.len() {
                let with = |change: fn(&mut Vec<&'static str>, usize)| {
                    let mut words: Vec<&'static str> = call.split(' ').collect();
                    change(&mut words, at);
                    words
                };
                wrong.push(with(|words, at| _ = words.remove(at)));
                wrong.push(with(|words, at| words.insert(at, words[at])));
                wrong.push(with(|words, at| words.insert(at, "more")));
                wrong.push(with(|words, at| words.truncate(at + 1)));
                wrong.push(with(|words, at| words.push(words[at])));
                if at + 1 < words.len() {
                    wrong.push(with(|words, at| words.swap(at, at + 1)));
                }
            }
            for words in wrong {
                let mut args = OwnedArgs::default();
                words.iter().for_each(|word| args.push(word.as_bytes()));
                let secrets = secrets(full_name, args.as_args());
                for (at, word) in words.iter().enumerate() {
                    assert!(!word.contains("s3cret") || secrets.contains(&at), "{words:?} shows word {at}");
                }
            }
        }
    }

    #[test]
    fn all_else_is_shown() {
        check("hello", "HELLO 3 SETNAME auth", "HELLO 3 SETNAME auth");
        check("migrate", "MIGRATE host 6379 k 0 5000 KEYS auth b c", "MIGRATE host 6379 k 0 5000 KEYS auth b c");
        check("set", "SET auth requirepass", "SET auth requirepass");
        check("config|get", "CONFIG GET requirepass", "CONFIG GET requirepass");
    }
}
