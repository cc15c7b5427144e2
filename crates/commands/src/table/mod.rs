//! The types of the command table.
//!
//! Owns what a command *is*: its name, arity, keys, flags, ACL categories, documentation and how it runs. A command is
//! one `const` entry in the file of its group; the dispatcher, COMMAND, the ACL and docs/compatibility.md all walk
//! these entries. Never runs a command itself. Keys are described in `keyspec.rs`, flags and categories in `flags.rs`,
//! the language of `syntax` in `syntax.rs`; the entries are in `string/` and its siblings.

pub mod host;
pub mod lookup;

use crate::args::Args;
use crate::error::Result;
use crate::host::{Answer, Host};
use crate::migration::Migration;
use haypile_resp::{Reply, number};
use haypile_store::Txn;
use haypile_types::key::Type;
use std::fmt;
use std::ops::Range;

pub use crate::host::Channels;

pub use crate::flags::{Categories, Category, Flag, Flags};
pub use crate::keyspec::{Begin, Find, Hidden, KeyPositions, KeySpec, Keys, Mode, Use};

/// One command or subcommand. Fields with a usual value come last and are taken from [`Command::USUAL`].
#[derive(Clone, Copy)]
pub struct Command {
    /// The name in lower case; of a subcommand only its own word (`get` of `config get`).
    pub name: &'static str,
    /// The Redis version that had it first.
    pub since: &'static str,
    pub group: Group,
    pub arity: Arity,
    pub keys: Keys,
    pub summary: &'static str,
    /// The arguments after the command's name, in the language of `syntax.rs`.
    pub syntax: &'static str,
    /// The complexity as COMMAND DOCS has it; empty if COMMAND DOCS says nothing of it.
    pub complexity: &'static str,
    pub access: Access,
    pub body: Body,
    /// Flags beside those that follow from `access` and `body`.
    pub flags: &'static [Flag],
    /// ACL categories beside those that follow from `access`, `body`, `flags` and `group`.
    pub categories: &'static [Category],
    /// Command tips: how clients and proxies may route requests and merge replies.
    pub tips: &'static [&'static str],
    /// Versions of Redis that changed the command, each with the change.
    pub history: &'static [(&'static str, &'static str)],
    pub deprecated: Option<Deprecated>,
    /// The command is for those who work on the server itself.
    pub syscmd: bool,
    pub subcommands: &'static [Command],
    /// The elements of the first key's collection that the command asks for, as a rule: these are fetched ahead of
    /// time.
    pub elements: Option<ElementArgs>,
    /// The command runs at once between MULTI and EXEC, instead of being queued.
    pub runs_in_multi: bool,
    /// The command runs although its client has subscriptions and speaks RESP2.
    pub runs_while_bound: bool,
    /// The answer rests on data although the command does not run over rows: it asks the host for a transaction.
    pub rests_on_rows: bool,
    /// The command leaves what CLIENT CACHING has said to the one behind it.
    pub keeps_caching: bool,
    /// The command begins something that a Raft group's leader goes on with, for a client that it serves by way of
    /// another member.
    pub begins_at_leader: bool,
    /// The command changes users: a Raft group's leader runs it, where users are the group's.
    pub changes_users: bool,
    /// The subscriptions that the command begins or ends.
    pub subscribes: Option<Subscribes>,
    /// The command sends a message to the channel that argument 1 names.
    pub publishes: bool,
    /// The databases that the command touches beside the selected one.
    pub databases: Databases,
    /// The database that the client is in afterwards, where that may be another one.
    pub selects: Option<Selects>,
    /// Says by which option a call reads keys that are not among its arguments, if it does.
    pub other_keys: Option<fn(Args) -> Option<&'static str>>,
    /// Says what a call does to its keys, where that depends on the arguments.
    pub uses: Option<fn(Args) -> (Mode, &'static [Use])>,
}

/// How a command says which elements it asks for.
#[derive(Clone, Copy, Debug)]
pub enum ElementArgs {
    /// The names of the elements: arguments at regular distances, up to the last one.
    Names { first: usize, step: usize },
    /// The element's index in a list, which is this argument.
    Index(usize),
}

/// The channels whose names are the arguments of a command, and what it does to their subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribes {
    pub kind: Channels,
    /// The command ends subscriptions; all of the kind if no name is given.
    pub ends: bool,
}

