//! Sessions over RESP: the commands for each operation, and what their replies say.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::client::{Client, Reply};
use crate::raft_chaos::operation::{Answer, FAMILY, Kind, Object, Operation, Outcome, Session, Step};
use crate::raft_chaos::system::{Member, connect};

/// Codes of errors with which a command has certainly had no effect.
const REFUSALS: [&str; 9] =
    ["MOVED", "CLUSTERDOWN", "LOADING", "READONLY", "MISCONF", "OOM", "TRYAGAIN", "BUSY", "EXECABORT"];
/// How often a session follows a redirection with one operation.
const REDIRECTIONS: usize = 3;

/// Sets a string to ARGV[2] if it is ARGV[1]; returns what it was.
const SWAP: &str = "local held = redis.call('GET', KEYS[1]) or '0' \
                    if held == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end return held";
/// Exchanges two strings; returns what they were.
const EXCHANGE: &str = "local a, b = redis.call('GET', KEYS[1]) or '0', redis.call('GET', KEYS[2]) or '0' \
                        redis.call('SET', KEYS[1], b) redis.call('SET', KEYS[2], a) return {a, b}";

pub struct RespSession {
    addresses: Vec<SocketAddr>,
    at: usize,
    reply_max: Duration,
    /// The address that a node has named as the leader's, until it fails.
    leader: Option<SocketAddr>,
    client: Option<Client>,
    /// The connection for reads on whichever member; None where only the leader reads.
    beside: Option<Beside>,
}

/// A connection that has said READONLY.
#[derive(Default)]
struct Beside {
    /// Reads so far: every other one goes here.
    reads: usize,
    at: usize,
    client: Option<Client>,
}

/// Asks a node with one command, over a connection of its own.
pub fn ask(node: Member, words: &[&str], wait_max: Duration) -> io::Result<Reply> {
    Client::over(connect(node.client_address(), wait_max)?).call(words)
}

impl RespSession {
    pub fn new(members: &[Member], first: usize, reply_max: Duration) -> RespSession {
        let addresses = members.iter().map(|member| member.client_address()).collect();
        RespSession { addresses, at: first, reply_max, leader: None, client: None, beside: None }
    }

    /// Has half of the reads go to whichever member, where they miss nothing either.
    pub fn reading_beside(self) -> RespSession {
        let beside = Beside { at: self.at + 1, ..Beside::default() };
        RespSession { beside: Some(beside), ..self }
    }

    /// Reads on a member, as it is; None where it is the leader's turn.
    fn read_beside(&mut self, operation: &Operation, commands: &[Vec<String>]) -> Option<Outcome> {
        let beside = self.beside.as_mut().filter(|_| operation.is_read())?;
        beside.reads += 1;
        if beside.reads.is_multiple_of(2) {
            return None;
        }
        let address = self.addresses[beside.at % self.addresses.len()];
        let connect = || -> io::Result<Client> {
            let mut client = Client::over(connect(address, self.reply_max)?);
            let reply = client.call(&["READONLY"])?;
            if reply.is_ok() { Ok(client) } else { Err(io::Error::other(reply.to_string())) }
        };
        let mut read = || -> io::Result<Outcome> {
            let client = match &mut beside.client {
                Some(client) => client,
                none => none.insert(connect()?),
            };
            let replies = RespSession::exchange(client, commands)?;
            Ok(match replies.iter().find_map(Reply::error) {
                None => outcome(operation, &replies),
                Some(error) if REFUSALS.iter().any(|code| error.starts_with(code)) => Outcome::Failed(error),
                Some(error) => Outcome::Wrong(error),
            })
        };
        // A read has no effect, whatever became of it.
        let outcome = read().unwrap_or_else(|error| Outcome::Failed(error.to_string()));
        if !matches!(outcome, Outcome::Done(_)) {
            (beside.client, beside.at) = (None, beside.at + 1);
        }
        Some(outcome)
    }

