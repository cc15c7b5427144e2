//! DEBUG RELOAD and LOADAOF: the data are closed and opened again while clients are connected, so that what is on disk
//! is what is served.
//!
//! The thread of backups does it, exclusively as FLUSHALL: whoever wants to run on keys waits or is answered LOADING.
//! What is not kept out (loads of rows, INFO, the tick) sees either store, or none; the old one is closed by then, all
//! its records are on the disk, and rows that were read from it are told from those of the new one by their epoch.
//! Views of long replies are waited for, because they hold the base open.

use crate::keys::admission::ExclusionHeld;
use crate::keys::exclusion::Exclusive;
use crate::keys::waiters::End;
use crate::run::engine::{Engine, StoreRef};
use crate::sync::lock;
use haypile_commands::host::{Reload, Shutdown};
use haypile_log::Index;
use haypile_store::Store;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Opens the data; the server's part, which knows where they are.
pub trait Opener: Send + Sync {
    /// Opens them as the configuration says now, to lead or to follow a master.
    ///
    /// # Errors
    /// A text for people.
    fn open(&self, follows: bool) -> Result<Arc<Store>, String>;

    /// Opens those of a member of a consensus group, without its log's records behind `keep`.
    ///
    /// # Errors
    /// A text for people.
    fn open_group(&self, keep: Index) -> Result<Arc<Store>, String>;

    /// The store is in place: tells it what CONFIG SET may have changed while it was not.
    fn opened(&self, store: &Store);
}

/// How long clients that read long replies are waited for.
const VIEWS_WAIT: Duration = Duration::from_secs(10);

/// The age at which long replies end that rest on data which a member of a group is to abandon.
const VIEW_AGE_OF_MEMBER: Duration = Duration::from_secs(1);

/// How long a closed store is waited for until nobody looks at it any more, so that its memory is free before the new
/// one takes as much.
const USERS_WAIT: Duration = Duration::from_secs(1);

const LOOK: Duration = Duration::from_millis(1);

impl Engine {
    /// Gives the way to open the data again; before `serve`.
    pub fn reopen_with(&self, opener: Box<dyn Opener>) {
        let is_first = self.opener.set(opener).is_ok();
        assert!(is_first, "an engine has one opener");
    }

    /// Blocks for as long as it takes.
    ///
    /// # Errors
    /// A text for people. Either nothing has changed, or the server is told to stop.
    pub(crate) fn reload(&self, how: Reload) -> Result<(), String> {
        if self.group.is_member() {
            return Err("the data of a member of a group are opened again by its group alone".into());
        }
        let _data = lock(&self.replication.data);
        self.open_again(how, self.is_replica(), &mut || Ok(()))
    }

    /// Closes the data and opens them again, to lead or to follow, with `between` in between. The caller holds the lock
    /// of the data. Blocks for as long as it takes.
    ///
    /// # Errors
    /// A text for people. Either nothing has changed, or the server is told to stop.
    pub(crate) fn open_again(
        &self,
        how: Reload,
        follows: bool,
        between: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        let _no_backup = lock(&self.replication.backup);
        let opener = self.opener.get().ok_or("this server cannot open its data again")?;
        let old = self.store_arc().ok_or("the data are not loaded")?;
        if self.settings.config().engine == haypile_config::Engine::Memory {
            return Err("with 'engine memory' nothing would be left".into());
        }
        if how == Reload::Base {
            // Most of it while the others go on.
            old.flush_now()?;
        }
        let held = self.hold_exclusion_without_views(&old)?;
        let exchanged = self.exchange(old, how, &mut || {
            between()?;
            opener.open(follows)
        });
        if let (Ok(()), Some(store)) = (&exchanged, self.store()) {
            opener.opened(&store);
        }
        if self.store().is_none() {
            held.keep();
        }
        exchanged
    }