/// How a command says which databases it touches beside the selected one, whose rows it reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Databases {
    Selected,
    /// The selected one, and those whose numbers are these arguments.
    Arguments(&'static [usize]),
    /// The selected one, and the one whose number stands behind this word, if it is there.
    Keyword(&'static str),
    All,
}

/// How a command says in which database its client is afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selects {
    /// The client is in the database whose number is this argument.
    Argument(usize),
    /// The client is in the first database.
    First,
}

/// The version since which a command is deprecated, and what takes its place.
#[derive(Clone, Copy, Debug)]
pub struct Deprecated {
    pub since: &'static str,
    pub instead: &'static str,
}

/// The permission of a command: what it may do to rows. The base flags and ACL categories follow from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Touches no rows.
    #[default]
    None,
    /// Reads rows.
    Read,
    /// Reads and writes rows.
    Write,
    /// Writes while no other command runs, because it changes which space a database is.
    Exclusive,
}

impl Access {
    /// Whether the command may write rows.
    #[inline]
    pub const fn writes(self) -> bool {
        matches!(self, Access::Write | Access::Exclusive)
    }

    /// The flag that COMMAND INFO shows for the permission.
    const fn flag(self) -> Option<Flag> {
        match self {
            Access::None => None,
            Access::Read => Some(Flag::Readonly),
            Access::Write | Access::Exclusive => Some(Flag::Write),
        }
    }
}

/// The function of a command, by what it runs over. Whether it waits follows from it: see [`Command::waits`].
#[derive(Clone, Copy)]
pub enum Body {
    /// Runs over a transaction and ends at once.
    Txn(TxnFn),
    /// Runs over a transaction and waits where there is nothing to have yet: it is tried once, and again when one of
    /// its keys has come to be.
    Wait(WaitFn),
    /// Hands its keys to another server: it waits for a network.
    Migrate(MigrateFn),
    /// Asks the connection or the server.
    Host(HostFn),
    /// Asks for changes of the session or the server, which the engine carries out when the command has taken effect.
    Act(ActFn),
    /// Runs a script, whose calls are commands.
    Script(Script),
    /// A command that the engine itself runs, because it changes how other commands run.
    Engine(Control),
    /// Cannot run: only its subcommands do.
    Container,
}

pub type TxnFn = fn(&mut Txn, Args) -> Result<Reply>;
pub type WaitFn = fn(&mut Txn, Args) -> Result<Tried>;
pub type MigrateFn = for<'a> fn(Args<'a>) -> Result<Migration<'a>>;
pub type HostFn = fn(&mut dyn Host, Args) -> Result<Reply>;
pub type ActFn = fn(&mut dyn Host, Args) -> Result<Answer>;

/// The outcome of one try of a blocking command.
#[derive(Debug)]
pub enum Tried {
    Got(Reply),
    Nothing(Awaited),
}

/// The wait of a blocking command that has found nothing.
#[derive(Debug)]
pub struct Awaited {
    /// The arguments that name its keys.
    pub keys: Range<usize>,
    /// The type that one of the keys has to hold.
    pub kind: Type,
    /// Milliseconds from now on; nothing for one that waits for ever.
    pub timeout_ms: Option<u64>,
    /// The answer where no command waits: in a transaction.
    pub at_once: Reply,
    /// Arguments that the next tries replace, each by the value that it stands for at this moment (`$`).
    pub instead: Vec<(usize, Vec<u8>)>,
    /// The command is tried again, too, when a key that held a value of this type is gone or holds another type.
    pub until_gone: bool,
    /// Milliseconds from now on until the command is run again by itself, because there may be something then.
    pub again_ms: Option<u64>,
}

impl Awaited {
    /// A wait after which the command is tried again as it is, when one of the keys has come to be.
    pub fn new(keys: Range<usize>, kind: Type, timeout_ms: Option<u64>, at_once: Reply) -> Awaited {
        Awaited { keys, kind, timeout_ms, at_once, instead: Vec::new(), until_gone: false, again_ms: None }
    }
}

impl Tried {
    /// The answer where nothing waits.
    pub fn at_once(self) -> Reply {
        match self {
            Tried::Got(reply) => reply,
            Tried::Nothing(awaited) => awaited.at_once,
        }
    }
}

/// How a command says which script it runs, by argument 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    Text,
    /// The SHA-1 of the text, in hex digits.
    Name,
    /// The name of a function.
    Function,
}

/// The commands that the engine runs itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    /// Waits for a backup.
    Save,
    Reset,
}

/// The number of arguments, the command's name (and its subcommand's) included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arity {
    /// The least number of arguments, the command's name included.
    pub least: u16,
    /// Whether no argument may follow beyond `least`.
    pub exact: bool,
    /// Arguments beyond that which are taken all the same. COMMAND INFO does not show them: Redis has none.
    pub spare: u16,
}

