//! Records that say what they do, for a Redis that follows (`haypile_commands::statement`).

use crate::run::engine::Engine;
use crate::sync::lock;
use haypile_commands::host::Channels;
use haypile_commands::statement;
use haypile_log::Index;
use haypile_store::Mode;

impl Engine {
    /// Has each record behind the one that is returned say what it does, in the store of this version. Blocks for as
    /// long as runs take.
    ///
    /// # Errors
    /// A text for people: the data are another server's, or not open.
    pub fn begin_to_state(&self, version: u64) -> Result<Index, String> {
        let _data = lock(&self.replication.data);
        let store = self.store_arc().filter(|_| self.store_version() == version);
        let store = store.ok_or("the data are others by now")?;
        if store.follows() {
            return Err("the data are another server's".into());
        }
        // A run that has begun before this says nothing; it has its index when this has come to its turn.
        let _exclusion = self.hold_exclusion();
        store.begin_to_state();
        Ok(store.log().last())
    }

    /// Says a message to each Redis that follows, unless the log has no room: a message may get lost.
    pub(crate) fn state_message(&self, kind: Channels, channel: &[u8], text: &[u8]) {
        if let Some(store) = self.store().filter(|store| store.is_told()) {
            let name: &[u8] = if kind == Channels::Shard { b"SPUBLISH" } else { b"PUBLISH" };
            let _ = store.put_statement(&statement::encode(&[name, channel, text]), Mode::Memory);
        }
    }

    /// Asks each Redis that follows to say at once how far it has come: unasked, it does once a second.
    pub(crate) fn ask_for_acknowledgements(&self) {
        if let Some(store) = self.store().filter(|store| store.is_told()) {
            // Where the log has no room, the answer comes within a second.
            let _ = store.put_statement(&statement::encode(&[b"REPLCONF", b"GETACK", b"*"]), Mode::Memory);
        }
    }

    /// Says something to each Redis that follows, beside what is done to the data. May wait for the disk.
    ///
    /// # Errors
    /// The log has no room.
    pub fn state(&self, words: &[&[u8]]) -> Result<(), String> {
        let Some(store) = self.store().filter(|store| store.is_told()) else { return Ok(()) };
        let said = store.put_statement(&statement::encode(words), Mode::Disk);
        said.map(drop).map_err(|stop| format!("{stop:?}"))
    }
}
