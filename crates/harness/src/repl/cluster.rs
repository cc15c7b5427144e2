//! Three servers that follow each other through relays: starts, ends, roles, and the state in which all is equal.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::network::{Flow, Relay};
use crate::client::{Client, Reply, info_field};
use crate::port::free_port;
use crate::server::{REPLY_TIMEOUT, Server, Template, Workplace};

pub const NODES: usize = 3;

/// The longest wait until replicas have all: a copy of everything over a slow link.
const SETTLE_MAX: Duration = Duration::from_secs(90);
/// The longest time in which two servers with the same last record may differ: keys that expire between two looks.
const EQUAL_MAX: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);

/// One server, or the place of one that is down.
pub struct Node {
    pub place: Workplace,
    /// The node's port for good, by which others know it.
    port: u16,
    server: Option<Server>,
    /// The relays to the other nodes, by the other's number.
    relays: Vec<Relay>,
    /// The node that this one follows; None for a master.
    pub follows: Option<usize>,
    /// The process is stopped by SIGSTOP.
    pub is_frozen: bool,
}

pub struct Cluster {
    pub nodes: Vec<Node>,
    template: Template,
    /// Directories that `haypile check` found to be sound.
    pub checks: u64,
    pub starts: u64,
    /// Failovers by FAILOVER after which the replica led.
    pub failovers: u64,
    /// Kills while a replica had fetched a part of a copy.
    pub copies_cut: u64,
}

/// The facts about replication that INFO tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub is_master: bool,
    pub history: String,
    pub last: u64,
    pub link_is_up: bool,
    pub error: String,
}

impl Cluster {
    /// Starts a master and its replicas.
    pub fn start(template: &Template) -> Result<Cluster> {
        let mut nodes = Vec::new();
        for number in 0..NODES {
            let relays = (0..NODES).map(|_| Relay::start()).collect::<Result<Vec<_>>>()?;
            let place = Workplace::new(&format!("repl-{number}"), None)?;
            let port = free_port()?;
            nodes.push(Node {
                place,
                port,
                server: None,
                relays,
                follows: (number > 0).then_some(0),
                is_frozen: false,
            });
        }
        let template = template.clone();
        let mut cluster = Cluster { nodes, template, checks: 0, starts: 0, failovers: 0, copies_cut: 0 };
        for number in 0..NODES {
            cluster.start_node(number, true)?;
        }
        Ok(cluster)
    }

    /// Starts a server and waits until it answers. It follows whom it is to follow, unless it comes up as a master, as
    /// one does whose configuration was not rewritten.
    pub fn start_node(&mut self, number: usize, follows: bool) -> Result<()> {
        let mut template = self.template.clone();
        if let Some(master) = self.nodes[number].follows.filter(|_| follows) {
            template = template.with(&format!("--replicaof 127.0.0.1 {}", self.nodes[number].relays[master].port()))?;
        }
        let (server, _) = Server::start_at(&template, &self.nodes[number].place, self.nodes[number].port)
            .with_context(|| format!("node {number} does not start"))?;
        self.starts += 1;
        for other in &self.nodes {
            other.relays[number].lead_to(server.port());
        }
        self.nodes[number].server = Some(server);
        Ok(())
    }

    fn server(&self, number: usize) -> Result<&Server> {
        self.nodes[number].server.as_ref().with_context(|| format!("node {number} is down"))
    }

    pub fn is_up(&self, number: usize) -> bool {
        self.nodes[number].server.is_some()
    }

    pub fn port(&self, number: usize) -> Result<u16> {
        Ok(self.server(number)?.port())
    }

    pub fn client(&self, number: usize) -> Result<Client> {
        Client::connect(self.port(number)?, REPLY_TIMEOUT).with_context(|| format!("connecting to node {number}"))
    }