impl Arity {
    pub const fn exactly(count: u16) -> Self {
        Self { least: count, exact: true, spare: 0 }
    }

    pub const fn at_least(count: u16) -> Self {
        Self { least: count, exact: false, spare: 0 }
    }

    /// Returns the arity of `count` arguments, or up to `spare` more, of which Redis knows nothing.
    pub const fn exactly_or_more(count: u16, spare: u16) -> Self {
        Self { least: count, exact: true, spare }
    }

    #[inline]
    pub const fn allows(self, count: usize) -> bool {
        count >= self.least as usize && (!self.exact || count <= self.least as usize + self.spare as usize)
    }

    /// The number that COMMAND INFO shows: negative where more arguments may follow.
    pub const fn signed(self) -> i64 {
        if self.exact { self.least as i64 } else { -(self.least as i64) }
    }
}

/// The groups of Redis's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    String,
    Bitmap,
    Hash,
    List,
    Set,
    SortedSet,
    Geo,
    Stream,
    Hyperloglog,
    Generic,
    Connection,
    Pubsub,
    Server,
    Transactions,
    Cluster,
    Scripting,
}

impl Group {
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Bitmap => "bitmap",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Geo => "geo",
            Self::Stream => "stream",
            Self::Hyperloglog => "hyperloglog",
            Self::Generic => "generic",
            Self::Connection => "connection",
            Self::Pubsub => "pubsub",
            Self::Server => "server",
            Self::Transactions => "transactions",
            Self::Cluster => "cluster",
            Self::Scripting => "scripting",
        }
    }

    /// The ACL category that every command of the group has, if there is one.
    const fn category(self) -> Option<Category> {
        match self {
            Self::String => Some(Category::String),
            Self::Bitmap => Some(Category::Bitmap),
            Self::Hash => Some(Category::Hash),
            Self::List => Some(Category::List),
            Self::Set => Some(Category::Set),
            Self::SortedSet => Some(Category::Sortedset),
            Self::Geo => Some(Category::Geo),
            Self::Stream => Some(Category::Stream),
            Self::Hyperloglog => Some(Category::Hyperloglog),
            Self::Generic => Some(Category::Keyspace),
            Self::Connection => Some(Category::Connection),
            Self::Transactions => Some(Category::Transaction),
            Self::Scripting => Some(Category::Scripting),
            Self::Pubsub | Self::Server | Self::Cluster => None,
        }
    }
}

impl Command {
    /// The usual values: `..Command::USUAL` ends an entry and stands for the fields that it does not name.
    pub const USUAL: Self = Self {
        name: "",
        since: "",
        group: Group::Generic,
        arity: Arity::exactly(1),
        keys: Keys::NONE,
        summary: "",
        syntax: "",
        complexity: "O(1)",
        access: Access::None,
        body: Body::Container,
        flags: &[],
        categories: &[],
        tips: &[],
        history: &[],
        deprecated: None,
        syscmd: false,
        subcommands: &[],
        elements: None,
        runs_in_multi: false,
        runs_while_bound: false,
        rests_on_rows: false,
        keeps_caching: false,
        begins_at_leader: false,
        changes_users: false,
        subscribes: None,
        publishes: false,
        databases: Databases::Selected,
        selects: None,
        other_keys: None,
        uses: None,
    };

    /// Returns whether a call reads or writes rows of the selected database. Functions belong to no database.
    pub fn touches_selected(&self, args: Args) -> bool {
        let touches = self.access != Access::None && self.group != Group::Scripting;
        match self.databases {
            Databases::All => false,
            Databases::Arguments(_) => self.keys(args).next().is_some(),
            Databases::Selected | Databases::Keyword(_) => touches || self.keys(args).next().is_some(),
        }
    }

