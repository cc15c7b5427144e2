//! Redis's glob patterns, as KEYS, SCAN, PSUBSCRIBE and CONFIG GET take them.
//!
//! `*` is any run of bytes, `?` one byte, `[abc]`, `[a-z]` and `[^a]` one byte of a class, `\x` the byte x. The odd
//! cases are Redis's: an open class ends at the end of the pattern, `[z-a]` is `[a-z]`, a range compares signed bytes,
//! and an empty string matches nothing but the empty pattern. Where Redis recurses and gives up longer matches,
//! `matches` goes back to the last star only, which finds the same: the time is bounded by the product of the two
//! lengths.

/// Redis 7.2 gives up below this many stars that have something after them.
const STARS_MAX: usize = 1000;

/// Strings of this length and more are searched for literals, which takes some preparation.
const SEARCHED_BYTES_MIN: usize = 64;

/// Tells whether the whole of `string` matches. `nocase` folds ASCII letters, but not escaped bytes in a class.
pub fn matches(pattern: &[u8], string: &[u8], nocase: bool) -> bool {
    let mut steps = u64::MAX;
    matches_within(pattern, string, nocase, &mut steps) == Some(true)
}

/// Matches like `matches`, and subtracts the steps taken from `steps`; `None` if these do not suffice. A step is a byte
/// of the pattern that is compared, or 16 bytes that are searched for a literal.
pub fn matches_within(pattern: &[u8], string: &[u8], nocase: bool, steps: &mut u64) -> Option<bool> {
    let is_searched = string.len() >= SEARCHED_BYTES_MIN && !nocase;
    if is_searched && !may_end_with(pattern, string) {
        return Some(false);
    }
    let (mut at, mut from) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    let mut stars = 0;
    while at < pattern.len() && from < string.len() {
        *steps = steps.checked_sub(1)?;
        if pattern[at] == b'*' {
            at = after_stars(pattern, at);
            if at == pattern.len() {
                return Some(true);
            }
            stars += 1;
            if stars > STARS_MAX {
                return Some(false);
            }
            if is_searched {
                let Some(found) = next_literal(pattern, at, string, from, steps)? else { return Some(false) };
                from = found;
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
                return Some(true);
            }
        }
        let Some((after_star, begun)) = last_star else { return Some(false) };
        let mut next = begun + 1;
        if is_searched {
            let Some(found) = next_literal(pattern, after_star, string, next, steps)? else { return Some(false) };
            next = found;
        }
        (at, from) = (after_star, next);
        last_star = Some((after_star, from));
    }
    Some(at == pattern.len() && from == string.len())
}

/// Returns the literal bytes at `at`, up to the next byte that is special.
fn literal(pattern: &[u8], at: usize) -> &[u8] {
    let rest = &pattern[at..];
    &rest[..rest.iter().position(|&byte| is_special(byte)).unwrap_or(rest.len())]
}

/// Returns where the literal at `at`, behind a star, can begin in `string` at the earliest, not before `from`:
/// `Some(None)` if nowhere, `None` if that takes too many steps.
#[allow(clippy::option_option, reason = "the outer one says whether there were steps enough")]
fn next_literal(pattern: &[u8], at: usize, string: &[u8], from: usize, steps: &mut u64) -> Option<Option<usize>> {
    let (literal, rest) = (literal(pattern, at), string.get(from..).unwrap_or(&[]));
    let found = match literal {
        [] => return Some(Some(from)),
        [byte] => memchr::memchr(*byte, rest),
        literal => memchr::memmem::find(rest, literal),
    };
    *steps = steps.checked_sub(found.unwrap_or(rest.len()) as u64 / 16)?;
    Some(found.map(|offset| from + offset))
}

/// Tells whether a string can match that ends as this one does: the part behind the last star is often literal.
fn may_end_with(pattern: &[u8], string: &[u8]) -> bool {
    literal_end(pattern).is_none_or(|end| string.ends_with(end))
}

/// Returns the bytes that every matching string begins with.
pub fn literal_start(pattern: &[u8]) -> &[u8] {
    literal(pattern, 0)
}