    fn client(&mut self) -> io::Result<&mut Client> {
        let address = self.leader.unwrap_or(self.addresses[self.at % self.addresses.len()]);
        match &mut self.client {
            Some(client) => Ok(client),
            none => Ok(none.insert(Client::over(connect(address, self.reply_max)?))),
        }
    }

    /// Gives up the connection: the next operation goes to another node.
    fn leave(&mut self) {
        (self.client, self.leader) = (None, None);
        self.at += 1;
    }

    /// Sends commands at once, and returns their replies; an error leaves their outcome unknown.
    fn exchange(client: &mut Client, commands: &[Vec<String>]) -> io::Result<Vec<Reply>> {
        commands.iter().for_each(|command| client.push(command));
        client.flush()?;
        commands.iter().map(|_| client.read()).collect()
    }
}

impl Session for RespSession {
    fn call(&mut self, object: Object, operation: &Operation) -> Outcome {
        let commands = commands(object, operation);
        if let Some(outcome) = self.read_beside(operation, &commands) {
            return outcome;
        }
        for _ in 0..=REDIRECTIONS {
            let client = match self.client() {
                Ok(client) => client,
                Err(error) => {
                    self.leave();
                    return Outcome::Failed(format!("no connection: {error}"));
                }
            };
            let replies = match RespSession::exchange(client, &commands) {
                Ok(replies) => replies,
                Err(error) => {
                    self.leave();
                    return Outcome::Unknown(error.to_string());
                }
            };
            let Some(error) = replies.iter().find_map(Reply::error) else {
                let outcome = outcome(operation, &replies);
                if matches!(outcome, Outcome::Wrong(_)) {
                    self.leave();
                }
                return outcome;
            };
            let code = error.split(' ').next().unwrap_or_default();
            if !REFUSALS.contains(&code) {
                self.leave();
                return Outcome::Wrong(error);
            }
            self.leave();
            match moved_to(&error) {
                Some(leader) => self.leader = Some(leader),
                None => return Outcome::Failed(error),
            }
        }
        Outcome::Failed("sent from node to node".into())
    }
}

/// Reads the address in `MOVED slot host:port`.
fn moved_to(error: &str) -> Option<SocketAddr> {
    error.strip_prefix("MOVED ")?.split(' ').nth(1)?.parse().ok()
}

/// Returns the commands for an operation: one, or a block of MULTI.
fn commands(object: Object, operation: &Operation) -> Vec<Vec<String>> {
    let keys = object.keys();
    let command = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let (key, text) = (keys[0].as_str(), i64::to_string);
    let block = |commands: Vec<Vec<String>>| [vec![command(&["MULTI"])], commands, vec![command(&["EXEC"])]].concat();
    let one = match operation {
        Operation::Read => match object.kind {
            Kind::Register | Kind::Counter => command(&["GET", key]),
            Kind::List => command(&["LRANGE", key, "0", "-1"]),
            Kind::Sorted => command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            Kind::Pair | Kind::Family => return block(keys.iter().map(|key| command(&["GET", key])).collect()),
        },
        Operation::Write(value) => command(&["SET", key, &text(value)]),
        Operation::Swap { old, new } => command(&["EVAL", SWAP, "1", key, &text(old), &text(new)]),
        Operation::Add(by) => command(&["INCRBY", key, &text(by)]),
        Operation::Append(value) => command(&["RPUSH", key, &text(value)]),
        Operation::Score { member, score } => command(&["ZADD", key, &text(score), &text(member)]),
        Operation::Raise { member, by } => command(&["ZINCRBY", key, &text(by), &text(member)]),
        Operation::Remove { member } => command(&["ZREM", key, &text(member)]),
        Operation::Both(first, second) => {
            let sets = keys.iter().zip([first, second]).map(|(key, value)| command(&["SET", key, &text(value)]));
            return block(sets.collect());
        }
        Operation::Exchange => command(&["EVAL", EXCHANGE, "2", key, &keys[1]]),
        Operation::Transact(steps) => {
            let step = |step: &Step| match step {
                Step::Append { key, value } => command(&["RPUSH", &keys[*key], &text(value)]),
                Step::Read { key } => command(&["LRANGE", &keys[*key], "0", "-1"]),
            };
            return block(steps.iter().map(step).collect());
        }
    };
    vec![one]
}

