//! The processes of a group: started side by side, each in a directory of its own, their CPU time read together.

use std::path::Path;
use std::thread::scope;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cases::Cost;
use crate::bench::process::{cpu_seconds, idle_cpu_seconds, machine_cpu_seconds};
use crate::port::free_port;
use crate::server::{Server, Template, Workplace};

/// The longest wait until the servers of a group are idle after a load.
const IDLE_MAX: Duration = Duration::from_secs(10);

pub struct Node {
    server: Server,
    template: Template,
    place: Workplace,
}

impl Node {
    pub fn port(&self) -> u16 {
        self.server.port()
    }
}

pub struct Group {
    pub nodes: Vec<Node>,
    /// The place of the leader among the nodes, as it was when the group was ready.
    pub leader: usize,
}

/// CPU seconds of a group's processes, and of the whole machine, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    servers: f64,
    leader: f64,
    machine: f64,
}

impl Group {
    /// Starts a node on each port by its own command line, and does not wait for them.
    pub fn spawn(name: &str, dir: &Path, nodes: &[(u16, Template)]) -> Result<Group> {
        let start = |(port, template): &(u16, Template)| {
            let place = Workplace::new(name, Some(dir))?;
            let server = Server::spawn_at(template, &place, *port)?;
            Ok(Node { server, template: template.clone(), place })
        };
        Ok(Group { nodes: nodes.iter().map(start).collect::<Result<_>>()?, leader: 0 })
    }

    pub fn leader_port(&self) -> u16 {
        self.nodes[self.leader].port()
    }

    /// Fails with the last lines of a node that has ended.
    pub fn check_running(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            let ended = node.server.ended()?;
            ensure!(ended.is_none(), "a server ended, {ended:?}; its last lines:\n{}", node.place.log_tail());
        }
        Ok(())
    }

    /// Sends SIGKILL to a node, and waits until it is gone.
    pub fn kill(&mut self, node: usize) -> Result<()> {
        self.nodes[node].server.kill().map(drop)
    }

    /// Starts a node that was killed again, on its port and its data, and does not wait for it.
    pub fn restart(&mut self, node: usize) -> Result<()> {
        let node = &mut self.nodes[node];
        node.server = Server::spawn_at(&node.template, &node.place, node.port()).context("starting a node again")?;
        Ok(())
    }

    pub fn read_cpu(&self) -> Reading {
        self.reading(self.nodes.iter().map(|node| cpu_seconds(node.server.pid())).collect())
    }

    fn reading(&self, each: Vec<f64>) -> Reading {
        Reading { servers: each.iter().sum(), leader: each[self.leader], machine: machine_cpu_seconds() }
    }

    /// Returns the cost of a load that has just ended: of the servers until each has been idle for two seconds, of all
    /// others until now.
    pub fn cost_since(&self, before: Reading) -> Cost {
        let now = self.read_cpu();
        let each = scope(|threads| {
            let look = |node: &Node| {
                let pid = node.server.pid();
                threads.spawn(move || idle_cpu_seconds(pid, IDLE_MAX))
            };
            let all: Vec<_> = self.nodes.iter().map(look).collect();
            all.into_iter().map(|look| look.join().expect("it does not panic")).collect()
        });
        let after = self.reading(each);
        Cost {
            servers: after.servers - before.servers,
            leader: after.leader - before.leader,
            others: (now.machine - before.machine) - (now.servers - before.servers),
        }
    }
}

/// Returns so many different ports that are free.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    (0..count).map(|_| free_port()).collect()
}
