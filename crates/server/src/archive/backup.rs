//! A backup on its way to the archive: a checkpoint beside the data, whose files are sent as far as they are not there,
//! and the manifest last. Then what the archive need not keep goes.

use super::digests::Digests;
use super::latest::now_ms;
use super::position;
use super::session::open;
use super::{Archiver, LOOK};
use crate::backups::{Backups, check_room};
use crate::datadir;
use haypile_archive::{Archive, BackupFile, Catalog, Digest, Manifest, Mark, Work, surplus};
use haypile_config::Archive as Wanted;
use haypile_log::HistoryStart;
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Files that are sent at the same time.
const SENDERS: usize = 3;

/// How old a file that belongs to no backup has to be before it goes: a backup that was broken off is gone on with.
const FILE_AGE: Duration = Duration::from_secs(24 * 3600);

/// How often a backup looks whether another server still removes files.
const REMOVING_LOOK: Duration = Duration::from_secs(1);

impl Archiver {
    /// The thread that makes backups.
    pub(super) fn back_up(&self) {
        let dir = datadir::archiving_dir(&self.engine.settings.config().dir);
        remove(&dir);
        while self.goes_on() {
            let is_wanted = {
                let mut orders = self.orders();
                let is_wanted = std::mem::take(&mut orders.wants_backup);
                orders.backs_up = is_wanted;
                is_wanted
            };
            if !is_wanted {
                self.wait(LOOK);
                continue;
            }
            let since = Instant::now();
            let wanted = self.wanted();
            self.engine.archiving.note(|facts| {
                let backup = &mut facts.backup;
                (backup.is_running, backup.bytes, backup.bytes_done, backup.bytes_sent) = (true, 0, 0, 0);
            });
            let made = self.make_backup(&wanted, &dir);
            remove(&dir);
            if let Err(why) = &made
                && self.goes_on()
            {
                tracing::error!("a backup did not get to the archive: {why}");
            }
            let mut orders = self.orders();
            orders.backs_up = false;
            self.engine.archiving.note(|facts| {
                facts.backup.is_running = false;
                match made {
                    Ok(manifest) => {
                        let (name, sent) = (manifest.name(), facts.backup.bytes_sent);
                        let (bytes, took_ms) = (manifest.bytes(), since.elapsed().as_millis());
                        tracing::info!(
                            "backup {name} is in the archive: {bytes} bytes, {sent} of them new, in {took_ms} ms"
                        );
                        (facts.backup.last, facts.backup.last_s) = (name, manifest.made_ms / 1000);
                        facts.backup.failure.clear();
                        facts.backup.made += 1;
                    }
                    Err(why) => facts.backup.failure = why.replace(['\r', '\n'], " "),
                }
            });
        }
    }

    fn make_backup(&self, wanted: &Wanted, dir: &Path) -> Result<Manifest, String> {
        if wanted.to.is_empty() {
            return Err("there is no archive any more".into());
        }
        let known = position::read(&self.engine.settings.config().dir).filter(|known| known.place == wanted.to);
        let archive = open(self, wanted, known.as_ref())?;
        if known.is_some_and(|known| !known.archive.is_empty() && known.archive != archive.id()) {
            return Err(format!("another archive is at {} now", archive.name()));
        }
        let (manifest, paths) = self.checkpoint(dir)?;
        self.engine.archiving.note(|facts| facts.backup.bytes = manifest.bytes());
        let mark = self.mark_making(&archive)?;
        self.send_missing(&archive, &manifest, &paths, &mark)?;
        archive.put_manifest(&manifest).map_err(|error| error.to_string())?;
        // A place that was slow beyond measure may have lost the mark, and files with it.
        self.send_missing(&archive, &manifest, &paths, &mark)?;
        drop(mark);
        if self.writes()
            && let Err(why) = prune(&archive, wanted.backups_keep as usize, &manifest)
        {
            tracing::warn!("what the archive need not keep is not removed: {why}");
        }
        Ok(manifest)
    }

