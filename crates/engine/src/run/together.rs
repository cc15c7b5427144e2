//! Rows that are read from the disk at the same time for one session: those that a command lacks, and those that the
//! commands behind it are going to lack. One after the other, each command of a pipeline would wait for its own.

use crate::clients::pending::{Pending, What, Work};
use crate::clients::session::{Session, State, Waiting};
use crate::clients::statistics::Wait;
use crate::run::ahead::Call as Planned;
use crate::run::engine::Engine;
use crate::run::execute::Deferral;
use crate::run::pool::{Job, Task};
use crate::run::serving::Place;
use crate::run::worker::{Next, WorkerState};
use crate::sync::{Mutex, lock};
use haypile_commands::{Access, Args, Body, Error};
use haypile_store::{Call, Key, Mode, Pins, Stop, Store, Txn, TxnBuffers};
use smallvec::SmallVec;
use std::sync::Arc;

/// Keys that are looked at one by one, of the command that lacks rows, and again of those behind it: that costs an
/// event loop about what the commands themselves will. A command of more keys is read by one thread.
const KEYS_MAX: usize = 1000;

/// The rows that are to be read ahead.
pub(crate) enum Wanted {
    /// All rows that this command reads.
    Command(Work),
    /// The row of one of a command's many keys. What is only overwritten has no place in the row cache.
    Key { name: Box<[u8]>, overwritten: bool },
}

/// The reads of one pipeline: the command that waits for all of them, and the rows that have come by now.
pub(crate) struct Together(Mutex<Gathered>);

struct Gathered {
    /// Reads that have not ended.
    left: usize,
    pins: Pins,
    /// The command that goes on when everything is there.
    pending: Option<Box<Pending>>,
}

impl Together {
    /// `pending` comes with the end of its own read, if it has one.
    pub fn new(left: usize, pending: Option<Box<Pending>>) -> Arc<Together> {
        Arc::new(Together(Mutex::new(Gathered { left, pins: Pins::default(), pending })))
    }

    /// Notes that one of the reads has ended; the last one makes the event.
    pub fn add(&self, pins: Pins, pending: Option<Box<Pending>>) -> Option<What> {
        let mut gathered = lock(&self.0);
        gathered.pins.add(pins);
        gathered.pending = gathered.pending.take().or(pending);
        assert!(gathered.left > 0, "each read ends once");
        gathered.left -= 1;
        if gathered.left > 0 {
            return None;
        }
        let pins = std::mem::take(&mut gathered.pins);
        gathered.pending.take().map(|pending| What::Loaded(pending, pins))
    }
}

impl Wanted {
    /// Reads it, without locks. What cannot be read is left to the command to find out.
    pub fn read(&mut self, engine: &Engine, store: &Store, session: u64, mut state: State) -> Pins {
        let call = Call { now_ms: engine.now_ms(), seed: 0, database: state.database, mode: Mode::Load, pins: None };
        match self {
            Wanted::Command(work) => {
                let (buffers, place) = (TxnBuffers::default(), Place::DryRun);
                work.run(engine, store, session, &mut state, call, buffers, place).pins
            }
            Wanted::Key { name, overwritten } => {
                let mut txn = store.begin(TxnBuffers::default(), call);
                let key = txn.key(name);
                let _ = look(&mut txn, &key, *overwritten);
                let pins = txn.take_pins();
                txn.finish();
                pins
            }
        }
    }
}

/// Returns whether a command names more than one key.
fn has_several_keys(call: &Planned<'_>) -> bool {
    call.entry.as_ref().is_ok_and(|entry| entry.command.keys(Args::from(call.args)).nth(1).is_some())
}

fn look(txn: &mut Txn<'_>, key: &Key<'_>, overwritten: bool) -> Result<(), Stop> {
    if overwritten { txn.presence(key).map(drop) } else { txn.meta(key).map(drop) }
}