    /// Abandons the data of a member of a consensus group and opens them again, with `between` in between. The caller
    /// holds the lock of the data.
    pub(crate) fn open_group_again(
        &self,
        keep: Index,
        between: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        self.group.set_wants_data(true);
        let _no_backup = lock(&self.replication.backup);
        self.group.set_wants_data(false);
        let opener = self.opener.get().ok_or("this server cannot open its data again")?;
        let old = self.store_arc().ok_or("the data are not loaded")?;
        // Clients that wait for keys of a leader would wait for ever: as in Redis, they are sent away.
        self.waiters.sessions().into_iter().for_each(|session| _ = self.end_wait(session, End::Deposed));
        // A member that waits for the data does not vote: who reads long replies slowly is sent away, too.
        old.set_view_age_max(VIEW_AGE_OF_MEMBER);
        let held = loop {
            match self.hold_exclusion_without_views(&old) {
                Ok(held) => break held,
                Err(why) if self.is_closing() => return Err(why),
                Err(_) => {}
            }
        };
        old.abandon();
        let exchanged = self.put_in_place(old, Ok(()), &mut || {
            between()?;
            // Watched keys may have been seen in records that the group has not agreed on.
            self.watches.on_replaced();
            opener.open_group(keep)
        });
        if let (Ok(()), Some(store)) = (&exchanged, self.store()) {
            opener.opened(&store);
        }
        if self.store().is_none() {
            held.keep();
        }
        exchanged
    }

    /// Waits until nobody runs on keys and no long reply holds the base open.
    fn hold_exclusion_without_views(&self, store: &Store) -> Result<ExclusionHeld<'_>, String> {
        let since = Instant::now();
        loop {
            let held = self.hold_exclusion();
            if store.views() == 0 {
                return Ok(held);
            }
            drop(held);
            if since.elapsed() > VIEWS_WAIT || self.is_closing() {
                return Err("long replies are still being read".into());
            }
            sleep(LOOK);
        }
    }

    /// Waits until nobody runs on keys.
    pub(crate) fn hold_exclusion(&self) -> ExclusionHeld<'_> {
        loop {
            let (tell, told) = channel();
            let held = ExclusionHeld::try_hold(&self.exclusion, |answer| {
                Box::new(move || {
                    // The receiver is below.
                    let _ = tell.send(answer);
                })
            });
            if let Some(held) = held {
                return held;
            }
            if told.recv() == Ok(Exclusive::WillBeGranted) {
                return ExclusionHeld::granted(&self.exclusion);
            }
        }
    }

    /// The caller runs exclusively.
    fn exchange(
        &self,
        old: Arc<Store>,
        how: Reload,
        open: &mut dyn FnMut() -> Result<Arc<Store>, String>,
    ) -> Result<(), String> {
        // While this fails, nothing has happened.
        old.log().sync_through(old.log().last()).map_err(|error| error.to_string())?;
        let closed = match how {
            Reload::Base => old.close(),
            Reload::Log => old.close_without_flush(),
        };
        self.put_in_place(old, closed, open)
    }

    /// Puts a store in the place of one that was closed.
    fn put_in_place(
        &self,
        old: Arc<Store>,
        closed: Result<(), String>,
        open: &mut dyn FnMut() -> Result<Arc<Store>, String>,
    ) -> Result<(), String> {
        self.detach();
        let since = Instant::now();
        while Arc::strong_count(&old) > 1 && since.elapsed() < USERS_WAIT {
            sleep(LOOK);
        }
        drop(old);
        match closed.and_then(|()| open()) {
            Ok(store) => {
                self.attach(store);
                Ok(())
            }
            Err(why) => {
                tracing::error!("the data cannot be opened again, the server stops: {why}");
                self.request_shutdown(Shutdown::default()).map_err(|error| format!("{error:?}"))?;
                Err(why)
            }
        }
    }

    /// The store, for a thread that may wait until it is opened again; nothing once the server stops.
    pub(crate) fn wait_for_store(&self) -> Option<StoreRef> {
        loop {
            if let Some(store) = self.store() {
                return Some(store);
            }
            if self.is_closing() {
                return None;
            }
            sleep(LOOK);
        }
    }
}
