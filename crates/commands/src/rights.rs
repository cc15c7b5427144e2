//! Calls as the crate `acl` sees them, and the error replies of what is denied.
//!
//! Owns which keys, channels and databases a call needs rights for. Which rights a user has belongs to the crate `acl`;
//! where calls are looked at, to the engine.

use crate::args::Args;
use crate::error::Error;
use crate::lookup::Entry;
use crate::table::{Channels, Command, Databases as Touched, Flag, KeySpec, Subscribes, Use};
use haypile_acl::log::Context;
use haypile_acl::{Databases, Denial, Denied, KeyUse, Reason, Request, User};

/// A call that a client asks for.
#[derive(Clone, Copy)]
pub struct Requested<'a> {
    pub entry: &'a Entry,
    pub args: Args<'a>,
    /// The number of the selected database.
    pub database: u32,
}

impl Request for Requested<'_> {
    fn command(&self) -> u16 {
        self.entry.id.0
    }

    fn is_open(&self) -> bool {
        self.entry.flags.has(Flag::NoAuth)
    }

    fn first_argument(&self) -> Option<&[u8]> {
        self.args.opt(1)
    }

    fn keys(&self, visit: &mut dyn FnMut(usize, &[u8], KeyUse) -> bool) {
        // As in Redis, such a call has no keys: it fails whatever they are.
        if self.entry.command.keys.of_keys().iter().any(|spec| spec.claims_wrongly(self.args)) {
            return;
        }
        for (at, spec) in self.entry.command.keys(self.args) {
            if !visit(at, self.args.get(at), key_use(self.entry.command, spec, self.args)) {
                return;
            }
        }
    }

    fn channels(&self, visit: &mut dyn FnMut(usize, &[u8], bool) -> bool) {
        let command = self.entry.command;
        let (end, is_pattern) = match command.subscribes {
            Some(Subscribes { kind, ends: false }) => (self.args.len(), kind == Channels::Pattern),
            _ if command.publishes => (2.min(self.args.len()), false),
            _ => return,
        };
        for at in 1..end {
            if !visit(at, self.args.get(at), is_pattern) {
                return;
            }
        }
    }

    fn databases(&self, visit: &mut dyn FnMut(usize, Databases) -> bool) {
        let command = self.entry.command;
        if command.touches_selected(self.args) && !visit(0, Databases::One(self.database)) {
            return;
        }
        match command.databases {
            Touched::All => _ = visit(0, Databases::All),
            _ => _ = command.named_databases(self.args).all(|(at, database)| visit(at, Databases::One(database))),
        }
    }
}

impl Requested<'_> {
    /// Whether a user may make the call.
    #[inline]
    pub fn check(&self, user: &User) -> Result<(), Denied> {
        if user.is_unrestricted() { Ok(()) } else { user.check(self) }
    }

    /// Whether a user may read the keys that the call comes to although they are not among its arguments.
    ///
    /// # Errors
    /// The reply; the call is not to run.
    pub fn check_other_keys(&self, user: &User) -> Result<(), Error> {
        if user.is_unrestricted() {
            return Ok(());
        }
        match self.entry.command.other_keys.and_then(|other_keys| other_keys(self.args)) {
            Some(option) if !user.reads_every_key(self) => {
                Err(Error::text(format!("ERR {option} option of SORT denied due to insufficient ACL permissions.")))
            }
            _ => Ok(()),
        }
    }

    /// The entry of ACL LOG for a denial.
    pub fn denial(&self, user: &User, denied: Denied, context: Context) -> Denial {
        let object = match denied.reason {
            Reason::Command => self.entry.full_name.as_bytes(),
            _ => self.args.get(denied.argument),
        };
        Denial::new(denied.reason, context, object, user.name())
    }

    /// The sentence for the client, without a code.
    pub fn text(&self, user: &User, denied: Denied) -> String {
        String::from_utf8_lossy(&denied.text(user.name(), &self.entry.full_name)).into_owned()
    }
}

/// The use that a call makes of a key. Some commands say it only with their arguments.
fn key_use(command: &Command, spec: &KeySpec, args: Args<'_>) -> KeyUse {
    let uses = match command.uses {
        Some(uses) if spec.uses.contains(&Use::VariableFlags) => uses(args).1,
        _ => spec.uses,
    };
    KeyUse {
        reads: uses.contains(&Use::Access),
        writes: uses.iter().any(|one| matches!(one, Use::Insert | Use::Update | Use::Delete)),
    }
}
