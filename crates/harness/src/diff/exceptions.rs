//! The differences that are allowed beside redis-server, and why: the changes of Redis 7.2, which is the version we
//! follow, against the 7.0 that systems package, and our deliberate differences, which docs/compatibility.md explains
//! to users. A rule that no longer applies anywhere is to be deleted.

use super::sequence::Command;
use crate::client::Reply;

/// The exception that ends its sequence, because the stored results differ too.
pub(super) const SORT_AFTER_A_RANGE_ERROR: &str = "sort-after-a-range-error";

/// The exception that ends its sequence, because the key exists on one side only.
pub(super) const PFMERGE_OF_ONE: &str = "pfmerge-of-one";

/// A difference that is allowed.
pub struct Exception {
    pub name: &'static str,
    pub reason: &'static str,
    /// Returns whether the exception explains these replies to this command. A command in a transaction is judged on
    /// its own.
    applies: fn(&Command, &Reply, &Reply) -> bool,
}

pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        name: "client-setinfo",
        reason: "CLIENT SETINFO is new in 7.2; 7.0 does not know the subcommand",
        applies: |command, theirs, ours| {
            is(command, &["client", "setinfo"]) && refused(theirs, "unknown subcommand") && ours.is_ok()
        },
    },
    Exception {
        name: "client-no-touch",
        reason: "CLIENT NO-TOUCH is new in 7.2; 7.0 does not know the subcommand",
        applies: |command, theirs, ours| {
            is(command, &["client", "no-touch"]) && refused(theirs, "unknown subcommand") && !refused(ours, "unknown")
        },
    },
    Exception {
        name: "role-offset",
        reason: "offsets are indexes of the log, which is there before the first replica",
        applies: |command, theirs, ours| {
            let role = |reply: &Reply| match reply.elements() {
                Some([part, _, replicas]) => Some((part.clone(), replicas.clone())),
                _ => None,
            };
            is(command, &["role"]) && role(theirs).is_some() && role(theirs) == role(ours)
        },
    },
    Exception {
        name: "command-getkeys-arity",
        reason: "7.2 lets COMMAND GETKEYS and GETKEYSANDFLAGS have a command without arguments; 7.0 calls that a wrong number of arguments",
        applies: |command, theirs, _| {
            let is_one = ["getkeys", "getkeysandflags"].iter().any(|word| is(command, &["command", word]));
            is_one && command.len() == 3 && refused(theirs, "wrong number of arguments")
        },
    },
    Exception {
        name: "acl-dryrun-7.2",
        reason: "ACL DRYRUN of a command, or of a number of arguments, that 7.0 does not know",
        applies: |command, theirs, _| {
            is(command, &["acl", "dryrun"])
                && (refused(theirs, "not found") || refused(theirs, "wrong number of arguments"))
        },
    },
    Exception {
        name: "wait-is-blocking-7.2",
        reason: "WAIT is of the category @blocking since 7.2: a user's rule about that counts for it",
        applies: |command, theirs, ours| {
            let at = if is(command, &["acl", "dryrun"]) { 3 } else { 0 };
            let is_denied = at > 0 || refused(theirs, "NOPERM") || refused(ours, "NOPERM");
            is_denied && command.get(at).is_some_and(|word| word.eq_ignore_ascii_case(b"wait"))
        },
    },
    Exception {
        name: PFMERGE_OF_ONE,
        reason: "of PFMERGE with one key Redis finds no key, so that no right is asked for: anybody may make it",
        applies: |command, _, ours| {
            let at = if is(command, &["acl", "dryrun"]) { 3 } else { 0 };
            let is_denied = refused(ours, "NOPERM") || at > 0;
            is_denied && command.len() == at + 2 && command[at].eq_ignore_ascii_case(b"pfmerge")
        },
    },
    Exception {
        name: "nul-in-words",
        reason: "Redis reads a cursor up to a NUL byte; we take the bytes as they are",
        applies: |command, _, _| {
            let words = ["scan", "hscan", "sscan", "zscan"];
            words.iter().any(|word| is(command, &[word])) && command[1..].iter().any(|a| a.contains(&0))
        },
    },
    Exception {
        name: "memory-usage-expired",
        reason: "Redis measures a key whose deadline has passed until something removes it; to us it is gone",
        applies: |command, theirs, ours| {
            is(command, &["memory", "usage"]) && theirs.integer().is_some() && ours.is_nil()
        },
    },
    Exception {
        name: "object-history",
        reason: "Redis tells by which way a string came to be what it is (APPEND leaves raw); we tell what SET would make of it",
        applies: |command, theirs, ours| {
            let encodings: [&[u8]; 3] = [b"int", b"embstr", b"raw"];
            let is_one = |reply: &Reply| reply.bytes().is_some_and(|name| encodings.contains(&name));
            is(command, &["object", "encoding"]) && is_one(theirs) && is_one(ours)
                || is(command, &["object", "refcount"]) && theirs.integer().is_some() && ours.integer().is_some()
        },
    },
    Exception {
        name: "set-encoding-7.2",
        reason: "7.2 has listpacks for small sets, which 7.0 holds in hash tables; which sets these are is held against 7.2's rules by a test of its own",
        applies: |command, theirs, ours| {
            is(command, &["object", "encoding"]) && is_set_of_7_2(theirs, ours)
                || is(command, &["debug", "htstats-key"])
                    && theirs.bytes().is_some()
                    && refused(ours, "is not represented using an hash table")
        },
    },
    Exception {
        name: "list-listpack",
        reason: "7.2 holds a short list as a listpack; 7.0 holds every list as a quicklist",
        applies: |command, theirs, ours| {
            let (is_listpack, is_quicklist) = (["debug", "listpack"], ["debug", "quicklist"]);
            is(command, &["object", "encoding"])
                && theirs.bytes() == Some(b"quicklist")
                && ours.bytes() == Some(b"listpack")
                || is(command, &is_listpack) && refused(theirs, "Not a listpack") && ours.error().is_none()
                || is(command, &is_quicklist) && theirs.error().is_none() && refused(ours, "Not a quicklist")
        },
    },
    Exception {
        name: "lpos-rank-min",
        reason: "7.2 refuses the lowest number as LPOS's RANK; 7.0 takes it for -1",
        applies: |command, _, ours| {
            is(command, &["lpos"])
                && command.iter().any(|a| a == b"-9223372036854775808")
                && refused(ours, "value must between")
        },
    },
    Exception {
        name: "bits-of-nothing",
        reason: "7.2 reads the arguments of BITCOUNT and BITPOS before it looks for the key, which 7.0 does first",
        applies: |command, theirs, ours| {
            (is(command, &["bitcount"]) || is(command, &["bitpos"]))
                && (matches!(theirs.integer(), Some(0 | -1)) || refused(theirs, "WRONGTYPE"))
                && (refused(ours, "syntax error") || refused(ours, "not an integer or out of range"))
        },
    },
    Exception {
        name: "hello-auth-order",
        reason: "7.2 reads all of HELLO's options before it authenticates; 7.0 authenticates when it meets AUTH",
        applies: |command, theirs, ours| {
            is(command, &["hello"]) && refused(theirs, "WRONGPASS") && refused(ours, "Syntax error in HELLO option")
        },
    },
    Exception {
        name: "xread-unbalanced",
        reason: "7.2 names the command that has a stream without an id in the way it names commands elsewhere",
        applies: |_, theirs, ours| {
            refused(theirs, "ERR Unbalanced XREAD list of streams") && refused(ours, "ERR Unbalanced 'xread")
        },
    },
    Exception {
        name: "xadd-last-sequence",
        reason: "behind the last sequence of a millisecond 7.2 says that the ID is too small; 7.0 says what the last error of the system was",
        applies: |command, theirs, ours| {
            is(command, &["xadd"])
                && refused(theirs, "Elements are too large")
                && refused(ours, "equal or smaller than")
        },
    },
    Exception {
        name: "zrank-withscore",
        reason: "WITHSCORE is new in 7.2; to 7.0 it is one argument too many",
        applies: |command, theirs, _| {
            (is(command, &["zrank"]) || is(command, &["zrevrank"])) && refused(theirs, "wrong number of arguments")
        },
    },
    Exception {
        name: "digits-7.2",
        reason: "7.2 prints as few digits of a score as say which number it is; 7.0 prints 17",
        applies: |command, theirs, ours| {
            let is_about_scores = command[0].first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'z'));
            // The positions of GEOPOS are numbers in a script with RESP3.
            (is_about_scores || is(command, &["geopos"])) && same_numbers(theirs, ours)
        },
    },
    Exception {
        name: "consumers-7.2",
        reason: "7.2 makes the consumer that XREADGROUP, XCLAIM and XAUTOCLAIM name whatever they find; 7.0 does if they find something",
        applies: |command, theirs, ours| {
            is(command, &["xgroup", "createconsumer"]) && theirs.integer() == Some(1) && ours.integer() == Some(0)
        },
    },
    Exception {
        name: "wait-7.2",
        reason: "WAIT is of @blocking in 7.2, not in 7.0: a user's rights to it follow",
        applies: |command, theirs, ours| {
            let refuses = |reply: &Reply| refused(reply, "NOPERM");
            is(command, &["wait"]) && refuses(theirs) != refuses(ours)
        },
    },
    Exception {
        name: "unbalanced-7.2",
        reason: "Of an odd number of arguments behind STREAMS, 7.2 names the command; 7.0 speaks of XREAD, whichever it is",
        applies: |command, theirs, ours| {
            (is(command, &["xread"]) || is(command, &["xreadgroup"]))
                && refused(theirs, "Unbalanced")
                && refused(ours, "Unbalanced")
        },
    },
    Exception {
        name: SORT_AFTER_A_RANGE_ERROR,
        reason: "Redis's SORT looks at errno without having reset it: after a number out of range, which may be of another command, it refuses any score",
        applies: |command, theirs, ours| {
            (is(command, &["sort"]) || is(command, &["sort_ro"]))
                && refused(theirs, "One or more scores can't be converted into double")
                && ours.error().is_none()
        },
    },
    Exception {
        name: "command-info-7.2",
        reason: "7.2 changed tips, flags and key specs of some commands; the table is held against 7.2's by its own tests",
        applies: |command, theirs, ours| is(command, &["command", "info"]) && alike(theirs, ours),
    },
    Exception {
        name: "command-docs-7.2",
        reason: "7.2 changed arguments and their names for some commands; the table is held against 7.2's by its own tests",
        applies: |command, theirs, ours| is(command, &["command", "docs"]) && alike(theirs, ours),
    },
];

