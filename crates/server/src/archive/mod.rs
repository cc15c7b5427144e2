//! The archive of a server: the log goes there as it grows, and backups when they are due; and the subcommands that
//! list, verify and restore what is there.
//!
//! Two threads wait for the place, so that nobody else does: one writes the log (`session`), one makes backups
//! (`backup`). What is in an archive, and what of it a restore needs, is the crate `haypile_archive`'s.

pub mod ask;
mod backup;
pub mod check;
pub mod clock;
mod digests;
mod latest;
pub mod list;
pub mod place;
pub mod position;
pub mod restore;
mod session;

use crate::process::give_way;
use haypile_archive::{Chain, check_location};
use haypile_config::{Archive as Wanted, Config, Engine as EngineKind, Refused};
use haypile_engine::{ArchiveFacts, BackupFacts, Engine};
use haypile_log::{Hold, Index, Log};
use haypile_store::Store;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The pause before an archive that failed is tried again: at first, and at most.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(8);

/// The time between two looks whether there is something to do.
const LOOK: Duration = Duration::from_millis(200);

/// The part of a server that writes to an archive.
pub struct Archiver {
    engine: Arc<Engine>,
    /// The lock of the state; it stays locked while a file is written, so no event loop takes it.
    state: Mutex<State>,
    /// The orders, locked for moments only.
    orders: Mutex<Orders>,
    changed: Condvar,
    /// False once the server stops: whatever waits for a place ends.
    goes_on: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    /// Keeps the records that are not in the archive.
    hold: Option<Hold>,
    /// Rises with each store that was opened: what belongs to another one changes neither the hold nor the position.
    generation: u64,
    threads: Vec<JoinHandle<()>>,
}

/// The backup that is to be made.
#[derive(Default)]
struct Orders {
    /// A backup is to be made.
    wants_backup: bool,
    /// One is being made.
    backs_up: bool,
}

impl Archiver {
    pub fn new(engine: &Arc<Engine>) -> Arc<Archiver> {
        Arc::new(Archiver {
            engine: engine.clone(),
            state: Mutex::default(),
            orders: Mutex::default(),
            changed: Condvar::new(),
            goes_on: Arc::new(AtomicBool::new(true)),
        })
    }

    /// Keeps what a store that was opened has in its log and the archive lacks, as far as that is known. Called before
    /// the hold that the log was opened with is let go of.
    pub fn attach(&self, store: &Store) {
        let config = self.engine.settings.config();
        let wanted = &config.archive;
        let mut state = self.state();
        state.generation += 1;
        if wanted.to.is_empty() {
            state.hold = None;
            return;
        }
        let log = store.log();
        let chain = Chain::new(log.histories().starts());
        let known = position::read(&config.dir).filter(|known| known.place == wanted.to);
        let id = known.as_ref().map_or(String::new(), |known| known.archive.clone());
        // The part of the archive beyond the log is another server's, which this one follows.
        let known = known.and_then(|known| known.in_chain(&chain).map(|(_, through)| through.min(log.last())));
        let held = known.and_then(|through| log.hold_after(through));
        state.hold = Some(held.unwrap_or_else(|| {
            // From here on nothing goes before it is archived, whether or not the archive can be reached.
            let (hold, oldest) = hold_all(log);
            if known.is_none() {
                self.note_position(store, &wanted.to, &id, oldest);
            }
            hold
        }));
    }

