//! A member's log and data: a store over a disk that forgets what was not synced, with a base in memory.

use haypile_log::{Index, Kind, Log, Record};
use haypile_raft::{Fault, Machine};
use haypile_store::FollowError;
use haypile_store::testing::node::{Copy, NoReaders, Node};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Data {
    node: Option<Node>,
    reader: Option<haypile_log::Reader>,
    /// The last record that has stayed since this was looked at, if the data were opened again.
    pub rebuilt: Option<Index>,
    pub rebuilds: u64,
    /// A copy that was fetched.
    pub fetched: Option<Copy>,
}

fn fault(error: FollowError) -> Fault {
    match error {
        FollowError::Refused(why) => Fault::Refused(why),
        FollowError::Damaged(why) => Fault::Damaged(why),
    }
}

/// How long a record waits for room, as it does in a server: the thread that writes the log is a real one, and may get
/// no time for a while.
const ROOM_WAIT: Duration = Duration::from_secs(60);

/// Offers something to the log until it is taken.
fn patiently<T>(offer: impl Fn() -> Result<T, FollowError>) -> Result<T, Fault> {
    let since = Instant::now();
    loop {
        match offer() {
            Err(FollowError::Refused(_)) if since.elapsed() < ROOM_WAIT => {}
            answer => return answer.map_err(fault),
        }
    }
}

impl Data {
    pub fn new(node: Node) -> Data {
        Data { node: Some(node), reader: None, rebuilt: None, rebuilds: 0, fetched: None }
    }

    pub fn node(&self) -> &Node {
        self.node.as_ref().expect("it is there, but while it is opened again")
    }

    pub fn into_node(self) -> Node {
        self.node.expect("it is there, but while it is opened again")
    }
}

impl Machine for Data {
    fn log(&self) -> &Log {
        self.node().store.log()
    }

    fn applied(&self) -> Index {
        self.node().store.applied_through()
    }

    fn members(&self) -> Option<Arc<[u8]>> {
        self.node().store.members()
    }

    fn change_members(&mut self, members: &[u8]) -> Result<(), Fault> {
        patiently(|| self.node().store.change_members(1_000, members)).map(drop)
    }

    fn keep(&mut self, records: &[Record<'_>]) -> Result<(), Fault> {
        patiently(|| self.node().store.keep(records))
    }

    fn keep_own(&mut self, entry: (u64, u64), kind: Kind, body: &[u8]) -> Result<Index, Fault> {
        patiently(|| self.node().store.keep_own(entry, kind, 1_000, body))
    }

    fn apply(&mut self, through: Index) -> Result<(), Fault> {
        let store = self.node().store.clone();
        store.apply_through(&mut self.reader, through, &NoReaders).map(drop).map_err(fault)
    }

    fn lead(&mut self, term: u64, first: u64) {
        self.node().store.lead_group(term, first);
    }

    fn rebuild(&mut self, keep: Index, _: Index) -> Result<(), Fault> {
        self.reader = None;
        self.node = self.node.take().map(|node| node.rebuild(keep));
        self.rebuilt = Some(self.rebuilt.map_or(keep, |before| before.min(keep)));
        self.rebuilds += 1;
        Ok(())
    }

    fn install(&mut self) -> Result<(), Fault> {
        self.reader = None;
        let copy = self.fetched.take().expect("a copy was fetched");
        self.node = self.node.take().map(|node| node.install(copy));
        self.rebuilt = Some(Index(0));
        self.rebuilds += 1;
        Ok(())
    }
}