    /// Kills a server, and checks its directory.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        let mut server = self.nodes[number].server.take().with_context(|| format!("node {number} is down already"))?;
        server.kill()?;
        self.nodes[number].is_frozen = false;
        self.check(number).with_context(|| format!("node {number} after a kill"))
    }

    /// Stops a server cleanly, and checks its directory.
    pub fn stop(&mut self, number: usize) -> Result<()> {
        let server = self.nodes[number].server.take().with_context(|| format!("node {number} is down already"))?;
        server.stop()?;
        self.check(number).with_context(|| format!("node {number} after a clean stop"))
    }

    /// Checks the directory of a server that is down, unless the next start has an exchange to carry on.
    fn check(&mut self, number: usize) -> Result<()> {
        let data = self.nodes[number].place.data();
        if !data.join("incoming/COMPLETE").exists() {
            self.checks += u64::from(self.template.check(&data)?);
        }
        Ok(())
    }

    /// Removes all data of a server that is down.
    pub fn wipe(&mut self, number: usize) -> Result<()> {
        ensure!(!self.is_up(number), "node {number} is up");
        let data = self.nodes[number].place.data();
        std::fs::remove_dir_all(&data).and_then(|()| std::fs::create_dir(&data)).context("emptying a directory")
    }

    /// Whether a node has fetched files of a copy, and not all of it.
    pub fn has_half_a_copy(&self, number: usize) -> bool {
        let incoming = self.nodes[number].place.data().join("incoming");
        let has_files = std::fs::read_dir(&incoming).is_ok_and(|mut files| files.next().is_some());
        has_files && !incoming.join("COMPLETE").exists()
    }

    /// Stops a process where it is, or lets it go on.
    pub fn freeze(&mut self, number: usize, frozen: bool) -> Result<()> {
        let pid = Pid::from_raw(self.server(number)?.pid() as i32).context("a process has an id")?;
        kill_process(pid, if frozen { Signal::STOP } else { Signal::CONT }).context("SIGSTOP or SIGCONT")?;
        self.nodes[number].is_frozen = frozen;
        Ok(())
    }

    /// Sets the flow between a node and another one, both ways.
    pub fn set_flow(&self, one: usize, other: usize, flow: Flow) {
        self.nodes[one].relays[other].set(flow);
        self.nodes[other].relays[one].set(flow);
    }

    /// Sets the flow between a node and all others.
    pub fn isolate(&self, number: usize, flow: Flow) {
        (0..NODES).filter(|other| *other != number).for_each(|other| self.set_flow(number, other, flow));
    }

    /// Makes each piece of data between all nodes wait.
    pub fn slow_down(&self, delay: Duration) {
        self.nodes.iter().flat_map(|node| &node.relays).for_each(|relay| relay.slow_down(delay));
    }

    pub fn heal(&self) {
        (0..NODES).for_each(|number| self.isolate(number, Flow::Open));
        self.slow_down(Duration::ZERO);
    }

    /// Has a running node follow another one, or none.
    pub fn follow(&mut self, number: usize, master: Option<usize>) -> Result<()> {
        self.nodes[number].follows = master;
        let command = match master {
            Some(master) => format!("REPLICAOF 127.0.0.1 {}", self.nodes[number].relays[master].port()),
            None => "REPLICAOF NO ONE".into(),
        };
        let reply = self.command(number, &command)?;
        ensure!(reply.bytes().is_some_and(|text| text.starts_with(b"OK")), "{command} was answered by {reply}");
        Ok(())
    }

    /// Sends a command, again while the node opens its data.
    pub fn command(&self, number: usize, command: &str) -> Result<Reply> {
        let begin = Instant::now();
        loop {
            let reply = self.client(number)?.command(command)?;
            let is_loading = reply.error().is_some_and(|error| error.starts_with("LOADING"));
            if !is_loading || begin.elapsed() > SETTLE_MAX {
                return Ok(reply);
            }
            sleep(LOOK);
        }
    }

    /// Waits until a node takes writes. Where replies wait for replicas, it has some.
    pub fn wait_for_leader(&self, number: usize) -> Result<()> {
        let mut client = self.client(number)?;
        let begin = Instant::now();
        loop {
            let reply = client.command("DEL nothing-of-this-name")?;
            match reply.error() {
                None => return Ok(()),
                Some(_) if begin.elapsed() < SETTLE_MAX => sleep(LOOK),
                Some(error) => bail!("node {number} does not lead: {error}"),
            }
        }
    }

    pub fn facts(&self, number: usize) -> Result<Facts> {
        let info = self.client(number)?.info("replication")?.context("there is a section about replication")?;
        let field = |name| info_field(&info, name).with_context(|| format!("INFO has no {name}"));
        Ok(Facts {
            is_master: field("role")? == "master",
            history: field("master_replid")?.to_string(),
            last: field("master_repl_offset")?.parse()?,
            link_is_up: info_field(&info, "master_link_status") == Some("up"),
            error: info_field(&info, "master_link_error").unwrap_or_default().to_string(),
        })
    }

    /// Returns the node among these that has most.
    pub fn most(&self, among: &[usize]) -> Result<usize> {
        let mut all = Vec::new();
        for &number in among {
            all.push((self.facts(number)?.last, number));
        }
        all.into_iter().max().map(|(_, number)| number).context("there is a node to choose")
    }

    /// Waits until all nodes have what the master has, and compares their data.
    pub fn settle(&self, master: usize) -> Result<()> {
        let begin = Instant::now();
        let mut differ_since = None;
        loop {
            let of_master = self.facts(master)?;
            ensure!(of_master.is_master, "node {master} is no master: {of_master:?}");
            let all = (0..NODES).map(|number| self.facts(number)).collect::<Result<Vec<_>>>()?;
            let is_settled = |facts: &Facts| {
                (facts.is_master || facts.link_is_up)
                    && (facts.last, &facts.history) == (of_master.last, &of_master.history)
            };
            if !all.iter().all(is_settled) {
                ensure!(begin.elapsed() < SETTLE_MAX, "the replicas do not get on: {all:?}");
                sleep(LOOK);
                continue;
            }
            let digests = (0..NODES).map(|number| self.digest(number)).collect::<Result<Vec<_>>>()?;
            // Keys expire meanwhile.
            if self.facts(master)?.last != of_master.last {
                continue;
            }
            if digests.iter().all(|digest| *digest == digests[0]) {
                return Ok(());
            }
            let since = *differ_since.get_or_insert_with(Instant::now);
            ensure!(since.elapsed() < EQUAL_MAX, "all have the same records, and not the same data: {digests:?}");
            sleep(LOOK);
        }
    }

    fn digest(&self, number: usize) -> Result<String> {
        digest_of(&self.command(number, "DEBUG DIGEST")?)
    }

    /// Sets a directive on all nodes.
    pub fn configure(&self, directive: &str, value: &str) -> Result<()> {
        (0..NODES).try_for_each(|number| self.configure_node(number, directive, value))
    }

    pub fn configure_node(&self, number: usize, directive: &str, value: &str) -> Result<()> {
        let reply = self.client(number)?.call(&["CONFIG", "SET", directive, value])?;
        ensure!(reply.is_ok(), "CONFIG SET {directive} {value} was answered by {reply}");
        Ok(())
    }

    /// Returns the number of files of records that were given up.
    pub fn tails(&self) -> usize {
        let of_node = |node: &Node| std::fs::read_dir(node.place.data().join("tails")).map_or(0, Iterator::count);
        self.nodes.iter().map(of_node).sum()
    }

    /// Returns how many such lines the servers have written to their logs.
    pub fn count_lines(&self, is_such: impl Fn(&str) -> bool) -> usize {
        let count = |node: &Node| node.place.log_text().lines().filter(|line| is_such(line)).count();
        self.nodes.iter().map(count).sum()
    }

    /// Leaves all directories, and returns their paths and the servers' last lines.
    pub fn keep(&mut self) -> (Vec<PathBuf>, String) {
        let tails =
            self.nodes.iter().enumerate().map(|(number, node)| format!("node {number}:\n{}", node.place.log_tail()));
        let lines = tails.collect::<Vec<_>>().join("\n");
        (self.nodes.iter_mut().map(|node| node.place.keep().to_path_buf()).collect(), lines)
    }
}

/// Returns the fingerprint of all data; fails with any other reply, so that two errors are no equal data.
pub fn digest_of(reply: &Reply) -> Result<String> {
    const DIGITS: usize = 40;
    let text = String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned();
    let is_digest = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    ensure!(is_digest, "DEBUG DIGEST was answered by {reply}");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_no_digest() {
        let digest = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(digest_of(&Reply::Simple(digest.into())).ok().as_deref(), Some(digest));
        let others = [Reply::Error(digest.into()), Reply::Simple(digest[1..].into()), Reply::NullBulk];
        assert!(others.iter().all(|reply| digest_of(reply).is_err()));
    }
}
