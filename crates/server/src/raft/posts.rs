//! The messages that clients publish here, on their way to another member: a queue of the engine's, from which what the
//! group has agreed on is sent behind Raft's own messages.

use haypile_engine::{Engine, Listener, Told};
use haypile_log::Index;
use haypile_raft::Post;
use std::sync::Arc;
use std::time::Duration;

/// Bytes after which no further message is sent before Raft's next ones.
const BYTES_AT_ONCE: usize = 256 << 10;

/// The first pause between two looks at messages that wait for the group to agree. It doubles, up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The messages for one member. Ends when it is dropped.
pub struct Posts<'a> {
    engine: &'a Engine,
    listener: Arc<Listener>,
    /// The version of the data that the messages tell of.
    version: u64,
    pause: Duration,
    lost: u64,
}

impl<'a> Posts<'a> {
    /// Begins to gather messages; `wake` is called when there is one.
    pub fn begin(engine: &'a Engine, wake: Box<dyn Fn() + Send + Sync>) -> Posts<'a> {
        let version = engine.store_version();
        let listener = engine.listen(wake);
        Posts { engine, listener, version, pause: PAUSE_MIN, lost: 0 }
    }

    /// Returns how long the thread may sleep, at most `longest`, before it looks again.
    pub fn pause(&self, longest: Duration) -> Duration {
        if self.listener.has_some() { self.pause.min(longest) } else { longest }
    }

    /// Appends messages of which the group has agreed on all that they tell of; some, where there are many. `is_heard`
    /// says whether they are for the member at all.
    pub fn encode(&mut self, is_heard: bool, buffer: &mut Vec<u8>) {
        if !self.listener.has_some() {
            return;
        }
        let Some(store) = self.engine.store() else { return self.wait_longer() };
        // The store was there before its version is looked at, so that it is not a newer one.
        let version = self.engine.store_version();
        if std::mem::replace(&mut self.version, version) != version {
            // The records that they tell of may have been taken back.
            self.lost += self.listener.take_through(Index(u64::MAX), usize::MAX).len() as u64;
            return self.warn();
        }
        let taken = self.listener.take_through(store.log().confirmed(), BYTES_AT_ONCE);
        if taken.is_empty() {
            return self.wait_longer();
        }
        self.pause = PAUSE_MIN;
        for told in taken.iter().filter(|_| is_heard) {
            if let Told::Message { is_shard, channel, payload } = told {
                let post = Post { is_shard: *is_shard, channel, text: payload.text() };
                self.lost += u64::from(!post.encode(buffer));
            }
        }
        self.warn();
    }

    fn wait_longer(&mut self) {
        self.pause = self.pause.saturating_mul(2);
    }

    /// Says how many messages were lost, if any were.
    fn warn(&mut self) {
        let lost = std::mem::take(&mut self.lost) + self.listener.take_dropped();
        if lost > 0 {
            tracing::warn!(
                "{lost} messages of clients did not leave for another member: too long, too many, or uncertain"
            );
        }
    }
}

impl Drop for Posts<'_> {
    fn drop(&mut self) {
        self.engine.end_listening(&self.listener);
    }
}
