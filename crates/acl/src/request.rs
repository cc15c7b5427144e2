//! A call as rights see it, and why it is denied.

/// How a call uses a key. A call that does neither asks about the key only, as EXISTS does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUse {
    pub reads: bool,
    pub writes: bool,
}

/// The databases that a call touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Databases {
    /// All databases, as for FLUSHALL.
    All,
    One(u32),
}

/// A call of a command. A visitor is called for each thing of a kind, with the position of its argument, until it
/// returns false.
pub trait Request {
    /// The number of the command.
    fn command(&self) -> u16;

    /// Whether everybody may call the command, because it is how one logs in or leaves.
    fn is_open(&self) -> bool;

    /// The argument behind the command's name.
    fn first_argument(&self) -> Option<&[u8]>;

    fn keys(&self, visit: &mut dyn FnMut(usize, &[u8], KeyUse) -> bool);

    /// The channels that messages are sent to or asked for; those that are patterns are told to be.
    fn channels(&self, visit: &mut dyn FnMut(usize, &[u8], bool) -> bool);

    fn databases(&self, visit: &mut dyn FnMut(usize, Databases) -> bool);
}

/// The kinds of rights, in the order in which a denial tells more: the later ones mean that the earlier were there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Command,
    Key,
    /// A login failed.
    Auth,
    Channel,
    Database,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 5] = [Reason::Command, Reason::Key, Reason::Auth, Reason::Channel, Reason::Database];

    /// The name in ACL LOG.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Auth => "auth",
            Reason::Channel => "channel",
            Reason::Database => "database",
        }
    }
}

/// The denial of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denied {
    pub reason: Reason,
    /// The argument that is the reason; 0 for the command.
    pub argument: usize,
}

impl Denied {
    /// The sentence for the client, which repeats no argument.
    pub fn text(&self, user: &[u8], full_name: &str) -> Vec<u8> {
        match self.reason {
            Reason::Command | Reason::Auth => no_permission(user, " to run the '", full_name.as_bytes(), "' command"),
            Reason::Key => b"No permissions to access a key".to_vec(),
            Reason::Channel => b"No permissions to access a channel".to_vec(),
            Reason::Database => b"No permissions to access database".to_vec(),
        }
    }

    /// The sentence of ACL DRYRUN, which names the argument.
    pub fn long_text(&self, user: &[u8], full_name: &str, argument: &[u8]) -> Vec<u8> {
        match self.reason {
            Reason::Command | Reason::Auth => self.text(user, full_name),
            Reason::Key => no_permission(user, " to access the '", argument, "' key"),
            Reason::Channel => no_permission(user, " to access the '", argument, "' channel"),
            Reason::Database => no_permission(user, " to access database ", argument, ""),
        }
    }

    /// The end of EXEC's error for a command that was permitted when it was queued.
    pub fn text_in_block(&self) -> &'static str {
        match self.reason {
            Reason::Command | Reason::Auth => "no permission to execute the command or subcommand",
            Reason::Key => "no permission to touch the specified keys",
            Reason::Channel => "no permission to access one of the channels used as arguments",
            Reason::Database => "no permission to access database",
        }
    }
}

fn no_permission(user: &[u8], before: &str, what: &[u8], after: &str) -> Vec<u8> {
    [b"User ", user, b" has no permissions", before.as_bytes(), what, after.as_bytes()].concat()
}
