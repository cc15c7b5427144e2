//! The facts of replication, which INFO and ROLE tell: which server this one follows, and who follows it.

use crate::clients::statistics::counters::Count;
use crate::run::replication::confirmations::Confirmations;
use crate::run::replication::marks::Marks;
use crate::run::replication::messages::Listeners;
use crate::sync::{Mutex, MutexGuard, lock};
use haypile_commands::host::Failover;
use haypile_log::Index;
use haypile_store::Origin;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A server that another one follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    pub host: String,
    pub port: u16,
}

/// Connects to masters, and knows when it is to do so.
pub trait Replicator: Send + Sync {
    /// The master has changed, or there is none any more. Returns at once.
    fn on_master(&self, master: Option<Master>);

    /// A failover was asked for: its steps go on from here. Returns at once.
    ///
    /// # Errors
    /// There is no thread for it.
    fn on_failover(&self, wanted: Failover) -> std::io::Result<()>;

    /// The words with which this server answers one that wants to follow it.
    fn hello(&self) -> Vec<String>;
}

/// The state of a replica's connection to its master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// The replica tries to connect, or will again; the reason why the last connection ended.
    Connect(Option<String>),
    /// The replica has a connection and says what it has.
    Handshake,
    /// The replica fetches a copy of its master's data: bytes that it has, and all.
    Copy { done: u64, total: u64 },
    /// The replica takes its master's records.
    Connected,
}

/// The facts about this replica's master.
#[derive(Clone, Debug)]
pub struct Upstream {
    pub master: Master,
    pub link: Link,
    /// Whether a copy of its data is to come although its records might lead on from where these data are.
    pub wants_copy: bool,
    /// The moment when the link left the state `Connected` last; None while the link is in it.
    pub down_since: Option<Instant>,
    /// The moment when the link came into the state `Connected` last; None while the link is in another one.
    pub up_since: Option<Instant>,
    /// The moment when the master was heard of last.
    pub heard: Option<Instant>,
    /// The last record of the master's log, as it said last.
    pub master_last: Index,
    /// The moment when all that the master had said to have was applied last.
    pub current: Option<Instant>,
    /// The milliseconds by which this server's clock is ahead of its master's, as of the last look.
    pub clock_skew_ms: Option<i64>,
    /// The reason why a record that has come has to wait.
    pub held: Option<String>,
    /// The stream of commands of a master that is no Haypile, and how far they have taken effect.
    pub origin: Option<Origin>,
    /// Commands and blocks of such a master that were left out because they were refused.
    pub skipped: u64,
}

/// The facts about one replica of this server.
#[derive(Clone, Debug)]
pub struct Downstream {
    pub host: String,
    /// The port that the replica says it listens on.
    pub port: u16,
    pub state: DownstreamState,
    /// The replica is a Redis: it takes commands, and keeps no log.
    pub is_redis: bool,
    /// The version of the store whose records the replica gets.
    pub version: u64,
    pub written: Index,
    pub synced: Index,
    pub applied: Index,
    /// The moment when the connection came.
    pub since: Instant,
    /// The moment when the replica acknowledged something last.
    pub acknowledged: Instant,
    /// The moments when the log had got to where the replica has not come yet.
    pub marks: Marks,
}

impl Downstream {
    /// Returns how long ago the oldest record was written that the replica has not applied; None while it gets no
    /// records.
    pub fn lag(&self) -> Option<Duration> {
        (self.state == DownstreamState::Online).then(|| self.marks.lag(Instant::now()))
    }
}

/// The part of replication that a replica is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownstreamState {
    /// The replica is to get a copy, which is being made.
    WaitCopy,
    /// The replica fetches the copy.
    SendCopy,
    /// The replica gets records.
    Online,
}

/// The step that a failover is in, in Redis's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailoverStep {
    #[default]
    None,
    /// A replica is to have all first.
    WaitForSync,
    /// The replica was told to lead.
    InProgress,
}

impl FailoverStep {
    /// Returns the name in INFO.
    pub fn name(self) -> &'static str {
        match self {
            FailoverStep::None => "no-failover",
            FailoverStep::WaitForSync => "waiting-for-sync",
            FailoverStep::InProgress => "failover-in-progress",
        }
    }
}

/// The failover that goes on, if one does.
#[derive(Default)]
pub(crate) struct Failovers {
    pub step: FailoverStep,
    /// Whether somebody has given the failover up: it ends as soon as its thread sees that.
    pub is_aborted: bool,
    /// Whether nothing is written, into whichever store is in place.
    pub stops_writes: bool,
}

/// See the file's head.
#[derive(Default)]
pub struct Replication {
    state: Mutex<State>,
    pub(crate) replicator: OnceLock<Box<dyn Replicator>>,
    /// The lock of an exchange of the data: they are replaced, opened again, or begin to lead.
    pub(crate) data: Mutex<()>,
    /// The lock of a backup. Who takes both locks takes `data` first.
    pub(crate) backup: Mutex<()>,
    /// The lock of a change of the master: each change is told to the threads before the next one is made.
    pub(crate) changing: Mutex<()>,
    pub(crate) listeners: Listeners,
    pub(crate) confirmations: Confirmations,
    pub resyncs: Resyncs,
}

