//! MIGRATE: keys go to another server, and are removed here when that has them.
//!
//! A thread of the pool's movers runs it under the locks of its keys, which it holds for as long as the exchange takes:
//! whoever wants these keys waits in their queue. It does not stay inside the exclusion meanwhile, so that nobody waits
//! for a target who does not want the same keys; where a command ran exclusively during the exchange, a key goes only
//! if it still is what was sent. Payloads are made one by one and sent ahead of their replies, up to a bound; a long
//! one is sent piece by piece, as it is made. All keys that the target has taken are removed in one transaction at the
//! end, also where a later one failed: a crash before leaves them in both places, never in none.

use crate::clients::inbox::Inbox;
use crate::clients::pending::{Finished, Pending, Work};
use crate::clients::session::State;
use crate::keys::admission::{KeysHeld, PoolInside};
use crate::keys::claims::Claims;
use crate::keys::gate::StoreGate;
use crate::keys::locks::{HeldFor, Parked, Turn};
use crate::run::engine::Engine;
use crate::run::pool::{Job, Task};
use crate::run::protocol::{Keeps, conclude, prepare};
use crate::run::serving::{Place, Service};
use haypile_commands::keys::dump::{Dump, LongDump};
use haypile_commands::keys::migrate::{self, Parcel};
use haypile_commands::migration::Migration;
use haypile_commands::{Args, Body, Error};
use haypile_log::Index;
use haypile_resp::Reply;
use haypile_store::{Call, Mode, Stop, Store, TxnBuffers};
use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Reaches other servers; the server's part, which knows sockets.
pub trait Targets: Send + Sync {
    /// Connects; that, each reply, and each piece that is sent from then on, may take `timeout`.
    ///
    /// # Errors
    /// `ConnectionRefused` and its like where the host is there and the server is not.
    fn connect(&self, host: &[u8], port: u16, timeout: Duration) -> io::Result<Box<dyn Target>>;
}

/// A connection to another server. After an error it is of no more use.
pub trait Target {
    /// Sends a command, now or with the next `flush`.
    fn send(&mut self, words: &[&[u8]]) -> io::Result<()>;

    /// Sends a command with a long payload between its words, piece by piece.
    ///
    /// # Errors
    /// An error of the kind `Other`, with a text, if the payload does not come to its end.
    fn send_long(&mut self, before: &[&[u8]], payload: &mut LongDump, behind: &[&[u8]]) -> io::Result<()>;

    fn flush(&mut self) -> io::Result<()>;

    /// The reply to the earliest command that has none yet.
    fn receive(&mut self) -> io::Result<Reply>;
}

/// Bytes that are sent before the target has answered: a fast network is kept busy, and memory small.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 20;

/// The time between two looks whether the server stops, by who waits for an exclusive run.
const LOOK: Duration = Duration::from_millis(100);

/// Attempts to lock the other keys of clients that wait for the end of a key, a
/// millisecond apart: to wait for good while holding locks could be for ever.
const ATTEMPTS: u32 = 100;

/// A key that was sent.
struct Sent {
    /// The argument that names it.
    at: usize,
    /// Bytes of the request, about.
    bytes: u64,
    stamp: Stamp,
    /// The number of exclusive runs that had ended by then.
    exclusive_runs: u64,
}

/// Tells a key as it was sent from any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    /// The checksum with which the payload of the key ends.
    checksum: [u8; 8],
    deadline_ms: Option<u64>,
}

impl Stamp {
    /// Reads a long payload to its end, if it was not sent.
    fn of(parcel: &mut Parcel) -> Result<Stamp, String> {
        let Parcel { payload, deadline_ms } = parcel;
        Ok(Stamp { bytes: payload.bytes(), checksum: payload.checksum()?, deadline_ms: *deadline_ms })
    }
}

impl Engine {
    /// Gives the way to other servers; before `serve`.
    pub fn reach_targets(&self, targets: Box<dyn Targets>) {
        let is_first = self.targets.set(targets).is_ok();
        assert!(is_first, "an engine has one way to other servers");
    }

    /// Comes in from a thread that may wait, unless the server stops; the store is not exchanged while the guard lives.
    fn come_in(&self) -> Option<PoolInside<'_>> {
        loop {
            let (tell, told) = channel();
            let inside = PoolInside::try_enter(&self.exclusion, || {
                Box::new(move || {
                    // The thread that asked looks again by itself, and may have done so.
                    let _ = tell.send(());
                })
            });
            if inside.is_some() && self.store().is_some() {
                return inside;
            }
            drop(inside);
            if self.is_closing() && self.store().is_none() {
                return None;
            }
            let _ = told.recv_timeout(LOOK);
        }
    }
}

