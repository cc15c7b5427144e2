//! `haypile check DIR`: checks that a data directory is as docs/format says, and changes nothing.
//! `haypile_store::check` and `haypile_types::check` have the rules; this file opens the directory, prints, and returns
//! the exit code.

use crate::datadir::{self, Inspected};
use haypile_log::{Cut, ReadOnlyFiles};
use haypile_store::check::{
    Above, Broken, Facts, Finding, Findings, Garbage, Kind, Looked, Merged, Meter, Progress, note,
};
use haypile_store_rocks::{Image, OpenError};
use haypile_types::check::{Seen, check};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Lines for each kind of defect.
const TOLD_MAX: u64 = 20;

/// The exit codes.
const SOUND: u8 = 0;
const DEFECTS: u8 = 1;
const UNREADABLE: u8 = 2;

pub fn run(dir: &Path, out: &mut impl Write) -> ExitCode {
    let mut print = |line: &dyn std::fmt::Display| {
        // The reader may have closed the pipe; the exit code says the rest.
        let _ = writeln!(out, "{line}");
    };
    let mut tell = |finding: &Finding| print(finding);
    let begun = Instant::now();
    let meter = Meter::new(|progress| eprintln!("{}", progress_line(&progress)));
    let mut findings = Findings::new(TOLD_MAX, &mut tell);
    let checked = check_dir(dir, &meter, &mut findings);
    let (garbage, defects, total) = (findings.garbage, defects_line(&findings), findings.total());
    let code = match checked {
        Ok(None) => {
            print(&"nothing to check: 'engine memory' keeps nothing when its server stops");
            SOUND
        }
        Ok(Some(whole)) => {
            let (rows, bytes, s) = (meter.rows() - whole.records, meter.bytes(), begun.elapsed().as_secs_f64());
            let Whole { seen, records, above, cut } = whole;
            if let Some(cut) = cut {
                print(&format_args!("a start cuts the end of the log off, which nothing says was synced: {cut}"));
            }
            print(&format_args!(
                "{records} records of the log ({above} above the base), {} keys, {} with a deadline, {} objects, {rows} rows; {:.1} MB in {s:.1} s",
                seen.keys,
                seen.deadlines,
                seen.objects,
                bytes as f64 / 1e6,
            ));
            if let Some(line) = garbage_line(&garbage) {
                print(&line);
            }
            print(&if total == 0 { "sound".to_owned() } else { defects });
            if total == 0 { SOUND } else { DEFECTS }
        }
        Err(Broken::Noted) => {
            print(&defects);
            print(&"not everything was checked: there is damage behind which nothing can be told");
            DEFECTS
        }
        Err(Broken::Unreadable(why)) => {
            if total > 0 {
                print(&defects);
            }
            eprintln!("{why}");
            UNREADABLE
        }
    };
    ExitCode::from(code)
}

/// Looks at data that no process has open as a start would, and changes nothing.
///
/// # Errors
/// A text for people: a start would refuse them.
pub fn look(dir: &Path) -> Result<Looked, String> {
    let _inspected = datadir::inspect(dir)?;
    let base = Image::open(&datadir::base_dir(dir)).map_err(|error| error.to_string())?;
    let mut source = read_only(dir);
    datadir::tell(&mut source, dir, false)?;
    haypile_store::check::look(&source, &base)
}

fn read_only(dir: &Path) -> haypile_log::Options {
    haypile_log::Options { files: Arc::new(ReadOnlyFiles), ..haypile_log::Options::new(datadir::log_dir(dir)) }
}

/// The results of a check that came to its end.
struct Whole {
    seen: Seen,
    records: u64,
    /// Records that the base does not hold.
    above: u64,
    cut: Option<Cut>,
}

fn check_dir(dir: &Path, meter: &Meter, findings: &mut Findings<'_>) -> Result<Option<Whole>, Broken> {
    let inspected = datadir::inspect(dir).map_err(Broken::Unreadable)?;
    if inspected.engine == "memory" {
        return Ok(None);
    }
    let base = open_base(dir, &inspected, findings)?;
    let mut source = read_only(dir);
    datadir::tell(&mut source, dir, false).map_err(Broken::Unreadable)?;
    let above = Above::read(&source, &base, meter, findings)?;
    let merged = Merged::new(&base, &above, meter);
    let checked = Facts::read(&merged, &above, findings).and_then(|facts| check(&merged, &facts, findings));
    let seen = checked.map_err(|error| note(error, findings))?;
    Ok(Some(Whole { seen, records: above.records, above: above.last.0 - above.applied.0, cut: above.cut }))
}

fn open_base(dir: &Path, inspected: &Inspected, findings: &mut Findings<'_>) -> Result<Image, Broken> {
    let path = datadir::base_dir(dir);
    if datadir::is_missing(&path) {
        if !inspected.has_base {
            // A start makes one.
            return Ok(Image::empty());
        }
        findings.add(Kind::Base, path.display(), "it is missing");
        return Err(Broken::Noted);
    }
    match Image::open(&path) {
        Ok(base) => Ok(base),
        Err(OpenError::Corrupt(why)) => {
            findings.add(Kind::Base, "base", why);
            Err(Broken::Noted)
        }
        Err(error) => Err(Broken::Unreadable(error.to_string())),
    }
}

fn progress_line(progress: &Progress) -> String {
    let Progress { rows, bytes, bytes_per_s, share } = progress;
    let (mb, mb_per_s) = (*bytes as f64 / 1e6, *bytes_per_s as f64 / 1e6);
    format!("checking: {rows} rows, {mb:.0} MB, {mb_per_s:.1} MB/s, {:.0} % of all", share * 100.0)
}

/// Returns the line about garbage, which is no defect; `None` where there is none.
fn garbage_line(garbage: &Garbage) -> Option<String> {
    let Garbage { dead_space_rows, dead_space_bytes, objects, object_rows, object_bytes, stale_deadlines } = garbage;
    let parts = [
        (*objects, format!("{objects} objects without owner ({object_rows} rows, {object_bytes} bytes)")),
        (*dead_space_rows, format!("{dead_space_rows} rows of databases that were emptied ({dead_space_bytes} bytes)")),
        (*stale_deadlines, format!("{stale_deadlines} deadline rows that are out of date")),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, part)| part).collect();
    (!parts.is_empty()).then(|| format!("garbage, which goes by itself: {}", parts.join(", ")))
}

fn defects_line(findings: &Findings<'_>) -> String {
    let mut line = format!("{} defects:", findings.total());
    for kind in Kind::ALL.into_iter().filter(|kind| findings.count(*kind) > 0) {
        write!(line, " {} {}", findings.count(kind), kind.name()).expect("a string takes everything");
        if findings.untold(kind) > 0 {
            write!(line, " ({} not shown)", findings.untold(kind)).expect("a string takes everything");
        }
        line.push(',');
    }
    line.pop();
    line
}
