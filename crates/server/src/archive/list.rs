//! `haypile backups`: what is in an archive, and how far one can go back and forth.

use super::place;
use haypile_archive::{Catalog, ChunkName, Target, exact_time, holes, plan};
use haypile_config::cli::ArchivePlace;
use haypile_log::{History, Index};
use std::io::Write;

/// Runs the subcommand.
///
/// # Errors
/// A text for people.
pub fn run(what: &ArchivePlace, out: &mut dyn Write) -> Result<(), String> {
    let archive = place::open(what)?;
    let catalog = archive.catalog().map_err(|error| error.to_string())?;
    // Records behind a piece that is known to be damaged cannot be had.
    let names = catalog.strange.iter().filter_map(|(name, _)| ChunkName::parse(name));
    let damaged: Vec<_> = names.map(|name| (name, Index(name.first.0 - 1))).collect();
    write(&catalog.sound(&damaged), out).map_err(|error| error.to_string())
}

fn write(catalog: &Catalog, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "backups: {}", catalog.backups.len())?;
    for backup in &catalog.backups {
        let (name, time, mb) = (backup.name(), exact_time(backup.made_ms), backup.bytes() as f64 / 1e6);
        let (files, history) = (backup.files.len(), backup.history());
        writeln!(
            out,
            "  {name}  made {time}, record {}, {mb:.1} MB in {files} files, history {history}",
            backup.through
        )?;
    }
    let newest = catalog.newest().map(|(history, _)| history);
    writeln!(out, "histories: {}", histories(catalog).len())?;
    for history in histories(catalog) {
        let mark = if Some(history) == newest { " (written to last)" } else { "" };
        writeln!(out, "  {history}{mark}")?;
        if let Some(lane) = catalog.lanes.get(&history) {
            for (first, last, time_ms) in stretches(lane.chunks.iter().map(|it| (it.first, it.last, it.time_ms))) {
                writeln!(out, "    the log of records {first} to {last}, made until {}", exact_time(time_ms))?;
            }
            if let Some((parent, after)) = lane.chain.starts().last().and_then(haypile_log::HistoryStart::parent) {
                writeln!(out, "    it continues history {parent} behind record {after}")?;
            }
        }
        match plan(catalog, Some(history), Target::Newest) {
            Ok(way) => {
                let oldest =
                    catalog.backups.iter().filter(|backup| way.chain.leads_from(backup.history(), backup.through));
                let oldest = oldest.map(|backup| (backup.applied, backup.made_ms)).min();
                let (first, from_ms) = oldest.unwrap_or((way.backup.applied, way.backup.made_ms));
                let from = exact_time(from_ms);
                writeln!(out, "    it can be restored from record {first} or {from} on, to record {}", way.through)?;
            }
            Err(why) => writeln!(out, "    {why}")?,
        }
        if let Some(lane) = catalog.lanes.get(&history) {
            for hole in holes(catalog, &lane.chain) {
                writeln!(out, "    {hole}")?;
            }
        }
    }
    for (name, why) in &catalog.strange {
        writeln!(out, "strange: {name}: {why}")?;
    }
    Ok(())
}

/// Returns the histories of an archive, in the order in which they begin.
fn histories(catalog: &Catalog) -> Vec<History> {
    let of_backups = catalog.backups.iter().map(|backup| backup.history());
    let mut all: Vec<History> = catalog.lanes.keys().copied().chain(of_backups).collect();
    all.sort();
    all.dedup();
    all.sort_by_key(|history| {
        let chain = catalog.chain_of(*history);
        chain.map(|chain| (chain.starts().len(), chain.starts().last().map(|start| start.after())))
    });
    all
}

/// Joins chunks that follow on each other: the first and the last record of each stretch, and its latest time.
fn stretches(chunks: impl Iterator<Item = (Index, Index, u64)>) -> Vec<(Index, Index, u64)> {
    let mut joined: Vec<(Index, Index, u64)> = Vec::new();
    for (first, last, time_ms) in chunks {
        match joined.last_mut() {
            Some((_, end, time)) if first <= end.next() => (*end, *time) = ((*end).max(last), (*time).max(time_ms)),
            _ => joined.push((first, last, time_ms)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_on_each_other_is_one_stretch() {
        let chunks = [(1, 5, 10), (6, 9, 20), (8, 12, 30), (14, 20, 40), (15, 16, 40), (21, 22, 50)];
        let chunks = chunks.map(|(first, last, time)| (Index(first), Index(last), time));
        let expected = vec![(Index(1), Index(12), 30), (Index(14), Index(22), 50)];
        assert_eq!(stretches(chunks.into_iter()), expected);
    }
}
