//! The writers' blocks: over several keys, of all types, also in two databases; and operations on whole databases.

use super::model::{Database, Effect, Operation};
use super::writer::{Plan, Role, Writer, empty};
use crate::client::Reply;

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
