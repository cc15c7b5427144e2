//! Secrets among the arguments of a call: which of them nobody may read afterwards, in the slow log or through MONITOR.
//!
//! Owns the rules, Redis's, by the full name that a command has in the table, whatever a server calls it. What a directive of
//! the configuration keeps secret is said by its row there.

use crate::lookup::Entry;
use haypile_config::table as directives;
use haypile_resp::Args;
use smallvec::SmallVec;

/// What stands in the place of a secret.
pub const REDACTED: &[u8] = b"(redacted)";

/// Finds the arguments of a call that are secret.
type Rule = fn(Args<'_>, &mut Secrets);

/// Positions of arguments, in rising order.
type Secrets = SmallVec<[usize; 4]>;

const RULES: &[(&str, Rule)] = &[
    // Whatever their number: a call that is wrong may hold a password all the same.
    ("auth", |args, secrets| secrets.extend(1..args.len())),
    ("hello", |args, secrets| after_word(args, 2, b"auth", 2, secrets)),
    ("config|set", config_set),
    // Rights are secrets as well as passwords, and so are the names of users.
    ("acl|setuser", |args, secrets| secrets.extend(2..args.len())),
    ("acl|deluser", |args, secrets| secrets.extend(2..args.len())),
    ("acl|getuser", |args, secrets| secrets.extend(2..args.len())),
    ("migrate", |args, secrets| {
        after_word(args, 6, b"auth", 1, secrets);
        after_word(args, 6, b"auth2", 2, secrets);
    }),
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

/// The `count` arguments behind a word that begins an option, wherever it stands from `first` on.
fn after_word(args: Args<'_>, first: usize, word: &[u8], count: usize, secrets: &mut Secrets) {
    for at in first..args.len() {
        if args.get(at).eq_ignore_ascii_case(word) {
            secrets.extend(at + 1..(at + 1 + count).min(args.len()));
        }
    }
}

fn config_set(args: Args<'_>, secrets: &mut Secrets) {
    for name_at in (2..args.len()).step_by(2) {
        let is_sensitive = directives::find(args.get(name_at)).is_some_and(|found| found.row.sensitive);
        if is_sensitive && name_at + 1 < args.len() {
            secrets.push(name_at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_resp::OwnedArgs;

    /// What is shown of a call whose words are separated by blanks.
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
        check("hello", "HELLO 3 setname me auth user", "HELLO 3 setname me auth *");
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
        check("config|set", "CONFIG SET requirepass", "CONFIG SET requirepass");
    }

    #[test]
    fn all_else_is_shown() {
        check("set", "SET auth requirepass", "SET auth requirepass");
        check("config|get", "CONFIG GET requirepass", "CONFIG GET requirepass");
    }
}
