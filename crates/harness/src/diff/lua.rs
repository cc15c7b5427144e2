//! Random scripts: several calls of generated commands in branches and loops that depend on the replies, errors of
//! their own and of commands after writes, changes of the protocol, and replies that go through cjson and cmsgpack.
//!
//! The commands are in the arguments of a script, each behind a `scripts::SEPARATOR`; a few stand in its text. A reply
//! shows the list `R` of what was seen. Nothing in a script depends on the order of a hash table or on an address, and
//! every loop ends.

use super::arguments::Arguments;
use super::compare::{Rule, rule_of};
use super::scripts::{SEPARATOR, is_scripted};
use super::sequence::Command;

/// The commands in the arguments of a script.
pub(super) const CALLS: usize = 4;

/// The beginning of a script: the commands as lists of words, what was seen, the last reply.
const PRELUDE: &str = "local C, R, last = {}, {}, false
for _, word in ipairs(ARGV) do if word == '--' then C[#C + 1] = {} else table.insert(C[#C], word) end end
local function plain(r) if type(r) == 'table' and r.err then return 'error: ' .. r.err end return r end
";

/// Statements that call no command.
const STATEMENTS: &[&str] = &[
    "R[#R + 1] = plain(last)",
    "R[#R + 1] = type(last)",
    "R[#R + 1] = last",
    "last = cjson.decode(cjson.encode(plain(last)))",
    "R[#R + 1] = cjson.encode({plain(last)})",
    "last = cmsgpack.unpack(cmsgpack.pack(plain(last)))",
    "R[#R + 1] = cmsgpack.pack(plain(last))",
    "if type(last) == 'table' then R[#R + 1] = #last end",
    "if type(last) == 'string' then R[#R + 1] = string.sub(last, 2, -2) .. #last end",
    "if type(last) == 'string' and #last < 10 and string.match(last, '^%-?%d+$') then R[#R + 1] = last + 1 end",
    "if type(last) == 'number' then R[#R + 1] = math.floor(last / 3) % 7 end",
    "R[#R + 1] = redis.sha1hex(type(last) == 'string' and last or '')",
    "R[#R + 1] = struct.unpack('>I2', struct.pack('>I2', 258)) + bit.band(#R, 12)",
    "R[#R + 1] = {1, {2, 'three'}, false, 4.7, {ok = 'nested'}}",
    "R[#R + 1] = redis.status_reply('FINE')",
    "R[#R + 1] = redis.error_reply('MINE is an error')",
    "local t = {} for n = 1, 6 do t[n] = (n * 5) % 7 end table.sort(t) R[#R + 1] = table.concat(t, ',')",
    "local t = {last, 'x', field = #R} R[#R + 1] = t.field last = t[2]",
    "redis.setresp(3)",
    "redis.setresp(3)",
    "redis.setresp(2)",
];

/// Statements that end a script.
const ENDS: &[&str] = &[
    "do return redis.error_reply('MINE is an error') end",
    "do return redis.error_reply('-MINE with a sign') end",
    "do return redis.error_reply('word') end",
    "do return redis.status_reply('ENOUGH') end",
    "do return {err = 'MINE by a table'} end",
    "do return {ok = 'FINE by a table'} end",
    "do return R end",
    "error('mine')",
    "error({err = 'MINE by error'})",
    "R[#R + 1] = nosuch",
    "nosuch = 1",
    "redis.call()",
    "redis.call({})",
    "redis.nosuch('get')",
    "last = #last.nosuch",
];

/// Conditions on the last reply and on what was seen.
const CONDITIONS: &[&str] = &[
    "last",
    "not last",
    "type(last) == 'number' and last > 2",
    "type(last) == 'string' and #last > 3",
    "type(last) == 'table' and #last > 1",
    "type(last) == 'table' and last.err",
    "type(last) == 'table' and last.ok == 'OK'",
    "type(last) == type(R[1])",
    "#R % 2 == 0",
];

/// The last lines of scripts.
const RETURNS: &[&str] = &[
    "return R",
    "return R",
    "return R",
    "return R",
    "return {type(last), plain(last), R}",
    "return last",
    "return #R",
    "",
];

/// The first lines of some scripts.
const SHEBANGS: &[&str] =
    &["#!lua", "#!lua flags=no-writes", "#!lua flags=allow-oom,allow-stale", "#!lua flags=nosuch", "#!lua name=x"];

/// Commands whose replies are numbers that 7.0 writes with other digits, or maps without an order.
const LEFT_OUT: &[&str] = &["zscore", "zmscore", "zincrby", "zpopmin", "zpopmax", "geopos", "lcs"];

/// Commands that may stand in the text of a script.
const IN_TEXT: &[&str] = &[
    "get", "strlen", "append", "incr", "incrby", "decrby", "del", "exists", "type", "hset", "hget", "hdel", "hlen",
    "lpush", "rpush", "lpop", "lrange", "llen", "sadd", "srem", "scard", "zadd", "zcard", "zrem",
];
/// The most bytes of a command in the text.
const IN_TEXT_BYTES_MAX: usize = 200;

/// Returns whether a generated script may call a command: its reply is compared as it is, wherever a script has it.
pub(super) fn may_call(command: &Command) -> bool {
    let is_left_out = |name: &&str| command[0].eq_ignore_ascii_case(name.as_bytes());
    let shows_scores = |word: &Vec<u8>| ["withscores", "incr"].iter().any(|s| word.eq_ignore_ascii_case(s.as_bytes()));
    is_scripted(command)
        && rule_of(command) == Rule::Exact
        && !LEFT_OUT.iter().any(is_left_out)
        && !command[1..].iter().any(shows_scores)
        && !command.iter().any(|word| word == SEPARATOR)
}

/// Returns an EVAL of a random script that calls these commands.
pub(super) fn eval(a: &mut Arguments, commands: &[Command]) -> Command {
    let declares = a.random.percent(50);
    let name = if a.random.percent(6) { "EVAL_RO" } else { "EVAL" };
    let mut command = vec![a.word(name), text(a, commands, declares).into_bytes()];
    command.extend(arguments(commands, declares));
    command
}

/// Returns a random script; its first line may be one with flags.
pub(super) fn text(a: &mut Arguments, commands: &[Command], declares: bool) -> String {
    let first = if a.random.percent(8) { format!("{}\n", a.random.pick(SHEBANGS)) } else { String::new() };
    first + &body(a, commands, declares)
}

/// Returns the arguments of a script's call: the number of keys, the second word of each command as a key if keys are
/// declared, and the commands.
pub(super) fn arguments(commands: &[Command], declares: bool) -> Vec<Vec<u8>> {
    let key = |command: &Command| command.get(1).cloned().unwrap_or_else(|| b"a".to_vec());
    let keys: Vec<Vec<u8>> = if declares { commands.iter().map(key).collect() } else { Vec::new() };
    let mut arguments = vec![keys.len().to_string().into_bytes()];
    arguments.extend(keys);
    for command in commands {
        arguments.push(SEPARATOR.to_vec());
        arguments.extend_from_slice(command);
    }
    arguments
}

/// Returns the body of a script or a function.
pub(super) fn body(a: &mut Arguments, commands: &[Command], declares: bool) -> String {
    let mut script = Script { a, commands, declares, text: PRELUDE.to_owned() };
    (0..2).for_each(|_| script.block(0));
    let last = *script.a.random.pick(RETURNS);
    script.line(last);
    script.text
}

/// The most blocks within each other.
const DEPTH_MAX: usize = 2;

/// A script while it is made.
struct Script<'a> {
    a: &'a mut Arguments,
    commands: &'a [Command],
    /// Whether the keys of the commands are those of the script.
    declares: bool,
    text: String,
}

