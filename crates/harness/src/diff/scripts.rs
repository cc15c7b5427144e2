//! Commands as the calls of scripts and functions: what a client reads then has gone through Lua and back. The scripts
//! here call one command; `lua` makes scripts that call several.

use anyhow::{Result, ensure};

use super::arguments::Arguments;
use super::compare::{Rule, rule_of};
use super::sequence::Command;
use crate::client::Client;

/// The scripts that call the command in their arguments; `true` for those that have its second word as a key.
const SCRIPTS: &[(&str, bool)] = &[
    ("return redis.pcall(unpack(ARGV))", false),
    ("return redis.call(unpack(ARGV))", false),
    ("redis.setresp(3) return redis.pcall(unpack(ARGV))", false),
    ("local r = {} for i = 1, 2 do r[i] = redis.pcall(unpack(ARGV)) end return r", false),
    ("return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))", true),
    ("local ok, reply = pcall(redis.call, unpack(ARGV)) if ok then return {reply} end return reply", false),
    ("redis.setresp(3) local r = redis.pcall(unpack(ARGV)) return {type(r), r}", false),
];

/// The library of these functions, which both servers have.
const LIBRARY: &str = "#!lua name=diff\n\
    redis.register_function('diff_pcall', function(keys, args) return redis.pcall(unpack(args)) end)\n\
    redis.register_function('diff_call', function(keys, args) return redis.call(unpack(args)) end)\n\
    redis.register_function('diff_keyed', function(keys, args) return redis.call(args[1], keys[1], unpack(args, 2)) end)";

/// Loads the library of functions that call one command.
pub fn load_library(client: &mut Client) -> Result<()> {
    let reply = client.call(&["FUNCTION", "LOAD", LIBRARY])?;
    ensure!(reply.error().is_none(), "FUNCTION LOAD is answered by {reply}");
    Ok(())
}

/// Functions as `SCRIPTS`.
const FUNCTIONS: &[(&str, bool)] = &[("diff_pcall", false), ("diff_call", false), ("diff_keyed", true)];

/// The word before each command in the arguments of a script that calls several.
pub(super) const SEPARATOR: &[u8] = b"--";

/// The commands whose replies are compared as they are, and that need no connection of their own.
const SCRIPTED: &[&str] = &[
    "get",
    "set",
    "setex",
    "psetex",
    "setnx",
    "getset",
    "getex",
    "getdel",
    "mget",
    "mset",
    "msetnx",
    "incr",
    "decr",
    "incrby",
    "decrby",
    "incrbyfloat",
    "append",
    "strlen",
    "getrange",
    "substr",
    "setrange",
    "lcs",
    "setbit",
    "getbit",
    "bitop",
    "bitfield",
    "bitfield_ro",
    "pfadd",
    "pfcount",
    "pfmerge",
    "hset",
    "hmset",
    "hget",
    "hmget",
    "hdel",
    "hlen",
    "hstrlen",
    "hexists",
    "hincrby",
    "hincrbyfloat",
    "hsetnx",
    "sadd",
    "srem",
    "scard",
    "sismember",
    "smismember",
    "smove",
    "sinterstore",
    "sunionstore",
    "sdiffstore",
    "sintercard",
    "lpush",
    "rpush",
    "lpushx",
    "rpushx",
    "lpop",
    "rpop",
    "llen",
    "lindex",
    "lrange",
    "lset",
    "linsert",
    "lrem",
    "ltrim",
    "lmove",
    "rpoplpush",
    "lmpop",
    "zadd",
    "zscore",
    "zmscore",
    "zincrby",
    "zcard",
    "zcount",
    "zrange",
    "zrevrange",
    "zrangebyscore",
    "zrevrangebyscore",
    "zrem",
    "zpopmin",
    "zpopmax",
    "zrangestore",
    "zunionstore",
    "zinterstore",
    "zdiffstore",
    "zunion",
    "zinter",
    "zdiff",
    "geoadd",
    "geopos",
    "geodist",
    "geohash",
    "xlen",
    "xrange",
    "xrevrange",
    "xdel",
    "del",
    "unlink",
    "exists",
    "touch",
    "type",
    "persist",
    "rename",
    "renamenx",
    "copy",
    "move",
];

/// Returns whether scripts may call a command.
pub(super) fn is_scripted(command: &Command) -> bool {
    SCRIPTED.iter().any(|name| command[0].eq_ignore_ascii_case(name.as_bytes()))
}

/// Returns the call of a script that calls the command, if it is one for that.
pub fn wrapped(a: &mut Arguments, command: &Command) -> Option<Command> {
    if !is_scripted(command) || rule_of(command) != Rule::Exact {
        return None;
    }
    let (name, callees) = if a.random.percent(30) { ("FCALL", FUNCTIONS) } else { ("EVAL", SCRIPTS) };
    let (script, has_key) = *a.random.pick(callees);
    let mut call = vec![a.word(name), script.as_bytes().to_vec()];
    match command.get(1) {
        Some(key) if has_key => {
            call.extend([b"1".to_vec(), key.clone(), command[0].clone()]);
            call.extend_from_slice(&command[2..]);
        }
        _ => {
            call.push(b"0".to_vec());
            call.extend_from_slice(command);
        }
    }
    Some(call)
}

/// Returns the commands that a script calls; of any other command, the command as it is.
pub fn calls(command: &Command) -> Vec<Command> {
    several(command).unwrap_or_else(|| vec![called(command)])
}

/// Returns the commands in the arguments of a script that calls several.
fn several(command: &Command) -> Option<Vec<Command>> {
    const NAMES: [&[u8]; 6] = [b"eval", b"eval_ro", b"evalsha", b"evalsha_ro", b"fcall", b"fcall_ro"];
    let is_call = NAMES.iter().any(|name| command[0].eq_ignore_ascii_case(name));
    let keys: usize = std::str::from_utf8(command.get(2).filter(|_| is_call)?).ok()?.parse().ok()?;
    let (first, rest) = command.get(keys.checked_add(3)?..)?.split_first()?;
    let commands = rest.split(|word| word == SEPARATOR).filter(|words| !words.is_empty()).map(<[Vec<u8>]>::to_vec);
    (first == SEPARATOR).then(|| commands.collect())
}

/// Returns the command that a script calls; any other command is returned as it is.
fn called(command: &Command) -> Command {
    let of = |name: &[u8], callees: &[(&str, bool)]| {
        command[0].eq_ignore_ascii_case(name) && callees.iter().any(|(callee, _)| callee.as_bytes() == command[1])
    };
    let is_script = command.len() > 3 && (of(b"eval", SCRIPTS) || of(b"fcall", FUNCTIONS));
    match (is_script, command.get(2).map(Vec::as_slice)) {
        (true, Some(b"0")) => command[3..].to_vec(),
        (true, _) if command.len() > 4 => {
            let mut inner = vec![command[4].clone(), command[3].clone()];
            inner.extend_from_slice(&command[5..]);
            inner
        }
        _ => command.clone(),
    }
}