/// Runs it, or parks it, which leaves nothing to tell yet.
pub(crate) fn run(
    engine: &Arc<Engine>,
    store: &Store,
    session: u64,
    inbox: &Arc<Inbox>,
    mut pending: Box<Pending>,
    state: State,
    until: Option<Instant>,
) -> Option<Finished> {
    let claims = pending.needs(&engine.table, store).claims;
    let keys = match KeysHeld::try_take(&engine.locks, &claims, pending.turn, HeldFor::Long) {
        Ok(keys) => keys,
        Err(refused) => {
            let turn = std::mem::replace(&mut pending.turn, Turn::Called(refused));
            let (engine_again, inbox) = (engine.clone(), inbox.clone());
            let again =
                move || engine_again.pool.submit(Job { session, inbox, task: Task::Migrate(pending, state, until) });
            if let Parked::Retry(waiter) = engine.locks.park(refused, turn, Box::new(again)) {
                waiter();
            }
            return None;
        }
    };
    let was_locked = matches!(pending.turn, Turn::Called(_));
    let Work::Command(id, args) = &pending.work else { unreachable!("no block migrates") };
    let Body::Migrate(parse) = engine.table.entry(*id).command.body else { unreachable!("it is the one command") };
    let args = Args::from(args.as_args());
    let (reply, gate) = match parse(args) {
        Ok(migration) => {
            let mut exchange = Exchange::new(engine, inbox, &state, &claims, args, migration);
            (exchange.run(), exchange.gate)
        }
        Err(error) => (error.into_reply(), StoreGate::default()),
    };
    drop(keys);
    Some(Finished { gate, was_locked, ..Finished::plain(state, reply) })
}

/// The answer to a call whose time was over before a thread was free for it. It is not run any more.
pub(crate) fn give_up(engine: &Engine, pending: &Pending, state: State) -> Finished {
    let was_locked = match pending.turn {
        Turn::Called(at) => {
            engine.locks.pass_on(at);
            true
        }
        Turn::Newcomer => false,
    };
    Finished { was_locked, ..Finished::plain(state, connecting()) }
}

/// A call of MIGRATE, from its first key to its reply.
struct Exchange<'a> {
    engine: &'a Engine,
    inbox: &'a Arc<Inbox>,
    state: &'a State,
    claims: &'a Claims,
    args: Args<'a>,
    migration: Migration<'a>,
    target: Option<Box<dyn Target>>,
    /// Replies that come before those of the keys: to AUTH and SELECT.
    greetings: u32,
    /// The target has refused one of these: nothing that it says of keys counts.
    is_refused: bool,
    /// The keys that were sent and have no reply yet, the oldest first.
    in_flight: VecDeque<Sent>,
    in_flight_bytes: u64,
    /// The keys that the target has taken.
    taken: Vec<Sent>,
    /// The first thing that went wrong.
    failure: Option<Reply>,
    /// The newest record that the reply depends on, of the store that was there last.
    gate: StoreGate,
    buffers: TxnBuffers,
}

/// Why no more is sent or received: what the client reads.
type Broken = Reply;

impl<'a> Exchange<'a> {
    fn new(
        engine: &'a Engine,
        inbox: &'a Arc<Inbox>,
        state: &'a State,
        claims: &'a Claims,
        args: Args<'a>,
        migration: Migration<'a>,
    ) -> Self {
        Exchange {
            engine,
            inbox,
            state,
            claims,
            args,
            migration,
            target: None,
            greetings: 0,
            is_refused: false,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            taken: Vec::new(),
            failure: None,
            gate: StoreGate { index: Index(0), version: engine.store_version() },
            buffers: TxnBuffers::default(),
        }
    }

    fn run(&mut self) -> Reply {
        let exchanged = self.exchange();
        if let Err(broken) = exchanged {
            self.failure.get_or_insert(broken);
        }
        // The target may have the keys that it has not answered for by now, or not: these keys stay.
        let (taken, is_missing) = (std::mem::take(&mut self.taken), self.target.is_none());
        self.target = None;
        if !self.migration.copy
            && !taken.is_empty()
            && let Err(why) = self.remove(&taken)
        {
            self.failure.get_or_insert(why);
        }
        match self.failure.take() {
            Some(failure) => failure,
            None if is_missing => Reply::Simple("NOKEY"),
            None => Reply::ok(),
        }
    }