/// Reads the replies to an operation's commands, none of which is an error.
fn outcome(operation: &Operation, replies: &[Reply]) -> Outcome {
    let last = replies.last().expect("an operation has a command");
    let answer = match operation {
        Operation::Write(_) => last.is_ok().then(|| vec![vec![]]),
        Operation::Both(..) => last.elements().is_some_and(|all| all.iter().all(Reply::is_ok)).then(|| vec![vec![]]),
        Operation::Transact(steps) => transacted(steps, last),
        Operation::Read | Operation::Exchange if last.elements().is_some() => numbers(last).map(|all| vec![all]),
        _ => number(last).map(|number| vec![vec![number]]),
    };
    answer.map_or_else(|| Outcome::Wrong(last.to_string()), Outcome::Done)
}

fn transacted(steps: &[Step], reply: &Reply) -> Option<Answer> {
    let replies = reply.elements().filter(|replies| replies.len() == steps.len())?;
    let mut answer = Vec::new();
    for (step, reply) in steps.iter().zip(replies) {
        match step {
            Step::Append { .. } => _ = reply.integer()?,
            Step::Read { .. } => answer.push(numbers(reply)?),
        }
    }
    debug_assert!(
        steps.iter().all(|step| matches!(step, Step::Append { key, .. } | Step::Read { key } if *key < FAMILY))
    );
    Some(answer)
}

fn numbers(reply: &Reply) -> Option<Vec<i64>> {
    reply.elements()?.iter().map(number).collect()
}

fn number(reply: &Reply) -> Option<i64> {
    match reply {
        reply if reply.is_nil() => Some(0),
        Reply::Integer(number) => Some(*number),
        Reply::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_a_command_or_a_block() {
        let pair = Object { kind: Kind::Pair, number: 3 };
        let all = commands(pair, &Operation::Both(7, 8));
        let words: Vec<String> = all.iter().map(|command| command.join(" ")).collect();
        assert_eq!(words, ["MULTI", "SET {pair:3}:0 7", "SET {pair:3}:1 8", "EXEC"]);
        let list = Object { kind: Kind::List, number: 4 };
        assert_eq!(commands(list, &Operation::Append(9)), [["RPUSH", "{list:4}", "9"]]);
    }

    #[test]
    fn a_reply_of_another_form_is_wrong() {
        let bulk = |text: &str| Reply::bulk(text);
        let read = |reply: Reply| outcome(&Operation::Read, &[reply]);
        assert_eq!(read(bulk("12")), Outcome::numbers([12]));
        assert_eq!(read(Reply::NullBulk), Outcome::numbers([0]));
        assert_eq!(read(Reply::Array(vec![bulk("1"), bulk("5")])), Outcome::numbers([1, 5]));
        assert!(matches!(read(Reply::ok()), Outcome::Wrong(_)));
        assert!(matches!(outcome(&Operation::Write(1), &[bulk("1")]), Outcome::Wrong(_)));
        let steps = [Step::Append { key: 0, value: 1 }, Step::Read { key: 1 }];
        let reply = Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![])]);
        assert_eq!(outcome(&Operation::Transact(steps.to_vec()), &[reply]), Outcome::Done(vec![vec![]]));
    }

    #[test]
    fn a_redirection_has_an_address() {
        let address = "127.0.0.1:7002".parse().ok();
        assert_eq!(moved_to("MOVED 3999 127.0.0.1:7002"), address);
        assert_eq!(moved_to("CLUSTERDOWN no quorum"), None);
    }
}
