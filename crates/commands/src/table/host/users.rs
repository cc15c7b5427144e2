//! Users and passwords.

use crate::error::Result;

/// The users that may run commands, and the login of the client.
pub trait Users {
    /// Whether the default user has a password.
    fn has_password(&self) -> bool;

    fn has_user(&self, name: &[u8]) -> bool;

    /// Whether the client may run commands: no password was needed when it came, or it gave one.
    fn authenticated(&self) -> bool;

    /// Whether this user has this password, so that the client may be logged in.
    ///
    /// # Errors
    /// `WRONGPASS ...` where the user or the password is wrong.
    fn check_password(&self, user: &[u8], password: &[u8]) -> Result<()>;
}
