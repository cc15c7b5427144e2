//! Commands of a master as bytes, where one of them was refused.

use haypile_resp::{Limits, Parser};
use std::collections::BTreeSet;

/// The words that are shown of a command, and the bytes of each.
const SHOWN_WORDS: usize = 6;
const WORD_BYTES: usize = 40;

/// The limits of a master's commands, which has taken them from its clients.
const LIMITS: Limits = Limits {
    bulk_bytes_max: u64::MAX,
    multibulk_len_max: u32::MAX,
    inline_bytes_max: 64 << 10,
    request_bytes_max: u32::MAX,
    authenticated: true,
};

/// Calls `take` with the words of each command that the bytes hold as a whole, until it returns false.
fn each(bytes: &[u8], mut take: impl FnMut(Vec<&[u8]>) -> bool) {
    let (mut parser, mut ranges, mut at) = (Parser::new(LIMITS), Vec::new(), 0);
    while let Ok(Some(request)) = parser.next(&bytes[at..], &mut ranges) {
        if !take(request.args(&bytes[at..], &ranges).iter().collect()) {
            return;
        }
        at += request.bytes();
    }
}

/// Returns the words of the first command for people, of a block those of the command behind MULTI as well.
pub fn first_words(bytes: &[u8]) -> String {
    let mut shown = Vec::new();
    each(bytes, |words| {
        let is_begin = words.first().is_none_or(|word| word.eq_ignore_ascii_case(b"multi"));
        shown.extend(words.iter().take(SHOWN_WORDS).map(|word| {
            let (head, more) = (&word[..word.len().min(WORD_BYTES)], if word.len() > WORD_BYTES { "…" } else { "" });
            format!("{}{more}", head.escape_ascii())
        }));
        is_begin
    });
    shown.join(" ")
}

/// Returns the database that the last SELECT among the commands names, if there is one; of one that names none, the
/// highest number.
pub fn last_selected(bytes: &[u8]) -> Option<u32> {
    let mut selected = None;
    each(bytes, |words| {
        if let [name, number] = words[..]
            && name.eq_ignore_ascii_case(b"select")
        {
            let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
            selected = Some(number.unwrap_or(u32::MAX));
        }
        true
    });
    selected
}

/// Returns the names by which the commands run scripts, in lower case.
pub fn script_names(bytes: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::new();
    each(bytes, |words| {
        if let [command, name, ..] = words[..]
            && (command.eq_ignore_ascii_case(b"evalsha") || command.eq_ignore_ascii_case(b"evalsha_ro"))
        {
            names.insert(name[..name.len().min(WORD_BYTES)].to_ascii_lowercase());
        }
        true
    });
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            haypile_resp::write::array_len(&mut bytes, words.len());
            words.iter().for_each(|word| haypile_resp::write::bulk(&mut bytes, word.as_bytes()));
        }
        bytes
    }

    #[test]
    fn people_see_the_first_command_and_no_more() {
        assert_eq!(first_words(&commands(&["SET k v", "GET k"])), "SET k v");
        assert_eq!(first_words(&commands(&["MULTI", "DEL a b", "EXEC"])), "MULTI DEL a b");
        assert_eq!(first_words(&commands(&["DEL 1 2 3 4 5 6 7 8"])), "DEL 1 2 3 4 5");
        let long = format!("SET k {}", "x".repeat(100));
        assert_eq!(first_words(&commands(&[&long])), format!("SET k {}…", "x".repeat(WORD_BYTES)));
        assert_eq!(first_words(b"*2\r\n$3\r\nGE"), "", "it has not come as a whole");
        assert_eq!(first_words(b"*1\r\n$x\r\n"), "");
    }

    #[test]
    fn the_last_selected_database_is_found_in_a_block_too() {
        assert_eq!(last_selected(&commands(&["SET k v"])), None);
        assert_eq!(last_selected(&commands(&["MULTI", "SELECT 3", "SET k v", "select 5", "EXEC"])), Some(5));
        assert_eq!(last_selected(&commands(&["SELECT 99999999999"])), Some(u32::MAX));
    }

    #[test]
    fn scripts_that_run_by_name_are_found_in_a_block_too() {
        let names = script_names(&commands(&["MULTI", "EVALSHA Ab 0", "SET evalsha x", "evalsha ab 1 k", "EXEC"]));
        assert_eq!(names, BTreeSet::from([b"ab".to_vec()]));
        assert!(script_names(&commands(&["EVAL x 0"])).is_empty());
    }
}
