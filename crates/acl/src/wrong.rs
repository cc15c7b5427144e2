//! Why a rule is refused.

/// The fault of a rule. The texts are Redis's and Valkey's, but for that of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The rule names a command or category that is not there.
    Unknown,
    Syntax,
    /// A pattern of keys behind the one that stands for all.
    KeysBehindAll,
    /// A pattern of channels behind the one that stands for all.
    ChannelsBehindAll,
    FirstArgumentOfSubcommand,
    NoSuchPassword,
    PasswordHash,
    DatabaseRange,
    /// The number of a limit.
    Limit,
    /// A file names a user twice.
    Duplicate,
}

impl Wrong {
    pub fn text(self) -> &'static str {
        match self {
            Wrong::Unknown => "Unknown command or category name in ACL",
            Wrong::Syntax => "Syntax error",
            Wrong::KeysBehindAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                 effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Wrong::ChannelsBehindAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Wrong::FirstArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            Wrong::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            Wrong::PasswordHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            Wrong::DatabaseRange => "The provided database ID is out of range",
            Wrong::Limit => "A limit must be a number, or 0 for none; one of bytes may have a unit, as in 10mb",
            Wrong::Duplicate => "Duplicate user found. A user can only be defined once in config files",
        }
    }
}