/// Returns the bytes behind the last star, with which every matching string ends; `None` if there is no star or they
/// are not literal.
pub fn literal_end(pattern: &[u8]) -> Option<&[u8]> {
    let star = pattern.iter().rposition(|&byte| byte == b'*')?;
    let end = &pattern[star + 1..];
    // A star in a class, or behind a backslash, is a byte like others; behind a backslash its neighbours are, too.
    let is_literal = !end.iter().any(|&byte| is_special(byte)) && !pattern[..star].contains(&b'[');
    is_literal.then_some(end)
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

/// Tells whether a pattern has anything special in it, so that a plain look-up would not do.
pub fn is_pattern(pattern: &[u8]) -> bool {
    pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

fn after_stars(pattern: &[u8], at: usize) -> usize {
    at + pattern[at..].iter().take_while(|byte| **byte == b'*').count()
}

/// Matches one byte against the element at `at`, which is not a star; returns the position after it if it matches.
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

/// Matches a byte against the class behind a `[`: returns whether it is in the class, and how long the class is with
/// its end.
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

/// Tells whether a byte is in a range. Bytes are signed here, as C's `char` is on the platforms that Redis runs on; the
/// ends are put in order before they are folded.
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

    /// Matches without searches and shortcuts.
    fn matches_plainly(pattern: &[u8], string: &[u8]) -> bool {
        let (mut at, mut from) = (0, 0);
        let mut last_star: Option<(usize, usize)> = None;
        while at < pattern.len() && from < string.len() {
            if pattern[at] == b'*' {
                at = after_stars(pattern, at);
                if at == pattern.len() {
                    return true;
                }
                last_star = Some((at, from));
                continue;
            }
            if let Some(after) = one(pattern, at, string[from], false) {
                (at, from) = (after, from + 1);
                if from < string.len() && at < pattern.len() {
                    continue;
                }
                if from == string.len() && after_stars(pattern, at) == pattern.len() {
                    return true;
                }
            }
            let Some((after_star, begun)) = last_star else { return false };
            (at, from) = (after_star, begun + 1);
            last_star = Some((after_star, from));
        }
        at == pattern.len() && from == string.len()
    }

    #[test]
    fn searches_and_shortcuts_find_the_same() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(0x2545_f491_4f6c_dd1d);
            (state >> 33) as usize % n
        };
        let (mut yes, mut no) = (0, 0);
        for case in 0..200_000 {
            // Few different bytes, so that much nearly matches; strings on both sides of the bound.
            let string: Vec<u8> = (0..SEARCHED_BYTES_MIN - 3 + below(6)).map(|_| b"ab-]"[below(4)]).collect();
            let mut pattern: Vec<u8> = (0..below(8)).map(|_| b"ab*?[]\\-^"[below(9)]).collect();
            if below(2) == 0 {
                // Pieces of the string with stars between them.
                for _ in 0..below(4) {
                    let start = below(string.len());
                    pattern.push(b'*');
                    pattern.extend_from_slice(&string[start..string.len().min(start + below(5))]);
                }
            }
            if below(2) == 0 {
                pattern.extend_from_slice(&string[string.len() - below(4)..]);
            }
            let expected = matches_plainly(&pattern, &string);
            *(if expected { &mut yes } else { &mut no }) += 1;
            assert_eq!(
                matches(&pattern, &string, false),
                expected,
                "case {case}: {} and {}",
                pattern.escape_ascii(),
                string.escape_ascii()
            );
            assert!(!expected || string.starts_with(literal_start(&pattern)), "{}", pattern.escape_ascii());
            let end = literal_end(&pattern).unwrap_or_default();
            assert!(!expected || string.ends_with(end), "{}", pattern.escape_ascii());
        }
        assert!(yes > 5_000 && no > 5_000, "{yes} match, {no} do not");
    }

    #[test]
    fn steps_are_counted_and_bounded() {
        let string = b"abc".repeat(7000);
        let mut steps = 10_000;
        assert_eq!(matches_within(b"*a*b*c1*1", &string, false, &mut steps), Some(false));
        assert_eq!(steps, 10_000, "the end says it");
        assert_eq!(matches_within(b"*a*b*c1*c", &string, false, &mut steps), Some(false));
        assert!(steps > 8000, "one search through the string: {steps} steps are left");
        let mut steps = 10_000;
        assert_eq!(matches_within(b"*b?c*c", &string, false, &mut steps), None);
        assert!(steps < 10, "{steps}");
        assert!(!matches(b"*b?c*c", &string, false));
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
