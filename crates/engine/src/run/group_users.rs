//! Users that are a Raft group's, not each member's own: `raft-users group`.
//!
//! Users are facts in the data, above those with which a member started: each its line, or nothing for one that was
//! removed. The leader writes them, and every member acts by what the group has agreed on.

use crate::run::engine::Engine;
use crate::run::users::fresh_rights;
use haypile_acl::Users;
use haypile_acl::user::DEFAULT;
use haypile_commands::host::UserChange;
use haypile_log::Index;
use haypile_store::{Facts, Mode, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The beginning of the name of a user's fact, before the user's name.
const USER: &[u8] = b"user/";

/// Bytes before a user's line: the record before which it was made, which no other user of its name has.
const MADE_BYTES: usize = 8;

impl Engine {
    /// Whether users are the group's, which this server is in.
    pub(crate) fn has_group_users(&self) -> bool {
        self.group.is_member() && self.settings.config().raft.has_users
    }

    /// Has the users of now be those that the group's are put upon: the server comes into a group.
    pub fn begin_group_users(&self) {
        self.accounts.note_own();
    }

    /// Changes users of the group, which this server leads. Returns the record: when the group has agreed on it, the
    /// change has taken effect.
    ///
    /// # Errors
    /// A text for people: nothing has happened.
    pub fn change_group_users(&self, change: &UserChange) -> Result<Index, String> {
        let store = self.store().ok_or("the data are not loaded")?;
        let known = store.facts();
        let users = self.group_users(&known);
        let facts: Vec<(Vec<u8>, Option<Vec<u8>>)> = match change {
            UserChange::Set { name, rules } => {
                let fresh = fresh_rights(&self.settings.config());
                let user = users.with_rules(name, rules, self.accounts.catalog(), fresh);
                let line = user.map_err(|(_, wrong)| wrong.text().to_owned())?.line();
                // A user that is made under the name of one that was removed is another one.
                let is_new = users.get(name).is_none();
                let made = if is_new { store.log().last().0 + 1 } else { made_of(known.get(&fact_of(name))) };
                vec![(fact_of(name), Some([&made.to_le_bytes()[..], &line].concat()))]
            }
            UserChange::Remove(names) => names.iter().map(|name| (fact_of(name), Some(Vec::new()))).collect(),
        };
        // The member's thread waits for no room.
        let put = store.put_facts(&facts, Mode::Memory);
        put.map_err(|stop| format!("the log takes no record, try again: {stop:?}"))
    }

    /// Returns the record through which changes of the group's users have taken effect here.
    pub fn group_users_through(&self) -> Index {
        self.accounts.known_through(self.store_version())
    }

    /// Acts by the group's users as soon as all that is known of them is agreed on: through this record.
    pub fn look_at_group_users(&self, committed: Index) {
        if !self.has_group_users() {
            return;
        }
        let version = self.store_version();
        let Some(store) = self.store() else { return };
        let facts = store.facts();
        let changed_at = facts.changed_at_of(USER);
        let Some(before) =
            Some(changed_at).filter(|at| *at <= committed).and_then(|at| self.accounts.note_group((version, at)))
        else {
            return;
        };
        self.accounts.set_group_default(facts.get(&fact_of(DEFAULT)).is_some());
        let made = facts.iter().filter_map(|(name, value)| Some((name.strip_prefix(USER)?, made_of(Some(value)))));
        let now: BTreeMap<Vec<u8>, u64> = made.map(|(name, made)| (name.to_vec(), made)).collect();
        let is_other = |name: &[u8]| now.get(name).is_some_and(|now| before.get(name).unwrap_or(&0) != now);
        self.accounts.note_made(now.clone());
        // Clients of a user that was removed and made again in between are not the new one's.
        let others =
            |users: &mut Users| now.keys().filter(|name| is_other(name)).for_each(|name| _ = users.remove(name));
        let exchange: [&dyn Fn(&mut Users); 2] = [&others, &|users| *users = self.group_users(&facts)];
        for change in exchange {
            let changed = self.change_users(None, |users| {
                change(users);
                Ok(())
            });
            changed.expect("nothing was refused");
        }
    }

    /// Forgets what the data say of users, which a group had before: another one begins with this server.
    ///
    /// # Errors
    /// A text for people.
    pub(crate) fn forget_group_users(&self, store: &Store) -> Result<(), String> {
        let facts = store.facts();
        let of_users = facts.iter().filter(|(name, _)| name.starts_with(USER));
        let gone: Vec<_> = of_users.map(|(name, _)| (name.to_vec(), None)).collect();
        if gone.is_empty() {
            return Ok(());
        }
        store.put_facts(&gone, Mode::Disk).map(drop).map_err(|stop| format!("{stop:?}"))
    }

    /// Returns the users of the group: this member's own, and what the data say.
    fn group_users(&self, facts: &Facts) -> Users {
        let mut users = Users::clone(&self.accounts.own());
        let (catalog, fresh) = (self.accounts.catalog(), fresh_rights(&self.settings.config()));
        for (name, line) in facts.iter().filter_map(|(name, line)| Some((name.strip_prefix(USER)?, line))) {
            let rules = line.get(MADE_BYTES..).unwrap_or_default();
            match Users::parse(rules, catalog, fresh).ok().and_then(|made| made.get(name).cloned()) {
                _ if line.is_empty() => _ = users.remove(name),
                Some(user) => users.put(haypile_acl::User::clone(&user)),
                // The group has a newer version of this program, most likely.
                None => tracing::warn!("the rules of the group's user '{}' make no sense here", name.escape_ascii()),
            }
        }
        users
    }
}

/// Returns the record before which a user was made; 0 of one of the configuration, or that is gone.
fn made_of(value: Option<&Arc<[u8]>>) -> u64 {
    value.and_then(|value| value.first_chunk()).map_or(0, |made| u64::from_le_bytes(*made))
}

fn fact_of(name: &[u8]) -> Vec<u8> {
    [USER, name].concat()
}
