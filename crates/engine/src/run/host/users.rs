//! Users, and the client's login.

use crate::run::host::SessionHost;
use crate::run::limit::no_seat;
use crate::run::users::fresh_rights;
use haypile_acl::log::Entry;
use haypile_acl::{Fresh, User};
use haypile_commands::host::{Act, GroupOrder, UserChange, Users};
use haypile_commands::{Error, Result};
use haypile_store::Stop;
use std::sync::Arc;

/// Bytes of passwords that an event loop hashes at once: some tenths of a millisecond.
const HASHED_BYTES_AT_ONCE: usize = 64 << 10;

impl Users for SessionHost<'_, '_> {
    fn users(&self) -> Arc<haypile_acl::Users> {
        self.state.acts.users().unwrap_or_else(|| self.engine.accounts.users())
    }

    fn user(&self) -> &Arc<User> {
        &self.state.user
    }

    fn fresh_rights(&self) -> Fresh {
        fresh_rights(&self.engine.settings.config())
    }

    fn authenticated(&self) -> bool {
        self.state.authenticated || self.users().default_user().is_open()
    }

    fn login(&self, name: &[u8], password: &[u8]) -> Result<Option<Arc<User>>> {
        self.check_hashed_bytes(password.len())?;
        let Some(user) = self.users().get(name).filter(|user| user.accepts(password)).cloned() else { return Ok(None) };
        self.check_seat(&user)?;
        Ok(Some(user))
    }

    fn let_in(&self, name: &[u8]) -> Result<Option<Arc<User>>> {
        let Some(user) = self.users().get(name).filter(|user| user.is_enabled()).cloned() else { return Ok(None) };
        self.check_seat(&user)?;
        Ok(Some(user))
    }

    fn check_hashed_bytes(&self, bytes: usize) -> Result<()> {
        // Without data there is no I/O pool yet.
        let is_long = bytes > HASHED_BYTES_AT_ONCE && !self.may_wait && self.engine.store().is_some();
        if is_long { Err(Error::Stop(Stop::Long)) } else { Ok(()) }
    }

    fn denials(&self, count: usize) -> Vec<Entry> {
        if self.state.acts.resets_denials() {
            return Vec::new();
        }
        self.engine.accounts.denials(count)
    }

    fn has_user_file(&self) -> bool {
        self.engine.settings.config().aclfile.is_some()
    }
}

impl SessionHost<'_, '_> {
    /// Has the group change its users: the session waits for that.
    pub(super) fn order_users(&mut self, change: UserChange) -> Result<()> {
        if self.txn.is_some() {
            // Rules with many bytes of passwords come here from the I/O pool.
            let why = "ERR users of a Raft group cannot be changed inside a transaction, nor by 64 KB of rules";
            return Err(Error::text(why));
        }
        self.state.order = Some(self.engine.expect_order(GroupOrder::ChangeUsers { change, record: None })?);
        Ok(())
    }

    /// Whether one more connection may log in as this user.
    ///
    /// # Errors
    /// The user has as many as it may.
    fn check_seat(&self, user: &User) -> Result<()> {
        let has_seat = self.state.seat.as_ref().is_some_and(|seat| seat.usage.user == *user.name());
        let connections_max = user.limits().connections;
        if connections_max > 0 && !has_seat {
            let usage = self.engine.accounts.usage(user);
            if usage.connections() >= connections_max {
                usage.turned_away.add_shared(1);
                return Err(Error::text(no_seat(user)));
            }
        }
        Ok(())
    }

    /// Shows a change of users to the commands behind it in the same block. All others see it when the block has taken
    /// effect.
    pub(super) fn draft_users(&mut self, act: &Act) {
        let mut users = haypile_acl::Users::clone(&self.users());
        match act {
            Act::SetUser { name, rules } => {
                let made = users.with_rules(name, rules, self.engine.accounts.catalog(), self.fresh_rights());
                users.put(made.expect("the command has tried the rules"));
            }
            Act::DeleteUsers(names) => names.iter().for_each(|name| _ = users.remove(name)),
            _ => return,
        }
        if let Some(user) = users.get(self.state.user.name()) {
            self.state.user = user.clone();
        }
        self.state.acts.set_users(users);
    }
}
