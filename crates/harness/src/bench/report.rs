//! Results as text: a Markdown table between the marks of docs/benchmarks.md, and the lines on the terminal.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use time::Date;

use super::compare::Outcome;
use super::process::machine;
use crate::clock::today;

/// The most columns of a line of text on the page. A row of a table is one line, however long.
const COLUMNS_MAX: usize = 139;

/// Returns the table of the rows.
pub fn table(outcomes: &[Outcome], directives: &str) -> String {
    let mut out = String::from(
        "| case | of Redis | spread | at most | µs a request, ours | Redis | requests a second, ours | Redis | p99 ms, ours | Redis | flushes |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for o in outcomes {
        let (low, high) = o.rounds.spread();
        out += &format!(
            "| {} | **{:.2}**{} | {low:.2} to {high:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.2} | {:.2} | {} |\n",
            o.row.title,
            o.rounds.ratio(),
            if o.rounds.ratio() > o.row.target { " (missed)" } else { "" },
            o.row.target,
            o.rounds.ours(|m| m.cpu_us),
            o.rounds.base(|m| m.cpu_us),
            o.rounds.ours(|m| m.rate),
            o.rounds.base(|m| m.rate),
            o.rounds.ours(|m| m.p99_ms),
            o.rounds.base(|m| m.p99_ms),
            if o.row.writes { o.rounds.flushes_min().to_string() } else { "-".to_string() },
        );
    }
    let steal = outcomes.iter().map(|o| o.steal).fold(0.0, f64::max);
    let requests: Vec<String> = outcomes.iter().map(|o| format!("{} {}", o.row.id, o.requests)).collect();
    out + &format!(
        "\nOur server with `{directives}`, on {}; at most {steal:.1} % of a row's time was stolen. Requests in a round: {}.\n",
        machine(),
        requests.join(", ")
    )
}

/// Returns one row as a line for the terminal.
pub fn line(o: &Outcome) -> String {
    let (low, high) = o.rounds.spread();
    format!(
        "{:16} ratio {:5.2} ({low:.2}..{high:.2}) at most {:.2}{}  ours {:6.2} us {:>9.0}/s p99 {:.2} ms  base {:6.2} us {:>9.0}/s p99 {:.2} ms  flushes {}",
        o.row.id,
        o.rounds.ratio(),
        o.row.target,
        if o.rounds.ratio() > o.row.target { " MISSED" } else { "" },
        o.rounds.ours(|m| m.cpu_us),
        o.rounds.ours(|m| m.rate),
        o.rounds.ours(|m| m.p99_ms),
        o.rounds.base(|m| m.cpu_us),
        o.rounds.base(|m| m.rate),
        o.rounds.base(|m| m.p99_ms),
        o.rounds.flushes_min()
    )
}

/// Writes the tables of a run and the text around them between the marks of benchmarks.md in this directory, below a
/// line with the day and the rounds, which [`rounds`] words.
pub fn write(dir: &Path, name: &str, rounds: &str, text: &str) -> Result<()> {
    let day = today().context("the day of the measurement")?;
    put_between_marks(&dir.join("benchmarks.md"), name, &section(day, rounds, text))
}

/// Returns the number of rounds as the page has it.
pub fn rounds(count: u32) -> String {
    format!("{} {}", in_words(count), if count == 1 { "round" } else { "rounds" })
}

/// Returns a small number as a word, and a large one in digits.
pub fn in_words(count: u32) -> String {
    const WORDS: [&str; 11] = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    WORDS.get(count as usize).map_or_else(|| count.to_string(), ToString::to_string)
}

fn section(day: Date, rounds: &str, text: &str) -> String {
    wrapped(&format!("*Measured {day}; {rounds}.*\n\n{text}"))
}

/// Breaks the lines of a page that are too long, but for the rows of its tables.
fn wrapped(page: &str) -> String {
    let line = |line: &str| if line.starts_with('|') { line.to_string() } else { broken(line) };
    page.lines().map(|text| line(text) + "\n").collect()
}

/// Breaks a line of text at spaces, none of them in code between back quotes.
fn broken(line: &str) -> String {
    let mut is_code = false;
    let words = line.split(|letter| {
        is_code ^= letter == '`';
        letter == ' ' && !is_code
    });
    let (mut out, mut columns) = (String::new(), 0);
    for (at, word) in words.enumerate() {
        let width = word.chars().count();
        let fits = columns + 1 + width <= COLUMNS_MAX;
        if at > 0 {
            out.push(if fits { ' ' } else { '\n' });
            columns = if fits { columns + 1 } else { 0 };
        }
        out += word;
        columns += width;
    }
    out
}

