//! The I/O pool: threads that may wait for the disk, so that event loops never do.
//!
//! The pool loads rows for commands that missed memory, runs commands under their key locks where loading was not
//! enough, and makes the pieces of long replies. A thread never waits for a lock: a job that cannot have one is parked
//! with its waiter and comes back to the queue when it is called. Results go to the event loop's inbox.

use crate::clients::inbox::Inbox;
use crate::clients::pending::{Event, Finished, Pending, What, Work};
use crate::clients::session::State;
use crate::clients::statistics::Called;
use crate::keys::admission::{Admitted, ExclusionHeld, KeysHeld, PoolInside};
use crate::keys::exclusion::Exclusive;
use crate::keys::locks::{HeldFor, Parked, Turn};
use crate::keys::visits::{CLAIMS_MAX, ON_LOOP_MAX};
use crate::keys::waiters::Waiter;
use crate::keys::watch::Watching;
use crate::run::engine::Engine;
use crate::run::lane::Lane;
use crate::run::movers::Movers;
use crate::run::multi::Rewatch;
use crate::run::serving::Place;
use crate::run::together::{Together, Wanted};
use crate::run::work::Needs;
use crate::sync::{Mutex, lock};
use haypile_commands::Access;
use haypile_resp::{Bytes, Pieces, Protocol, Reply, ReplyPieces};
use haypile_store::{Call, Mode, Pins, Stop, Store, TxnBuffers};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Loads after which a command runs on the pool: what it needs does not stay in memory long enough.
pub(crate) const LOADS_MAX: u32 = 3;

/// Runs of a script on the pool that lacked keys, after which it runs exclusively: which keys it needs depends on what
/// others change meanwhile.
const LACKED_MAX: u32 = 2;

/// Something for the pool to do.
pub(crate) struct Job {
    /// The session whose event the outcome becomes.
    pub session: u64,
    pub inbox: Arc<Inbox>,
    pub task: Task,
}

pub(crate) enum Task {
    /// Reads what a command is going to read; takes no lock and changes nothing.
    Load(Box<Pending>, State, Arc<Together>),
    /// Reads something that is loaded together with what a command lacks.
    Ahead(Wanted, State, Arc<Together>),
    /// Runs a command under its locks.
    Run(Box<Pending>, State),
    /// Hands keys to another server, under their locks, unless its time is over before that begins.
    Migrate(Box<Pending>, State, Option<Instant>),
    /// The next piece of a long reply.
    Piece(Box<ReplyPieces>, Protocol),
    /// Frees what is large and nobody uses any more: the rest of a long reply, a long queue. Nobody waits for it.
    Release(Box<dyn Send>),
    /// Changes what a session watches, by many keys.
    Watch(Rewatch),
    /// Ends the watching of many keys. Nobody waits for it.
    Forget(Arc<Watching>),
    /// Takes one whose wait for many keys has ended out of the queues. Nobody waits for it.
    Dismiss(Arc<Waiter>),
    /// Expired keys that only the base knows, database by database. Nobody waits for it.
    Expire,
}

/// Long commands, and long replies, have a thread for each so many that load rows, and at least two.
const LOADERS_PER_RUNNER: usize = 2;

/// The priorities of 99 that are niceness 4 and 15, of threads that load rows and of those that run long commands; the
/// default is 48, and more is for the privileged.
const LOADER_PRIORITY: u8 = 36;
const RUNNER_PRIORITY: u8 = 10;

/// Groups of threads, each with its queue: those that read rows for commands that lack them; those that make the pieces
/// of long replies; those that run what takes long under its key locks; and those that wait for other servers. However
/// many long commands and replies there are, rows are loaded meanwhile, and whatever other servers do, none of them
/// waits for it. None interrupts an event loop often. They hold latches and mutexes of caches, for less than a
/// microsecond at a time.
#[derive(Default)]
pub(crate) struct Pool {
    loaders: Lane<Job>,
    pieces: Lane<Job>,
    runners: Lane<Job>,
    pub movers: Movers,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The groups of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Load,
    Piece,
    Run,
    Move,
}

