//! Users, their rights, and who was denied what.

use crate::error::Result;
use haypile_acl::log::Entry;
use haypile_acl::{Fresh, User};
use std::sync::Arc;

/// The users of the server, and the login of the client.
pub trait Users {
    /// All users, with the changes of the block that the command is part of.
    fn users(&self) -> Arc<haypile_acl::Users>;

    /// The user that the client is logged in as: the default user, until it logs in.
    fn user(&self) -> &Arc<User>;

    /// The rights of a user that has just been made.
    fn fresh_rights(&self) -> Fresh;

    /// Whether the client may run commands: no password was needed when it came, or it gave one.
    fn authenticated(&self) -> bool;

    /// The user of this name, if this is one of its passwords and it may log in.
    ///
    /// # Errors
    /// [`Stop::Long`](haypile_store::Stop::Long) on an event loop where the password is very long; the user has as many
    /// connections as it may.
    fn login(&self, name: &[u8], password: &[u8]) -> Result<Option<Arc<User>>>;

    /// The user of this name, if it may log in, for a client that has logged in as it elsewhere.
    ///
    /// # Errors
    /// The user has as many connections as it may.
    fn let_in(&self, name: &[u8]) -> Result<Option<Arc<User>>>;

    /// Whether so many bytes of passwords may be hashed at once.
    ///
    /// # Errors
    /// [`Stop::Long`](haypile_store::Stop::Long) on an event loop where they are very many.
    fn check_hashed_bytes(&self, bytes: usize) -> Result<()>;

    /// The newest entries of ACL LOG, these first, as many as are asked for. Nothing that the block under way has
    /// caused is among them.
    fn denials(&self, count: usize) -> Vec<Entry>;

    /// Whether there is a file of users: `aclfile`.
    fn has_user_file(&self) -> bool;
}
