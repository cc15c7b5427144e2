//! The number of a command.

/// The number of a command or subcommand among all of one server, dense from 0 on: an index for counters and ACL
/// bitmaps. Depends on the build, never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u16);
