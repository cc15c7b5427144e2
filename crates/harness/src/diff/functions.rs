//! FUNCTION, FCALL, SCRIPT and EVALSHA, for the cases of libraries: they begin without any library.
//!
//! Redis names libraries and functions in the order of a hash table. The libraries of a case are two, which share one
//! name of a function at most, so that an error about a name that is taken has one name to tell; FUNCTION RESTORE,
//! which may find two, has a rule of its own.

use sha1::{Digest, Sha1};

use super::arguments::Arguments;
use super::dumps::stand_in;
use super::lua;
use super::sequence::Command;

/// A source of commands that scripts may call.
pub(super) type Source<'a> = dyn FnMut(&mut Arguments) -> Command + 'a;

/// The libraries; the functions of each begin with its name.
const LIBRARIES: [&str; 2] = ["one", "two"];

/// The functions that calls name. The last ones are in both libraries and in none.
const FUNCTIONS: &[&str] = &["one_a", "one_a", "one_b", "two_a", "two_b", "shared", "nosuch"];

/// Libraries that are refused.
const REFUSED: &[&str] = &[
    "return 1",
    "#!lua\nredis.register_function('one_a', function() return 1 end)",
    "#!js name=one\nredis.register_function('one_a', function() return 1 end)",
    "#!lua name=o-n-e\nredis.register_function('one_a', function() return 1 end)",
    "#!lua name=one more=x\nredis.register_function('one_a', function() return 1 end)",
    "#!lua name=one\nlocal x = 1",
    "#!lua name=one\nredis.register_function('one_a')",
    "#!lua name=one\nredis.register_function('o-n-e', function() return 1 end)",
    "#!lua name=one\nredis.register_function('one_a', 'no function')",
    "#!lua name=one\nredis.register_function{function_name='one_a', callback=function() end, flags={'nosuch'}}",
    "#!lua name=one\nfor i = 1, 2 do redis.register_function('one_a', function() return 1 end) end",
    "#!lua name=one\nredis.register_function('one_a' function() end)",
];

/// Returns whether a command reads or changes what has been loaded as a library or a script.
pub(super) fn is_about_loaded(command: &Command) -> bool {
    const NAMES: [&[u8]; 6] = [b"function", b"fcall", b"fcall_ro", b"script", b"evalsha", b"evalsha_ro"];
    NAMES.iter().any(|name| command[0].eq_ignore_ascii_case(name))
}

pub(super) fn beginning(a: &mut Arguments, source: &mut Source<'_>) -> Vec<Command> {
    vec![words(&["FUNCTION", "FLUSH"]), load(a, source)]
}

/// Returns commands about libraries and scripts: each of the lists is sent in one piece.
pub(super) fn some(a: &mut Arguments, source: &mut Source<'_>) -> Vec<Vec<Command>> {
    match a.random.below(24) {
        0..=4 => vec![vec![load(a, source)]],
        5..=11 => vec![vec![fcall(a, source)]],
        12..=13 => vec![vec![list(a)]],
        14 => vec![vec![vec![a.word("FUNCTION"), a.word("STATS")]]],
        15 => {
            let name = a.random.pick(&["one", "two", "nosuch", ""]).as_bytes().to_vec();
            vec![vec![vec![a.word("FUNCTION"), a.word("DELETE"), name]]]
        }
        16 => vec![vec![flush(a, "FUNCTION")]],
        17 => {
            let name = *a.random.pick(&["FUNCTION", "SCRIPT"]);
            vec![vec![vec![a.word(name), a.word("KILL")]]]
        }
        18..=20 => restored(a, source),
        _ => scripts(a, source),
    }
}

