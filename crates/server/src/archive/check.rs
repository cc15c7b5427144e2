//! `haypile check` of an archive: every file of every backup is read and compared, every chunk of the log is read
//! record by record, and what is missing between them is named.

use super::place;
use crate::progress::ProgressLine;
use haypile_archive::{Archive, Catalog, ChunkName, PlanError, Target, holes, plan, restorable, through_damage};
use haypile_config::cli::ArchivePlace;
use haypile_log::Index;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::process::ExitCode;

/// The exit status for an archive that cannot be read.
const UNREADABLE: u8 = 2;

/// Runs the subcommand.
pub fn run(what: &ArchivePlace, out: &mut dyn Write) -> ExitCode {
    let checked = place::open(what).and_then(|archive| {
        let catalog = archive.catalog().map_err(|error| error.to_string())?;
        let mut check = Check { archive, out, defects: 0, line: ProgressLine::new() };
        check.all(&catalog)?;
        check.line.end();
        Ok(check.defects)
    });
    match checked {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(UNREADABLE)
        }
    }
}

struct Check<'a> {
    archive: Archive,
    out: &'a mut dyn Write,
    defects: u64,
    line: ProgressLine,
}

impl Check<'_> {
    fn all(&mut self, catalog: &Catalog) -> Result<(), String> {
        for (name, why) in &catalog.strange {
            self.defect(&format!("{name}: {why}"))?;
        }
        let files = self.files(catalog)?;
        let (chunks, records) = self.log(catalog)?;
        self.holes(catalog)?;
        if catalog.backups.is_empty() {
            self.defect("there is no backup")?;
        }
        let (backups, defects) = (catalog.backups.len(), self.defects);
        self.say(&format!(
            "{backups} backups of {files} files, {chunks} pieces of the log with {records} records: {defects} defects"
        ))
    }

    /// Names the records that are missing behind backups, and the histories that cannot be restored.
    fn holes(&mut self, catalog: &Catalog) -> Result<(), String> {
        let mut named = BTreeMap::new();
        for lane in catalog.lanes.values() {
            for hole in holes(catalog, &lane.chain) {
                named.insert((hole.after, hole.history), hole);
            }
            let Some(history) = lane.chain.starts().last().map(|start| start.history) else { continue };
            // The rest of a history that another one continues is part of the other one's way.
            let goes_on = catalog
                .lanes
                .values()
                .any(|other| other.chain.position(history).is_some_and(|at| at + 1 < other.chain.starts().len()));
            match plan(catalog, Some(history), Target::Newest) {
                Err(PlanError::Hole(_)) | Ok(_) => {}
                Err(_) if goes_on => {}
                Err(why) => self.defect(&format!("history {history} cannot be restored: {why}"))?,
            }
        }
        for hole in named.into_values() {
            self.defect(&hole.to_string())?;
        }
        Ok(())
    }

    /// Reads each file of each backup once; returns how many there are.
    fn files(&mut self, catalog: &Catalog) -> Result<usize, String> {
        let mut read: HashMap<haypile_archive::Digest, Option<String>> = HashMap::new();
        for backup in &catalog.backups {
            for file in &backup.files {
                let outcome = read.entry(file.digest).or_insert_with(|| {
                    self.archive.get_file(file, &mut |_| Ok(())).err().map(|error| error.to_string())
                });
                if let Some(why) = outcome.clone() {
                    self.defect(&format!("backup {} lacks {}: {why}", backup.name(), file.path))?;
                }
                let count = read.len();
                self.line.tell(|_| format!("checking: {count} files"));
            }
        }
        Ok(read.len())
    }

    /// Reads each chunk; returns how many there are, and their records.
    fn log(&mut self, catalog: &Catalog) -> Result<(usize, u64), String> {
        let (mut chunks, mut records) = (0, 0);
        let (mut damaged, mut reasons) = (Vec::new(), Vec::new());
        for name in catalog.lanes.values().flat_map(|lane| &lane.chunks) {
            match self.chunk(name) {
                Ok(count) => records += count,
                Err((last, why)) => {
                    damaged.push((*name, last));
                    reasons.push(why);
                }
            }
            chunks += 1;
            self.line.tell(|_| format!("checking: {chunks} pieces of the log"));
        }
        for (why, through) in reasons.iter().zip(through_damage(catalog, &damaged)) {
            let until = through.map_or(String::new(), |through| format!(": {}", restorable(through)));
            self.defect(&format!("{why}{until}"))?;
        }
        Ok((chunks, records))
    }

    /// Reads a chunk; returns how many records it has.
    ///
    /// # Errors
    /// The last record before the damage, which may be that before the chunk, and a text for people.
    fn chunk(&self, name: &ChunkName) -> Result<u64, (Index, String)> {
        let before = Index(name.first.0 - 1);
        let mut records = self.archive.get_chunk(name).map_err(|error| (before, error.to_string()))?;
        let (mut count, mut last) = (0, None);
        let reached = |last: Option<(Index, u64)>| last.map_or(before, |(index, _)| index.min(name.last));
        while let Some(record) = records.next().map_err(|error| (reached(last), format!("{name}: {error}")))? {
            count += 1;
            last = Some((record.index, record.time_ms));
        }
        match last {
            Some(last) if last == (name.last, name.time_ms) => Ok(count),
            last => Err((reached(last), format!("{name}: its last record is {last:?}, and not what its name says"))),
        }
    }

    fn defect(&mut self, text: &str) -> Result<(), String> {
        self.defects += 1;
        self.say(text)
    }

    fn say(&mut self, text: &str) -> Result<(), String> {
        self.line.end();
        writeln!(self.out, "{text}").map_err(|error| error.to_string())
    }
}
