//! The systems that the chaos test knows, each an adapter of its own.

pub mod etcd;
pub mod haypile;
mod http;
mod resp;
pub mod single;
