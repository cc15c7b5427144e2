//! Users and passwords.

use crate::clients::client::USER;
use crate::run::host::SessionHost;
use haypile_commands::host::Users;
use haypile_commands::{Error, Result};

impl Users for SessionHost<'_, '_> {
    fn has_password(&self) -> bool {
        !self.engine.settings.config().requirepass.is_empty()
    }

    fn has_user(&self, name: &[u8]) -> bool {
        name == USER.as_bytes()
    }

    fn authenticated(&self) -> bool {
        self.state.authenticated
    }

    fn check_password(&self, user: &[u8], password: &[u8]) -> Result<()> {
        let config = self.engine.settings.config();
        // Where the default user needs no password, any will do, as in Redis.
        if self.has_user(user) && (config.requirepass.is_empty() || is_same(&config.requirepass, password)) {
            return Ok(());
        }
        Err(Error::text("WRONGPASS invalid username-password pair or user is disabled."))
    }
}

/// Compares in a time that does not tell where they differ.
fn is_same(right: &[u8], given: &[u8]) -> bool {
    let differing = right.iter().zip(given).fold(0, |bits, (a, b)| bits | (a ^ b));
    right.len() == given.len() && std::hint::black_box(differing) == 0
}