    fn exchange(&mut self) -> Result<(), Broken> {
        for at in self.migration.keys.clone() {
            if self.is_refused {
                break;
            }
            if self.engine.is_closing() {
                self.failure.get_or_insert(Reply::error("ERR the server is stopping"));
                break;
            }
            match self.pack(at) {
                Ok(Some((parcel, ttl_ms, exclusive_runs))) => self.send(at, parcel, ttl_ms, exclusive_runs)?,
                Ok(None) => {}
                Err(error) => {
                    self.failure.get_or_insert(error.into_reply());
                    break;
                }
            }
        }
        if let Some(target) = &mut self.target {
            target.flush().map_err(|_| writing())?;
        }
        while !self.in_flight.is_empty() {
            self.receive()?;
        }
        Ok(())
    }

    /// The session, as far as it matters to those who are told of changed keys.
    fn by(&self) -> u64 {
        self.state.tracker.as_ref().map_or(0, |tracker| tracker.session)
    }

    /// A key as it is to be sent, how long it has to live (0 for ever), and how many exclusive runs have ended.
    fn pack(&mut self, at: usize) -> Result<Option<(Parcel, u64, u64)>, Error> {
        let name = self.args.get(at);
        self.inside(|exchange, store, exclusive_runs| {
            let call = exchange.call();
            let (engine, buffers) = (exchange.engine, std::mem::take(&mut exchange.buffers));
            let mut txn = store.begin(buffers, call);
            prepare(engine, &mut txn, exchange.place(), !exchange.state.no_touch);
            let mut packed = migrate::pack(&mut txn, name);
            if packed.is_ok() {
                match conclude(engine, store, &mut txn, None, Keeps::Nothing, exchange.by()) {
                    Ok(()) => engine.add_lookups(txn.lookups()),
                    Err(stop) => packed = Err(Error::Stop(stop)),
                }
            }
            exchange.gate.index = exchange.gate.index.max(txn.gate());
            exchange.buffers = txn.finish();
            Ok(packed?.map(|parcel| {
                let ttl_ms = parcel.deadline_ms.map_or(0, |deadline| deadline.saturating_sub(call.now_ms).max(1));
                (parcel, ttl_ms, exclusive_runs)
            }))
        })
    }

