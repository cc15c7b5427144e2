//! Redis's glob patterns, as KEYS, SCAN, PSUBSCRIBE and CONFIG GET take them.
//!
//! `*` is any run of bytes, `?` one byte, `[abc]`, `[a-z]` and `[^a]` one byte of a class, `\x` the byte x. The odd cases
//! are Redis's: an open class ends at the end of the pattern, `[z-a]` is `[a-z]`, a range compares signed bytes, and an
//! empty string matches nothing but the empty pattern. Where Redis recurses and gives up longer matches, this goes back
//! to the last star only, which finds the same: the time is bounded by the product of the two lengths.

/// Redis 7.2 gives up below this many stars that have something after them.
const STARS_MAX: usize = 1000;

/// Whether the whole of `string` matches. `nocase` folds ASCII letters, but not escaped bytes in a class.
pub fn matches(pattern: &[u8], string: &[u8], nocase: bool) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    let mut stars = 0;
    while at < pattern.len() && from < string.len() {
        if pattern[at] == b'*' {
            at = after_stars(pattern, at);
            if at == pattern.len() {
                return true;
            }
            stars += 1;
            if stars > STARS_MAX {
                return false;
            }
            last_star = Some((at, from));
            continue;
        }
        if let Some(after) = one(pattern, at, string[from], nocase) {
            (at, from) = (after, from + 1);
            if from < string.len() && at < pattern.len() {
                continue;
            }
            if from == string.len() && after_stars(pattern, at) == pattern.len() {
                return true;
            }
        }
        match last_star {
            Some((after_star, begun)) => {
                (at, from) = (after_star, begun + 1);
                last_star = Some((after_star, from));
            }
            None => return false,
        }
    }
    at == pattern.len() && from == string.len()
}

/// Whether a pattern has anything special in it, so that a plain look-up would not do.
pub fn is_pattern(pattern: &[u8]) -> bool {
    pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

fn after_stars(pattern: &[u8], at: usize) -> usize {
    at + pattern[at..].iter().take_while(|byte| **byte == b'*').count()
}

/// Matches one byte against the element at `at`: the position after it if it matches. It is not a star.
fn one(pattern: &[u8], at: usize, byte: u8, nocase: bool) -> Option<usize> {
    let rest = &pattern[at..];
    let (expected, length) = match rest[0] {
        b'?' => return Some(at + 1),
        b'[' => {
            let (matched, length) = class(&rest[1..], byte, nocase);
            return matched.then_some(at + 1 + length);
        }
        b'\\' if rest.len() >= 2 => (rest[1], 2),
        literal => (literal, 1),
    };
    same(expected, byte, nocase).then_some(at + length)
}

fn same(a: u8, b: u8, nocase: bool) -> bool {
    if nocase { a.eq_ignore_ascii_case(&b) } else { a == b }
}

/// Matches a byte against what follows a `[`: whether it is in the class, and how long the class is with its end.
fn class(class: &[u8], byte: u8, nocase: bool) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match class[at..] {
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [] => break,
            [start, b'-', end, ..] => {
                found |= in_range(start, end, byte, nocase);
                at += 3;
            }
            [literal, ..] => {
                found |= same(literal, byte, nocase);
                at += 1;
            }
        }
    }
    (found != negated, at)
}

/// Bytes are signed here, as C's `char` is on the platforms that Redis runs on; the ends are put in order before they are folded.
fn in_range(start: u8, end: u8, byte: u8, nocase: bool) -> bool {
    let (start, end) = if start as i8 > end as i8 { (end, start) } else { (start, end) };
    let fold = |byte: u8| if nocase { byte.to_ascii_lowercase() as i8 } else { byte as i8 };
    (fold(start)..=fold(end)).contains(&fold(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: &str, pattern: &str, yes: &[&str], no: &[&str]) {
        for string in yes {
            assert!(matches(pattern.as_bytes(), string.as_bytes(), false), "{rule}: {pattern} takes {string}");
        }
        for string in no {
            assert!(!matches(pattern.as_bytes(), string.as_bytes(), false), "{rule}: {pattern} does not take {string}");
        }
    }

    #[test]
    fn patterns() {
        check("literal", "abc", &["abc"], &["ab", "abcd", "ABC", ""]);
        check("a star", "a*c", &["ac", "abc", "accc"], &["a", "acb"]);
        check("a star at the end", "ab*", &["ab", "abc"], &["a"]);
        check("stars in a row", "a***c**", &["ac", "abcd"], &["a"]);
        check("a question mark", "a?c", &["abc"], &["ac", "abbc"]);
        check("a class", "[abc]x", &["ax", "cx"], &["dx", "x"]);
        check("a range", "[a-c]", &["a", "b", "c"], &["d", "-"]);
        check("a reversed range", "[c-a]", &["a", "b", "c"], &["d"]);
        check("a negated class", "[^a-z]", &["A", "1"], &["a", "z"]);
        check("an exclamation mark is a byte", "[!a]", &["!", "a"], &["b"]);
        check("an escape", r"a\*c", &["a*c"], &["abc"]);
        check("an escape in a class", r"[\]]", &["]"], &["\\"]);
        check("an open class ends with the pattern", "[ab", &["a", "b"], &["c", "["]);
        check("an open empty class", "[", &[], &["["]);
        check("an open negated class", "[^", &["x"], &[""]);
        check("the end of a range may be a bracket", "[a-]", &["^", "a", "]"], &["-", "b"]);
        check("a backslash at the end", "a\\", &["a\\"], &["a"]);
        check("the empty string", "*", &["a"], &[""]);
        check("the empty pattern", "", &[""], &["a"]);
        check("back to the last star", "*ab*cd", &["abcd", "xabxabcxcd"], &["abc", "cdab"]);
    }

    #[test]
    fn case_is_folded_on_request_but_not_for_escapes_in_a_class() {
        assert!(matches(b"A[B-C]\\D", b"abd", true));
        assert!(matches(b"[x]", b"X", true));
        assert!(!matches(b"[\\x]", b"X", true));
    }

    #[test]
    fn a_pattern_of_many_stars_takes_little_time() {
        let pattern = b"a*".repeat(500);
        let string = vec![b'a'; 20_000];
        assert!(matches(&pattern, &string, false));
        let pattern = [b"a*".repeat(500).as_slice(), b"b"].concat();
        assert!(!matches(&pattern, &string, false));
        let pattern = [b"*a".repeat(STARS_MAX + 1).as_slice(), b"*"].concat();
        assert!(!matches(&pattern, &string, false), "Redis gives up here");
    }
}
