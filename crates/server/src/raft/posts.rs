//! The messages that clients publish here, on their way to another member: a queue of the engine's, from which what the
//! group has agreed on is sent behind Raft's own messages.

use haypile_engine::{Engine, Listener, StoreGate, Told};
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
    pause: Duration,
    lost: u64,
}

impl<'a> Posts<'a> {
    /// Begins to gather messages; `wake` is called when there is one.
    pub fn begin(engine: &'a Engine, wake: Box<dyn Fn() + Send + Sync>) -> Posts<'a> {
        Posts { engine, listener: engine.listen(wake), pause: PAUSE_MIN, lost: 0 }
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
        let version = self.engine.store_version();
        let Some(store) = self.engine.store() else { return self.wait_longer() };
        // The store of this version, unless it is exchanged in between.
        if self.engine.store_version() != version {
            return self.wait_longer();
        }
        let confirmed = StoreGate { index: store.log().confirmed(), version };
        let taken = self.listener.take_through(confirmed, BYTES_AT_ONCE);
        self.warn();
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
