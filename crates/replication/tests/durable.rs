//! A master sends a record when it is as durable as the setting asks, and not before.

use haypile_log::testing::{FaultFiles, ForgetfulFiles};
use haypile_log::{Durability, Index, Kind, Log, Options, body_crc};
use haypile_replication::frame::Frame;
use haypile_replication::{Position, Sink, Stream};
use std::io;
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(10);

/// The records that were sent.
#[derive(Default)]
struct Sent(Vec<Index>);

impl Sink for Sent {
    fn send(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        if let Frame::Record(record) = frame {
            self.0.push(record.index);
        }
        Ok(())
    }
}

#[test]
fn a_record_is_sent_when_it_is_as_durable_as_asked() {
    for durability in [Durability::Os, Durability::Fsync] {
        let files = Arc::new(FaultFiles::new(ForgetfulFiles::new().process()));
        let options = Options {
            segment_bytes: 64 << 10,
            unsynced_bytes_max: 1 << 20,
            sync_interval_ms: 3_600_000,
            durability,
            files: files.clone(),
            ..Options::new("log")
        };
        let mut opened = Log::open(options, Index(0)).unwrap();
        opened.replay.finish().unwrap();
        let log = opened.log;
        let mut stream = Stream::begin(&log, Position { history: log.history(), index: log.last() });
        files.hold_syncs(true);
        let body = b"body";
        let reserved = log.reserve_within(body.len(), LONG).unwrap();
        let index = log.append(reserved, Kind::Effects, 7, body, body_crc(body));
        while log.write() < index {
            std::thread::yield_now();
        }
        let mut sent = Sent::default();
        let is_sent = stream.send_next(&mut sent).unwrap();
        files.hold_syncs(false);
        assert_eq!(is_sent, durability == Durability::Os, "{durability:?}");
        log.sync_through(index).unwrap();
        while stream.send_next(&mut sent).unwrap() {}
        assert_eq!(sent.0, [index], "{durability:?}");
    }
}
