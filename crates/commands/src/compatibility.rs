//! docs/compatibility.md: each command of Redis 7.2 as *yes*, *deliberate difference* or *not yet*.
//!
//! Owns the page's text and the list of deliberate differences. Whether a command is there comes from the table; what Redis
//! has, from tests/data/redis-commands.txt. A test keeps the page in the repository equal to this, and
//! `cargo run --release -p haypile-commands --example write_docs` writes it.

use crate::lookup::Table;
use std::fmt::Write;

/// A difference that is meant, not missing.
pub struct Difference {
    /// The full names of the commands that it shows in; empty if it is about no single command.
    pub commands: &'static [&'static str],
    pub what: &'static str,
    pub why: &'static str,
    /// The function that tests it, somewhere in this repository.
    pub test: &'static str,
}

pub const DIFFERENCES: &[Difference] = &[
    Difference {
        commands: &["command|docs"],
        what: "Summaries are in our own words. The names and types of arguments are those of Redis 7.0, without the \
               `display_text` that 7.2 added.",
        why: "Clients read the structure, people the summaries; the structure is compared with redis-server 7.0.",
        test: "info_and_docs_equal_those_of_redis_server",
    },
    Difference {
        commands: &["command|help", "config|help", "client|help"],
        what: "HELP lists the subcommands that this server has, with the summaries of COMMAND DOCS.",
        why: "It is made from the command table, so that it cannot promise what is not there.",
        test: "help_lists_the_subcommands_of_the_table",
    },
    Difference {
        commands: &["shutdown"],
        what: "SAVE and NOSAVE are accepted and change nothing: what was acknowledged is kept either way.",
        why: "All data is in the log already; there is no snapshot that could be skipped.",
        test: "shutdown_reads_its_options",
    },
];

/// One line of tests/data/redis-commands.txt.
#[derive(Debug, PartialEq, Eq)]
pub struct RedisCommand<'a> {
    /// `get`, `config|get`.
    pub name: &'a str,
    pub group: &'a str,
    pub since: &'a str,
    /// As COMMAND INFO shows it.
    pub arity: i64,
    pub flags: Vec<&'a str>,
    /// Empty if it is not deprecated.
    pub deprecated_since: &'a str,
    pub container: bool,
}

/// The commands of Redis 7.2 in the list; what came later is left out. Fails with the line that does not parse.
pub fn redis_commands(list: &str) -> Result<Vec<RedisCommand<'_>>, &str> {
    let newer = |line: &&str| line.contains("not-in-7.2");
    list.lines().filter(|line| !newer(line)).map(|line| redis_command(line).ok_or(line)).collect()
}

fn redis_command(line: &str) -> Option<RedisCommand<'_>> {
    let (fields, remarks) = line.split_once(" # ").unwrap_or((line, ""));
    let mut fields = fields.split(' ');
    let mut field = || fields.next();
    Some(RedisCommand {
        name: field()?,
        group: field()?,
        since: field()?,
        arity: field()?.parse().ok()?,
        flags: field()?.split(',').filter(|flag| *flag != "-").collect(),
        deprecated_since: remarks.split(' ').find_map(|remark| remark.strip_prefix("deprecated=")).unwrap_or(""),
        container: remarks.split(' ').any(|remark| remark == "container"),
    })
}

/// The whole page.
pub fn page(commands: &[RedisCommand]) -> String {
    let table = Table::new();
    let status = |name: &str| match table.find_full(name.as_bytes()) {
        None => "not yet",
        Some(_) if DIFFERENCES.iter().any(|difference| difference.commands.contains(&name)) => "deliberate difference",
        Some(_) => "yes",
    };
    let count = |wanted: &str| commands.iter().filter(|command| status(command.name) == wanted).count();
    let mut page = String::new();
    let mut line = |text: &str| writeln!(page, "{text}").expect("a String takes any text");
    line("# Compatibility with Redis 7.2");
    line("");
    line("Generated from the command table (`crates/commands`); change that, then run");
    line("`cargo run --release -p haypile-commands --example write_docs`.");
    line("");
    line(&format!(
        "Of {} commands and subcommands, {} behave as in Redis, {} differ on purpose, {} are not there yet.",
        commands.len(),
        count("yes"),
        count("deliberate difference"),
        count("not yet"),
    ));
    line("");
    line("## Deliberate differences");
    line("");
    line("| where | what | why | test |");
    line("|---|---|---|---|");
    for Difference { commands, what, why, test } in DIFFERENCES {
        let names: Vec<String> = commands.iter().map(|name| shown(name)).collect();
        line(&format!("| {} | {what} | {why} | `{test}` |", names.join(", ")));
    }
    let mut groups: Vec<&str> = commands.iter().map(|command| command.group).collect();
    groups.dedup();
    for group in groups {
        line("");
        line(&format!("## {group}"));
        line("");
        line("| command | since | status |");
        line("|---|---|---|");
        for command in commands.iter().filter(|command| command.group == group) {
            line(&format!("| {} | {} | {} |", shown(command.name), command.since, status(command.name)));
        }
    }
    page
}

/// `CONFIG GET`, as people write it.
fn shown(name: &str) -> String {
    format!("`{}`", name.replace('|', " ").to_uppercase())
}