    /// Makes a backup in `dir`, and reads its files; returns where each lies.
    fn checkpoint(&self, dir: &Path) -> Result<(Manifest, Vec<PathBuf>), String> {
        let config = self.engine.settings.config();
        let version = self.engine.store_version();
        let goes_on = || self.goes_on() && self.engine.store_version() == version && !self.engine.group.wants_data();
        let (made, histories, made_ms) = {
            let store = self.engine.store_arc().ok_or("the data are not open")?;
            check_room(&store)?;
            let (made, _) = Backups::fill(dir, &config, &store, &goes_on)?;
            // The log's clock never goes back: no record has a later time.
            (made, store.log().histories(), now_ms().max(store.log().time_ms()))
        };
        let stamp = histories.stamp(made.index).ok_or("the log does not know the history of its last record")?;
        let at = histories.starts().iter().position(|start| start.history == stamp);
        let starts: Vec<HistoryStart> = histories.starts()[..=at.unwrap_or(0)].to_vec();
        let mut digests = Digests::read(datadir::digests_file(&config.dir));
        let (mut files, mut paths) = (Vec::new(), Vec::new());
        for part in ["base", "log"] {
            for path in files_below(&dir.join(part)).map_err(|error| format!("{}: {error}", dir.display()))? {
                if !goes_on() {
                    return Err("it was broken off".into());
                }
                let (digest, bytes) = digests.of(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let name = path.strip_prefix(dir).expect("it was found there").to_string_lossy().into_owned();
                files.push(BackupFile { path: name, bytes, digest });
                paths.push(path);
            }
        }
        if let Err(error) = digests.write() {
            tracing::warn!("the checksums of archived files cannot be noted, and are computed again: {error}");
        }
        let manifest = Manifest { made_ms, through: made.index, applied: made.applied, histories: starts, files };
        Ok((manifest, paths))
    }

    /// Keeps others from removing files, once none does.
    fn mark_making(&self, archive: &Archive) -> Result<Mark, String> {
        let mark = archive.mark(Work::Making).map_err(|error| error.to_string())?;
        while mark.meets(Work::Removing).map_err(|error| error.to_string())? {
            if !self.goes_on() {
                return Err("it was broken off".into());
            }
            self.wait(REMOVING_LOOK);
        }
        Ok(mark)
    }

    /// Sends the files of a backup that the archive lacks.
    fn send_missing(
        &self,
        archive: &Archive,
        manifest: &Manifest,
        paths: &[PathBuf],
        mark: &Mark,
    ) -> Result<(), String> {
        let there = archive.files().map_err(|error| error.to_string())?;
        let mut seen: HashSet<Digest> = HashSet::new();
        let missing: Vec<(&BackupFile, &PathBuf)> = manifest
            .files
            .iter()
            .zip(paths)
            .filter(|(file, _)| !archive.has_file(&there, file) && seen.insert(file.digest))
            .collect();
        let missing_bytes: u64 = missing.iter().map(|(file, _)| file.bytes).sum();
        self.engine.archiving.note(|facts| facts.backup.bytes_done = manifest.bytes().saturating_sub(missing_bytes));
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let send = || {
            crate::process::give_way();
            while let Some((file, path)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                let opened = File::open(path).map_err(|error| format!("{}: {error}", path.display()));
                let sent = opened.and_then(|mut content| {
                    let put = mark.renew().and_then(|()| archive.put_file(file.digest, &mut content));
                    put.map_err(|error| error.to_string())
                });
                if let Err(why) = sent {
                    next.store(missing.len(), Ordering::Relaxed);
                    failure.lock().expect("no sender panics").get_or_insert(why);
                    return;
                }
                self.engine.archiving.note(|facts| {
                    facts.backup.bytes_done += file.bytes;
                    facts.backup.bytes_sent += file.bytes;
                });
            }
        };
        std::thread::scope(|threads| {
            for _ in 1..SENDERS.min(missing.len()) {
                threads.spawn(send);
            }
            send();
        });
        failure.into_inner().expect("no sender panics").map_or(Ok(()), Err)
    }
}

/// Removes what an archive need not keep.
fn prune(archive: &Archive, keep: usize, made: &Manifest) -> Result<(), String> {
    if keep == 0 {
        return Ok(());
    }
    let catalog = sound_catalog(archive)?;
    if !catalog.backups.contains(made) {
        return Err("the backup that was just made is not among those that are there".into());
    }
    let surplus = surplus(&catalog, keep, Some(made));
    for backup in &surplus.backups {
        archive.remove(&backup.object()).map_err(|error| error.to_string())?;
        tracing::info!("backup {} is removed from the archive: there are newer ones", backup.name());
    }
    for chunk in &surplus.chunks {
        archive.remove(&chunk.to_string()).map_err(|error| error.to_string())?;
    }
    remove_files(archive)
}

/// Removes the files that belong to no backup, unless another server makes one: that server removes them behind it.
fn remove_files(archive: &Archive) -> Result<(), String> {
    let failed = |error: haypile_archive::Error| error.to_string();
    let mark = archive.mark(Work::Removing).map_err(failed)?;
    if mark.meets(Work::Making).map_err(failed)? {
        return Ok(());
    }
    // Behind the mark: no backup gets complete from here on that counts on a file without another one's needing it.
    let catalog = sound_catalog(archive)?;
    let files_of_backups = catalog.backups.iter().flat_map(|backup| backup.files.iter().map(|file| &file.digest));
    let kept: HashSet<String> = archive.objects_of(files_of_backups).collect();
    let now_ms = now_ms();
    for (name, listed) in &archive.files().map_err(failed)? {
        if !kept.contains(name) && u128::from(now_ms.saturating_sub(listed.modified_ms)) > FILE_AGE.as_millis() {
            mark.renew().map_err(failed)?;
            archive.remove(name).map_err(failed)?;
        }
    }
    archive.remove_broken_off(FILE_AGE).map_err(failed)
}

/// Returns the content of an archive of which each backup can be read.
fn sound_catalog(archive: &Archive) -> Result<Catalog, String> {
    let catalog = archive.catalog().map_err(|error| error.to_string())?;
    match catalog.strange.iter().any(|(name, _)| name.starts_with("backups/")) {
        true => Err("a backup there is damaged: nobody knows which files it is made of".into()),
        false => Ok(catalog),
    }
}

/// Returns the files below a directory.
pub(super) fn files_below(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        match entry.metadata()?.is_dir() {
            true => found.extend(files_below(&entry.path())?),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    Ok(found)
}

/// Removes a directory with all that is in it. What cannot be removed now is removed at the next start.
fn remove(dir: &Path) {
    let _ = std::fs::remove_dir_all(dir);
}