/// Resyncs that replicas have asked for.
#[derive(Default)]
pub struct Resyncs {
    /// Replicas that all data were sent to.
    pub full: Count,
    /// Replicas that went on from where they were.
    pub partial: Count,
    /// Replicas that wanted to go on, and could not.
    pub refused: Count,
}

#[derive(Default)]
pub(crate) struct State {
    pub upstream: Option<Upstream>,
    downstream: BTreeMap<u64, Downstream>,
    pub failover: Failovers,
}

impl Replication {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the master that this server follows, or tries to.
    pub fn upstream(&self) -> Option<Upstream> {
        self.state().upstream.clone()
    }

    /// Returns the replicas, in the order in which they came.
    pub fn downstream(&self) -> Vec<Downstream> {
        self.state().downstream.values().cloned().collect()
    }

    /// Returns the replicas with the numbers of their connections.
    pub fn numbered_downstream(&self) -> Vec<(u64, Downstream)> {
        self.state().downstream.iter().map(|(number, replica)| (*number, replica.clone())).collect()
    }

    /// Notes something about the master. Nothing happens if it is another one by now.
    pub fn note_upstream(&self, master: &Master, note: impl FnOnce(&mut Upstream)) {
        let mut state = self.state();
        if let Some(upstream) = state.upstream.as_mut().filter(|upstream| upstream.master == *master) {
            let was_up = upstream.link == Link::Connected;
            note(upstream);
            match upstream.link == Link::Connected {
                true if !was_up => (upstream.down_since, upstream.up_since) = (None, Some(Instant::now())),
                false if was_up => (upstream.down_since, upstream.up_since) = (Some(Instant::now()), None),
                _ => {}
            }
        }
    }

    /// Returns how many replicas have the records through `through`, and how many have them on their disks.
    pub(crate) fn acknowledged(&self, through: Index) -> (usize, usize) {
        let state = self.state();
        (state.online(|replica| replica.applied >= through), state.online(|replica| replica.synced >= through))
    }

    /// Returns the last record that so many replicas of the store of this version have, in memory and handed to their
    /// operating systems, or on their disks. A replica that has come back while its former connection is still there
    /// counts once; so do two behind one address that announce the same port.
    pub(crate) fn acknowledged_by(&self, replicas: usize, version: u64, on_disk: bool) -> Index {
        let state = self.state();
        let mut reached: BTreeMap<(&str, u16), Index> = BTreeMap::new();
        let online = state.downstream.values().filter(|replica| replica.state == DownstreamState::Online);
        // A Redis promises nothing: it may lose what it has acknowledged.
        for replica in online.filter(|replica| replica.version == version && !replica.is_redis) {
            let has = if on_disk { replica.synced } else { replica.written }.min(replica.applied);
            let entry = reached.entry((&replica.host, replica.port)).or_default();
            *entry = has.max(*entry);
        }
        let mut reached: Vec<Index> = reached.into_values().collect();
        reached.sort_unstable_by(|left, right| right.cmp(left));
        replicas.checked_sub(1).and_then(|at| reached.get(at)).copied().unwrap_or_default()
    }

    /// Returns how many replicas get records and have acknowledged some within `lag_max`.
    pub(crate) fn good_replicas(&self, lag_max: Duration) -> usize {
        self.state().online(|replica| replica.acknowledged.elapsed() <= lag_max)
    }

    /// Notes a replica, by the number of its connection.
    pub fn set_downstream(&self, number: u64, replica: Downstream) {
        self.state().downstream.insert(number, replica);
    }

    /// Notes something about a replica that is there.
    pub fn note_downstream(&self, number: u64, note: impl FnOnce(&mut Downstream)) {
        if let Some(replica) = self.state().downstream.get_mut(&number) {
            note(replica);
        }
    }

    /// Returns the words with which this server answers one that wants to follow it; None before it serves.
    pub(crate) fn hello(&self) -> Option<Vec<String>> {
        self.replicator.get().map(|replicator| replicator.hello())
    }

    /// Forgets a replica whose connection has ended.
    pub fn remove_downstream(&self, number: u64) {
        self.state().downstream.remove(&number);
    }
}

/// The silence after which a replica's connection is taken for a former one of a replica that has come back: one that
/// is there acknowledges once a second.
const SILENT: Duration = Duration::from_secs(3);

