//! The loads that both groups get, and what is asked of ours beside etcd.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::bench::process::cores;

/// A command of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Put,
    /// A linearizable read.
    Get,
}

/// A load in a closed loop: each connection sends the next requests when it has the replies to its last ones.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub op: Op,
    pub value_bytes: usize,
    pub connections: usize,
    /// Requests in flight on a connection.
    pub pipeline: usize,
}

/// Keys of all loads, drawn alike.
pub const KEYS: u64 = 10_000;

/// The figures of one group under one load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Requests a second.
    pub rate: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// CPU microseconds of all servers per request, until they are idle again.
    pub cpu_us: f64,
    /// CPU microseconds of the leader per request.
    pub leader_cpu_us: f64,
    /// CPU microseconds of the client per request.
    pub client_cpu_us: f64,
    /// The part of the machine's time that went to processes beside servers and client, and to the kernel.
    pub others: f64,
}

/// CPU seconds of a load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub servers: f64,
    pub leader: f64,
    /// CPU seconds of all processes beside the servers, the client being one.
    pub others: f64,
}

/// A client's own figures.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub requests: u64,
    pub time: Duration,
    pub p50_us: f64,
    pub p99_us: f64,
    pub cpu_seconds: f64,
}

impl Seen {
    /// Returns the figures of a load that had this cost.
    pub fn at_cost(self, cost: Cost) -> Figures {
        let us = 1e6 / self.requests as f64;
        Figures {
            rate: self.requests as f64 / self.time.as_secs_f64(),
            p50_ms: self.p50_us / 1e3,
            p99_ms: self.p99_us / 1e3,
            cpu_us: cost.servers * us,
            leader_cpu_us: cost.leader * us,
            client_cpu_us: self.cpu_seconds * us,
            others: (cost.others - self.cpu_seconds).max(0.0) / self.time.as_secs_f64() / cores() as f64,
        }
    }
}

pub struct Case {
    pub id: &'static str,
    pub title: &'static str,
    pub load: Load,
    /// The least factor to etcd's throughput.
    pub times_min: f64,
    /// The least part of what the disk takes that is enough, where the disk is the limit.
    pub of_disk_min: Option<f64>,
    /// The greatest part of etcd's p99.
    pub p99_max: f64,
    /// The greatest part of etcd's CPU time per request.
    pub cpu_max: Option<f64>,
}

const fn load(op: Op, value_bytes: usize, connections: usize) -> Load {
    Load { op, value_bytes, connections, pipeline: 1 }
}

const THIRD: f64 = 1.0 / 3.0;

pub static CASES: [Case; 4] = [
    Case {
        id: "put-4k-50",
        title: "put of 4 KB, 50 connections",
        load: load(Op::Put, 4096, 50),
        times_min: 5.0,
        of_disk_min: Some(0.8),
        p99_max: THIRD,
        cpu_max: Some(0.2),
    },
    Case {
        id: "put-4k-200",
        title: "put of 4 KB, 200 connections",
        load: load(Op::Put, 4096, 200),
        times_min: 5.0,
        of_disk_min: Some(0.8),
        p99_max: THIRD,
        cpu_max: Some(0.2),
    },
    Case {
        id: "put-16-200",
        title: "put of 16 B, 200 connections",
        load: load(Op::Put, 16, 200),
        times_min: 6.0,
        of_disk_min: None,
        p99_max: THIRD,
        cpu_max: Some(0.2),
    },
    Case {
        id: "get-16-200",
        title: "linearizable get of 16 B, 200 connections",
        load: load(Op::Get, 16, 200),
        times_min: 8.0,
        of_disk_min: None,
        p99_max: 0.25,
        cpu_max: None,
    },
];

/// Returns the cases with these ids; all of them for none.
///
/// # Errors
/// An id that no case has.
pub fn chosen(ids: &[String]) -> Result<Vec<&'static Case>> {
    if let Some(unknown) = ids.iter().find(|id| CASES.iter().all(|case| case.id != id.as_str())) {
        let known: Vec<_> = CASES.iter().map(|case| case.id).collect();
        bail!("no case {unknown:?}; there are {}", known.join(", "));
    }
    Ok(CASES.iter().filter(|case| ids.is_empty() || ids.iter().any(|id| id == case.id)).collect())
}