impl WorkerState {
    /// Loads what `pending` lacks, the first of `calls`, together with what the commands behind it are going to lack.
    pub(crate) fn load_together(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        mut pending: Box<Pending>,
        calls: &[Option<Planned<'_>>],
    ) -> Next {
        let Some(store) = engine.store() else {
            // The store is being opened again: there is nothing to look at ahead.
            return self.hold(engine, session, pending, Deferral::Outside);
        };
        let store = &*store;
        let mut wanted = Vec::new();
        // A command that has several keys is read key by key, another one as a whole, below.
        if calls[0].as_ref().is_some_and(has_several_keys) {
            self.add_lacking(store, session, &calls[..1], &mut wanted);
        }
        let is_split = wanted.len() > 1;
        if !is_split {
            wanted.clear();
        }
        self.add_lacking(store, session, &calls[1..], &mut wanted);
        engine.counters(self.index).loads.add(1);
        let left = wanted.len() + usize::from(!is_split);
        let away_bytes = pending.bytes;
        let mut tasks: SmallVec<[Task; 16]> = SmallVec::new();
        let together = if is_split {
            pending.loads += 1;
            Together::new(left, Some(pending))
        } else {
            let together = Together::new(left, None);
            tasks.push(Task::Load(pending, session.state.clone(), together.clone()));
            together
        };
        tasks.extend(wanted.into_iter().map(|one| Task::Ahead(one, session.state.clone(), together.clone())));
        let (id, inbox) = (session.id, &self.inbox);
        self.jobs.extend(tasks.into_iter().map(|task| Job { session: id, inbox: inbox.clone(), task }));
        self.on_pool += 1;
        session.away_bytes = away_bytes;
        session.timed.get_or_insert_with(Box::default).begin(&engine.statistics.clock, Wait::Disk);
        session.waiting = Waiting::Pool;
        Next::Wait
    }

    /// Adds what these commands would have to wait for, up to the first one that may change what those behind it mean.
    fn add_lacking(
        &mut self,
        store: &Store,
        session: &Session,
        calls: &[Option<Planned<'_>>],
        wanted: &mut Vec<Wanted>,
    ) {
        let (database, pins) = (session.state.database, session.pins.as_deref());
        let call = Call { now_ms: self.now_ms, seed: 0, database, mode: Mode::Look, pins };
        let mut buffers = std::mem::take(&mut self.buffers);
        let mut room = KEYS_MAX;
        for planned in calls.iter().flatten() {
            let Ok(entry) = &planned.entry else { break };
            let Body::Txn(run) = entry.command.body else { break };
            if entry.command.access == Access::Exclusive {
                break;
            }
            let count = entry.command.keys(Args::from(planned.args)).take(room + 1).count();
            let Some(left) = room.checked_sub(count) else { break };
            room = left;
            let mut keys: SmallVec<[(usize, Key<'_>); 2]> = SmallVec::new();
            let mut specs: SmallVec<[bool; 2]> = SmallVec::new();
            for (at, spec) in entry.command.keys(Args::from(planned.args)) {
                keys.push((at, store.key(database, planned.args.get(at))));
                specs.push(spec.overwrites());
            }
            let mut txn = store.begin(buffers, call);
            let ran = run(&mut txn, Args::with_keys(planned.args, &keys));
            let lacks = matches!(ran, Err(Error::Stop(Stop::WouldBlock)));
            buffers = txn.finish();
            if !lacks {
                continue;
            }
            if keys.len() == 1 {
                wanted.push(Wanted::Command(Work::Command(entry.id, planned.args.to_owned_args())));
                continue;
            }
            for ((_, key), overwritten) in keys.iter().zip(specs) {
                // Each by itself: one that looks for many at once is told that it has to load them.
                let mut txn = store.begin(buffers, call);
                if look(&mut txn, key, overwritten) == Err(Stop::WouldBlock) {
                    wanted.push(Wanted::Key { name: key.name.into(), overwritten });
                }
                buffers = txn.finish();
            }
        }
        self.buffers = buffers;
    }
}