    /// Writes down that the log is archived through a record.
    fn note_position(&self, store: &Store, place: &str, archive: &str, through: Index) {
        let histories = store.log().histories();
        let newest = histories.newest().map(|start| start.history);
        let Some(history) = histories.of(through).or(histories.of(through.next())).or(newest) else { return };
        let position = position::Position { place: place.to_owned(), archive: archive.to_owned(), history, through };
        if let Err(error) = position::write(&self.engine.settings.config().dir, &position) {
            tracing::warn!("it cannot be noted how far the log is archived: {error}");
        }
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        self.engine
            .settings
            .listen(|_, _, next| check_wanted(next).map_err(|text| Refused { directive: Some("archive-to"), text }));
        let runs: [(&str, fn(&Archiver)); 2] =
            [("archive", Archiver::write_log), ("archive-backup", Archiver::back_up)];
        for (name, run) in runs {
            let archiver = self.clone();
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
                give_way();
                run(&archiver);
            })?;
            self.state().threads.push(thread);
        }
        Ok(())
    }

    /// Ends the threads.
    pub fn close(&self) {
        self.goes_on.store(false, Ordering::Release);
        let threads = std::mem::take(&mut self.state().threads);
        {
            let _orders = self.orders();
            self.changed.notify_all();
        }
        // A thread that panicked has ended the process already.
        threads.into_iter().for_each(|thread| _ = thread.join());
        // The hold stays: the store's last flush lets go of nothing that is not archived.
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn goes_on(&self) -> bool {
        self.goes_on.load(Ordering::Acquire)
    }

    /// Waits for this long, or until the server stops or something has changed.
    fn wait(&self, time: Duration) {
        let orders = self.orders();
        if self.goes_on() {
            drop(self.changed.wait_timeout(orders, time));
        }
    }

    /// Waits before what failed is tried again, and keeps to the bound on the log meanwhile.
    fn rest(&self, time: Duration, wanted: &Wanted) {
        let until = Instant::now() + time;
        while self.goes_on() && Instant::now() < until && self.wanted() == *wanted {
            self.bound_log();
            self.wait(LOOK.min(time));
        }
    }

    fn wanted(&self) -> Wanted {
        self.engine.settings.config().archive.clone()
    }

    /// Whether this server's records are new to the archive: it leads.
    fn writes(&self) -> bool {
        let is_leader = match self.engine.group.is_member() {
            true => self.engine.group.leader_now() == haypile_engine::Leader::Here,
            false => true,
        };
        is_leader && self.engine.store().is_some_and(|store| self.engine.group.is_member() || !store.follows())
    }

    /// Lets go of the oldest records that wait for the archive where there are too many.
    fn bound_log(&self) {
        let bound = self.wanted().log_bytes;
        let Some(store) = self.engine.store() else { return };
        let mut state = self.state();
        let Some(hold) = state.hold.as_mut().filter(|hold| bound > 0 && hold.kept_bytes() > bound) else { return };
        let (mut first, mut last) = (hold.after().0, store.log().last().0);
        while first < last {
            let middle = first + (last - first) / 2;
            if store.log().bytes_after(Index(middle)) <= bound { last = middle } else { first = middle + 1 }
        }
        // Behind what the base has nothing goes in any case.
        let after = Index(first).max(hold.after()).min(store.log().applied().max(hold.after()));
        if after > hold.after() {
            tracing::warn!(
                "records {} to {after} may go before they are archived: 'archive-log-size' is reached",
                hold.after().next()
            );
            hold.advance(after);
        }
    }

    /// The thread that writes the log.
    fn write_log(&self) {
        let mut pause = RETRY;
        let mut before = self.wanted().to;
        while self.goes_on() {
            let wanted = self.wanted();
            if wanted.to != before
                && let Some(store) = self.engine.store()
            {
                self.attach(&store);
                before.clone_from(&wanted.to);
            }
            if wanted.to.is_empty() || self.engine.store().is_none() {
                if wanted.to.is_empty() && self.engine.archiving.facts().state != "off" {
                    self.forget();
                }
                self.wait(LOOK);
                continue;
            }
            self.engine.archiving.note(|facts| {
                if facts.place != wanted.to {
                    let BackupFacts { is_running, made, .. } = facts.backup;
                    *facts = ArchiveFacts { place: wanted.to.clone(), ..ArchiveFacts::default() };
                    (facts.backup.is_running, facts.backup.made) = (is_running, made);
                }
                facts.state = "opening";
            });
            let ended = session::Session::begin(self, &wanted).and_then(|mut session| session.run(&mut pause));
            if let Err(why) = ended
                && self.goes_on()
            {
                self.note_failure(&why);
                self.rest(pause, &wanted);
                pause = (pause * 2).min(RETRY_MAX);
            }
        }
    }

    /// Notes that the archive refused.
    fn note_failure(&self, why: &str) {
        let why = why.replace(['\r', '\n'], " ");
        let was_told = self.engine.archiving.facts().failure == why;
        if !was_told {
            tracing::warn!("the log is not archived: {why}; it is tried again");
        }
        self.engine.archiving.note(|facts| {
            (facts.state, facts.failure) = ("failing", why);
            facts.failures += 1;
            facts.waiting.get_or_insert_with(Instant::now);
        });
    }

    /// Clears the noted failure of the archive, and logs that it works again.
    fn note_recovery(&self) {
        let mut recovered = None;
        self.engine.archiving.note(|facts| {
            if !std::mem::take(&mut facts.failure).is_empty() {
                recovered = Some(facts.place.clone());
            }
        });
        // Readers of INFO do not wait for the log.
        if let Some(place) = recovered {
            tracing::info!("the archive at {place} works again");
        }
    }

    /// Archives nothing from now on.
    fn forget(&self) {
        self.state().hold = None;
        position::remove(&self.engine.settings.config().dir);
        self.engine.archiving.note(|facts| {
            let made = facts.backup.made;
            *facts = ArchiveFacts { state: "off", ..ArchiveFacts::default() };
            facts.backup.made = made;
        });
    }
}

/// Refuses an archive that can never be: of a place whose form makes no sense, or of a server that has nothing on the
/// disk which could be restored.
///
/// # Errors
/// A text for people.
pub fn check_wanted(config: &Config) -> Result<(), String> {
    let Wanted { to, options, .. } = &config.archive;
    if to.is_empty() {
        return Ok(());
    }
    if config.engine == EngineKind::Memory {
        return Err("'archive-to' has no use with 'engine memory', which keeps nothing".into());
    }
    check_location(to, options).map_err(|why| format!("'archive-to' cannot be used: {why}"))
}

/// Holds all that a log has; returns the record before it, too.
fn hold_all(log: &Log) -> (Hold, Index) {
    loop {
        let oldest = Index(log.stats().first.0.saturating_sub(1));
        // The oldest records may have gone since.
        if let Some(hold) = log.hold_after(oldest) {
            return (hold, oldest);
        }
    }
}

/// The engine's way to the archiver, which holds the engine.
pub struct ToArchive(pub std::sync::Weak<Archiver>);

impl haypile_engine::Archiver for ToArchive {
    fn begin_backup(&self) -> Result<(), String> {
        let archiver = self.0.upgrade().ok_or("the server stops")?;
        if archiver.wanted().to.is_empty() {
            return Err("this server has no archive: 'archive-to' is empty".into());
        }
        let mut orders = archiver.orders();
        if orders.wants_backup || orders.backs_up {
            return Err("a backup is on its way to the archive already".into());
        }
        orders.wants_backup = true;
        archiver.engine.archiving.note(|facts| facts.backup.is_running = true);
        archiver.changed.notify_all();
        Ok(())
    }
}
