//! Users and their rights: the access control list (ACL) of Redis 7.2, and rights by database as Valkey 9.1 has them.
//!
//! Owns the language of rules, what a set of rules permits, and the texts that describe both. A command is a number
//! here, which the [`Catalog`] gives a name; a call is a [`Request`]. Nothing here knows a connection, a file or a
//! reply: the command ACL is in the crate `commands`, logins are in `engine`.
//!
//! Reading order: [`user`] (a user and its rules), [`limits`] (what its clients may take), [`selector`] (one set of
//! rights), `permitted` (which commands it has), [`request`] (a call, and why it is denied), [`users`] (all users, and
//! their file), [`log`] (ACL LOG).

#![forbid(unsafe_code)]

pub mod user;

pub mod selector;

mod permitted;
mod word;

pub mod limits;

pub mod catalog;
pub mod request;

pub mod users;

pub mod log;
pub mod password;
pub mod wrong;

pub mod testing;

pub use catalog::{Catalog, Named};
pub use limits::Limits;
pub use log::{Denial, Log};
pub use request::{Databases, Denied, KeyUse, Reason, Request};
pub use user::{Fresh, User};
pub use users::Users;
pub use wrong::Wrong;
