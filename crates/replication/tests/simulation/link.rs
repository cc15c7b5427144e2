//! The connection of a replica to the node that it follows: frames that are on their way, in both directions.

use haypile_log::{History, Hold, Index};
use haypile_replication::frame::{self, Decoded, Frame};
use haypile_replication::{Position, Sink, Stream};
use haypile_store::Store;
use haypile_store::testing::node::NoReaders;
use std::collections::VecDeque;
use std::io;

/// The state of a replica's log, as it says: through where it is written, synced and applied.
pub type Acknowledged = [Index; 3];

pub struct Link {
    pub master: usize,
    pub replica: usize,
    stream: Stream,
    /// Frames on their way to the replica.
    down: VecDeque<Vec<u8>>,
    /// Acknowledgements on their way to the master.
    up: VecDeque<Acknowledged>,
    /// The history of the records that come.
    history: History,
    hold: Hold,
    pub acknowledged: Acknowledged,
}

/// The frames of one sender.
struct Outgoing<'a>(&'a mut VecDeque<Vec<u8>>);

impl Sink for Outgoing<'_> {
    fn send(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.0.push_back(bytes);
        Ok(())
    }
}

impl Link {
    /// Connects a replica that its master has admitted.
    pub fn begin(master: (usize, &Store), replica: usize, at: Position, hold: Hold) -> Link {
        Link {
            master: master.0,
            replica,
            stream: Stream::begin(master.1.log(), at),
            down: VecDeque::new(),
            up: VecDeque::new(),
            history: at.history,
            hold,
            acknowledged: [Index(0); 3],
        }
    }

    /// Has the master send up to so many records, and where its log stands.
    ///
    /// # Errors
    /// The connection ends.
    pub fn send(&mut self, master: &Store, records: u64) -> io::Result<()> {
        let mut out = Outgoing(&mut self.down);
        for _ in 0..records {
            if !self.stream.send_next(&mut out)? {
                self.stream.send_histories(&mut out)?;
                break;
            }
        }
        let log = master.log();
        let confirmed = log.confirmed_by_others();
        out.send(&Frame::Heartbeat { written: log.durable(), synced: log.synced(), confirmed, time_ms: 0 })
    }

    /// Has the replica take up to so many frames, and say how far it is.
    ///
    /// # Errors
    /// The connection ends: a text for people.
    pub fn deliver(&mut self, replica: &Store, frames: u64) -> Result<(), String> {
        for _ in 0..frames {
            let Some(bytes) = self.down.pop_front() else { break };
            let frame = match frame::decode(&bytes) {
                Ok(Decoded::Frame(frame, length)) if length == bytes.len() => frame,
                other => panic!("a frame came as it was sent: {other:?}"),
            };
            match frame {
                Frame::Record(record) => {
                    let record = record.of(self.history);
                    replica.follow(&record, &NoReaders).map_err(|error| error.to_string())?;
                }
                Frame::History(start) => {
                    replica.follow_history(start).map_err(|error| error.to_string())?;
                    self.history = start.history;
                }
                Frame::Heartbeat { confirmed, .. } => replica.log().confirm(confirmed),
                other => panic!("no {} is sent here", other.kind()),
            }
        }
        Ok(())
    }

    /// Has the replica say how far it is.
    pub fn acknowledge(&mut self, replica: &Store) {
        let log = replica.log();
        self.up.push_back([log.written(), log.synced(), log.last()]);
    }

    /// Has the master take what the replica has said; returns whether there was anything.
    pub fn take_acknowledgement(&mut self) -> bool {
        let Some(said) = self.up.pop_front() else { return false };
        let [_, synced, _] = said;
        self.hold.advance(synced.max(self.hold.after()));
        self.acknowledged = said;
        true
    }

    /// Returns the history that the master goes on in.
    pub fn named(&self) -> History {
        self.history
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.down.is_empty() && self.up.is_empty()
    }
}
