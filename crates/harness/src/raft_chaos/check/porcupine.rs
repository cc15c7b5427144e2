//! The checker of linearizability: a Go program around Porcupine, whose source is in this binary and which `go build`
//! makes when it is needed. The first build fetches Porcupine.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Violation;

const SOURCES: [(&str, &str); 4] = [
    ("main.go", include_str!("../../../checker/main.go")),
    ("models.go", include_str!("../../../checker/models.go")),
    ("go.mod", include_str!("../../../checker/go.mod")),
    ("go.sum", include_str!("../../../checker/go.sum")),
];

/// The built program.
#[derive(Clone, Debug)]
pub struct Checker(PathBuf);

impl Checker {
    /// Builds the program in a directory.
    pub fn build(dir: &Path) -> Result<Checker> {
        let source = dir.join("checker-source");
        fs::create_dir_all(&source).with_context(|| format!("making {}", source.display()))?;
        for (name, text) in SOURCES {
            fs::write(source.join(name), text).with_context(|| format!("writing {name}"))?;
        }
        let program = dir.join("checker");
        let mut go = Command::new("go");
        go.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".").current_dir(&source).env("CGO_ENABLED", "0");
        let built = go.output().context("go must be installed")?;
        ensure!(built.status.success(), "building the checker: {}", String::from_utf8_lossy(&built.stderr));
        Ok(Checker(program))
    }

    /// Checks operations, given as lines, object by object; each has `time`. What cannot be decided is a violation.
    pub fn check(&self, lines: &[String], time: Duration) -> Result<Vec<Violation>> {
        let mut command = Command::new(&self.0);
        command.arg(time.as_secs().max(1).to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting the checker")?;
        let mut input = child.stdin.take().context("its input is piped")?;
        let text = lines.join("\n");
        let output = thread::scope(|threads| {
            // A checker that ends early closes its input; its status tells why.
            threads.spawn(move || _ = input.write_all(text.as_bytes()));
            child.wait_with_output()
        })?;
        let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "the checker ended with {}: {errors}", output.status);
        parse(&printed, lines.len())
    }
}

/// Reads what the checker has printed about so many operations.
fn parse(printed: &str, operations: usize) -> Result<Vec<Violation>> {
    let mut violations: Vec<Violation> = Vec::new();
    let mut is_complete = false;
    for line in printed.lines() {
        match line.split_once(' ') {
            Some(("|", detail)) => {
                let violation = violations.last_mut().context("details follow a violation")?;
                violation.text = format!("{}\n{detail}", violation.text);
            }
            Some(("illegal", object)) => {
                violations.push(Violation { object: object.into(), text: "no order explains the answers".into() });
            }
            Some(("undecided", rest)) => {
                let (object, rest) = rest.split_once(": ").unwrap_or((rest, ""));
                violations.push(Violation { object: object.into(), text: format!("not decided: {rest}") });
            }
            Some(("checked", rest)) => is_complete = rest.split(' ').count() == 4,
            _ => bail!("the checker printed {line:?}"),
        }
    }
    ensure!(is_complete, "the checker did not come to an end with its {operations} operations: {printed}");
    Ok(violations)
}
