//! The commands of one server, and the way from a request to its command.
//!
//! Owns what is computed from the entries once, and the texts for a request that asks for no command. Never runs
//! anything; the entries are in the files of the groups, their types in `mod.rs`, the index of names in `names.rs`.

use crate::args::Args;
use crate::command_id::CommandId;
use crate::error::{Error, Result, as_text};
use crate::names::Names;
use crate::table::{Categories, Category, Command, Flags, Group};
use haypile_acl::{Catalog, Named};
use std::ops::Range;
use std::sync::Arc;

/// A command with what is computed from its entry once.
#[derive(Clone, Debug)]
pub struct Entry {
    pub command: &'static Command,
    /// Dense over commands and subcommands: an index for counters and ACL bitmaps. Depends on the build, never stored.
    pub id: CommandId,
    /// The container, for a subcommand.
    pub parent: Option<CommandId>,
    pub flags: Flags,
    pub categories: Categories,
    /// The argument of the only key, if every call has exactly one in the same place.
    pub one_key: Option<u16>,
    /// The command mostly looks at one row, so that it is run without key locks first. A collection mostly lies in
    /// several rows.
    pub looks_at_one_row: bool,
    /// `get`, `config|get`: the name of the table, whatever the server calls it.
    pub full_name: String,
    /// The ids of the subcommands, which follow each other.
    subcommands: Range<u16>,
}

/// The commands of one server by name.
pub struct Table {
    /// The entries by id: first all commands, then all subcommands.
    entries: Vec<Entry>,
    names: Names,
    catalog: Arc<Catalog>,
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// Makes the table of all commands under their own names.
    pub fn new() -> Self {
        Self::of(crate::groups())
    }

    /// Makes the table of all commands under their own names, and of `more`, which are a test's own.
    pub fn with(more: &'static [Command]) -> Self {
        Self::of(&[crate::groups(), &[more]].concat())
    }

    pub(crate) fn of(groups: &[&'static [Command]]) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        for command in groups.iter().flat_map(|group| group.iter()) {
            entries.push(entry(entries.len(), command, None));
        }
        for parent in 0..entries.len() {
            let start = entries.len();
            for command in entries[parent].command.subcommands {
                entries.push(entry(entries.len(), command, Some(&entries[parent])));
            }
            entries[parent].subcommands = start as u16..entries.len() as u16;
        }
        let commands = entries.iter().filter(|entry| entry.parent.is_none());
        let names = Names::new(commands.map(|entry| (entry.command.name, entry.id)));
        let catalog = Arc::new(catalog(&entries));
        Self { entries, names, catalog }
    }

    /// Calls the command `from` only `to` from now on; an empty `to` takes it away. Fails with a sentence that says
    /// why.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> std::result::Result<(), String> {
        self.names.rename(from, to)
    }

    /// The command of this name, in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Entry> {
        self.names.find(name).map(|id| self.entry(id))
    }

    /// The subcommand of this word, in any case.
    pub fn find_subcommand(&self, container: &Entry, word: &[u8]) -> Option<&Entry> {
        self.subcommands(container).iter().find(|entry| entry.command.name.as_bytes().eq_ignore_ascii_case(word))
    }

    /// The command or subcommand of a name as COMMAND INFO takes it: `get`, `config|get`.
    pub fn find_full(&self, name: &[u8]) -> Option<&Entry> {
        match name.iter().position(|&byte| byte == b'|') {
            None => self.find(name),
            Some(bar) => self.find_subcommand(self.find(&name[..bar])?, &name[bar + 1..]),
        }
    }

    /// The command that a call asks for; its arity may not fit.
    pub fn lookup(&self, args: Args) -> Option<&Entry> {
        let entry = self.find(args.opt(0)?)?;
        match args.opt(1) {
            Some(word) if !entry.subcommands.is_empty() => self.find_subcommand(entry, word),
            _ => Some(entry),
        }
    }

    /// The command that a request asks for, its arity checked. The error is the reply.
    #[inline]
    pub fn resolve(&self, args: Args) -> Result<&Entry> {
        let Some(entry) = self.find(args.get(0)) else {
            return Err(unknown_command(args));
        };
        let entry = if entry.subcommands.is_empty() { entry } else { self.resolve_subcommand(entry, args)? };
        if !entry.command.arity.allows(args.len()) {
            return Err(Error::WrongArity(entry.full_name.clone()));
        }
        Ok(entry)
    }

    fn resolve_subcommand<'t>(&'t self, container: &'t Entry, args: Args) -> Result<&'t Entry> {
        match args.opt(1) {
            None => Ok(container),
            Some(word) => self.find_subcommand(container, word).ok_or_else(|| unknown_subcommand(container, word)),
        }
    }

    /// The commands as rules of users name them: by their own names, whatever the server calls them.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    #[inline]
    pub fn entry(&self, id: CommandId) -> &Entry {
        &self.entries[id.0 as usize]
    }

    /// Returns the number of commands that clients can call, subcommands not counted.
    pub fn len(&self) -> usize {
        self.names.iter().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of commands and subcommands with an id.
    pub fn ids(&self) -> usize {
        self.entries.len()
    }

    /// The names clients can use, each with its command, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        self.names.iter().map(|(name, id)| (name, self.entry(id)))
    }

    pub fn subcommands(&self, container: &Entry) -> &[Entry] {
        &self.entries[container.subcommands.start as usize..container.subcommands.end as usize]
    }
}

fn entry(id: usize, command: &'static Command, parent: Option<&Entry>) -> Entry {
    Entry {
        command,
        id: CommandId(id as u16),
        parent: parent.map(|parent| parent.id),
        flags: command.all_flags(),
        categories: command.all_categories(),
        one_key: command.keys.always_one(),
        looks_at_one_row: !matches!(
            command.group,
            Group::Bitmap | Group::Hash | Group::List | Group::Set | Group::SortedSet | Group::Geo | Group::Stream
        ),
        full_name: match parent {
            None => command.name.to_owned(),
            Some(parent) => format!("{}|{}", parent.command.name, command.name),
        },
        subcommands: 0..0,
    }
}

fn catalog(entries: &[Entry]) -> Catalog {
    let named = |entry: &Entry| Named {
        full_name: entry.full_name.clone(),
        categories: entry.categories.bits(),
        container: entry.parent.map(|CommandId(id)| id),
        subcommands: entry.subcommands.clone(),
    };
    Catalog::new(entries.iter().map(named).collect(), Category::ALL.iter().map(|category| category.name()).collect())
}

/// Redis shows 128 bytes of the name, and of the arguments as many as begin within 128 bytes.
fn unknown_command(args: Args) -> Error {
    let mut shown = Vec::new();
    for arg in args.iter_from(1) {
        if shown.len() >= 128 {
            break;
        }
        let arg = printed(arg, 128 - shown.len());
        shown.extend([b"'", arg, b"' "].concat());
    }
    let name = printed(args.get(0), 128);
    Error::Quoting([b"ERR unknown command '", name, b"', with args beginning with: ", &shown].concat())
}

fn unknown_subcommand(container: &Entry, word: &[u8]) -> Error {
    let name = container.command.name.to_uppercase();
    Error::Quoting([b"ERR unknown subcommand '", printed(word, 128), b"'. Try ", name.as_bytes(), b" HELP."].concat())
}

/// The text up to its first NUL, as C prints it, and at most `max` bytes of it.
fn printed(text: &[u8], max: usize) -> &[u8] {
    let text = as_text(text);
    &text[..text.len().min(max)]
}
