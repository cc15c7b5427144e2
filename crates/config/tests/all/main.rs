//! Tests of the whole crate, in one program. `redis` needs redis-server.

mod common;
mod deploy;
mod load;
mod matrix;
mod pages;
mod redis;
mod rewrite;
mod settings;
