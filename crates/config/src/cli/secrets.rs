//! Passwords among the arguments of a process: every user of the machine can read these, so that the process starts
//! itself anew without them. This file finds them; the binary hands them to the new process.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::{table, words};

/// The text in the place of a secret.
pub const HIDDEN: &str = "(hidden)";

/// Returns the arguments after the name of the program with secrets hidden; `None` where none of them is secret. They
/// are read as `CommandLine::parse` reads them: all up to the next `--name` belong to a name, at least one.
pub fn hidden(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let (mut shown, mut found) = (Vec::with_capacity(arguments.len()), false);
    let (mut is_secret, mut name_may_follow) = (false, true);
    for argument in arguments {
        let bytes = argument.as_bytes();
        let mut seen = argument.clone();
        if name_may_follow && bytes.starts_with(b"--") {
            let name = bytes[2..].split(u8::is_ascii_whitespace).next().unwrap_or_default();
            is_secret = is_sensitive(name);
            let is_alone = words::split(bytes).is_ok_and(|words| words.len() == 1);
            if is_secret && !is_alone {
                // The value stands in the same argument.
                seen = OsString::from_vec([b"--", name, b" ", HIDDEN.as_bytes()].concat());
                found = true;
            }
            name_may_follow = !is_alone || bytes.eq_ignore_ascii_case(b"--save");
        } else {
            if is_secret {
                seen = HIDDEN.into();
                found = true;
            }
            name_may_follow = true;
        }
        shown.push(seen);
    }
    found.then_some(shown)
}

/// Tells whether a directive's value is secret, or that of an option of `import` and `export`. The rules of a user may
/// hold passwords.
fn is_sensitive(name: &[u8]) -> bool {
    [&b"password"[..], b"user"].iter().any(|secret| name.eq_ignore_ascii_case(secret))
        || table::find(name).is_some_and(|found| found.row.sensitive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &[&str], expected: Option<&[&str]>) {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let expected = expected.map(|shown| shown.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(hidden(&arguments), expected, "{arguments:?}");
    }

    #[test]
    fn values_of_secret_directives_are_hidden_and_nothing_else() {
        check(&["server"], None);
        check(&["server", "a.conf", "--port", "1", "--save", "--dir", "requirepass"], None);
        check(&["server", "--requirepass"], None);
        check(
            &["server", "a.conf", "--requirepass", "s3cret", "--port", "1"],
            Some(&["server", "a.conf", "--requirepass", "(hidden)", "--port", "1"]),
        );
        check(&["server", "--RequirePass s3cret x"], Some(&["server", "--RequirePass (hidden)"]));
        check(&["server", "--MASTERAUTH", "a", "b"], Some(&["server", "--MASTERAUTH", "(hidden)", "(hidden)"]));
        check(&["server", "--requirepass", "--dashes"], Some(&["server", "--requirepass", "(hidden)"]));
        check(&["server", "--save", "--requirepass", "x"], Some(&["server", "--save", "--requirepass", "(hidden)"]));
        check(&["export", "f", "--password", "x"], Some(&["export", "f", "--password", "(hidden)"]));
        check(&["server", "--masteruser", "x", "-"], Some(&["server", "--masteruser", "(hidden)", "(hidden)"]));
    }
}
