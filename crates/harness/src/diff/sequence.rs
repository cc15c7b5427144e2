//! A differential case: steps on a few connections, and their text form, which is kept and replayed.
//!
//! The text is lines of commands as redis-cli reads them (`quoted`), with directives in lines that begin with `#@`:
//! `connection N` (the commands below go there), `pipeline N` (the next N commands are sent at once), `scan` (the next
//! line is a SCAN without its cursor, run to its end), `wait N` (milliseconds), `raw "BYTES"` (on a connection of its
//! own), `cool` (all data written so far moves from memory to the base), `channels` and `blocking` (the case is played
//! by the module of that name). RESTORE may have words for a payload that DUMP answered before (`dumps`). Other lines
//! that begin with `#` are comments. A sequence of one connection without directives can be piped to redis-cli after
//! `grep -v '^#'`.

use std::fmt::Write;

use anyhow::{Context, Result, bail, ensure};

use crate::quoted::{quote, quote_all, quote_short, split};

/// A command: its name and arguments.
pub type Command = Vec<Vec<u8>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Commands sent in one piece on one connection.
    Send { connection: usize, commands: Vec<Command> },
    /// A full iteration; the command is a SCAN without its cursor: `SCAN MATCH a* COUNT 3`.
    Scan { connection: usize, command: Command },
    /// Time that passes for both servers.
    Wait { ms: u64 },
    /// Bytes on a connection of their own, which is then closed for writing.
    Raw { bytes: Vec<u8> },
    /// Data of no case is written to the last database, and removed, until a server with a base below its memtable has
    /// moved all older data there.
    Cool,
    /// The mark of a case of `channels`, at the beginning: every connection is heard after each step.
    Channels,
    /// The mark of a case of `blocking`, at the beginning: connections may wait.
    Blocking,
}

pub type Sequence = Vec<Step>;

/// A command of the cases of `blocking` that closes its connection.
pub const LEAVE: &[u8] = b"{leave}";

/// The most connections that a sequence may use.
pub const CONNECTIONS: usize = 4;

/// Returns the text of a sequence, complete.
pub fn to_text(sequence: &[Step]) -> String {
    text_with(sequence, quote_all)
}

/// Returns the text of a sequence for a terminal: long arguments are cut, so that it cannot be replayed.
pub fn to_short_text(sequence: &[Step]) -> String {
    text_with(sequence, quote_short)
}

fn text_with(sequence: &[Step], line: fn(&[Vec<u8>]) -> String) -> String {
    let mut out = String::new();
    let mut current = 0;
    for step in sequence {
        if let Step::Send { connection, .. } | Step::Scan { connection, .. } = step
            && *connection != current
        {
            current = *connection;
            push_line(&mut out, &format!("#@ connection {current}"));
        }
        match step {
            Step::Send { commands, .. } => {
                if commands.len() > 1 {
                    push_line(&mut out, &format!("#@ pipeline {}", commands.len()));
                }
                for command in commands {
                    push_line(&mut out, &line(command));
                }
            }
            Step::Scan { command, .. } => {
                push_line(&mut out, "#@ scan");
                push_line(&mut out, &line(command));
            }
            Step::Wait { ms } => push_line(&mut out, &format!("#@ wait {ms}")),
            Step::Raw { bytes } => push_line(&mut out, &format!("#@ raw {}", quote(bytes))),
            Step::Cool => push_line(&mut out, "#@ cool"),
            Step::Channels => push_line(&mut out, "#@ channels"),
            Step::Blocking => push_line(&mut out, "#@ blocking"),
        }
    }
    out
}

fn push_line(out: &mut String, line: &str) {
    writeln!(out, "{line}").expect("a string takes any text");
}

/// Reads the text form.
pub fn from_text(text: &str) -> Result<Sequence> {
    let mut sequence = Vec::new();
    let mut connection = 0;
    let mut lines = text.lines().filter(|l| !l.trim().is_empty());
    while let Some(line) = lines.next() {
        let Some(directive) = line.strip_prefix("#@ ") else {
            if !line.starts_with('#') {
                sequence.push(Step::Send { connection, commands: vec![command(line)?] });
            }
            continue;
        };
        let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
        let count = || rest.parse::<u64>().with_context(|| format!("a number in {line:?}"));
        match word {
            "connection" => {
                connection = count()? as usize;
                ensure!(connection < CONNECTIONS, "at most {CONNECTIONS} connections: {line:?}");
            }
            "pipeline" => {
                let commands = lines.by_ref().take(count()? as usize).map(command).collect::<Result<_>>()?;
                sequence.push(Step::Send { connection, commands });
            }
            "scan" => {
                let command = command(lines.next().context("a line after scan")?)?;
                sequence.push(Step::Scan { connection, command });
            }
            "wait" => sequence.push(Step::Wait { ms: count()? }),
            "cool" => sequence.push(Step::Cool),
            "channels" => sequence.push(Step::Channels),
            "blocking" => sequence.push(Step::Blocking),
            "raw" => sequence.push(Step::Raw { bytes: command(rest)?.concat() }),
            _ => bail!("no such directive: {line:?}"),
        }
    }
    Ok(sequence)
}

fn command(line: &str) -> Result<Command> {
    split(line).with_context(|| format!("unbalanced quotes in {line:?}"))
}

/// A named sequence of a file of kept ones: the lines after `== NAME`, up to the next.
pub struct Kept {
    pub name: String,
    pub sequence: Sequence,
}

/// Reads a file of kept sequences.
pub fn kept_from_text(text: &str) -> Result<Vec<Kept>> {
    let mut kept = Vec::new();
    for section in text.split("\n== ").skip(1) {
        let (name, body) = section.split_once('\n').unwrap_or((section, ""));
        let sequence = from_text(body).with_context(|| format!("in the sequence {name:?}"))?;
        kept.push(Kept { name: name.trim().to_string(), sequence });
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_reads_back_from_its_text() {
        let words = |line: &str| command(line).expect("quotes are balanced");
        let sequence = vec![
            Step::Send { connection: 0, commands: vec![words("SET \"\\x00a\" \"\"")] },
            Step::Send { connection: 2, commands: vec![words("GET a"), words("MULTI")] },
            Step::Scan { connection: 1, command: words("SCAN COUNT 3") },
            Step::Wait { ms: 5 },
            Step::Cool,
            Step::Raw { bytes: b"PING\r\n".to_vec() },
            Step::Send { connection: 1, commands: vec![words("\"#\" x")] },
        ];
        assert_eq!(from_text(&to_text(&sequence)).expect("it was written by us"), sequence);
    }

    #[test]
    fn kept_sequences_have_names() {
        let kept = kept_from_text("# a head\n\n== one: a rule\nSET a b\n# why\n== two\nGET a\n").expect("well formed");
        assert_eq!(kept.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["one: a rule", "two"]);
        assert_eq!(kept[0].sequence.len(), 1);
    }
}
