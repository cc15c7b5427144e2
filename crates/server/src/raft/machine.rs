//! A member's log and data: the engine's store, whose records take effect under the locks of their keys.

use crate::datadir;
use haypile_commands::host::UserChange;
use haypile_engine::{Engine, FollowerLocks, Leader};
use haypile_log::{Index, Kind, Log, Reader, Record};
use haypile_raft::{Fault, Machine};
use haypile_store::{FollowError, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the records of an entry, or of its own, wait for room in the log before the member begins again.
const ROOM_WAIT: Duration = Duration::from_secs(5);

/// The pause before they are offered again.
const ROOM_PAUSE: Duration = Duration::from_millis(10);

/// Records that are applied before the member looks at its clock and at its messages again.
const RECORDS_AT_ONCE: u64 = 2000;

/// The store of a server.
pub struct Data<'a> {
    engine: &'a Engine,
    /// None while it is opened again.
    store: Option<Arc<Store>>,
    version: u64,
    reader: Option<Reader>,
    goes_on: &'a dyn Fn() -> bool,
    /// Asks for another look at what is to be applied.
    again: &'a dyn Fn(),
    /// Whether clients are served as a leader's.
    serves: &'a AtomicBool,
    /// How often the data were opened again.
    pub rebuilds: u64,
}

fn fault(error: FollowError) -> Fault {
    match error {
        FollowError::Refused(why) => Fault::Refused(why),
        FollowError::Damaged(why) => Fault::Damaged(why),
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl<'a> Data<'a> {
    /// Takes the engine's store as it is. `goes_on` says no when the server ends.
    ///
    /// # Errors
    /// The data are not open.
    pub fn of(
        engine: &'a Engine,
        serves: &'a AtomicBool,
        goes_on: &'a dyn Fn() -> bool,
        again: &'a dyn Fn(),
    ) -> Result<Data<'a>, Fault> {
        let mut data = Data { engine, store: None, version: 0, reader: None, goes_on, again, serves, rebuilds: 0 };
        data.take_store()?;
        Ok(data)
    }

    /// Has no command begin on data that are about to be others, and lets go of these.
    fn let_go(&mut self) {
        self.serves.store(false, Ordering::Release);
        self.engine.set_leader(Leader::Unknown);
        (self.store, self.reader) = (None, None);
    }

    fn take_store(&mut self) -> Result<(), Fault> {
        // The version is read first: the data are exchanged by this thread alone.
        self.version = self.engine.store_version();
        self.store = self.engine.store_arc();
        let is_there = self.store.is_some();
        is_there.then_some(()).ok_or_else(|| Fault::Refused("the data are not open".into()))
    }

    /// Returns why no writes are taken, if they are not.
    pub fn refusal(&self) -> Option<String> {
        self.store().refusal_of_disk().map(|refusal| refusal.to_string())
    }

    /// Changes the group's users, as its leader; returns the record.
    ///
    /// # Errors
    /// A text for people: nothing has happened.
    pub fn change_users(&self, change: &UserChange) -> Result<Index, String> {
        self.engine.change_group_users(change)
    }

    /// Returns the record through which changes of the group's users have taken effect here.
    pub fn users_through(&self) -> Index {
        self.engine.group_users_through()
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is there, but while it is opened again")
    }

    /// Offers something to the log until there is room, for as long as an entry waits at most.
    fn patiently<T>(&self, offer: impl Fn(&Store) -> Result<T, FollowError>) -> Result<T, Fault> {
        let since = Instant::now();
        loop {
            match offer(self.store()) {
                Err(FollowError::Refused(_)) if since.elapsed() < ROOM_WAIT && (self.goes_on)() => sleep(ROOM_PAUSE),
                answer => return answer.map_err(fault),
            }
        }
    }
}

impl Machine for Data<'_> {
    fn log(&self) -> &Log {
        self.store().log()
    }

    fn applied(&self) -> Index {
        self.store().applied_through()
    }

    fn members(&self) -> Option<Arc<[u8]>> {
        self.store().members()
    }

    fn change_members(&mut self, members: &[u8]) -> Result<(), Fault> {
        self.patiently(|store| store.change_members(now_ms(), members)).map(drop)
    }

    fn keep(&mut self, records: &[Record<'_>]) -> Result<(), Fault> {
        self.patiently(|store| store.keep(records))
    }

    fn keep_own(&mut self, entry: (u64, u64), kind: Kind, body: &[u8]) -> Result<Index, Fault> {
        self.patiently(|store| store.keep_own(entry, kind, now_ms(), body))
    }

    fn apply(&mut self, through: Index) -> Result<(), Fault> {
        let store = self.store.clone().expect("it is there, but while it is opened again");
        let locks = FollowerLocks::new(self.engine, &store, self.version, self.goes_on);
        let now = through.min(Index(store.applied_through().0 + RECORDS_AT_ONCE));
        store.apply_through(&mut self.reader, now, &locks).map_err(fault)?;
        if store.applied_through() < through {
            (self.again)();
        }
        Ok(())
    }

    fn lead(&mut self, term: u64, first: u64) {
        self.engine.lead_group(term, first).expect("the data are open");
    }

    fn rebuild(&mut self, keep: Index, _: Index) -> Result<(), Fault> {
        self.let_go();
        self.engine.rebuild_group(keep).map_err(Fault::Refused)?;
        self.rebuilds += 1;
        self.take_store()
    }

    fn install(&mut self) -> Result<(), Fault> {
        self.let_go();
        let dir = self.engine.settings.config().dir.clone();
        self.engine.exchange_group(&mut || datadir::exchange(&dir)).map_err(Fault::Refused)?;
        self.rebuilds += 1;
        self.take_store()
    }
}