impl Pool {
    /// Starts the threads, `loaders` of them to load rows. They end with `close`.
    pub fn start(engine: &Arc<Engine>, loaders: usize) -> std::io::Result<()> {
        let runners = (loaders / LOADERS_PER_RUNNER).max(2);
        Movers::start(engine)?;
        let groups = [(Group::Load, "io", loaders), (Group::Piece, "piece", runners), (Group::Run, "long", runners)];
        for (group, name, count) in groups {
            for number in 0..count {
                let engine_of_thread = engine.clone();
                let thread = std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                    let engine = engine_of_thread;
                    stand_back(group == Group::Load);
                    let pool = &engine.pool;
                    let lane = match group {
                        Group::Load => &pool.loaders,
                        Group::Piece => &pool.pieces,
                        Group::Run | Group::Move => &pool.runners,
                    };
                    while let Some(job) = lane.next() {
                        job.run(&engine);
                    }
                })?;
                let pool = &engine.pool;
                lock(&pool.threads).push(thread);
            }
        }
        Ok(())
    }

    pub fn submit(&self, job: Job) {
        let group = job.task.group();
        let job = std::iter::once(job);
        match group {
            Group::Load => self.loaders.extend(job),
            Group::Piece => self.pieces.extend(job),
            Group::Run => self.runners.extend(job),
            Group::Move => self.movers.extend(job),
        }
    }

    /// Leaves `jobs` empty.
    pub fn submit_all(&self, jobs: &mut Vec<Job>) {
        self.movers.extend(jobs.extract_if(.., |job| job.task.group() == Group::Move));
        self.runners.extend(jobs.extract_if(.., |job| job.task.group() == Group::Run));
        self.pieces.extend(jobs.extract_if(.., |job| job.task.group() == Group::Piece));
        self.loaders.extend(jobs.drain(..));
    }

    /// Returns the number of threads, which may wait for the disk.
    pub fn threads(&self) -> usize {
        lock(&self.threads).len()
    }

    /// Jobs that no thread has begun.
    pub fn queued(&self) -> usize {
        let in_lanes: usize = [&self.loaders, &self.pieces, &self.runners].map(Lane::queued).iter().sum();
        in_lanes + self.movers.queued()
    }

    /// Ends the threads, each after its job, and waits for them. Jobs that no thread has begun are dropped: the event
    /// loops have ended, so nobody hears of them, and what they were to write was never acknowledged.
    pub fn close(&self) {
        self.loaders.close();
        self.pieces.close();
        self.runners.close();
        join(&self.threads);
    }

    /// Ends the threads that wait for other servers, as `close` does.
    pub fn close_movers(&self) {
        self.movers.close();
    }
}

fn join(threads: &Mutex<Vec<JoinHandle<()>>>) {
    let threads = std::mem::take(&mut *lock(threads));
    for thread in threads {
        // A thread that panicked has said so already.
        let _ = thread.join();
    }
}

/// Has the scheduler let the event loops go first, so that a thread whose row has come seldom interrupts one in the
/// middle of a turn. Loads take two fifths of an event loop's share of a core that both want: with the share that
/// compactions have, a thirtieth, a load on busy cores would wait for several of their turns. They go before long
/// commands and replies, which have that share and run as batch.
fn stand_back(loads: bool) {
    use NormalThreadSchedulePolicy::{Batch, Other};
    let (priority, policy) = if loads { (LOADER_PRIORITY, Other) } else { (RUNNER_PRIORITY, Batch) };
    let set = ThreadPriorityValue::try_from(priority).map_or(Ok(()), |priority| {
        let priority = ThreadPriority::Crossplatform(priority);
        set_thread_priority_and_policy(thread_native_id(), priority, ThreadSchedulePolicy::Normal(policy))
    });
    if let Err(why) = set {
        tracing::debug!("a thread of the I/O pool keeps its priority: {why}");
    }
}

impl Task {
    /// Returns the end of the time that the task may wait in a queue, if it has one.
    pub fn until(&self) -> Option<Instant> {
        match self {
            Task::Migrate(_, _, until) => *until,
            _ => None,
        }
    }

    /// Bytes that it holds for its session.
    pub fn bytes(&self) -> usize {
        match self {
            Task::Load(pending, ..) | Task::Run(pending, _) | Task::Migrate(pending, ..) => pending.bytes,
            Task::Piece(pieces, _) => pieces.weight().held_bytes,
            Task::Watch(change) => change.bytes(),
            Task::Ahead(..) | Task::Release(_) | Task::Forget(_) | Task::Dismiss(_) | Task::Expire => 0,
        }
    }

    fn group(&self) -> Group {
        match self {
            // Loads only read, and hold no key lock.
            Task::Load(..) | Task::Ahead(..) => Group::Load,
            Task::Piece(..) | Task::Release(_) => Group::Piece,
            Task::Run(..) | Task::Watch(_) | Task::Forget(_) | Task::Dismiss(_) | Task::Expire => Group::Run,
            Task::Migrate(..) => Group::Move,
        }
    }
}

