//! COMMAND: what the server tells about its commands, and HELP of any container.
//!
//! Owns the replies. Everything in them comes from the table.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::lookup::{Entry, Table};
use crate::syntax::{self, Argument};
use crate::table::{Arity, Begin, Body, Category, Command, Find, Flag, Group, KeySpec, Keys, Use};
use haypile_config::glob;
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[COMMAND];

const COMMAND: Command = Command {
    name: "command",
    since: "2.8.13",
    group: Group::Server,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Describes all commands, with subcommands for parts of that.",
    syntax: "",
    complexity: "O(N) where N is the total number of Redis commands",
    body: Body::Host(command),
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Connection],
    tips: &["nondeterministic_output_order"],
    subcommands: &[
        COMMAND_COUNT,
        COMMAND_DOCS,
        COMMAND_GETKEYS,
        COMMAND_GETKEYSANDFLAGS,
        COMMAND_HELP,
        COMMAND_INFO,
        COMMAND_LIST,
    ],
    ..Command::USUAL
};

fn command(host: &mut dyn Host, _: Args) -> Result<Reply> {
    let table = host.table();
    Ok(Reply::array(table.iter().map(|(_, entry)| described(table, entry))))
}

const COMMAND_COUNT: Command = Command {
    name: "count",
    since: "2.8.13",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Returns how many commands the server has.",
    syntax: "",
    body: Body::Host(command_count),
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Connection],
    ..Command::USUAL
};

fn command_count(host: &mut dyn Host, _: Args) -> Result<Reply> {
    Ok(Reply::Integer(host.table().len() as i64))
}

const COMMAND_DOCS: Command = Command {
    name: "docs",
    since: "7.0.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Returns the documentation of commands, of all if none is named.",
    syntax: "[command-name...]",
    complexity: "O(N) where N is the number of commands to look up",
    body: Body::Host(command_docs),
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Connection],
    tips: &["nondeterministic_output_order"],
    ..Command::USUAL
};

fn command_docs(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let table = host.table();
    let documented = |entry: &Entry| (Reply::bulk(entry.full_name.clone()), documented(table, entry));
    Ok(Reply::Map(if args.len() == 2 {
        table.iter().map(|(_, entry)| documented(entry)).collect()
    } else {
        args.iter_from(2).filter_map(|name| table.find_full(name)).map(documented).collect()
    }))
}

const COMMAND_GETKEYS: Command = Command {
    name: "getkeys",
    since: "2.8.13",
    group: Group::Server,
    arity: Arity::at_least(3),
    keys: Keys::NONE,
    summary: "Returns the keys in a full command.",
    syntax: "",
    complexity: "O(N) where N is the number of arguments to the command",
    body: Body::Host(command_getkeys),
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Connection],
    ..Command::USUAL
};

fn command_getkeys(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let call = args.tail(2);
    let (_, found) = keys_of(host, call)?;
    Ok(Reply::array(found.into_iter().map(|(at, _)| Reply::bulk(call.get(at).to_vec()))))
}

/// The command that a call asks for, and where its keys are.
fn keys_of<'h>(host: &'h mut dyn Host, call: Args<'h>) -> Result<(&'h Entry, Vec<(usize, &'h KeySpec)>)> {
    let Some(entry) = host.table().lookup(call) else {
        return Err(Error::text("ERR Invalid command specified"));
    };
    if entry.command.keys.of_keys().is_empty() {
        return Err(Error::text("ERR The command has no key arguments"));
    }
    if !entry.command.arity.allows(call.len()) {
        return Err(Error::text("ERR Invalid number of arguments specified for command"));
    }
    let claims_wrongly = |spec: &KeySpec| spec.claims_wrongly(call) || spec.claims_none(call);
    // A wrong number of keys leaves none at all, also none of those that stand before it.
    let is_wrong = entry.command.keys.of_keys().iter().any(claims_wrongly);
    let found: Vec<(usize, &KeySpec)> = if is_wrong { Vec::new() } else { entry.command.keys(call).collect() };
    if found.is_empty() && !entry.flags.has(Flag::NoMandatoryKeys) {
        return Err(Error::text("ERR Invalid arguments specified for command"));
    }
    Ok((entry, found))
}

const COMMAND_GETKEYSANDFLAGS: Command = Command {
    name: "getkeysandflags",
    since: "7.0.0",
    group: Group::Server,
    arity: Arity::at_least(3),
    keys: Keys::NONE,
    summary: "Returns the keys in a full command, each with what the command does to it.",
    syntax: "",
    complexity: "O(N) where N is the number of arguments to the command",
    body: Body::Host(command_getkeysandflags),
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Connection],
    ..Command::USUAL
};

