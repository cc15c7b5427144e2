//! The master of a Redis: a redis-server, or a tool that speaks its protocol, follows this server by PSYNC.
//!
//! The master makes what a Redis gets from what is there anyway. The data are a copy as a Haypile replica gets one,
//! written as a file of Redis's format; the commands behind it are what the records of the log say
//! (`haypile_commands::statement`), so the log is the backlog, however far the replica is behind, and memory does
//! not grow with that. Which record a replica's offset lies in is found by walking the log from a place whose
//! offset is known (`backlog`).

pub mod backlog;
mod commands;
pub mod feed;
pub mod file;
mod payload;
mod relay;
pub mod stream;
