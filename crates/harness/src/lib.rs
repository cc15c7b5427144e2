//! The programs that prove and measure the server, as a library that the binary `haypile-harness` and the tests share.
//!
//! The programs know the server only as its users do: by its command line, by its replies on a socket, and by the
//! operating system's figures about its process. Nothing here links the server. docs/testing.md says how to run them.

pub mod bench;
pub mod client;
pub mod clock;
pub mod crash;
pub mod damage;
pub mod diff;
pub mod hostile;
pub mod port;
pub mod psync;
pub mod quoted;
pub mod raft_chaos;
pub mod random;
pub mod repl;
pub mod server;
pub mod small_disk;
pub mod soak;
pub mod values;