fn command_getkeysandflags(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let call = args.tail(2);
    let (entry, found) = keys_of(host, call)?;
    let described = |(at, spec): (usize, &KeySpec)| {
        let (mode, uses) = entry.command.uses.map_or((spec.mode, spec.uses), |uses| uses(call));
        // Of a call's own keys nothing is left open.
        let uses = uses.iter().filter(|one| !matches!(one, Use::Incomplete | Use::VariableFlags));
        let flags = std::iter::once(mode.name()).chain(uses.map(|one| one.name())).map(Reply::Simple);
        Reply::Array(vec![Reply::bulk(call.get(at).to_vec()), Reply::Set(flags.collect())])
    };
    Ok(Reply::array(found.into_iter().map(described)))
}

const COMMAND_HELP: Command = Command {
    name: "help",
    since: "5.0.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Lists the subcommands of COMMAND.",
    syntax: "",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Connection],
    ..Command::USUAL
};

const COMMAND_INFO: Command = Command {
    name: "info",
    since: "2.8.13",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Describes commands, all if none is named.",
    syntax: "[command-name...]",
    complexity: "O(N) where N is the number of commands to look up",
    body: Body::Host(command_info),
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Connection],
    tips: &["nondeterministic_output_order"],
    history: &[("7.0.0", "Allowed to be called with no argument to get info on all commands.")],
    ..Command::USUAL
};

fn command_info(host: &mut dyn Host, args: Args) -> Result<Reply> {
    if args.len() == 2 {
        return command(host, args);
    }
    let table = host.table();
    let one = |name| table.find_full(name).map_or(Reply::Null, |entry| described(table, entry));
    Ok(Reply::array(args.iter_from(2).map(one)))
}

const COMMAND_LIST: Command = Command {
    name: "list",
    since: "7.0.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "Returns the names of commands, all or those that a filter selects.",
    syntax: "[FILTERBY filterby=(MODULE module-name | ACLCAT category | PATTERN pattern)]",
    complexity: "O(N) where N is the total number of Redis commands",
    body: Body::Host(command_list),
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Connection],
    tips: &["nondeterministic_output_order"],
    ..Command::USUAL
};

/// Commands and subcommands alike, by the names of the table.
fn command_list(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let filter = args.opt(4).unwrap_or_default();
    let selects: Box<dyn Fn(&Entry) -> bool> = match args.len() {
        2 => Box::new(|_| true),
        5 if !args.is(2, "FILTERBY") => return Err(Error::Syntax),
        // No command is a module's.
        5 if args.is(3, "MODULE") => Box::new(|_| false),
        5 if args.is(3, "ACLCAT") => {
            let category = Category::named(filter);
            Box::new(move |entry| category.is_some_and(|category| entry.categories.has(category)))
        }
        5 if args.is(3, "PATTERN") => Box::new(|entry| glob::matches(filter, entry.full_name.as_bytes(), true)),
        _ => return Err(Error::Syntax),
    };
    let table = host.table();
    let all = table.iter().flat_map(|(_, entry)| std::iter::once(entry).chain(table.subcommands(entry)));
    Ok(Reply::array(all.filter(|entry| selects(entry)).map(|entry| Reply::bulk(entry.full_name.clone()))))
}

/// HELP of the container that was called: its subcommands with their arguments and what they do.
pub(crate) fn help(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let table = host.table();
    let container = table.find(args.get(0)).expect("HELP runs only as the subcommand of a command that was found");
    let name = container.command.name.to_uppercase();
    let mut lines = vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for entry in table.subcommands(container) {
        let arguments = syntax::shown(&arguments(entry.command));
        lines.push(format!("{} {arguments}", entry.command.name.to_uppercase()).trim_end().to_owned());
        lines.push(format!("    {}", entry.command.summary));
    }
    Ok(Reply::array(lines.into_iter().map(Reply::Status)))
}

/// A command as COMMAND INFO shows it.
fn described(table: &Table, entry: &Entry) -> Reply {
    let command = entry.command;
    let (first, last, step) = command.legacy_range();
    Reply::Array(vec![
        Reply::bulk(entry.full_name.clone()),
        Reply::Integer(command.arity.signed()),
        Reply::Set(entry.flags.iter().map(|flag| Reply::Simple(flag.name())).collect()),
        Reply::Integer(first),
        Reply::Integer(last),
        Reply::Integer(step),
        Reply::Set(entry.categories.iter().map(|category| Reply::Status(format!("@{}", category.name()))).collect()),
        Reply::Set(command.tips.iter().map(|&tip| Reply::bulk(tip)).collect()),
        Reply::Set(command.keys.specs().iter().map(key_spec).collect()),
        match table.subcommands(entry) {
            [] => Reply::Set(Vec::new()),
            subcommands => Reply::array(subcommands.iter().map(|entry| described(table, entry))),
        },
    ])
}

