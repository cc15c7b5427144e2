//! Consensus over the log: a member of a group that agrees on one order of records, by Raft.
//!
//! A Raft entry is a group of records in the log ([`haypile_log::EntrySpan`]). The leader executes at once and its log
//! numbers the entries as it writes them; [`Member`] has the crate `raft` agree on them, and tells how far the group
//! has. Followers keep a leader's records in their logs and apply them when they are committed. What a member does with
//! log and data is behind [`Machine`]; what has to be known before it may vote is in the [`Ballot`].
//!
//! Nothing here waits for a network, reads a clock or draws a random number of its own: ticks, messages and numbers
//! come in, messages go out, so that one seed replays a group. The crate `raft` is named here alone, and its protobuf
//! encodings are never read: [`wire`] has ours.

// The simulation's machine, which tests here use as well, names this crate.
#[cfg(test)]
extern crate self as haypile_raft;

mod ballot;
mod change;
mod configuration;
mod copy;
mod entries;
mod loader;
mod machine;
mod member;
mod members;
mod post;
mod reading;
mod reads;
mod ready;
mod receiving;
mod restored;
mod rounds;
mod standing;
mod survey;
pub mod testing;
#[cfg(test)]
mod trial;
pub mod wire;

pub use ballot::{Ballot, Vote};
pub use configuration::{Change, Configuration, Part};
pub use loader::{Loader, Outgoing};
pub use machine::{Fault, Machine};
pub use member::{Member, Options};
pub use members::{Members, MembersError, Peer};
pub use post::{Incoming, Post};
pub use reads::Reads;
pub use restored::{Compared, LastRecord, compare};
pub use rounds::{Clock, Rounds};
pub use standing::{PeerStanding, Role, Standing, Wanted};
pub use wire::{Envelope, WireError};
