//! Sessions that clients can resume, which saves most of a handshake.

use haypile_config::SessionCache;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, StoresServerSessions};
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The store for sessions that the configuration asks for.
pub fn storage(cache: Option<SessionCache>) -> Arc<dyn StoresServerSessions> {
    match cache {
        None => Arc::new(NoServerSessionStorage {}),
        Some(SessionCache { sessions, timeout_s }) => {
            Arc::new(Sessions { cache: ServerSessionMemoryCache::new(sessions.max(1)), timeout_s: timeout_s.into() })
        }
    }
}

/// A bounded cache of sessions that end after a time.
struct Sessions {
    /// Each value ends with the Unix time in seconds until which it counts.
    cache: Arc<ServerSessionMemoryCache>,
    timeout_s: u64,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sessions").field("timeout_s", &self.timeout_s).finish_non_exhaustive()
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, mut value: Vec<u8>) -> bool {
        value.extend((now_s() + self.timeout_s).to_le_bytes());
        self.cache.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        valid(self.cache.get(key)?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        valid(self.cache.take(key)?)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

fn valid(mut value: Vec<u8>) -> Option<Vec<u8>> {
    let until = value.split_off(value.len().checked_sub(8)?);
    let until_s = u64::from_le_bytes(until.try_into().ok()?);
    (now_s() < until_s).then_some(value)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