fn words(words: &[&str]) -> Command {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn commands(a: &mut Arguments, source: &mut Source<'_>) -> Vec<Command> {
    (0..lua::CALLS).map(|_| source(a)).collect()
}

fn load(a: &mut Arguments, source: &mut Source<'_>) -> Command {
    let mut command = vec![a.word("FUNCTION"), a.word("LOAD")];
    if a.random.percent(60) {
        command.push(a.word("REPLACE"));
    }
    let code = if a.random.percent(15) { a.random.pick(REFUSED).to_string() } else { library(a, source) };
    command.push(code.into_bytes());
    command
}

/// Returns the code of a library; it may have no function at all.
fn library(a: &mut Arguments, source: &mut Source<'_>) -> String {
    let library = *a.random.pick(&LIBRARIES);
    let mut code = format!("#!lua name={library}\n");
    let own = ["a", "b"].map(|end| (format!("{library}_{end}"), 70));
    for (name, percent) in own.into_iter().chain([("shared".to_owned(), 25)]) {
        if !a.random.percent(percent) {
            continue;
        }
        let commands = commands(a, source);
        let body = lua::body(a, &commands, true);
        let callback = format!("function(KEYS, ARGV)\n{body}end");
        let flags = *a.random.pick(&["", ", flags={'no-writes'}", ", flags={'allow-oom', 'allow-stale'}"]);
        let description = if a.random.percent(50) { ", description='generated'" } else { "" };
        code += &match a.random.percent(50) {
            true => format!("redis.register_function('{name}', {callback})\n"),
            false => {
                format!("redis.register_function{{function_name='{name}', callback={callback}{flags}{description}}}\n")
            }
        };
    }
    code
}

fn fcall(a: &mut Arguments, source: &mut Source<'_>) -> Command {
    let name = if a.random.percent(15) { "FCALL_RO" } else { "FCALL" };
    let function = a.random.pick(FUNCTIONS).as_bytes().to_vec();
    let mut command = vec![a.word(name), function];
    command.extend(lua::arguments(&commands(a, source), true));
    command
}

fn list(a: &mut Arguments) -> Command {
    let mut command = vec![a.word("FUNCTION"), a.word("LIST")];
    if a.random.percent(40) {
        let pattern = a.random.pick(&["one", "t*", "*", "[ot]*", "nosuch", "?wo"]).as_bytes().to_vec();
        command.extend([a.word("LIBRARYNAME"), pattern]);
    }
    if a.random.percent(50) {
        command.push(a.word("WITHCODE"));
    }
    command
}

/// Returns FUNCTION FLUSH or SCRIPT FLUSH, seldom with a wrong word.
fn flush(a: &mut Arguments, name: &str) -> Command {
    let mut command = vec![a.word(name), a.word("FLUSH")];
    match a.random.below(8) {
        0..=1 => command.push(a.word("SYNC")),
        2..=3 => command.push(a.word("ASYNC")),
        4 => command.push(a.odd()),
        _ => {}
    }
    command
}

/// Dumps the libraries, changes them, and restores them from the payload of either server.
fn restored(a: &mut Arguments, source: &mut Source<'_>) -> Vec<Vec<Command>> {
    let dump = vec![a.word("FUNCTION"), a.word("DUMP")];
    let between = match a.random.below(4) {
        0 => flush(a, "FUNCTION"),
        1 => vec![a.word("FUNCTION"), a.word("DELETE"), a.random.pick(&LIBRARIES).as_bytes().to_vec()],
        2 => load(a, source),
        _ => words(&["FUNCTION", "STATS"]),
    };
    let mut restore = vec![a.word("FUNCTION"), a.word("RESTORE"), stand_in(a)];
    match a.random.below(10) {
        0 => restore.push(a.odd()),
        1..=3 => restore.push(a.word("FLUSH")),
        4..=6 => restore.push(a.word("REPLACE")),
        7 => restore.push(a.word("APPEND")),
        _ => {}
    }
    vec![vec![dump], vec![between], vec![restore], vec![list(a), words(&["FUNCTION", "STATS"])]]
}

/// Loads a random script and runs it by its name, with a SCRIPT FLUSH between the two now and then.
fn scripts(a: &mut Arguments, source: &mut Source<'_>) -> Vec<Vec<Command>> {
    let declares = a.random.percent(50);
    let (made, given) = (commands(a, source), commands(a, source));
    let text = lua::text(a, &made, declares);
    let name: String = Sha1::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    let name = if a.random.percent(20) { name.to_ascii_uppercase() } else { name }.into_bytes();
    let unknown = vec![b'0'; if a.random.percent(80) { 40 } else { 7 }];
    let mut all = Vec::new();
    if a.random.percent(80) {
        all.push(vec![a.word("SCRIPT"), a.word("LOAD"), text.into_bytes()]);
    }
    if a.random.percent(25) {
        all.push(flush(a, "SCRIPT"));
    }
    all.push(vec![a.word("SCRIPT"), a.word("EXISTS"), name.clone(), unknown.clone()]);
    let by = if a.random.percent(10) { "EVALSHA_RO" } else { "EVALSHA" };
    let mut run = vec![a.word(by), if a.random.percent(95) { name } else { unknown }];
    run.extend(lua::arguments(&given, declares));
    all.push(run);
    vec![all]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn all_commands_about_libraries_and_scripts_are_made() {
        let mut a = Arguments { random: Random::new(1), large: false };
        let mut source = |_: &mut Arguments| words(&["GET", "a"]);
        let mut made = std::collections::BTreeSet::new();
        for _ in 0..500 {
            for command in some(&mut a, &mut source).concat() {
                assert!(is_about_loaded(&command), "{command:?}");
                let words = command.iter().take(2).map(|word| String::from_utf8_lossy(word).to_ascii_lowercase());
                let words: Vec<String> = words.collect();
                let is_call = words[0].starts_with("fcall") || words[0].starts_with("evalsha");
                made.insert(if is_call { words[0].clone() } else { words.join(" ") });
            }
        }
        let of_functions = ["delete", "dump", "flush", "kill", "list", "load", "restore", "stats"];
        let of_scripts = ["exists", "flush", "kill", "load"];
        let expected = of_functions.map(|word| format!("function {word}"));
        let expected = expected.into_iter().chain(of_scripts.map(|word| format!("script {word}")));
        let calls = ["evalsha", "evalsha_ro", "fcall", "fcall_ro"].map(str::to_owned);
        assert_eq!(made, expected.chain(calls).collect());
    }
}
