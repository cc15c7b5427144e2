//! The writers' blocks: over several keys, of all types, also in two databases; and operations on whole databases.

use super::model::{Database, Effect, Operation};
use super::writer::{Plan, Role, Writer, empty};
use crate::client::{Client, Reply};
use anyhow::{Result, ensure};

/// A script that runs the commands in its arguments, each behind the number of its words.
const SCRIPT: &[u8] = b"local replies, at = {}, 1 \
    while at <= #ARGV do \
        local words = tonumber(ARGV[at]) \
        replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + words)) \
        at = at + words + 1 \
    end \
    return replies";

/// The library of a function that does the same.
const LIBRARY: &[u8] = b"#!lua name=crash\nredis.register_function('crash_run', function(keys, args) \
    local replies, at = {}, 1 \
    while at <= #args do \
        local words = tonumber(args[at]) \
        replies[#replies + 1] = redis.call(unpack(args, at + 1, at + words)) \
        at = at + words + 1 \
    end \
    return replies end)";

/// Loads the library that the writers call. It is data: whatever ends the server, they find it again.
pub fn load_library(client: &mut Client) -> Result<()> {
    let reply = client.call(&[&b"FUNCTION"[..], b"LOAD", b"REPLACE", LIBRARY])?;
    ensure!(reply.error().is_none(), "FUNCTION LOAD is answered by {reply}");
    Ok(())
}

impl Writer {
    /// Adds a block that sets several keys to one value, and raises a counter with them.
    pub(super) fn transaction(&mut self, plan: &mut Plan) {
        let mut inner = Plan { operation: empty(), database: plan.database };
        let group = self.random.below(20);
        let value = self.value();
        for member in 0..self.random.between(2, 6) {
            let key = format!("{}g{group}:{member}", self.prefix).into_bytes();
            self.set_to(&mut inner, key, value.clone());
        }
        self.count(&mut inner);
        if self.random.percent(30) {
            self.append(&mut inner);
            self.delete(&mut inner);
        }
        // A script does as a block does; replies of collections would look different behind Lua.
        if self.random.percent(40) {
            return self.wrap_in_script(plan, inner);
        }
        for _ in 0..self.random.below(5) {
            self.collection(&mut inner);
        }
        self.wrap(plan, inner);
    }

    /// Adds a transaction of which one command fails when it runs; the others stand.
    pub(super) fn transaction_with_error(&mut self, plan: &mut Plan) {
        let mut inner = Plan { operation: empty(), database: plan.database };
        let key = self.key("text", 5);
        self.set_to(&mut inner, key.clone(), b"text".to_vec());
        let reply = Reply::Error(b"ERR value is not an integer or out of range".to_vec());
        self.push(&mut inner, vec![b"INCR".to_vec(), key], reply, vec![]);
        self.set(&mut inner);
        self.wrap(plan, inner);
    }

    pub(super) fn wrap(&mut self, plan: &mut Plan, inner: Plan) {
        let Operation { commands, replies, effects } = inner.operation;
        self.push(plan, vec![b"MULTI".to_vec()], Reply::ok(), vec![]);
        for command in commands {
            self.push(plan, command, Reply::Simple(b"QUEUED".to_vec()), vec![]);
        }
        self.push(plan, vec![b"EXEC".to_vec()], Reply::Array(replies), vec![]);
        // The effects were applied to the sent state when their commands were made.
        plan.operation.effects.extend(effects);
    }

    /// Adds a script that runs the commands of a plan. It declares none of their keys, or the first.
    fn wrap_in_script(&mut self, plan: &mut Plan, inner: Plan) {
        let Operation { commands, replies, effects } = inner.operation;
        let keys = match self.random.percent(50) {
            true => vec![b"0".to_vec()],
            false => vec![b"1".to_vec(), commands[0][1].clone()],
        };
        let mut call = match self.random.percent(50) {
            true => vec![b"EVAL".to_vec(), SCRIPT.to_vec()],
            false => vec![b"FCALL".to_vec(), b"crash_run".to_vec()],
        };
        call.extend(keys);
        for command in commands {
            call.push(command.len().to_string().into_bytes());
            call.extend(command);
        }
        self.push(plan, call, Reply::Array(replies), vec![]);
        plan.operation.effects.extend(effects);
    }

    pub(super) fn discarded(&mut self, plan: &mut Plan) {
        let (key, value) = (self.plain_key(), self.value());
        self.push(plan, vec![b"MULTI".to_vec()], Reply::ok(), vec![]);
        let queued = Reply::Simple(b"QUEUED".to_vec());
        self.push(plan, vec![b"SET".to_vec(), key, value], queued, vec![]);
        self.push(plan, vec![b"DISCARD".to_vec()], Reply::ok(), vec![]);
    }

    pub(super) fn by_role(&mut self, plan: &mut Plan) {
        match self.role {
            Role::Plain => self.set(plan),
            Role::Flusher => {
                let database = plan.database;
                self.push(plan, vec![b"FLUSHDB".to_vec()], Reply::ok(), vec![Effect::Clear(database)]);
            }
            Role::Swapper(other) if self.random.percent(50) => {
                let (a, b) = (self.home, other);
                let words = [a, b].map(|d| d.to_string().into_bytes());
                let [first, second] = words;
                self.push(plan, vec![b"SWAPDB".to_vec(), first, second], Reply::ok(), vec![Effect::Swap(a, b)]);
            }
            Role::Swapper(other) => self.across_databases(plan, other),
        }
    }

    /// Adds a transaction that writes to two databases.
    pub(super) fn across_databases(&mut self, plan: &mut Plan, other: Database) {
        let select = |database: Database| vec![b"SELECT".to_vec(), database.to_string().into_bytes()];
        let mut inner = Plan { operation: empty(), database: plan.database };
        self.set(&mut inner);
        self.push(&mut inner, select(other), Reply::ok(), vec![]);
        inner.database = other;
        self.set(&mut inner);
        self.collection(&mut inner);
        self.count(&mut inner);
        self.push(&mut inner, select(self.home), Reply::ok(), vec![]);
        self.wrap(plan, inner);
    }
}
