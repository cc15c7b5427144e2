//! The users of the server, which clients log in as, and the log of what was denied.
//!
//! All users are one value, exchanged as a whole by each change; sessions keep the user that they act as, and look for
//! a newer state of it when the version of the settings has risen. So a command pays nothing for that, and one that was
//! sent after the reply to a change is judged by the change.

use crate::clients::statistics::counters::Count;
use crate::clients::usage::{Seat, Usage};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};
use arc_swap::ArcSwap;
use haypile_acl::log::Entry;
use haypile_acl::user::DEFAULT;
use haypile_acl::{Catalog, Denial, Log, Reason, User, Users};
use haypile_config::Settings;
use haypile_log::Index;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The users, and who was denied what.
pub(crate) struct Accounts {
    catalog: Arc<Catalog>,
    users: ArcSwap<Users>,
    /// The users upon which those of a group are put.
    own: ArcSwap<Users>,
    /// The time at which each user of a group was made.
    made: Mutex<BTreeMap<Vec<u8>, u64>>,
    /// Whether a group says something of the default user.
    has_group_default: AtomicBool,
    /// The store and the record by which those of a group are known.
    known: Mutex<Option<(u64, Index)>>,
    /// The lock of a change of users, from its look at them to their exchange.
    changing: Mutex<()>,
    /// The lock of a write to the file of the users: the last one to write has the newest users.
    saving: Mutex<()>,
    log: Mutex<Log>,
    /// The usage by the clients of each user, by name.
    usages: Mutex<HashMap<Arc<[u8]>, Arc<Usage>>>,
    /// The number of denials for each `Reason`.
    denied: [Count; Reason::ALL.len()],
}

impl Accounts {
    /// Makes the accounts of the default user alone, whose password follows `requirepass`.
    pub fn new(catalog: Arc<Catalog>, settings: &Settings) -> Arc<Accounts> {
        let accounts = Arc::new(Accounts::with_default(catalog));
        accounts.set_default_password(&settings.config().requirepass);
        let followed = accounts.clone();
        settings.listen(move |changed, _, after| {
            if changed.iter().any(|directive| directive.name == "requirepass") {
                followed.set_default_password(&after.requirepass);
            }
            Ok(())
        });
        accounts
    }

