//! A wrapper of a base that passes everything on, until it is told to be cold, to fail, to wait, to be behind, or to be
//! dead.

use crate::base::{Base, BaseError, Cursor, Direction, Lookup, Pressure, Reclaim, Rows, Step, Tier};
use crate::flush::applied_row;
use haypile_log::Index;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a test waits for another thread before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A base that a test can make fail. Ingested rows stay in the base below, also where this handle dies: a flush is on
/// disk when it returns.
pub struct FaultBase {
    inner: Arc<dyn Base>,
    after_view: Mutex<Option<Hook>>,
    /// The last record up to which the log of the store above is synced.
    synced: Mutex<Option<Synced>>,
    script: Mutex<Script>,
    changed: Condvar,
}

/// An action of a test at a certain moment.
type Hook = Box<dyn FnOnce() + Send>;

type Synced = Box<dyn Fn() -> Index + Send>;

#[derive(Default)]
struct Script {
    cold: bool,
    warm: HashSet<Vec<u8>>,
    ingest_fault: Option<BaseError>,
    next_ingest_fault: Option<BaseError>,
    get_fault: Option<BaseError>,
    scan_fault: Option<BaseError>,
    reclaim_fault: Option<BaseError>,
    hold_ingests: bool,
    held: u64,
    short_of_space: bool,
    reclaims_nothing: bool,
    missing: Option<BaseError>,
    hold_gets: bool,
    held_gets: u64,
    hold_scans: bool,
    scans: u64,
    gets: u64,
    /// The row that was looked up last, and how often that was one behind the row that was looked up before it.
    last_get: Vec<u8>,
    gets_back: u64,
    views: u64,
    pressure: Option<Pressure>,
    /// Changes that have begun and not ended.
    changing: u64,
    dead: bool,
    ahead_of_log: Option<String>,
}

/// The rows of a flush on their way to the base, and the applied index among them.
struct Passing<'r> {
    rows: &'r mut dyn Rows,
    applied: Option<Index>,
}

impl Rows for Passing<'_> {
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
        let row = self.rows.next_row()?;
        if let Some((key, Some(value))) = row
            && *key == *applied_row()
            && let Some((index, _)) = value.split_first_chunk()
        {
            self.applied = Some(Index(u64::from_be_bytes(*index)));
        }
        Ok(row)
    }
}

impl FaultBase {
    pub fn new(inner: Arc<dyn Base>) -> Arc<FaultBase> {
        let (after_view, synced, script) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(FaultBase { inner, after_view, synced, script, changed: Condvar::new() })
    }

    /// Has every ingestion from now on compared with the log, which is synced up to `synced()`.
    pub fn compare_with_log(&self, synced: impl Fn() -> Index + Send + 'static) {
        *self.synced.lock() = Some(Box::new(synced));
    }

    /// Returns the first ingestion that brought records into the base before they were synced, if there was one.
    pub fn ahead_of_log(&self) -> Option<String> {
        self.script.lock().ahead_of_log.clone()
    }

    /// Puts every row on a pretended disk, until it is read from there once; a scan is always on it.
    pub fn set_cold(&self, cold: bool) {
        let mut script = self.script.lock();
        script.cold = cold;
        script.warm.clear();
    }

    /// Makes the next ingestion fail, and no other.
    pub fn fail_next_ingest(&self, fault: BaseError) {
        self.script.lock().next_ingest_fault = Some(fault);
    }

    /// Makes ingestions fail, or work again.
    pub fn set_fault(&self, fault: Option<BaseError>) {
        self.script.lock().ingest_fault = fault;
    }

    /// Makes reads of a row that may go to the disk fail, or work again.
    pub fn set_get_fault(&self, fault: Option<BaseError>) {
        self.script.lock().get_fault = fault;
    }

    /// Makes scans that may go to the disk fail, or work again.
    pub fn set_scan_fault(&self, fault: Option<BaseError>) {
        self.script.lock().scan_fault = fault;
    }

    /// Makes compactions that give room back fail, or work again.
    pub fn set_reclaim_fault(&self, fault: Option<BaseError>) {
        self.script.lock().reclaim_fault = fault;
    }

    /// Sets whether compactions end without having done anything, and without saying so.
    pub fn reclaim_nothing(&self, nothing: bool) {
        self.script.lock().reclaims_nothing = nothing;
    }

