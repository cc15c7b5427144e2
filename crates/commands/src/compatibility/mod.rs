//! docs/compatibility.md: each command of Redis 7.2 as *yes*, *deliberate difference* or *not yet*.
//!
//! Owns the page's text; the deliberate differences are listed in `server` and `values`. Whether a command is there
//! comes from the table; what Redis has, from tests/data/redis-commands.txt. A test keeps the page in the repository
//! equal to
//! this, and `cargo run --release -p haypile-commands --example write_compatibility` writes it.

mod server;
mod values;

use crate::lookup::Table;
use std::fmt::Write;

/// A difference that is meant, not missing.
pub struct Difference {
    /// The full names of the commands that it shows in; empty if it is about all of them.
    pub commands: &'static [&'static str],
    pub what: &'static str,
    pub why: &'static str,
    /// The function that tests it, somewhere in this repository.
    pub test: &'static str,
}

/// All deliberate differences, in the order of the page.
pub fn differences() -> impl Iterator<Item = &'static Difference> {
    server::DIFFERENCES.iter().chain(values::DIFFERENCES)
}

/// One line of tests/data/redis-commands.txt.
#[derive(Debug, PartialEq, Eq)]
pub struct RedisCommand<'a> {
    /// `get`, `config|get`.
    pub name: &'a str,
    pub group: &'a str,
    pub since: &'a str,
    /// The arity as COMMAND INFO shows it.
    pub arity: i64,
    pub flags: Vec<&'a str>,
    /// The version since which the command is deprecated; empty if it is not.
    pub deprecated_since: &'a str,
    pub container: bool,
}

/// The commands of Redis 7.2 in the list; what came later is left out. Fails with the line that does not parse.
pub fn redis_commands(list: &str) -> Result<Vec<RedisCommand<'_>>, &str> {
    list.lines().filter(|line| !is_newer(line)).map(|line| redis_command(line).ok_or(line)).collect()
}

/// The commands of the list that came after Redis 7.2. Fails with the line that does not parse.
pub fn newer_commands(list: &str) -> Result<Vec<RedisCommand<'_>>, &str> {
    list.lines().filter(|line| is_newer(line)).map(|line| redis_command(line).ok_or(line)).collect()
}

fn is_newer(line: &str) -> bool {
    line.contains("not-in-7.2")
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
        Some(_) if differences().any(|difference| difference.commands.contains(&name)) => "deliberate difference",
        Some(_) => "yes",
    };
    let count = |wanted: &str| commands.iter().filter(|command| status(command.name) == wanted).count();
    let mut page = String::new();
    let mut line = |text: &str| writeln!(page, "{text}").expect("a String takes any text");
    line("# Compatibility with Redis 7.2");
    line("");
    line("Generated from the command table (`crates/commands`); change that, then run");
    line("`make docs`.");
    line("");
    line(&format!(
        "Of {} commands and subcommands, {} behave as in Redis, {} differ on purpose, {} are not there yet.",
        commands.len(),
        count("yes"),
        count("deliberate difference"),
        count("not yet"),
    ));
    let is_of_7_2 = |name: &str| commands.iter().any(|command| command.name == name);
    let newer: Vec<String> = table
        .iter()
        .filter(|(_, entry)| !is_of_7_2(&entry.full_name))
        .map(|(_, entry)| format!("{} ({})", shown(&entry.full_name), entry.command.since))
        .collect();
    line("");
    line(&format!("Of newer versions there are {}.", newer.join(", ")));
    line("");
    line("## Deliberate differences");
    line("");
    line("| where | what | why | test |");
    line("|---|---|---|---|");
    for Difference { commands, what, why, test } in differences() {
        let names: Vec<String> = commands.iter().map(|name| shown(name)).collect();
        let names = if names.is_empty() { "all commands".to_owned() } else { names.join(", ") };
        line(&format!("| {names} | {what} | {why} | `{test}` |"));
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