/// Puts text between the two marks `<!-- NAME:begin -->` and `<!-- NAME:end -->` of a page. A page without them gets
/// them at its end; a missing page is begun.
fn put_between_marks(page: &Path, name: &str, text: &str) -> Result<()> {
    let old = match fs::read_to_string(page) {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "# Benchmarks\n".to_string(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", page.display())),
    };
    let new = between_marks(&old, name, text).with_context(|| page.display().to_string())?;
    fs::write(page, new).with_context(|| format!("writing {}", page.display()))
}

/// Returns the text between a page's two marks of this name, if the page has them.
pub fn between<'p>(page: &'p str, name: &str) -> Option<&'p str> {
    let (_, rest) = page.split_once(&format!("<!-- {name}:begin -->\n"))?;
    Some(rest.split_once(&format!("<!-- {name}:end -->\n"))?.0)
}

fn between_marks(old: &str, name: &str, text: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->\n"));
    let Some((head, rest)) = old.split_once(&begin) else {
        ensure!(!old.contains(&end), "the mark {end} has no beginning");
        return Ok(format!("{old}\n{begin}{text}{end}"));
    };
    let (_, tail) = rest.split_once(&end).with_context(|| format!("the mark {begin} has no end"))?;
    Ok(format!("{head}{begin}{text}{end}{tail}"))
}

#[cfg(test)]
mod tests {
    use time::Month;

    use super::*;

    #[test]
    fn a_section_begins_with_its_day_and_rounds_and_has_no_long_lines_of_text() {
        let day = Date::from_calendar_date(2026, Month::March, 9).expect("the day is there");
        let row = format!("| {} |", "cell ".repeat(60));
        let below = format!("Requests in a round: {}.", "get 2000000, set 7400000, ".repeat(20));
        let text = section(day, &rounds(3), &format!("{row}\n\n{below}\n"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..4], ["*Measured 2026-03-09; three rounds.*", "", row.as_str(), ""]);
        assert!(lines[4..].iter().all(|line| (120..=COLUMNS_MAX).contains(&line.len()) || Some(line) == lines.last()));
        assert_eq!(lines[4..].join(" "), below, "only spaces give way to the ends of lines");
        assert_eq!(wrapped(&text), text);
    }

    #[test]
    fn a_line_is_broken_behind_its_last_column_and_not_in_code() {
        let full = "µ".repeat(COLUMNS_MAX - 2);
        assert_eq!(broken(&format!("{full} x")), format!("{full} x"));
        assert_eq!(broken(&format!("{full} xy")), format!("{full}\nxy"));
        let shorter = "µ".repeat(COLUMNS_MAX - 4);
        assert_eq!(broken(&format!("{shorter} `x y` z")), format!("{shorter}\n`x y` z"));
        assert_eq!(broken("  - short"), "  - short");
    }

    #[test]
    fn a_small_number_of_rounds_is_a_word() {
        assert_eq!([1, 2, 10, 11].map(rounds), ["one round", "two rounds", "ten rounds", "11 rounds"]);
    }

    #[test]
    fn the_page_has_a_day_in_each_section_and_no_long_lines_of_text() {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this");
        let page = fs::read_to_string(Path::new(&package).join("../../docs/benchmarks.md")).expect("the page is there");
        assert!(wrapped(&page) == page, "break the lines before column {}", COLUMNS_MAX + 1);
        let names = page.lines().filter_map(|line| line.strip_prefix("<!-- ")?.strip_suffix(":begin -->"));
        let is_undated = |name: &&str| !between(&page, name).is_some_and(|text| text.starts_with("*Measured "));
        let (undated, dated): (Vec<&str>, Vec<&str>) = names.partition(is_undated);
        assert!(undated.is_empty() && dated.contains(&"bench"), "{undated:?} of {dated:?}");
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let first = between_marks("# Page\n", "x", "1\n").expect("no marks yet");
        assert_eq!(first, "# Page\n\n<!-- x:begin -->\n1\n<!-- x:end -->\n");
        let second = between_marks(&format!("{first}tail\n"), "x", "2\n").expect("both marks");
        assert_eq!(second, "# Page\n\n<!-- x:begin -->\n2\n<!-- x:end -->\ntail\n");
        assert!(between_marks("<!-- x:begin -->\n", "x", "2\n").is_err());
        assert_eq!(between(&second, "x"), Some("2\n"));
        assert_eq!(between(&second, "y"), None);
    }
}