fn key_spec(spec: &KeySpec) -> Reply {
    let mode = std::iter::once(spec.mode.name()).filter(|name| !name.is_empty());
    let uses = spec.uses.iter().map(|use_| use_.name());
    let (begin, begin_spec) = match spec.shown_begin() {
        Begin::Unknown(_) | Begin::Nearly(..) => ("unknown", Vec::new()),
        Begin::Index(index) => ("index", vec![("index", Reply::Integer(index.into()))]),
        Begin::Keyword { word, from } => {
            ("keyword", vec![("keyword", Reply::bulk(word)), ("startfrom", Reply::Integer(from.into()))])
        }
    };
    let (find, find_spec) = match spec.find {
        _ if matches!(spec.begin, Begin::Unknown(_)) => ("unknown", Vec::new()),
        Find::Range { last, step, limit } => (
            "range",
            vec![
                ("lastkey", Reply::Integer(last.into())),
                ("keystep", Reply::Integer(step.into())),
                ("limit", Reply::Integer(limit.into())),
            ],
        ),
        Find::KeyNum { count_at, first, step } => (
            "keynum",
            vec![
                ("keynumidx", Reply::Integer(count_at.into())),
                ("firstkey", Reply::Integer(first.into())),
                ("keystep", Reply::Integer(step.into())),
            ],
        ),
    };
    let typed = |kind, spec| map(vec![("type", Reply::bulk(kind)), ("spec", map(spec))]);
    let mut fields = Vec::new();
    if !spec.notes.is_empty() {
        fields.push(("notes", Reply::bulk(spec.notes)));
    }
    fields.push(("flags", Reply::Set(mode.chain(uses).map(Reply::Simple).collect())));
    fields.push(("begin_search", typed(begin, begin_spec)));
    fields.push(("find_keys", typed(find, find_spec)));
    map(fields)
}

/// A command as COMMAND DOCS shows it.
fn documented(table: &Table, entry: &Entry) -> Reply {
    let command = entry.command;
    let mut fields = vec![
        ("summary", Reply::bulk(command.summary)),
        ("since", Reply::bulk(command.since)),
        ("group", Reply::bulk(command.group.name())),
    ];
    if !command.complexity.is_empty() {
        fields.push(("complexity", Reply::bulk(command.complexity)));
    }
    let doc_flags = [(command.deprecated.is_some(), "deprecated"), (command.syscmd, "syscmd")];
    let doc_flags = doc_flags.iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| Reply::Simple(flag));
    if command.deprecated.is_some() || command.syscmd {
        fields.push(("doc_flags", Reply::Set(doc_flags.collect())));
    }
    if let Some(deprecated) = command.deprecated {
        fields.push(("deprecated_since", Reply::bulk(deprecated.since)));
        fields.push(("replaced_by", Reply::bulk(deprecated.instead)));
    }
    if !command.history.is_empty() {
        let change = |&(since, what)| Reply::Array(vec![Reply::bulk(since), Reply::bulk(what)]);
        fields.push(("history", Reply::Set(command.history.iter().map(change).collect())));
    }
    let arguments = arguments(command);
    if !arguments.is_empty() {
        fields.push(("arguments", documented_arguments(&arguments, &mut 0, command.keys.specs().len())));
    }
    let subcommands = table.subcommands(entry);
    if !subcommands.is_empty() {
        let one = |entry: &Entry| (Reply::bulk(entry.full_name.clone()), documented(table, entry));
        fields.push(("subcommands", Reply::Map(subcommands.iter().map(one).collect())));
    }
    map(fields)
}

/// `keys` counts the arguments that are keys: the first belongs to the first of the key `specs`, and so on; those
/// beyond to the last.
fn documented_arguments(arguments: &[Argument], keys: &mut usize, specs: usize) -> Reply {
    Reply::array(arguments.iter().map(|argument| {
        let mut fields =
            vec![("name", Reply::bulk(argument.name.clone())), ("type", Reply::bulk(argument.kind.name()))];
        if argument.kind == syntax::Kind::Key {
            fields.push(("key_spec_index", Reply::Integer((*keys).min(specs.saturating_sub(1)) as i64)));
            *keys += 1;
        } else if argument.kind == syntax::Kind::Pattern && specs > 1 {
            // SORT makes names of patterns: all of those belong to the spec behind the key.
            fields.push(("key_spec_index", Reply::Integer(1)));
            *keys = 2;
        }
        if let Some(token) = argument.token {
            fields.push(("token", Reply::bulk(token)));
        }
        if let Some(since) = argument.since {
            fields.push(("since", Reply::bulk(since)));
        }
        let flags = [
            (argument.optional, "optional"),
            (argument.multiple, "multiple"),
            (argument.multiple_token, "multiple_token"),
        ];
        let flags: Vec<Reply> =
            flags.into_iter().filter_map(|(set, name)| set.then_some(Reply::Simple(name))).collect();
        if !flags.is_empty() {
            fields.push(("flags", Reply::Set(flags)));
        }
        if !argument.arguments.is_empty() {
            fields.push(("arguments", documented_arguments(&argument.arguments, keys, specs)));
        }
        map(fields)
    }))
}

fn arguments(command: &Command) -> Vec<Argument> {
    syntax::parse(command.syntax).expect("a law of the table: every syntax parses")
}

fn map(fields: Vec<(&'static str, Reply)>) -> Reply {
    Reply::Map(fields.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect())
}