    /// Sets the answer of each look at the base's files.
    pub fn set_missing(&self, missing: Option<BaseError>) {
        self.script.lock().missing = missing;
    }

    /// Sets whether ingestions wait before they begin.
    pub fn hold_ingests(&self, hold: bool) {
        self.script.lock().hold_ingests = hold;
        self.changed.notify_all();
    }

    /// Blocks until an ingestion waits because of `hold_ingests`.
    pub fn wait_for_held_ingest(&self) {
        let mut script = self.script.lock();
        self.changed.wait_while(&mut script, |script| script.held == 0);
    }

    /// Returns whether the base was told last that the disk is short of space.
    pub fn is_short_of_space(&self) -> bool {
        self.script.lock().short_of_space
    }

    /// Sets whether reads of a row that may go to the disk wait before they begin.
    pub fn hold_gets(&self, hold: bool) {
        self.script.lock().hold_gets = hold;
        self.changed.notify_all();
    }

    /// Blocks until so many reads wait because of `hold_gets`.
    pub fn wait_for_held_gets(&self, count: u64) {
        let mut script = self.script.lock();
        let waited = self.changed.wait_while_for(&mut script, |script| script.held_gets < count, PATIENCE);
        assert!(!waited.timed_out(), "{} reads of {count} wait", script.held_gets);
    }

    /// Sets whether scans that may go to the disk wait before they begin.
    pub fn hold_scans(&self, hold: bool) {
        self.script.lock().hold_scans = hold;
        self.changed.notify_all();
    }

    /// Blocks until so many scans that may go to the disk have begun.
    pub fn wait_for_scans(&self, count: u64) {
        let mut script = self.script.lock();
        let waited = self.changed.wait_while_for(&mut script, |script| script.scans < count, PATIENCE);
        assert!(!waited.timed_out(), "{} scans of {count} have begun", script.scans);
    }

    /// Returns how many rows were looked up that may be on the disk, and how many views were opened.
    pub fn reads(&self) -> (u64, u64) {
        let script = self.script.lock();
        (script.gets, script.views)
    }

    /// Returns how many of these lookups were of a row before the one that was looked up last.
    pub fn gets_back(&self) -> u64 {
        self.script.lock().gets_back
    }

    /// Sets an action that runs when the next view has been opened, before its opener goes on.
    pub fn after_view(&self, hook: impl FnOnce() + Send + 'static) {
        *self.after_view.lock() = Some(Box::new(hook));
    }

    /// Sets the base's account of its compactions.
    pub fn set_pressure(&self, pressure: Option<Pressure>) {
        self.script.lock().pressure = pressure;
        self.changed.notify_all();
    }

    /// Kills the process that holds this handle: its calls have no effect from now on.
    pub fn kill(&self) {
        let mut script = self.script.lock();
        script.dead = true;
        script.hold_ingests = false;
        script.hold_gets = false;
        script.hold_scans = false;
        self.changed.notify_all();
        // A change in flight takes effect or not, but it does so before the test looks.
        self.changed.wait_while(&mut script, |script| script.changing > 0);
    }

    /// Runs a change of the base, unless the process is dead.
    fn change(
        &self,
        mut script: MutexGuard<'_, Script>,
        run: impl FnOnce() -> Result<(), BaseError>,
    ) -> Result<(), BaseError> {
        if script.dead {
            return Err(BaseError::Failed("injected: the process is dead".into()));
        }
        script.changing += 1;
        let result = MutexGuard::unlocked(&mut script, run);
        script.changing -= 1;
        self.changed.notify_all();
        result
    }

    fn blocks(&self, tier: Tier) -> bool {
        tier == Tier::Memory && self.script.lock().cold
    }
}

/// A scan of rows that are all on disk, by a reader that may not go there.
struct Blocked;

impl Cursor for Blocked {
    fn step(&mut self) -> Result<Step<'_>, BaseError> {
        Ok(Step::WouldBlock)
    }
}