/// Returns the exception that explains a difference.
pub fn exception_for(command: &Command, theirs: &Reply, ours: &Reply) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|exception| (exception.applies)(command, theirs, ours))
}

/// Returns whether a command begins with these words.
fn is(command: &Command, words: &[&str]) -> bool {
    command.len() >= words.len() && command.iter().zip(words).all(|(a, b)| a.eq_ignore_ascii_case(b.as_bytes()))
}

/// Returns whether these are the encodings of a small set in 7.0 and in 7.2.
pub(super) fn is_set_of_7_2(theirs: &Reply, ours: &Reply) -> bool {
    theirs.bytes() == Some(b"hashtable") && ours.bytes() == Some(b"listpack")
}

fn refused(reply: &Reply, text: &str) -> bool {
    reply.error().is_some_and(|error| error.contains(text))
}

/// The most digits that 7.0 prints of a score: all of them where fewer do not identify the number.
const DIGITS_OF_7_0: usize = 17;

/// Returns whether replies are equal but for texts of equal numbers, of which ours have fewer digits.
fn same_numbers(theirs: &Reply, ours: &Reply) -> bool {
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
    match (theirs, ours) {
        (Reply::Array(a), Reply::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_numbers(a, b)),
        (Reply::Bulk(a), Reply::Bulk(b)) | (Reply::Double(a), Reply::Double(b)) if a != b => {
            a.len() > DIGITS_OF_7_0 && a.len() > b.len() && number(a).is_some_and(|value| number(b) == Some(value))
        }
        _ => theirs == ours,
    }
}