    /// Lets one thread at a time write the file of the users.
    pub fn begin_saving(&self) -> MutexGuard<'_, ()> {
        lock(&self.saving)
    }

    fn with_default(catalog: Arc<Catalog>) -> Accounts {
        let users = Users::new(&catalog);
        Accounts {
            catalog,
            own: ArcSwap::from_pointee(users.clone()),
            made: Mutex::default(),
            has_group_default: AtomicBool::new(false),
            known: Mutex::default(),
            users: ArcSwap::from_pointee(users),
            changing: Mutex::default(),
            saving: Mutex::default(),
            log: Mutex::default(),
            usages: Mutex::default(),
            denied: Default::default(),
        }
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub fn users(&self) -> Arc<Users> {
        self.users.load_full()
    }

    pub fn default_user(&self) -> Arc<User> {
        self.users.load().default_user().clone()
    }

    /// The newest state of a user; None if it was removed.
    pub fn newest(&self, user: &User) -> Option<Arc<User>> {
        self.users.load().get(user.name()).cloned()
    }

    /// Changes the users; returns their state before.
    ///
    /// # Errors
    /// The error of `change`; the users are as they were.
    pub fn change<E>(&self, change: impl FnOnce(&mut Users) -> Result<(), E>) -> Result<Arc<Users>, E> {
        let _one = lock(&self.changing);
        let before = self.users();
        let mut after = Users::clone(&before);
        change(&mut after)?;
        let after = Arc::new(after);
        self.users.store(after.clone());
        // Clients of users that were removed give up their seats as they go.
        lock(&self.usages).retain(|name, usage| after.get(name).is_some() || Arc::strong_count(usage) > 1);
        Ok(before)
    }

    /// Returns what the clients of a user take.
    pub fn usage(&self, user: &User) -> Arc<Usage> {
        let mut usages = lock(&self.usages);
        usages.entry(user.name().clone()).or_insert_with(|| Arc::new(Usage::new(user.name().clone()))).clone()
    }

    /// The seat of a client that acts as this user: the one that it has, or a new one. None if all are taken.
    pub fn seat(&self, user: &User, present: Option<&Arc<Seat>>) -> Option<Arc<Seat>> {
        if let Some(seat) = present.filter(|seat| seat.usage.user == *user.name()) {
            return Some(seat.clone());
        }
        let usage = self.usage(user);
        let seat = Seat::take(&usage, user.limits().connections);
        if seat.is_none() {
            usage.turned_away.add_shared(1);
        }
        seat
    }

    /// The users that have limits, with what their clients take.
    pub fn limited(&self) -> Vec<(Arc<User>, Arc<Usage>)> {
        let users = self.users();
        let limited = users.iter().filter(|user| !user.limits().is_none());
        limited.map(|user| (user.clone(), self.usage(user))).collect()
    }

    /// The users upon which those of a group are put.
    pub fn own(&self) -> Arc<Users> {
        self.own.load_full()
    }

    /// Has the users of now be these.
    pub fn note_own(&self) {
        self.own.store(self.users());
        *lock(&self.known) = None;
    }

    /// Notes whether a group says something of the default user, whose password is `requirepass` otherwise.
    pub fn set_group_default(&self, is_told: bool) {
        self.has_group_default.store(is_told, Ordering::Relaxed);
    }

    /// The record through which the users of a group are known, of the store of this version.
    pub fn known_through(&self, version: u64) -> Index {
        lock(&self.known).filter(|(of, _)| *of == version).map_or(Index(0), |(_, through)| through)
    }

    /// Notes the store and the record by which the users of a group are known. Returns, if that is news, what was noted
    /// by `note_made`.
    pub fn note_group(&self, known: (u64, Index)) -> Option<BTreeMap<Vec<u8>, u64>> {
        let is_news = lock(&self.known).replace(known) != Some(known);
        is_news.then(|| lock(&self.made).clone())
    }

    /// Notes when each user of a group was made.
    pub fn note_made(&self, made: BTreeMap<Vec<u8>, u64>) {
        *lock(&self.made) = made;
    }

    /// Gives the default user this password and no other, or lets it in without one if it is empty: `requirepass`.
    pub fn set_default_password(&self, password: &[u8]) {
        let changed = self.change(|users| {
            let mut own = Users::clone(&self.own());
            own.put(own.default_user().with_only_password(password));
            self.own.store(Arc::new(own));
            if !self.has_group_default.load(Ordering::Relaxed) {
                users.put(users.default_user().with_only_password(password));
            }
            Ok::<(), std::convert::Infallible>(())
        });
        match changed {
            Ok(_) => {}
            Err(never) => match never {},
        }
    }

    /// Counts a denial that has happened `count` times, and adds it to the log. `client` is the client's line of CLIENT
    /// LIST.
    pub fn note(&self, denial: Denial, count: u64, client: String, now_ms: u64, entries_max: usize) {
        self.denied[denial.reason as usize].add_shared(count);
        lock(&self.log).add(denial, count, client, now_ms, entries_max);
    }

    /// The newest entries of the log, these first.
    pub fn denials(&self, count: usize) -> Vec<Entry> {
        lock(&self.log).entries().take(count).cloned().collect()
    }

    pub fn reset_denials(&self) {
        lock(&self.log).reset();
    }

    /// Denials for a reason since the start, or since CONFIG RESETSTAT.
    pub fn denied(&self, reason: Reason) -> u64 {
        self.denied[reason as usize].get()
    }

    pub fn reset_counts(&self) {
        self.denied.iter().for_each(Count::reset);
        lock(&self.usages).values().for_each(|usage| usage.reset_counts());
    }
}

/// Whether a user keeps all channels that an earlier state of it had.
pub(crate) fn keeps_channels(before: &User, after: &User) -> bool {
    let all = |user: &User| user.has_channel(b"*", true);
    all(after)
        || before.root().channels_text() == after.root().channels_text() && before.selectors() == after.selectors()
}

/// The name of a user, as CLIENT LIST shows it.
pub(crate) fn shown_name(user: Option<&Arc<[u8]>>) -> String {
    String::from_utf8_lossy(user.map_or(DEFAULT, |name| name)).into_owned()
}