impl Job {
    /// Answers an exchange that has not begun within its time.
    pub fn give_up(self, engine: &Engine) {
        let Task::Migrate(pending, state, _) = self.task else { unreachable!("nothing else has a time") };
        let finished = crate::run::migrate::give_up(engine, &pending, state);
        let what = What::Finished(Box::new(finished));
        self.inbox.push(Event { session: self.session, what, begun: Some(engine.statistics.clock.now()) });
    }

    pub fn run(self, engine: &Arc<Engine>) {
        let Job { session, inbox, task } = self;
        let begun = Some(engine.statistics.clock.now());
        let event = |what| Event { session, what, begun };
        // Some tasks need no store.
        let task = match task {
            Task::Expire => return engine.expire_in_base(),
            Task::Dismiss(waiter) => return engine.waiters.remove(&waiter),
            Task::Forget(watching) => return drop(watching),
            Task::Release(unused) => return drop(unused),
            Task::Watch(change) => return inbox.push(event(What::Watching(change.carry_out(engine)))),
            task => task,
        };
        let Some(store) = engine.wait_for_store() else { return };
        match task {
            Task::Load(mut pending, mut state, together) => {
                let pins = load(engine, &store, session, &mut pending, &mut state);
                // Subscriptions that the session shares with this copy are its own alone when it goes on.
                drop(state);
                if let Some(loaded) = together.add(pins, Some(pending)) {
                    inbox.push(event(loaded));
                }
            }
            Task::Ahead(mut wanted, state, together) => {
                if let Some(loaded) = together.add(wanted.read(engine, &store, session, state), None) {
                    inbox.push(event(loaded));
                }
            }
            Task::Run(pending, state) => {
                let guest = Guest { engine, session, inbox: &inbox, pending, state };
                if let Some(mut finished) = run(guest, &store) {
                    finished.counted = engine.count_reply(&finished.reply);
                    inbox.push(event(What::Finished(Box::new(finished))));
                }
            }
            Task::Migrate(pending, state, until) => {
                let parked = crate::run::migrate::run(engine, &store, session, &inbox, pending, state, until);
                if let Some(finished) = parked {
                    inbox.push(event(What::Finished(Box::new(finished))));
                }
            }
            Task::Piece(mut pieces, protocol) => {
                let mut bytes = Vec::new();
                let what = match pieces.next(protocol, &mut bytes) {
                    Ok(true) => What::Piece { bytes, rest: Some(pieces), failed: None },
                    Ok(false) => What::Piece { bytes, rest: None, failed: None },
                    Err(why) => What::Piece { bytes: Vec::new(), rest: None, failed: Some(why) },
                };
                inbox.push(event(what));
            }
            Task::Expire | Task::Dismiss(_) | Task::Forget(_) | Task::Release(_) | Task::Watch(_) => {
                unreachable!("it was looked for above")
            }
        }
    }
}

fn load(engine: &Engine, store: &Store, session: u64, pending: &mut Pending, state: &mut State) -> Pins {
    let call =
        Call { now_ms: engine.now_ms(), seed: pending.seed, database: state.database, mode: Mode::Load, pins: None };
    let ran = pending.work.run(engine, store, session, state, call, TxnBuffers::default(), Place::DryRun);
    pending.loads += 1;
    pending.long |= matches!(ran.reply, Err(Stop::Long));
    let is_too_many = ran.missing.len() > CLAIMS_MAX;
    pending.add_keys(ran.missing, ran.needs_exclusion || is_too_many);
    // An event loop would have to take all of their stripes.
    pending.long |= pending.more.len() > ON_LOOP_MAX;
    ran.pins
}

/// A reply of many elements as the bytes that it is going to be, so that an event loop has no more to do than to copy
/// them.
fn encoded_if_long(reply: Reply, protocol: Protocol) -> Reply {
    /// About as many as an event loop encodes in a tenth of a millisecond.
    const ELEMENTS_MAX: usize = 1024;
    match &reply {
        Reply::Array(elements) if elements.len() > ELEMENTS_MAX && !reply.has_stream() => {
            let mut bytes = Vec::new();
            reply.encode(protocol, &mut bytes);
            Reply::Raw(Bytes::from(bytes))
        }
        _ => reply,
    }
}

/// A command on its way through the pool.
struct Guest<'a> {
    engine: &'a Arc<Engine>,
    session: u64,
    inbox: &'a Arc<Inbox>,
    pending: Box<Pending>,
    state: State,
}