impl State {
    /// Returns how many replicas get records and are as they should be. A former connection of a replica that has come
    /// back counts no more: nothing has come over it since. Two replicas behind one address count both.
    fn online(&self, is_right: impl Fn(&Downstream) -> bool) -> usize {
        let is_former = |number: u64, replica: &Downstream| {
            let mut later = self.downstream.range(number + 1..).map(|(_, later)| later);
            later.any(|later| {
                (&later.host, later.port) == (&replica.host, replica.port)
                    && replica.acknowledged < later.since
                    && replica.acknowledged.elapsed() > SILENT
            })
        };
        let online = self.downstream.iter().filter(|(_, replica)| replica.state == DownstreamState::Online);
        online.filter(|(number, replica)| is_right(replica) && !is_former(**number, replica)).count()
    }
}

impl Upstream {
    /// Returns the facts about a master that was not reached yet.
    pub(crate) fn new(master: Master) -> Upstream {
        let (link, down_since) = (Link::Connect(None), Some(Instant::now()));
        Upstream {
            master,
            link,
            wants_copy: false,
            down_since,
            up_since: None,
            heard: None,
            master_last: Index(0),
            current: None,
            clock_skew_ms: None,
            held: None,
            origin: None,
            skipped: 0,
        }
    }

    /// Returns how long the replica has been behind what its master said to have.
    pub fn lag(&self) -> Option<Duration> {
        self.current.map(|current| current.elapsed())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// Has replicas that have written and synced so much.
    fn replicas(has: &[(u16, u64, DownstreamState, [u64; 2])]) -> Replication {
        let replication = Replication::default();
        for (number, (port, version, state, [written, synced])) in has.iter().enumerate() {
            let replica = Downstream {
                host: "a".into(),
                port: *port,
                state: *state,
                is_redis: false,
                version: *version,
                written: Index(*written),
                synced: Index(*synced),
                applied: Index(*written),
                since: Instant::now(),
                acknowledged: Instant::now(),
                marks: Marks::default(),
            };
            replication.set_downstream(number as u64, replica);
        }
        replication
    }

    #[test]
    fn a_record_is_acknowledged_by_as_many_replicas_as_have_it() {
        use DownstreamState::{Online, SendCopy};
        let has = [
            (1, 5, Online, [20, 10]),
            (2, 5, Online, [15, 15]),
            // Replica 1 once more: its former connection has not ended yet.
            (1, 5, Online, [18, 18]),
            // Replica 3's records are of another store.
            (3, 3, Online, [99, 99]),
            (4, 5, SendCopy, [99, 99]),
        ];
        let replication = replicas(&has);
        let by = |count, on_disk| replication.acknowledged_by(count, 5, on_disk).0;
        assert_eq!([by(1, false), by(2, false), by(3, false)], [20, 15, 0]);
        assert_eq!([by(1, true), by(2, true), by(3, true)], [18, 15, 0]);
        assert_eq!(replication.acknowledged_by(1, 3, false), Index(99));
        assert_eq!(replicas(&[]).acknowledged_by(1, 5, false), Index(0));
    }

    #[test]
    fn a_replica_with_two_connections_counts_once() {
        use DownstreamState::{Online, WaitCopy};
        let has = [
            (1, 5, Online, [20, 10]),
            // Replica 1 once more: nobody has noticed the end of its former connection.
            (1, 5, Online, [18, 18]),
            (2, 5, Online, [15, 15]),
            // Two behind one address, which both are heard of.
            (4, 5, Online, [20, 0]),
            (4, 5, Online, [20, 0]),
            (3, 5, WaitCopy, [99, 99]),
        ];
        let replication = replicas(&has);
        let note = |number, note: &dyn Fn(&mut Downstream)| replication.note_downstream(number, note);
        let now = Instant::now();
        for number in 0..has.len() as u64 {
            note(number, &|replica| (replica.since, replica.acknowledged) = (now, now));
        }
        note(0, &|replica| replica.acknowledged = now - Duration::from_secs(60));
        assert_eq!(replication.acknowledged(Index(10)), (4, 2));
        assert_eq!(replication.acknowledged(Index(16)), (3, 1));
        assert_eq!(replication.acknowledged(Index(19)), (2, 0));
        assert_eq!(replication.good_replicas(Duration::from_secs(3600)), 4);
        note(2, &|replica| replica.acknowledged = now - Duration::from_secs(60));
        assert_eq!(replication.good_replicas(Duration::from_secs(30)), 3, "late, and alone");
    }

    #[test]
    fn the_time_for_which_a_link_stands_begins_when_records_come() {
        let (replication, master) = (Replication::default(), Master { host: "a".into(), port: 1 });
        replication.state().upstream = Some(Upstream::new(master.clone()));
        let times = |link| {
            replication.note_upstream(&master, |upstream| upstream.link = link);
            let upstream = replication.upstream().expect("there is a master");
            (upstream.up_since, upstream.down_since.is_some())
        };
        assert_eq!(times(Link::Handshake), (None, true));
        let (first, is_down) = times(Link::Connected);
        assert!(first.is_some() && !is_down);
        assert_eq!(times(Link::Connected), (first, false));
        assert_eq!(times(Link::Connect(None)), (None, true));
    }
}
