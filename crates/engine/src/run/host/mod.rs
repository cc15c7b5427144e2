//! The traits of `commands::host` for session commands: a session's state and the engine behind it, a file per subject.
//!
//! The traits only ask. What commands return as acts changes the state at once, as far as it is the session's own, and
//! is noted there otherwise, because a run may be dropped. Which state that is (the session's own, or the copy that a
//! block runs on) is up to the caller. The pages of INFO are in `info`.

mod clients;
mod cluster;
mod config;
mod connection;
mod memory;
mod process;
mod pubsub;
mod replication;
mod scripts;
mod statistics;
mod storage;
mod tracking;
mod users;

use crate::clients::pubsub::Payload;
use crate::clients::session::{Effect, State};
use crate::run::engine::Engine;
use crate::run::held_back;
use haypile_commands::host::{Act, Answer, Clock, Host, Rows, UserChange};
use haypile_commands::{Error, Result, Table};
use haypile_resp::Reply;
use haypile_store::{Stop, Txn};
use std::time::{SystemTime, UNIX_EPOCH};

/// The `Host` of a session command: its session, and the server behind it.
pub(crate) struct SessionHost<'a, 's> {
    pub engine: &'a Engine,
    pub session: u64,
    pub state: &'a mut State,
    /// The transaction that the command is part of, whose own keys count.
    pub txn: Option<&'a mut Txn<'s>>,
    /// The thread may wait for the disk: it is one of the I/O pool.
    pub may_wait: bool,
}

impl SessionHost<'_, '_> {
    /// Makes the changes of the session that a command has returned, and notes its other acts, which are carried out
    /// when the run has taken effect. Returns the reply.
    ///
    /// # Errors
    /// The act cannot be carried out, or a thread that may wait has to run the command.
    pub fn note(&mut self, answer: Answer) -> Result<Reply> {
        let Answer { mut reply, acts } = answer;
        if acts.is_empty() {
            return Ok(reply);
        }
        if !self.may_wait && acts.iter().any(Act::may_block) {
            return Err(Error::Stop(Stop::Long));
        }
        for act in acts {
            match act {
                Act::Session(change) => self.change_session(change),
                Act::Publish { kind, channel, payload, audience } => {
                    let payload = Payload::new(payload, &self.engine.client_memory);
                    self.state.changing().effects.push(Effect::Publish { kind, channel, payload, audience });
                }
                Act::Wait(wait) if self.txn.is_some() => reply = held_back::reply_at_once(self.engine, wait, reply),
                Act::Wait(wait) => self.state.wait = Some(wait),
                Act::Reload(_) if self.txn.is_some() => {
                    return Err(Error::text("ERR data cannot be opened again inside a transaction"));
                }
                Act::Reload(how) => self.state.reload = Some(how),
                Act::Order(order) => self.state.order = Some(self.engine.expect_order(order)?),
                Act::SetUser { name, rules } if self.engine.has_group_users() => {
                    self.order_users(UserChange::Set { name, rules })?;
                }
                Act::DeleteUsers(names) if self.engine.has_group_users() && !names.is_empty() => {
                    self.order_users(UserChange::Remove(names))?;
                }
                act @ (Act::SetUser { .. } | Act::DeleteUsers(_)) => {
                    if self.txn.is_some() {
                        self.draft_users(&act);
                    }
                    self.state.changing().acts.add(&self.engine.settings, act).map_err(Error::text)?;
                }
                act => {
                    if matches!(act, Act::BeginBackup) && self.txn.is_some() {
                        self.engine.can_begin_backup()?;
                    }
                    self.state.acts.add(&self.engine.settings, act).map_err(Error::text)?;
                }
            }
        }
        Ok(reply)
    }
}

impl Host for SessionHost<'_, '_> {
    fn table(&self) -> &Table {
        &self.engine.table
    }
}

impl Clock for SessionHost<'_, '_> {
    fn now_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_micros() as u64)
    }

    fn fill_secret(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("a running system has random numbers");
    }
}

impl Rows for SessionHost<'_, '_> {
    fn in_transaction(&mut self, run: &mut dyn FnMut(&mut Txn<'_>) -> Result<Reply>) -> Result<Reply> {
        match &mut self.txn {
            Some(txn) => run(txn),
            None => Err(Error::Stop(Stop::Long)),
        }
    }
}
