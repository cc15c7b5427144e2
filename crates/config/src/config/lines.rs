//! The lines of a configuration that are no directives.

use crate::error::Origin;

/// The lines that are no directives and that the server is told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statements {
    pub renames: Vec<Rename>,
    pub users: Vec<UserLine>,
}

/// A line `user`. Whether its rules make sense is for the crate `acl` to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLine {
    /// The name and the rules.
    pub words: Vec<Vec<u8>>,
    /// The line, for the error if a rule is wrong, without its words: they may be passwords.
    pub origin: Origin,
}

/// A `rename-command` line. The command table knows whether the command exists, and whether the new name is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    pub command: Vec<u8>,
    /// The new name; empty if the command is removed.
    pub to: Vec<u8>,
    /// The line, for the error if the command cannot be renamed: `ConfigError::at(&rename.origin, "No such command in
    /// rename-command")`.
    pub origin: Origin,
}