/// Returns whether two lists have one length, and nulls in equal positions.
fn alike(theirs: &Reply, ours: &Reply) -> bool {
    match (theirs, ours) {
        (Reply::Array(a), Reply::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_nil() == b.is_nil())
        }
        (Reply::Map(a), Reply::Map(b)) => a.len() == b.len(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_with_fewer_digits() {
        let bulk = |text: &str| Reply::bulk(text);
        let check = |theirs: &str, ours: &str, expected: bool| {
            let [theirs, ours] = [theirs, ours].map(|text| Reply::Array(vec![bulk("m"), bulk(text)]));
            assert_eq!(same_numbers(&theirs, &ours), expected, "{theirs} {ours}");
        };
        check("4.9999999999999996e+22", "5e+22", true);
        check("0.10000000000000001", "0.1", true);
        check("5e+22", "4.9999999999999996e+22", false);
        check("0.10000000000000002", "0.1", false);
        check("member", "m", false);
        check("007", "7", false);
        let command = |name: &[u8]| vec![name.to_vec()];
        let [theirs, ours] = ["0.10000000000000001", "0.1"].map(bulk);
        assert_eq!(exception_for(&command(b"zscore"), &theirs, &ours).map(|rule| rule.name), Some("digits-7.2"));
        assert!(exception_for(&command(b"get"), &theirs, &ours).is_none());
    }
}
