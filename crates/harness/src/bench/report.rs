//! Results as text: a Markdown table between the markers of docs/benchmarks.md, and the lines on the terminal.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::compare::Outcome;
use super::process::machine;

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
    let rounds = outcomes.first().map_or(0, |o| o.rounds.each.len());
    let requests: Vec<String> = outcomes.iter().map(|o| format!("{} {}", o.row.id, o.requests)).collect();
    out + &format!(
        "\nOur server with `{directives}`; {rounds} rounds on {}; at most {steal:.1} % of a row's time was stolen. Requests in a round: {}.\n",
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

/// Puts text between the two marks `<!-- NAME:begin -->` and `<!-- NAME:end -->` of a page. A page without them gets
/// them at its end; a missing page is begun.
pub fn put_between_marks(page: &Path, name: &str, text: &str) -> Result<()> {
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
    use super::*;

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