impl Script<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn block(&mut self, depth: usize) {
        (0..self.a.random.between(1, 4)).for_each(|_| self.statement(depth));
    }

    fn statement(&mut self, depth: usize) {
        match self.a.random.below(100) {
            0..=2 => {
                let end = *self.a.random.pick(ENDS);
                self.line(end);
            }
            3..=49 => self.call(),
            50..=69 if depth < DEPTH_MAX => self.compound(depth + 1),
            _ => {
                let statement = *self.a.random.pick(STATEMENTS);
                self.line(statement);
            }
        }
    }

    /// Adds a call whose errors are replies, end the script, or are caught by it.
    fn call(&mut self) {
        let call = self.called();
        let line = match self.a.random.below(8) {
            0..=3 => format!("last = redis.pcall({call}) R[#R + 1] = plain(last)"),
            4..=5 => format!("last = redis.call({call}) R[#R + 1] = last"),
            6 => format!("last = redis.call({call})"),
            _ => format!("local ok, reply = pcall(redis.call, {call}) R[#R + 1] = ok and 1 or 0 last = reply"),
        };
        self.line(&line);
    }

    /// Returns the arguments of a call: those of a command, in one of several forms.
    fn called(&mut self) -> String {
        let at = self.a.random.below(self.commands.len() as u64) as usize;
        let number = at + 1;
        match self.a.random.below(10) {
            0..=2 if is_for_text(&self.commands[at]) => {
                self.commands[at].iter().map(|word| literal(word)).collect::<Vec<_>>().join(", ")
            }
            3..=5 if self.declares => format!("C[{number}][1], KEYS[{number}], unpack(C[{number}], 3)"),
            6 => format!("C[{number}][1], unpack(C[{number}], 2)"),
            _ => format!("unpack(C[{number}])"),
        }
    }

    fn compound(&mut self, depth: usize) {
        match self.a.random.below(10) {
            0..=4 => {
                let condition = *self.a.random.pick(CONDITIONS);
                self.line(&format!("if {condition} then"));
                self.block(depth);
                if self.a.random.percent(60) {
                    self.line("else");
                    self.block(depth);
                }
                self.line("end");
            }
            5..=6 => {
                let times = self.a.random.between(2, 4);
                self.line(&format!("for i = 1, {times} do"));
                self.block(depth);
                self.line("end");
            }
            7 => {
                self.line("for at, item in ipairs(type(last) == 'table' and last or {}) do");
                self.line("if at > 3 then break end");
                self.line("R[#R + 1] = plain(item)");
                self.block(depth);
                self.line("end");
            }
            8 => {
                self.line("for i = #R, 12, 4 do");
                self.block(depth);
                self.line("end");
            }
            _ => {
                let condition = *self.a.random.pick(CONDITIONS);
                // `until` sees the names of its loop's body: those of a loop within stay in a block of its own, else
                // the outer one would look at the inner one's count, and might never end.
                self.line("do local rounds = 0 repeat rounds = rounds + 1");
                self.block(depth);
                self.line(&format!("until rounds > 2 or ({condition}) end"));
            }
        }
    }
}

