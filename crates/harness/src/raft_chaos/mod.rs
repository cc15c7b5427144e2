//! The test of linearizability: nodes of a system that is replicated by Raft, or stands alone, clients on all of them,
//! and one scenario of disturbances after the other. What the clients heard is checked after each.
//!
//! `operation` and `history` say what is asked and heard, `load` asks, `system` is what differs between systems and
//! `systems` are those that are known, `group` with `process` and `network` runs and disturbs them as `scenario` says,
//! `check` judges. `lies` breaks a system on purpose, `memory` is one that does as it says.

pub mod check;
pub mod group;
pub mod history;
pub mod lies;
pub mod load;
pub mod memory;
pub mod network;
pub mod operation;
pub mod process;
pub mod scenario;
pub mod system;
pub mod systems;
