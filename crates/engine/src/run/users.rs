//! Changes of users, and their consequences: clients of removed users end, subscribers who lose their channels as well,
//! and all others go on with the new rights.

use crate::clients::accounts::keeps_channels;
use crate::clients::client::Client;
use crate::clients::inbox::Order;
use crate::clients::session::{Session, State};
use crate::run::engine::Engine;
use haypile_acl::log::Context;
use haypile_acl::{Catalog, Denial, Fresh, Reason, User, Users};
use haypile_commands::host::{Channels, ClientFilter};
use haypile_commands::{Error, Result};
use haypile_config::Config;
use std::path::Path;
use std::sync::Arc;

impl Engine {
    /// The users that there are now.
    pub fn users(&self) -> Arc<Users> {
        self.accounts.users()
    }

    /// Whether clients from other hosts may do something without a password.
    pub fn is_open(&self) -> bool {
        self.accounts.default_user().needs_no_password()
    }

    /// Exchanges all users. To be called before there are clients.
    pub fn set_users(&self, users: Users) {
        let exchanged = self.change_users(None, |before| {
            *before = users;
            Ok(())
        });
        exchanged.expect("nothing was refused");
        self.accounts.note_own();
    }

    /// Changes the users. A client of a removed user is closed, and one that is subscribed to what its user may not
    /// hear any more; `own`, or who has ordered the change from a group, after its reply.
    ///
    /// # Errors
    /// The error of `change`; nothing has changed.
    pub(crate) fn change_users(
        &self,
        mut own: Option<(u64, &mut State)>,
        change: impl FnOnce(&mut Users) -> Result<()>,
    ) -> Result<()> {
        let before = self.accounts.change(change)?;
        // In this order: whoever finds the version changed finds the users, too.
        self.settings.touch();
        let after = self.accounts.users();
        for user in before.iter() {
            let filter = || ClientFilter { user: Some(user.name().to_vec()), ..ClientFilter::default() };
            match after.get(user.name()) {
                None => {
                    for client in self.clients.find(&filter(), 0, self.now_ms()) {
                        match &mut own {
                            Some((id, state)) if *id == client.id => state.closing = true,
                            _ if self.is_closed_by_answer(&client) => {}
                            _ => self.close_client(&client),
                        }
                    }
                }
                Some(now) if Arc::ptr_eq(now, user) || keeps_channels(user, now) => {}
                // Clients without subscriptions are told, too: one may be subscribing at this moment.
                Some(now) => {
                    let clients = self.clients.find(&filter(), 0, self.now_ms());
                    for client in clients.iter().filter(|client| client.peer_server.is_none()) {
                        match &mut own {
                            Some((id, state)) if *id == client.id => state.closing |= loses_channels(state, now),
                            _ => self.order(client.worker, Order::Recheck(client.id)),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a client of a removed user ends by itself: behind the answer to the order that has removed it, or when
    /// the group's leader, which has its connection, ends that for the same reason.
    fn is_closed_by_answer(&self, client: &Client) -> bool {
        self.group.close_behind_answer(client.id) || client.is_handed_on() && self.has_group_users()
    }

    /// Logs a client in whose certificate has this common name. If no such user may log in, the client is nobody yet.
    pub(crate) fn log_in_by_certificate(&self, session: &mut Session, name: &[u8]) {
        let user = self.users().get(name).filter(|user| user.is_enabled()).cloned();
        let Some(user) = user else {
            let denial = Denial::new(Reason::Auth, Context::Toplevel, b"TLS", name);
            self.note_denial(session.id, &session.state, denial, 1);
            return;
        };
        let seat = self.accounts.seat(&user, session.state.seat.as_ref());
        session.state.log_in(user, seat);
        session.client.show_names(&session.state.names);
        session.checks = session.state.checks();
    }

    /// Whether a session is subscribed to something that its user may not hear any more.
    pub fn loses_channels(&self, session: &Session) -> bool {
        self.accounts.newest(&session.state.user).is_none_or(|user| loses_channels(&session.state, &user))
    }

    /// Has a session act by the newest rules of its user; whether these are others than it acted by. If the user was
    /// removed, the session has no rights any more, and ends.
    pub(crate) fn refresh_user(&self, state: &mut State) -> bool {
        if state.repeating.is_some() {
            // A master may do everything, whatever the users here may do.
            return false;
        }
        match self.accounts.newest(&state.user) {
            Some(newest) if Arc::ptr_eq(&newest, &state.user) => return false,
            Some(newest) => state.user = newest,
            // A user that is made under the name later is another one.
            None => {
                state.user = Arc::new(User::new(state.user.name(), Fresh::default()));
                state.closing = true;
            }
        }
        true
    }

    /// Adds a denial that has happened `count` times to ACL LOG.
    pub(crate) fn note_denial(&self, client: u64, state: &State, denial: Denial, count: u64) {
        let mut line = String::new();
        if let Some(client) = self.clients.get(client) {
            client.line(&mut line, &state.names, &self.table, self.now_ms());
        }
        let entries_max = self.settings.config().acl_log_entries_max;
        self.accounts.note(denial, count, line, self.now_ms(), entries_max);
    }

    /// Carries ACL LOAD out, on a thread that may wait for the disk.
    pub(crate) fn load_users(&self, client: u64, state: &mut State) -> Result<()> {
        let config = self.settings.config();
        let file = config.aclfile.as_deref().expect("the command has looked for it");
        let users = read_file(file, &config, self.accounts.catalog());
        let users = users.map_err(|why| Error::text(format!("ERR {why}")))?;
        self.change_users(Some((client, state)), |before| {
            *before = users;
            Ok(())
        })
    }

    /// Carries ACL SAVE out, on a thread that may wait for the disk.
    pub(crate) fn save_users(&self) -> Result<()> {
        let config = self.settings.config();
        let file = config.aclfile.as_deref().expect("the command has looked for it");
        let _one = self.accounts.begin_saving();
        haypile_config::replace_file_with(file, |_| self.users().file()).map_err(|why| {
            tracing::warn!("ACL SAVE cannot write {}: {why}", file.display());
            Error::text(
                "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
            )
        })
    }

    /// The lines of the users in a configuration file; none where they are in a file of their own.
    pub(crate) fn user_lines(&self) -> Vec<Vec<u8>> {
        if self.settings.config().aclfile.is_some() {
            return Vec::new();
        }
        // The users of a group are in its data.
        let users = if self.has_group_users() { self.accounts.own() } else { self.users() };
        users.iter().map(|user| user.line()).collect()
    }
}

/// Returns whether a session is subscribed to something that this state of its user may not hear.
fn loses_channels(state: &State, user: &User) -> bool {
    let mut all = state.subscriptions.iter();
    all.any(|(kind, name)| !user.has_channel(name, kind == Channels::Pattern))
}

/// The users that a configuration asks for: those of its file of users, or of its lines.
///
/// # Errors
/// A text for people that names the file and the line.
pub fn users_of(config: &Config, catalog: &Catalog) -> std::result::Result<Users, String> {
    let users = match &config.aclfile {
        Some(file) => read_file(file, config, catalog)?,
        None => {
            let mut users = Users::new(catalog);
            if !config.requirepass.is_empty() {
                users.put(users.default_user().with_only_password(&config.requirepass));
            }
            let lines = config.users.iter().map(|line| (&line.words[..], &line.origin));
            users
                .with_lines(lines, catalog, fresh_rights(config))
                .map_err(|(origin, why)| haypile_config::ConfigError::at(origin, why.text()).to_string())?
        }
    };
    for user in users.iter().filter(|user| !user.is_enabled()) {
        tracing::warn!("The user '{}' is disabled: there is no 'on' among its rules.", user.name().escape_ascii());
    }
    if !config.requirepass.is_empty() && !users.default_user().accepts(&config.requirepass) {
        tracing::warn!("requirepass has no effect: the rules of the default user say otherwise.");
    }
    Ok(users)
}

/// Reads a file of users.
///
/// # Errors
/// All lines that are wrong, in one sentence each.
fn read_file(file: &Path, config: &Config, catalog: &Catalog) -> std::result::Result<Users, String> {
    let shown = file.display().to_string();
    let text = std::fs::read(file).map_err(|why| {
        let why = haypile_config::error::os_text(&why);
        format!("Error loading ACLs, opening file '{shown}': {why}")
    })?;
    Users::parse(&text, catalog, fresh_rights(config)).map_err(|wrong| {
        let mut all: String = wrong.iter().map(|(line, why)| why.text_in_file(&shown, *line)).collect();
        all.push_str("WARNING: ACL errors detected, no change to the previously active ACL rules was performed");
        all
    })
}

/// The rights of a user that has just been made.
pub fn fresh_rights(config: &Config) -> Fresh {
    Fresh { all_channels: config.acl_all_channels }
}