impl Guest<'_> {
    /// Nobody asks for its reply any more. One that was called to its lock goes there all the same: others wait.
    fn is_forgotten(&self) -> bool {
        let is_read = |id| self.engine.table.entry(id).command.access == Access::Read;
        // A read is not run for a client that was closed meanwhile.
        matches!(self.pending.work, Work::Command(id, _) if is_read(id))
            && matches!(self.pending.turn, Turn::Newcomer)
            && !self.pending.exclusive
            && self.engine.clients.get(self.session).is_none()
    }

    /// The way back into the queue.
    fn again(self) -> impl FnOnce() + Send + 'static {
        let (engine, inbox, session) = (self.engine.clone(), self.inbox.clone(), self.session);
        let task = Task::Run(self.pending, self.state);
        move || engine.pool.submit(Job { session, inbox, task })
    }
}

/// Gets a command what it needs, or parks it.
fn admit<'a, 'g>(mut guest: Guest<'g>, engine: &'a Engine, needs: &'a Needs) -> Option<(Guest<'g>, Admitted<'a>)> {
    if needs.exclusive && std::mem::take(&mut guest.pending.exclusive) {
        return Some((guest, Admitted::Exclusive { _held: ExclusionHeld::granted(&engine.exclusion) }));
    }
    // Whoever waits takes the job with it; if the answer comes at once, it is still here.
    let mut kept = Some(guest);
    if needs.exclusive {
        let held = ExclusionHeld::try_hold(&engine.exclusion, |answer| {
            let mut guest = kept.take().expect("one waiter is made");
            guest.pending.exclusive = answer == Exclusive::WillBeGranted;
            Box::new(guest.again())
        })?;
        return Some((kept?, Admitted::Exclusive { _held: held }));
    }
    let inside = PoolInside::try_enter(&engine.exclusion, || {
        let guest = kept.take().expect("one waiter is made");
        Box::new(guest.again())
    })?;
    let mut guest = kept?;
    match KeysHeld::try_take(&engine.locks, &needs.claims, guest.pending.turn, HeldFor::Long) {
        Ok(keys) => Some((guest, Admitted::OnPool { _keys: keys, _inside: inside })),
        Err(refused) => {
            drop(inside);
            let turn = std::mem::replace(&mut guest.pending.turn, Turn::Called(refused));
            if let Parked::Retry(waiter) = engine.locks.park(refused, turn, Box::new(guest.again())) {
                waiter();
            }
            None
        }
    }
}

/// Runs it, or parks it, which leaves nothing to tell yet.
fn run(guest: Guest<'_>, store: &Store) -> Option<Finished> {
    if guest.is_forgotten() {
        return Some(Finished::plain(guest.state, Reply::None));
    }
    let engine = guest.engine;
    let needs = guest.pending.needs(&engine.table, store);
    let (mut guest, admitted) = admit(guest, engine, &needs)?;
    let Guest { session, inbox, pending, state, .. } = &mut guest;
    // From in here it is not exchanged.
    let Some(store) = engine.store() else { unreachable!("nobody comes in while there is none") };
    let (seed, database) = (pending.seed, state.database);
    let call = Call { now_ms: engine.now_ms(), seed, database, mode: Mode::Disk, pins: None };
    let was_block = pending.work.is_block();
    if was_block {
        // The rules of this moment count, however long it has waited.
        engine.refresh_user(state);
    }
    let before = state.clone();
    let was_locked = matches!(pending.turn, Turn::Called(_));
    let place = match needs.exclusive {
        true => Place::Exclusive { inbox },
        false => Place::Locked { claims: &needs.claims, held_for: HeldFor::Long, inbox },
    };
    let ran = pending.work.run(engine, &store, *session, state, call, TxnBuffers::default(), place);
    drop(admitted);
    Some(match ran.reply {
        Ok(reply) => {
            let Guest { session, mut state, .. } = guest;
            let reply = encoded_if_long(engine.carry_out(session, &mut state, reply, was_block), state.protocol);
            let (called, waiter) = (Called::together(ran.called), ran.waiter);
            Finished { gate: ran.gate, was_block, was_locked, called, waiter, ..Finished::plain(state, reply) }
        }
        Err(Stop::NeedsLocks) => {
            guest.pending.lacked += 1;
            let needs_exclusion = ran.needs_exclusion || guest.pending.lacked > LACKED_MAX;
            guest.pending.add_keys(ran.missing, needs_exclusion);
            guest.pending.turn = Turn::Newcomer;
            if guest.pending.lacked == 1 && guest.pending.work.has_script(&engine.table) {
                // A dry run finds the other keys, too. Its rows are not kept: this thread waits for the disk.
                let mut state = before.clone();
                drop(load(engine, &store, guest.session, &mut guest.pending, &mut state));
            }
            guest.state = before;
            guest.again()();
            return None;
        }
        Err(stop) => {
            let reply = guest.pending.work.refusal(stop);
            Finished { gate: ran.gate, was_block, was_locked, ..Finished::plain(before, reply) }
        }
    })
}