    fn send(&mut self, at: usize, mut parcel: Parcel, ttl_ms: u64, exclusive_runs: u64) -> Result<(), Broken> {
        if self.target.is_none() {
            self.connect()?;
        }
        let target = self.target.as_mut().expect("it was connected above");
        let name = self.args.get(at);
        let ttl = ttl_ms.to_string();
        let (before, replace) = ([b"RESTORE", name, ttl.as_bytes()], &[&b"REPLACE"[..]][..]);
        let behind = if self.migration.replace { replace } else { &[] };
        let sent = match &mut parcel.payload {
            Dump::Whole(payload) => target.send(&[&before[..], &[&payload[..]], behind].concat()),
            Dump::Long(long) => target.send_long(&before, long, behind),
        };
        sent.map_err(|error| if error.kind() == ErrorKind::Other { unread(&error) } else { writing() })?;
        let bytes = name.len() as u64 + parcel.payload.bytes() + size_of::<Sent>() as u64;
        let stamp = Stamp::of(&mut parcel).map_err(|why| unread(&why))?;
        self.in_flight_bytes += bytes;
        self.in_flight.push_back(Sent { at, bytes, stamp, exclusive_runs });
        while self.in_flight_bytes > IN_FLIGHT_BYTES_MAX {
            self.receive()?;
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<(), Broken> {
        let Migration { host, port, timeout, .. } = self.migration;
        let targets = self.engine.targets.get().ok_or_else(connecting)?;
        let mut target = targets.connect(host, port, timeout).map_err(|error| match error.kind() {
            // Redis does not wait for the connection, and learns this when it writes.
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => writing(),
            _ => connecting(),
        })?;
        if let Some(login) = &self.migration.login {
            let words: Vec<&[u8]> = std::iter::once(&b"AUTH"[..]).chain(login.iter().copied()).collect();
            target.send(&words).map_err(|_| writing())?;
            self.greetings += 1;
        }
        target.send(&[b"SELECT", self.migration.database.to_string().as_bytes()]).map_err(|_| writing())?;
        self.greetings += 1;
        self.target = Some(target);
        Ok(())
    }

    /// Takes what the target says of the oldest key that it has said nothing of.
    fn receive(&mut self) -> Result<(), Broken> {
        let target = self.target.as_mut().expect("something was sent");
        target.flush().map_err(|_| writing())?;
        while self.greetings > 0 {
            let reply = target.receive().map_err(|_| reading())?;
            self.greetings -= 1;
            if let Some(refused) = refusal(reply) {
                self.is_refused = true;
                self.failure.get_or_insert(refused);
            }
        }
        let reply = target.receive().map_err(|_| reading())?;
        let Some(sent) = self.in_flight.pop_front() else { return Ok(()) };
        self.in_flight_bytes -= sent.bytes;
        match refusal(reply) {
            Some(refused) => _ = self.failure.get_or_insert(refused),
            None if self.is_refused => {}
            None => self.taken.push(sent),
        }
        Ok(())
    }

    /// Removes what the target has, all at once unless that is more than a transaction takes.
    fn remove(&mut self, taken: &[Sent]) -> Result<(), Reply> {
        let mut attempts = 0;
        loop {
            match self.try_remove(taken, attempts < ATTEMPTS) {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    return Err(Reply::error(
                        "ERR a command on all keys has changed some of these meanwhile: they are on the target, and here",
                    ));
                }
                Err(Error::Stop(Stop::NeedsLocks)) => {
                    attempts += 1;
                    sleep(Duration::from_millis(1));
                }
                Err(Error::Stop(Stop::TooLarge)) if taken.len() > 1 => {
                    let (first, second) = taken.split_at(taken.len() / 2);
                    return self.remove(first).and(self.remove(second));
                }
                Err(error) => return Err(error.into_reply()),
            }
        }
    }

    /// Removes those keys that are still as they were sent, and returns whether all that exist were.
    fn try_remove(&mut self, taken: &[Sent], serves: bool) -> Result<bool, Error> {
        self.inside(|exchange, store, exclusive_runs| {
            let engine = exchange.engine;
            let (mut all, mut is_same) = (Vec::with_capacity(taken.len()), true);
            for sent in taken {
                let name = exchange.args.get(sent.at);
                if sent.exclusive_runs == exclusive_runs {
                    all.push(name);
                    continue;
                }
                let mut txn = store.begin(TxnBuffers::default(), exchange.call());
                prepare(engine, &mut txn, exchange.place(), false);
                let packed = migrate::pack(&mut txn, name)?;
                conclude(engine, store, &mut txn, None, Keeps::Nothing, exchange.by())?;
                exchange.gate.index = exchange.gate.index.max(txn.gate());
                let Some(mut parcel) = packed else { continue };
                match Stamp::of(&mut parcel) {
                    Ok(stamp) if stamp == sent.stamp => all.push(name),
                    Ok(_) => is_same = false,
                    Err(why) => return Err(Error::Stop(Stop::Failed(why.to_string()))),
                }
            }
            let place = exchange.place();
            let mut txn = store.begin(TxnBuffers::default(), exchange.call());
            prepare(engine, &mut txn, place, true);
            for name in all {
                migrate::remove(&mut txn, name)?;
            }
            let mut service = Service::new(engine, store, place, None);
            conclude(engine, store, &mut txn, serves.then_some(&mut service), Keeps::Effects, exchange.by())?;
            exchange.gate.index = exchange.gate.index.max(txn.gate());
            Ok(is_same)
        })
    }

    fn place(&self) -> Place<'a> {
        Place::Locked { claims: self.claims, held_for: HeldFor::Long, inbox: self.inbox }
    }

    fn call(&self) -> Call<'static> {
        Call {
            now_ms: self.engine.now_ms(),
            seed: self.engine.random_seed(),
            database: self.state.database,
            mode: Mode::Disk,
            pins: None,
        }
    }

    /// Runs something on keys; it is told how many exclusive runs have ended.
    fn inside<T>(&mut self, act: impl FnOnce(&mut Self, &Store, u64) -> Result<T, Error>) -> Result<T, Error> {
        let engine = self.engine;
        let Some(inside) = engine.come_in() else { return Err(Error::text("ERR the server is stopping")) };
        // The data may have been opened again while the target was spoken to. Nobody exchanges them from here on.
        let version = engine.store_version();
        if version != self.gate.version {
            self.gate = StoreGate { index: Index(0), version };
        }
        match engine.store() {
            Some(store) => act(self, &store, inside.exclusive_runs()),
            None => unreachable!("nobody is inside while there is none"),
        }
    }
}

/// Returns the client's reply where the target refuses something.
fn refusal(reply: Reply) -> Option<Reply> {
    let text = match reply {
        Reply::Error(text) => text.into_owned().into_bytes(),
        Reply::ErrorBytes(text) => text,
        _ => return None,
    };
    Some(Reply::error_bytes([b"ERR Target instance replied with error: ", &text[..]].concat()))
}

/// Returns the client's reply where a value cannot be read to its end.
fn unread(why: &impl Display) -> Reply {
    Reply::error(format!("ERR {why}"))
}

fn connecting() -> Reply {
    Reply::error("IOERR error or timeout connecting to the client")
}

fn writing() -> Reply {
    Reply::error("IOERR error or timeout writing to target instance")
}

fn reading() -> Reply {
    Reply::error("IOERR error or timeout reading to target instance")
}
