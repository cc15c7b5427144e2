//! Room for rows that a command collects before it can answer, taken step by step from the counter of the clients'
//! memory.
//!
//! The store knows nothing of clients. It hands on the question, and gives back the room when the command has ended:
//! from then on the reply is counted where it waits to be sent.

use crate::refusal::Refusal;
use crate::stop::Stop;
use std::sync::Arc;

/// The counter of the memory that commands' collections take.
pub trait Room: Send + Sync {
    /// Takes so many bytes more, for a command that has `all` with these; false if there is no room for them, and then
    /// none are taken. May wait for a moment.
    fn take(&self, more: usize, all: usize) -> bool;

    fn give_back(&self, bytes: usize);
}

/// Bytes that are asked for at once.
const STEP_BYTES: usize = 1 << 20;

/// Room that one command has taken; its drop gives the room back.
pub struct Taken {
    room: Option<Arc<dyn Room>>,
    bytes: usize,
}

impl Taken {
    /// Returns no room yet; without `room`, no counter is asked.
    pub(crate) fn of(room: Option<Arc<dyn Room>>) -> Taken {
        Taken { room, bytes: 0 }
    }

    /// Takes more room where there is less than `bytes` in all.
    ///
    /// # Errors
    /// There is no room.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Stop> {
        let Some(room) = self.room.as_ref().filter(|_| bytes > self.bytes) else { return Ok(()) };
        let more = (bytes - self.bytes).next_multiple_of(STEP_BYTES);
        if !room.take(more, self.bytes + more) {
            return Err(Stop::Refused(Refusal::NoRoom));
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            room.give_back(self.bytes);
        }
    }
}