impl Base for FaultBase {
    fn get(&self, key: &[u8], tier: Tier) -> Result<Lookup, BaseError> {
        let mut script = self.script.lock();
        if script.cold && tier == Tier::Memory && !script.warm.contains(key) {
            return Ok(Lookup::WouldBlock);
        }
        if tier == Tier::Disk && script.hold_gets {
            script.held_gets += 1;
            self.changed.notify_all();
            self.changed.wait_while(&mut script, |script| script.hold_gets);
            script.held_gets -= 1;
        }
        if tier == Tier::Disk {
            script.gets += 1;
            script.gets_back += u64::from(*key < script.last_get[..]);
            script.last_get = key.to_vec();
        }
        if let Some(fault) = script.get_fault.as_ref().filter(|_| tier == Tier::Disk) {
            return Err(fault.clone());
        }
        if script.cold {
            script.warm.insert(key.to_vec());
        }
        drop(script);
        self.inner.get(key, tier)
    }

    fn scan(
        &self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        tier: Tier,
    ) -> Result<Box<dyn Cursor + '_>, BaseError> {
        if self.blocks(tier) {
            return Ok(Box::new(Blocked));
        }
        if tier == Tier::Disk {
            let mut script = self.script.lock();
            self.changed.wait_while(&mut script, |script| script.hold_scans);
            script.scans += 1;
            self.changed.notify_all();
            if let Some(fault) = &script.scan_fault {
                return Err(fault.clone());
            }
        }
        self.inner.scan(from, until, direction, tier)
    }

    fn view(&self, from: &[u8], until: &[u8], direction: Direction) -> Result<Box<dyn Cursor + Send>, BaseError> {
        self.script.lock().views += 1;
        let view = self.inner.view(from, until, direction);
        let hook = self.after_view.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        view
    }

    fn ingest(&self, rows: &mut dyn Rows) -> Result<(), BaseError> {
        let mut script = self.script.lock();
        script.held += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut script, |script| script.hold_ingests);
        script.held -= 1;
        if let Some(fault) = script.next_ingest_fault.take().or_else(|| script.ingest_fault.clone()) {
            return Err(fault);
        }
        // Read before the first row moves: a sync that ends meanwhile comes too late.
        let synced = self.synced.lock().as_ref().map(|synced| synced());
        let mut rows = Passing { rows, applied: None };
        let result = self.change(script, || self.inner.ingest(&mut rows));
        if let (Some(applied), Some(synced)) = (rows.applied, synced)
            && applied > synced
        {
            let what = format!("ingested up to {}, synced up to {}", applied.0, synced.0);
            self.script.lock().ahead_of_log.get_or_insert(what);
        }
        result
    }

    fn set_busy(&self, busy: bool) {
        self.inner.set_busy(busy);
    }

    fn pace_removals(&self, short_of_space: bool) {
        self.script.lock().short_of_space = short_of_space;
        self.inner.pace_removals(short_of_space);
    }

    fn set_reclaim(&self, reclaim: Reclaim) {
        if !self.script.lock().dead {
            self.inner.set_reclaim(reclaim);
        }
    }

    fn reclaim_range(&self, from: &[u8], until: &[u8]) -> Result<(), BaseError> {
        let script = self.script.lock();
        if let Some(fault) = &script.reclaim_fault {
            return Err(fault.clone());
        }
        if script.reclaims_nothing {
            return Ok(());
        }
        self.change(script, || self.inner.reclaim_range(from, until))
    }

    fn bytes_in(&self, from: &[u8], until: &[u8]) -> u64 {
        self.inner.bytes_in(from, until)
    }

    fn pressure(&self) -> Pressure {
        let scripted = self.script.lock().pressure;
        scripted.unwrap_or_else(|| self.inner.pressure())
    }

    fn checkpoint(&self, directory: &Path) -> Result<(), BaseError> {
        self.inner.checkpoint(directory)
    }

    fn background_error(&self) -> Option<BaseError> {
        self.inner.background_error()
    }

    fn resume(&self) -> Result<(), BaseError> {
        self.inner.resume()
    }

    fn look(&self) -> Result<(), BaseError> {
        let missing = self.script.lock().missing.clone();
        missing.map_or_else(|| self.inner.look(), Err)
    }

    fn disk_bytes(&self) -> u64 {
        self.inner.disk_bytes()
    }

    fn set_cache_bytes(&self, bytes: u64) {
        self.inner.set_cache_bytes(bytes);
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        self.inner.figures()
    }

    fn close(&self) {
        self.inner.close();
    }
}
