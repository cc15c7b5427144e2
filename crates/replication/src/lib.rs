//! Replication without sockets, threads and disks: what a master and its replicas say to each other, and what they
//! decide.
//!
//! A replica's log is a copy of its master's: the same records at the same indexes in the same histories. So whether a
//! replica can go on where it stands is a comparison of (history, index), which [`resync`] makes. Then a [`Stream`] has
//! the records behind; else it fetches a copy of the master's data, file by file, which a [`Manifest`] lists. Both
//! travel as [`frame`]s over a connection that began as any client's. `docs/format/replication.md` describes the bytes.
//!
//! Nothing here waits, reads a clock or touches a file: `server` owns the sockets and threads, `store` the records.

pub mod asked;
pub mod frame;
pub mod manifest;
pub mod psync;
pub mod request;
pub mod resync;
pub mod stream;
pub mod testing;

pub use frame::{Decoded, Frame, FrameError};
pub use manifest::{FileEntry, Manifest, ManifestError, Token};
pub use request::{Hello, PROTOCOL_VERSION, Request};
pub use resync::{FullReason, Position, Resync, common_through};
pub use stream::{Sink, Stream};
