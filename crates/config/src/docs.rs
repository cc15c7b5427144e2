//! docs/configuration.md, generated from the table. A test compares the file with what this makes;
//! `cargo run --release -p haypile-config --example write_configuration` writes it.

use std::fmt::Write;

use crate::table::{Class, Row, STATEMENTS, TOPICS, Topic};

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from the table in crates/config/src/table: run `make docs`. -->

`haypile server [FILE] [--directive value ...] ...` takes the same files and arguments as redis-server. `haypile.conf` in
the root of the repository is a short one to begin with; a redis.conf works too.

- A line is a directive and its values, separated by blanks. Names and fixed words may be in any case. A line that begins with `#` is a comment.
- A value with blanks goes between quotes. Between `\"` and `\"`, `\\n`, `\\r`, `\\t`, `\\b`, `\\a` and `\\x41` are escapes, and any other escaped
  character stands for itself; between `'` and `'` only `\\'` is one.
- Bytes may have a unit: `k`, `m`, `g` are powers of 1000, `kb`, `mb`, `gb` powers of 1024, in any case.
- A later line wins; `save`, `client-output-buffer-limit` and `rename-command` add up. What the command line says follows after the file:
  `--port 6380` is the line `port 6380`. `-` as the first or last argument reads lines from standard input, after those of the file.
- Relative paths start at `dir`.

Every directive of Redis 7.2 is known, and is in one of three classes:

- **Used**: it does what stands here.
- **Without effect**: it is accepted, CONFIG GET and SET remember its value, and the log names it once at the start.
- **Not there yet**: whatever secures, replicates, clusters or extends the server in a way that Haypile cannot yet. Any value but the one
  that stands here stops the start, so that nobody believes to be protected or replicated without being it; CONFIG SET refuses it.

An unknown directive or a bad value stops the start with file, line, and what would be right. CONFIG SET changes the directives that are
marked with *yes* while the server runs, several at once or none; Redis can change `port` and `bind` too.

";

/// The whole page.
pub fn page() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("## Used\n");
    for (topic, rows) in topics(|row| row.class == Class::Used) {
        table(&mut page, topic, "| Directive | Value | Default | CONFIG SET | |\n|---|---|---|---|---|\n");
        for row in rows {
            let settable = if row.immutable { "no" } else { "yes" };
            let ours = if row.ours { "*Haypile's own.* " } else { "" };
            line(
                &mut page,
                &[
                    &names(row),
                    &row.kind.expects().replace('<', "\\<"),
                    &code(row.default),
                    settable,
                    &format!("{ours}{}", row.doc),
                ],
            );
        }
    }
    page.push_str("\n## Lines that are no values\n\n| Line | |\n|---|---|\n");
    for statement in STATEMENTS {
        line(&mut page, &[&code(statement.syntax), statement.doc]);
    }
    page.push_str("\n## Not there yet\n");
    for (topic, rows) in topics(|row| matches!(row.class, Class::NotYet { .. })) {
        table(&mut page, topic, "| Directive | Only | What it does in Redis |\n|---|---|---|\n");
        for row in rows {
            let Class::NotYet { off } = row.class else { continue };
            line(&mut page, &[&names(row), &code(off), row.doc]);
        }
    }
    page.push_str("\n## Without effect\n");
    for (topic, rows) in topics(|row| row.class == Class::Harmless) {
        table(&mut page, topic, "| Directive | Default | What it does in Redis |\n|---|---|---|\n");
        for row in rows {
            line(&mut page, &[&names(row), &code(row.default), row.doc]);
        }
    }
    page
}

/// The topics that have rows which the page shows, with them. Hidden directives are for tests of Redis.
fn topics(shown: fn(&Row) -> bool) -> impl Iterator<Item = (&'static Topic, Vec<&'static Row>)> {
    let rows_of =
        move |topic: &'static Topic| topic.rows.iter().filter(|row| !row.hidden && shown(row)).collect::<Vec<_>>();
    TOPICS.iter().map(move |topic| (topic, rows_of(topic))).filter(|(_, rows)| !rows.is_empty())
}

fn table(page: &mut String, topic: &Topic, head: &str) {
    write!(page, "\n### {}\n\n{head}", topic.title).expect("a String takes all text");
}

fn line(page: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    writeln!(page, "| {} |", cells.join(" | ")).expect("a String takes all text");
}

fn names(row: &Row) -> String {
    match row.alias {
        Some(alias) => format!("{}, {}", code(row.name), code(alias)),
        None => code(row.name),
    }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}
