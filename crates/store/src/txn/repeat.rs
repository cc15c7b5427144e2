//! Transactions that repeat the commands of another server, and the origin of the data (`crate::origin`).

use super::{Call, Txn, TxnBuffers};
use crate::origin::{Origin, Repeated, origin_row};
use crate::stop::{Mode, Stop};
use crate::store::Store;

impl Store {
    /// Returns the origin of the data, if they repeat another server's commands. Blocks if it has to read the disk.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn origin(&self) -> Result<Option<Origin>, String> {
        let call = Call { now_ms: 0, seed: 0, database: 0, mode: Mode::Disk, pins: None };
        let mut txn = self.begin(TxnBuffers::default(), call);
        let value = txn.row(&origin_row()).map_err(|stop| format!("the origin cannot be read: {}", text(stop)))?;
        let decode = |value: &[u8]| Origin::decode(value).ok_or_else(|| "the row of the origin is damaged".to_owned());
        value.map(|value| decode(&value)).transpose()
    }

    /// Forgets the origin: the data go their own way from here on.
    ///
    /// # Errors
    /// There is no room. Nothing has happened.
    pub fn forget_origin(&self) -> Result<(), String> {
        if self.origin()?.is_none() {
            return Ok(());
        }
        self.put_system(&[(&origin_row(), None)], Mode::Disk).map_err(text)
    }

    /// Notes the origin of data that were just loaded.
    ///
    /// # Errors
    /// There is no room. Nothing has happened.
    pub fn set_origin(&self, origin: &Origin) -> Result<(), String> {
        self.put_system(&[(&origin_row(), Some(&origin.encode()))], Mode::Disk).map_err(text)
    }

    /// Notes that the data have come to this origin, by commands of which the last ones have changed nothing; unless
    /// the row lies less than `bytes` before it, or behind it. Blocks if it has to read the disk.
    ///
    /// Invariant: no command of the master is under way, because each writes the row in its own transaction.
    ///
    /// # Errors
    /// There is no room. Nothing has happened.
    pub fn advance_origin(&self, origin: &Origin, bytes: u64) -> Result<(), String> {
        // Data without an origin go their own way.
        let Some(noted) = self.origin()? else { return Ok(()) };
        let is_due = origin.offset >= noted.offset.saturating_add(bytes);
        if noted == *origin || !is_due || !self.repeats() {
            return Ok(());
        }
        self.set_origin(origin)
    }

    /// Begins to repeat another server's commands: its writes alone are taken.
    pub fn begin_to_repeat(&self) {
        self.role.set_repeats(true);
    }

    /// Returns whether the store repeats another server's commands.
    pub fn repeats(&self) -> bool {
        self.role.repeats()
    }

    /// Ends to repeat another server's commands: writes of clients are taken.
    pub fn end_to_repeat(&self) {
        self.role.set_repeats(false);
    }
}

/// Returns the reason of a stop, for people.
fn text(stop: Stop) -> String {
    match stop {
        Stop::Refused(why) => why.to_string(),
        Stop::Failed(why) => why,
        // A row alone brings no other stop.
        stop => format!("{stop:?}"),
    }
}

impl<'s> Txn<'s> {
    /// Has the transaction repeat a command of another server, which also decides when keys expire: to it no deadline
    /// has passed. With its effects the commit notes how far the data have come.
    pub fn repeat(&mut self, repeated: &'s Repeated) {
        self.repeated = Some(repeated);
        self.expiry_ms = 0;
    }

    /// Returns whether the transaction repeats a command of another server, which has taken it there.
    pub fn repeats(&self) -> bool {
        self.repeated.is_some()
    }

    /// Has no deadline have passed to the transaction: another server says which keys expire.
    pub fn keep_expired(&mut self) {
        self.expiry_ms = 0;
    }

    /// Returns the time up to which deadlines have passed, in milliseconds since 1970.
    #[inline]
    pub fn expiry_ms(&self) -> u64 {
        self.expiry_ms
    }

    /// Writes the position that the data have come to with this transaction.
    #[cold]
    pub(crate) fn note_origin(&mut self, repeated: &Repeated) -> Result<(), Stop> {
        let origin = Origin { stream: repeated.stream(), offset: repeated.through(), database: self.database() };
        self.put_row(&origin_row(), &[&origin.encode()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::STREAM_BYTES;
    use crate::testing::memory_store;

    #[test]
    fn the_origin_moves_on_alone_where_that_is_due_and_never_back() {
        let store = memory_store();
        let at = |offset| Origin { stream: [b'a'; STREAM_BYTES], offset, database: 3 };
        store.begin_to_repeat();
        store.advance_origin(&at(5000), 1).expect("room");
        assert_eq!(store.origin(), Ok(None), "the data have no origin");
        store.set_origin(&at(100)).expect("room");
        let last = store.log().last();
        for (offset, bytes) in [(100, 1), (50, 1), (4195, 4096)] {
            store.advance_origin(&at(offset), bytes).expect("nothing happens");
            assert_eq!((store.origin(), store.log().last()), (Ok(Some(at(100))), last), "{offset}");
        }
        store.advance_origin(&at(4196), 4096).expect("room");
        store.advance_origin(&at(4197), 1).expect("room");
        assert_eq!((store.origin(), store.log().last().0), (Ok(Some(at(4197))), last.0 + 2));
        store.end_to_repeat();
        store.advance_origin(&at(9000), 1).expect("nothing happens");
        assert_eq!(store.origin(), Ok(Some(at(4197))), "the data lead");
    }
}