    /// Returns the databases that a call names, each with the place of the argument. Arguments that are no numbers are
    /// left out.
    pub fn named_databases<'a>(&self, args: Args<'a>) -> impl Iterator<Item = (usize, u32)> + use<'a> {
        let (places, behind): (&[usize], _) = match self.databases {
            Databases::Selected | Databases::All => (&[], None),
            Databases::Arguments(places) => (places, None),
            Databases::Keyword(word) => {
                // A key may be named like the word.
                let options = self.keys(args).map(|(at, _)| at + 1).max().unwrap_or(1);
                (&[], (options..args.len()).rev().find(|&at| args.is(at, word)).map(|at| at + 1))
            }
        };
        let number = move |at| u32::try_from(number::parse_i64(args.opt(at)?)?).ok();
        places.iter().copied().chain(behind).filter_map(move |at| Some((at, number(at)?)))
    }

    /// Returns whether the command's connection may have to wait until one of its keys has come to be.
    #[inline]
    pub const fn waits(&self) -> bool {
        matches!(self.body, Body::Wait(_))
    }

    /// Every flag: those of the entry, those that follow from `access` and `body`, and what the key specs imply.
    pub fn all_flags(&self) -> Flags {
        let mut flags = Flags::default();
        // FUNCTION reads no data, as Redis has it.
        let is_of_data = self.group != Group::Scripting || matches!(self.body, Body::Script(_)) || self.access.writes();
        self.access.flag().filter(|_| is_of_data).into_iter().for_each(|flag| flags.add(flag));
        if self.waits() {
            flags.add(Flag::Blocking);
        }
        self.flags.iter().for_each(|&flag| flags.add(flag));
        let movable = self.keys.specs().iter().any(|spec| {
            !matches!((spec.begin, spec.find), (Begin::Index(_), Find::Range { .. }))
                || spec.uses.contains(&Use::Incomplete)
        });
        if movable {
            flags.add(Flag::Movablekeys);
        }
        flags
    }

    /// Every ACL category: those of the entry, and those that follow from its flags and its group, as in Redis.
    pub fn all_categories(&self) -> Categories {
        let flags = self.all_flags();
        let mut categories = Categories::default();
        let implied = [
            (Flag::Write, &[Category::Write][..]),
            (Flag::Readonly, &[Category::Read]),
            (Flag::Admin, &[Category::Admin, Category::Dangerous]),
            (Flag::Pubsub, &[Category::Pubsub]),
            (Flag::Fast, &[Category::Fast]),
            (Flag::Blocking, &[Category::Blocking]),
        ];
        // Scripts that only read are no reads, as in Redis.
        let is_implied = |flag| flags.has(flag) && !(flag == Flag::Readonly && self.group == Group::Scripting);
        for (flag, implied) in implied {
            if is_implied(flag) {
                implied.iter().for_each(|&category| categories.add(category));
            }
        }
        if !flags.has(Flag::Fast) {
            categories.add(Category::Slow);
        }
        // WAIT and its relatives are about the connection, SORT about lists, sets and sorted sets, whatever group
        // documents them.
        let is_of = |category| self.categories.contains(&category);
        let is_elsewhere =
            matches!(self.body, Body::Container) || is_of(Category::Connection) || is_of(Category::Sortedset);
        if let (Some(category), false) = (self.group.category(), is_elsewhere) {
            categories.add(category);
        }
        self.categories.iter().for_each(|&category| categories.add(category));
        categories
    }

    /// Whether the command locks the keys of this spec exclusively. XREADGROUP does although its specs only read: it
    /// changes what the groups of its streams know. PFCOUNT does not although its spec writes: in Redis it keeps its
    /// count in the value.
    #[inline]
    pub fn changes(&self, spec: &KeySpec) -> bool {
        self.access.writes() && (spec.writes() || self.waits())
    }

    /// The positions of the keys among these arguments, each with the spec that found it. What key locks, cluster slots
    /// and COMMAND GETKEYS use.
    #[inline]
    pub fn keys<'a>(&'a self, args: Args<'a>) -> KeyPositions<'a> {
        KeyPositions::new(self.keys.of_keys(), args)
    }

    /// First, last and step of the keys as Redis told them before there were key specs: last counts from the end if
    /// negative. Zeros where no such triple says where the keys are.
    pub fn legacy_range(&self) -> (i64, i64, i64) {
        let mut whole: Option<(i64, i64, i64)> = None;
        for spec in self.keys.specs() {
            let (Begin::Index(first), Find::Range { last, step, limit: 0 }) = (spec.shown_begin(), spec.find) else {
                continue;
            };
            let (first, step) = (i64::from(first), i64::from(step));
            let last = if last >= 0 { first + i64::from(last) } else { i64::from(last) };
            whole = match whole {
                None => Some((first, last, step)),
                // Adjacent single keys join to one range; anything else cannot be told by a triple.
                Some((from, until, 1)) if step == 1 && until + 1 == first => Some((from, last, 1)),
                some => some,
            };
        }
        whole.unwrap_or((0, 0, 0))
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Command").field("name", &self.name).field("arity", &self.arity.signed()).finish_non_exhaustive()
    }
}