fn is_for_text(command: &Command) -> bool {
    let bytes: usize = command.iter().map(Vec::len).sum();
    bytes <= IN_TEXT_BYTES_MAX && IN_TEXT.iter().any(|name| command[0].eq_ignore_ascii_case(name.as_bytes()))
}

/// Returns a word as Lua writes it: a number if it is a short integer, else a string.
fn literal(word: &[u8]) -> String {
    let number = std::str::from_utf8(word).ok().and_then(|text| text.parse::<i32>().ok());
    if let Some(number) = number.filter(|number| number.to_string().as_bytes() == word) {
        return number.to_string();
    }
    let mut text = String::from("'");
    for byte in word {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\{byte:03}")),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::super::scripts::calls;
    use super::*;
    use crate::random::Random;

    fn words(line: &str) -> Command {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn words_are_literals_of_lua() {
        let check = |word: &[u8], expected: &str| assert_eq!(literal(word), expected);
        check(b"-12", "-12");
        check(b"007", "'007'");
        check(b"9223372036854775807", "'9223372036854775807'");
        check(b"it's \\ \x00\xff\n1", "'it\\'s \\\\ \\000\\255\\0101'");
    }

    #[test]
    fn the_commands_of_a_script_are_known() {
        let commands: Vec<Command> = ["SET a 1 PXAT 5", "GET a", "PFCOUNT b", "HSET h f v"].map(words).to_vec();
        let mut a = Arguments { random: Random::new(1), large: false };
        for _ in 0..100 {
            assert_eq!(calls(&eval(&mut a, &commands)), commands);
        }
        assert_eq!(calls(&words("EVAL return 0")), [words("EVAL return 0")]);
    }

    #[test]
    fn scores_and_what_has_no_order_are_not_called() {
        for line in ["ZSCORE z m", "ZADD z INCR 1 m", "ZRANGE z 0 -1 withscores", "LCS a b IDX", "SMEMBERS s", "SPOP s"]
        {
            assert!(!may_call(&words(line)), "{line}");
        }
        for line in ["ZADD z 1 m", "ZRANGE z 0 -1", "SET a 1", "LRANGE l 0 -1"] {
            assert!(may_call(&words(line)), "{line}");
        }
    }

    #[test]
    fn every_block_of_a_script_ends() {
        let commands: Vec<Command> = ["SET a 1", "GET a", "LRANGE l 0 -1", "HSET h f v"].map(words).to_vec();
        let mut a = Arguments { random: Random::new(2), large: false };
        let (mut branches, mut loops) = (0, 0);
        for _ in 0..500 {
            let body = body(&mut a, &commands, true);
            let begins = |line: &&str, word: &str| line.starts_with(word);
            let count = |word: &str| body.lines().skip(3).filter(|line| begins(line, word)).count();
            let is_open = |line: &&str| {
                (begins(line, "if ") && line.ends_with(" then")) || (begins(line, "for ") && line.ends_with(" do"))
            };
            let opened = body.lines().skip(3).filter(is_open).count();
            assert_eq!(opened, body.lines().skip(3).filter(|line| *line == "end").count(), "{body}");
            assert_eq!(count("do local rounds"), body.matches("local rounds").count(), "{body}");
            assert_eq!(count("do local rounds"), count("until "), "{body}");
            branches += count("else");
            loops += count("for ");
        }
        assert!(branches > 50 && loops > 50, "{branches} branches, {loops} loops");
    }
}
